//! `llmc install` without a client: where the entry is installed, and whether it is up to date.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_clients::{
    Client, ClientPaths, EditPlan, Error, NameConflict, ServerEntry, SettingsChange, SettingsScope,
};

use super::super::colour::Paint;
use super::super::{Failure, print};
use super::entry;
use crate::cli::{Common, EntryEdit};

/// Every client, its file, and whether the entry is there.
pub(super) fn list_clients(
    common: &Common,
    edit: &EntryEdit,
    paths: &ClientPaths,
) -> Result<ExitCode, Failure> {
    let paint = Paint::stdout();
    let mut out = format!("{:<15} {:<14}  settings file\n", "client", "this server");
    for client in Client::ALL {
        let scope = edit.scope.unwrap_or(client.default_scope());
        let Some(file) = client.file(scope, paths, &edit.name) else {
            continue;
        };
        let entries = entries(common, edit, client, scope, paths, &file)?;
        let (state, style) = state(client, scope, &file, &entries);
        let _ = writeln!(
            out,
            "{:<15} {}  {}",
            client.id(),
            paint.styled(&format!("{state:<14}"), style),
            file.display()
        );
    }
    let found = Client::ALL.into_iter().filter(|one| one.is_found(paths));
    let found: Vec<&str> = found.map(Client::id).collect();
    if !found.is_empty() {
        let _ = writeln!(out, "\nfound on this machine: {}", found.join(", "));
    }
    out.push_str(
        "\n`llmc install CLIENT` shows the change and asks before it writes, `llmc install --all` does so for those found here\n",
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The entry of these flags, and that with the flags of the installed one: what the user chose for it is not out of date.
fn entries(
    common: &Common,
    edit: &EntryEdit,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
    file: &Path,
) -> Result<Vec<ServerEntry>, Failure> {
    let fresh = entry(common, edit, client, scope, paths)?;
    let Some(installed) = EditPlan::installed_args(file, client.format(), &fresh) else {
        return Ok(vec![fresh]);
    };
    let values = |flag: &str| {
        let pairs = installed.windows(2).filter(|pair| pair[0] == flag);
        pairs.map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    let value = |flag: &str| values(flag).into_iter().next();
    let kept = Common {
        mode: common.mode.clone().or_else(|| value("--mode")),
        log_level: common.log_level.clone().or_else(|| value("--log-level")),
        config: common
            .config
            .clone()
            .or_else(|| value("--config").map(PathBuf::from)),
        sets: match common.sets.is_empty() {
            true => values("--set"),
            false => common.sets.clone(),
        },
        ..common.clone()
    };
    let mut entries = vec![fresh];
    // A mode that is none any more is out of date.
    entries.extend(entry(&kept, edit, client, scope, paths));
    Ok(entries)
}

fn state(
    client: Client,
    scope: SettingsScope,
    file: &Path,
    entries: &[ServerEntry],
) -> (&'static str, &'static str) {
    let plan = |change: SettingsChange| {
        EditPlan::new(file, client.format(), scope, &change, NameConflict::Refuse)
    };
    let there = plan(SettingsChange::Uninstall(entries[0].clone()));
    let is_same = |entry: &ServerEntry| {
        plan(SettingsChange::Install(entry.clone())).map(|plan| plan.is_unchanged())
    };
    let same: Result<Vec<bool>, Error> = entries.iter().map(is_same).collect();
    match (there, same) {
        (Err(Error::NameTaken { .. }), _) => ("name taken", "33"),
        (Err(_), _) | (_, Err(_)) => ("unusable", "31"),
        (Ok(there), _) if there.is_unchanged() => ("not installed", "2"),
        (_, Ok(same)) if same.contains(&true) => ("installed", "32"),
        _ => ("out of date", "33"),
    }
}
