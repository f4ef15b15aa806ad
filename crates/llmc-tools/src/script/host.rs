//! A script's calls: they go through `App::call` like every other call.

use std::sync::{Arc, Mutex, PoisonError};

use llmc_sandbox::{
    Exception, PRINTED_AS, ScriptCall, ScriptCallError, ScriptHost, SystemCall, SystemReply,
};
use serde_json::{Map, Value, json};

use super::files;
use crate::approval;
use crate::call::{Call, Progress};
use crate::cx::{Caller, Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Family};
use crate::meant;
use crate::reachable::Reach;
use crate::recording::short_args;
use crate::stubs;
use crate::tool::{Effect, ToolDef};

/// Distinct warnings that an answer has.
const MAX_WARNINGS_SHOWN: usize = 3;
/// Distinct effects that a failed script lists.
const MAX_EFFECTS_SHOWN: usize = 20;

/// Carries out a script's calls with the rights of the caller of `execute_code`.
#[derive(Debug)]
pub(crate) struct Tools<'a> {
    cx: &'a Cx,
    caller: Caller,
    /// How many seconds a command is waited for where the script does not say it: as long as its own caller waits.
    wait: Option<f64>,
    /// Calls that have changed something, in order.
    effects: Mutex<Vec<String>>,
    /// What the reader of its output has to know about data that it got, each once.
    warnings: Mutex<Vec<String>>,
}

impl Tools<'_> {
    pub(crate) fn new(cx: &Cx, wait: Option<f64>) -> Tools<'_> {
        let caller = Caller {
            surface: Surface::Code,
            form: Form::Data,
            ..cx.caller().clone()
        };
        Tools {
            cx,
            caller,
            wait,
            effects: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// What the script's calls have changed so far: `linux_fs_write(a.txt)`, `run_cmd(make test) x2`, …
    pub(super) fn effects(&self) -> Vec<String> {
        let all = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counted: Vec<(&str, usize)> = Vec::new();
        for effect in all.iter() {
            match counted.iter_mut().find(|(known, _)| known == effect) {
                Some((_, count)) => *count += 1,
                None => counted.push((effect, 1)),
            }
        }
        let left_out = counted.len().saturating_sub(MAX_EFFECTS_SHOWN);
        let mut shown: Vec<String> = counted
            .iter()
            .take(MAX_EFFECTS_SHOWN)
            .map(|(effect, count)| match count {
                1 => (*effect).to_owned(),
                count => format!("{effect} x{count}"),
            })
            .collect();
        if left_out > 0 {
            shown.push(format!("{left_out} more"));
        }
        shown
    }

    /// What the reader of the script's output has to know about the data that it got.
    pub(super) fn warnings(&self) -> Vec<String> {
        let all = self.warnings.lock();
        all.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_warning(&self, warning: &str) {
        let all = self.warnings.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_WARNINGS_SHOWN && !all.iter().any(|known| known == warning) {
            all.push(warning.to_owned());
        }
    }

    pub(super) fn cx(&self) -> &Cx {
        self.cx
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn note_effect(&self, effect: String) {
        if let Some(recording) = self.cx.recording() {
            recording.step(&effect);
        }
        let mut all = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(effect);
    }

    fn offered(&self) -> Vec<&'static ToolDef> {
        self.cx.app().script_tools()
    }

    /// `tools.search("words")`
    fn search(&self, call: &ScriptCall) -> Result<Value, ScriptCallError> {
        let query = one_text(call, "query")?;
        let found = stubs::search(&self.offered(), query);
        let found = found.into_iter().map(|found| {
            json!({"name": found.name, "signature": found.signature, "summary": found.summary})
        });
        Ok(found.collect())
    }

    /// `tools.help("name")`
    fn help(&self, call: &ScriptCall) -> Result<Value, ScriptCallError> {
        let name = one_text(call, "name")?;
        let name = name.strip_prefix("tools.").unwrap_or(name);
        let offered = self.offered();
        let tool = self
            .cx
            .app()
            .find_tool(name)
            .filter(|tool| offered.iter().any(|offered| offered.name == tool.name));
        match tool {
            Some(tool) => Ok(stubs::help(tool).into()),
            None => Err(self.no_tool(name)),
        }
    }

    /// Passes on what a server says about a call, as what the script is at.
    fn progress(&self) -> Progress {
        let cx = self.cx.clone();
        Arc::new(move |_, words| cx.tell(words.to_owned()))
    }

    fn no_tool(&self, name: &str) -> ScriptCallError {
        let reach = Reach::of(self.cx.app().config(), Surface::Code);
        let near = meant::suggestion_for(name, &reach);
        ScriptCallError::value(format!("BAD_ARGS: there is no tool {name}{near}"))
    }

    /// A failed call as the exception that fits it.
    fn raised(&self, error: &Error, family: Family) -> ScriptCallError {
        let exception = match error.kind.exception() {
            "FileNotFoundError" => Exception::FileNotFound,
            "PermissionError" => Exception::Permission,
            "TimeoutError" => Exception::Timeout,
            "ValueError" => Exception::Value,
            _ => Exception::Runtime,
        };
        let mut message = self.message(error, family);
        if let Some(Value::String(nearest)) = error.extra.get("nearest") {
            message.push_str(&format!("\nnearest lines:\n{nearest}"));
        }
        ScriptCallError::raise(exception, message)
    }

    /// Code, message and hint of a failed call, for the caller of the script.
    pub(super) fn message(&self, error: &Error, family: Family) -> String {
        let mut message = format!("{}: {}", error.kind.code(family), error.message);
        if let Some(hint) = &error.hint {
            message.push_str(&format!(" ({hint})"));
        }
        let reach = Reach::of(self.cx.app().config(), self.cx.caller().surface);
        reach.as_functions(&message)
    }
}

impl ScriptHost for Tools<'_> {
    async fn system(&self, call: SystemCall) -> Result<SystemReply, ScriptCallError> {
        files::system(self, call).await
    }

    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptCallError> {
        match call.name.as_str() {
            "search" => return self.search(&call),
            "help" => return self.help(&call),
            _ => {}
        }
        let ScriptCall {
            name,
            args,
            kwargs,
            cancel,
        } = call;
        // A script knows only names that it was given; this is for a worker that lies.
        let offered = self.offered();
        let tool = self
            .cx
            .app()
            .find_tool(&name)
            .filter(|tool| offered.iter().any(|offered| offered.name == tool.name));
        let Some(tool) = tool else {
            return Err(self.no_tool(&name));
        };
        let mut args = named(tool, args, kwargs)?;
        if let Some(wait) = self.wait.filter(|_| waits_for_a_command(tool)) {
            args.entry("timeout").or_insert_with(|| wait.into());
        }
        let effect = describe(tool, &args);
        let approved = approval::require(self.cx, tool.name, &args).await;
        approved.map_err(|error| self.raised(&error, tool.family))?;
        let call = Call {
            name,
            args,
            caller: self.caller.clone(),
            cancel,
            progress: tool.origin.map(|_| self.progress()),
            correlation_id: Some(self.cx.correlation_id().to_owned()),
            ask_user: self.cx.ask_user().cloned(),
            slot: None,
        };
        let script = self.cx.recording();
        let outcome = self.cx.app().call_in_script(call, script).await;
        let happened = match &outcome.result {
            Ok(_) => !tool.effect.only_looks(),
            // The command ran until it was ended.
            Err(error) => {
                matches!(tool.effect, Effect::Runs | Effect::UpstreamRuns)
                    && matches!(error.kind, ErrorKind::TimedOut | ErrorKind::Cancelled)
            }
        };
        if happened {
            self.note_effect(effect);
        }
        match outcome.result {
            Ok(answer) => {
                if let Some(warning) = &answer.facts().warning {
                    self.note_warning(warning);
                }
                let mut data = answer.data().into_owned();
                let meta = &answer.facts().meta;
                // What a tool says beside its data, such as that an answer is partial.
                if let Some(fields) = data.as_object_mut().filter(|_| !meta.is_empty()) {
                    fields.insert("meta".to_owned(), meta.clone().into());
                }
                if let (Some(fields), Some(text)) = (data.as_object_mut(), &answer.facts().printed)
                {
                    fields.insert(PRINTED_AS.to_owned(), text.as_str().into());
                }
                Ok(data)
            }
            Err(error) => Err(self.raised(&error, tool.family)),
        }
    }
}

/// Whether a call waits for a command, for as long as its caller says.
fn waits_for_a_command(tool: &ToolDef) -> bool {
    tool.effect == Effect::Runs && stubs::parameter_names(tool).contains(&"timeout")
}

/// The call in a few words: the tool, and the text of its first argument, or of both paths of a move.
fn describe(tool: &ToolDef, args: &Map<String, Value>) -> String {
    format!("{}({})", tool.name, short_args(args))
}

/// The arguments by their names: positional ones in the schema's order, as the stubs show them.
fn named(
    tool: &ToolDef,
    args: Vec<Value>,
    kwargs: Map<String, Value>,
) -> Result<Map<String, Value>, ScriptCallError> {
    let usage = |why: String| {
        ScriptCallError::value(format!(
            "BAD_ARGS: {}: {why} (usage: {}, * required)",
            tool.name,
            tool.signature()
        ))
    };
    let mut names = stubs::parameter_names(tool).into_iter();
    let mut named = kwargs;
    for value in args {
        let Some(name) = names.next() else {
            return Err(usage("too many arguments".to_owned()));
        };
        if named.contains_key(name) {
            return Err(usage(format!("{name} is given twice")));
        }
        named.insert(name.to_owned(), value);
    }
    Ok(named)
}

/// The only argument of a function that takes one text.
fn one_text<'a>(call: &'a ScriptCall, name: &str) -> Result<&'a str, ScriptCallError> {
    let mut given = call.args.iter().chain(call.kwargs.get(name));
    match (given.next(), given.next()) {
        (Some(Value::String(text)), None) => Ok(text),
        _ => Err(ScriptCallError::value(format!(
            "BAD_ARGS: {}({name}): one string",
            call.name
        ))),
    }
}
