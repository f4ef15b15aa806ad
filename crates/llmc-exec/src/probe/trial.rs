//! Escape tests while they are made: all of them outside the boundary, then all inside, each judged by its target.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Claim, Probe, ProbeResult, Prober, TargetKind, untried};
use crate::follow::Stream;
use crate::plan::{ATTEMPT, NEXT_ATTEMPT, REFUSED};
use crate::quarantine::Quarantined;
use crate::runner::ExecRequest;
use llmc_host::CancelToken;

/// How long the attempts of one process may take.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(20);
/// More than what they may read holds.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// An escape test: one that is to be made, or one that has its result.
pub(super) enum Test<'t> {
    Trial(Trial<'t>),
    Done(Probe),
}

/// Looks at the target of an attempt and makes it ready for the next; whether the attempt reached it.
type Escaped<'t> = Box<dyn FnMut(&Attempt) -> bool + 't>;

/// An escape test that is to be made.
pub(super) struct Trial<'t> {
    what: &'static str,
    aim: TargetKind,
    claim: Claim,
    /// The attempt outside the boundary; none where only the real place will do, which is `place`.
    outside: Option<Vec<String>>,
    inside: Vec<String>,
    place: Option<PathBuf>,
    escaped: Escaped<'t>,
}

/// What an attempt came to.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// What it got hold of.
    got: Vec<u8>,
    /// The kernel's number, if it was refused.
    pub(super) refused: Option<i32>,
    /// What it planted and was taken away.
    pub(super) quarantined: Vec<Quarantined>,
}

impl From<Probe> for Test<'_> {
    fn from(probe: Probe) -> Self {
        Test::Done(probe)
    }
}

impl<'t> Trial<'t> {
    /// The same attempt outside and inside.
    #[expect(clippy::new_ret_no_self, reason = "tests are what lists hold")]
    pub(super) fn new(
        what: &'static str,
        aim: TargetKind,
        claim: Claim,
        words: &[&str],
        escaped: impl FnMut(&Attempt) -> bool + 't,
    ) -> Test<'t> {
        Trial::with_other_target(what, aim, claim, words, words, escaped)
    }

    /// For an attempt that leaves nothing of its target.
    pub(super) fn with_other_target(
        what: &'static str,
        aim: TargetKind,
        claim: Claim,
        outside: &[&str],
        inside: &[&str],
        escaped: impl FnMut(&Attempt) -> bool + 't,
    ) -> Test<'t> {
        Test::Trial(Trial {
            what,
            aim,
            claim,
            outside: Some(owned(outside)),
            inside: owned(inside),
            place: None,
            escaped: Box::new(escaped),
        })
    }

    /// At a place of the user's, which the boundary always keeps; only inside.
    pub(super) fn at_real_place(
        what: &'static str,
        place: &Path,
        words: &[&str],
        escaped: impl FnMut(&Attempt) -> bool + 't,
    ) -> Test<'t> {
        Test::Trial(Trial {
            what,
            aim: TargetKind::File,
            claim: Ok(()),
            outside: None,
            inside: owned(words),
            place: Some(place.to_owned()),
            escaped: Box::new(escaped),
        })
    }

    /// At a place of the user's where nothing may be made for a test; only inside.
    pub(super) fn only_inside(
        what: &'static str,
        claim: Claim,
        words: &[&str],
        escaped: impl FnMut(&Attempt) -> bool + 't,
    ) -> Test<'t> {
        Test::Trial(Trial {
            what,
            aim: TargetKind::File,
            claim,
            outside: None,
            inside: owned(words),
            place: None,
            escaped: Box::new(escaped),
        })
    }

    /// Whether the attempt works outside the boundary; if not, the test proves nothing.
    fn works_outside(&mut self, attempt: Result<Attempt, String>) -> Result<(), String> {
        match attempt {
            Ok(attempt) if (self.escaped)(&attempt) => Ok(()),
            Ok(_) => Err("it does not work outside the boundary either".to_owned()),
            Err(why) => Err(why),
        }
    }
}

impl Prober<'_> {
    /// Makes all tests and judges them, in their order.
    pub(super) fn run(&self, mut tests: Vec<Test<'_>>) -> Vec<Probe> {
        let outside = tests.iter().filter_map(|test| match test {
            Test::Trial(trial) => trial.outside.clone(),
            Test::Done(_) => None,
        });
        let mut attempts = self.outside(&outside.collect::<Vec<_>>()).into_iter();
        for test in &mut tests {
            let Test::Trial(trial) = test else { continue };
            if trial.outside.is_none() {
                continue;
            }
            let attempt = attempts.next().unwrap_or_else(not_made);
            if let Err(why) = trial.works_outside(attempt) {
                *test = untried(trial.what, &why).into();
            }
        }
        let inside = tests.iter().filter_map(|test| match test {
            Test::Trial(trial) => Some(trial.inside.clone()),
            Test::Done(_) => None,
        });
        let (attempts, quarantined) = self.inside(&inside.collect::<Vec<_>>());
        let mut attempts = attempts.into_iter();
        let judged = tests.into_iter().map(|test| match test {
            Test::Trial(trial) => {
                let attempt = attempts.next().unwrap_or_else(not_made);
                self.judge(trial, attempt, &quarantined)
            }
            Test::Done(probe) => probe,
        });
        judged.collect()
    }

    fn judge(
        &self,
        mut trial: Trial<'_>,
        attempt: Result<Attempt, String>,
        quarantined: &[Quarantined],
    ) -> Probe {
        let result = match attempt {
            Err(why) => ProbeResult::Untried(why),
            Ok(mut attempt) => {
                if let Some(place) = &trial.place {
                    let is_there = |taken: &&Quarantined| {
                        taken.path.starts_with(place) || place.starts_with(&taken.path)
                    };
                    let taken = quarantined.iter().filter(is_there);
                    attempt.quarantined = taken.cloned().collect();
                }
                match ((trial.escaped)(&attempt), trial.claim) {
                    (false, _) => ProbeResult::Held(self.layer(trial.aim, &attempt)),
                    (true, Ok(())) => ProbeResult::Escaped,
                    (true, Err(why)) => ProbeResult::Open(why),
                }
            }
        };
        let what = trial.what;
        Probe { what, result }
    }

    /// Attempts in a run like any other, and what was taken away after it. Those that one process does not get to, as it
    /// was ended, are made by others.
    fn inside(&self, list: &[Vec<String>]) -> (Vec<Result<Attempt, String>>, Vec<Quarantined>) {
        let (mut made, mut quarantined) = (Vec::new(), Vec::new());
        while made.len() < list.len() {
            let argv = argv("llmc", &list[made.len()..]);
            let spec = ExecRequest {
                program: Some(&self.program),
                max_output: MAX_OUTPUT_BYTES,
                ..ExecRequest::new(&argv, self.cwd, ATTEMPTS_TIMEOUT)
            };
            let mut said = Vec::new();
            let mut collect = |stream, bytes: &[u8]| {
                if stream == Stream::Stdout {
                    said.extend_from_slice(bytes);
                }
            };
            let ran = self
                .runner
                .run(&spec, &mut collect, &CancelToken::default());
            made.extend(attempts_of(&said).map(Ok));
            match ran {
                Ok(ran) => {
                    quarantined.extend(ran.quarantined);
                    if made.len() < list.len() {
                        made.push(match ran.timed_out {
                            true => Err("it took too long".to_owned()),
                            false => Err("the process that makes it was ended".to_owned()),
                        });
                    }
                }
                Err(error) => made.push(Err(error.to_string())),
            }
        }
        made.truncate(list.len());
        (made, quarantined)
    }

    /// The same attempts without a boundary.
    fn outside(&self, list: &[Vec<String>]) -> Vec<Result<Attempt, String>> {
        let output = own_program(&argv("llmc", list)[2..])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        match output {
            Ok(output) => attempts_of(&output.stdout).map(Ok).collect(),
            Err(error) => list.iter().map(|_| Err(error.to_string())).collect(),
        }
    }
}

impl Attempt {
    fn new(got: Vec<u8>) -> Attempt {
        let refused = got
            .strip_prefix(REFUSED.as_bytes())
            .and_then(|number| std::str::from_utf8(number).ok()?.trim().parse().ok());
        Attempt {
            got,
            refused,
            quarantined: Vec::new(),
        }
    }

    pub(super) fn got_hold_of(&self, mark: impl AsRef<[u8]>) -> bool {
        let mark = mark.as_ref();
        self.got.windows(mark.len()).any(|part| part == mark)
    }
}

/// What the process says of its attempts, as far as it got.
fn attempts_of(said: &[u8]) -> impl Iterator<Item = Attempt> {
    let mut rest = said;
    std::iter::from_fn(move || {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        let got = rest[end + 1..].get(..length)?;
        rest = &rest[end + 1 + length..];
        Some(Attempt::new(got.to_vec()))
    })
}

fn not_made() -> Result<Attempt, String> {
    Err("the process that makes it was ended".to_owned())
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The command line that makes attempts.
fn argv(name: &str, list: &[Vec<String>]) -> Vec<String> {
    let words = list.join(&NEXT_ATTEMPT.to_owned());
    let first = [name.to_owned(), ATTEMPT.to_owned()];
    first.into_iter().chain(words).collect()
}

/// This executable as the hostile program, without a boundary.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
pub(super) fn own_program(words: &[String]) -> Command {
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg(ATTEMPT).args(words).env_clear();
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_as_far_as_they_are_whole() {
        let said = b"0\n5\na\nb\nc16\nllmc-refused 13\n9\ncut";
        let found: Vec<Attempt> = attempts_of(said).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[1].got, b"a\nb\nc");
        assert_eq!(found[2].refused, Some(13));
    }
}
