//! The reference pages `docs/tools.md` and `docs/errors.md`, written from the same tables the program runs on.

use std::fmt::Write;

use crate::catalog::TOOLS;
use crate::error::ROWS;
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
    page
}
