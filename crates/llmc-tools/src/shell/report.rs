//! What `te` says about itself: stored results, what was served and saved, how to use it.

use std::fmt::Write;

use llmc_envelope::handles::HandleInfo;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};

/// How to use it.
pub const HELP: &str = "\
te: Unix commands whose answers fit a model's context

usage: te [TE FLAGS] COMMAND [ARGUMENTS]
       te --preview COMMAND | te --compare [--base COMMIT] COMMAND
       te --handle ID [--chunk N]
       te rag WORDS | te explain SYMBOL | te run COMMAND
       te test [--affected] [--base COMMIT] [PATH OR NAME ...]
       te analyze [--by cmd|agent|source|session|model] [--since 24h] [--json]

te runs the command and prints the important part of its output within the token budget (mcp.te.budget_tokens). A header
counts what was found, and a handle returns the rest byte for byte. Output of grep, rg, cat, head, tail, find, ls, git, diff
and test runs is ranked; output of other commands is printed unchanged. The exit code is the command's. grep without a
path and without input from a pipe searches this folder. rag and explain ask the index of this workspace. test runs the
project's tests, with --affected those that reach what changed.

flags, before the command:
  --json          print the answer as one JSON document
  --raw           print the output unchanged
  --preview       run the command, confined, on a copy-on-write view: its output and the diff of what it would change
  --compare       run it, confined, on the workspace as it was at --base (a commit; HEAD by default) and as it is now
  --handle ID     print a stored result; --chunk N one chunk of it, from 0
  --list-handles  what is stored
  --stats         calls, tokens served, withheld and fetched back

examples:
  te grep -rn TODO src
  te git log -p
  te --preview cargo fmt
  te --compare pytest -q
  te --handle res_01H... --chunk 1 | less

TE_AGENT_ID, TE_SESSION_ID and TE_MODEL name the agent, session and model in the records.
";

/// Stored results, a line each, newest first.
pub(crate) fn handles(list: &[HandleInfo]) -> String {
    if list.is_empty() {
        return "no stored results\n".to_owned();
    }
    let mut out = String::new();
    for info in list {
        let about = ["command", "path", "root"];
        let about = about.iter().find_map(|key| info.meta.get(*key));
        let about = about.and_then(Value::as_str).unwrap_or_default();
        let about: String = about.chars().take(100).collect();
        let _ = writeln!(
            out,
            "{}  {:>10} bytes  {}  {}  {about}",
            info.id,
            info.total_bytes,
            info.created.strftime("%F %T"),
            info.kind,
        );
    }
    out
}

/// The same for programs.
pub(crate) fn handles_json(list: &[HandleInfo]) -> String {
    let list: Vec<Value> = list
        .iter()
        .map(|info| {
            json!({
                "handle": info.id,
                "kind": info.kind,
                "bytes": info.total_bytes,
                "created": info.created.to_string(),
                "expires": info.expires.to_string(),
                "meta": info.meta,
            })
        })
        .collect();
    format!("{}\n", Value::from(list))
}

pub(crate) fn unavailable(error: llmc_observe::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string())
        .hint("another process may hold te_telemetry.db in the state directory (`llmc state`); calls work without it")
}
