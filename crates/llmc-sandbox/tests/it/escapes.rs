//! Ways out of a worker.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use llmc_exec::{Worker, restrict_to_compute};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("escapes::native_code_in_a_worker_gets_nowhere", native);
}

/// Checks what the kernel says about a worker.
pub(crate) fn assert_held(pid: u32) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.unwrap_or_default()
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(field("Seccomp:"), "2", "{status}");
    assert_eq!(field("NoNewPrivs:"), "1");
    for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        assert_eq!(field(set).trim_matches('0'), "", "{set}");
    }
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
    }
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(environ.is_empty(), "{}", String::from_utf8_lossy(&environ));
    // The socket and the null device, nothing of the server's.
    for fd in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let target = std::fs::read_link(fd.unwrap().path()).unwrap();
        let target = target.to_string_lossy().into_owned();
        assert!(
            target.starts_with("socket:") || target == "/dev/null",
            "{target}"
        );
    }
}

/// The hidden arguments of a worker that has been taken over, with and without what holds it.
const ATTACKER: &str = "__attacker";
const FREE: &str = "free";

/// Becomes such a worker, if this process was started as one: tries what only machine code could try, and says what
/// worked.
pub(crate) fn attacker_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != ATTACKER {
        return None;
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = UnixStream::from(stdin);
    if args.next().as_deref() != Some(FREE) {
        restrict_to_compute(1 << 30).unwrap();
    }
    let mut worked = what_works();
    worked.push("end");
    socket.write_all(worked.join(" ").as_bytes()).unwrap();
    Some(ExitCode::SUCCESS)
}

/// The names of all attempts of [`what_works`].
pub(crate) const ATTEMPTS: [&str; 12] = [
    "read",
    "list",
    "stat",
    "write",
    "environment",
    "internet",
    "unix",
    "pair",
    "program",
    "thread",
    "signal",
    "directory",
];

/// Tries to reach beyond this process, and returns what worked.
pub(crate) fn what_works() -> Vec<&'static str> {
    let attempts: [(&str, &dyn Fn() -> bool); 12] = [
        ("read", &|| std::fs::read("/etc/passwd").is_ok()),
        ("list", &|| std::fs::read_dir("/").is_ok()),
        ("stat", &|| std::fs::metadata("/etc/passwd").is_ok()),
        ("write", &|| {
            std::fs::write("/tmp/llmc-attacker", "x").is_ok()
        }),
        ("environment", &|| {
            std::fs::read("/proc/self/environ").is_ok()
        }),
        ("internet", &|| {
            std::net::UdpSocket::bind("127.0.0.1:0").is_ok()
        }),
        ("unix", &|| {
            std::os::unix::net::UnixDatagram::unbound().is_ok()
        }),
        ("pair", &|| UnixStream::pair().is_ok()),
        ("program", &|| {
            std::process::Command::new("/bin/true").status().is_ok()
        }),
        ("thread", &|| {
            std::thread::Builder::new().spawn(|| ()).is_ok()
        }),
        ("signal", &|| {
            rustix::process::test_kill_process(rustix::process::getpid()).is_ok()
        }),
        ("directory", &|| std::env::set_current_dir("/tmp").is_ok()),
    ];
    assert!(attempts.iter().map(|(name, _)| *name).eq(ATTEMPTS));
    let worked = attempts.iter().filter(|(_, attempt)| attempt());
    worked.map(|(name, _)| *name).collect()
}

fn native() {
    let try_all = |how: &str| {
        let (worker, mut socket) = Worker::start(&[ATTACKER, how]).unwrap();
        let mut worked = String::new();
        socket.read_to_string(&mut worked).unwrap();
        worker.wait();
        worked
    };
    // Without what holds a worker every attempt works, or the second line would prove nothing.
    assert_eq!(try_all(FREE).split(' ').count(), 13);
    assert_eq!(try_all("sealed"), "end");
    let _ = std::fs::remove_file("/tmp/llmc-attacker");
}
