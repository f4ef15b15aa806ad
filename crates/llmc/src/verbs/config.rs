//! `llmc config show|check`.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_config::Mode;
use llmc_tools::mode;

use super::{Failure, config_warnings, load, print, tools};
use crate::cli::Common;

pub(super) fn show(common: &Common) -> Result<ExitCode, Failure> {
    print(&llmc_config::render_show(&load(common)?))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn check(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let config = &loaded.config;
    let mut out = String::new();
    let file = if loaded.file.is_some() {
        loaded.file_label()
    } else {
        "no llmc.toml, defaults only"
    };
    let _ = writeln!(out, "configuration is valid ({file})");
    let _ = writeln!(out, "workspace: {}", loaded.root.display());
    let (list, warnings) = mode::listing(config);
    let (tokens, _) = tools::cost(&list);
    let _ = writeln!(
        out,
        "mode {}: {} tools, {tokens} tokens per conversation",
        config.mcp.mode,
        list.len()
    );
    for other in Mode::ALL.iter().filter(|other| **other != config.mcp.mode) {
        let mut changed = config.clone();
        changed.mcp.mode = *other;
        let (cost, _) = tools::cost(&mode::listing(&changed).0);
        let word = if cost < tokens { "saves" } else { "costs" };
        let _ = writeln!(
            out,
            "  mode {other} {word} {} tokens ({cost})",
            cost.abs_diff(tokens)
        );
    }
    let unlikely = config_warnings::all(&loaded);
    for warning in warnings.iter().chain(&loaded.warnings).chain(&unlikely) {
        let _ = writeln!(out, "warning: {warning}");
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}
