//! The reference pages `docs/tools.md` and `docs/errors.md`, written from the same tables the program runs on.

use std::fmt::Write;

use crate::catalog::TOOLS;
use crate::error::{ErrorKind, ROWS};
use crate::tool::Effect;

/// `docs/tools.md`.
pub fn tools_markdown() -> String {
    let mut page = String::from(
        "# Tools\n\nGenerated from the catalogue; `*` marks required arguments. Tokens are o200k tokens of what a model is \
         sent for the tool: name, description and input schema.\n\n\
         | tool | effect | tokens | what it does | also called |\n|---|---|---:|---|---|\n",
    );
    for tool in TOOLS {
        let effect = match tool.effect {
            Effect::Reads => "reads",
            Effect::Writes => "writes",
            Effect::Runs => "runs programs",
            Effect::SendsOut => "sends data out",
            Effect::Scripts => "runs a script; its calls are judged one by one",
            Effect::UpstreamReads | Effect::UpstreamRuns => "calls another server",
        };
        let aliases: Vec<String> = tool
            .aliases
            .iter()
            .map(|alias| format!("`{alias}`"))
            .collect();
        let _ = writeln!(
            page,
            "| `{}` | {effect} | {} | {} | {} |",
            tool.signature(),
            llmc_tokens::count(&tool.listing()),
            tool.description(),
            aliases.join(", ")
        );
    }
    page.push_str("\n## What a model is sent\n\n");
    for tool in TOOLS {
        let _ = writeln!(page, "```json\n{}\n```\n", tool.listing());
    }
    page
}

/// `docs/errors.md`.
pub fn errors_markdown() -> String {
    let mut page = String::from(
        "# Errors\n\nOne kind of failure has one row; each surface reads its column. A failing child command is data, not \
         an error.\n\n\
         | kind | tools | `rlm_query` | `te_*` | HTTP | HTTP code | exit | retry |\n|---|---|---|---|---:|---|---:|---|\n",
    );
    let code = |code: Option<&str>| code.map_or("–".to_owned(), |code| format!("`{code}`"));
    for row in ROWS {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | `{}` | {} | {} |",
            row.what,
            code(row.linux),
            code(row.rlm),
            code(row.te),
            row.http,
            row.http_code,
            row.exit,
            if row.retryable { "yes" } else { "no" }
        );
    }
    page.push_str(
        "\n## Cause and remedy\n\nThe message names the argument or path, what came and what is wanted; the hint names a \
         call that its reader can make.\n\n| kind | cause | remedy |\n|---|---|---|\n",
    );
    for row in ROWS {
        let (cause, remedy) = explained(row.kind);
        let _ = writeln!(page, "| {} | {cause} | {remedy} |", row.what);
    }
    page
}

/// Why a kind of failure comes about, and what to do about it.
fn explained(kind: ErrorKind) -> (&'static str, &'static str) {
    use ErrorKind::*;
    match kind {
        BadArgs => (
            "An argument is missing, unknown, given twice, of another type, out of its bounds, or contradicts another.",
            "Correct the argument that the message names; the hint shows the tool's arguments.",
        ),
        BadPattern => (
            "A regular expression or glob does not parse.",
            "Escape characters that mean themselves with a backslash.",
        ),
        UnknownTool => (
            "No tool has this name, or the mode does not offer it.",
            "Call the tool that the message suggests, or one that `llmc tools` lists.",
        ),
        AuthFailed => (
            "The request carries no token, or one that is not known.",
            "Send `Authorization: Bearer TOKEN`; without `LLMC_MCP_TOKEN` the token is in the file `token` of the state directory (`llmc state`).",
        ),
        InvalidPath => (
            "The path lies outside the roots, a link on it leads there, it is a special file, or its name is protected or \
             on the denylist.",
            "Use a path in the workspace. The operator sets roots (`mcp.tools.allowed_roots`) and the denylist.",
        ),
        CommandDenied => (
            "The server is read only, commands are switched off, or the policy refuses the program or a word of the command.",
            "Use what the hint allows. The operator sets `mcp.tools` and `mcp.exec`.",
        ),
        EgressDenied => (
            "The model or its address is not one that the operator allows.",
            "Leave `model` out, or ask the operator to set `mcp.rlm.allowed_model_prefixes` or `allowed_hosts`.",
        ),
        IsolationRequired => (
            "The kernel cannot confine what was to run.",
            "`llmc doctor` says what is missing.",
        ),
        NotFound => (
            "Nothing has this path, symbol or id.",
            "Use one of the paths that the hint names, or list the directory.",
        ),
        PermissionDenied => (
            "The operating system does not let the server's user do it.",
            "Change owner or permissions outside of the tools.",
        ),
        NotADirectory => (
            "The path is a file; a directory is needed.",
            "Read the file that the hint names, or name its directory.",
        ),
        IsDirectory => (
            "The path is a directory; a file is needed.",
            "List it, name a file in it, or delete it with `recursive`.",
        ),
        PreconditionFailed => (
            "The file is no longer what `expected_sha256` says.",
            "Read it again and redo the change.",
        ),
        NoMatch => (
            "The old text or a hunk is not in the file, or not as often as expected.",
            "Copy the text from the nearest lines that the error shows, or add lines around it.",
        ),
        AlreadyExists => (
            "Something has that name.",
            "Choose another name, or delete what is there first.",
        ),
        Busy => (
            "Another agent holds the file, or the index is being built.",
            "Try again; the error names the holder.",
        ),
        HandleExpired => (
            "The handle is misspelt, too old, was evicted, or belongs to another token.",
            "Repeat the call that made it.",
        ),
        TooLarge => (
            "One line or one answer is larger than 8 MiB, or a file larger than its limit.",
            "Ask for less at a time.",
        ),
        RateLimited => (
            "More requests came than the token may send.",
            "Wait as long as `Retry-After` says.",
        ),
        BudgetExceeded => (
            "The next model call could cost more than the cap, or the model has no price.",
            "Ask something narrower, raise `budget_usd`, or set the price that the hint names.",
        ),
        NoAnswer => (
            "The model used all its turns without calling `FINAL`.",
            "Ask something narrower, allow more turns, or use a more capable model.",
        ),
        TimedOut => (
            "The work did not end within its time.",
            "Narrow it, or give a longer `timeout`.",
        ),
        Cancelled => (
            "The client cancelled the call or disconnected, or the server is shutting down.",
            "Call again if the result is still wanted.",
        ),
        ProviderFailed => (
            "A model provider refused the request, failed, or could not be understood.",
            "After 400, 401 or 404 correct the model, key or address; else try again.",
        ),
        Unavailable => (
            "A store cannot be opened or is held by another process.",
            "Try again; `llmc doctor` looks at the stores.",
        ),
        Conflict => (
            "What is to be restored has been changed since.",
            "Look at both versions and decide.",
        ),
        WriteFailed => (
            "The disk is full, read only or failing; the old content is unchanged.",
            "Make room, then try again.",
        ),
        Internal => (
            "A fault in the server, or an error of the system that has no kind of its own.",
            "Try again; report it with its correlation id if it persists.",
        ),
    }
}
