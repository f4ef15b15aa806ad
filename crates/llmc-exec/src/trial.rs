//! Ways out of the boundary, tried for real: the proof behind what a [`Level`] says.
//!
//! Each is tried twice by this very executable: outside the boundary, where it must work or the trial proves nothing, and
//! then in a run like any other. What counts is what became of the target on the host, never what the run says of
//! itself. Targets are made for the trial, next to the real ones, and nothing of the user's is changed: where only the
//! real place will do, the attempt is to open it, or to plant a file that is taken away again.

mod planting;
mod scene;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use ulid::Ulid;

use self::scene::{Outside, Sockets, Victim};
use super::level::Level;
use super::plan::{ATTEMPT, REFUSED};
use super::programs::Program;
use super::protect::Quarantined;
use super::runner::{Runner, Spec};
use llmc_host::CancelToken;
use llmc_host::OpenDir;

/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One way out, and how the attempt went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// What was tried.
    pub what: &'static str,
    /// How it went.
    pub verdict: Verdict,
}

/// How an attempt to get out went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It failed; by which layer, in the words of [`Level`].
    Held(String),
    /// It worked, though the level says that it cannot.
    Escaped,
    /// It works, and the level or the configuration says so; why.
    Open(String),
    /// It could not be tried; why.
    Untried(String),
}

/// Tries every way out, from a working directory inside the roots.
pub fn trials(runner: &Runner, cwd: &OpenDir) -> Vec<Trial> {
    let court = match Program::own() {
        Ok(program) => Court {
            runner,
            cwd,
            program,
            mark: format!("llmc-trial-{}", Ulid::new()),
        },
        Err(error) => {
            return vec![Trial {
                what: "start this executable in the boundary",
                verdict: Verdict::Untried(error.to_string()),
            }];
        }
    };
    let mut list = court.files();
    list.extend(court.network());
    list.extend(court.processes());
    list.push(court.token());
    list.extend(court.protected());
    list
}

/// Whether the level says that an attempt fails; if not, why.
type Claim = Result<(), String>;

/// What an attempt is aimed at; the kernel's numbers mean different layers for each.
#[derive(Debug, Clone, Copy)]
enum Aim {
    File,
    Hidden,
    Network,
    Socket,
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

/// Where attempts are judged.
struct Court<'a> {
    runner: &'a Runner,
    cwd: &'a OpenDir,
    program: Program,
    /// Goes into everything made here, so that it is known again.
    mark: String,
}

impl Court<'_> {
    fn files(&self) -> Vec<Trial> {
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
                Aim::File,
                self.claim(level.mountns || level.landlock.is_some(), "landlock"),
                &["write", &file, &self.mark],
                &mut |_| outside.was_written(&self.mark),
            ),
            self.contest(
                chmod,
                Aim::File,
                self.claim(level.mountns, "mntns"),
                &["chmod", &file],
                &mut |_| outside.was_opened_up(),
            ),
        ]
    }

    fn network(&self) -> Vec<Trial> {
        let level = self.runner.level();
        let away = match self.runner.settings().network {
            true => Err("allow_outbound_network is true".to_owned()),
            false => self.claim(level.netns || level.seccomp, "netns or seccomp"),
        };
        let scoped = level.landlock.is_some_and(|abi| abi >= 6);
        let unnamed = self.claim(level.seccomp || level.netns || scoped, "seccomp");
        let outside = Outside::new(self.runner.settings(), self.cwd, &self.mark);
        let sockets = Sockets::new(outside.as_ref().ok(), &self.mark);
        type Ear = fn(&Sockets, &str) -> bool;
        type Row = (&'static str, Aim, Claim, &'static str, Option<String>, Ear);
        let rows: [Row; 4] = [
            (
                "open a TCP connection",
                Aim::Network,
                away.clone(),
                "tcp",
                sockets.tcp_address(),
                Sockets::tcp_heard,
            ),
            (
                "send a UDP datagram (DNS)",
                Aim::Network,
                away,
                "udp",
                sockets.udp_address(),
                Sockets::udp_heard,
            ),
            (
                "connect to a unix socket of the host",
                Aim::Socket,
                self.claim(level.seccomp, "seccomp"),
                "unix",
                sockets.unix_path(),
                Sockets::unix_heard,
            ),
            (
                "connect to an abstract socket",
                Aim::Socket,
                unnamed,
                "abstract",
                sockets.abstract_name(),
                Sockets::abstract_heard,
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

    fn processes(&self) -> Vec<Trial> {
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
            Aim::Process,
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
                self.judge(kill, Aim::Process, claim, attempt, &mut |attempt| {
                    attempt.refused.is_none() && victim.dies()
                })
            }
            _ => untried(kill, "it does not work outside the boundary either"),
        });
        list
    }

    fn token(&self) -> Trial {
        let what = "read the token in the state directory";
        let settings = self.runner.settings();
        let Some(dir) = &settings.state_dir else {
            return untried(what, "there is no state directory");
        };
        let token = match scene::Token::new(dir, &self.mark) {
            Ok(token) => token,
            Err(error) => return untried(what, &error.to_string()),
        };
        self.contest(
            what,
            Aim::Hidden,
            self.claim(self.runner.level().mountns, "mntns"),
            &["read", &token.path()],
            &mut |attempt| attempt.got_hold_of(&self.mark),
        )
    }

    fn claim(&self, holds: bool, needs: &str) -> Claim {
        match holds {
            true => Ok(()),
            false if *self.runner.level() == Level::OFF => Err("confinement is off".to_owned()),
            false => Err(format!("needs {needs}, which this kernel does not give")),
        }
    }

    /// Tries it outside, then inside. `escaped` looks at the target and makes it ready for the next attempt.
    fn contest(
        &self,
        what: &'static str,
        aim: Aim,
        claim: Claim,
        words: &[&str],
        escaped: &mut dyn FnMut(&Attempt) -> bool,
    ) -> Trial {
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
        aim: Aim,
        claim: Claim,
        attempt: Result<Attempt, String>,
        escaped: &mut dyn FnMut(&Attempt) -> bool,
    ) -> Trial {
        let verdict = match attempt {
            Err(why) => Verdict::Untried(why),
            Ok(attempt) => match (escaped(&attempt), claim) {
                (false, _) => Verdict::Held(self.layer(aim, &attempt)),
                (true, Ok(())) => Verdict::Escaped,
                (true, Err(why)) => Verdict::Open(why),
            },
        };
        Trial { what, verdict }
    }

    /// An attempt in a run like any other.
    fn confined(&self, words: &[&str]) -> Result<Attempt, String> {
        let argv: Vec<String> = ["llmc", ATTEMPT]
            .iter()
            .chain(words)
            .map(|&word| word.to_owned())
            .collect();
        let spec = Spec {
            argv: &argv,
            program: Some(&self.program),
            cwd: self.cwd,
            timeout: PATIENCE,
            env: &[],
            max_output: 1 << 20,
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
    fn layer(&self, aim: Aim, attempt: &Attempt) -> String {
        let level = self.runner.level();
        let filter = match level.seccomp {
            true => "seccomp",
            false => "landlock",
        };
        let errno = attempt.refused.map(Errno::from_raw_os_error);
        let layer = match (aim, errno) {
            (Aim::File, None) if !attempt.quarantined.is_empty() => "taken away after the run",
            (Aim::File | Aim::Hidden, Some(Errno::ROFS)) => "mntns",
            (Aim::Hidden, _) => "mntns",
            (Aim::File, Some(Errno::ACCESS)) if level.landlock.is_some() => "landlock",
            (Aim::File, Some(Errno::PERM)) if level.userns => "userns",
            (Aim::Network, Some(Errno::PERM | Errno::ACCESS)) => filter,
            (Aim::Network, _) => "netns",
            (Aim::Socket, Some(Errno::PERM | Errno::ACCESS)) => filter,
            (Aim::Socket, _) => "netns",
            (Aim::Process, Some(Errno::PERM | Errno::ACCESS)) if !level.pidns => "landlock",
            (Aim::Process, _) => "pidns",
            (Aim::File, _) => "file permissions",
        };
        layer.to_owned()
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

fn untried(what: &'static str, why: &str) -> Trial {
    Trial {
        what,
        verdict: Verdict::Untried(why.to_owned()),
    }
}

/// This executable as the hostile program, without a boundary.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-host starts programs"
)]
fn own_program(words: &[&str]) -> Command {
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg(ATTEMPT).args(words).env_clear();
    command
}
