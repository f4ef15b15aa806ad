//! Escape tests of the sandbox: the proof behind what a [`ConfinementLevel`] says.
//!
//! This executable makes each attempt twice: outside the boundary, where it must succeed or the probe proves nothing, and
//! then in a run like any other. One process makes all attempts of each kind, since starting processes takes most of the
//! time. A probe is judged by the state of its target on the host, never by what the run prints.
//! Targets are made for the probe, next to the real ones, and nothing of the user's is changed: where only the real place
//! will do, the attempt is to open it, or to plant a file that is removed afterwards.

mod protected_names;
mod targets;
mod trial;

use std::rc::Rc;

use rustix::io::Errno;
use ulid::Ulid;

use self::targets::{Credential, HomeFile, Outside, Sockets, Victim};
use self::trial::{Attempt, Test, Trial};
use super::level::ConfinementLevel;
use super::programs::Program;
use super::runner::Runner;
use super::settings::Children;
use llmc_host::OpenDir;

/// One escape test and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What was tried.
    pub what: &'static str,
    pub result: ProbeResult,
}

/// How an escape test went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// It failed; by which layer, in the words of [`ConfinementLevel`].
    Held(String),
    /// It worked, though the level says that it cannot.
    Escaped,
    /// It works, as the level or the configuration states; why.
    Open(String),
    /// It could not be tried; why.
    Untried(String),
}

/// Runs every escape test, from a working directory inside the roots.
pub fn run_probes(runner: &Runner, cwd: &OpenDir) -> Vec<Probe> {
    let prober = match Program::own() {
        Ok(program) => Prober {
            runner,
            cwd,
            program,
            mark: format!("llmc-probe-{}", Ulid::new()),
        },
        Err(error) => {
            return vec![untried(
                "start this executable in the boundary",
                &error.to_string(),
            )];
        }
    };
    let outside = Outside::new(runner.settings(), cwd, &prober.mark).map(Rc::new);
    let mut list = prober.files(&outside);
    list.extend(prober.content(&outside));
    list.extend(prober.programs());
    list.extend(prober.read_only_root());
    list.extend(prober.network(&outside));
    list.extend(prober.processes());
    list.push(prober.token());
    list.extend(prober.home());
    list.extend(prober.system_credential());
    list.extend(prober.protected());
    prober.run(list)
}

/// Whether the level says that an attempt fails; if not, why.
type Claim = Result<(), String>;

/// What an attempt is aimed at; the kernel's numbers mean different layers for each.
#[derive(Debug, Clone, Copy)]
enum TargetKind {
    File,
    Hidden,
    Network,
    /// A local socket with a path.
    LocalSocket,
    AbstractSocket,
    Process,
    /// A system call that only the filter refuses.
    Filtered,
}

/// Makes attempts and judges them.
struct Prober<'a> {
    runner: &'a Runner,
    cwd: &'a OpenDir,
    program: Program,
    /// Goes into everything made here, so that it is known again.
    mark: String,
}

impl Prober<'_> {
    fn files(&self, outside: &Result<Rc<Outside>, String>) -> Vec<Test<'_>> {
        let write = "write a file outside the roots";
        let chmod = "change permissions outside the roots";
        let level = self.runner.level();
        let outside = match outside {
            Ok(outside) => outside,
            Err(why) => return vec![untried(write, why).into(), untried(chmod, why).into()],
        };
        let file = outside.file();
        let (written, opened) = (outside.clone(), outside.clone());
        vec![
            Trial::new(
                write,
                TargetKind::File,
                self.claim(level.mountns || level.landlock.is_some(), "landlock"),
                &["write", &file, &self.mark],
                move |_| written.was_written(&self.mark),
            ),
            Trial::new(
                chmod,
                TargetKind::File,
                self.claim(level.mountns || self.is_alone(), "mntns"),
                &["chmod", &file],
                move |_| opened.was_opened_up(),
            ),
        ]
    }

    /// For runs that may read named places only.
    fn content(&self, outside: &Result<Rc<Outside>, String>) -> Option<Test<'_>> {
        self.runner.settings().sees.as_ref()?;
        let read = "read a file outside the places that are named";
        let outside = match outside {
            Ok(outside) => outside.clone(),
            Err(why) => return Some(untried(read, why).into()),
        };
        let secret = match outside.secret(&self.mark) {
            Ok(secret) => secret,
            Err(error) => return Some(untried(read, &error.to_string()).into()),
        };
        let claim = self.claim(self.reads_named_places(), "landlock");
        let words = ["read", secret.as_str()];
        let test = Trial::new(read, TargetKind::Hidden, claim, &words, move |attempt| {
            // The file is there until the test is over.
            let _ = &outside;
            attempt.got_hold_of(&self.mark)
        });
        Some(test)
    }

    /// For runs that may start nothing.
    fn programs(&self) -> Vec<Test<'_>> {
        if self.runner.settings().children == Children::Allowed {
            return Vec::new();
        }
        let claim = self.claim(self.is_alone(), "seccomp");
        let start = Trial::new(
            "start a process",
            TargetKind::Filtered,
            claim.clone(),
            &["start", &self.mark],
            |attempt| attempt.got_hold_of(&self.mark),
        );
        // A file that is not there: this attempt leaves the process as it is.
        let become_another = Trial::new(
            "become another program",
            TargetKind::Filtered,
            claim,
            &["become", &format!("/{}", self.mark)],
            |attempt| attempt.refused == Some(Errno::NOENT.raw_os_error()),
        );
        vec![start, become_another]
    }

    /// Whether runs start nothing and reach no other process.
    fn is_alone(&self) -> bool {
        self.runner.settings().children == Children::Refused && self.runner.level().seccomp
    }

    /// Whether runs read named places only, whatever the mounts say.
    fn reads_named_places(&self) -> bool {
        self.runner.settings().sees.is_some() && self.runner.level().landlock.is_some()
    }

    /// Roots that runs may only read. The attempt sets the permissions that the directory has, which only its time of
    /// change shows.
    fn read_only_root(&self) -> Option<Test<'_>> {
        let root = self.runner.settings().read_roots.first()?;
        let mut seen = targets::change_time(root);
        let level = self.runner.level();
        Some(Trial::new(
            "change a directory that is read-only",
            TargetKind::File,
            self.claim(level.mountns || self.is_alone(), "mntns"),
            &["chmod-as-is", &root.display().to_string()],
            move |attempt| {
                let now = targets::change_time(root);
                let changed = std::mem::replace(&mut seen, now) != now;
                // Others may have changed the directory meanwhile.
                changed && attempt.refused.is_none()
            },
        ))
    }

    fn network(&self, outside: &Result<Rc<Outside>, String>) -> Vec<Test<'_>> {
        let level = self.runner.level();
        let away = if self.runner.settings().network {
            Err("allow_outbound_network is true".to_owned())
        } else {
            self.claim(level.netns || level.seccomp, "netns or seccomp")
        };
        let scoped = level.landlock.is_some_and(|abi| abi >= 6);
        let unnamed = self.claim(level.seccomp || level.netns || scoped, "seccomp");
        let outside = outside.as_ref().ok().cloned();
        let sockets = Rc::new(Sockets::new(outside, &self.mark));
        type Ear = fn(&Sockets, &str) -> bool;
        type Row = (
            &'static str,
            TargetKind,
            Claim,
            &'static str,
            Option<String>,
            Ear,
        );
        let rows: [Row; 4] = [
            (
                "open a TCP connection",
                TargetKind::Network,
                away.clone(),
                "tcp",
                sockets.tcp_address(),
                Sockets::tcp_received,
            ),
            (
                "send a UDP datagram (DNS)",
                TargetKind::Network,
                away,
                "udp",
                sockets.udp_address(),
                Sockets::udp_received,
            ),
            (
                "connect to a unix socket of the host",
                TargetKind::LocalSocket,
                self.claim(level.seccomp, "seccomp"),
                "unix",
                sockets.unix_path(),
                Sockets::unix_received,
            ),
            (
                "connect to an abstract socket",
                TargetKind::AbstractSocket,
                unnamed,
                "abstract",
                sockets.abstract_name(),
                Sockets::abstract_received,
            ),
        ];
        let tests = rows
            .into_iter()
            .map(|(what, aim, claim, kind, target, ear)| {
                let Some(target) = target else {
                    return untried(what, "no such socket can be made here").into();
                };
                let sockets = sockets.clone();
                let words = [kind, &target, &self.mark];
                Trial::new(what, aim, claim, &words, move |_| ear(&sockets, &self.mark))
            });
        tests.collect()
    }

    fn processes(&self) -> Vec<Test<'_>> {
        let read = "read the server's environment";
        let kill = "end a process of the host";
        let level = self.runner.level();
        // Two of them: the first is killed outside the boundary.
        let victims =
            Victim::new(&self.mark).and_then(|first| Ok((first, Victim::new(&self.mark)?)));
        let (mut first, mut second) = match victims {
            Ok(victims) => victims,
            Err(error) => {
                let why = error.to_string();
                return vec![untried(read, &why).into(), untried(kill, &why).into()];
            }
        };
        let hidden = level.pidns || level.userns || level.landlock.is_some();
        let environ = format!("/proc/{}/environ", second.pid());
        let scoped = level.landlock.is_some_and(|abi| abi >= 6);
        let (outside, inside) = (first.pid().to_string(), second.pid().to_string());
        let mut is_outside = true;
        vec![
            Trial::new(
                read,
                TargetKind::Process,
                self.claim(hidden, "pidns or landlock"),
                &["read", &environ],
                |attempt| attempt.got_hold_of(&self.mark),
            ),
            Trial::with_other_target(
                kill,
                TargetKind::Process,
                self.claim(level.pidns || scoped || self.is_alone(), "pidns"),
                &["kill", &outside],
                &["kill", &inside],
                move |attempt| {
                    let victim = match std::mem::take(&mut is_outside) {
                        true => &mut first,
                        false => &mut second,
                    };
                    attempt.refused.is_none() && victim.dies()
                },
            ),
        ]
    }

    fn token(&self) -> Test<'_> {
        let what = "read the token in the state directory";
        let settings = self.runner.settings();
        let Some(dir) = &settings.state_dir else {
            return untried(what, "there is no state directory").into();
        };
        let token = match targets::Token::new(dir, &self.mark) {
            Ok(token) => token,
            Err(error) => return untried(what, &error.to_string()).into(),
        };
        let path = token.path();
        Trial::new(
            what,
            TargetKind::Hidden,
            self.claim(
                self.runner.level().mountns || self.reads_named_places(),
                "mntns",
            ),
            &["read", &path],
            move |attempt| {
                // The file is there until the test is over.
                let _ = &token;
                attempt.got_hold_of(&self.mark)
            },
        )
    }

    fn home(&self) -> Vec<Test<'_>> {
        let read = "read a credential in the home directory";
        let write = "make a file in the home directory";
        let settings = self.runner.settings();
        let Some(home) = &settings.home else {
            let why = "no home directory is known";
            return vec![untried(read, why).into(), untried(write, why).into()];
        };
        let mountns = self.runner.level().mountns;
        let credential = self.credential(read, Credential::of_home(settings, home));
        let file = match HomeFile::new(settings, home, &self.mark) {
            Ok(file) => {
                let path = file.path();
                let has_rules = mountns || self.runner.level().landlock.is_some();
                let claim = self.claim(has_rules, "landlock");
                Trial::only_inside(write, claim, &["write", &path, &self.mark], move |_| {
                    file.was_made()
                })
            }
            Err(why) => untried(write, &why).into(),
        };
        vec![credential, file]
    }

    /// What only root can read: passwords, host keys, homes of other users.
    fn system_credential(&self) -> Option<Test<'_>> {
        let read = "read a credential of the system or of another user";
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(|| self.credential(read, Credential::of_system(self.runner.settings())))
    }

    fn credential(&self, what: &'static str, found: Option<Credential>) -> Test<'_> {
        let Some(credential) = found else {
            return untried(what, "there is none in a hidden place").into();
        };
        let path = credential.path();
        let is_hidden = self.runner.level().mountns || self.reads_named_places();
        let claim = self.claim(is_hidden, "mntns");
        let words = ["read", path.as_str()];
        Trial::new(what, TargetKind::Hidden, claim, &words, move |attempt| {
            attempt.got_hold_of(credential.start())
        })
    }

    fn claim(&self, holds: bool, needs: &str) -> Claim {
        match holds {
            true => Ok(()),
            false if *self.runner.level() == ConfinementLevel::OFF => {
                Err("confinement is off".to_owned())
            }
            false => Err(format!("needs {needs}, which this kernel does not give")),
        }
    }

    /// What a refusal means.
    fn layer(&self, aim: TargetKind, attempt: &Attempt) -> String {
        let level = self.runner.level();
        let filter = if level.seccomp { "seccomp" } else { "landlock" };
        let errno = attempt.refused.map(Errno::from_raw_os_error);
        let layer = match (aim, errno) {
            (TargetKind::File, None) if !attempt.quarantined.is_empty() => {
                "taken away after the run"
            }
            (TargetKind::File | TargetKind::Hidden, Some(Errno::ROFS)) => "mntns",
            (TargetKind::Hidden, Some(Errno::ACCESS)) if self.reads_named_places() => "landlock",
            (TargetKind::Hidden, _) => "mntns",
            (TargetKind::Filtered, _) => "seccomp",
            (TargetKind::File, Some(Errno::ACCESS)) if level.landlock.is_some() => "landlock",
            (TargetKind::File, Some(Errno::PERM)) if self.is_alone() => "seccomp",
            (TargetKind::File, Some(Errno::PERM)) if level.userns => "userns",
            (TargetKind::Network, Some(Errno::PERM | Errno::ACCESS)) => filter,
            (TargetKind::Network, _) => "netns",
            (TargetKind::LocalSocket | TargetKind::AbstractSocket, _) => {
                self.socket_layer(aim, errno)
            }
            (TargetKind::Process, Some(Errno::PERM)) if self.is_alone() => "seccomp",
            (TargetKind::Process, Some(Errno::PERM | Errno::ACCESS)) if !level.pidns => "landlock",
            (TargetKind::Process, _) => "pidns",
            // The write succeeded, but into a private layer.
            (TargetKind::File, None) if level.mountns => "mntns",
            (TargetKind::File, _) => "file permissions",
        };
        layer.to_owned()
    }

    /// What keeps a run from a local socket of the host. Where a run may make local sockets, the filter lets it try.
    fn socket_layer(&self, aim: TargetKind, errno: Option<Errno>) -> &'static str {
        let is_refused = matches!(errno, Some(Errno::PERM | Errno::ACCESS));
        match (aim, is_refused, self.runner.allows_local_sockets()) {
            (_, true, false) => "seccomp",
            (_, true, true) => "landlock",
            // The path leads nowhere, or to a file in the socket's place.
            (TargetKind::LocalSocket, false, _) => "mntns",
            (_, false, _) => "netns",
        }
    }
}

fn untried(what: &'static str, why: &str) -> Probe {
    Probe {
        what,
        result: ProbeResult::Untried(why.to_owned()),
    }
}
