//! Calls of scripts that the user is asked about first (`mcp.code_execution.ask`).
//!
//! A surface that can ask its user gives the call an [`AskUser`](llmc_gateway::AskUser), by which upstreams ask, too. The
//! script waits at the call until the user has answered; time spent waiting is not the script's own.

use llmc_gateway::{UserQuestion, UserReply};
use serde_json::{Map, Value, json};

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// Characters of one argument that a question shows.
const MAX_ARGUMENT_CHARS: usize = 2000;

/// Asks the user about a call of a script, if the operator wants that for this tool.
///
/// # Errors
/// The user declined or did not answer, or the client cannot be asked.
pub(crate) async fn require(cx: &Cx, tool: &str, args: &Map<String, Value>) -> Result<()> {
    let ask = &cx.app().config().mcp.code_execution.ask;
    if !ask.iter().any(|name| is_named(name, tool)) {
        return Ok(());
    }
    let denied = |why: &str| Error::new(ErrorKind::CommandDenied, format!("{tool}: {why}"));
    let Some(user) = cx.ask_user() else {
        return Err(denied(
            "scripts need the user's approval for this call, and this client cannot be asked",
        )
        .hint(format!(
            "the operator listed {tool} in mcp.code_execution.ask; call it directly, outside a script"
        )));
    };
    let form = Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), json!({})),
    ]);
    let message = question(tool, args);
    match user.ask(UserQuestion { message, form }).await {
        UserReply::Accepted(_) => Ok(()),
        UserReply::Declined => Err(denied("the user declined")),
        UserReply::Unanswered => Err(denied("the user did not answer")),
    }
}

/// Names the call with all its arguments, so that nothing the user agrees to is out of sight unsaid.
fn question(tool: &str, args: &Map<String, Value>) -> String {
    let shown = args.iter().map(|(name, value)| {
        let text = value.to_string();
        let length = text.chars().count();
        if length <= MAX_ARGUMENT_CHARS {
            return format!("{name}={text}");
        }
        let head: String = text.chars().take(MAX_ARGUMENT_CHARS).collect();
        format!(
            "{name}={head}… ({} more characters)",
            length - MAX_ARGUMENT_CHARS
        )
    });
    let shown: Vec<String> = shown.collect();
    format!(
        "A script wants to call {tool}({}). Allow it?",
        shown.join(", ")
    )
}

/// Whether an entry of the setting means this tool: its name or an alias, or its upstream as `NAME.*`.
fn is_named(entry: &str, tool: &str) -> bool {
    let upstream = tool.split_once('.').map(|(upstream, _)| upstream);
    if upstream.is_some() && entry.strip_suffix(".*") == upstream {
        return true;
    }
    entry == tool || crate::catalog::find(entry).is_some_and(|found| found.name == tool)
}
