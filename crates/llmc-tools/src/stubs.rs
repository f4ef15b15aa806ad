//! Tools as Python functions: what a program that calls them is written against.
//!
//! A script reaches every enabled tool, and a model that writes one should neither guess nor be sent fifty schemas. So the
//! catalogue is also written as python_type Python stubs (`module`), found by words (`search`) and explained one by one
//! ([`help`]). All of it is made of the schemas of `Args` and `Output` and of the tool's own list of errors.
//!
//! Names and words are data, never code: a name that is no plain is_identifier gets no function, and whatever else is
//! written stands in a string literal that cannot end early.

mod find;
mod python;
mod stub_file;

use llmc_config::Config;
use serde_json::{Map, Value};

use crate::error::ErrorKind;
use crate::mode;
use crate::tool::{Effect, ToolDef};
use crate::upstreams::instruction_like;

pub(crate) use find::search;
pub(crate) use stub_file::{STUB_FILE, write};

use python::{Parameter, is_identifier, quoted};

pub(crate) use python::python_type;

/// Words for a model at its start; a script is past that.
const NOT_IN_SCRIPTS: &str = "init";

/// The docstring of the module as a whole.
const PREFACE: &str = "\
Tools of this workspace, as execute_code offers them.

Call tools.NAME(...) and get a dict, list or str; await tools.aio.NAME(...) to run several at once with asyncio.gather.
A failing tool raises FileNotFoundError, PermissionError, TimeoutError, ValueError or RuntimeError; the message starts
with its code, which tools.error_code(e) returns.";

/// Every tool of this server that a script may call under this configuration, in the catalogue's order; the caller's rights still hold.
pub(crate) fn scriptable(config: &Config) -> Vec<&'static ToolDef> {
    let mut tools = mode::enabled(config);
    tools.retain(|tool| tool.name != NOT_IN_SCRIPTS && tool.effect != Effect::Scripts);
    tools
}

/// All stubs as one Python module.
pub(crate) fn module(tools: &[&ToolDef]) -> String {
    let stubs: Vec<Stub> = tools.iter().filter_map(|tool| Stub::of(tool)).collect();
    let mut out = format!(
        "{}\nfrom typing import Any, Literal\n\n",
        quoted::docstring(PREFACE, "")
    );
    for stub in &stubs {
        out.push_str(&stub.function());
        out.push('\n');
    }
    out.push_str(FIXED);
    let mut upstreams: Vec<(&str, Vec<Stub>)> = Vec::new();
    for (upstream, stub) in tools.iter().filter_map(|tool| Stub::of_upstream(tool)) {
        match upstreams.last_mut().filter(|(name, _)| *name == upstream) {
            Some((_, stubs)) => stubs.push(stub),
            None => upstreams.push((upstream, vec![stub])),
        }
    }
    for (upstream, stubs) in &upstreams {
        out.push_str(&format!("class _Upstream_{upstream}:\n"));
        for stub in stubs {
            out.push_str(&format!("    def {}:\n", stub.signature("self")));
            out.push_str(&quoted::docstring(stub.summary, "        "));
            out.push_str("        ...\n");
        }
        out.push_str(&format!("\n{upstream}: _Upstream_{upstream}\n\n"));
        out.push_str(&format!("class _AioUpstream_{upstream}:\n"));
        for stub in stubs {
            out.push_str(&format!("    async def {}: ...\n", stub.signature("self")));
        }
        out.push('\n');
    }
    out.push_str("class _Aio:\n");
    out.push_str(&quoted::docstring("The same tools, to be awaited.", "    "));
    for stub in &stubs {
        out.push_str(&format!("    async def {}: ...\n", stub.signature("self")));
    }
    for (upstream, _) in &upstreams {
        out.push_str(&format!("    {upstream}: _AioUpstream_{upstream}\n"));
    }
    out.push_str("\naio: _Aio\n");
    out
}

/// The names of the arguments in the order in which a call gives them: those without a default first.
pub(crate) fn parameter_names(tool: &ToolDef) -> Vec<&str> {
    let required = tool.schema().get("required").and_then(Value::as_array);
    let mut names = tool.argument_names();
    names.sort_by_key(|name| !required.is_some_and(|list| list.iter().any(|one| one == name)));
    names
}

/// One tool's stub, unless its name is no Python name.
pub(crate) fn stub(tool: &ToolDef) -> Option<String> {
    Some(Stub::of(tool)?.function())
}

/// All that an upstream says about its tool, below how to call it here.
const SERVER_SAYS: &str = "The server that has this tool says about it:";

/// `read_file(path: str, offset_lines: int = 0, max_lines: int | None = None) -> str`.
pub(crate) fn signature(tool: &ToolDef) -> Option<String> {
    if let Some((upstream, stub)) = Stub::of_upstream(tool) {
        return Some(format!("{upstream}.{}", stub.signature("")));
    }
    Some(Stub::of(tool)?.signature(""))
}

/// All about one tool: how to call it, what comes back, what goes wrong.
pub fn help(tool: &ToolDef) -> String {
    match (Stub::of_upstream(tool), tool.origin) {
        (Some((upstream, stub)), Some(origin)) => {
            let page = stub.page(&format!("{upstream}."));
            let said = origin.description.trim();
            match said.is_empty() || said == stub.summary {
                true => page,
                false => {
                    let marked = match instruction_like(&origin.description) {
                        Some(found) => format!(" (its text {})", found.what),
                        None => String::new(),
                    };
                    format!("{page}\n{SERVER_SAYS}{marked}\n{}\n", origin.description)
                }
            }
        }
        _ => Stub::of(tool).map_or_else(|| tool.signature(), |stub| stub.page("")),
    }
}

/// What every script has beside the tools.
const FIXED: &str = "\
def search(query: str) -> list[dict[str, Any]]:
    \"\"\"Finds tools by words: [{name, signature, summary}], best first.\"\"\"
    ...

def help(name: str) -> str:
    \"\"\"Explains one tool.\"\"\"
    ...

def error_code(error: BaseException) -> str | None:
    \"\"\"The code of a failed tool call, such as NOT_FOUND.\"\"\"
    ...

";

/// A tool as a Python function.
struct Stub<'a> {
    name: &'a str,
    summary: &'a str,
    parameters: Vec<Parameter<'a>>,
    /// Whether there are arguments that Python cannot name.
    unnamed: bool,
    family: crate::error::Family,
    /// The Python type of what comes back.
    returns: &'a str,
    /// What is in it.
    gives: &'a str,
    errors: &'static [ErrorKind],
}

impl<'a> Stub<'a> {
    fn of(tool: &'a ToolDef) -> Option<Stub<'a>> {
        let stub = Stub::from(
            tool.name,
            tool.description(),
            tool.schema(),
            tool.arguments(),
        )?;
        Some(Stub {
            family: tool.family,
            returns: &tool.shape().python_type,
            gives: &tool.shape().fields,
            errors: tool.errors,
            ..stub
        })
    }

    /// The stub of an upstream's tool, and the upstream's name.
    fn of_upstream(tool: &'a ToolDef) -> Option<(&'a str, Stub<'a>)> {
        let (upstream, function) = tool.name.split_once('.')?;
        let stub = Stub::from(
            function,
            tool.description(),
            tool.schema(),
            tool.arguments(),
        )?;
        let stub = Stub {
            family: tool.family,
            returns: &tool.shape().python_type,
            gives: &tool.shape().fields,
            errors: tool.errors,
            ..stub
        };
        Some((upstream, stub))
    }

    /// The stub of a schema; `arguments` are its properties with defaults, bounds and help.
    fn from(
        name: &'a str,
        summary: &'a str,
        schema: &'a Map<String, Value>,
        arguments: &'a Map<String, Value>,
    ) -> Option<Stub<'a>> {
        if !is_identifier(name) {
            return None;
        }
        let required = schema.get("required").and_then(Value::as_array);
        let required = |name: &str| required.is_some_and(|list| list.iter().any(|one| one == name));
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut parameters: Vec<Parameter> = properties
            .into_iter()
            .flatten()
            .filter(|(name, _)| is_identifier(name))
            .map(|(name, schema)| Parameter::new(name, schema, arguments.get(name), required(name)))
            .collect();
        let unnamed = properties.is_some_and(|all| all.len() > parameters.len());
        // Python wants those without a default first.
        parameters.sort_by_key(|parameter| !parameter.required);
        Some(Stub {
            name,
            summary,
            parameters,
            unnamed,
            family: crate::error::Family::Linux,
            returns: "dict | str",
            gives: "",
            errors: &[],
        })
    }

    fn signature(&self, first: &str) -> String {
        let first = (!first.is_empty()).then(|| first.to_owned());
        let named = self.parameters.iter().map(Parameter::declared);
        let rest = self.unnamed.then(|| "**others: Any".to_owned());
        let all: Vec<String> = first.into_iter().chain(named).chain(rest).collect();
        format!("{}({}) -> {}", self.name, all.join(", "), self.returns)
    }

    fn function(&self) -> String {
        let mut words = self.summary.to_owned();
        if !self.gives.is_empty() {
            words.push_str("\n\nReturns ");
            words.push_str(self.gives);
        }
        format!(
            "def {}:\n{}    ...\n",
            self.signature(""),
            quoted::docstring(&words, "    ")
        )
    }

    /// All about the tool; `prefix` stands before its name.
    fn page(&self, prefix: &str) -> String {
        let mut page = format!("{prefix}{}\n{}\n", self.signature(""), self.summary);
        if !self.parameters.is_empty() {
            page.push_str("\nArguments:\n");
        }
        for parameter in &self.parameters {
            page.push_str(&format!("  {}\n", parameter.explained()));
        }
        if !self.gives.is_empty() {
            page.push_str(&format!("\nReturns {}\n", self.gives));
        }
        page.push_str(&format!("\nRaises {}\n", self.raised()));
        page.push_str(&format!(
            "Together with others: await asyncio.gather(tools.aio.{prefix}{}(...), ...)\n",
            self.name
        ));
        page
    }

    /// `ValueError (BAD_ARGS), PermissionError (INVALID_PATH, …), …`.
    fn raised(&self) -> String {
        let mut raised: Vec<(&str, Vec<&str>)> = Vec::new();
        let usual = [ErrorKind::BadArgs];
        for kind in usual
            .iter()
            .chain(self.errors)
            .chain([&ErrorKind::TimedOut])
        {
            let code = kind.code(self.family);
            match raised
                .iter_mut()
                .find(|(name, _)| *name == kind.exception())
            {
                Some((_, codes)) if codes.contains(&code) => {}
                Some((_, codes)) => codes.push(code),
                None => raised.push((kind.exception(), vec![code])),
            }
        }
        let told = raised
            .iter()
            .map(|(name, codes)| format!("{name} ({})", codes.join(", ")));
        told.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
