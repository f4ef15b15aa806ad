//! What the operator decided about commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::memory::machine_memory_bytes;
use super::search_path::SYSTEM_SEARCH_PATH;
use llmc_host::Roots;

/// Where the system's programs and libraries are. They stay read-only for commands when a write root lies above them, as
/// `/` does: else no program there could be trusted. A root that is one of them, or lies inside, is the operator's decision.
const SYSTEM: [&str; 8] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot",
];

/// Where systems that keep no programs in `/usr` have them.
const SYSTEM_STORES: [&str; 2] = ["/nix/store", "/gnu/store"];

/// How far a list of allowed names is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Whatever the operator listed, interpreters included: the list is no boundary.
    #[default]
    Unrestricted,
    /// Reading programs with checked arguments, and only under full confinement.
    Restricted,
}

/// How much kernel confinement a run must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confinement {
    /// All that works here.
    #[default]
    Auto,
    /// All there is, or nothing runs.
    Full,
    /// None, by the operator's decision.
    Off,
}

/// Whether a run may start processes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Children {
    /// As many as its limits allow.
    #[default]
    Allowed,
    /// None, threads aside. The system call filter refuses them, so this needs `seccomp`.
    Refused,
}

/// What commands see of the user's home directory, where tool chains keep their caches (`mcp.exec.caches`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// The user's files; what a command writes there goes into a private layer. Needs mounts; else as `Off`.
    #[default]
    Private,
    /// The user's cache folders themselves, writable.
    Shared,
    /// The user's files, read-only.
    Off,
}

/// Bounds on what one run may use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all its processes together, private and shared: by a cgroup or the helper's own count. Addresses that are only
    /// reserved do not count, as sanitizers and virtual machines reserve terabytes.
    pub memory_bytes: Option<u64>,
    /// Private memory of each process (`RLIMIT_DATA`), so that an interpreter gets an error and is not ended. Not for commands.
    pub data_bytes: Option<u64>,
    /// Processes and threads per run. For root, whom the kernel exempts, by a cgroup or the helper's own count.
    pub processes: u64,
    /// Size of one file a run may write.
    pub file_bytes: Option<u64>,
    /// Open descriptors per process.
    pub open_files: u64,
    /// Size of the private `/tmp`, and of `/dev/shm`.
    pub tmp_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let machine = machine_memory_bytes();
        Limits {
            memory_bytes: machine.map(|bytes| bytes / 4 * 3),
            data_bytes: None,
            processes: 2048,
            file_bytes: None,
            open_files: 4096,
            tmp_bytes: machine.map_or(512 << 20, |bytes| bytes / 4),
        }
    }
}

/// Everything a [`Runner`](super::Runner) needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How far the list of names is trusted.
    pub profile: Profile,
    /// How much confinement a run must have.
    pub confinement: Confinement,
    /// Names of allowed programs; `*` allows every program (not in the restricted profile).
    pub allowlist: Vec<String>,
    /// The operator's rules on arguments (`mcp.exec.policy_file`).
    pub policy_file: Option<PathBuf>,
    /// Where paths in checked arguments may lead; without it, the write and read roots.
    pub roots: Option<Arc<Roots>>,
    /// Directories that names are looked up in; also the children's `PATH`.
    pub search_path: Vec<PathBuf>,
    /// Names of variables that commands inherit although they look like secrets (`mcp.exec.env`).
    pub env: Vec<String>,
    /// The user's home directory ([`user_home`](super::user_home)); without it commands see it like any other folder.
    pub home: Option<PathBuf>,
    /// How commands may write below `home`.
    pub caches: CacheMode,
    /// How large a private layer may grow before the next server begins it anew (`mcp.exec.cache_max_bytes`).
    pub cache_max_bytes: u64,
    /// Places that commands cannot see (`mcp.exec.hidden`): absolute, or `~/` for the home directory. Needs mounts.
    pub hidden: Vec<String>,
    /// Folders that commands see empty and cannot write: the user's own decisions over agents. Needs mounts.
    pub masked: Vec<PathBuf>,
    /// Whether commands may use `AF_UNIX` sockets where the host's are out of reach.
    pub local_sockets: bool,
    /// Directories that commands may write.
    pub write_roots: Vec<PathBuf>,
    /// Directories that commands may only read but must see even below the private `/tmp`.
    pub read_roots: Vec<PathBuf>,
    /// Directories below the write roots whose protected names are looked after wherever they are: the workspace.
    pub homes: Vec<PathBuf>,
    /// Further writable folders and files (`mcp.exec.extra_write`). Repositories in them are protected as in the write roots.
    pub extra_write: Vec<PathBuf>,
    /// Places that commands see although they are hidden or covered (`mcp.exec.extra_read`). They need not exist.
    pub extra_read: Vec<PathBuf>,
    /// Sockets of the host that commands see (`mcp.exec.sockets`). They need not exist.
    pub sockets: Vec<PathBuf>,
    /// The user's cache folders where commands share them, found at start; what they hold is not protected.
    pub shared_caches: Vec<PathBuf>,
    /// Git directories outside the write roots that commands may use: those that the user's own files name.
    pub git_dirs: Vec<PathBuf>,
    /// Files of the server (configuration, audit, policy) that no command changes.
    pub protected: Vec<PathBuf>,
    /// The state directory, hidden from commands; what they plant is moved there. Must exist before commands run.
    pub state_dir: Option<PathBuf>,
    /// All that runs may read beside their own `/tmp`, `/dev` and `/proc`. Without it: the whole file system, or in the
    /// restricted profile the roots and the system's programs and libraries. Needs `landlock`.
    pub sees: Option<Vec<PathBuf>>,
    /// Whether runs have namespaces where the kernel gives them.
    pub namespaces: bool,
    /// Whether runs may start processes.
    pub children: Children,
    /// Whether commands may use the network.
    pub network: bool,
    /// The executable that becomes the helper.
    pub helper: PathBuf,
    /// Bounds on one run.
    pub limits: Limits,
}

impl Settings {
    /// Whether something is demanded that a kernel may not give, so that a server must ask before it serves.
    pub fn demands_proof(&self) -> bool {
        self.profile == Profile::Restricted
            || self.confinement == Confinement::Full
            || self.policy_file.is_some()
            || !self.network
    }

    /// Where commands can write.
    pub(super) fn writable(&self) -> impl Iterator<Item = &PathBuf> {
        let places = self.write_roots.iter().chain(&self.extra_write);
        places.chain(&self.shared_caches)
    }

    /// What commands of the restricted profile may read: the roots, and the system's programs and libraries.
    pub(super) fn readable_places(&self) -> impl Iterator<Item = PathBuf> {
        let system = SYSTEM.iter().chain(&SYSTEM_STORES).map(PathBuf::from);
        let read = self.read_roots.iter().chain(&self.extra_read);
        let roots = self.writable().chain(read).cloned();
        roots.chain(system)
    }

    /// System directories inside writable places, which commands may read only. Links among them lead to others.
    pub(super) fn read_only_system_dirs(&self) -> Vec<PathBuf> {
        let below = |dir: &Path| {
            self.writable()
                .any(|root| dir != root && dir.starts_with(root))
        };
        let named = |dir: &Path| self.writable().any(|root| root.starts_with(dir));
        let dirs = SYSTEM.iter().map(Path::new);
        let dirs = dirs.filter(|dir| {
            let is_dir = dir.symlink_metadata().is_ok_and(|status| status.is_dir());
            is_dir && below(dir) && !named(dir)
        });
        dirs.map(Path::to_owned).collect()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            profile: Profile::default(),
            confinement: Confinement::default(),
            allowlist: Vec::new(),
            policy_file: None,
            roots: None,
            search_path: SYSTEM_SEARCH_PATH.iter().map(PathBuf::from).collect(),
            env: Vec::new(),
            home: None,
            caches: CacheMode::default(),
            cache_max_bytes: 10 << 30,
            hidden: Vec::new(),
            masked: Vec::new(),
            local_sockets: false,
            write_roots: Vec::new(),
            read_roots: Vec::new(),
            homes: Vec::new(),
            extra_write: Vec::new(),
            extra_read: Vec::new(),
            sockets: Vec::new(),
            shared_caches: Vec::new(),
            git_dirs: Vec::new(),
            protected: Vec::new(),
            state_dir: None,
            sees: None,
            namespaces: true,
            children: Children::default(),
            network: false,
            helper: PathBuf::from("/proc/self/exe"),
            limits: Limits::default(),
        }
    }
}
