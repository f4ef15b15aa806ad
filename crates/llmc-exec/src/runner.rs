//! Opened once at start: what the kernel gives, which programs are allowed, and how one is run.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::broker::Broker;
use super::ends::Ends;
use super::follow::{LONGEST, RunReport, Stream, TICK, Terms, broken, failed, follow};
use super::level::{Features, Level, Protection};
use super::plan::{ALONE, Failure, Input, Places, Plan, Report, Sockets, Target};
use super::policy::{Allowed, Choice, Policy};
use super::programs::{Program, Programs, Unresolved};
use super::protect::{Guard, Quarantined, Watch};
use super::settings::{Children, Confinement, Profile, Settings};
use super::tmp::OwnTmp;
use super::tree::{Event, Tree, is_variable};
use llmc_host::CancelToken;
use llmc_host::OpenDir;
use llmc_host::{Error, Result};

/// How long a probe may take.
const PROBE: Duration = Duration::from_secs(20);
/// The kernel's bound on one argument.
const ARGUMENT_LIMIT: usize = 128 << 10;
/// Below the kernel's bound on all arguments and the environment together.
const ARGUMENTS_LIMIT: usize = 1536 << 10;

/// Variables that a command inherits from the server, beside those whose names start with `LC_`.
const INHERITED: [&str; 5] = ["HOME", "LANG", "TZ", "USER", "LOGNAME"];

/// One run.
#[derive(Debug)]
pub struct Spec<'a> {
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
}

/// Runs allowed programs inside the boundary.
#[derive(Debug)]
pub struct Runner {
    settings: Settings,
    features: Features,
    level: Level,
    programs: Programs,
    policy: Policy,
    guard: Arc<Guard>,
    env: Vec<(OsString, OsString)>,
    broker: Mutex<Option<Broker>>,
}

impl Runner {
    /// Finds out what this kernel gives, by a run of the helper that starts nothing, and looks up the allowed programs.
    ///
    /// # Errors
    /// [`Error::IsolationRequired`] if the settings demand more than the kernel gives; a root that is not there.
    pub fn open(settings: Settings) -> Result<Runner> {
        let mut settings = settings;
        for list in [
            &mut settings.write_roots,
            &mut settings.read_roots,
            &mut settings.homes,
            &mut settings.extra_write,
        ] {
            canonical(list)?;
        }
        if settings.profile == Profile::Restricted {
            settings.network = false;
        }
        let policy = Policy::open(&mut settings)?;
        let programs = Programs::look_up(&settings.allowlist, &settings);
        policy.check_programs(&programs)?;
        let env = inherited(&settings);
        let guard = Arc::new(Guard::new(&settings));
        let mut runner = Runner {
            settings,
            features: Features::default(),
            level: Level::OFF,
            programs,
            policy,
            guard,
            env,
            broker: Mutex::new(None),
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
        *self
            .broker
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is enforced for every run.
    pub fn level(&self) -> &Level {
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

    /// The program a caller's `argv[0]` means.
    ///
    /// # Errors
    /// [`Error::CommandDenied`] with the names that are allowed.
    pub fn resolve(&self, argv0: &str) -> Result<&Program> {
        self.programs.get(argv0)
    }

    /// Looks up a program that the server itself chose, in the fixed search path and outside every writable place.
    ///
    /// # Errors
    /// [`Error::CommandDenied`] with the reason.
    pub fn find(&self, name: &str) -> Result<Program> {
        let list = Programs::look_up(&[name.to_owned()], &self.settings);
        list.get(name).cloned()
    }

    /// A program that the operator named by its path. Unlike [`Runner::find`] it may lie where commands can write: whoever
    /// calls this sees to it that they cannot write this file.
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
    pub fn check(&self, spec: &Spec<'_>) -> Result<()> {
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
        spec: &Spec<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        stop: &CancelToken,
    ) -> Result<RunReport> {
        let Launched {
            program,
            mut tree,
            tmp,
            watch,
        } = self.launch(spec)?;
        let terms = Terms {
            program: program.name.clone(),
            timeout: spec.timeout,
            max_output: spec.max_output,
        };
        let ended = follow(&mut tree, &terms, on_output, &|| stop.check());
        // Reaps the helper; nothing of the run is left after this, so what it planted can be looked for in peace.
        drop(tree);
        drop(tmp);
        let quarantined = self.guard.after(watch);
        Ok(RunReport {
            quarantined,
            ..ended?
        })
    }

    /// What a dead run has done to protected names.
    pub(super) fn look_after(&self, watch: Watch) -> Vec<Quarantined> {
        self.guard.after(watch)
    }

    /// Sets one run going.
    pub(super) fn launch<'a>(&'a self, spec: &Spec<'a>) -> Result<Launched<'a>> {
        self.launch_with(spec, Input::Nothing)
    }

    /// Sets a run going that has an input.
    pub(super) fn launch_with<'a>(&'a self, spec: &Spec<'a>, input: Input) -> Result<Launched<'a>> {
        let Vetted { program, argv, env } = self.vetted(spec)?;
        let order = Order::new(self);
        let watch = self.guard.before(self.level.protected);
        let argv = argv.into_iter().map(OsString::from);
        let (file, argv) = match self.settings.children {
            Children::Allowed => (program.path.clone(), argv.collect()),
            Children::Refused => {
                let first = ["llmc".into(), ALONE.into(), program.path.clone().into()];
                (Program::own_path(), first.into_iter().chain(argv).collect())
            }
        };
        let mut target = Target {
            program: file.into(),
            argv,
            env: self.environment(spec, &env)?,
            input,
        };
        let mut places = watch.places();
        let tmp = self.own_tmp()?;
        if let Some(tmp) = &tmp {
            places.write.push(tmp.path().into());
            target.env.push(("TMPDIR".into(), tmp.path().into()));
        }
        let plan = self.plan(places, spec, target);
        let tree = self
            .start(&spec.cwd.fd, &plan, input, order)
            .map_err(|error| broken("starting the helper", error))?
            .map_err(|failure| failed(&failure, &program.name))?;
        Ok(Launched {
            program,
            tree,
            tmp,
            watch,
        })
    }

    /// Tries everything; what fails is left out, until the rest works.
    fn probe(&mut self) -> Result<()> {
        let root = rustix::process::geteuid().is_root();
        self.features = Features::all(root, self.settings.network);
        loop {
            match self.try_features()? {
                Ok(landlock) => {
                    self.level = Level::new(self.features, landlock, self.settings.network);
                    return Ok(());
                }
                Err(failure) => {
                    let removed = failure
                        .feature
                        .is_some_and(|feature| self.features.remove(feature, root));
                    // What it was started with no longer holds.
                    *self
                        .broker
                        .get_mut()
                        .unwrap_or_else(PoisonError::into_inner) = None;
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
        let plan = Plan {
            features: self.features,
            places: self.guard.before(Protection::Mount).places(),
            sockets: self.sockets(),
            limits: self.settings.limits,
            cpu_seconds: 10,
            cwd: "/".into(),
            target: None,
        };
        let order = Order::new(self);
        let started = self.start(&cwd, &plan, Input::Nothing, order);
        let mut tree = match started.map_err(wrong)? {
            Ok(tree) => tree,
            Err(failure) => return Ok(Err(failure)),
        };
        let deadline = Instant::now() + PROBE;
        while Instant::now() < deadline {
            match tree.next(TICK).map_err(wrong)? {
                Event::Report(Report::Ready { landlock }) => return Ok(Ok(landlock)),
                Event::Report(Report::Failed(failure)) => return Ok(Err(failure)),
                Event::Gone => return Err(wrong(io::ErrorKind::UnexpectedEof.into())),
                _ => {}
            }
        }
        Err(wrong(io::ErrorKind::TimedOut.into()))
    }

    /// Starts a helper on a plan: in a namespace the broker has ready, or, without pid namespaces, by itself.
    fn start(
        &self,
        cwd: &OwnedFd,
        plan: &Plan,
        input: Input,
        order: Order<'_>,
    ) -> io::Result<Result<Tree, Failure>> {
        let ends = Ends::new(input)?;
        if !self.features.pid {
            return Tree::alone(&self.settings.helper, cwd, plan, ends);
        }
        match order.take()? {
            Ok(slot) => Tree::in_slot(slot, cwd, plan, ends).map(Ok),
            Err(failure) => Ok(Err(failure)),
        }
    }

    fn slot(&self) -> io::Result<Result<UnixStream, Failure>> {
        let mut held = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broker) = held.as_mut() {
            match broker.slot() {
                // Gone or out of step: a new one takes its place.
                Err(_) => *held = None,
                Ok(slot) => return Ok(slot),
            }
        }
        match Broker::start(&self.settings.helper, self.features)? {
            Ok(mut broker) => {
                let slot = broker.slot();
                *held = Some(broker);
                slot
            }
            Err(failure) => Ok(Err(failure)),
        }
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
    fn vetted<'a>(&'a self, spec: &Spec<'a>) -> Result<Vetted<'a>> {
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
        if longest >= ARGUMENT_LIMIT || total > ARGUMENTS_LIMIT {
            return Err(Error::BadRequest(format!(
                "arguments are too long: one may have {} KiB, all together {} KiB",
                ARGUMENT_LIMIT >> 10,
                ARGUMENTS_LIMIT >> 10
            )));
        }
        let (program, choice) = match spec.program {
            Some(program) => (program, Choice::Server),
            None => (self.resolve(name)?, Choice::Caller),
        };
        program.check()?;
        let Allowed { argv, env } = self.allow(program, choice, spec.argv, spec.cwd)?;
        Ok(Vetted { program, argv, env })
    }

    /// The guard, for runs that outlive the call that started them.
    pub(super) fn guard(&self) -> Arc<Guard> {
        self.guard.clone()
    }

    /// What a run starts with: the usual variables, the caller's, and last those the policy wants.
    fn environment(
        &self,
        spec: &Spec<'_>,
        wanted: &[(String, String)],
    ) -> Result<Vec<(OsString, OsString)>> {
        let mut env = self.env.clone();
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

    fn plan(&self, places: Places, spec: &Spec<'_>, target: Target) -> Plan {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        Plan {
            features: self.features,
            places,
            sockets: self.sockets(),
            limits: self.settings.limits,
            // The clock ends a run; this ends one whose clock has stopped.
            cpu_seconds: (spec.timeout.min(LONGEST).as_secs() + 5) * processors,
            cwd: spec.cwd.path.absolute().into_os_string(),
            target: Some(target),
        }
    }

    /// A directory for temporary files, where rules on writing hold but no mount gives the run its own `/tmp`.
    fn own_tmp(&self) -> Result<Option<OwnTmp>> {
        if self.features.mount || !self.features.landlock {
            return Ok(None);
        }
        let made =
            OwnTmp::new().map_err(|error| broken("a directory for temporary files", error))?;
        Ok(Some(made))
    }

    fn sockets(&self) -> Sockets {
        match self.settings.network || self.features.net {
            true => Sockets::Internet,
            false => Sockets::Nothing,
        }
    }
}

/// A slot that the broker gets ready while the server still prepares the run. One that nobody takes is let go.
struct Order<'a> {
    runner: &'a Runner,
    open: bool,
}

impl<'a> Order<'a> {
    /// Asks for a slot if there is a broker to ask; else the one who takes it starts one.
    fn new(runner: &'a Runner) -> Order<'a> {
        let mut held = runner.broker.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = held.as_mut().map(Broker::ask);
        if let Some(Err(_)) = asked {
            *held = None;
        }
        Order {
            runner,
            open: matches!(asked, Some(Ok(()))),
        }
    }

    fn take(mut self) -> io::Result<Result<UnixStream, Failure>> {
        self.open = false;
        self.runner.slot()
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.runner.slot();
        }
    }
}

/// What a caller's words came to.
#[derive(Debug)]
struct Vetted<'a> {
    program: &'a Program,
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

/// A run that has been set going, with what must be looked after when it is over.
pub(super) struct Launched<'a> {
    pub(super) program: &'a Program,
    pub(super) tree: Tree,
    pub(super) tmp: Option<OwnTmp>,
    pub(super) watch: Watch,
}

/// The environment every command starts with.
fn inherited(settings: &Settings) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            name.as_bytes().starts_with(b"LC_") || INHERITED.iter().any(|other| name == other)
        })
        .collect();
    if let Ok(path) = std::env::join_paths(&settings.search_path) {
        env.push(("PATH".into(), path));
    }
    env.push(("TERM".into(), "dumb".into()));
    env
}

fn canonical(list: &mut [PathBuf]) -> Result<()> {
    for path in list {
        *path = std::fs::canonicalize(&*path).map_err(|source| Error::Io {
            path: path.display().to_string(),
            source,
        })?;
    }
    Ok(())
}
