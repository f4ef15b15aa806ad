//! Which Python runs scripts, and the boundary around it.
//!
//! The interpreter of the workspace's own `.venv` or `venv` comes first, then the system's, then the first on the search
//! path. A virtual environment comes with the repository, so nothing in it is believed: its interpreter must be a link to
//! a Python outside the roots, it is started without the environment's start files (`-S`; a `.pth` file can run code), and
//! one that does not start is passed over with a reason.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::boot::Boot;
use llmc_exec::{
    CacheMode, Children, Confinement, Limits as ExecLimits, ProbeResult, Profile, Program, Runner,
    Settings, places_around, run_probes,
};
use llmc_host::{OpenDir, PathRules, Roots};
use rustix::fs::OFlags;
use serde_json::{Value, json};

/// Memory of an idle interpreter.
const INTERPRETER_BYTES: u64 = 64 << 20;
/// The size of the private `/tmp`, where files are that a script has open for writing.
const MAX_TMP_BYTES: u64 = 192 << 20;
/// The largest file that a script writes.
const MAX_FILE_BYTES: u64 = 128 << 20;
/// What every interpreter may read beside the workspace: programs, libraries, and files that the standard library opens
/// because they are there.
const READABLE: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/mime.types",
    "/etc/httpd",
    "/etc/apache2/mime.types",
    "/etc/os-release",
];
/// Folders of which a run with mounts has its own, and in which it reads everything.
const OWN_FOLDERS: [&str; 3] = ["/tmp", "/dev", "/proc"];
/// Where a workspace keeps its virtual environment.
const VENV_DIRS: [&str; 2] = [".venv", "venv"];
/// A longer `pyvenv.cfg` is none.
const MAX_VENV_CONFIG_BYTES: u64 = 16 << 10;

/// A Python inside its boundary.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) runner: Runner,
    pub(super) program: Program,
    /// The program that it runs first.
    pub(super) boot: OnceLock<Boot>,
    /// What `boot.py` finds on its command line.
    pub(super) argument: String,
    pub(super) venv: Option<PathBuf>,
    roots: Arc<Roots>,
}

/// An interpreter to be tried.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The executable itself, free of links.
    path: PathBuf,
    venv: Option<Venv>,
}

#[derive(Debug, Clone)]
struct Venv {
    dir: PathBuf,
    system_packages: bool,
}

/// What a Python process may do in the workspace by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceAccess {
    /// It reads what the roots hold, but for what mounts cover. Needs namespaces.
    Reads,
    /// Nothing: the server reads for it. Needs Landlock and a filter of system calls only.
    ThroughServer,
}

/// The first rules of Landlock that cover every way to change a file's content.
const MIN_LANDLOCK_ABI: u32 = 3;

/// The workspace as the interpreter sees it.
#[derive(Debug)]
pub(super) struct Visible {
    settings: Settings,
    access: WorkspaceAccess,
    dirs: Vec<PathBuf>,
    roots: Arc<Roots>,
}

impl Visible {
    /// Of the settings of commands only the places are used: what they allow commands is not allowed here.
    pub(super) fn new(
        settings: &Settings,
        access: WorkspaceAccess,
        memory_bytes: u64,
    ) -> llmc_exec::Result<Visible> {
        let named = settings.write_roots.iter().chain(&settings.read_roots);
        let mut dirs: Vec<PathBuf> = named
            .filter_map(|dir| std::fs::canonicalize(dir).ok())
            .collect();
        dirs.sort();
        dirs.dedup();
        let roots = match (&settings.roots, dirs.first()) {
            (Some(roots), Some(_)) => roots.clone(),
            (None, Some(first)) => {
                let rules = Arc::new(PathRules::default());
                Arc::new(Roots::open(first, &dirs, rules)?)
            }
            // The one directory that every view of the file system has.
            (_, None) => {
                let root = PathBuf::from("/");
                Arc::new(Roots::open(
                    &root,
                    std::slice::from_ref(&root),
                    Arc::default(),
                )?)
            }
        };
        let settings = Settings {
            profile: Profile::Unrestricted,
            confinement: match access {
                WorkspaceAccess::Reads => Confinement::Full,
                WorkspaceAccess::ThroughServer => Confinement::Auto,
            },
            // A rule on the run's own folders would hold for a root that is mounted below them.
            namespaces: access == WorkspaceAccess::Reads
                || !dirs
                    .iter()
                    .any(|dir| OWN_FOLDERS.iter().any(|own| dir.starts_with(own))),
            children: Children::Refused,
            network: false,
            limits: ExecLimits {
                memory_bytes: Some(memory_bytes.saturating_add(INTERPRETER_BYTES)),
                data_bytes: Some(memory_bytes.saturating_add(INTERPRETER_BYTES)),
                processes: 64,
                file_bytes: Some(MAX_FILE_BYTES),
                open_files: 256,
                tmp_bytes: MAX_TMP_BYTES,
            },
            read_roots: dirs.clone(),
            home: settings.home.clone(),
            caches: CacheMode::Off,
            hidden: settings.hidden.clone(),
            state_dir: settings.state_dir.clone(),
            helper: settings.helper.clone(),
            search_path: settings.search_path.clone(),
            ..Settings::default()
        };
        Ok(Visible {
            settings,
            access,
            dirs,
            roots,
        })
    }

    /// Interpreters in the order in which they are tried, why a virtual environment is not among them, and why a `python3` on
    /// the search path is not.
    pub(super) fn candidates(&self) -> Candidates {
        let mut found = Candidates::default();
        let workspace = self.roots.workspace();
        let is_visible = |dir: &Path| self.dirs.iter().any(|root| dir.starts_with(root));
        for name in VENV_DIRS {
            let dir = workspace.join(name);
            if !is_visible(&dir) || std::fs::symlink_metadata(&dir).is_err() {
                continue;
            }
            match self.venv(&dir) {
                Ok(candidate) => found.list.push(candidate),
                Err(why) => found.skipped_venv = Some(format!("{name} is not used: {why}")),
            }
            break;
        }
        for dir in search_dirs(&self.settings.search_path).filter(|dir| !is_visible(dir)) {
            match machine_python(&dir) {
                Some(Ok(path)) if !is_visible(&path) => {
                    let is_known = |known: &Candidate| known.venv.is_none() && known.path == path;
                    if !found.list.iter().any(is_known) {
                        found.list.push(Candidate { path, venv: None });
                    }
                }
                Some(Err(why)) => {
                    found.skipped.get_or_insert(why);
                }
                _ => {}
            }
        }
        found
    }

    /// Readable places without the roots that lie in them, such as `/usr/src/app`, and what is hidden there. A root around them,
    /// such as `/`, leaves the system's programs and libraries readable.
    fn without_roots(&self, places: &[PathBuf]) -> Vec<PathBuf> {
        let hidden = self.settings.hidden.iter().map(PathBuf::from);
        let left_out = self
            .dirs
            .iter()
            .cloned()
            .chain(self.settings.state_dir.clone());
        let left_out = left_out.chain(hidden.filter(|place| place.is_absolute()));
        let inside = |dir: &PathBuf| !places.iter().any(|place| place.starts_with(dir));
        places_around(places, &left_out.filter(inside).collect::<Vec<_>>())
    }

    fn venv(&self, dir: &Path) -> Result<Candidate, String> {
        let real = std::fs::canonicalize(dir).map_err(|error| error.to_string())?;
        if !self.dirs.iter().any(|root| real.starts_with(root)) {
            return Err("it leads out of the workspace".to_owned());
        }
        let config = read_small(&real.join("pyvenv.cfg"))
            .ok_or("it has no pyvenv.cfg, so it is no virtual environment")?;
        let link = ["bin/python3", "bin/python"].map(|name| real.join(name));
        let path = link
            .iter()
            .find_map(|link| std::fs::canonicalize(link).ok());
        let path = path.ok_or("its interpreter does not exist on this machine")?;
        if self.dirs.iter().any(|root| path.starts_with(root)) {
            return Err(
                "its interpreter lies in the workspace, where commands can change it".to_owned(),
            );
        }
        if !is_executable(&path) || libraries(&path).is_empty() {
            return Err(format!("{} is no Python installation", path.display()));
        }
        let system_packages = config.lines().any(|line| {
            let mut words = line.split('=').map(str::trim);
            words.next() == Some("include-system-site-packages")
                && words
                    .next()
                    .is_some_and(|value| value.eq_ignore_ascii_case("true"))
        });
        Ok(Candidate {
            path,
            venv: Some(Venv {
                dir: real,
                system_packages,
            }),
        })
    }

    /// Puts the boundary around an interpreter.
    pub(super) fn confine(&self, candidate: &Candidate) -> llmc_exec::Result<Interpreter> {
        let readable: Vec<PathBuf> = READABLE
            .iter()
            .map(PathBuf::from)
            .filter(|place| place.exists())
            .collect();
        let mut sees = readable.clone();
        let is_readable = |path: &Path| readable.iter().any(|dir| path.starts_with(dir));
        let own = libraries(&candidate.path)
            .into_iter()
            .chain([candidate.path.clone()]);
        sees.extend(own.filter(|path| !is_readable(path)));
        match self.access {
            WorkspaceAccess::Reads => sees.extend(self.dirs.iter().cloned()),
            WorkspaceAccess::ThroughServer => sees = self.without_roots(&sees),
        }
        let runner = Runner::open(Settings {
            sees: Some(sees),
            ..self.settings.clone()
        })?;
        let level = runner.level();
        let has_rules = level.landlock.is_some_and(|abi| abi >= MIN_LANDLOCK_ABI);
        for (holds, missing) in [(has_rules, "landlock"), (level.seccomp, "seccomp")] {
            if !holds {
                return Err(isolation_required(format!(
                    "this kernel or container does not give {missing}"
                )));
            }
        }
        let program = runner.find_trusted(&candidate.path)?;
        let venv = candidate.venv.as_ref();
        let argument = json!({
            "workspace": self.dirs.first().map(|_| text(self.roots.workspace())),
            "roots": self.dirs.iter().map(|dir| text(dir)).collect::<Vec<_>>(),
            "venv": venv.map(|venv| text(&venv.dir)),
            "system_packages": venv.is_none_or(|venv| venv.system_packages),
            "reads": self.access == WorkspaceAccess::Reads,
        });
        Ok(Interpreter {
            runner,
            program,
            boot: OnceLock::new(),
            argument: argument.to_string(),
            venv: venv.map(|venv| venv.dir.clone()),
            roots: self.roots.clone(),
        })
    }
}

/// Where `python3` is looked for.
fn search_dirs(search_path: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let system = SYSTEM_DIRS.iter().map(PathBuf::from);
    system.chain(search_path.iter().cloned())
}

/// The `python3` of a folder, free of links; why it is none, if there is such a name. Nothing is started.
fn machine_python(dir: &Path) -> Option<Result<PathBuf, String>> {
    let named = dir.join("python3");
    std::fs::symlink_metadata(&named).ok()?;
    let found = match std::fs::canonicalize(&named) {
        Err(_) => Err("it is a link to a file that does not exist"),
        Ok(path) if !is_executable(&path) => Err("it is no program"),
        Ok(path) => match first_bytes(&path) {
            Some(bytes) if bytes == *ELF => Ok(path),
            Some(bytes) if bytes.starts_with(b"#!") => {
                Err("it is a script, such as the shims of pyenv, and no interpreter")
            }
            _ => Err("it is no program"),
        },
    };
    Some(found.map_err(|why| format!("{}: {why}", named.display())))
}

/// How an executable begins.
const ELF: &[u8; 4] = b"\x7fELF";

fn first_bytes(path: &Path) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    #[expect(clippy::disallowed_methods, reason = "a program of the machine")]
    let mut file = std::fs::File::open(path).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether a `python3` that can be confined seems to be here: an interpreter on the search path, or the one of a workspace's
/// virtual environment, and a kernel with the rules. Nothing is started, so that the first script may still find otherwise.
///
/// # Errors
/// What is missing, and what brings it.
pub fn look_for_python(workspace: &Path, search_path: &[PathBuf]) -> Result<(), String> {
    if !llmc_exec::confines_without_namespaces() {
        return Err(
            "this kernel has no Landlock rules (Linux 6.2) or no seccomp filter; llmc doctor shows what it offers"
                .to_owned(),
        );
    }
    let mut why = None;
    for dir in search_dirs(search_path) {
        match machine_python(&dir) {
            Some(Ok(path)) if is_old(&path) => {
                why.get_or_insert(format!("{} is older than Python 3.8", path.display()));
            }
            Some(Ok(_)) => return Ok(()),
            Some(Err(reason)) => {
                why.get_or_insert(reason);
            }
            None => {}
        }
    }
    let links = VENV_DIRS
        .iter()
        .map(|name| workspace.join(name).join("bin/python3"));
    let has_venv = links
        .filter_map(|link| std::fs::canonicalize(link).ok())
        .any(|path| {
            is_executable(&path) && !libraries(&path).is_empty() && !path.starts_with(workspace)
        });
    match has_venv {
        true => Ok(()),
        false => {
            let why = why.unwrap_or_else(|| "there is no python3".to_owned());
            Err(format!("{why}; {}", super::PYTHON_PACKAGE))
        }
    }
}

/// Whether the name of an interpreter, such as `python3.7`, says that it is too old.
fn is_old(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(OsStr::to_string_lossy)
        .unwrap_or_default();
    let minor = name
        .strip_prefix("python3.")
        .and_then(|minor| minor.parse::<u32>().ok());
    minor.is_some_and(|minor| minor < super::MIN_VERSION.1)
}

/// Interpreters to be tried.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) list: Vec<Candidate>,
    /// Why the workspace's own is not among them.
    pub(super) skipped_venv: Option<String>,
    /// Why the first `python3` on the search path is not.
    pub(super) skipped: Option<String>,
}

/// Where the system's Python is looked for.
const SYSTEM_DIRS: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];

impl Candidate {
    pub(super) fn describe(&self) -> String {
        match &self.venv {
            Some(venv) => format!("{} of {}", self.path.display(), venv.dir.display()),
            None => self.path.display().to_string(),
        }
    }

    pub(super) fn is_venv(&self) -> bool {
        self.venv.is_some()
    }
}

impl Interpreter {
    /// Where scripts start: the workspace, else the first root.
    pub(super) fn cwd(&self) -> llmc_host::Result<OpenDir> {
        let first = self.roots.paths().next().map(text_of);
        let opened = self.roots.open_dir(".");
        opened.or_else(|error| first.map_or(Err(error), |path| self.roots.open_dir(&path)))
    }

    /// Runs every escape probe.
    pub(super) fn check_boundary(&self) -> llmc_exec::Result<()> {
        let tried = run_probes(&self.runner, &self.cwd()?);
        for probe in &tried {
            match &probe.result {
                ProbeResult::Held(_) => {}
                ProbeResult::Escaped => {
                    let what = format!("a live probe got out of the boundary: {}", probe.what);
                    return Err(isolation_required(what));
                }
                ProbeResult::Open(why) => {
                    let what = format!("a live probe could {}: {why}", probe.what);
                    return Err(isolation_required(what));
                }
                ProbeResult::Untried(why) => {
                    tracing::debug!(what = probe.what, why = %why, "not tried");
                }
            }
        }
        // A probe that could not run proves nothing; at least one must have.
        let any_held = tried
            .iter()
            .any(|probe| matches!(probe.result, ProbeResult::Held(_)));
        match any_held {
            true => Ok(()),
            false => Err(isolation_required("no live probe could be made".to_owned())),
        }
    }
}

fn isolation_required(missing: String) -> llmc_exec::Error {
    llmc_exec::Error::IsolationRequired {
        missing,
        hint: "llmc doctor shows what this kernel offers; scripts need Landlock (Linux 6.2) and seccomp"
            .to_owned(),
    }
}

/// The library folders of an interpreter; none if it has no standard library next to it.
///
/// Not the whole prefix: for an interpreter in `~/bin` that would be the home directory.
fn libraries(interpreter: &Path) -> Vec<PathBuf> {
    let named = interpreter
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let prefix = interpreter.parent().and_then(Path::parent);
    let Some(prefix) = prefix.filter(|_| named) else {
        return Vec::new();
    };
    let folders = ["lib", "lib64"].map(|name| prefix.join(name));
    let holds_library = |folder: &PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .any(|entry| entry.path().join("os.py").is_file())
    };
    match folders.iter().any(holds_library) {
        true => folders.into_iter().filter(|dir| dir.is_dir()).collect(),
        false => Vec::new(),
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
}

/// The text of a small regular file; a pipe in its place is not opened.
fn read_small(path: &Path) -> Option<String> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32)
        .open(path)
        .ok()?;
    let status = file.metadata().ok()?;
    if !status.is_file() || status.len() > MAX_VENV_CONFIG_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_VENV_CONFIG_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

fn text(path: &Path) -> Value {
    text_of(path).into()
}

fn text_of(path: impl AsRef<OsStr>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}
