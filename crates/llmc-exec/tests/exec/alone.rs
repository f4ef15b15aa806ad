//! Runs that are bounded further than commands are: by what they see, and in that they are alone. And runs that are
//! talked to.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use llmc_exec::{Children, Confinement, ExecRequest, RunOwner, RunReport, Runner};
use llmc_host::CancelToken;

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("what_a_run_does_not_see_it_cannot_read", seeing);
    add("a_run_that_is_alone_starts_nothing", alone);
    add("a_run_hears_and_is_heard_to_the_last_byte", talking);
    add("a_run_that_does_not_listen_holds_nobody_up", deaf);
}

fn seeing() {
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

fn alone() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.children = Children::Refused;
    let runner = Runner::open(settings).unwrap();
    if !runner.level().seccomp {
        return;
    }
    let ran = world.run(&runner, &["sh", "-c", "echo here; exec cat inside.txt"]);
    assert_eq!(ran.out, "here\ninside\n", "{ran:?}");
    let ran = world.run(&runner, &["sh", "-c", "cat inside.txt; exit 0"]);
    assert_eq!(ran.out, "", "{ran:?}");
    let ran = world.run(&runner, &["sh", "-c", "(echo child)"]);
    assert_eq!(ran.out, "", "{ran:?}");
}

/// Says something to `cat` and hears what comes back.
fn converse(
    world: &World,
    runner: &Runner,
    argv: &[&str],
    said: Vec<u8>,
    stop: &CancelToken,
) -> (Vec<u8>, RunReport) {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest {
        argv: &argv,
        program: None,
        cwd: &cwd,
        timeout: Duration::from_secs(20),
        env: &[],
        max_output: u64::MAX,
        owner: RunOwner::default(),
    };
    let mut heard = Vec::new();
    let begin_stop = stop.clone();
    let finished = runner
        .converse(
            &spec,
            move |mut voice| {
                std::thread::spawn(move || voice.say(&said, &begin_stop));
            },
            &mut |bytes| heard.extend_from_slice(bytes),
            stop,
        )
        .unwrap();
    (heard, finished)
}

fn talking() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let said: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (heard, finished) = converse(
        &world,
        &runner,
        &["cat"],
        said.clone(),
        &CancelToken::default(),
    );
    assert_eq!(finished.status.exit_code(), Some(0));
    assert!(heard == said, "{} of {}", heard.len(), said.len());
}

fn deaf() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let stop = CancelToken::with_deadline(Instant::now() + Duration::from_millis(300));
    let said = vec![b'x'; 1 << 20];
    // Reads nothing, prints for ever.
    let (heard, finished) = converse(&world, &runner, &["yes"], said, &stop);
    assert!(finished.timed_out && !heard.is_empty());
}
