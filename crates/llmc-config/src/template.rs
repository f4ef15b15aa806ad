//! The commented `llmc.toml` that `llmc config init` writes.
//!
//! A line takes effect by removing its `#`. The short form has what people change first, the full one every table and key
//! once. The mode is set, since a file without one would mean `classic`.

use std::fmt::Write;

use crate::declarations::TABLES;
use crate::registry::{DefaultValue, SettingDef, TableDef};
use crate::value::ValueKind;

/// What is known about the repository the file is for.
#[derive(Debug, Clone, Default)]
pub struct TemplateOptions {
    /// The name of the repository, for the first line.
    pub project_name: String,
    /// Remarks for the reader, a paragraph each.
    pub notes: Vec<String>,
    /// How much of the settings it shows.
    pub extent: TemplateExtent,
}

/// How much of the settings a template shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TemplateExtent {
    /// What people change first.
    #[default]
    Short,
    /// Every table and key.
    Full,
}

/// The keys of the short form.
pub(crate) const FIRST_KEYS: &[&str] = &[
    "mcp.mode",
    "mcp.tools.allowed_roots",
    "mcp.tools.read_only",
    "mcp.tools.allow_outbound_network",
    "mcp.exec.profile",
    "mcp.observability.log_level",
];

/// A configuration for a repository: mode set, everything else commented out at its default.
pub fn template(options: &TemplateOptions) -> String {
    let mut text = String::new();
    let name = one_line(&options.project_name);
    let whose = if name.is_empty() {
        String::new()
    } else {
        format!(" of {name}")
    };
    let _ = writeln!(text, "# LLMC configuration{whose}.");
    text.push_str(match options.extent {
        TemplateExtent::Short => SHORT_INTRODUCTION,
        TemplateExtent::Full => INTRODUCTION,
    });
    for note in &options.notes {
        text.push_str("#\n");
        for line in note.lines() {
            let _ = writeln!(text, "# {}", one_line(line));
        }
    }
    for TableDef {
        path,
        doc,
        settings,
    } in TABLES.iter()
    {
        let shown = |key: &&SettingDef| {
            options.extent == TemplateExtent::Full || FIRST_KEYS.contains(&key.path)
        };
        let mut keys = settings.iter().filter(shown).peekable();
        if options.extent == TemplateExtent::Short && keys.peek().is_none() {
            continue;
        }
        let header = header(path);
        let remark = if header.starts_with('#') {
            " Remove the # of the header too."
        } else {
            ""
        };
        let _ = write!(text, "\n# {doc}{remark}\n{header}\n");
        for key in keys {
            // Their fields follow as tables of their own.
            if !matches!(key.kind, ValueKind::Tables | ValueKind::Map) {
                write_key(&mut text, key);
            }
        }
    }
    text
}

const SHORT_INTRODUCTION: &str = "\
#
# Lines that start with #name show a default: remove the # to change it. `llmc init --full --print` prints every setting,
# `llmc config show` what takes effect and why.
";

const INTRODUCTION: &str = "\
#
# Lines that start with #name show a default: remove the # to change it. The command line wins over the environment,
# the environment over this file. `llmc config show` prints what takes effect and why, `llmc config check` validates.
# An unknown key is an error, so a misspelt switch never passes silently. The file is read once, at start, and tools
# cannot write it.
";

/// More than the one sentence of the table, for the keys people change.
const ADVICE: &[(&str, &str)] = &[
    (
        "mcp.mode",
        "hybrid lists nine tools: read, list, write, edit, run, grep, code search, scripts, init. classic lists all\n\
         tools, te the compact commands, code_execution only reading and scripts.",
    ),
    (
        "mcp.tools.allowed_roots",
        "\".\" is the workspace root. Add folders to let tools reach them, as in [\".\", \"~/notes\"].",
    ),
    (
        "mcp.tools.run_cmd_allowlist",
        "The list is not a security boundary, kernel confinement is: a shell or an interpreter in it can run anything.",
    ),
    (
        "mcp.exec.profile",
        "Choose restricted when the agent is not trusted: it has no network and does not start without full\n\
         confinement. `llmc doctor` shows what this kernel offers.",
    ),
    (
        "mcp.locks.lease_s",
        "Several agents may work in one workspace: a file being written is locked, and an agent that went away\n\
         keeps its lock no longer than this.",
    ),
    (
        "mcp.observability.log_level",
        "Logs go to stderr. debug also logs why something was refused.",
    ),
    (
        "mcp.observability.csv_token_audit_enabled",
        "One row for every call, with the tokens that were served and those that were saved.",
    ),
];

fn header(section: &str) -> String {
    match (section.strip_suffix("[]"), section.strip_suffix(".*")) {
        (Some(tables), _) => format!("#[[{tables}]]"),
        (_, Some(tables)) => format!("#[{tables}.\"agent-id\"]"),
        // Headers stand without #, for a single line below one to be enough.
        (None, None) => format!("[{section}]"),
    }
}

fn write_key(text: &mut String, key: &SettingDef) {
    let advice = ADVICE.iter().find(|(path, _)| *path == key.path);
    let advice = advice.map_or("", |(_, advice)| advice);
    for line in std::iter::once(key.doc).chain(advice.lines()) {
        let _ = writeln!(text, "# {line}");
    }
    let value = key.default.example().to_toml();
    let remark = match &key.default {
        DefaultValue::Fixed(_) => String::new(),
        DefaultValue::Unset { .. } => "  # an example; unset by default".to_owned(),
        DefaultValue::Rule { says, .. } => format!("  # default: {}", says.replace('`', "")),
    };
    let _ = match key.path {
        "mcp.mode" => writeln!(text, "mode = {value}"),
        _ => writeln!(text, "#{} = {value}{remark}", key.name()),
    };
}

/// Text that cannot end the comment it stands in.
fn one_line(text: &str) -> String {
    let clean = text.trim().chars();
    clean
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
