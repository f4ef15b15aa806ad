//! Git directories: what a command changes reaches the host, what decides what git runs does not.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use llmc_exec::{
    Confinement, ExecRequest, GitAccess, Io, Process, ProcessEnd, ProcessOptions, Protection,
    Runner,
};

use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("planted_git_names_never_reach_the_host", planted);
    add("nested_repositories_are_taken_away_at_any_depth", nested);
    add("a_repository_that_is_moved_stays", moved);
    add(
        "new_repositories_are_taken_away_while_a_run_goes_on",
        at_once,
    );
    add(
        "a_run_that_makes_repositories_without_end_is_ended",
        endless,
    );
    add("bare_repositories_run_nothing_new", bare);
    add("what_gits_configuration_includes_stays", included);
    add("what_git_does_reaches_the_host", work);
    add("what_the_host_changed_meanwhile_stays", conflict);
    add("an_index_that_was_only_refreshed_is_no_conflict", refreshed);
    add("a_lasting_process_cannot_change_git_directories", lasting);
    add("layers_leave_nothing_behind", no_litter);
}

/// What git runs or follows, and where a command could plant it.
const PLANTED: &[&str] = &[
    ".git/commondir",
    ".git/rebase-merge/git-rebase-todo",
    ".git/rebase-apply/x",
    ".git/sequencer/todo",
    ".git/config.worktree",
    ".git/info/attributes",
    ".git/objects/info/alternates",
    ".git/modules/libs/foo/config",
    ".git/modules/m/hooks/post-checkout",
    ".git/modules/m/worktrees/w/commondir",
    ".git/worktrees/w/commondir",
    ".git/worktrees/w/gitdir",
    "lib/nested/.git/commondir",
    "lib/nested/.git/modules/a/b/config",
];

fn planted() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let mut script = "set -e\n".to_owned();
    for name in PLANTED {
        script.push_str(&format!(
            "mkdir -p $(dirname {name})\necho planted > {name}\ntest -e {name}\n"
        ));
    }
    script.push_str("echo x > .git/harmless\n");
    script.push_str(WAIT);
    let process = start(&world, &runner, &script, GitAccess::Merged);
    wait_for(&world.workspace.join("ready"));
    let level = *runner.level();
    let there = |name: &&&str| world.workspace.join(name).exists();
    if level.git_overlay {
        let seen: Vec<&&str> = PLANTED.iter().filter(there).collect();
        assert!(seen.is_empty(), "on the host while it runs: {seen:?}");
    }
    let end = let_go_on(&world, &process);
    assert!(end.status.is_success(), "{end:?}");
    let seen: Vec<&&str> = PLANTED.iter().filter(there).collect();
    assert!(seen.is_empty(), "on the host: {seen:?}: {end:?}");
    for name in PLANTED {
        let path = world.workspace.join(name);
        let mut taken = end.quarantined.iter();
        let reported = taken.any(|taken| path.starts_with(&taken.path) && taken.moved_to.is_some());
        assert!(reported, "{name} is not reported: {end:?}");
    }
    assert!(world.workspace.join(".git/harmless").exists(), "{end:?}");
    // Without a boundary all of it works, or this proves nothing.
    let world = World::new();
    let runner = world.runner(Confinement::Off);
    let process = start(&world, &runner, &script, GitAccess::Merged);
    wait_for(&world.workspace.join("ready"));
    let_go_on(&world, &process);
    assert!(
        PLANTED
            .iter()
            .all(|name| world.workspace.join(name).exists())
    );
}

fn nested() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let deep = "a/b/c/d/e/f/g/h/i/j/k/l/m/n";
    let script = format!(
        "mkdir -p {deep}/.git node_modules/x/y/.git; for n in $(seq 600); do mkdir -p many/$n; done
         mkdir -p many/zzz/.git; for d in {deep} node_modules/x/y many/zzz; do echo x > $d/.git/config; done"
    );
    // Some may be gone before it writes to them.
    let ran = world.run(&runner, &["sh", "-c", &script]);
    for dir in [deep, "node_modules/x/y", "many/zzz"] {
        let path = world.workspace.join(dir).join(".git");
        assert!(!path.exists(), "{dir}: {ran:?}");
        let mut taken = ran.finished.quarantined.iter();
        assert!(taken.any(|taken| taken.path == path), "{dir}: {ran:?}");
    }
}

/// Makes a repository and a bare one whose configuration runs a program, and a harmless folder.
const MAKE_REPOSITORIES: &str =
    "mkdir -p sub/.git/objects sub/.git/refs deep/bare/objects deep/bare/refs other/objects
    for d in sub/.git deep/bare; do
        echo 'ref: refs/heads/main' > $d/HEAD
        printf '[core]\\n fsmonitor = ./evil\\n worktree = .\\n' > $d/config
    done
    echo x > other/config\n";

fn at_once() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let script = format!("{MAKE_REPOSITORIES}{WAIT}");
    let process = start(&world, &runner, &script, GitAccess::ReadOnly);
    wait_for(&world.workspace.join("ready"));
    let planted = ["sub/.git", "deep/bare/config"].map(|name| world.workspace.join(name));
    for path in &planted {
        wait_until(|| !path.exists(), &format!("{path:?} stays while it runs"));
    }
    let end = let_go_on(&world, &process);
    for path in &planted {
        let mut taken = end.quarantined.iter();
        let reported = taken.any(|taken| taken.path == *path && taken.moved_to.is_some());
        assert!(reported, "{path:?} is not reported: {end:?}");
    }
    assert!(world.workspace.join("deep/bare/HEAD").exists());
    assert!(world.workspace.join("other/config").exists());
    // Without a boundary they stay.
    let world = World::new();
    let runner = world.runner(Confinement::Off);
    let process = start(&world, &runner, &script, GitAccess::ReadOnly);
    wait_for(&world.workspace.join("ready"));
    let_go_on(&world, &process);
    assert!(world.workspace.join("sub/.git/config").exists());
    assert!(world.workspace.join("deep/bare/config").exists());
}

fn endless() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let script = "i=0; while :; do i=$((i + 1)); mkdir -p many/$((i % 500))/.git; done";
    let ran = world.run(&runner, &["sh", "-c", script]);
    let notes = ran.finished.notes.join(" ");
    assert!(notes.contains("without end"), "{:?}", ran.finished);
    assert!(!ran.finished.timed_out, "{:?}", ran.finished);
    for n in 0..500 {
        let name = format!("many/{n}/.git");
        assert!(!world.workspace.join(&name).exists(), "{name}");
    }
}

/// A repository without `.git` that was there before, and attempts to make it run something.
fn bare() {
    for attempt in [
        "echo planted > store.git/config",
        "mkdir -p store.git/hooks; echo planted > store.git/hooks/post-checkout",
        "echo planted > store.git/config.worktree",
        "echo planted > store.git/commondir",
        "mkdir -p store.git/modules/a/b; echo planted > store.git/modules/a/b/config",
        "mv store.git away; mkdir -p store.git/objects store.git/refs; touch store.git/HEAD; echo planted > store.git/config",
        "mkdir -p objects refs; touch HEAD; echo planted > config",
    ] {
        let make = |world: &World| {
            let store = world.workspace.join("store.git");
            std::fs::create_dir_all(store.join("objects")).unwrap();
            std::fs::create_dir_all(store.join("refs")).unwrap();
            std::fs::write(store.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            std::fs::write(store.join("config"), "[core]\n bare = true\n").unwrap();
        };
        let world = World::new();
        make(&world);
        let runner = world.runner(Confinement::Auto);
        let ran = world.run(&runner, &["sh", "-c", attempt]);
        let left = texts_below(&world.workspace);
        assert!(!left.contains("planted"), "{attempt}: {left} {ran:?}");
        // What may change in it still does.
        let ran = world.run(
            &runner,
            &[
                "sh",
                "-c",
                "mkdir -p store.git/refs/heads && echo x > store.git/refs/heads/x",
            ],
        );
        assert!(ran.finished.status.is_success(), "{attempt}: {ran:?}");
        assert!(ran.finished.quarantined.is_empty(), "{attempt}: {ran:?}");
        let world = World::new();
        make(&world);
        world.run(&world.runner(Confinement::Off), &["sh", "-c", attempt]);
        let left = texts_below(&world.workspace);
        assert!(left.contains("planted"), "{attempt} proves nothing");
    }
}

fn included() {
    for attempt in [
        "echo planted > conf/shared",
        "echo planted > new; mv new conf/shared",
        "mv conf away; mkdir conf; echo planted > conf/shared",
        "echo planted > later",
        "ln -sf inside.txt link; echo planted > inside.txt",
    ] {
        let make = |world: &World| {
            let dir = &world.workspace;
            let config =
                "[include]\n\tpath = ../conf/shared\n\tpath = ../later\n\tpath = ../link\n";
            std::fs::write(dir.join(".git/config"), config).unwrap();
            std::fs::create_dir(dir.join("conf")).unwrap();
            std::fs::write(dir.join("conf/shared"), "[core]\n").unwrap();
            std::os::unix::fs::symlink("conf/shared", dir.join("link")).unwrap();
        };
        let reached = |world: &World| {
            let names = ["conf/shared", "later", "link"].map(|name| world.workspace.join(name));
            let texts = names
                .iter()
                .filter_map(|name| std::fs::read_to_string(name).ok());
            texts.collect::<String>().contains("planted")
        };
        let world = World::new();
        make(&world);
        let runner = world.runner(Confinement::Auto);
        let ran = world.run(&runner, &["sh", "-c", attempt]);
        // Moves of whole directories are not covered without mounts, as the level states.
        if runner.level().mountns || !attempt.starts_with("mv conf") {
            assert!(!reached(&world), "{attempt}: {ran:?}");
        }
        let world = World::new();
        make(&world);
        world.run(&world.runner(Confinement::Off), &["sh", "-c", attempt]);
        assert!(reached(&world), "{attempt} proves nothing");
    }
}

/// The contents of all files below a directory, the state directory aside.
fn texts_below(dir: &Path) -> String {
    let mut found = String::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != ".llmc" {
            found.push_str(&texts_below(&entry.path()));
        } else if kind.is_file() {
            found.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    found
}

fn moved() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let ran = world.run(&runner, &["mv", "lib", "lib2"]);
    assert!(ran.finished.status.is_success(), "{ran:?}");
    if runner.level().protected == Protection::Mount {
        assert!(ran.finished.quarantined.is_empty(), "{ran:?}");
        let config = world.workspace.join("lib2/nested/.git/config");
        assert_eq!(std::fs::read_to_string(config).unwrap(), "[core]\n");
    }
}

fn work() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let ok = |script: &str| {
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert!(ran.finished.status.is_success(), "{script}: {ran:?}");
        assert!(ran.finished.quarantined.is_empty(), "{script}: {ran:?}");
        assert!(ran.finished.notes.is_empty(), "{script}: {ran:?}");
    };
    let host = |args: &[&str]| git(&world.workspace, args);
    ok("echo one > f && git add f && git commit -qm one");
    assert_eq!(host(&["log", "--format=%s"]), "one\nstart\n");
    assert_eq!(host(&["status", "--short", "--untracked-files=no"]), "");
    ok("git checkout -q -b topic && echo two >> f && git commit -qam two");
    assert_eq!(host(&["branch", "--show-current"]), "topic\n");
    // A branch gives way to a folder of branches, and the other way round.
    ok("git branch b && git branch -D -q b && git branch b/c");
    assert!(host(&["branch"]).contains("b/c"));
    ok("git branch -D -q b/c && git branch b");
    assert!(host(&["branch"]).contains("  b\n"));
    ok("echo three >> f && git stash -q && git checkout -q main && git stash list | grep -q topic");
    assert!(host(&["stash", "list"]).contains("topic"));
    ok("git merge -q topic && git stash pop -q && git commit -qam three && git tag v1");
    assert_eq!(host(&["log", "-1", "--format=%s", "v1"]), "three\n");
    for round in 0..20 {
        ok(&format!(
            "echo {round} > g && git add g && git commit -qm g{round}"
        ));
    }
    ok("git gc -q --prune=now && git pack-refs --all");
    assert_eq!(host(&["count-objects"]), "0 objects, 0 kilobytes\n");
    assert!(!world.workspace.join(".git/refs/heads/main").exists());
    ok(
        "git branch -D -q b && git rebase -q HEAD~3 && git cherry-pick topic --keep-redundant-commits || git cherry-pick --abort",
    );
    assert!(!host(&["branch"]).contains("  b\n"));
    assert_eq!(host(&["fsck", "--full", "--no-dangling"]), "");
    assert_eq!(host(&["status", "--short", "--untracked-files=no"]), "");
    // Working trees of the host can be read.
    git(
        &world.workspace,
        &["worktree", "add", "-q", "tree", "-b", "side"],
    );
    ok("git worktree list | grep -q side && git -C tree log -1 --format=%s");
    ok("git -C tree commit -q --allow-empty -m side");
    assert_eq!(host(&["log", "-1", "--format=%s", "side"]), "side\n");
    // What needs a protected name to last says so.
    let ran = world.run(&runner, &["sh", "-c", "git worktree add -q other -b other"]);
    let mut taken = ran.finished.quarantined.iter();
    assert!(
        taken.any(|taken| taken.path.ends_with(".git/worktrees/other")),
        "{ran:?}"
    );
    for refused in ["git config user.name x", "git remote add o /x"] {
        let ran = world.run(&runner, &["sh", "-c", refused]);
        assert!(!ran.finished.status.is_success(), "{refused}: {ran:?}");
    }
}

fn conflict() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let script =
        format!("echo theirs > f && git add f && git commit -qm theirs && git branch new\n{WAIT}");
    let process = start(&world, &runner, &script, GitAccess::Merged);
    wait_for(&world.workspace.join("ready"));
    assert_eq!(
        git(&world.workspace, &["log", "--format=%s"]),
        "start\n",
        "not before its end"
    );
    git(
        &world.workspace,
        &["commit", "-q", "--allow-empty", "-m", "ours"],
    );
    let end = let_go_on(&world, &process);
    assert!(end.status.is_success(), "{end:?}");
    assert_eq!(
        git(&world.workspace, &["log", "--format=%s"]),
        "ours\nstart\n"
    );
    let note = end.notes.join(" ");
    assert!(note.contains("refs/heads/main"), "{end:?}");
    // The commit is there, under its name and under the one that is reported.
    let value = git(&world.workspace, &["rev-parse", "new"]);
    assert!(note.contains(value.trim()), "{end:?}");
    assert_eq!(
        git(&world.workspace, &["log", "-1", "--format=%s", "new"]),
        "theirs\n"
    );
}

fn refreshed() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let script = format!("echo theirs > f && git add f && git commit -qm theirs\n{WAIT}");
    let process = start(&world, &runner, &script, GitAccess::Merged);
    wait_for(&world.workspace.join("ready"));
    // Makes the index remember another time of the same file.
    let file = std::fs::File::options()
        .append(true)
        .open(world.workspace.join("inside.txt"));
    let past = std::time::SystemTime::now() - Duration::from_secs(100);
    file.unwrap().set_modified(past).unwrap();
    git(&world.workspace, &["update-index", "--refresh"]);
    let end = let_go_on(&world, &process);
    assert!(end.notes.is_empty(), "{end:?}");
    assert_eq!(
        git(&world.workspace, &["log", "-1", "--format=%s"]),
        "theirs\n"
    );
    assert_eq!(
        git(
            &world.workspace,
            &["status", "--short", "--untracked-files=no"]
        ),
        ""
    );
}

fn lasting() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let script =
        "cat .git/HEAD && ! touch .git/index.lock && ! mkdir .git/rebase-merge && ! rm .git/HEAD";
    let process = start(&world, &runner, script, GitAccess::ReadOnly);
    let end = process.wait_end(Duration::from_secs(20)).unwrap();
    if runner.level().mountns {
        assert!(end.status.is_success(), "{end:?}");
        assert!(end.quarantined.is_empty(), "{end:?}");
    }
    assert!(!world.workspace.join(".git/rebase-merge").exists());
}

fn no_litter() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    world.run(
        &runner,
        &[
            "sh",
            "-c",
            "echo x > .git/x; mkdir .git/y; chmod 0 .git/y; rm .git/HEAD",
        ],
    );
    assert!(!world.workspace.join(".git/HEAD").exists());
    assert!(world.workspace.join(".git/x").exists());
    drop(runner);
    let layers = world.workspace.join(".llmc/git-layers");
    let left = std::fs::read_dir(&layers).map_or(0, |dir| dir.count());
    assert_eq!(left, 0, "{layers:?}");
}

/// Says that it is this far, and goes on when it may.
const WAIT: &str = "touch ready; while [ ! -e go ]; do sleep 0.02; done";

fn start(world: &World, runner: &Runner, script: &str, git: GitAccess) -> Process {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest {
        git,
        ..ExecRequest::new(&argv, &cwd, Duration::from_secs(60))
    };
    let options = ProcessOptions {
        io: Io::NoInput,
        idle: Duration::from_secs(60),
        keep: 1 << 16,
    };
    runner.spawn(&spec, options).unwrap()
}

fn wait_for(path: &Path) {
    wait_until(|| path.exists(), &format!("{path:?} does not appear"));
}

fn wait_until(is_so: impl Fn() -> bool, otherwise: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn let_go_on(world: &World, process: &Process) -> ProcessEnd {
    std::fs::write(world.workspace.join("go"), "").unwrap();
    process.wait_end(Duration::from_secs(30)).unwrap()
}

/// Makes the workspace a real repository; `None` without git or where git directories are not overlaid.
fn repository(world: &World) -> Option<Runner> {
    let dir = &world.workspace;
    std::fs::remove_dir_all(dir.join(".git")).unwrap();
    std::fs::remove_dir_all(dir.join("lib")).unwrap();
    if Command::new("git").arg("--version").output().is_err() {
        return None;
    }
    git(dir, &["init", "-q", "-b", "main"]);
    for (key, value) in [("user.name", "a"), ("user.email", "a@b"), ("gc.auto", "0")] {
        git(dir, &["config", key, value]);
    }
    std::fs::write(
        dir.join(".git/info/exclude"),
        "ready\ngo\n.llmc\nartifacts\nllmc.toml\ntree\n",
    )
    .unwrap();
    git(dir, &["add", "inside.txt"]);
    git(dir, &["commit", "-qm", "start"]);
    let runner = world.runner(Confinement::Auto);
    let (level, works) = (*runner.level(), runner.level().mountns);
    assert_eq!(level.git_overlay, works, "{level}");
    works.then_some(runner)
}

/// The host's git.
fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*"])
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
