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
    Settings, run_probes,
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

/// The workspace as the interpreter sees it: read-only.
#[derive(Debug)]
pub(super) struct Visible {
    settings: Settings,
    dirs: Vec<PathBuf>,
    roots: Arc<Roots>,
}

impl Visible {
    /// Of the settings of commands only the places are used: what they allow commands is not allowed here.
    pub(super) fn new(settings: &Settings, memory_bytes: u64) -> llmc_exec::Result<Visible> {
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
            confinement: Confinement::Full,
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
            dirs,
            roots,
        })
    }

    /// Interpreters in the order in which they are tried, and why a virtual environment is not among them.
    pub(super) fn candidates(&self) -> (Vec<Candidate>, Option<String>) {
        let (mut found, mut skipped) = (Vec::new(), None);
        let workspace = self.roots.workspace();
        let is_visible = |dir: &Path| self.dirs.iter().any(|root| dir.starts_with(root));
        for name in VENV_DIRS {
            let dir = workspace.join(name);
            if !is_visible(&dir) || std::fs::symlink_metadata(&dir).is_err() {
                continue;
            }
            match self.venv(&dir) {
                Ok(candidate) => found.push(candidate),
                Err(why) => skipped = Some(format!("{name} is not used: {why}")),
            }
            break;
        }
        let system = SYSTEM_DIRS.iter().map(PathBuf::from);
        let named = self.settings.search_path.iter().cloned();
        for dir in system.chain(named).filter(|dir| !is_visible(dir)) {
            let Ok(path) = std::fs::canonicalize(dir.join("python3")) else {
                continue;
            };
            let is_known = found
                .iter()
                .any(|known: &Candidate| known.venv.is_none() && known.path == path);
            if is_executable(&path) && !is_visible(&path) && !is_known {
                found.push(Candidate { path, venv: None });
            }
        }
        (found, skipped)
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
        sees.extend(self.dirs.iter().cloned());
        let runner = Runner::open(Settings {
            sees: Some(sees),
            ..self.settings.clone()
        })?;
        let program = runner.find_trusted(&candidate.path)?;
        let venv = candidate.venv.as_ref();
        let argument = json!({
            "workspace": self.dirs.first().map(|_| text(self.roots.workspace())),
            "roots": self.dirs.iter().map(|dir| text(dir)).collect::<Vec<_>>(),
            "venv": venv.map(|venv| text(&venv.dir)),
            "system_packages": venv.is_none_or(|venv| venv.system_packages),
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
        let required = |missing: String| {
            llmc_exec::Error::IsolationRequired {
            missing,
            hint: "llmc doctor shows what this kernel offers; mcp.code_execution.sandbox = \"embedded\" needs none of it"
                .to_owned(),
        }
        };
        for probe in &tried {
            match &probe.result {
                ProbeResult::Held(_) => {}
                ProbeResult::Escaped => {
                    let what = format!("a live probe got out of the boundary: {}", probe.what);
                    return Err(required(what));
                }
                ProbeResult::Open(why) => {
                    let what = format!("a live probe could {}: {why}", probe.what);
                    return Err(required(what));
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
            false => Err(required("no live probe could be made".to_owned())),
        }
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
