//! `llmc allow`: let the commands of this workspace write, read or reach more.

use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_config::{Allowance, ConfinementMode, ExecProfile, LoadedConfig, TrustStore};
use llmc_exec::is_followed;
use llmc_tools::ErrorKind;

use super::trust::visible;
use super::{Failure, confirm, load, print, require_user};
use crate::cli::{AllowArgs, Common};

/// Folders of the kernel's own.
const KERNEL_DIRS: [&str; 3] = ["/proc", "/sys", "/dev"];

pub(super) fn run(common: &Common, args: &AllowArgs) -> Result<ExitCode, Failure> {
    require_user()?;
    // Here this flag names a host of commands, not the server's address.
    let common = Common {
        host: None,
        ..common.clone()
    };
    let loaded = load(&common)?;
    let store = usable_store(&loaded)?;
    let failed = |error: std::io::Error| Failure::from_error(ErrorKind::WriteFailed, &error);
    let named = named(args)?;
    if named.is_empty() && !args.remove {
        print(&listed(&loaded, store).map_err(failed)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.remove {
        remove(&loaded, store, &named)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut allowed: Vec<Allowance> = Vec::new();
    for one in named {
        match checked(&loaded, store, one)? {
            Checked::New(new) => allowed.extend(new),
            Checked::Writable(path) => {
                print(&format!("commands may write {} already", place(&path)))?;
            }
        }
    }
    let mut known = store.allowances(&loaded.root).map_err(failed)?.0;
    allowed.retain(|one| {
        let is_new = !known.contains(one);
        known.push(one.clone());
        is_new
    });
    if allowed.is_empty() {
        print("nothing new to allow")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = format!("commands of agents in {} would:\n", place(&loaded.root));
    for one in &allowed {
        let _ = writeln!(shown, "  {}", described(one));
        for note in notes(&loaded, one) {
            let _ = writeln!(shown, "    ({note})");
        }
    }
    print(&shown)?;
    if !args.yes && !confirm("allow this?", "--yes allows without a question")? {
        print("nothing was allowed")?;
        return Ok(ExitCode::SUCCESS);
    }
    let recorded = store.change_allowances(&loaded.root, |allowances| {
        allowed.retain(|one| !allowances.0.contains(one));
        allowances.0.append(&mut allowed);
    });
    recorded.map_err(failed)?;
    print("allowed, for commands that start from now on; running servers need no restart")?;
    Ok(ExitCode::SUCCESS)
}

/// The record, if servers use it.
fn usable_store(loaded: &LoadedConfig) -> Result<&TrustStore, Failure> {
    let refused = |why: String| Failure::new(ErrorKind::PermissionDenied, why);
    let store = loaded.trust.store().map_err(|why| {
        refused(format!(
            "there is no place for your record of what is allowed: {why}\n  hint: put it into your own configuration (mcp.exec)"
        ))
    })?;
    let reachable = loaded.reachable_user_files();
    match reachable.iter().any(|file| file == store.path()) {
        true => Err(refused(format!(
            "{} lies where commands may write, so nothing in it allows anything\n  hint: put it into your own configuration (mcp.exec)",
            place(store.path())
        ))),
        false => Ok(store),
    }
}

/// What the flags name, as it was typed.
fn named(args: &AllowArgs) -> Result<Vec<Allowance>, Failure> {
    let absolute = |path: &PathBuf| {
        let absolute = std::path::absolute(path);
        absolute.map_err(|error| bad(format!("{}: {error}", place(path))))
    };
    let mut named = Vec::new();
    for path in &args.write {
        named.push(Allowance::Write(absolute(path)?));
    }
    for path in &args.read {
        named.push(Allowance::Read(absolute(path)?));
    }
    for path in &args.socket {
        named.push(Allowance::Socket(absolute(path)?));
    }
    named.extend(args.host.iter().cloned().map(Allowance::Host));
    named.extend(args.env.iter().cloned().map(Allowance::Env));
    Ok(named)
}

/// What a flag means on this machine now.
enum Checked {
    New(Vec<Allowance>),
    /// In a root, or a repository of one.
    Writable(PathBuf),
}

/// What it means, or why it cannot be allowed.
fn checked(loaded: &LoadedConfig, store: &TrustStore, one: Allowance) -> Result<Checked, Failure> {
    Ok(Checked::New(vec![match one {
        Allowance::Write(path) | Allowance::GitDir(path) => {
            return writable(loaded, store, &path);
        }
        Allowance::Read(path) => {
            let path = existing(&path)?;
            let mut own = own_dirs(loaded, store);
            if own.any(|dir| path.starts_with(dir)) {
                return Err(refused(&path, "LLMC keeps its own secrets there"));
            }
            if path.parent().is_none() {
                return Err(refused(&path, "name the place that is to be read"));
            }
            Allowance::Read(path)
        }
        Allowance::Socket(path) => {
            let path = existing(&path)?;
            let is_socket = path
                .metadata()
                .is_ok_and(|status| status.file_type().is_socket());
            match is_socket {
                true => Allowance::Socket(path),
                false => return Err(bad(format!("{} is no socket", place(&path)))),
            }
        }
        Allowance::Host(host) => match is_host(&host) {
            true => Allowance::Host(host.to_ascii_lowercase()),
            false => {
                let host = visible(&host);
                return Err(bad(format!("{host} is no host: NAME, *.NAME or NAME:PORT")));
            }
        },
        Allowance::Env(name) => match is_variable(&name) {
            true => Allowance::Env(name),
            false => {
                let name = visible(&name);
                return Err(bad(format!(
                    "{name} is not the name of a variable that commands can have"
                )));
            }
        },
    }]))
}

fn writable(loaded: &LoadedConfig, store: &TrustStore, path: &Path) -> Result<Checked, Failure> {
    let path = existing(path)?;
    let status = path
        .metadata()
        .map_err(|error| bad(format!("{}: {error}", place(&path))))?;
    if !status.is_dir() && !status.is_file() {
        return Err(bad(format!(
            "{} is neither a folder nor a file",
            place(&path)
        )));
    }
    if KERNEL_DIRS.iter().any(|dir| path.starts_with(dir)) {
        return Err(refused(&path, "it is the kernel's"));
    }
    let own: Vec<PathBuf> = own_dirs(loaded, store)
        .chain([loaded.state_dir()])
        .collect();
    if own.iter().any(|dir| path.starts_with(dir)) {
        return Err(refused(&path, "LLMC keeps its own files there"));
    }
    if let Some(dir) = own_dirs(loaded, store).find(|dir| dir.starts_with(&path)) {
        let why = format!("it contains {}, where you decide over agents", place(&dir));
        return Err(refused(&path, &why));
    }
    let roots: Vec<PathBuf> = loaded.roots().iter().map(|root| real(root)).collect();
    let found = path.ancestors().find_map(|dir| Some((dir, git_dir(dir)?)));
    match found {
        Some((dir, git_dir)) if dir == path => {
            let is_own = status.uid() == rustix::process::geteuid().as_raw();
            match is_own && is_followed(&git_dir, &roots) {
                // A working tree's private directory is of use only with the one that all share.
                true if git_dir == path => Ok(Checked::New(vec![Allowance::GitDir(git_dir)])),
                true => Ok(Checked::New(vec![
                    Allowance::GitDir(git_dir),
                    Allowance::GitDir(path),
                ])),
                false if !is_own => Err(refused(&path, "it belongs to another user")),
                false => Ok(Checked::Writable(path)),
            }
        }
        Some((_, git_dir)) => Err(refused(
            &path,
            &format!(
                "it lies in a git directory; --write {} allows that one, under guard",
                place(&git_dir)
            ),
        )),
        None => match roots.iter().any(|root| path.starts_with(root)) {
            true => Ok(Checked::Writable(path)),
            false => Ok(Checked::New(vec![Allowance::Write(path)])),
        },
    }
}

/// The git directory that a directory is, or belongs to as a working tree's private one.
fn git_dir(dir: &Path) -> Option<PathBuf> {
    if !dir.join("HEAD").is_file() {
        return None;
    }
    if let Some(common) = super::init::read(&dir.join("commondir")) {
        return dir.join(common.trim_end()).canonicalize().ok();
    }
    let is_one = ["objects", "refs"]
        .iter()
        .all(|name| dir.join(name).is_dir());
    is_one.then(|| dir.to_owned())
}

/// Folders with which the user decides over agents.
fn own_dirs(loaded: &LoadedConfig, store: &TrustStore) -> impl Iterator<Item = PathBuf> {
    let files = [Some(store.path()), loaded.user_file()];
    let dirs = files.into_iter().flatten().filter_map(Path::parent);
    let dirs: Vec<PathBuf> = dirs.map(real).collect();
    dirs.into_iter()
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn existing(path: &Path) -> Result<PathBuf, Failure> {
    let real = path.canonicalize().map_err(|error| {
        let message = format!(
            "{}: {error}\n  hint: make it first, or allow the folder it is to be in",
            place(path)
        );
        Failure::new(ErrorKind::NotFound, message)
    })?;
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(bad(format!("{}: the name is not UTF-8", place(&real)))),
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let name = name.strip_prefix("*.").unwrap_or(name);
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    !name.is_empty()
        && name.chars().all(is_name_char)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with("LLMC_")
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn remove(loaded: &LoadedConfig, store: &TrustStore, named: &[Allowance]) -> Result<(), Failure> {
    if named.is_empty() {
        return Err(bad(
            "name what is to be taken back: `llmc allow` lists it".to_owned()
        ));
    }
    let failed = |error: std::io::Error| Failure::from_error(ErrorKind::WriteFailed, &error);
    let root = &loaded.root;
    let known = store.allowances(root).map_err(failed)?;
    let mut dirs = store.git_dirs(root).map_err(failed)?;
    let had_dirs = dirs.as_ref().map_or(0, Vec::len);
    let mut taken = Vec::new();
    for one in named {
        let found: Vec<&Allowance> = known.0.iter().filter(|known| is_same(known, one)).collect();
        let mut is_known = !found.is_empty();
        taken.extend(found.into_iter().cloned());
        if let (Some(dirs), Allowance::Write(path)) = (&mut dirs, one) {
            let before = dirs.len();
            dirs.retain(|dir| !is_path(dir, path));
            is_known |= dirs.len() < before;
        }
        if !is_known {
            let message = format!("not allowed so far: {}", described(one));
            return Err(Failure::new(ErrorKind::NotFound, message));
        }
    }
    let changed = store.change_allowances(root, |allowances| {
        allowances.0.retain(|one| !taken.contains(one));
    });
    changed.map_err(failed)?;
    if let Some(dirs) = dirs.filter(|dirs| dirs.len() < had_dirs) {
        store.record_git_dirs(root, &dirs).map_err(failed)?;
    }
    print("taken back, for commands that start from now on; those that run keep what they have")
}

/// Whether a recorded allowance is the one that was typed.
fn is_same(known: &Allowance, typed: &Allowance) -> bool {
    match (known, typed) {
        // With a repository go the private directories of its working trees.
        (Allowance::GitDir(known), Allowance::Write(typed)) => {
            is_path(known, typed) || known.starts_with(real(typed).join("worktrees"))
        }
        (Allowance::Write(known), Allowance::Write(typed))
        | (Allowance::Read(known), Allowance::Read(typed))
        | (Allowance::Socket(known), Allowance::Socket(typed)) => is_path(known, typed),
        (Allowance::Host(known), Allowance::Host(typed)) => known.eq_ignore_ascii_case(typed),
        (known, typed) => known == typed,
    }
}

/// A place may be gone, or have been named through a link.
fn is_path(known: &Path, typed: &Path) -> bool {
    known == typed || typed.canonicalize().is_ok_and(|typed| known == typed)
}

fn listed(loaded: &LoadedConfig, store: &TrustStore) -> std::io::Result<String> {
    let allowances = store.allowances(&loaded.root)?.0;
    let dirs = store.git_dirs(&loaded.root)?.unwrap_or_default();
    let mut out = format!("commands of agents in {}:\n", place(&loaded.root));
    for one in &allowances {
        let _ = writeln!(out, "  {}", described(one));
        for note in notes(loaded, one) {
            let _ = writeln!(out, "    ({note})");
        }
    }
    for dir in &dirs {
        let _ = writeln!(
            out,
            "  {}, as your own files named it",
            described(&Allowance::GitDir(dir.clone()))
        );
    }
    if allowances.is_empty() && dirs.is_empty() {
        out.push_str("  nothing is allowed beyond the configuration (`llmc config show`)\n");
    }
    Ok(out)
}

fn described(one: &Allowance) -> String {
    match one {
        Allowance::Write(path) => format!("write {}", place(path)),
        Allowance::GitDir(path) => format!("use the git directory {}, under guard", place(path)),
        Allowance::Read(path) => format!("read {}", place(path)),
        Allowance::Socket(path) => format!("connect to {}", place(path)),
        Allowance::Host(host) => format!("reach {}", visible(host)),
        Allowance::Env(name) => format!("have the variable {}", visible(name)),
    }
}

/// What a person should know about it.
fn notes(loaded: &LoadedConfig, one: &Allowance) -> Vec<String> {
    let exec = &loaded.config.mcp.exec;
    let mut notes = Vec::new();
    let path = match one {
        Allowance::Write(path) | Allowance::Read(path) | Allowance::GitDir(path) => Some(path),
        Allowance::Socket(path) => {
            notes.push(
                "what listens there has rights of its own: a container engine's socket gives those of root".to_owned(),
            );
            Some(path)
        }
        Allowance::Host(_) => {
            notes.push(
                "without effect: the network of commands is not limited to lists yet".to_owned(),
            );
            None
        }
        Allowance::Env(name) => {
            if std::env::var_os(name).is_none() {
                notes
                    .push("not set here; commands get what the server was started with".to_owned());
            }
            None
        }
    };
    if path.is_some_and(|path| !path.canonicalize().is_ok_and(|real| real == *path)) {
        notes.push("not there under this name now, so without effect".to_owned());
    }
    if exec.profile == ExecProfile::Restricted {
        notes.push("without effect in exec profile restricted".to_owned());
    }
    if exec.confinement == ConfinementMode::Off {
        notes.push(
            "without effect: mcp.exec.confinement is off, and commands have all your rights"
                .to_owned(),
        );
    }
    notes
}

fn place(path: &Path) -> String {
    visible(&path.display().to_string())
}

fn bad(message: String) -> Failure {
    Failure::new(ErrorKind::BadArgs, message)
}

fn refused(path: &Path, why: &str) -> Failure {
    let message = format!("{} cannot be allowed: {why}", place(path));
    Failure::new(ErrorKind::PermissionDenied, message)
}
