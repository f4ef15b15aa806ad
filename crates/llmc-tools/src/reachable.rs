//! Which tools the reader of a text can call, so that no text leads into a dead end.
//!
//! Hints, receipts and instructions name tools. An MCP client can call what its mode lists, and what scripts reach if
//! `execute_code` is listed; every other surface can call every enabled tool. [`Reach::fit`] rewrites a text for its
//! reader; [`Reach::unreachable`] tells whether it needs that.

use llmc_config::Config;
use serde_json::Value;

use crate::catalog;
use crate::cx::Surface;
use crate::mode;
use crate::stubs;
use crate::tool::{Effect, ToolDef};

/// What one reader can call.
#[derive(Debug)]
pub(crate) struct Reach {
    listed: Vec<&'static ToolDef>,
    in_scripts: Vec<&'static ToolDef>,
    /// The reader is in a shell, where a tool is a command.
    in_shell: bool,
}

/// Stands between texts of which the reader gets one.
const ALTERNATIVE: &str = " || ";

/// How a tool can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// By a call of its own.
    Direct,
    /// As a function in a script.
    Script,
}

impl Reach {
    /// What a caller on this surface reaches under this configuration.
    pub(crate) fn of(config: &Config, surface: Surface) -> Reach {
        let in_scripts = stubs::scriptable(config);
        let listed = match surface {
            Surface::Mcp => mode::listing(config).0,
            Surface::Code => in_scripts.clone(),
            Surface::Http | Surface::Cli => mode::enabled(config),
        };
        let mut reach = Reach {
            listed,
            in_scripts,
            in_shell: surface == Surface::Cli,
        };
        if !reach.has_scripts() {
            reach.in_scripts.clear();
        }
        reach
    }

    /// Whether the reader can run scripts.
    pub(crate) fn has_scripts(&self) -> bool {
        self.listed
            .iter()
            .any(|tool| tool.effect == Effect::Scripts)
    }

    /// How the reader can call this tool, if at all.
    pub(crate) fn route(&self, tool: &ToolDef) -> Option<Route> {
        let has = |list: &[&ToolDef]| list.iter().any(|other| other.name == tool.name);
        if has(&self.listed) {
            Some(Route::Direct)
        } else if has(&self.in_scripts) {
            Some(Route::Script)
        } else {
            None
        }
    }

    /// The text for this reader: tools that only scripts reach are named as such, and clauses (between `; `) about
    /// tools that the reader cannot call are left out. `None` when nothing is left.
    ///
    /// Of alternatives (between ` || `) the first is taken whose tools the reader can call directly, or else in a script.
    pub(crate) fn fit(&self, text: &str) -> Option<String> {
        let alternatives: Vec<&str> = text.split(ALTERNATIVE).collect();
        if alternatives.len() > 1 {
            let is_direct = |text: &&str| {
                let mut tools = named_tools(text).into_iter();
                tools.all(|(_, tool)| self.route(tool) == Some(Route::Direct))
            };
            let is_reachable = |text: &&str| {
                let mut tools = named_tools(text).into_iter();
                tools.all(|(_, tool)| self.route(tool).is_some())
            };
            let mut all = alternatives.into_iter();
            let first = all
                .clone()
                .find(is_direct)
                .or_else(|| all.find(is_reachable));
            return first.and_then(|text| self.fit(text));
        }
        let clauses: Vec<String> = text
            .split("; ")
            .filter_map(|clause| self.fit_clause(clause))
            .collect();
        (!clauses.is_empty()).then(|| clauses.join("; "))
    }

    /// The tools that a text names and its reader cannot call as written.
    pub(crate) fn unreachable(&self, text: &str) -> Vec<&'static str> {
        let named = named_tools(text);
        let missed = named.into_iter().filter(|(at, tool)| {
            let in_script = text[..*at].ends_with("tools.");
            match self.route(tool) {
                Some(Route::Direct) => false,
                Some(Route::Script) => !in_script,
                None => true,
            }
        });
        missed.map(|(_, tool)| tool.name).collect()
    }

    /// The text of an exception in a script, for the caller that started it: tools that only scripts reach are named as
    /// functions.
    pub(crate) fn as_functions(&self, text: &str) -> String {
        let mut fitted = String::new();
        let mut done = 0;
        for (at, tool) in named_tools(text) {
            if self.route(tool) == Some(Route::Script) && !text[..at].ends_with("tools.") {
                fitted.push_str(&text[done..at]);
                fitted.push_str("tools.");
                done = at;
            }
        }
        fitted.push_str(&text[done..]);
        fitted
    }

    fn fit_clause(&self, clause: &str) -> Option<String> {
        let mut fitted = String::new();
        let mut done = 0;
        for (at, tool) in named_tools(clause) {
            match self.route(tool)? {
                Route::Script if !clause[..at].ends_with("tools.") => {
                    fitted.push_str(&clause[done..at]);
                    let (call, end) = script_call(clause, at, tool);
                    fitted.push_str(&call);
                    done = end;
                }
                Route::Direct if self.in_shell && !clause[..at].ends_with("llmc tool ") => {
                    fitted.push_str(&clause[done..at]);
                    let (call, end) = shell_command(clause, at, tool);
                    fitted.push_str(&call);
                    done = end;
                }
                Route::Direct | Route::Script => {}
            }
        }
        fitted.push_str(&clause[done..]);
        Some(fitted)
    }
}

/// The flags of the arguments that a tool requires, or of its first one, as a shell takes them; ` --help` lists the others.
fn usage_flags(tool: &ToolDef) -> String {
    let required = tool.schema().get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let names = tool.argument_names();
    let shown = match required.is_empty() {
        true => &names[..names.len().min(1)],
        false => &required[..],
    };
    let flag = |name: &&str| match *name {
        // A command's own words stand behind the tool's name.
        "args" => " WORDS".to_owned(),
        name => format!(" --{} {}", name.replace('_', "-"), name.to_uppercase()),
    };
    let flags: String = shown.iter().map(flag).collect();
    match names.len() > shown.len() {
        true => format!("{flags}; llmc tool {} --help lists all flags", tool.name),
        false => flags,
    }
}

/// The call that begins at `at` as a command, and where it ends: `run_cmd proc=p1` is `llmc tool run_cmd --proc p1`.
fn shell_command(clause: &str, at: usize, tool: &ToolDef) -> (String, usize) {
    let mut end = at + tool.name.len();
    let mut command = format!("llmc tool {}", tool.name);
    if let Some(names) = clause[end..].strip_prefix('(')
        && let Some((names, _)) = names.split_once(')')
    {
        end += names.len() + 2;
        let note = ", * required";
        if clause[end..].starts_with(note) {
            end += note.len();
        }
        return (command + &usage_flags(tool), end);
    }
    let (arguments, length) = named_arguments(&clause[end..]);
    for (name, value) in arguments {
        command.push_str(&format!(" --{} {value}", name.replace('_', "-")));
    }
    (command, end + length)
}

/// The call that begins at `at` as a function of a script, and where it ends: `linux_proc_stop proc_id=p1` is
/// `tools.linux_proc_stop(proc_id="p1") in execute_code`.
fn script_call(clause: &str, at: usize, tool: &ToolDef) -> (String, usize) {
    let end = at + tool.name.len();
    let (arguments, length) = named_arguments(&clause[end..]);
    let written = arguments.iter().map(|(name, value)| match *value {
        "true" => format!("{name}=True"),
        "false" => format!("{name}=False"),
        value if value.parse::<f64>().is_ok() => format!("{name}={value}"),
        value => format!("{name}={value:?}"),
    });
    let written = written.collect::<Vec<_>>().join(", ");
    let call = match arguments.is_empty() {
        true => format!("tools.{} in execute_code", tool.name),
        false => format!("tools.{}({written}) in execute_code", tool.name),
    };
    (call, end + length)
}

/// The words ` name=value` that a text begins with, and their length.
fn named_arguments(text: &str) -> (Vec<(&str, &str)>, usize) {
    let mut arguments = Vec::new();
    let mut end = 0;
    while let Some(word) = text[end..].strip_prefix(' ') {
        let word = word.split(' ').next().unwrap_or_default();
        let Some(argument) = word.split_once('=') else {
            break;
        };
        arguments.push(argument);
        end += 1 + word.len();
    }
    (arguments, end)
}

/// Every tool that a text names, and where. Names that are English words as well (`stat`, `inspect`) count only as calls.
fn named_tools(text: &str) -> Vec<(usize, &'static ToolDef)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let in_name = c.is_ascii_alphanumeric() || c == '_';
        match (start, in_name) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                let word = &text[from..at];
                if (word.contains('_') || c == '(')
                    && let Some(tool) = catalog::find(word)
                    && tool.name == word
                {
                    found.push((from, tool));
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use llmc_config::Mode;

    use super::*;

    impl Reach {
        /// What a client over MCP reaches in a mode.
        pub(crate) fn of_mode(mode: Mode) -> Reach {
            let mut config = Config::default();
            config.mcp.mode = mode;
            Reach::of(&config, Surface::Mcp)
        }
    }

    #[test]
    fn a_text_is_fitted_to_what_its_reader_can_call() {
        let text = "create it with linux_fs_mkdirs; narrow the call";
        for (mode, fitted) in [
            (Mode::Classic, Some(text)),
            (
                Mode::Hybrid,
                Some("create it with tools.linux_fs_mkdirs in execute_code; narrow the call"),
            ),
            (Mode::Te, Some("narrow the call")),
        ] {
            assert_eq!(Reach::of_mode(mode).fit(text).as_deref(), fitted, "{mode}");
        }
        assert_eq!(Reach::of_mode(Mode::Te).fit("try run_cmd"), None);
        let either = "read_file path=a reads it || te_cat path=a shows it";
        for (mode, fitted) in [
            (Mode::Hybrid, "read_file path=a reads it"),
            (Mode::Te, "te_cat path=a shows it"),
        ] {
            assert_eq!(
                Reach::of_mode(mode).fit(either).as_deref(),
                Some(fitted),
                "{mode}"
            );
        }
        let call = "linux_proc_stop proc_id=p_1 timeout=5 force=true ends it";
        assert_eq!(
            Reach::of_mode(Mode::Hybrid).fit(call).as_deref(),
            Some(
                "tools.linux_proc_stop(proc_id=\"p_1\", timeout=5, force=True) in execute_code ends it"
            )
        );
        let script = "tools.run_cmd(command=…) runs one";
        assert_eq!(
            Reach::of_mode(Mode::CodeExecution).fit(script).as_deref(),
            Some(script)
        );
    }

    #[test]
    fn in_a_shell_a_tool_is_a_command() {
        let reach = Reach::of(&Config::default(), Surface::Cli);
        for (text, fitted) in [
            (
                "linux_proc_list shows yours",
                "llmc tool linux_proc_list shows yours",
            ),
            (
                "run_cmd proc=p_1 wait_s=5 waits on; narrow the call",
                "llmc tool run_cmd --proc p_1 --wait-s 5 waits on; narrow the call",
            ),
            ("llmc tool te_cat reads it", "llmc tool te_cat reads it"),
            (
                "usage: stat(path*), * required",
                "usage: llmc tool stat --path PATH",
            ),
            (
                "usage: linux_fs_mkdirs(path*, exist_ok), * required",
                "usage: llmc tool linux_fs_mkdirs --path PATH; llmc tool linux_fs_mkdirs --help lists all flags",
            ),
        ] {
            assert_eq!(reach.fit(text).as_deref(), Some(fitted));
        }
    }

    #[test]
    fn in_a_shell_usage_is_a_line_that_can_be_pasted() {
        let reach = Reach::of(&Config::default(), Surface::Cli);
        for tool in catalog::TOOLS {
            let hint = format!("usage: {}, * required", tool.signature());
            let fitted = reach.fit(&hint).unwrap();
            let line = fitted.split(';').next().unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(
                words[..4],
                ["usage:", "llmc", "tool", tool.name],
                "{fitted}"
            );
            let shell_signs = ['(', ')', '*', '[', '<', '>', '|', '&', '…'];
            assert!(!fitted.contains(shell_signs), "{fitted}");
            let names = tool.argument_names();
            for word in words.iter().filter_map(|word| word.strip_prefix("--")) {
                let name = word.replace('-', "_");
                assert!(names.contains(&name.as_str()), "{fitted}");
            }
        }
    }

    #[test]
    fn a_fitted_text_names_nothing_out_of_reach() {
        let every: String = catalog::TOOLS
            .iter()
            .map(|tool| format!("use {}; ", tool.name))
            .collect();
        for mode in Mode::ALL {
            let reach = Reach::of_mode(*mode);
            let fitted = reach.fit(&every).unwrap_or_default();
            assert_eq!(reach.unreachable(&fitted), [""; 0], "{mode}: {fitted}");
        }
        assert_eq!(Reach::of_mode(Mode::Te).unreachable("run_cmd"), ["run_cmd"]);
    }

    #[test]
    fn instructions_name_only_what_their_mode_reaches() {
        for mode in Mode::ALL {
            for scripts in [true, false] {
                let mut config = Config::default();
                config.mcp.mode = *mode;
                config.mcp.hybrid.include_execute_code = scripts;
                let text = mode::instructions(&config);
                let reach = Reach::of(&config, Surface::Mcp);
                assert_eq!(reach.unreachable(&text), [""; 0], "{mode}: {text}");
            }
        }
    }
}
