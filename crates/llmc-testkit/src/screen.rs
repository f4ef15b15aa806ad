//! A program in a terminal, and what that terminal shows.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::process::TEST_TIMEOUT;

/// Lines and columns at the start.
const SCREEN_SIZE: (u16, u16) = (30, 120);
/// Written after the program has ended: whatever it wrote came before.
const END_MARK: &str = "(the end)";

/// A program whose three standard streams are a terminal of 120 columns and 30 lines. Killed when dropped.
pub struct TestScreen {
    child: Child,
    master: Option<File>,
    /// Our own end of its terminal, to look at the modes.
    slave: File,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    raw: Vec<u8>,
    before: Termios,
}

impl TestScreen {
    /// Starts it. It gets no controlling terminal, so signals of the keyboard do not reach it.
    pub fn start(mut command: Command) -> TestScreen {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let end = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            File::from(open(&name, flags, Mode::empty()).unwrap())
        };
        tcsetwinsize(&master, winsize(SCREEN_SIZE)).unwrap();
        let slave = end();
        let before = tcgetattr(&slave).unwrap();
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(end()))
            .stdout(Stdio::from(end()))
            .stderr(Stdio::from(end()))
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut block) {
                if send.send(block[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        TestScreen {
            child,
            master: Some(master),
            slave,
            output,
            parser: vt100::Parser::new(SCREEN_SIZE.0, SCREEN_SIZE.1, 0),
            raw: Vec::new(),
            before,
        }
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        let master = self.master.as_mut().expect("not hung up");
        master.write_all(keys.as_bytes()).unwrap();
    }

    /// Makes the terminal another size and tells the program, as a controlling terminal would.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.slave, winsize((rows, columns))).unwrap();
        self.parser.screen_mut().set_size(rows, columns);
        self.signal(Signal::WINCH);
    }

    /// What the terminal shows.
    pub fn vt(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Everything that was written to it.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Whether keys reach the program one by one and are not echoed.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits until this is so.
    ///
    /// # Panics
    /// It is not within [`TEST_TIMEOUT`].
    pub fn until(&mut self, what: &str, is_so: impl Fn(&TestScreen) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !is_so(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let shown = |screen: &TestScreen| screen.vt().contents();
            match self.output.recv_timeout(left) {
                Ok(bytes) => {
                    self.parser.process(&bytes);
                    self.raw.extend(bytes);
                }
                Err(RecvTimeoutError::Timeout) => panic!("never: {what}\n{}", shown(self)),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended before: {what}\n{}", shown(self))
                }
            }
        }
    }

    /// Waits until the terminal shows this text.
    pub fn shows(&mut self, text: &str) {
        self.until(text, |screen| screen.vt().contents().contains(text));
    }

    /// Waits until this text has been written, even if something else has taken its place since.
    pub fn wait_for_output(&mut self, text: &str) {
        self.until(text, |screen| screen.raw().contains(text));
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Takes the terminal away, as a closed window does.
    pub fn hang_up(&mut self) {
        // The reading thread holds the terminal as well, and closes it when its channel has no receiver.
        let (_, disconnected) = channel();
        self.output = disconnected;
        self.slave.write_all(b"x").unwrap();
        self.master = None;
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Waits for the end; the exit code.
    ///
    /// # Panics
    /// It does not end within [`TEST_TIMEOUT`].
    pub fn wait(&mut self) -> Option<i32> {
        let descriptor = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let limit = Timespec {
            tv_sec: i64::try_from(TEST_TIMEOUT.as_secs()).unwrap(),
            tv_nsec: 0,
        };
        let ready = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
        assert!(
            ready.unwrap() > 0,
            "still running:\n{}",
            self.vt().contents()
        );
        self.child.wait().unwrap().code()
    }

    /// Waits for the end; what the terminal then shows, the exit code, and everything that was written.
    ///
    /// # Panics
    /// The terminal is not as it was before.
    pub fn ended(mut self) -> (String, Option<i32>, String) {
        let code = self.wait();
        self.slave.write_all(END_MARK.as_bytes()).unwrap();
        self.shows(END_MARK);
        assert!(!self.vt().alternate_screen(), "still on the other screen");
        assert!(!self.vt().hide_cursor(), "the cursor is hidden");
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before), "modes");
        (self.vt().contents(), code, self.raw())
    }
}

impl std::fmt::Debug for TestScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("shows", &self.vt().contents())
            .finish_non_exhaustive()
    }
}

impl Drop for TestScreen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize((rows, columns): (u16, u16)) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
