//! Escape attempts. Each must fail where the level promises it, and succeed with the confinement off, or it proves nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Child, Command};

use llmc_exec::{Confinement, ConfinementLevel, Runner};

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("files_outside_stay_as_they_are", files);
    add("metadata_outside_stays_as_it_is", metadata);
    add("no_file_gets_a_set_id_bit", set_id);
    add("the_network_is_out_of_reach", network);
    add("no_two_runs_share_a_network", networks);
    add("sockets_of_the_host_are_out_of_reach", sockets);
    add("other_processes_are_out_of_reach", processes);
    add("the_boundary_cannot_be_taken_down", boundary);
    add("root_cannot_reach_the_machine", machine);
    add("what_programs_need_still_works", ordinary);
}

/// One attack: its words, and whether this level is supposed to stop it.
type Attack<'a> = (Vec<String>, fn(&ConfinementLevel) -> bool, &'a dyn Fn());

/// Tries each attack confined, then in a fresh world unconfined. `prepare` sets the scene before each.
fn fails_confined_only(world: &World, attacks: Vec<Attack<'_>>) {
    let confined = world.runner(Confinement::Auto);
    let free = world.runner(Confinement::Off);
    for (words, holds, prepare) in attacks {
        let argv: Vec<&str> = ["attack"]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        if holds(confined.level()) {
            prepare();
            let ran = world.run(&confined, &argv);
            assert_eq!(
                ran.finished.status.exit_code(),
                Some(1),
                "{words:?} escaped: {ran:?}"
            );
        }
        prepare();
        let ran = world.run(&free, &argv);
        assert_eq!(
            ran.finished.status.exit_code(),
            Some(0),
            "{words:?} proves nothing: {ran:?}"
        );
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

fn by_mounts_or_landlock(level: &ConfinementLevel) -> bool {
    level.mountns || level.landlock.is_some_and(|abi| abi >= 3)
}

fn by_mounts(level: &ConfinementLevel) -> bool {
    level.mountns
}

fn files() {
    let world = World::new();
    let file = world.outside("outside.txt");
    let dir = world.outside("dir");
    let new = world.outside("new");
    let inside = text(&world.workspace.join("inside.txt"));
    let through_proc = format!("/proc/self/root{file}");
    let through_link = text(&world.workspace.join("way-out/outside.txt"));
    let prepare = || {
        let _ = std::fs::remove_file(&new);
        let _ = std::fs::remove_dir(&new);
        std::fs::write(&file, "outside\n").unwrap();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&inside, "inside\n").unwrap();
        for link in ["linked", "moved", "way-out"] {
            let _ = std::fs::remove_file(world.workspace.join(link));
        }
        std::os::unix::fs::symlink(&world.outside, world.workspace.join("way-out")).unwrap();
    };
    let linked = text(&world.workspace.join("linked"));
    let moved = text(&world.workspace.join("moved"));
    let attacks: Vec<Vec<String>> = [
        &["write", &file][..],
        &["append", &file],
        &["truncate", &file],
        &["unlink", &file],
        &["mkdir", &new],
        &["write", &new],
        &["symlink", "x", &new],
        &["rename", &file, &new],
        &["rename", &file, &moved],
        &["rename", &inside, &new],
        &["link", &inside, &new],
        &["link-write", &file, &linked],
        &["rmdir", &dir],
        &["write", &through_proc],
        &["write", &through_link],
        &["escape-cwd"],
    ]
    .iter()
    .map(|list| words(list))
    .collect();
    let attacks = attacks
        .into_iter()
        .map(|words| {
            (
                words,
                by_mounts_or_landlock as fn(&ConfinementLevel) -> bool,
                &prepare as &dyn Fn(),
            )
        })
        .collect();
    fails_confined_only(&world, attacks);
}

fn set_id() {
    let world = World::new();
    let file = world.workspace.join("program");
    let name = text(&file);
    let mut attacks: Vec<Attack<'_>> = Vec::new();
    let empty = || {
        let _ = std::fs::remove_file(&file);
    };
    let made = || std::fs::write(&file, "x").unwrap();
    for mode in ["4755", "2755", "6777"] {
        for (attack, prepare) in [
            ("set-id-chmod", &made as &dyn Fn()),
            ("set-id-fchmod", &made),
            ("set-id-create", &empty),
            ("set-id-openat2", &empty),
            ("set-id-mknod", &empty),
        ] {
            attacks.push((
                words(&[attack, &name, mode]),
                |level| level.seccomp,
                prepare,
            ));
        }
    }
    fails_confined_only(&world, attacks);
    empty();
    made();
    // What is no set-id bit can be set.
    let runner = world.runner(Confinement::Auto);
    let ran = world.run(&runner, &["attack", "set-id-chmod", &name, "1755"]);
    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
}

fn metadata() {
    let world = World::new();
    let file = world.outside("outside.txt");
    let nothing = || {};
    let attacks = ["chmod", "utime", "setxattr"].map(|what| {
        (
            words(&[what, &file]),
            by_mounts as fn(&ConfinementLevel) -> bool,
            &nothing as &dyn Fn(),
        )
    });
    fails_confined_only(&world, attacks.into());
    if rustix::process::geteuid().is_root() {
        fails_confined_only(
            &world,
            vec![(words(&["chown", &file]), by_mounts, &nothing)],
        );
    }
}

fn network() {
    let world = World::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp_address = tcp.local_addr().unwrap().to_string();
    let udp_address = udp.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in tcp.incoming() {
            let _ = socket.and_then(|mut socket| {
                socket.read_exact(&mut [0; 4])?;
                socket.write_all(b"pong")
            });
        }
    });
    std::thread::spawn(move || {
        let mut ping = [0; 16];
        while let Ok((_, from)) = udp.recv_from(&mut ping) {
            let _ = udp.send_to(b"pong", from);
        }
    });
    let nothing = || {};
    let always: fn(&ConfinementLevel) -> bool = |level| level.netns || level.seccomp;
    // A name is looked up by exactly such a datagram.
    let attacks: Vec<Attack<'_>> = vec![
        (words(&["tcp", &tcp_address]), always, &nothing),
        (words(&["udp", &udp_address]), always, &nothing),
    ];
    fails_confined_only(&world, attacks);

    // With the operator's leave the network is there, and everything else as closed as before.
    let mut settings = world.settings(Confinement::Auto);
    settings.network = true;
    let runner = Runner::open(settings).unwrap();
    assert!(!runner.level().netns);
    let ran = world.run(&runner, &["attack", "tcp", &tcp_address]);
    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    let ran = world.run(&runner, &["attack", "udp", &udp_address]);
    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    let ran = world.run(&runner, &["attack", "write", &world.outside("new")]);
    assert_eq!(ran.finished.status.exit_code(), Some(1), "{ran:?}");
}

/// One after the other and side by side, all at the same port.
fn networks() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !runner.level().netns {
        return;
    }
    let argv = ["attack", "own-port", "127.0.0.1:7777"];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let ran = world.run_apart(&runner, &argv);
                    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
                }
            });
        }
    });
}

fn sockets() {
    let world = World::new();
    // As a docker.sock or an ssh-agent would be: outside, and inside the workspace for good measure.
    let outside = world.outside("agent.sock");
    let inside = text(&world.workspace.join("agent.sock"));
    for path in [&outside, &inside] {
        serve(UnixListener::bind(path).unwrap());
    }
    let name = format!("exec-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    serve(UnixListener::bind_addr(&address).unwrap());
    let log = world.outside("log.sock");
    let _log = UnixDatagram::bind(&log).unwrap();
    let nothing = || {};
    let by_filter: fn(&ConfinementLevel) -> bool = |level| level.seccomp;
    let attacks: Vec<Attack<'_>> = vec![
        (words(&["unix", &outside]), by_filter, &nothing),
        (words(&["unix", &inside]), by_filter, &nothing),
        (words(&["datagram", &log]), by_filter, &nothing),
        (
            words(&["abstract", &name]),
            |level| level.seccomp || level.netns || level.landlock.is_some_and(|abi| abi >= 6),
            &nothing,
        ),
    ];
    fails_confined_only(&world, attacks);
    // Nor where a run may make local sockets of its own; with and without a network.
    for network in [false, true] {
        let mut settings = world.settings(Confinement::Auto);
        settings.local_sockets = true;
        settings.network = network;
        let runner = Runner::open(settings).unwrap();
        let attacks = [
            ["unix", &outside],
            ["unix", &inside],
            ["datagram", &log],
            ["abstract", &name],
        ];
        for [kind, target] in attacks {
            if !runner.level().seccomp {
                continue;
            }
            let ran = world.run(&runner, &["attack", kind, target]);
            assert_eq!(
                ran.finished.status.exit_code(),
                Some(1),
                "{kind} {target}: {ran:?}"
            );
        }
    }
}

fn serve(listener: UnixListener) {
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _ = socket.and_then(|mut socket| socket.write_all(b"pong"));
        }
    });
}

/// A process of the host that dies with the test.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        Victim(
            Command::new("sleep")
                .arg("100")
                .env("VICTIM_MARK", "v1ct1m")
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn processes() {
    let world = World::new();
    let nothing = || {};
    let victim = Victim::new();
    // Exec has happened once the environment is there.
    while !std::fs::read(format!("/proc/{}/environ", victim.pid()))
        .is_ok_and(|environ| environ.windows(6).any(|part| part == b"v1ct1m"))
    {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let hidden: fn(&ConfinementLevel) -> bool =
        |level| level.pidns || level.userns || level.landlock.is_some();
    let deaf: fn(&ConfinementLevel) -> bool =
        |level| level.pidns || level.landlock.is_some_and(|abi| abi >= 6);
    let traced: fn(&ConfinementLevel) -> bool = |level| level.pidns || level.seccomp;
    let pid = victim.pid();
    let mut attacks: Vec<Attack<'_>> = vec![
        (words(&["environ", &pid, "v1ct1m"]), hidden, &nothing),
        (words(&["memory", &pid]), hidden, &nothing),
        (words(&["ptrace", &pid]), traced, &nothing),
    ];
    // Last: where it works, the victim is gone.
    attacks.push((words(&["signal", &pid]), deaf, &nothing));
    fails_confined_only(&world, attacks);

    let confined = world.runner(Confinement::Auto);
    if confined.level().pidns {
        let ran = world.run_apart(&confined, &["attack", "kill-parent"]);
        assert_eq!(
            ran.finished.status.exit_code(),
            Some(1),
            "pid 1 was killed: {ran:?}"
        );
        for attack in [
            &["attack", "memory", "1"][..],
            &["attack", "environ", "1", ""],
        ] {
            for ran in [
                world.run(&confined, attack),
                world.run_apart(&confined, attack),
            ] {
                let code = ran.finished.status.exit_code();
                assert_eq!(code, Some(1), "pid 1 was read: {ran:?}");
            }
        }
    }
}

fn boundary() {
    let world = World::new();
    let confined = world.runner(Confinement::Auto);
    let level = *confined.level();
    for (words, holds) in [
        (&["attack", "user-namespace"][..], level.seccomp),
        (&["attack", "remount"], level.seccomp || level.userns),
        (
            &["attack", "unmount", "/proc"],
            level.seccomp || level.userns,
        ),
        (
            &["attack", "unmount", "/tmp"],
            level.seccomp || level.userns,
        ),
    ] {
        if holds {
            let ran = world.run(&confined, words);
            assert_eq!(
                ran.finished.status.exit_code(),
                Some(1),
                "{words:?}: {ran:?}"
            );
        }
    }
    // Taking down the host's own mounts to prove a point is out of the question; a namespace is not.
    let free = world.runner(Confinement::Off);
    if !crate::roles::without_namespaces() {
        let ran = world.run(&free, &["attack", "user-namespace"]);
        assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    }
}

fn machine() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    let nothing = || {};
    let switches = "/proc/sys/kernel/randomize_va_space";
    let mut attacks: Vec<Attack<'_>> = vec![(
        words(&["rewrite", switches]),
        by_mounts_or_landlock,
        &nothing,
    )];
    let disk = std::fs::read_dir("/dev").unwrap().flatten().find(|entry| {
        use std::os::unix::fs::FileTypeExt;
        entry.file_type().is_ok_and(|kind| kind.is_block_device())
            && std::fs::File::open(entry.path())
                .is_ok_and(|mut disk| disk.read_exact(&mut [0]).is_ok())
    });
    let disk = disk.map(|entry| text(&entry.path()));
    if let Some(disk) = &disk {
        attacks.push((words(&["read", disk]), by_mounts, &nothing));
    }
    fails_confined_only(&world, attacks);
}

fn ordinary() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let level = *runner.level();
    let new = text(&world.workspace.join("new.txt"));
    let linked = text(&world.workspace.join("linked.txt"));
    let mut fine = vec![
        vec!["write", "relative.txt"],
        vec!["write", &new],
        vec!["link", &new, &linked],
        vec!["rename", &new, "renamed.txt"],
        vec!["mkdir", "sub"],
        vec!["rename", "renamed.txt", "sub/moved.txt"],
        vec!["unlink", "sub/moved.txt"],
        vec!["chmod", &linked],
        vec!["null"],
        vec!["stream-pair"],
        vec!["read", "/etc/passwd"],
        vec!["read", "/dev/urandom"],
    ];
    if level.mountns {
        fine.extend([vec!["own-tmp"], vec!["shared-memory"]]);
    }
    if level.netns {
        fine.push(vec!["loopback"]);
    }
    for words in fine {
        let argv: Vec<&str> = ["attack"].into_iter().chain(words).collect();
        let ran = world.run(&runner, &argv);
        assert_eq!(
            ran.finished.status.exit_code(),
            Some(0),
            "{argv:?}: {ran:?}"
        );
    }
    assert!(!std::path::Path::new("/tmp/llmc-exec-test").exists());
    let ran = world.run(
        &runner,
        &[
            "sh",
            "-c",
            "echo out; echo err >&2; sleep 0.01 | cat; exit 7",
        ],
    );
    assert_eq!(ran.finished.status.exit_code(), Some(7), "{ran:?}");
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
    let ran = world.run(&runner, &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(
        (
            ran.finished.status.exit_code(),
            ran.finished.status.signal()
        ),
        (None, Some(11)),
        "{ran:?}"
    );
    let ran = world.run(&runner, &["cat"]);
    assert_eq!(
        ran.finished.status.exit_code(),
        Some(0),
        "standard input is closed: {ran:?}"
    );
}
