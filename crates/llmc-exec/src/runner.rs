//! Opened once at start: what the kernel gives, which programs are allowed, and how one is run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_host::{CancelToken, OpenDir, lock};
use rustix::fs::{Mode, OFlags};

use self::in_force::InForce;
pub use self::in_force::RunAllowances;
pub use self::slots::SessionPlace;
pub(super) use self::slots::Slot;
use self::slots::SlotRequest;
use super::broker::Broker;
use super::cgroup::Cgroups;
use super::error::{Error, Result};
use super::follow::{CANCEL_CHECK_INTERVAL, RunReport, Stream, Terms, broken, failed, follow};
use super::home::{layered_folders, private_home_variables, shared_folders};
use super::host_sockets::HostSockets;
use super::layer_limit::disk_bytes;
use super::level::{ConfinementLevel, Feature, Features, Protection};
use super::plan::{
    Failure, Input, LayerStore, LayeredWrites, Plan, Report, SINGLE_PROCESS, SessionTmp, Target, os,
};
use super::policy::{Allowed, Choice, Policy};
use super::programs::{Program, Programs, Unresolved, find_program};
use super::protect::{GitAccess, Guard, Watch};
use super::search_path::python_in_place;
use super::sessions::Sessions;
use super::settings::{Children, Confinement, Profile, Settings};
use super::tmp::OwnTmp;
use super::tree::{Event, Tree};

mod in_force;
mod layered;
mod prepare;
mod slots;

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the kernel is tried again after a file that was to be mounted had gone.
const MAX_VANISHED_TRIES: u32 = 20;
/// The kernel's bound on one argument.
const MAX_ARGUMENT_BYTES: usize = 128 << 10;
/// Below the kernel's bound on all arguments and the environment together.
const MAX_ARGUMENTS_BYTES: usize = 1536 << 10;

/// One run.
#[derive(Debug)]
pub struct ExecRequest<'a> {
    /// The program's name and its arguments.
    pub argv: &'a [String],
    /// The program, where it is the server's choice ([`Runner::find`]) and no list decides; else `argv[0]` does.
    pub program: Option<&'a Program>,
    /// Where it starts.
    pub cwd: &'a OpenDir,
    /// After this long it is ended.
    pub timeout: Duration,
    /// Variables beside the short inherited list.
    pub env: &'a [(String, String)],
    /// After this many bytes of output it is ended.
    pub max_output: u64,
    /// Whose run it is.
    pub owner: RunOwner<'a>,
    /// What it may change in git directories.
    pub git: GitAccess,
}

impl<'a> ExecRequest<'a> {
    /// A run of a caller's program without further variables, a bound on its output or an owner.
    pub fn new(argv: &'a [String], cwd: &'a OpenDir, timeout: Duration) -> ExecRequest<'a> {
        ExecRequest {
            argv,
            program: None,
            cwd,
            timeout,
            env: &[],
            max_output: u64::MAX,
            owner: RunOwner::default(),
            git: GitAccess::default(),
        }
    }
}

/// Whose run it is: runs of one principal share the private layer over the home directory, runs of one session processes, `/tmp`
/// and terminals.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOwner<'a> {
    pub principal: &'a str,
    /// Empty for a run that shares nothing with others.
    pub session: &'a str,
    /// How long the session lives without a run; without it, as long as the server.
    pub session_lifetime: Option<Duration>,
}

/// A folder of the user that commands write copy-on-write.
#[derive(Debug, Clone)]
pub struct PrivateLayer {
    pub path: PathBuf,
    /// Where what they write is kept; `None` if the layer cannot be had and the folder is read-only.
    pub store: Option<LayerStore>,
}

/// Runs allowed programs inside the boundary.
#[derive(Debug)]
pub struct Runner {
    settings: Settings,
    features: Features,
    level: ConfinementLevel,
    programs: Programs,
    policy: Policy,
    in_force: Mutex<Arc<InForce>>,
    layers: Vec<PrivateLayer>,
    /// Variables for tools whose folders the user has not.
    private_home: Vec<(OsString, OsString)>,
    host_sockets: HostSockets,
    /// The `python3` that `python` stands for, where there is no program of that name.
    python: Option<PathBuf>,
    /// Whether hiding, private layers and the rest of the [`View`] work here, beyond the plain mounts.
    has_view: bool,
    cgroups: Cgroups,
    /// One for each principal, since private layers are theirs.
    brokers: Mutex<BTreeMap<String, Broker>>,
    sessions: Arc<Sessions>,
    /// Runs on copy-on-write views that are under way.
    views: AtomicUsize,
}

impl Runner {
    /// Finds out what this kernel gives, by a run of the helper that starts nothing, and looks up the allowed programs.
    ///
    /// # Errors
    /// [`Error::IsolationRequired`] if the settings demand more than the kernel gives; a root that is not there.
    pub fn open(settings: Settings) -> Result<Runner> {
        let mut settings = settings;
        settings.shared_caches = shared_folders(&settings);
        for list in [
            &mut settings.write_roots,
            &mut settings.read_roots,
            &mut settings.homes,
            &mut settings.extra_write,
            &mut settings.shared_caches,
        ] {
            canonical(list)?;
        }
        if settings.profile == Profile::Restricted {
            settings.network = false;
        }
        let policy = Policy::open(&mut settings)?;
        let programs = Programs::look_up(&settings.allowlist, &settings);
        policy.check_programs(&programs)?;
        if settings.profile == Profile::Restricted && settings.sees.is_none() {
            let found = programs.found.iter().map(|program| program.path.clone());
            settings.sees = Some(settings.readable_places().chain(found).collect());
        }
        let layers = layered_folders(&settings);
        let private_home = private_home_variables(&settings, &layers);
        let python = python_in_place(&settings);
        let mut runner = Runner {
            in_force: Mutex::new(Arc::new(InForce::of_settings(&settings))),
            settings,
            features: Features::default(),
            level: ConfinementLevel::OFF,
            programs,
            policy,
            layers: layers
                .into_iter()
                .map(|path| PrivateLayer { path, store: None })
                .collect(),
            private_home,
            python,
            host_sockets: HostSockets::default(),
            has_view: true,
            cgroups: Cgroups::find(),
            brokers: Mutex::default(),
            sessions: Arc::default(),
            views: AtomicUsize::new(0),
        };
        match runner.settings.confinement {
            Confinement::Off => {}
            Confinement::Auto | Confinement::Full => runner.probe()?,
        }
        runner.check_demands()?;
        Ok(runner)
    }

    /// What the operator decided, with the places as they really are.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Lets go of the helpers that wait for runs: a server that runs nothing need not hold memory for them. The next run
    /// starts new ones.
    pub fn rest(&mut self) {
        self.let_brokers_go();
    }

    /// Reads the folders of the workspace, which are watched from then on, so that the first run does not wait for that.
    pub fn read_folders(&self) {
        if self.level.protected != Protection::None {
            self.in_force().guard.read_folders();
        }
    }

    fn let_brokers_go(&mut self) {
        lock(&self.brokers).clear();
    }

    /// The folders that commands write copy-on-write, and how that works here.
    pub fn layers(&self) -> &[PrivateLayer] {
        &self.layers
    }

    /// Bytes on the disk that the private layers of all principals hold.
    pub fn layer_bytes(&self) -> u64 {
        let dir = self.settings.state_dir.as_ref();
        dir.map_or(0, |dir| disk_bytes(&dir.join("caches"), u64::MAX))
    }

    /// What bounds the processes and the memory of a run, in one line.
    pub fn limits_by(&self) -> &'static str {
        match self.cgroups.is_available() && self.features.pid {
            true => "a cgroup for each command, and resource limits",
            false => {
                "a check of processes and memory several times a second, and resource limits (no cgroup can be made here: files \
                 in memory that no process maps are not counted)"
            }
        }
    }

    /// The sessions of this runner.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// What is enforced for every run.
    pub fn level(&self) -> &ConfinementLevel {
        &self.level
    }

    /// The allowed programs that were found.
    pub fn programs(&self) -> &[Program] {
        &self.programs.found
    }

    /// Which arguments they may be given.
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Names on the list that stand for nothing, and why.
    pub fn unresolved(&self) -> &[Unresolved] {
        &self.programs.unresolved
    }

    /// The program that a caller's `argv[0]` means in a working directory.
    ///
    /// # Errors
    /// [`Error::CommandDenied`]: no such program, or with the names that are allowed.
    pub fn resolve(&self, argv0: &str, cwd: &Path) -> Result<Program> {
        if self.programs.any {
            find_program(argv0, cwd, &self.settings.search_path)
        } else {
            self.programs.get(argv0).cloned()
        }
    }

    /// Looks up a program that the server itself chose, in the fixed search path and outside every writable place.
    ///
    /// # Errors
    /// [`Error::CommandDenied`] with the reason.
    pub fn find(&self, name: &str) -> Result<Program> {
        let list = Programs::look_up(&[name.to_owned()], &self.in_force().settings);
        list.get(name).cloned()
    }

    /// A program that the operator named by its path. Unlike [`Runner::find`] it may lie where commands can write: the
    /// caller makes sure that they cannot write this file.
    ///
    /// # Errors
    /// [`Error::CommandDenied`] with the reason.
    pub fn find_trusted(&self, path: &Path) -> Result<Program> {
        let name = path.display().to_string();
        let list = Programs::look_up(std::slice::from_ref(&name), &Settings::default());
        list.get(&name).cloned()
    }

    /// Whether this would be allowed to run.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn check(&self, spec: &ExecRequest<'_>) -> Result<()> {
        self.vetted(spec).map(|_| ())
    }

    /// Runs one command to its end, handing on its output as it comes.
    ///
    /// When this returns, no process of the run is left, whatever it did. A command that fails is no error.
    ///
    /// # Errors
    /// [`Error::CommandDenied`], [`Error::BadRequest`] for arguments no kernel takes, or a helper that failed.
    pub fn run(
        &self,
        spec: &ExecRequest<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        stop: &CancelToken,
    ) -> Result<RunReport> {
        let launched = self.launch_with(spec, Input::Nothing)?;
        let guard = launched.guard.clone();
        self.finish(launched, spec, |tree, terms, watch| {
            let mut sweep = || guard.while_running(watch);
            follow(tree, terms, on_output, &|| stop.check(), &mut sweep)
        })
    }

    /// Lets `work` follow a run, then cleans up after it.
    pub(super) fn finish(
        &self,
        launched: Launched,
        spec: &ExecRequest<'_>,
        work: impl FnOnce(&mut Tree, &mut Terms, &mut Watch) -> Result<RunReport>,
    ) -> Result<RunReport> {
        let Launched {
            program,
            mut tree,
            tmp,
            guard,
            mut watch,
        } = launched;
        let mut terms = Terms {
            program: program.name,
            timeout: spec.timeout,
            max_output: spec.max_output,
            check_interval: CANCEL_CHECK_INTERVAL,
        };
        tree.wake_on(guard.changes());
        let ended = work(&mut tree, &mut terms, &mut watch);
        // Reaps the helper: no process of the run is left that could race with the check of protected names.
        drop(tree);
        drop(tmp);
        let undone = guard.after(watch);
        let mut report = ended?;
        report.status = undone.status(report.status);
        report.quarantined = undone.quarantined;
        report.notes.extend(undone.notes);
        Ok(report)
    }

    /// Starts a run with an input.
    pub(super) fn launch_with(&self, spec: &ExecRequest<'_>, input: Input) -> Result<Launched> {
        let git = match self.settings.profile {
            Profile::Restricted => GitAccess::ReadOnly,
            Profile::Unrestricted => spec.git,
        };
        self.launch(spec, input, RunPlace::Own, |guard| {
            guard.before(&self.level, git)
        })
    }

    /// As [`Runner::launch_with`], in the session of another runner.
    pub(super) fn launch_at(
        &self,
        spec: &ExecRequest<'_>,
        input: Input,
        place: Option<SessionPlace>,
    ) -> Result<Launched> {
        match place {
            None => self.launch_with(spec, input),
            Some(place) => self.launch(spec, input, RunPlace::InSession(place), |guard| {
                guard.before(&self.level, GitAccess::ReadOnly)
            }),
        }
    }

    /// Starts a run in the places that `watch` gives, or in layers over them.
    fn launch(
        &self,
        spec: &ExecRequest<'_>,
        input: Input,
        place: RunPlace,
        watch: impl FnOnce(&Guard) -> Watch,
    ) -> Result<Launched> {
        let Vetted { program, argv, env } = self.vetted(spec)?;
        let in_session = self.has_sessions() && !spec.owner.session.is_empty();
        let (layered, given) = match place {
            RunPlace::Own => (None, None),
            RunPlace::Layers(layered) => (Some(layered), None),
            RunPlace::InSession(given) => (None, Some(given)),
        };
        let shares_tmp = given.is_some();
        let slot_request = match given {
            Some(given) => SlotRequest::at(self, given),
            None if in_session => SlotRequest::in_session(self, spec.owner),
            None => SlotRequest::new(self, spec.owner.principal),
        };
        let in_force = self.in_force();
        let watch = watch(&in_force.guard);
        let tmp = self.own_tmp()?;
        let argv = argv.into_iter().map(OsString::from);
        let (file, argv) = match self.settings.children {
            Children::Allowed => (program.path.clone(), argv.collect()),
            Children::Refused => {
                let decided = self.decide_single_process(&program, tmp.as_ref())?;
                let first = ["llmc".into(), SINGLE_PROCESS.into(), decided.into()];
                (Program::own_path(), first.into_iter().chain(argv).collect())
            }
        };
        let mut target = Target {
            program: file.into(),
            argv,
            env: self.environment(&in_force, spec, &env)?,
            input,
        };
        let mut places = watch.places();
        if !self.programs.any {
            // A listed program is the one that was found, not one that a command has put into a private layer.
            let found = self.programs.found.iter();
            let dirs = found.filter_map(|program| program.path.parent());
            let dirs =
                dirs.filter(|dir| self.layers.iter().any(|layer| dir.starts_with(&layer.path)));
            places.read.extend(os(dirs.map(Path::to_owned)));
        }
        if let Some(tmp) = &tmp {
            places.write.push(tmp.path().into());
            target.env.push(("TMPDIR".into(), tmp.path().into()));
        }
        let mut plan = Plan {
            is_member: in_session && layered.is_none(),
            layered,
            ..self.plan(&in_force, places, spec, target)
        };
        if shares_tmp {
            plan.view.tmp = Some(SessionTmp::OfSession);
        }
        let mut tree = self
            .start(&spec.cwd.fd, &plan, input, slot_request)
            .map_err(|error| broken("starting the helper", error))?
            .map_err(|failure| failed(&failure, &program.name))?;
        if plan.supervises_renames() {
            let descriptor = tree
                .renames()
                .map_err(|error| broken("starting the helper", error))?
                .map_err(|failure| failed(&failure, &program.name))?;
            if let Some(descriptor) = descriptor {
                in_force.guard.supervise_renames(descriptor);
            }
        }
        Ok(Launched {
            program,
            tree,
            tmp,
            guard: in_force.guard.clone(),
            watch,
        })
    }

    /// Tries everything; what fails is left out, until the rest works.
    fn probe(&mut self) -> Result<()> {
        let root = rustix::process::geteuid().is_root();
        self.features = match self.settings.namespaces {
            true => Features::all(root, self.settings.network),
            false => Features {
                landlock: true,
                seccomp: true,
                ..Features::default()
            },
        };
        let mut vanished = 0;
        loop {
            match self.try_features()? {
                Ok(landlock) => {
                    if let Some(broker) = lock(&self.brokers).values().next() {
                        for (layer, store) in self.layers.iter_mut().zip(broker.layers()) {
                            layer.store = *store;
                        }
                    }
                    self.level =
                        ConfinementLevel::new(self.features, landlock, self.settings.network);
                    return Ok(());
                }
                Err(failure) if failure.is_missing_file() && vanished < MAX_VANISHED_TRIES => {
                    // A folder was removed between its discovery and its mount: no fault of the kernel's.
                    vanished += 1;
                }
                Err(failure) => {
                    // The plain mounts are the boundary; they must not be lost for the sake of what comes on top.
                    let was_view = failure.feature == Some(Feature::MountSpace) && self.has_view;
                    let removed = match was_view {
                        true => std::mem::replace(&mut self.has_view, false),
                        false => failure
                            .feature
                            .is_some_and(|feature| self.features.remove(feature, root)),
                    };
                    // What they were started with no longer holds.
                    self.let_brokers_go();
                    if !removed {
                        return Err(broken(&failure.step, failure.io()));
                    }
                }
            }
        }
    }

    /// One run of the helper that starts nothing.
    fn try_features(&self) -> Result<Result<Option<u32>, Failure>> {
        let wrong = |error| broken("probing the kernel", error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cwd =
            rustix::fs::open("/", flags, Mode::empty()).map_err(|errno| wrong(errno.into()))?;
        let (kinds, sockets) = self.sockets();
        let level = ConfinementLevel::new(self.features, None, self.settings.network);
        let in_force = self.in_force();
        let watch = in_force.guard.before(&level, GitAccess::ReadWrite);
        let plan = Plan {
            features: self.features,
            places: watch.places(),
            sockets: kinds,
            limits: self.settings.limits,
            view: self.view(&in_force.settings, RunOwner::default(), sockets),
            is_member: false,
            layered: None,
            cpu_seconds: Some(10),
            cwd: "/".into(),
            target: None,
        };
        let slot_request = SlotRequest::new(self, "");
        let started = self.start(&cwd, &plan, Input::Nothing, slot_request);
        let mut tree = match started.map_err(wrong)? {
            Ok(tree) => tree,
            Err(failure) => return Ok(Err(failure)),
        };
        let deadline = Instant::now() + PROBE_TIMEOUT;
        while Instant::now() < deadline {
            match tree.next(CANCEL_CHECK_INTERVAL).map_err(wrong)? {
                Event::Report(Report::Ready { landlock }) => return Ok(Ok(landlock)),
                Event::Report(Report::Failed(failure)) => return Ok(Err(failure)),
                Event::Gone => return Err(wrong(io::ErrorKind::UnexpectedEof.into())),
                _ => {}
            }
        }
        Err(wrong(io::ErrorKind::TimedOut.into()))
    }

    fn check_demands(&self) -> Result<()> {
        let settings = &self.settings;
        let required = |missing: String, hint: &str| {
            Err(Error::IsolationRequired {
                missing,
                hint: hint.to_owned(),
            })
        };
        let full =
            settings.confinement == Confinement::Full || settings.profile == Profile::Restricted;
        let missing = self.level.missing();
        if full && settings.confinement == Confinement::Off {
            return required(
                "the restricted profile and confinement = \"off\" contradict each other".to_owned(),
                "set mcp.exec.confinement to \"full\" or the profile to \"unrestricted\"",
            );
        }
        if full && !missing.is_empty() {
            return required(
                format!(
                    "this kernel or container does not give {}",
                    missing.join(", ")
                ),
                "allow user namespaces and Landlock, or set mcp.exec.confinement = \"auto\"",
            );
        }
        if !settings.network && !self.level.netns && !self.level.seccomp {
            return required(
                "nothing here keeps commands off the network".to_owned(),
                "set allow_outbound_network = true, or mcp.exec.confinement other than \"off\"",
            );
        }
        Ok(())
    }

    /// What really runs: the program, and its arguments as the policy leaves them.
    fn vetted(&self, spec: &ExecRequest<'_>) -> Result<Vetted> {
        let Some(name) = spec.argv.first() else {
            return Err(Error::BadRequest("argv is empty".to_owned()));
        };
        if spec.argv.iter().any(|argument| argument.contains('\0')) {
            return Err(Error::BadRequest(
                "an argument holds a NUL character".to_owned(),
            ));
        }
        let longest = spec.argv.iter().map(String::len).max().unwrap_or(0);
        let total: usize = spec.argv.iter().map(|argument| argument.len() + 9).sum();
        if longest >= MAX_ARGUMENT_BYTES || total > MAX_ARGUMENTS_BYTES {
            return Err(Error::BadRequest(format!(
                "arguments are too long: one may have {} KiB, all together {} KiB",
                MAX_ARGUMENT_BYTES >> 10,
                MAX_ARGUMENTS_BYTES >> 10
            )));
        }
        let (program, choice) = match spec.program {
            Some(program) => (program.clone(), Choice::Server),
            None => (
                self.resolve(name, &spec.cwd.path.absolute())?,
                Choice::Caller,
            ),
        };
        program.check()?;
        let Allowed { mut argv, env } = self.allow(&program, choice, spec.argv, spec.cwd)?;
        // Python finds itself by looking its name up in PATH; `python` that stands for `python3` is not there.
        let found_by_name = program.path.file_name() == Some(OsStr::new(name));
        if choice == Choice::Caller && !name.contains('/') && !found_by_name {
            argv[0] = program.path.display().to_string();
        }
        Ok(Vetted { program, argv, env })
    }
}

/// A request that policy allows.
#[derive(Debug)]
struct Vetted {
    program: Program,
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

/// Where a run writes and among whose processes it runs.
enum RunPlace {
    /// In the writable places and its own session.
    Own,
    /// In layers over the writable places.
    Layers(LayeredWrites),
    /// In another runner's session.
    InSession(SessionPlace),
}

/// A started run, with what is cleaned up after it.
pub(super) struct Launched {
    pub(super) program: Program,
    pub(super) tree: Tree,
    pub(super) tmp: Option<OwnTmp>,
    /// What looked at the places before the run looks at them afterwards.
    pub(super) guard: Arc<Guard>,
    pub(super) watch: Watch,
}

fn canonical(list: &mut [PathBuf]) -> Result<()> {
    for path in list {
        *path = std::fs::canonicalize(&*path).map_err(|source| Error::Failed {
            step: path.display().to_string(),
            source,
        })?;
    }
    Ok(())
}
