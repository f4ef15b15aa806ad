//! Escape tests of the sandbox: the proof behind what a [`ConfinementLevel`] says.
//!
//! This executable makes each attempt twice: outside the boundary, where it must succeed or the probe proves nothing, and
//! then in a run like any other. A probe is judged by the state of its target on the host, never by what the run prints.
//! Targets are made for the probe, next to the real ones, and nothing of the user's is changed: where only the real place
//! will do, the attempt is to open it, or to plant a file that is removed afterwards.

mod protected_names;
mod targets;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use ulid::Ulid;

use self::targets::{Credential, HomeFile, Outside, Sockets, Victim};
use super::level::ConfinementLevel;
use super::plan::{ATTEMPT, REFUSED};
use super::programs::Program;
use super::quarantine::Quarantined;
use super::runner::{ExecRequest, Runner};
use llmc_host::CancelToken;
use llmc_host::OpenDir;

/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

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
            return vec![Probe {
                what: "start this executable in the boundary",
                result: ProbeResult::Untried(error.to_string()),
            }];
        }
    };
    let mut list = prober.files();
    list.extend(prober.read_only_root());
    list.extend(prober.network());
    list.extend(prober.processes());
    list.push(prober.token());
    list.extend(prober.home());
    list.extend(prober.protected());
    list
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
}

/// What an attempt came to.
#[derive(Debug, Default)]
struct Attempt {
    /// What it got hold of.
    got: Vec<u8>,
    /// The kernel's number, if it was refused.
    refused: Option<i32>,
    /// What it planted and was taken away.
    quarantined: Vec<Quarantined>,
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
    fn files(&self) -> Vec<Probe> {
        let write = "write a file outside the roots";
        let chmod = "change permissions outside the roots";
        let level = self.runner.level();
        let outside = match Outside::new(self.runner.settings(), self.cwd, &self.mark) {
            Ok(outside) => outside,
            Err(why) => return vec![untried(write, &why), untried(chmod, &why)],
        };
        let file = outside.file();
        vec![
            self.contest(
                write,
                TargetKind::File,
                self.claim(level.mountns || level.landlock.is_some(), "landlock"),
                &["write", &file, &self.mark],
                &mut |_| outside.was_written(&self.mark),
            ),
            self.contest(
                chmod,
                TargetKind::File,
                self.claim(level.mountns, "mntns"),
                &["chmod", &file],
                &mut |_| outside.was_opened_up(),
            ),
        ]
    }

    /// Roots that runs may only read. The attempt sets the permissions that the directory has, which only its time of
    /// change shows.
    fn read_only_root(&self) -> Option<Probe> {
        let root = self.runner.settings().read_roots.first()?;
        let mut seen = targets::change_time(root);
        let level = self.runner.level();
        Some(self.contest(
            "change a directory that is read-only",
            TargetKind::File,
            self.claim(level.mountns, "mntns"),
            &["chmod-as-is", &root.display().to_string()],
            &mut |attempt| {
                let now = targets::change_time(root);
                let changed = std::mem::replace(&mut seen, now) != now;
                // Others may have changed the directory meanwhile.
                changed && attempt.refused.is_none()
            },
        ))
    }

    fn network(&self) -> Vec<Probe> {
        let level = self.runner.level();
        let away = if self.runner.settings().network {
            Err("allow_outbound_network is true".to_owned())
        } else {
            self.claim(level.netns || level.seccomp, "netns or seccomp")
        };
        let scoped = level.landlock.is_some_and(|abi| abi >= 6);
        let unnamed = self.claim(level.seccomp || level.netns || scoped, "seccomp");
        let outside = Outside::new(self.runner.settings(), self.cwd, &self.mark);
        let sockets = Sockets::new(outside.as_ref().ok(), &self.mark);
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
        let tried = rows
            .into_iter()
            .map(|(what, aim, claim, kind, target, ear)| {
                let Some(target) = target else {
                    return untried(what, "no such socket can be made here");
                };
                let words = [kind, &target, &self.mark];
                self.contest(what, aim, claim, &words, &mut |_| ear(&sockets, &self.mark))
            });
        tried.collect()
    }

    fn processes(&self) -> Vec<Probe> {
        let read = "read the server's environment";
        let kill = "end a process of the host";
        let level = self.runner.level();
        let mut victim = match Victim::new(&self.mark) {
            Ok(victim) => victim,
            Err(error) => {
                let why = error.to_string();
                return vec![untried(read, &why), untried(kill, &why)];
            }
        };
        let hidden = level.pidns || level.userns || level.landlock.is_some();
        let environ = format!("/proc/{}/environ", victim.pid());
        let scoped = level.landlock.is_some_and(|abi| abi >= 6);
        let mut list = vec![self.contest(
            read,
            TargetKind::Process,
            self.claim(hidden, "pidns or landlock"),
            &["read", &environ],
            &mut |attempt| attempt.got_hold_of(&self.mark),
        )];
        let claim = self.claim(level.pidns || scoped, "pidns");
        // Two of them: where it works, the first is gone.
        let pid = victim.pid().to_string();
        let free = self.free(&["kill", &pid]);
        list.push(match (free, victim.dies(), Victim::new(&self.mark)) {
            (Ok(_), true, Ok(second)) => {
                victim = second;
                let pid = victim.pid().to_string();
                let attempt = self.confined(&["kill", &pid]);
                self.judge(kill, TargetKind::Process, claim, attempt, &mut |attempt| {
                    attempt.refused.is_none() && victim.dies()
                })
            }
            _ => untried(kill, "it does not work outside the boundary either"),
        });
        list
    }

    fn token(&self) -> Probe {
        let what = "read the token in the state directory";
        let settings = self.runner.settings();
        let Some(dir) = &settings.state_dir else {
            return untried(what, "there is no state directory");
        };
        let token = match targets::Token::new(dir, &self.mark) {
            Ok(token) => token,
            Err(error) => return untried(what, &error.to_string()),
        };
        self.contest(
            what,
            TargetKind::Hidden,
            self.claim(self.runner.level().mountns, "mntns"),
            &["read", &token.path()],
            &mut |attempt| attempt.got_hold_of(&self.mark),
        )
    }

    fn home(&self) -> Vec<Probe> {
        let read = "read a credential in the home directory";
        let write = "change a file in the home directory";
        let settings = self.runner.settings();
        let Some(home) = &settings.home else {
            let why = "no home directory is known";
            return vec![untried(read, why), untried(write, why)];
        };
        let mountns = self.runner.level().mountns;
        let credential = match Credential::new(settings, home, &self.mark) {
            Ok(credential) => self.contest(
                read,
                TargetKind::Hidden,
                self.claim(mountns, "mntns"),
                &["read", &credential.path()],
                &mut |attempt| attempt.got_hold_of(&self.mark),
            ),
            Err(why) => untried(read, &why),
        };
        let file = match HomeFile::new(settings, home, &self.mark) {
            Ok(file) => self.contest(
                write,
                TargetKind::File,
                self.claim(
                    mountns || self.runner.level().landlock.is_some(),
                    "landlock",
                ),
                &["write", &file.path(), &self.mark],
                &mut |_| file.was_written(&self.mark),
            ),
            Err(why) => untried(write, &why),
        };
        vec![credential, file]
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

    /// Tries it outside, then inside. `escaped` looks at the target and makes it ready for the next attempt.
    fn contest(
        &self,
        what: &'static str,
        aim: TargetKind,
        claim: Claim,
        words: &[&str],
        escaped: &mut dyn FnMut(&Attempt) -> bool,
    ) -> Probe {
        match self.free(words) {
            Ok(attempt) if escaped(&attempt) => {
                self.judge(what, aim, claim, self.confined(words), escaped)
            }
            Ok(_) => untried(what, "it does not work outside the boundary either"),
            Err(why) => untried(what, &why),
        }
    }

    fn judge(
        &self,
        what: &'static str,
        aim: TargetKind,
        claim: Claim,
        attempt: Result<Attempt, String>,
        escaped: &mut dyn FnMut(&Attempt) -> bool,
    ) -> Probe {
        let result = match attempt {
            Err(why) => ProbeResult::Untried(why),
            Ok(attempt) => match (escaped(&attempt), claim) {
                (false, _) => ProbeResult::Held(self.layer(aim, &attempt)),
                (true, Ok(())) => ProbeResult::Escaped,
                (true, Err(why)) => ProbeResult::Open(why),
            },
        };
        Probe { what, result }
    }

    /// An attempt in a run like any other.
    fn confined(&self, words: &[&str]) -> Result<Attempt, String> {
        let argv: Vec<String> = ["llmc", ATTEMPT]
            .iter()
            .chain(words)
            .map(|&word| word.to_owned())
            .collect();
        let spec = ExecRequest {
            program: Some(&self.program),
            max_output: 1 << 20,
            ..ExecRequest::new(&argv, self.cwd, ATTEMPT_TIMEOUT)
        };
        let mut said = Vec::new();
        let mut collect = |_, bytes: &[u8]| said.extend_from_slice(bytes);
        let finished = self
            .runner
            .run(&spec, &mut collect, &CancelToken::default())
            .map_err(|error| error.to_string())?;
        if finished.timed_out {
            return Err("it took too long".to_owned());
        }
        let mut attempt = Attempt::new(said);
        attempt.quarantined = finished.quarantined;
        Ok(attempt)
    }

    /// The same attempt without a boundary.
    fn free(&self, words: &[&str]) -> Result<Attempt, String> {
        let output = own_program(words)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        output
            .map(|output| Attempt::new(output.stdout))
            .map_err(|error| error.to_string())
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
            (TargetKind::Hidden, _) => "mntns",
            (TargetKind::File, Some(Errno::ACCESS)) if level.landlock.is_some() => "landlock",
            (TargetKind::File, Some(Errno::PERM)) if level.userns => "userns",
            (TargetKind::Network, Some(Errno::PERM | Errno::ACCESS)) => filter,
            (TargetKind::Network, _) => "netns",
            (TargetKind::LocalSocket | TargetKind::AbstractSocket, _) => {
                self.socket_layer(aim, errno)
            }
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

impl Attempt {
    fn new(said: Vec<u8>) -> Attempt {
        let refused = said
            .split(|b| *b == b'\n')
            .find_map(|line| line.strip_prefix(REFUSED.as_bytes()))
            .and_then(|number| std::str::from_utf8(number).ok()?.trim().parse().ok());
        Attempt {
            got: said,
            refused,
            quarantined: Vec::new(),
        }
    }

    fn got_hold_of(&self, mark: &str) -> bool {
        self.got
            .windows(mark.len())
            .any(|part| part == mark.as_bytes())
    }
}

fn untried(what: &'static str, why: &str) -> Probe {
    Probe {
        what,
        result: ProbeResult::Untried(why.to_owned()),
    }
}

/// This executable as the hostile program, without a boundary.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
fn own_program(words: &[&str]) -> Command {
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg(ATTEMPT).args(words).env_clear();
    command
}
