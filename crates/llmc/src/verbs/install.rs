//! `llmc install` and `llmc uninstall`: add, update or remove this server's entry in MCP clients' settings.

mod state;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_clients::{
    AppliedEdit, Client, ClientPaths, ClientServer, EditPlan, Error, NameConflict, OtherFileServer,
    ServerEntry, SettingsChange, SettingsScope, StartFolder,
};
use llmc_tools::ErrorKind;

use super::colour::Paint;
use super::{Failure, confirm, inputs, print};
use crate::cli::{Common, EntryEdit, InstallArgs, UninstallArgs};

pub(super) fn run(common: &Common, args: &InstallArgs) -> Result<ExitCode, Failure> {
    let paths = client_paths(common)?;
    if let Some(client) = args.client {
        install(common, args, client, &paths)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.all {
        if args.print || args.edit.file.is_some() {
            return Err(which_client());
        }
        return state::list_clients(common, &args.edit, &paths);
    }
    let found = Client::ALL.into_iter().filter(|one| one.is_found(&paths));
    let found: Vec<Client> = found.collect();
    if found.is_empty() {
        return Err(Failure::new(
            ErrorKind::NotFound,
            "no MCP client was found on this machine\n  hint: `llmc install` lists those that it knows; `llmc install CLIENT` writes the settings of one",
        ));
    }
    each(&found, |client| {
        install(common, args, client, &paths).map(|()| true)
    })
}

pub(super) fn uninstall(common: &Common, args: &UninstallArgs) -> Result<ExitCode, Failure> {
    let paths = client_paths(common)?;
    if let Some(client) = args.client {
        let scope = args.edit.scope.unwrap_or(client.default_scope());
        let file = file(&args.edit, client, scope, &paths)?;
        if !remove(&args.edit, client, scope, &file, ForeignEntry::Refuse)? {
            print(&format!(
                "not installed in {}: {} is unchanged",
                client.title(),
                file.display()
            ))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scopes = match args.edit.scope {
        Some(scope) => vec![scope],
        None => vec![SettingsScope::User, SettingsScope::Project],
    };
    let mut anywhere = false;
    let code = each(&Client::ALL, |client| {
        let mut there = false;
        for scope in &scopes {
            let Some(file) = client.file(*scope, &paths, &args.edit.name) else {
                continue;
            };
            there |= remove(&args.edit, client, *scope, &file, ForeignEntry::Skip)?;
        }
        anywhere |= there;
        Ok(there)
    })?;
    if !anywhere && code == ExitCode::SUCCESS {
        print("not installed in any client: nothing was changed")?;
    }
    Ok(code)
}

/// Changes the settings of several clients. One that fails is reported and does not stop the others; the exit code is that of
/// the first failure.
fn each(
    clients: &[Client],
    mut change: impl FnMut(Client) -> Result<bool, Failure>,
) -> Result<ExitCode, Failure> {
    let mut code = None;
    for client in clients {
        match change(*client) {
            Ok(true) => print("")?,
            Ok(false) => {}
            Err(failure) => {
                let failed = failure.report();
                code.get_or_insert(failed);
            }
        }
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

fn install(
    common: &Common,
    args: &InstallArgs,
    client: Client,
    paths: &ClientPaths,
) -> Result<(), Failure> {
    let edit = &args.edit;
    let scope = edit.scope.unwrap_or(client.default_scope());
    let entry = entry(common, edit, client, scope, paths)?;
    if args.print {
        return print(&EditPlan::standalone(client.format(), &entry)?);
    }
    let file = file(edit, client, scope, paths)?;
    let conflict = conflict(edit);
    if conflict == NameConflict::Refuse {
        refuse_duplicate_name(client, &file, entry.name())?;
    }
    let change = SettingsChange::Install(entry.clone());
    let plan = EditPlan::new(&file, client.format(), scope, &change, conflict)?;
    if plan.is_unchanged() {
        print(&format!(
            "already installed in {}: {} is unchanged",
            client.title(),
            plan.file().display()
        ))?;
    } else {
        let question = format!("write {}?", plan.file().display());
        let Some(applied) = carry_out(&plan, edit, &question)? else {
            return match edit.dry_run {
                true => retire_others(args, client, scope, &file),
                false => Ok(()),
            };
        };
        let mut out = report("installed in", client, &applied);
        let _ = write!(out, "{}", describe_workspace(client, scope, &entry));
        let _ = writeln!(out, "next: {}", client.next_step());
        print(&out)?;
    }
    retire_others(args, client, scope, &file)?;
    hint_at_import(client, scope, paths)
}

/// Names the command that moves the other servers of the client's settings behind this one.
fn hint_at_import(
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
) -> Result<(), Failure> {
    let files = client.files(scope, paths).into_iter();
    let servers =
        files.flat_map(|(file, format)| EditPlan::servers(&file, format).unwrap_or_default());
    let count = servers.filter(is_other_server).count();
    if count == 0 {
        return Ok(());
    }
    let scope = match scope == client.default_scope() {
        true => "",
        false => match scope {
            SettingsScope::User => " --scope user",
            SettingsScope::Project => " --scope project",
        },
    };
    let servers = match count {
        1 => "one other MCP server is".to_owned(),
        count => format!("{count} other MCP servers are"),
    };
    print(&format!(
        "\n{servers} in these settings, and every conversation pays for each tool list; `llmc upstream import {client}{scope}` moves them behind this one (it shows every change and asks)"
    ))
}

/// Whether an entry starts or names a server that could stand behind this one.
fn is_other_server(server: &ClientServer) -> bool {
    let program = server.command.as_deref().map(Path::new);
    let is_own = program
        .and_then(Path::file_name)
        .is_some_and(|name| name == "llmc");
    !is_own && (server.command.is_some() || server.url.is_some())
}

/// What happens to an entry of the name that starts another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignEntry {
    /// The user named this client, so it is an error.
    Refuse,
    /// It is none of this server's.
    Skip,
}

/// Removes the entry from one file; whether it was there.
fn remove(
    edit: &EntryEdit,
    client: Client,
    scope: SettingsScope,
    file: &Path,
    foreign: ForeignEntry,
) -> Result<bool, Failure> {
    let entry = ServerEntry::new(&edit.name, command(edit)?, vec!["mcp".to_owned()])
        .map_err(|error| Failure::from_error(ErrorKind::BadArgs, &error))?;
    let change = SettingsChange::Uninstall(entry);
    let plan = match EditPlan::new(file, client.format(), scope, &change, conflict(edit)) {
        Err(Error::NameTaken { .. }) if foreign == ForeignEntry::Skip => return Ok(false),
        plan => plan?,
    };
    if plan.is_unchanged() {
        return Ok(false);
    }
    let question = format!("write {}?", plan.file().display());
    if let Some(applied) = carry_out(&plan, edit, &question)? {
        print(&report("removed from", client, &applied))?;
    }
    Ok(true)
}

/// Offers to remove the entries of other file servers from the file that has this one.
fn retire_others(
    args: &InstallArgs,
    client: Client,
    scope: SettingsScope,
    file: &Path,
) -> Result<(), Failure> {
    for other in EditPlan::other_file_servers(file, client.format()) {
        let OtherFileServer { entry, title } = &other;
        print(&format!(
            "\n{title} is there, too (entry `{entry}`): it offers files and commands as this server does, and every conversation pays for its tool list"
        ))?;
        let can_ask = !args.edit.yes && std::io::stdin().is_terminal();
        if !(can_ask || args.retire || args.edit.dry_run) {
            print(&format!(
                "kept; `llmc install {client} --yes --retire` removes it"
            ))?;
            continue;
        }
        let change = SettingsChange::Retire(other.clone());
        let plan = EditPlan::new(file, client.format(), scope, &change, NameConflict::Refuse)?;
        let question = format!("remove `{entry}` from {}?", plan.file().display());
        if let Some(applied) = carry_out(&plan, &args.edit, &question)? {
            print(&report(
                &format!("`{entry}` removed from"),
                client,
                &applied,
            ))?;
        }
    }
    Ok(())
}

/// Shows the difference, asks, and writes; `None` when nothing was to be written.
fn carry_out(
    plan: &EditPlan,
    edit: &EntryEdit,
    question: &str,
) -> Result<Option<AppliedEdit>, Failure> {
    print(&Paint::stdout().diff(&plan.diff()))?;
    if edit.dry_run {
        return Ok(None);
    }
    plan.check_writable()?;
    let hint = "--yes writes it, --dry-run only shows it";
    if !edit.yes && !confirm(question, hint)? {
        print("nothing was written")?;
        return Ok(None);
    }
    Ok(Some(plan.apply()?))
}

fn report(done: &str, client: Client, applied: &AppliedEdit) -> String {
    let mut out = format!("{done} {}: {}\n", client.title(), applied.file.display());
    if let Some(backup) = &applied.backup {
        let _ = writeln!(out, "backup: {}", backup.display());
    }
    out
}

fn conflict(edit: &EntryEdit) -> NameConflict {
    match edit.force {
        true => NameConflict::Replace,
        false => NameConflict::Refuse,
    }
}

fn which_client() -> Failure {
    let ids: Vec<&str> = Client::ALL.into_iter().map(Client::id).collect();
    bad_args(format!("which client? one of {}", ids.join(", ")))
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
pub(super) fn client_paths(common: &Common) -> Result<ClientPaths, Failure> {
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
    edit: &EntryEdit,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
) -> Result<PathBuf, Failure> {
    if let Some(file) = &edit.file {
        return Ok(file.clone());
    }
    client.file(scope, paths, &edit.name).ok_or_else(|| {
        let title = client.title();
        bad_args(format!(
            "{title} has no settings in a project; leave --scope out to change the user's"
        ))
    })
}

/// The entry that starts this executable with the flags given here.
fn entry(
    common: &Common,
    edit: &EntryEdit,
    client: Client,
    scope: SettingsScope,
    paths: &ClientPaths,
) -> Result<ServerEntry, Failure> {
    let command = command(edit)?;
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
    ServerEntry::new(&edit.name, command, words)
        .map_err(|error| Failure::from_error(ErrorKind::BadArgs, &error))
}

/// What the entry starts.
fn command(edit: &EntryEdit) -> Result<String, Failure> {
    match &edit.command {
        Some(command) => Ok(command.clone()),
        None => path_text(&program()?),
    }
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
