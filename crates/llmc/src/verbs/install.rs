//! `llmc install CLIENT`: one entry in an MCP client's settings.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_clients::{Change, Client, Entry, Error, Others, Place, Plan, Scope, Starts};
use llmc_tools::Kind;

use super::colour::Paint;
use super::{Failure, inputs, print};
use crate::cli::{Common, InstallArgs};

pub(super) fn run(common: &Common, args: &InstallArgs) -> Result<ExitCode, Failure> {
    let place = place(common)?;
    let Some(client) = args.client else {
        return list(common, args, &place);
    };
    let scope = args.scope.unwrap_or(client.usual_scope());
    let entry = entry(common, args, client, scope, &place)?;
    if args.print {
        print(&Plan::alone(client.format(), &entry)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = file(args, client, scope, &place)?;
    let others = match args.force {
        true => Others::Replace,
        false => Others::Keep,
    };
    if !args.uninstall && others == Others::Keep {
        named_elsewhere(client, &file, entry.name())?;
    }
    let (change, done) = match args.uninstall {
        false => (Change::Install(entry.clone()), "installed in"),
        true => (Change::Uninstall(entry.clone()), "removed from"),
    };
    let plan = Plan::new(&file, client.format(), scope, &change, others)?;
    if plan.is_nothing() {
        let state = match args.uninstall {
            false => "already installed in",
            true => "not installed in",
        };
        print(&format!(
            "{state} {}: {} stays as it is",
            client.title(),
            plan.file().display()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&Paint::stdout().diff(&plan.diff()))?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    plan.may_write()?;
    if !args.yes && !agreed(plan.file())? {
        print("nothing was written")?;
        return Ok(ExitCode::SUCCESS);
    }
    let applied = plan.apply()?;
    let mut out = format!("{done} {}: {}\n", client.title(), applied.file.display());
    if let Some(backup) = &applied.backup {
        let _ = writeln!(out, "what was there: {}", backup.display());
    }
    if !args.uninstall {
        let _ = write!(out, "{}", remarks(client, scope, &entry));
        let _ = writeln!(out, "next: {}", client.next());
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = match &error {
            Error::Unreadable { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
                std::io::ErrorKind::NotADirectory => Kind::NotADirectory,
                _ => Kind::Internal,
            },
            Error::NotAFile { .. } => Kind::IsDirectory,
            Error::Dangling { .. } => Kind::NotFound,
            Error::TooLarge { .. } => Kind::TooLarge,
            Error::Broken { .. } | Error::Unexpected { .. } => Kind::BadArgs,
            Error::Foreign { .. } => Kind::AlreadyExists,
            Error::ReadOnly { .. } => Kind::PermissionDenied,
            Error::Changed { .. } => Kind::PreconditionFailed,
            Error::WouldLose { .. } => Kind::Internal,
            Error::Unwritable { .. } => Kind::WriteFailed,
        };
        Failure::new(kind, format!("{error}\n  hint: {}", error.hint()))
    }
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(Kind::BadArgs, message)
}

/// Where the user's and this project's files are.
fn place(common: &Common) -> Result<Place, Failure> {
    let project =
        llmc_config::workspace_root(&inputs(common)?).map_err(|error| bad(error.to_string()))?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home
        .filter(|home| home.is_absolute())
        .ok_or_else(|| bad("HOME names no folder: there is no place for settings"))?;
    Ok(Place::new(home, project, |name| std::env::var_os(name)))
}

fn file(
    args: &InstallArgs,
    client: Client,
    scope: Scope,
    place: &Place,
) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    client.file(scope, place, &args.name).ok_or_else(|| {
        let title = client.title();
        bad(format!(
            "{title} has no settings in a project; leave --scope out to change the user's"
        ))
    })
}

/// How the client is to start this very program, with the flags given here.
fn entry(
    common: &Common,
    args: &InstallArgs,
    client: Client,
    scope: Scope,
    place: &Place,
) -> Result<Entry, Failure> {
    let command = match &args.command {
        Some(command) => command.clone(),
        None => text(&program()?)?,
    };
    let mut words = vec!["mcp".to_owned()];
    let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    // What was asked for is written down; otherwise what this client needs to find the project.
    match (&common.root, client.starts(scope)) {
        (Some(_), _) | (None, Starts::Anywhere) => flag("root", text(&place.project)?),
        (None, Starts::Variable(variable)) => flag("root", variable.to_owned()),
        (None, Starts::InProject) => {}
    }
    if let Some(config) = &common.config {
        let absolute = std::path::absolute(config).map_err(|error| bad(error.to_string()))?;
        flag("config", text(&absolute)?);
    }
    if let Some(mode) = &common.mode {
        if !llmc_config::Mode::NAMES.contains(&mode.as_str()) {
            let modes = llmc_config::Mode::NAMES.join(", ");
            return Err(bad(format!("--mode {mode}: one of {modes}")));
        }
        flag("mode", mode.clone());
    }
    if let Some(level) = &common.log_level {
        flag("log-level", level.clone());
    }
    for set in &common.sets {
        flag("set", set.clone());
    }
    Entry::new(&args.name, command, words).map_err(|error| bad(error.to_string()))
}

/// This program, under the name by which the shell finds it if there is one: that stays the same when the file behind it
/// is replaced by the next version.
fn program() -> Result<PathBuf, Failure> {
    let unknown = |error: std::io::Error| {
        Failure::new(
            Kind::Internal,
            format!("this program's place is not known: {error}\n  hint: name it with --command"),
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

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        bad(format!(
            "{}: settings hold text, and this path is none",
            path.display()
        ))
    })
}

/// Continue reads servers from one more file, which is not ours to change; the same name in both confuses it.
fn named_elsewhere(client: Client, file: &Path, name: &str) -> Result<(), Failure> {
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
    match taken {
        false => Ok(()),
        true => Err(Failure::new(
            Kind::AlreadyExists,
            format!(
                "{} has an entry `{name}` already\n  hint: nothing was changed; choose another name with --name, or write beside it with --force",
                config.display()
            ),
        )),
    }
}

/// Asks on the terminal.
fn agreed(file: &Path) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(bad(
            "nothing was written: there is no terminal to ask on\n  hint: --yes writes it, --dry-run only shows it",
        ));
    }
    let _ = write!(std::io::stderr(), "write {}? [y/N] ", file.display());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(Kind::Internal, format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What the user should know about the entry.
fn remarks(client: Client, scope: Scope, entry: &Entry) -> String {
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
    if scope == Scope::Project && Path::new(&entry.command).is_absolute() {
        let _ = writeln!(
            out,
            "the file names a program of this machine: keep it out of version control, or use --command llmc"
        );
    }
    out
}

/// Every client, its file, and how things stand there.
fn list(common: &Common, args: &InstallArgs, place: &Place) -> Result<ExitCode, Failure> {
    if args.uninstall || args.print || args.file.is_some() {
        let ids: Vec<&str> = Client::ALL.into_iter().map(Client::id).collect();
        return Err(bad(format!("which client? one of {}", ids.join(", "))));
    }
    let paint = Paint::stdout();
    let mut out = String::new();
    for client in Client::ALL {
        let scope = args.scope.unwrap_or(client.usual_scope());
        let Some(file) = client.file(scope, place, &args.name) else {
            continue;
        };
        let entry = entry(common, args, client, scope, place)?;
        let (state, style) = state(client, scope, &file, &entry);
        let _ = writeln!(
            out,
            "{:<15} {}  {}",
            client.id(),
            paint.styled(&format!("{state:<14}"), style),
            file.display()
        );
    }
    out.push_str(
        "\nllmc install CLIENT shows what it would change and asks; --help tells the rest\n",
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn state(client: Client, scope: Scope, file: &Path, entry: &Entry) -> (&'static str, &'static str) {
    let plan = |change: Change| Plan::new(file, client.format(), scope, &change, Others::Keep);
    let there = plan(Change::Uninstall(entry.clone()));
    let same = plan(Change::Install(entry.clone()));
    match (there, same) {
        (Err(Error::Foreign { .. }), _) => ("name taken", "33"),
        (Err(_), _) | (_, Err(_)) => ("unusable", "31"),
        (Ok(there), _) if there.is_nothing() => ("-", "2"),
        (_, Ok(same)) if same.is_nothing() => ("installed", "32"),
        _ => ("out of date", "33"),
    }
}
