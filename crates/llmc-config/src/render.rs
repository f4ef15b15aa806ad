//! The configuration for people: what took effect, and the reference of all keys.

use std::fmt::Write;

use crate::declarations::TABLES;
use crate::load::LoadedConfig;
use crate::registry::{DefaultValue, SettingDef, TableDef};

/// Values longer than this do not push the sources of all others to the right.
const VALUE_WIDTH: usize = 32;

/// Every key as `key = value  # source`, in columns.
pub fn render_show(loaded: &LoadedConfig) -> String {
    let entries = loaded.entries();
    let width = entries
        .iter()
        .map(|entry| entry.key.chars().count())
        .max()
        .unwrap_or(0);
    let ignored = loaded.trust.ignored();
    let mut text = ignored.map_or(String::new(), |line| format!("# {line}\n"));
    for entry in entries {
        let (key, value) = (&entry.key, entry.shown());
        let source = entry.source.describe(loaded.file_label());
        let _ = writeln!(text, "{key:width$} = {value:VALUE_WIDTH$}  # {source}");
    }
    text
}

/// The reference page of all keys in Markdown.
pub fn reference_markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for TableDef {
        path,
        doc,
        settings,
    } in TABLES.iter()
    {
        let header = match path.strip_suffix("[]") {
            Some(tables) => format!("[[{tables}]]"),
            None => format!("[{}]", path.replace('*', "\"ID\"")),
        };
        let _ = write!(text, "\n## `{header}`\n\n{doc}\n\n");
        text.push_str("| key | takes | default | needs trust | environment | meaning |\n|---|---|---|---|---|---|\n");
        for key in settings {
            let cells = [
                format!("`{}`", key.name()),
                key.kind.describe(),
                default(key),
                if key.needs_trust() { "yes" } else { "–" }.to_owned(),
                environment(key),
                meaning(key),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

This page is generated from the key table; do not edit it.

`llmc.toml` is looked for at `--config`, else `LLMC_CONFIG`, else in `$LLMC_ROOT`, else in the workspace root, and read
once at start. The command line (`--set key.path=value` and flags) wins over the environment, the environment over the
file, the file over your own file for all workspaces (`$XDG_CONFIG_HOME/llmc/config.toml`), that over the defaults. `llmc
config show` prints every value with its source, `llmc config check` validates. Both files must be regular files of at
most 1 MiB.

A file in the workspace comes with the repository. Its security keys (*yes* in the column *needs trust*) count only if you
have trusted the file as it is, with `llmc trust`; until then the next lower layer holds for them. All other keys always
count. `LLMC_TRUST=<SHA-256 of the file>` does the same in CI and containers; a file outside the workspace that you name by
`--config` or `LLMC_CONFIG` needs no trust. A file that every user may write, or that belongs to another user or lies in
another user's folder, is not trusted.

An unknown key in `[mcp]` or `[rlm]`, a value of the wrong type or out of range, and keys that contradict each other
are start errors with file, line and key. Tables of other programs in the same file are ignored.

In the environment text stands without quotes, and lists are comma separated or in TOML syntax. Paths may start with
`~`; relative ones start at the workspace root. Times are in seconds unless the name says otherwise. The main token is
never in the file: it comes from `LLMC_MCP_TOKEN`.
";

fn meaning(key: &SettingDef) -> String {
    match key.former_path {
        Some(former) => format!("{} Also read under its old name `{former}`.", key.doc),
        None => key.doc.to_owned(),
    }
}

fn default(key: &SettingDef) -> String {
    match &key.default {
        DefaultValue::Fixed(value) => format!("`{}`", value.to_toml()),
        DefaultValue::Unset { .. } => "unset".to_owned(),
        DefaultValue::Rule { says, .. } => (*says).to_owned(),
    }
}

fn environment(key: &SettingDef) -> String {
    let names = key
        .env_name()
        .into_iter()
        .chain(key.short_env.map(str::to_owned));
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        "–".to_owned()
    } else {
        names.join(", ")
    }
}
