//! `llmc config show|check`.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_config::{Mode, SettingEntry, SettingSource};
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
    let is_own = |entry: &SettingEntry| matches!(entry.source, SettingSource::UserFile { .. });
    let file = match (&loaded.file, loaded.entries().iter().any(is_own)) {
        (Some(_), _) => loaded.file_label(),
        (None, true) => "no llmc.toml, your own file",
        (None, false) => "no llmc.toml, defaults only",
    };
    let _ = writeln!(out, "configuration is valid ({file})");
    let _ = writeln!(out, "workspace: {}", loaded.root.display());
    let (list, warnings) = mode::listing(config);
    let (tokens, _) = tools::cost(&list);
    let _ = writeln!(
        out,
        "mode {}: {} tools, a list of {tokens} tokens in every conversation",
        config.mcp.mode,
        list.len()
    );
    for other in Mode::ALL.iter().filter(|other| **other != config.mcp.mode) {
        let mut changed = config.clone();
        changed.mcp.mode = *other;
        let (cost, _) = tools::cost(&mode::listing(&changed).0);
        let difference = cost.abs_diff(tokens);
        let said = match cost < tokens {
            true => format!("saves {difference} tokens"),
            false => format!("costs {difference} tokens more"),
        };
        let _ = writeln!(out, "  mode {other} {said} ({cost})");
    }
    let unlikely = config_warnings::all(&loaded);
    for warning in warnings.iter().chain(&loaded.warnings).chain(&unlikely) {
        let _ = writeln!(out, "warning: {warning}");
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}
