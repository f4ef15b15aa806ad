//! What runs commands: settings read from the configuration, a runner that is opened when first needed, and what the user
//! allows it while the server runs.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use llmc_config::{
    Allowance, CachePolicy, ExecProfile, LoadedConfig, StoreStamp, TrustStore, UpstreamLaunch,
};
use llmc_exec::{
    CacheMode, Confinement, HIDDEN_PLACES, Limits, Profile, RunAllowances, Runner,
    SYSTEM_SEARCH_PATH, Settings, followed_git_dirs, is_followed, tool_search_path, user_home,
};

use llmc_host::lock;

use crate::app::App;
use crate::cx::Caller;
use crate::error::Result;
use crate::state;

/// In the state directory, once the git directories outside the roots were looked for.
const LOOKED_AT_FILE: &str = "git-directories-looked-at";

/// The runner of a server, once it is opened.
#[derive(Debug, Default)]
pub(crate) struct CommandKeeper {
    runner: OnceLock<Result<Runner>>,
    /// The record of what the user allows, as it was when it was last read.
    record: Mutex<Option<StoreStamp>>,
    /// Whether only the user can write it.
    has_own_record: OnceLock<bool>,
    /// What `health` says about it.
    pub(crate) confinement: OnceLock<String>,
}

impl App {
    /// What runs commands, opened when first needed: finding out what the kernel gives takes a few milliseconds. Where
    /// the operator demands something of it, it is opened at start.
    ///
    /// # Errors
    /// The configuration demands more confinement than this kernel gives.
    pub fn commands(&self) -> Result<&Runner> {
        self.open_commands(|_| ())
    }

    /// The same; applies `first` to a runner that this call opens.
    pub(crate) fn open_commands(&self, first: fn(&mut Runner)) -> Result<&Runner> {
        let opened = self.command_keeper().runner.get_or_init(|| {
            let mut runner = Runner::open(self.command_settings())?;
            first(&mut runner);
            Ok(runner)
        });
        let runner = opened.as_ref().map_err(Clone::clone)?;
        self.read_allowances(runner);
        Ok(runner)
    }

    /// Reads what the user allows (`llmc allow`) if that has changed: one status call if not.
    fn read_allowances(&self, runner: &Runner) {
        let Some(store) = self.allowance_store() else {
            return;
        };
        let mut record = lock(&self.command_keeper().record);
        // Before the record is read: a change meanwhile is seen by the next call.
        let stamp = store.stamp();
        if *record != Some(stamp) {
            *record = Some(stamp);
            runner.set_allowances(self.run_allowances(store));
        }
    }

    /// The user's record, if only the user can write it: one that commands could write allows nothing. Profile `restricted`
    /// allows nothing beyond the configuration.
    fn allowance_store(&self) -> Option<&TrustStore> {
        if self.config().mcp.exec.profile == ExecProfile::Restricted {
            return None;
        }
        let store = self.loaded().trust.store().ok()?;
        let is_own = self.command_keeper().has_own_record.get_or_init(|| {
            let reachable = self.loaded().reachable_user_files();
            !reachable.iter().any(|file| file == store.path())
        });
        is_own.then_some(store)
    }

    /// Where the user allows commands to write.
    pub(crate) fn allowed_writes(&self) -> Vec<PathBuf> {
        match self.allowance_store() {
            Some(store) => self.run_allowances(store).write,
            None => Vec::new(),
        }
    }

    fn run_allowances(&self, store: &TrustStore) -> RunAllowances {
        let loaded = self.loaded();
        let (roots, _) = self.command_roots();
        let mut allowed = RunAllowances {
            git_dirs: self.followed_git_dirs(&roots),
            ..RunAllowances::default()
        };
        let recorded = match store.allowances(&loaded.root) {
            Ok(recorded) => recorded.0,
            Err(error) => {
                tracing::warn!(%error, "what the user allows commands cannot be read, so they are allowed nothing more");
                Vec::new()
            }
        };
        for one in recorded {
            match one {
                Allowance::Write(path) => allowed.write.push(path),
                Allowance::Read(path) => allowed.read.push(path),
                Allowance::Socket(path) => allowed.sockets.push(path),
                Allowance::Env(name) => allowed.env.push(name),
                Allowance::GitDir(dir) if is_followed(&dir, &roots) => allowed.git_dirs.push(dir),
                // Another user's, or gone; and there are no lists of hosts yet that a network could be held to.
                Allowance::GitDir(_) | Allowance::Host(_) => {}
            }
        }
        allowed.git_dirs.sort();
        allowed.git_dirs.dedup();
        allowed
    }

    /// `/tmp` of a caller's commands, once one has run.
    pub(crate) fn session_tmp(&self, caller: &Caller) -> Option<OwnedFd> {
        let runner = self.command_keeper().runner.get()?.as_ref().ok()?;
        let owner = caller.run_owner();
        runner.sessions().tmp(owner.principal, owner.session)
    }

    /// Ends a caller's session: its commands, and what they have left running.
    pub fn end_command_session(&self, principal: &str, session: &str) {
        if let Some(Ok(runner)) = self.command_keeper().runner.get() {
            runner.sessions().end(principal, session);
        }
    }

    /// Where this server's own secrets are, which commands do not see whatever the operator's list says: its key, the
    /// user's configuration with its backups (variables of upstreams), the record of trust, and the tokens for upstreams.
    fn own_secrets(&self) -> Vec<String> {
        let (loaded, mcp) = (self.loaded(), &self.config().mcp);
        let mut secrets: Vec<PathBuf> = Vec::new();
        secrets.extend(mcp.server.tls_key.iter().map(|key| loaded.resolve(key)));
        secrets.extend(self.own_folders());
        let named = loaded.file.as_deref().map(|file| loaded.root.join(file));
        secrets.extend(named.filter(|file| !file.starts_with(&loaded.root)));
        let tokens = mcp
            .upstream
            .iter()
            .filter_map(|upstream| match &upstream.launch {
                UpstreamLaunch::Http(http) => http.token_file.as_deref(),
                UpstreamLaunch::Command(_) => None,
            });
        secrets.extend(tokens.map(|token| loaded.resolve(token)));
        let places = secrets.iter().map(|secret| secret.display().to_string());
        places.collect()
    }

    /// Where the user decides over agents: their configuration and the record of trust.
    fn own_folders(&self) -> Vec<PathBuf> {
        let loaded = self.loaded();
        let record = loaded.trust.store().ok().map(TrustStore::path);
        let files = loaded.user_file().into_iter().chain(record);
        let folders = files.filter_map(Path::parent);
        folders.map(Path::to_owned).collect()
    }

    /// The git directories outside the roots that commands may use: those that the user's files named when a server was first
    /// started here. What commands add to such files later gives them no rights.
    fn followed_git_dirs(&self, roots: &[PathBuf]) -> Vec<PathBuf> {
        let loaded = self.loaded();
        let (Ok(store), Some(state)) = (loaded.trust.store(), self.stores()) else {
            return Vec::new();
        };
        // A mark in the state directory can only say that there are none; rights are recorded outside the workspace.
        let looked_at = state.join(LOOKED_AT_FILE);
        let mut dirs = match store.git_dirs(&loaded.root) {
            Ok(Some(recorded)) => recorded,
            Ok(None) if !looked_at.exists() => {
                let found = followed_git_dirs(roots);
                let is_kept =
                    found.is_empty() || store.record_git_dirs(&loaded.root, &found).is_ok();
                let is_marked = std::fs::File::create_new(looked_at).is_ok();
                if is_kept && is_marked {
                    found
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        };
        dirs.retain(|dir| is_followed(dir, roots));
        dirs
    }

    /// The roots that commands may write, and those that they may only read.
    fn command_roots(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let roots = self.loaded().roots();
        match self.config().mcp.tools.read_only {
            true => (Vec::new(), roots),
            false => (roots, Vec::new()),
        }
    }

    /// What the configuration says about commands.
    pub fn command_settings(&self) -> Settings {
        let (loaded, mcp) = (self.loaded(), &self.config().mcp);
        let (write_roots, read_roots) = self.command_roots();
        let profile = match mcp.exec.profile {
            ExecProfile::Unrestricted => Profile::Unrestricted,
            ExecProfile::Restricted => Profile::Restricted,
        };
        let home = user_home();
        let mut hidden = mcp.exec.hidden.clone().unwrap_or_else(|| {
            let places = HIDDEN_PLACES.iter();
            places.map(|&place| place.to_owned()).collect()
        });
        hidden.extend(self.own_secrets());
        let git_dirs = match profile {
            Profile::Unrestricted => self.followed_git_dirs(&write_roots),
            Profile::Restricted => Vec::new(),
        };
        let resolved = |paths: &[String]| {
            let paths = paths.iter();
            paths.map(|path| loaded.resolve(path)).collect()
        };
        let limits = Limits::default();
        Settings {
            profile,
            git_dirs,
            home,
            search_path: search_path(loaded),
            local_sockets: profile == Profile::Unrestricted,
            hidden,
            masked: self.own_folders(),
            caches: match mcp.exec.caches {
                CachePolicy::Private => CacheMode::Private,
                CachePolicy::Shared => CacheMode::Shared,
                CachePolicy::Off => CacheMode::Off,
            },
            cache_max_bytes: mcp.exec.cache_max_bytes,
            env: mcp.exec.env.clone(),
            confinement: match mcp.exec.confinement {
                llmc_config::ConfinementMode::Auto => Confinement::Auto,
                llmc_config::ConfinementMode::Full => Confinement::Full,
                llmc_config::ConfinementMode::Off => Confinement::Off,
            },
            allowlist: mcp.tools.run_cmd_allowlist.clone(),
            policy_file: mcp
                .exec
                .policy_file
                .as_deref()
                .map(|path| loaded.resolve(path)),
            roots: Some(self.files().roots.clone()),
            write_roots,
            read_roots,
            homes: vec![loaded.root.clone()],
            extra_write: resolved(&mcp.exec.extra_write),
            extra_read: resolved(&mcp.exec.extra_read),
            sockets: resolved(&mcp.exec.sockets),
            protected: state::server_files(loaded),
            state_dir: self.stores().map(Path::to_owned),
            network: mcp.exec.network,
            limits: Limits {
                memory_bytes: mcp.exec.max_memory.or(limits.memory_bytes),
                processes: mcp.exec.max_processes,
                tmp_bytes: mcp.exec.max_tmp.unwrap_or(limits.tmp_bytes),
                ..limits
            },
            ..Settings::default()
        }
    }
}

/// Where commands are looked up.
pub(crate) fn search_path(loaded: &LoadedConfig) -> Vec<PathBuf> {
    let exec = &loaded.config.mcp.exec;
    match (exec.profile, exec.path.as_str()) {
        (ExecProfile::Restricted, _) => SYSTEM_SEARCH_PATH.map(PathBuf::from).to_vec(),
        (ExecProfile::Unrestricted, "auto") => {
            let path = std::env::var_os("PATH");
            tool_search_path(&loaded.root, path.as_deref(), user_home().as_deref())
        }
        (ExecProfile::Unrestricted, folders) => {
            let folders = folders.split(':');
            folders.map(|folder| loaded.resolve(folder)).collect()
        }
    }
}
