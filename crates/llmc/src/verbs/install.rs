//! `llmc install CLIENT`: adds, updates or removes this server's entry in an MCP client's settings.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_clients::{
    Client, ClientPaths, EditPlan, Error, NameConflict, ServerEntry, SettingsChange, SettingsScope,
    StartFolder,
};
use llmc_tools::ErrorKind;

use super::colour::Paint;
use super::{Failure, confirm, inputs, print};
use crate::cli::{Common, InstallArgs};

pub(super) fn run(common: &Common, args: &InstallArgs) -> Result<ExitCode, Failure> {
    let paths = client_paths(common)?;
    let Some(client) = args.client else {
        return list_clients(common, args, &paths);
    };
    let scope = args.scope.unwrap_or(client.default_scope());
    let entry = entry(common, args, client, scope, &paths)?;
    if args.print {
        print(&EditPlan::standalone(client.format(), &entry)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = file(args, client, scope, &paths)?;
    let conflict = if args.force {
        NameConflict::Replace
    } else {
        NameConflict::Refuse
    };
    if !args.uninstall && conflict == NameConflict::Refuse {
        refuse_duplicate_name(client, &file, entry.name())?;
    }
    let (change, done, unchanged) = if args.uninstall {
        let change = SettingsChange::Uninstall(entry.clone());
        (change, "removed from", "not installed in")
    } else {
        let change = SettingsChange::Install(entry.clone());
        (change, "installed in", "already installed in")
    };
    let plan = EditPlan::new(&file, client.format(), scope, &change, conflict)?;
    if plan.is_unchanged() {
        print(&format!(
            "{unchanged} {}: {} is unchanged",
            client.title(),
            plan.file().display()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&Paint::stdout().diff(&plan.diff()))?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    plan.check_writable()?;
    let question = format!("write {}?", plan.file().display());
    let hint = "--yes writes it, --dry-run only shows it";
    if !args.yes && !confirm(&question, hint)? {
        print("nothing was written")?;
        return Ok(ExitCode::SUCCESS);
    }
    let applied = plan.apply()?;
    let mut out = format!("{done} {}: {}\n", client.title(), applied.file.display());
    if let Some(backup) = &applied.backup {
        let _ = writeln!(out, "backup: {}", backup.display());
    }
    if !args.uninstall {
        let _ = write!(out, "{}", describe_workspace(client, scope, &entry));
        let _ = writeln!(out, "next: {}", client.next_step());
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = match &error {
            Error::Unreadable { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                std::io::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
                _ => ErrorKind::Internal,
            },
            Error::NotAFile { .. } => ErrorKind::IsDirectory,
            Error::DanglingLink { .. } => ErrorKind::NotFound,
            Error::TooLarge { .. } => ErrorKind::TooLarge,
            Error::Broken { .. } | Error::Unexpected { .. } => ErrorKind::BadArgs,
            Error::NameTaken { .. } => ErrorKind::AlreadyExists,
            Error::ReadOnly { .. } => ErrorKind::PermissionDenied,
            Error::Changed { .. } => ErrorKind::PreconditionFailed,
            Error::WouldLoseContent { .. } => ErrorKind::Internal,
            Error::Unwritable { .. } => ErrorKind::WriteFailed,
        };
        Failure::new(kind, format!("{error}\n  hint: {}", error.hint()))
    }
}

fn bad_args(message: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::BadArgs, message)
}

/// Folders of the user's and this project's client settings.
fn client_paths(common: &Common) -> Result<ClientPaths, Failure> {
    let project = llmc_config::workspace_root(&inputs(common)?)?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute()).ok_or_else(|| {
        bad_args("HOME is not set to an absolute path, so the client's settings cannot be found")
    })?;
    Ok(ClientPaths::new(home, project, |name| {
        std::env::var_os(name)
    }))
}

fn file(
    args: &InstallArgs,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    client.file(scope, paths, &args.name).ok_or_else(|| {
        let title = client.title();
        bad_args(format!(
            "{title} has no settings in a project; leave --scope out to change the user's"
        ))
    })
}

/// The entry that starts this executable with the flags given here.
fn entry(
    common: &Common,
    args: &InstallArgs,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
) -> Result<ServerEntry, Failure> {
    let command = match &args.command {
        Some(command) => command.clone(),
        None => path_text(&program()?)?,
    };
    let mut words = vec!["mcp".to_owned()];
    let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    // A given --root is written as it is; without one, what this client needs to find the project.
    match (&common.root, client.start_folder(scope)) {
        (Some(_), _) | (None, StartFolder::Anywhere) => flag("root", path_text(&paths.project)?),
        (None, StartFolder::Variable(variable)) => flag("root", variable.to_owned()),
        (None, StartFolder::InProject) => {}
    }
    if let Some(config) = &common.config {
        let absolute = std::path::absolute(config)
            .map_err(|error| Failure::from_error(ErrorKind::BadArgs, &error))?;
        flag("config", path_text(&absolute)?);
    }
    if let Some(mode) = &common.mode {
        if !llmc_config::Mode::NAMES.contains(&mode.as_str()) {
            let modes = llmc_config::Mode::NAMES.join(", ");
            return Err(bad_args(format!("--mode {mode}: one of {modes}")));
        }
        flag("mode", mode.clone());
    }
    if let Some(level) = &common.log_level {
        flag("log-level", level.clone());
    }
    for set in &common.sets {
        flag("set", set.clone());
    }
    ServerEntry::new(&args.name, command, words)
        .map_err(|error| Failure::from_error(ErrorKind::BadArgs, &error))
}

/// This executable, by its path on `PATH` if it is there: that path stays the same when a new version replaces the file.
fn program() -> Result<PathBuf, Failure> {
    let unknown = |error: std::io::Error| {
        Failure::new(
            ErrorKind::Internal,
            format!(
                "the path of this executable is unknown: {error}\n  hint: name it with --command"
            ),
        )
    };
    let this = std::env::current_exe().map_err(unknown)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("llmc"));
    let same = |file: &PathBuf| file.canonicalize().is_ok_and(|file| file == this);
    Ok(named.into_iter().find(same).unwrap_or(this))
}

fn path_text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        bad_args(format!(
            "{}: the path is not UTF-8, so it cannot be written to a settings file",
            path.display()
        ))
    })
}

/// Continue also reads servers from `config.yaml`; a name that occurs in both files is refused.
fn refuse_duplicate_name(client: Client, file: &Path, name: &str) -> Result<(), Failure> {
    let folder = file.parent().and_then(Path::parent);
    let (Client::Continue, Some(folder)) = (client, folder) else {
        return Ok(());
    };
    let config = folder.join("config.yaml");
    let Some(text) = super::init::read(&config) else {
        return Ok(());
    };
    let taken = text.lines().any(|line| {
        let item = line.trim_start().trim_start_matches("- ");
        let value = item.strip_prefix("name:").map(str::trim);
        value.is_some_and(|value| value.trim_matches(['"', '\'']) == name)
    });
    if !taken {
        return Ok(());
    }
    Err(Failure::new(
        ErrorKind::AlreadyExists,
        format!(
            "{} has an entry `{name}` already\n  hint: nothing was changed; choose another name with --name, or add a second one with --force",
            config.display()
        ),
    ))
}

/// Asks on the terminal.
/// Which workspace the entry serves, and whether the file can be shared.
fn describe_workspace(client: Client, scope: SettingsScope, entry: &ServerEntry) -> String {
    let mut out = String::new();
    let root = entry.args.windows(2).find(|pair| pair[0] == "--root");
    let root = root.map(|pair| pair[1].as_str());
    let _ = match root {
        Some(root) if root.starts_with('$') => {
            writeln!(out, "workspace: the project that is open")
        }
        Some(root) => writeln!(
            out,
            "workspace: {root}, whichever project is open; --root DIR names another"
        ),
        None => writeln!(
            out,
            "workspace: the project that {} is started in",
            client.title()
        ),
    };
    if scope == SettingsScope::Project && Path::new(&entry.command).is_absolute() {
        let _ = writeln!(
            out,
            "the entry holds an absolute path of this machine: keep the file out of version control, or use --command llmc"
        );
    }
    out
}

/// Every client, its file, and whether the entry is there.
fn list_clients(
    common: &Common,
    args: &InstallArgs,
    paths: &ClientPaths,
) -> Result<ExitCode, Failure> {
    if args.uninstall || args.print || args.file.is_some() {
        let ids: Vec<&str> = Client::ALL.into_iter().map(Client::id).collect();
        return Err(bad_args(format!("which client? one of {}", ids.join(", "))));
    }
    let paint = Paint::stdout();
    let mut out = String::new();
    for client in Client::ALL {
        let scope = args.scope.unwrap_or(client.default_scope());
        let Some(file) = client.file(scope, paths, &args.name) else {
            continue;
        };
        let entries = entries(common, args, client, scope, paths, &file)?;
        let (state, style) = state(client, scope, &file, &entries);
        let _ = writeln!(
            out,
            "{:<15} {}  {}",
            client.id(),
            paint.styled(&format!("{state:<14}"), style),
            file.display()
        );
    }
    out.push_str(
        "\n`llmc install CLIENT` shows the change and asks before it writes; see `llmc install --help`\n",
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The entry of these flags, and that with the flags of the installed one: what the user chose for it is not out of date.
fn entries(
    common: &Common,
    args: &InstallArgs,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
    file: &Path,
) -> Result<Vec<ServerEntry>, Failure> {
    let fresh = entry(common, args, client, scope, paths)?;
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
    entries.extend(entry(&kept, args, client, scope, paths));
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
        (Ok(there), _) if there.is_unchanged() => ("-", "2"),
        (_, Ok(same)) if same.contains(&true) => ("installed", "32"),
        _ => ("out of date", "33"),
    }
}
