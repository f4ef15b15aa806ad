//! The plan of one run: its environment, its view of the file system, its sockets and its limits.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::in_force::InForce;
use super::{ExecRequest, RunOwner, Runner};
use crate::environment::{GIT_DISCOVERY, is_on_closed_list, is_variable, virtual_env};
use crate::error::{Error, Result};
use crate::follow::{MAX_RUN_TIME, broken};
use crate::git_dirs::repositories_around;
use crate::helper::SingleProcess;
use crate::home::{PRIVATE_HOME, install_dirs};
use crate::plan::{
    LINKS_DIR, Layer, Places, Plan, SessionTmp, Sockets, Stage, Target, View, file_name_of, os,
};
use crate::programs::Program;
use crate::settings::{Children, Profile, Settings};
use crate::tmp::OwnTmp;
use crate::view::{hidden_places, shown_places, unreadable_places};

/// What the server runs for itself. The user's variables could make it run other programs.
const GIT: &str = "git";
/// Where programs make temporary files. A run has a `/tmp` of its own.
const TEMPORARY_VARIABLES: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];

impl Runner {
    /// What a run starts with: the usual variables, the caller's, and last those the policy wants.
    pub(super) fn environment(
        &self,
        in_force: &InForce,
        spec: &ExecRequest<'_>,
        wanted: &[(String, String)],
    ) -> Result<Vec<(OsString, OsString)>> {
        let mut env = in_force.env.clone();
        if spec.program.is_some_and(|program| program.name == GIT) {
            env.retain(|(name, _)| is_on_closed_list(name) || name == GIT_DISCOVERY);
        }
        if self.settings.profile == Profile::Unrestricted
            && let Some(dir) = self.settings.homes.iter().find_map(|dir| virtual_env(dir))
        {
            env.retain(|(known, _)| known != "VIRTUAL_ENV");
            env.push(("VIRTUAL_ENV".into(), dir));
        }
        self.fit_to_view(&in_force.settings, &mut env);
        for (name, value) in spec.env.iter().chain(wanted) {
            if !is_variable(name.as_ref()) || value.contains('\0') {
                return Err(Error::BadRequest(format!(
                    "{name:?} is no environment variable"
                )));
            }
            env.retain(|(known, _)| known.as_os_str() != name.as_str());
            env.push((name.into(), value.into()));
        }
        Ok(env)
    }

    /// Changes what would lead to places that runs have not, and leads tools to their private layer.
    fn fit_to_view(&self, settings: &Settings, env: &mut Vec<(OsString, OsString)>) {
        if !self.features.mount {
            return;
        }
        let is_shown = |path: &Path| settings.writable().any(|root| path.starts_with(root));
        env.retain(|(name, value)| {
            let path = Path::new(value);
            let is_for_temporary = TEMPORARY_VARIABLES.iter().any(|other| name == other);
            let is_gone = is_for_temporary && path != Path::new("/tmp")
                || name == "XDG_RUNTIME_DIR" && self.has_private_run();
            !is_gone || is_shown(path)
        });
        let layers: Vec<PathBuf> = self.layers_in_place().map(Path::to_owned).collect();
        let has_home = layers.iter().any(|layer| layer == Path::new(PRIVATE_HOME));
        if has_home {
            for (name, value) in &self.private_home {
                env.retain(|(known, _)| known != name);
                env.push((name.clone(), value.clone()));
            }
        }
        if let Some((_, path)) = env.iter_mut().find(|(name, _)| name == "PATH") {
            // Last, so that a `python` that a command installs is found before the link.
            let link = (self.has_private_run() && self.python.is_some()).then(|| LINKS_DIR.into());
            let installed = match self.programs.any {
                true => install_dirs(&self.settings, &layers, has_home),
                false => Vec::new(),
            };
            for dir in installed.into_iter().chain(link) {
                path.push(":");
                path.push(dir);
            }
        }
    }

    /// The folders that commands write copy-on-write.
    fn layers_in_place(&self) -> impl Iterator<Item = &Path> {
        let layers = self.layers.iter().filter(|layer| layer.store.is_some());
        layers.map(|layer| layer.path.as_path())
    }

    pub(super) fn plan(
        &self,
        in_force: &InForce,
        mut places: Places,
        spec: &ExecRequest<'_>,
        target: Target,
    ) -> Plan {
        let settings = &in_force.settings;
        if self.features.landlock && !self.features.mount {
            places.unreadable = os(unreadable_places(settings));
        }
        places.read.extend(os(shown_places(settings)));
        if settings.profile == Profile::Unrestricted && settings.sees.is_none() {
            let roots = settings.write_roots.iter();
            let roots: Vec<PathBuf> = roots.chain(&settings.read_roots).cloned().collect();
            places.around.extend(os(repositories_around(&roots)));
            // Where it lies below a folder of which runs have their own.
            let home = settings.home.iter();
            places
                .around
                .extend(os(home.filter_map(|home| std::fs::canonicalize(home).ok())));
        }
        let (kinds, sockets) = self.sockets();
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Plan {
            features: self.features,
            places,
            sockets: kinds,
            limits: self.settings.limits,
            view: self.view(settings, spec.owner, sockets),
            is_member: false,
            layered: None,
            // The server ends a run at its time limit. A second bound where a command cannot leave processes behind.
            cpu_seconds: (self.settings.profile == Profile::Restricted
                || self.settings.children == Children::Refused)
                .then(|| (spec.timeout.min(MAX_RUN_TIME).as_secs() + 5) * processors),
            cwd: spec.cwd.path.absolute().into_os_string(),
            target: Some(target),
        }
    }

    /// A directory for temporary files, where rules on writing hold but no mount gives the run its own `/tmp`.
    pub(super) fn own_tmp(&self) -> Result<Option<OwnTmp>> {
        if self.features.mount || !self.features.landlock {
            return Ok(None);
        }
        let made =
            OwnTmp::new().map_err(|error| broken("a directory for temporary files", error))?;
        Ok(Some(made))
    }

    /// What is decided about a program that may start no other, as its first step reads it.
    pub(super) fn decide_single_process(
        &self,
        program: &Program,
        tmp: Option<&OwnTmp>,
    ) -> Result<String> {
        let sees_host = !(self.features.mount && self.features.fresh_proc);
        let host_files = self.settings.sees.as_ref().filter(|_| sees_host);
        let decided = SingleProcess {
            program: program.path.clone(),
            host_files: host_files.map(|seen| {
                let own = [
                    Some(program.path.clone()),
                    tmp.map(|tmp| tmp.path().to_owned()),
                ];
                let with_mounts = self.features.mount.then(|| PathBuf::from("/tmp"));
                let own = own.into_iter().chain([with_mounts]).flatten();
                seen.iter().cloned().chain(own).collect()
            }),
        };
        serde_json::to_string(&decided)
            .map_err(|error| broken("starting the program", error.into()))
    }

    /// What the broker of a principal is to stage.
    pub(super) fn stage(&self, principal: &str) -> Option<Stage> {
        if !self.has_view || !self.features.mount {
            return None;
        }
        let dir = self.settings.state_dir.as_ref();
        let dir = dir.map(|dir| dir.join("caches").join(file_name_of(principal)));
        let layers = self.layers.iter().map(|layer| Layer {
            path: layer.path.clone().into_os_string(),
            name: file_name_of(&layer.path),
            has_lower: layer.path != Path::new(PRIVATE_HOME),
        });
        Some(Stage {
            layers: layers.collect(),
            store: dir.map(PathBuf::into_os_string),
            tmp_bytes: self.settings.limits.tmp_bytes,
        })
    }

    /// What of the host a run does not see.
    pub(super) fn view(
        &self,
        settings: &Settings,
        owner: RunOwner<'_>,
        sockets: Option<Vec<PathBuf>>,
    ) -> View {
        if !self.has_view || !self.features.mount {
            return View::default();
        }
        let shown = shown_places(settings);
        let mut sockets = sockets.unwrap_or_default();
        sockets.retain(|socket| !shown.contains(socket));
        View {
            hidden: hidden_places(settings),
            private_run: self.settings.local_sockets,
            python: self.python.clone().map(PathBuf::into_os_string),
            sockets: os(sockets),
            tmp: match owner.session {
                "" => None,
                _ if self.has_sessions() => Some(SessionTmp::OfSession),
                session => Some(SessionTmp::Named(file_name_of(session))),
            },
        }
    }

    /// Whether the runs of a session share processes, terminals and shared memory too. Programs of a list, and those that may
    /// start no others, are kept apart.
    pub fn has_sessions(&self) -> bool {
        let features = &self.features;
        let settings = &self.settings;
        features.pid
            && features.mount
            && features.fresh_proc
            && self.has_view
            && settings.profile == Profile::Unrestricted
            && settings.children == Children::Allowed
            && settings.sees.is_none()
    }

    /// Whether a run has a `/run` of its own.
    fn has_private_run(&self) -> bool {
        self.has_view && self.features.mount && self.settings.local_sockets
    }

    /// Whether runs may make local sockets.
    pub(crate) fn allows_local_sockets(&self) -> bool {
        self.sockets().0 == Sockets::InternetAndLocal
    }

    /// Which sockets a run may make, and the host's that have to be covered for that.
    ///
    /// Local sockets need the host's out of reach: abstract ones by Landlock's scope or another network, the others by
    /// mounts over `/run` and `/tmp`, and over each one that lies elsewhere.
    pub(super) fn sockets(&self) -> (Sockets, Option<Vec<PathBuf>>) {
        let is_scoped = self.level.landlock.is_some_and(|abi| abi >= 6) || self.features.net;
        let has_cover = self.has_view && self.features.mount;
        if !(self.settings.network || self.features.net) {
            return (Sockets::Nothing, None);
        }
        match self.settings.local_sockets && is_scoped && has_cover {
            true => match self.host_sockets.reachable(&self.in_force().settings) {
                Some(sockets) => (Sockets::InternetAndLocal, Some(sockets)),
                None => (Sockets::Internet, None),
            },
            false => (Sockets::Internet, None),
        }
    }
}
