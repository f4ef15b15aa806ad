//! Pipes or a terminal between the server and a run.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr,
    tcsetwinsize,
};

use super::plan::Input;

/// The size a program believes its terminal has: wide enough that few lines wrap.
const WINDOW: Winsize = Winsize {
    ws_row: 40,
    ws_col: 120,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Both ends of everything.
pub(super) struct StdioEnds {
    pub(super) ours: ServerEnds,
    pub(super) theirs: CommandEnds,
}

/// The server's ends.
pub(super) struct ServerEnds {
    pub(super) out: File,
    pub(super) err: Option<File>,
    pub(super) input: Option<File>,
}

/// The run's ends.
pub(super) struct CommandEnds {
    pub(super) out: OwnedFd,
    pub(super) err: OwnedFd,
    pub(super) input: Option<OwnedFd>,
}

impl StdioEnds {
    /// `terminals` is the folder of a session's terminals, without which a terminal is one of the host's.
    pub(super) fn new(input: Input, terminals: Option<&OwnedFd>) -> io::Result<StdioEnds> {
        match input {
            Input::Nothing | Input::Closed => StdioEnds::outputs(),
            Input::Separate => StdioEnds::outputs_and_input(),
            Input::Pipe => StdioEnds::pipes(),
            Input::Terminal => StdioEnds::terminal(terminals),
        }
    }

    /// Two outputs, kept apart.
    fn outputs() -> io::Result<StdioEnds> {
        let (out, their_out) = io::pipe()?;
        let (err, their_err) = io::pipe()?;
        Ok(StdioEnds {
            ours: ServerEnds {
                out: file(out),
                err: Some(file(err)),
                input: None,
            },
            theirs: CommandEnds {
                out: their_out.into(),
                err: their_err.into(),
                input: None,
            },
        })
    }

    /// An input, and two outputs, kept apart.
    fn outputs_and_input() -> io::Result<StdioEnds> {
        let mut ends = StdioEnds::outputs()?;
        let (their_input, input) = io::pipe()?;
        // A command that does not read must not block the thread that writes.
        rustix::io::ioctl_fionbio(&input, true)?;
        ends.ours.input = Some(file(input));
        ends.theirs.input = Some(their_input.into());
        Ok(ends)
    }

    /// An input, and one pipe for both outputs: what is written first is read first.
    fn pipes() -> io::Result<StdioEnds> {
        let (out, their_out) = io::pipe()?;
        let (their_input, input) = io::pipe()?;
        // A command that does not read must not block the writing thread.
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok(StdioEnds {
            ours: ServerEnds {
                out: file(out),
                err: None,
                input: Some(file(input)),
            },
            theirs: CommandEnds {
                err: their_out.try_clone()?.into(),
                out: their_out.into(),
                input: Some(their_input.into()),
            },
        })
    }

    /// A terminal without echo and without added carriage returns.
    fn terminal(terminals: Option<&OwnedFd>) -> io::Result<StdioEnds> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = match terminals {
            // Only such a terminal has a name that the run can look up.
            Some(dir) => {
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::openat(dir, "ptmx", flags, Mode::empty())?
            }
            None => openpt(flags)?,
        };
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let mut modes = tcgetattr(&theirs)?;
        modes.local_modes -= LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK;
        modes.output_modes -= OutputModes::ONLCR;
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&theirs, OptionalActions::Now, &modes)?;
        tcsetwinsize(&theirs, WINDOW)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let ours = File::from(ours);
        Ok(StdioEnds {
            ours: ServerEnds {
                input: Some(ours.try_clone()?),
                out: ours,
                err: None,
            },
            theirs: CommandEnds {
                out: theirs.try_clone()?,
                err: theirs.try_clone()?,
                input: Some(theirs),
            },
        })
    }
}

fn file(pipe: impl Into<OwnedFd>) -> File {
    File::from(pipe.into())
}
