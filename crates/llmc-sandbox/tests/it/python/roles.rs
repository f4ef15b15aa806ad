//! Other parts this binary plays: an ordinary user, a container without namespaces.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Set where namespaces are forbidden.
const CONTAINER: &str = "SANDBOX_TEST_CONTAINER";
/// Set in processes that this binary has started to run the suite once more.
const AGAIN: &str = "SANDBOX_TEST_AGAIN";
const NOBODY: u32 = 65534;

pub(super) fn list() -> Vec<(String, Box<dyn FnOnce() + Send>)> {
    if std::env::var_os(AGAIN).is_some() {
        return Vec::new();
    }
    let mut tests: Vec<(String, Box<dyn FnOnce() + Send>)> = vec![(
        "in_a_container_without_namespaces".to_owned(),
        Box::new(|| suite(None, &["__container"])),
    )];
    if rustix::process::geteuid().is_root() {
        tests.push((
            "as_an_ordinary_user".to_owned(),
            Box::new(|| suite(Some(NOBODY), &[])),
        ));
        tests.push((
            "as_an_ordinary_user_in_a_container".to_owned(),
            Box::new(|| suite(Some(NOBODY), &["__container"])),
        ));
    }
    tests
}

pub(super) fn without_namespaces() -> bool {
    std::env::var_os(CONTAINER).is_some()
}

/// Whether this machine gives a process the namespaces of a full boundary, asked of the kernel and not of the code under test.
pub(super) fn has_namespaces() -> bool {
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
    made.is_ok_and(|made| made.status.success())
}

/// Plays a part if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != "__container" {
        return None;
    }
    forbid_namespaces();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .env(CONTAINER, "1")
        .status()
        .unwrap();
    Some(ExitCode::from(
        u8::try_from(status.code().unwrap_or(101)).unwrap_or(101),
    ))
}

/// As container runtimes do.
fn forbid_namespaces() {
    use seccompiler::{SeccompAction, SeccompFilter};
    let filter = SeccompFilter::new(
        std::iter::once((libc::SYS_unshare, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// The whole suite in another process, as another user if one is given.
fn suite(user: Option<u32>, first: &[&str]) {
    let dir = tempfile::Builder::new()
        .prefix("sandbox-suite-")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // This binary may lie where another user cannot reach it. A child copies it: a descriptor that this process opens for
    // writing could be inherited by a program that another test starts at that moment.
    let binary = dir.path().join("suite");
    let mut copy = Command::new("install");
    copy.arg("--mode=755").arg(std::env::current_exe().unwrap());
    assert!(copy.arg(&binary).status().unwrap().success());
    let mut suite = Command::new(binary);
    suite
        .args(first)
        .arg("--test-threads=2")
        .env(AGAIN, "1")
        .env("HOME", "/nonexistent")
        .current_dir("/");
    if let Some(user) = user {
        suite.uid(user).gid(user);
    }
    let output = suite.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{err}");
    assert!(
        text.contains("test result: ok") && !text.contains(" 0 passed"),
        "{text}\n{err}"
    );
}
