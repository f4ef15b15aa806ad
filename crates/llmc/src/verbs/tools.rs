//! `llmc tools`: the tools with their cost in tokens.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_config::Mode;
use llmc_tools::{ToolDef, catalog, mode};

use super::{Failure, load, print};
use crate::cli::Common;

pub(super) fn run(common: &Common, schemas: bool) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let config = &loaded.config;
    let (listed, warnings) = mode::listing(config);
    let mut out = String::new();
    let all: Vec<&ToolDef> = catalog::TOOLS.iter().collect();
    // With --mode only that mode's tools; else every tool, those not listed marked with `-`.
    let rows = if common.mode.is_some() { &listed } else { &all };
    let _ = writeln!(
        out,
        "{:<24} {:>6} {:>6}  what it does",
        "tool", "tokens", "bytes"
    );
    for tool in rows {
        let text = tool.listing();
        let mark = if listed.iter().any(|other| other.name == tool.name) {
            ' '
        } else {
            '-'
        };
        let _ = writeln!(
            out,
            "{mark}{:<23} {:>6} {:>6}  {}",
            tool.name,
            llmc_tokens::count(&text),
            text.len(),
            tool.description()
        );
        if schemas {
            let _ = writeln!(out, "    {text}");
        }
    }
    out.push('\n');
    for mode in Mode::ALL {
        let mut other = config.clone();
        other.mcp.mode = *mode;
        let (list, _) = mode::listing(&other);
        let (tokens, bytes) = cost(&list);
        let mark = if *mode == config.mcp.mode { '*' } else { ' ' };
        let _ = writeln!(
            out,
            "{mark}{:<15} {:>3} tools {:>6} tokens {:>6} bytes, instructions {} tokens",
            mode.as_str(),
            list.len(),
            tokens,
            bytes,
            llmc_tokens::count(&mode::instructions(&other))
        );
    }
    out.push_str("\n* this configuration's mode; - not listed in it. Tokens are o200k; other models differ a little.\n");
    for warning in warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Tokens and bytes of a list as a model is sent it.
pub(super) fn cost(list: &[&ToolDef]) -> (usize, usize) {
    let texts: Vec<String> = list.iter().map(|tool| tool.listing()).collect();
    let all = format!("[{}]", texts.join(","));
    (llmc_tokens::count(&all), all.len())
}
