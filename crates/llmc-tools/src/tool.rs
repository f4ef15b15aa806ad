//! What a tool is: a name, words, arguments, an effect, and a function.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::arguments;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::recording;
use crate::remedy;
use crate::render::Render;
use crate::schema::{Lean, UNLISTED, lean};
use crate::seal::{Sealed, seal, seal_failure};
use crate::shape::Shape;
use crate::upstreams::UpstreamTool;

/// What a call may do to the world. Policy decides on this, never on names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Looks.
    Reads,
    /// Changes the agent's files or ends its processes.
    Writes,
    /// Starts programs.
    Runs,
    /// Sends data off the machine.
    SendsOut,
    /// Runs a script, whose calls are judged one by one.
    Scripts,
    /// Calls another server's tool that only looks, as that server says.
    UpstreamReads,
    /// Calls another server's tool that may change anything.
    UpstreamRuns,
}

impl Effect {
    /// Whether nothing changes by a call.
    pub fn only_looks(self) -> bool {
        matches!(self, Effect::Reads | Effect::UpstreamReads)
    }
}

/// A tool. The first paragraph of the argument type's documentation is what the model reads.
pub(crate) trait Tool: 'static {
    /// The name clients call.
    const NAME: &'static str;
    /// Further names that calls accept; never listed.
    const ALIASES: &'static [&'static str] = &[];
    /// What it may do.
    const EFFECT: Effect;
    /// Which error codes its callers know.
    const FAMILY: Family = Family::Linux;
    /// Whether it can lose what was there before (told to clients as a hint).
    const DESTRUCTIVE: bool = false;
    /// Whether calling twice is the same as calling once (told to clients as a hint).
    const IDEMPOTENT: bool = true;
    /// Whether it asks the index, which is then built before the first question.
    const RETRIEVES: bool = false;
    /// What goes wrong beside bad arguments and the time limit, for those who write programs.
    const ERRORS: &'static [ErrorKind] = &[];
    /// Further words it is looked for by.
    const KEYWORDS: &'static str = "";
    /// The arguments.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// What it returns: data, its schema, and how it reads. The seal makes the answer of it.
    type Output: Serialize + Render + JsonSchema + Send + 'static;

    /// Does it. Authentication, time limits, logging, cutting, storing and counting are the call path's work.
    fn run(cx: &Cx, args: Self::Args) -> impl Future<Output = Result<Self::Output>> + Send;

    /// Records a call whose arguments were refused, where every call leaves a record of its own.
    fn refused(_: &Cx, _: &Error) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// How long it may take.
    fn time_limit(cx: &Cx) -> Duration {
        cx.app().config().mcp.tools.read_timeout()
    }
}

/// A call that is under way.
pub(crate) type RunningTool = Pin<Box<dyn Future<Output = Result<Sealed>> + Send>>;

/// A tool with its types erased, as the catalogue holds it.
pub struct ToolDef {
    /// The name clients call.
    pub name: &'static str,
    /// Further names.
    pub aliases: &'static [&'static str],
    /// What it may do.
    pub effect: Effect,
    /// Which error codes its callers know.
    pub family: Family,
    /// See `Tool::DESTRUCTIVE`.
    pub destructive: bool,
    /// See `Tool::IDEMPOTENT`.
    pub idempotent: bool,
    /// See `Tool::RETRIEVES`.
    pub retrieves: bool,
    pub(crate) errors: &'static [ErrorKind],
    pub(crate) keywords: &'static str,
    pub(crate) lean: LeanSource,
    pub(crate) run: fn(Cx, Map<String, Value>) -> RunningTool,
    pub(crate) time_limit: fn(&Cx) -> Duration,
    /// Which tool of which upstream it is; none for those of the catalogue.
    pub(crate) origin: Option<&'static UpstreamTool>,
}

/// Where a tool's words and schema come from.
#[derive(Debug)]
pub(crate) enum LeanSource {
    /// Written when first asked for.
    Made(fn() -> Lean),
    /// The same, of what an upstream says.
    Pinned(&'static PinnedLean),
}

/// Words and schema of an upstream's tool, written when first asked for.
pub(crate) type PinnedLean = LazyLock<Lean, Box<dyn FnOnce() -> Lean + Send>>;

impl ToolDef {
    /// Erases a tool's types.
    pub(crate) const fn of<T: Tool>() -> ToolDef {
        ToolDef {
            name: T::NAME,
            aliases: T::ALIASES,
            effect: T::EFFECT,
            family: T::FAMILY,
            destructive: T::DESTRUCTIVE,
            idempotent: T::IDEMPOTENT,
            retrieves: T::RETRIEVES,
            errors: T::ERRORS,
            keywords: T::KEYWORDS,
            lean: LeanSource::Made(lean::<T::Args, T::Output>),
            run: run::<T>,
            time_limit: T::time_limit,
            origin: None,
        }
    }

    /// What the model reads.
    pub fn description(&self) -> &str {
        &self.lean().description
    }

    /// The input schema.
    pub fn schema(&self) -> &Map<String, Value> {
        &self.lean().schema
    }

    /// The input schema as a model is sent it.
    pub fn listed_schema(&self) -> Map<String, Value> {
        let mut schema = self.schema().clone();
        let is_unlisted = |argument: &Value| argument.get(UNLISTED) == Some(&Value::Bool(true));
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (name, _) in self
                .arguments()
                .iter()
                .filter(|(_, argument)| is_unlisted(argument))
            {
                properties.shift_remove(name);
            }
        }
        schema
    }

    /// The arguments with defaults, bounds and help, in the order of the schema.
    pub(crate) fn arguments(&self) -> &Map<String, Value> {
        &self.lean().arguments
    }

    /// What a program gets.
    pub(crate) fn shape(&self) -> &Shape {
        &self.lean().shape
    }

    /// The tool as a model is sent it: name, description and schema as compact JSON.
    pub fn listing(&self) -> String {
        serde_json::json!({
            "name": self.name,
            "description": self.description(),
            "inputSchema": self.listed_schema(),
        })
        .to_string()
    }

    /// What rights and records call it, whatever a list does.
    pub(crate) fn full_name(&self) -> &str {
        self.origin.map_or(self.name, |origin| &origin.full_name)
    }

    /// Whether a list of tools in the configuration has it: by its name, or all of an upstream as `NAME.*`.
    pub(crate) fn is_in(&self, list: &[String]) -> bool {
        let of_upstream = |entry: &String| {
            let upstream = self.origin.map(|origin| origin.upstream.as_str());
            upstream.is_some() && entry.strip_suffix(".*") == upstream
        };
        list.iter()
            .any(|entry| entry == self.full_name() || of_upstream(entry))
    }

    /// The names of the arguments, in the order of the schema.
    pub(crate) fn argument_names(&self) -> Vec<&str> {
        let properties = self.schema().get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect()
    }

    /// The hint of an error about its arguments.
    pub(crate) fn usage(&self) -> String {
        let signature = self.signature();
        let legend = if signature.contains('*') {
            ", * required"
        } else {
            ""
        };
        format!("usage: {signature}{legend}")
    }

    /// `read_file(path*, offset_lines, max_lines)`: the shortest reminder of how to call it.
    pub fn signature(&self) -> String {
        let required = |name: &str| {
            let list = self.schema().get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|entry| entry == name))
        };
        let names: Vec<String> = match self.schema().get("properties") {
            Some(Value::Object(properties)) => properties
                .keys()
                .map(|name| {
                    if required(name) {
                        format!("{name}*")
                    } else {
                        name.clone()
                    }
                })
                .collect(),
            _ => Vec::new(),
        };
        format!("{}({})", self.name, names.join(", "))
    }

    /// Written once per tool and process. The catalogue is a plain table, so what is computed lives beside it.
    fn lean(&self) -> &'static Lean {
        let make = match &self.lean {
            LeanSource::Pinned(lean) => return LazyLock::force(*lean),
            LeanSource::Made(make) => make,
        };
        static WRITTEN: Mutex<BTreeMap<&str, &Lean>> = Mutex::new(BTreeMap::new());
        let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        written
            .entry(self.name)
            .or_insert_with(|| Box::leak(Box::new(make())))
    }
}

impl fmt::Debug for ToolDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolDef").field(&self.name).finish()
    }
}

fn run<T: Tool>(cx: Cx, args: Map<String, Value>) -> RunningTool {
    Box::pin(async move {
        let tool = ToolDef::of::<T>();
        let args = match parsed::<T>(&tool, args) {
            Ok(args) => args,
            Err(error) => {
                T::refused(&cx, &error).await;
                return Err(error);
            }
        };
        if T::EFFECT == Effect::Writes {
            cx.blocking(|cx, _| {
                recording::prepare(cx);
                Ok(())
            })
            .await?;
        }
        let returned = T::run(&cx, args).await;
        finish(&cx, tool, returned).await
    })
}

/// Ends the recording of a call, then makes its answer of what the tool returned.
pub(crate) async fn finish<T: Serialize + Render + Send + 'static>(
    cx: &Cx,
    tool: impl Borrow<ToolDef> + Send + 'static,
    returned: Result<T>,
) -> Result<Sealed> {
    cx.blocking(move |cx, cancel| {
        recording::finish(cx);
        match returned {
            Ok(output) => seal(cx, cancel, &output),
            Err(error) => {
                let error = remedy::complete(cx, tool.borrow(), error);
                Err(seal_failure(cx, error))
            }
        }
    })
    .await
}

/// The arguments as the tool's own type.
fn parsed<T: Tool>(tool: &ToolDef, args: Map<String, Value>) -> Result<T::Args> {
    let args = arguments::normalise(tool, args)?;
    T::Args::deserialize(&args).map_err(|error| {
        arguments::misfit(tool, &args, &error, |args| {
            let parsed = T::Args::deserialize(&args);
            parsed.err().map(|error| error.to_string())
        })
    })
}
