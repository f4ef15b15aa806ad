//! The `te` that the server starts for a command: a process of its own, so that what a command prints, however much
//! and however odd, is read, condensed and stored outside the server.
//!
//! The server has decided what runs and has set it going inside the boundary; this process gets the run's outputs over a
//! socket, and the order below. It runs unconfined, since it writes handles, and starts nothing itself. When it is done it
//! waits for the same caller's next command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use llmc_envelope::HandleStore;
use llmc_envelope::handles::Options;
use llmc_exec::{Finished, Orders, Taken};
use llmc_host::read_below_cwd;
use serde::{Deserialize, Serialize};

use super::spool::Spool;
use super::wrap::{Ending, Shape, Wish, Wrapped, wrap};
use crate::error::{Error, Kind, ROWS};
use crate::te::SOURCE_LIMIT;

/// The hidden argument that makes this executable the `te` of a server.
pub(super) const ROLE: &str = "__te";
/// What is told of an output that was not waited for.
const ENDS: usize = 4096;

/// A process that has read more than this is not used again.
const LIGHT: u64 = 1 << 20;

/// What the server wants done with the output.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) argv: Vec<String>,
    pub(super) shape: Shape,
    pub(super) budget: usize,
    pub(super) principal: String,
    /// The state directory.
    pub(super) state: PathBuf,
    pub(super) ttl: Duration,
    pub(super) max_bytes: u64,
    pub(super) notes: Vec<String>,
}

/// What it is told in the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    Ended(Box<Ended>),
    /// The command could not be started: the kind's place in the table, the message, the hint.
    Failed(usize, String, Option<String>),
}

/// A command that is over.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) timed_out: bool,
    pub(super) capped: bool,
    pub(super) cancelled: bool,
    /// How much was printed.
    pub(super) bytes: u64,
    /// The last of both outputs, of a command that was not waited for.
    pub(super) ends: [String; 2],
    pub(super) wrapped: Wrapped,
}

impl Word {
    /// Whether the process that says this is good for another command: what a large output took is given back only with
    /// the process.
    pub(super) fn was_light(&self) -> bool {
        match self {
            Word::Ended(ended) => ended.bytes <= LIGHT,
            Word::Failed(..) => true,
        }
    }

    pub(super) fn failed(error: &Error) -> Word {
        Word::Failed(
            error.kind as usize,
            error.message.clone(),
            error.hint.clone(),
        )
    }

    pub(super) fn into_result(self) -> Result<Ended, Error> {
        match self {
            Word::Ended(ended) => Ok(*ended),
            Word::Failed(kind, message, hint) => {
                let kind = ROWS.get(kind).map_or(Kind::Internal, |row| row.kind);
                let mut error = Error::new(kind, message);
                error.hint = hint;
                Err(error)
            }
        }
    }
}

impl Ended {
    /// What a finished run and its output come to.
    pub(super) fn of(
        finished: &Finished,
        mut spool: Spool,
        wish: Wish<'_>,
        store: &dyn Fn() -> Result<HandleStore, String>,
        source: impl FnMut(&str) -> Option<String>,
    ) -> Ended {
        let mut ended = Ended {
            ending: Ending {
                exit_code: finished.exit_code,
                signal: finished.signal,
            },
            timed_out: finished.timed_out,
            capped: finished.output_capped,
            cancelled: finished.cancelled,
            bytes: spool.bytes(),
            ..Ended::default()
        };
        if finished.timed_out || finished.cancelled {
            ended.ends = spool.ends(ENDS);
        } else {
            ended.wrapped = wrap(wish, &mut spool, ended.ending, store, source);
        }
        ended
    }
}

/// Becomes the `te` of a server if that is what this process was started as, else `None`.
pub fn te_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let role = args.into_iter().nth(1)?;
    if role != ROLE {
        return None;
    }
    let Ok(mut orders) = Orders::open() else {
        return Some(ExitCode::FAILURE);
    };
    // The end of the server is the end of its orders.
    while let Ok((mut taken, order)) = orders.take::<Order>() {
        let word = carry_out(&mut taken, &order);
        if taken.report(&word).is_err() {
            break;
        }
    }
    Some(ExitCode::SUCCESS)
}

fn carry_out(taken: &mut Taken<'_>, order: &Order) -> Word {
    let mut spool = Spool::new(Some(order.state.clone()));
    let followed = taken.follow(&mut |stream, bytes| spool.push(stream, bytes));
    let finished = match followed {
        Ok(finished) => finished,
        Err(error) => return Word::failed(&error.into()),
    };
    let wish = Wish {
        argv: &order.argv,
        shape: order.shape,
        budget: order.budget,
        principal: &order.principal,
        notes: order.notes.clone(),
        say_ending: true,
    };
    let store = || {
        let options = Options {
            ttl: order.ttl,
            max_bytes: order.max_bytes,
            ..Options::default()
        };
        open_store(&order.state, options)
    };
    let source = |path: &str| String::from_utf8(read_below_cwd(path, SOURCE_LIMIT)?).ok();
    Word::Ended(Box::new(Ended::of(&finished, spool, wish, &store, source)))
}

/// The handle store of a state directory.
pub(crate) fn open_store(state: &std::path::Path, options: Options) -> Result<HandleStore, String> {
    let dir = state.join("te_handles");
    if dir.is_symlink() {
        return Err("te_handles is a link".to_owned());
    }
    HandleStore::open(&dir, options).map_err(|error| error.to_string())
}
