//! Calls of scripts that the user is asked about first (`mcp.code_execution.ask`).
//!
//! A surface that can ask its user gives the call an [`Approver`]. The script waits at the call until the user has
//! answered; time spent waiting is not the script's own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// Characters of one argument that a question shows.
const MAX_ARGUMENT_CHARS: usize = 2000;

/// What the user answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Granted,
    Declined,
    /// The user did not answer in time, or the client went away.
    Unanswered,
}

type PendingApproval = Pin<Box<dyn Future<Output = Approval> + Send>>;

/// Asks the user one question.
#[derive(Clone)]
pub struct Approver(Arc<dyn Fn(String) -> PendingApproval + Send + Sync>);

impl Approver {
    pub fn new<F>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Approver
    where
        F: Future<Output = Approval> + Send + 'static,
    {
        Approver(Arc::new(move |question| Box::pin(ask(question))))
    }
}

impl fmt::Debug for Approver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Approver")
    }
}

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
    let Some(approver) = cx.approver() else {
        return Err(denied(
            "scripts need the user's approval for this call, and this client cannot be asked",
        )
        .hint(format!(
            "the operator listed {tool} in mcp.code_execution.ask; call it directly, outside a script"
        )));
    };
    match (approver.0)(question(tool, args)).await {
        Approval::Granted => Ok(()),
        Approval::Declined => Err(denied("the user declined")),
        Approval::Unanswered => Err(denied("the user did not answer")),
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
