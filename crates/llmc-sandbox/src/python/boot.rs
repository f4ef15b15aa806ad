//! The program that Python runs first, and how it is started inside the boundary.

use std::time::Duration;

use llmc_exec::{ExecRequest, GitAccess, RunOwner, RunPipes, RunReport, Stream};
use llmc_host::{CancelToken, OpenDir};

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
const COMPILE: &str = "import sys,marshal,binascii as b\n\
    code = compile(sys.argv[1], '<boot>', 'exec', 0, True, 2)\n\
    sys.stdout.write(b.b2a_base64(marshal.dumps(code), newline=False).decode())\n";
/// Runs a compiled program: how many arguments hold it, and those.
const LOAD: &str = "import sys,marshal,binascii as b\n\
    exec(marshal.loads(b.a2b_base64(''.join(sys.argv.pop(1) for _ in range(int(sys.argv.pop(1)))))))\n";
/// The compiled program in one argument.
const MAX_PART_BYTES: usize = 100 << 10;
const MAX_COMPILED_BYTES: usize = 1 << 20;

impl Interpreter {
    /// The program as arguments: a loader and the compiled form, so that no process has to compile it, or else the source.
    fn boot(&self) -> &[String] {
        self.boot.get_or_init(|| {
            let Some(text) = self.compiled() else {
                return vec![BOOT_SCRIPT.to_owned()];
            };
            let parts = text.as_bytes().chunks(MAX_PART_BYTES);
            let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
            let count = text.len().div_ceil(MAX_PART_BYTES).to_string();
            [LOAD.to_owned(), count].into_iter().chain(parts).collect()
        })
    }

    /// The compiled program in base64.
    fn compiled(&self) -> Option<String> {
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
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let text = String::from_utf8(printed).ok()?;
        let is_whole = ran.is_ok_and(|ran| ran.status.is_success() && !ran.output_capped);
        (is_whole && !text.is_empty() && text.bytes().all(|byte| is_base64(&byte))).then_some(text)
    }

    /// Runs the interpreter to its end; `begin` gets its pipes.
    pub(super) fn run(
        &self,
        timeout: Duration,
        begin: impl FnOnce(RunPipes),
    ) -> llmc_exec::Result<RunReport> {
        let cwd = self.cwd()?;
        let (argv, env) = (self.argv(self.boot()), environment());
        let spec = self.request(&argv, &env, &cwd, timeout);
        self.runner.run_interactive(&spec, begin)
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
