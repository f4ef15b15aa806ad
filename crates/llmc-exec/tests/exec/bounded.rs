//! Runs with tighter bounds than commands have (visible files, no child processes), and runs that are talked to.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use llmc_exec::{Children, Confinement, ExecRequest, RunPipes, RunReport, Runner};
use llmc_host::CancelToken;

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add(
        "files_outside_the_visible_list_cannot_be_read",
        visible_files,
    );
    add("a_run_without_children_cannot_start_processes", no_children);
    add("a_fork_bomb_is_ended", fork_bomb);
    add("process_numbers_are_bounded_for_a_run_alone", pid_bound);
    add("too_many_processes_end_a_run", many_processes);
    add("shared_memory_is_bounded", shared_memory);
    add(
        "reserved_addresses_and_large_files_are_not_bounded",
        reserved,
    );
    add("sanitizers_run", sanitizers);
    add("input_and_output_arrive_complete", echo);
    add("a_run_ends_when_its_caller_lets_go", let_go);
}

fn visible_files() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.write_roots = Vec::new();
    settings.sees = Some(
        ["/usr", "/bin", "/lib", "/lib64"]
            .map(PathBuf::from)
            .into_iter()
            .chain([world.bin.clone()])
            .collect(),
    );
    let runner = Runner::open(settings).unwrap();
    if runner.level().landlock.is_none() {
        return;
    }
    let reads = |path: &str| {
        world
            .run(&runner, &["attack", "read", path])
            .finished
            .status
            .exit_code()
    };
    assert_eq!(reads("/usr/bin/env"), Some(0));
    for path in [
        world.outside("outside.txt"),
        text(&world.workspace.join("inside.txt")),
        text(&world.workspace.join(".llmc/token")),
        "/etc/passwd".to_owned(),
    ] {
        assert_eq!(reads(&path), Some(1), "{path}");
    }
    // What is not bounded can: the bound is what holds.
    let free = world.runner(Confinement::Auto);
    let path = world.outside("outside.txt");
    let ran = world.run(&free, &["attack", "read", &path]);
    assert_eq!(ran.finished.status.exit_code(), Some(0));
}

fn no_children() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.children = Children::Refused;
    let runner = Runner::open(settings).unwrap();
    if !runner.level().seccomp {
        return;
    }
    // Nor become another program.
    let ran = world.run(&runner, &["sh", "-c", "echo here; exec cat inside.txt"]);
    assert_eq!(ran.out, "here\n", "{ran:?}");
    let ran = world.run(&runner, &["cat", "inside.txt"]);
    assert_eq!(ran.out, "inside\n", "{ran:?}");
    let ran = world.run(&runner, &["sh", "-c", "cat inside.txt; exit 0"]);
    assert_eq!(ran.out, "", "{ran:?}");
    let ran = world.run(&runner, &["sh", "-c", "(echo child)"]);
    assert_eq!(ran.out, "", "{ran:?}");
}

/// A server whose commands have few processes and little memory.
fn bounded(world: &World, confinement: Confinement) -> Runner {
    let mut settings = world.settings(confinement);
    settings
        .allowlist
        .extend(["python3", "sleep"].map(str::to_owned));
    settings.limits.processes = 200;
    settings.limits.memory_bytes = Some(256 << 20);
    Runner::open(settings).unwrap()
}

fn fork_bomb() {
    let world = World::new();
    let runner = bounded(&world, Confinement::Auto);
    let level = runner.level();
    if !level.pidns && level.landlock.is_none_or(|abi| abi < 6) {
        // Known gap: with neither, the helper cannot end processes faster than they start others.
        return;
    }
    let limit = Duration::from_secs(2);
    let begun = Instant::now();
    let bomb = ["attack", "fork-bomb"];
    let ran = world.try_run_for(&runner, &bomb, limit, 1 << 20, &CancelToken::default());
    let (took, ran) = (begun.elapsed(), ran.unwrap());
    // The helper ends it before its time, or the kernel lets it start no more and its time ends it.
    let ended = ran
        .finished
        .notes
        .join(" ")
        .contains("more than 200 processes");
    assert!(ended || ran.finished.timed_out, "{:?}", ran.finished);
    // Far above what it takes, since other trials run at the same time; a bomb that is not ended never returns.
    assert!(took < limit + Duration::from_secs(40), "{took:?}");
    assert_eq!(world.run(&runner, &["cat", "inside.txt"]).out, "inside\n");
}

/// Where a pid namespace has a highest number of its own, even root cannot have more processes at once.
fn pid_bound() {
    let highest = "/proc/sys/kernel/pid_max";
    let of_host = || std::fs::read_to_string(highest).unwrap();
    let before = of_host();
    let world = World::new();
    let runner = bounded(&world, Confinement::Auto);
    if !runner.level().procfs {
        return;
    }
    let inside = world.run_apart(&runner, &["cat", highest]).out;
    let release = rustix::system::uname();
    let release = release.release().to_str().unwrap();
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .take(2)
        .collect();
    match numbers >= vec![6, 14] {
        true => assert_eq!(inside, "564\n"),
        false => assert_eq!(inside, before),
    }
    let script = format!("echo 99999 > {highest}");
    let raised = world.run(&runner, &["sh", "-c", &script]);
    assert!(!raised.finished.status.is_success(), "{raised:?}");
    assert_eq!(of_host(), before);
}

fn many_processes() {
    let world = World::new();
    let runner = bounded(&world, Confinement::Auto);
    let ran = world.run(&runner, &["attack", "many-children", "400"]);
    let note = ran.finished.notes.join(" ");
    // Where the user is not root the kernel refuses; the program then fails by itself.
    let refused = ran.err.contains("refused") && !rustix::process::geteuid().is_root();
    assert!(
        refused || note.contains("more than 200 processes"),
        "{ran:?}"
    );
    assert!(!ran.finished.timed_out, "{:?}", ran.finished);
}

fn shared_memory() {
    let world = World::new();
    let runner = bounded(&world, Confinement::Auto);
    let map = |mebibytes: u32| {
        let script = format!(
            "import mmap,time\nn={mebibytes}<<20\nm=mmap.mmap(-1,n)\nfor i in range(0,n,4096): m[i]=1\nprint('mapped',flush=True)\ntime.sleep({})",
            if mebibytes > 256 { 1000 } else { 1 }
        );
        world.run(&runner, &["python3", "-c", &script])
    };
    let ran = map(600);
    let note = ran.finished.notes.join(" ");
    let wanted = "more than 256 MiB of memory (mcp.exec.max_memory)";
    assert!(note.contains(wanted), "{ran:?}");
    assert!(!ran.finished.timed_out, "{:?}", ran.finished);
    let ran = map(128);
    assert!(ran.finished.status.is_success(), "{ran:?}");
    assert!(ran.finished.notes.is_empty(), "{ran:?}");
}

/// What virtual machines, sanitizers and databases do.
fn reserved() {
    let world = World::new();
    let runner = bounded(&world, Confinement::Auto);
    let script = "import mmap\nm=mmap.mmap(-1,1<<40,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS|0x4000)\nm[5]=1\nprint('reserved')";
    let ran = world.run(&runner, &["python3", "-c", script]);
    assert_eq!(ran.out, "reserved\n", "{ran:?}");
    let line = "ulimit -d; ulimit -f; dd if=/dev/zero of=big bs=1 count=1 seek=5G 2>/dev/null && rm big && echo large";
    let ran = world.run(&runner, &["sh", "-c", line]);
    assert_eq!(ran.out, "unlimited\nunlimited\nlarge\n", "{ran:?}");
}

fn sanitizers() {
    let world = World::new();
    let runner = Runner::open(llmc_exec::Settings {
        allowlist: vec!["*".to_owned()],
        ..world.settings(Confinement::Auto)
    });
    let runner = runner.unwrap();
    std::fs::write(
        world.workspace.join("a.c"),
        "int main(void) { return 0; }\n",
    )
    .unwrap();
    for kind in ["address", "thread"] {
        let compiler = std::process::Command::new("cc")
            .args([&format!("-fsanitize={kind}"), "a.c", "-o", kind])
            .current_dir(&world.workspace)
            .output();
        if !compiler.is_ok_and(|made| made.status.success()) {
            // No compiler, or none with this sanitizer.
            continue;
        }
        let ran = world.run(&runner, &["sh", "-c", &format!("./{kind} && echo ran")]);
        assert_eq!(ran.out, "ran\n", "{kind}: {ran:?}");
    }
}

/// Runs a program with `talk` at the other end of its pipes, on a thread of its own.
fn talked_to<T: Send + 'static>(
    runner: &Runner,
    world: &World,
    argv: &[&str],
    talk: impl FnOnce(RunPipes) -> T + Send + 'static,
) -> (T, RunReport) {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest::new(&argv, &cwd, Duration::from_secs(60));
    let mut talker = None;
    let finished = runner
        .run_interactive(&spec, None, |pipes| {
            rustix::io::ioctl_fionbio(&pipes.input, false).unwrap();
            talker = Some(std::thread::spawn(move || talk(pipes)));
        })
        .unwrap();
    let talked = talker.expect("the program has run").join().unwrap();
    (talked, finished)
}

fn echo() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let text = sent.clone();
    let ((received, _leash), finished) = talked_to(&runner, &world, &["cat"], move |pipes| {
        let RunPipes {
            mut input,
            mut output,
            leash,
        } = pipes;
        let writing = std::thread::spawn(move || input.write_all(&text).unwrap());
        let mut received = Vec::new();
        output.read_to_end(&mut received).unwrap();
        writing.join().unwrap();
        // Without its leash the program would be ended while it ends by itself.
        (received, leash)
    });
    assert_eq!(finished.status.exit_code(), Some(0));
    assert!(received == sent, "{} of {}", received.len(), sent.len());
}

/// Waits for input that does not come; its caller lets go of it.
fn let_go() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let (_pipes, finished) = talked_to(&runner, &world, &["cat"], |pipes| {
        let RunPipes {
            input,
            output,
            leash,
        } = pipes;
        drop(leash);
        (input, output)
    });
    assert!(!finished.status.is_success(), "{finished:?}");
    assert!(!finished.timed_out, "{finished:?}");
}
