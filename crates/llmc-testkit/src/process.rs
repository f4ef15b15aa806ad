//! A child process whose output is read as it comes; every wait for it has a time limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Time limit of every wait in a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A running child. Killed when dropped.
#[derive(Debug)]
pub struct TestProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    stderr: Arc<StderrBuffer>,
    stderr_reader: Option<JoinHandle<()>>,
}

/// Standard error so far, and a signal for new output.
#[derive(Debug, Default)]
struct StderrBuffer {
    text: Mutex<Vec<u8>>,
    more: Condvar,
}

/// Exit status and output of a finished child.
#[derive(Debug)]
pub struct ProcessOutput {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// What was left unread on standard output.
    pub stdout: String,
    pub stderr: String,
    /// How long its end was waited for.
    pub took: Duration,
}

impl TestProcess {
    /// Starts it with all three standard streams as pipes.
    pub fn start(mut command: Command) -> TestProcess {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (send, lines) = channel();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while out
                .read_until(b'\n', &mut line)
                .is_ok_and(|count| count > 0)
            {
                if send.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(StderrBuffer::default());
        let (sink, mut err) = (stderr.clone(), child.stderr.take().unwrap());
        let stderr_reader = std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = err.read(&mut block) {
                let mut text = sink.text.lock().unwrap();
                text.extend_from_slice(&block[..count]);
                drop(text);
                sink.more.notify_all();
            }
        });
        TestProcess {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr,
            stderr_reader: Some(stderr_reader),
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Writes to its standard input; false when the reader has closed it.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let stdin = self.stdin.as_mut().expect("standard input is still open");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).is_ok()
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of its standard output with its line end; `None` at the end.
    ///
    /// # Panics
    /// Nothing comes within [`TEST_TIMEOUT`].
    pub fn line(&self) -> Option<Vec<u8>> {
        match self.lines.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!(
                    "no line within {TEST_TIMEOUT:?}; stderr:\n{}",
                    self.stderr()
                )
            }
        }
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.text.lock().unwrap()).into_owned()
    }

    /// Waits for a line on standard error for which `find` returns a value.
    ///
    /// # Panics
    /// None comes within [`TEST_TIMEOUT`].
    pub fn wait_for_stderr<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut text = self.stderr.text.lock().unwrap();
        loop {
            let lines = String::from_utf8_lossy(&text).into_owned();
            let whole = lines.rfind('\n').map_or("", |end| &lines[..end]);
            if let Some(found) = whole.lines().find_map(&find) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "not found on stderr within {TEST_TIMEOUT:?}:\n{lines}"
            );
            text = self.stderr.more.wait_timeout(text, left).unwrap().0;
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Closes standard input and waits for the end.
    pub fn finish(mut self) -> ProcessOutput {
        self.close_stdin();
        self.wait()
    }

    /// Waits for the end, with standard input left as it is.
    ///
    /// # Panics
    /// It does not end within [`TEST_TIMEOUT`].
    pub fn wait(mut self) -> ProcessOutput {
        let started = Instant::now();
        let status = self.status();
        let took = started.elapsed();
        let mut stdout = Vec::new();
        while let Some(line) = self.line() {
            stdout.extend(line);
        }
        self.stderr_reader.take().unwrap().join().unwrap();
        ProcessOutput {
            code: status.code(),
            signal: status.signal(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: self.stderr(),
            took,
        }
    }

    fn status(&mut self) -> ExitStatus {
        // A descriptor for the process: waiting on it has a limit, which waiting for the child has not.
        if let Ok(descriptor) = pidfd_open(self.pid(), PidfdFlags::empty()) {
            let limit = Timespec {
                tv_sec: i64::try_from(TEST_TIMEOUT.as_secs()).unwrap(),
                tv_nsec: 0,
            };
            let ready = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
            assert!(
                ready.unwrap() > 0,
                "still running after {TEST_TIMEOUT:?}; stderr:\n{}",
                self.stderr()
            );
        }
        self.child.wait().unwrap()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
