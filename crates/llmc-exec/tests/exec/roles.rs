//! Other parts this binary plays: a server to be killed, an ordinary user, a container without namespaces.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use llmc_exec::{Confinement, Runner};
use llmc_host::CancelToken;

use crate::world::World;

/// Set in processes that this binary has started to run the suite.
const POISONED: &str = "EXEC_TEST_POISONED";
/// Set where namespaces are forbidden.
const CONTAINER: &str = "EXEC_TEST_CONTAINER";
const NOBODY: u32 = 65534;

/// Secrets that no command inherits, and a setting that every command does.
const POISON: &[(&str, &str)] = &[
    ("LLMC_MCP_TOKEN", "poison"),
    ("LLMC_ROOT", "/poison"),
    ("OPENAI_API_KEY", "poison"),
    ("DATABASE_URL", "postgres://ann:poison@localhost/shop"),
    ("SSH_AUTH_SOCK", "/poison"),
    ("PLAIN_SETTING", "passes"),
];

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    if without_namespaces() {
        return;
    }
    add("what_the_kernel_has_is_used", every_feature);
    add("the_suite_in_a_container", in_container);
    if rustix::process::geteuid().is_root() {
        add("the_suite_as_an_ordinary_user", as_user);
    }
}

pub(crate) fn without_namespaces() -> bool {
    std::env::var_os(CONTAINER).is_some()
}

/// Whether no other trial runs at the same time, so that this process's children and descriptors are one trial's own.
pub(crate) fn is_alone() -> bool {
    std::env::args().any(|argument| argument == "--test-threads=1")
}

/// Plays a part if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["__server", base, confinement] => Some(server(base.into(), confinement)),
        ["__keeper", base, confinement] => Some(keeper(base.into(), confinement)),
        ["__halted", base] => {
            crate::git_mirror::halt(&World::at(base.into()));
            Some(ExitCode::FAILURE)
        }
        ["__container", ref rest @ ..] => Some(container(rest)),
        _ if std::env::var_os(POISONED).is_none() => {
            let mut again = Command::new(std::env::current_exe().ok()?);
            again
                .args(args)
                .env(POISONED, "1")
                .envs(POISON.iter().copied());
            Some(code(again))
        }
        _ => None,
    }
}

fn code(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(101)).unwrap_or(101)),
        Err(error) => panic!("{error}"),
    }
}

/// A server with stubborn processes, to be killed.
fn keeper(base: PathBuf, confinement: &str) -> ExitCode {
    crate::processes::keep(&World::at(base), named(confinement));
    ExitCode::FAILURE
}

fn named(confinement: &str) -> Confinement {
    match confinement {
        "off" => Confinement::Off,
        _ => Confinement::Auto,
    }
}

/// A server with a stubborn run, to be killed.
fn server(base: PathBuf, confinement: &str) -> ExitCode {
    let world = World::at(base);
    let confinement = named(confinement);
    let runner = Runner::open(world.settings(confinement)).unwrap();
    let argv = ["attack", "double-fork", "life"];
    let _ = world.try_run_for(
        &runner,
        &argv,
        Duration::from_secs(60),
        100,
        &CancelToken::default(),
    );
    ExitCode::FAILURE
}

/// Forbids namespaces as container runtimes do, then runs the suite.
fn container(args: &[&str]) -> ExitCode {
    use seccompiler::{SeccompAction, SeccompFilter};
    let filter = SeccompFilter::new(
        std::iter::once((nix::libc::SYS_unshare, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(nix::libc::EPERM as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    let mut suite = Command::new(std::env::current_exe().unwrap());
    suite.args(args).env(CONTAINER, "1");
    code(suite)
}

fn as_user() {
    suite(Some(NOBODY), &[]);
}

fn in_container() {
    suite(None, &["__container"]);
}

/// The whole suite in another process, as another user if one is given.
fn suite(user: Option<u32>, first: &[&str]) {
    let dir = tempfile::Builder::new()
        .prefix("exec-suite-")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // This binary may lie where another user cannot reach it.
    let binary = dir.path().join("suite");
    // A child copies it: a descriptor that this process opens for writing could be inherited by a program that another
    // test starts at that moment, and the kernel executes no file that is open for writing.
    let mut copy = Command::new("install");
    copy.arg("--mode=755").arg(std::env::current_exe().unwrap());
    assert!(copy.arg(&binary).status().unwrap().success());
    let mut suite = Command::new(binary);
    suite.args(first).arg("--test-threads=1").current_dir("/");
    if let Some(user) = user {
        suite.uid(user).gid(user);
    }
    let output = suite.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{err}");
    assert!(text.contains("test result: ok"), "{text}\n{err}");
}

/// Tests of single layers return where a level lacks one, so that the suite runs anywhere. This one asks the kernel itself, not the
/// code under test, and fails if that code leaves out what there is.
fn every_feature() {
    let made = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--net",
            "--fork",
        ])
        .args(["--mount-proc", "true"])
        .output();
    let has_namespaces = made.is_ok_and(|made| made.status.success());
    let world = World::new();
    let runner = Runner::open(world.settings(Confinement::Auto)).unwrap();
    let level = runner.level();
    if llmc_exec::confines_without_namespaces() {
        assert!(level.landlock.is_some() && level.seccomp, "{level}");
    } else {
        eprintln!("SKIPPED: this kernel has no Landlock or no seccomp");
    }
    match has_namespaces {
        true => assert_eq!(level.missing(), [""; 0], "{level}"),
        false => eprintln!("SKIPPED: no namespaces can be made here"),
    }
}
