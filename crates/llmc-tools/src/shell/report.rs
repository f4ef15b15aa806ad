//! What `te` says about itself: stored results, what was served and saved, how to use it.

use std::fmt::Write;

use llmc_envelope::handles::HandleInfo;
use llmc_envelope::telemetry::{self, Totals};
use serde_json::{Value, json};

use crate::error::{Error, Kind};

/// How to use it.
pub const HELP: &str = "\
te: Unix commands whose answers fit a model's context

usage: te [TE FLAGS] COMMAND [ARGUMENTS]
       te --handle ID [--chunk N]
       te analyze [--by cmd|agent|source|session] [--since DAYS] [--json]

te runs the command and shows what matters of its output within the token budget (mcp.te.budget_tokens), with a header
that counts what there was and a handle that returns the rest byte for byte. grep, rg, cat, head, tail, find, ls, git,
diff and test runs are understood; other commands pass through unchanged. The exit code is the command's.

flags, before the command word:
  --json          the answer as one JSON document
  --raw           the output as it is
  --handle ID     print a stored result; --chunk N one chunk of it, from 0
  --list-handles  what is stored
  --stats         calls, tokens served, withheld and fetched back

examples:
  te grep -rn TODO src
  te git log -p
  te --handle res_01H... --chunk 1 | less

TE_AGENT_ID, TE_SESSION_ID and TE_MODEL say for whom it runs.
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

/// Calls added up.
pub(crate) fn stats(sum: &Totals) -> String {
    let net = net_saved(sum);
    format!(
        "calls         {:>12}\nerrors        {:>12}\ntruncated     {:>12}\ntokens in     {:>12}\nserved        {:>12}\n\
         withheld      {:>12}\nfetched back  {:>12}\nnet saved     {net:>12}\nmedian        {:>9.1} ms\np95           {:>9.1} ms\n",
        sum.calls,
        sum.errors,
        sum.truncated,
        sum.tokens_in,
        sum.tokens_served,
        sum.tokens_withheld,
        sum.tokens_fetched_back,
        sum.p50_ms,
        sum.p95_ms,
    )
}

/// Tokens that no model has read in the end: what was fetched back was withheld in vain.
pub(crate) fn net_saved(sum: &Totals) -> i64 {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    number(sum.tokens_withheld) - number(sum.tokens_fetched_back)
}

pub(crate) fn unavailable(error: telemetry::Error) -> Error {
    Error::new(Kind::Internal, error.to_string())
        .hint("another process may hold .llmc/te_telemetry.db; calls work without it")
}
