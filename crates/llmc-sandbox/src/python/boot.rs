//! The program that Python runs first, and how it is started inside the boundary.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use llmc_exec::{ExecRequest, GitAccess, RunOwner, RunPipes, RunReport, SessionPlace, Stream};
use llmc_host::{CancelToken, OpenDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::interpreter::Interpreter;
use super::process::START_TIMEOUT;

const BOOT_SCRIPT: &str = concat!(
    include_str!("images.py"),
    include_str!("files.py"),
    include_str!("programs.py"),
    include_str!("results.py"),
    include_str!("boot.py"),
);
/// The kernel's bound on one argument is 128 KiB.
const _: () = assert!(BOOT_SCRIPT.len() < 120 << 10);
/// Prints the compiled form of the program that follows. Compiling takes most of a start.
const COMPILE: &str = "import sys,marshal\n\
    code = compile(sys.argv[1], '<boot>', 'exec', 0, True, 2)\n\
    sys.stdout.buffer.write(marshal.dumps(code))\n";
/// Runs a compiled program of so many bytes, which comes first in its input: an argument would stand in every list of
/// processes.
const LOAD: &str = "import os,sys,marshal\n\
    size,code=int(sys.argv.pop(1)),b''\n\
    while len(code)<size:\n \
     part=os.read(0,size-len(code))\n \
     if not part: sys.exit(1)\n \
     code+=part\n\
    code=marshal.loads(code)\n\
    exec(code)\n";
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// How an interpreter gets the program that it runs first.
#[derive(Debug)]
pub(super) struct Boot {
    argv: Vec<String>,
    /// What comes first in its input.
    input: Vec<u8>,
}

impl Interpreter {
    /// The program compiled, so that no process has to compile it, or else its source.
    fn boot(&self) -> &Boot {
        self.boot.get_or_init(|| match self.compiled() {
            Some(code) => Boot {
                argv: vec![LOAD.to_owned(), code.len().to_string()],
                input: code,
            },
            None => Boot {
                argv: vec![BOOT_SCRIPT.to_owned()],
                input: Vec::new(),
            },
        })
    }

    fn compiled(&self) -> Option<Vec<u8>> {
        let cwd = self.cwd().ok()?;
        let argv = self.argv(&[COMPILE.to_owned(), BOOT_SCRIPT.to_owned()]);
        let env = environment();
        let spec = ExecRequest {
            max_output: MAX_COMPILED_BYTES as u64,
            ..self.request(&argv, &env, &cwd, START_TIMEOUT)
        };
        let mut printed = Vec::new();
        let mut collect = |stream, bytes: &[u8]| {
            if stream == Stream::Stdout {
                printed.extend_from_slice(bytes);
            }
        };
        let ran = self
            .runner
            .run(&spec, &mut collect, &CancelToken::default());
        let is_whole = ran.is_ok_and(|ran| ran.status.is_success() && !ran.output_capped);
        (is_whole && !printed.is_empty()).then_some(printed)
    }

    /// Runs the interpreter to its end; `begin` gets its pipes.
    pub(super) fn run(
        &self,
        timeout: Duration,
        place: Option<SessionPlace>,
        begin: impl FnOnce(RunPipes),
    ) -> llmc_exec::Result<RunReport> {
        let cwd = self.cwd()?;
        let boot = self.boot();
        let (argv, env) = (self.argv(&boot.argv), environment());
        let spec = self.request(&argv, &env, &cwd, timeout);
        self.runner.run_interactive(&spec, place, |pipes| {
            // One that does not read its program ends before its hello, which is noticed.
            let _ = write_before(&pipes.input, &boot.input, Instant::now() + START_TIMEOUT);
            begin(pipes);
        })
    }

    fn argv(&self, program: &[String]) -> Vec<String> {
        // By a bare name Python would look itself up in PATH and might take the library of another.
        let name = [self.program.path.display().to_string()];
        let options = ["-I", "-S", "-B", "-X", "utf8", "-c"].map(str::to_owned);
        let program = program.iter().cloned();
        let argument = [self.argument.clone()];
        let all = name.into_iter().chain(options).chain(program);
        all.chain(argument).collect()
    }

    fn request<'a>(
        &'a self,
        argv: &'a [String],
        env: &'a [(String, String)],
        cwd: &'a OpenDir,
        timeout: Duration,
    ) -> ExecRequest<'a> {
        ExecRequest {
            argv,
            program: Some(&self.program),
            cwd,
            timeout,
            env,
            max_output: u64::MAX,
            owner: RunOwner::default(),
            git: GitAccess::ReadOnly,
        }
    }
}

fn environment() -> [(String, String); 4] {
    let env = [
        ("HOME", "/tmp"),
        ("USER", "nobody"),
        ("LOGNAME", "nobody"),
        ("MALLOC_ARENA_MAX", "2"),
    ];
    env.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Writes to an input that does not block, as its reader reads.
fn write_before(mut input: &File, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
                if poll(&mut [PollFd::new(&input, PollFlags::OUT)], Some(&timeout))? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
