//! Git directories as mirrors: the host and commands at the same time, and servers that end.

use std::process::{Command, Stdio};
use std::time::Duration;

use llmc_exec::{
    Confinement, ExecRequest, GitAccess, RunReport, Runner, Stream, followed_git_dirs,
};
use llmc_host::CancelToken;

use crate::git_world::{
    WAIT, assert_reported, git, let_go_on, make_repository, mirrored, ok, play, start, wait_for,
    wait_until,
};
use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("both_sides_see_each_other_while_a_process_runs", live);
    add("what_both_sides_changed_is_the_hosts", both_sides);
    add("a_lock_of_what_the_host_changed_is_not_renamed", stale);
    add("what_a_killed_server_left_is_taken_over", taken_over);
    add("a_working_tree_of_a_repository_elsewhere", elsewhere);
    add("a_process_that_only_reads_changes_nothing", read_only);
    add("mirrors_leave_nothing_behind", no_litter);
}

fn live() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let host = |args: &[&str]| git(&world.workspace, args);
    let status: &[&str] = &["status", "--short", "--untracked-files=no"];
    let script = format!(
        "echo theirs > f && git add f && git commit -qm theirs\n{WAIT}
         until test $(git branch --show-current) = ours && git diff --cached --quiet; do sleep 0.02; done
         git log --format=%s && git config user.name"
    );
    let process = start(&world, &runner, &script, GitAccess::ReadWrite);
    wait_for(&world.workspace.join("ready"));
    assert_eq!(host(&["log", "--format=%s"]), "theirs\nstart\n");
    // The index follows when the kernel has told of it.
    wait_until(|| host(status).is_empty(), "the index stays behind");
    host(&["checkout", "-q", "-b", "ours"]);
    std::fs::write(world.workspace.join("g"), "ours\n").unwrap();
    host(&["add", "g"]);
    host(&["commit", "-qm", "ours"]);
    host(&["config", "user.name", "host"]);
    let ran = ok(
        &world,
        &runner,
        "git log --format=%s && git config user.name",
    );
    assert_eq!(ran.out, "ours\ntheirs\nstart\nhost\n");
    ok(&world, &runner, "git commit -q --allow-empty -m run");
    let end = let_go_on(&world, &process);
    let out = String::from_utf8(process.look(0, 1 << 10).bytes).unwrap();
    // Git may first say what it cannot read of another user's home directory.
    assert!(
        out.ends_with("run\nours\ntheirs\nstart\nhost\n"),
        "{out} {end:?}"
    );
    assert!(end.status.is_success() && end.notes.is_empty(), "{end:?}");
    assert_eq!(host(&["log", "-1", "--format=%s"]), "run\n");
    assert_eq!(host(status), "");
}

/// What a command and the host change at the same time.
struct Both {
    command: &'static str,
    host: &'static [&'static [&'static str]],
    /// The file of which the host's version is kept, if the command's is lost.
    conflict: Option<&'static str>,
    looks: &'static [(&'static [&'static str], &'static str)],
}

/// Renames of git's locks are carried out on both sides at once; other names wait for the comparison.
const BOTH_SIDES: &[Both] = &[
    Both {
        command: "git commit-tree -p HEAD -m theirs HEAD^{tree} > .git/made && mv .git/made .git/HEAD",
        host: &[&["checkout", "-q", "-b", "ours"]],
        conflict: Some("HEAD"),
        looks: &[
            (&["branch", "--show-current"], "ours\n"),
            (
                &["for-each-ref", "--format=%(subject)", "refs/llmc"],
                "theirs\n",
            ),
        ],
    },
    Both {
        command: "git branch theirs && echo ref: refs/heads/theirs > .git/made && mv .git/made .git/HEAD && \
                  git commit -q --allow-empty -m theirs",
        host: &[&["checkout", "-q", "-b", "ours"]],
        conflict: Some("HEAD"),
        looks: &[
            (&["branch", "--show-current"], "ours\n"),
            (&["log", "-1", "--format=%s", "theirs"], "theirs\n"),
            (&["for-each-ref", "refs/llmc"], ""),
        ],
    },
    Both {
        command: "echo theirs > f && git add f && git commit -qm theirs",
        host: &[&["update-index", "--refresh"]],
        conflict: None,
        looks: &[
            (&["log", "-1", "--format=%s"], "theirs\n"),
            (&["status", "--short", "--untracked-files=no"], ""),
        ],
    },
    Both {
        command: "echo theirs > f && git add f && cp .git/index .git/made && mv .git/made .git/index",
        host: &[&["mv", "inside.txt", "outside.txt"]],
        conflict: None,
        looks: &[(&["ls-files"], "f\noutside.txt\n")],
    },
    Both {
        command: "git branch theirs && git pack-refs --all && sed '/keep/d' .git/packed-refs > .git/made && \
                  mv .git/made .git/packed-refs",
        host: &[&["branch", "ours"], &["pack-refs", "--all"]],
        conflict: None,
        looks: &[(
            &["branch", "--format=%(refname:short)"],
            "main\nours\ntheirs\n",
        )],
    },
    Both {
        command: "sed 's/name = .*/name = theirs/' .git/config > .git/made && mv .git/made .git/config",
        host: &[&["config", "user.name", "ours"]],
        conflict: Some("config"),
        looks: &[(&["config", "--local", "--get-all", "user.name"], "ours\n")],
    },
];

/// A rename of a lock fails where the host has changed the file since.
fn stale() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let script = format!(
        "git branch theirs && echo ref: refs/heads/theirs > .git/HEAD.lock\n{WAIT}; mv .git/HEAD.lock .git/HEAD"
    );
    let process = start(&world, &runner, &script, GitAccess::ReadWrite);
    wait_for(&world.workspace.join("ready"));
    git(&world.workspace, &["checkout", "-q", "-b", "ours"]);
    let end = let_go_on(&world, &process);
    assert!(!end.status.is_success(), "{end:?}");
    let branch = git(&world.workspace, &["branch", "--show-current"]);
    assert_eq!(branch, "ours\n", "{end:?}");
}

fn both_sides() {
    for case in BOTH_SIDES {
        let world = World::new();
        let Some(runner) = mirrored(&world) else {
            return;
        };
        let host = |args: &[&str]| git(&world.workspace, args);
        host(&["branch", "keep"]);
        host(&["pack-refs", "--all"]);
        ok(&world, &runner, "git update-index --refresh");
        // Makes the index remember other times of the same file.
        let file = std::fs::File::options()
            .append(true)
            .open(world.workspace.join("inside.txt"));
        let past = std::time::SystemTime::now() - Duration::from_secs(100);
        file.unwrap().set_modified(past).unwrap();
        let report = while_compared(&world, &runner, case.command, || {
            case.host.iter().for_each(|args| drop(host(args)));
        });
        let notes = report.notes.join(" ");
        match case.conflict {
            Some(name) => {
                assert!(!report.status.is_success(), "{}: {report:?}", case.command);
                assert!(
                    notes.contains(&format!(".git/{name} was changed")),
                    "{report:?}"
                );
            }
            None => {
                assert!(report.status.is_success(), "{}: {report:?}", case.command);
                assert_eq!(notes, "", "{}", case.command);
            }
        }
        for (args, wanted) in case.looks {
            assert_eq!(
                host(args),
                *wanted,
                "{}: {args:?}: {report:?}",
                case.command
            );
        }
        let kept = host(&["for-each-ref", "--format=%(refname)", "refs/llmc"]);
        assert!(notes.contains(kept.trim_end()), "{kept}: {report:?}");
        // The next run sees the host's.
        for (args, wanted) in case.looks {
            let ran = world.run(&runner, &[&["git"], *args].concat());
            assert_eq!(ran.out, *wanted, "{}: {args:?}: {ran:?}", case.command);
        }
        assert_eq!(host(&["fsck", "--no-dangling"]), "");
    }
}

/// Runs a command, and lets the host do something before what both have done is compared: while the server hands on output
/// it compares nothing.
fn while_compared(world: &World, runner: &Runner, command: &str, on_host: impl Fn()) -> RunReport {
    let argv = ["sh", "-c", &format!("echo begun\n{command} && touch done")].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest::new(&argv, &cwd, Duration::from_secs(60));
    let mut sink = |_: Stream, bytes: &[u8]| {
        if bytes.starts_with(b"begun") {
            wait_for(&world.workspace.join("done"));
            on_host();
        }
    };
    runner
        .run(&spec, &mut sink, &CancelToken::default())
        .unwrap()
}

/// What the killed server's command does.
const LEFT: &str = "git checkout -q -b theirs && echo theirs > f && git add f && git commit -qm theirs
    git rev-parse HEAD > .git/made && mv .git/made .git/HEAD
    { cat .git/config; printf '[user]\\n\\tname = c\\n[alias]\\n\\tx = !evil\\n'; } > .git/made && mv .git/made .git/config";

fn taken_over() {
    let world = World::new();
    if mirrored(&world).is_none() {
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["__halted", &text(&world.base)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&world.workspace.join("done"));
    server.kill().unwrap();
    server.wait().unwrap();
    let host = |args: &[&str]| git(&world.workspace, args);
    assert_eq!(
        host(&["branch", "--show-current"]),
        "theirs\n",
        "carried over before"
    );
    let runner = world.runner(Confinement::Auto);
    let ran = world.run(&runner, &["git", "log", "-1", "--format=%s"]);
    assert_eq!(ran.out, "theirs\n", "{ran:?}");
    let notes = ran.finished.notes.join(" ");
    for part in ["was killed", "HEAD", "not taken over: config"] {
        assert!(notes.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(host(&["branch", "--show-current"]), "");
    assert_eq!(host(&["log", "-1", "--format=%s"]), "theirs\n");
    assert_eq!(host(&["status", "--short", "--untracked-files=no"]), "");
    assert_eq!(host(&["config", "user.name"]), "c\n");
    let config = std::fs::read_to_string(world.workspace.join(".git/config")).unwrap();
    assert!(!config.contains("evil"), "{config}");
    // Said once, and only the new server's mirrors are left.
    ok(&world, &runner, "true");
    let left = std::fs::read_dir(world.workspace.join(".llmc/git-mirrors")).unwrap();
    assert_eq!(left.count(), 1);
}

/// A server that is to be killed before it has carried over what its command did.
pub(crate) fn halt(world: &World) {
    let runner = world.runner(Confinement::Auto);
    while_compared(world, &runner, LEFT, || {
        loop {
            std::thread::park();
        }
    });
}

fn elsewhere() {
    let mut world = World::new();
    let main = world.outside.join("main");
    std::fs::create_dir(&main).unwrap();
    if !make_repository(&main) {
        return;
    }
    for tree in ["tree", "foreign"] {
        let path = text(&world.base.join(tree));
        git(&main, &["worktree", "add", "-q", &path, "-b", tree]);
    }
    world.workspace = world.base.join("tree");
    let mut settings = world.settings(Confinement::Auto);
    let state_dir = world.outside.join("state");
    std::fs::create_dir(&state_dir).unwrap();
    settings.state_dir = Some(state_dir);
    settings.git_dirs = followed_git_dirs(&settings.write_roots);
    assert_eq!(settings.git_dirs, [main.join(".git")]);
    let runner = Runner::open(settings).unwrap();
    // Without mounts nothing outside the roots can be written.
    if !runner.level().mountns {
        let ran = world.run(&runner, &["git", "branch", "new"]);
        assert!(!ran.finished.status.is_success(), "{ran:?}");
        return;
    }
    play(
        &world,
        &runner,
        &[
            (
                "echo x > f && git add f && git commit -qm x && git branch new",
                &[
                    (&["log", "-1", "--format=%s", "tree"], "x\n"),
                    (&["status", "--short"], ""),
                ],
            ),
            (
                "git checkout -q --detach && git commit -q --allow-empty -m y",
                &[(&["log", "-1", "--format=%s"], "y\n")],
            ),
        ],
    );
    assert_eq!(git(&main, &["log", "-1", "--format=%s", "new"]), "x\n");
    assert_eq!(git(&main, &["status", "--short"]), "");
    let foreign = main.join(".git/worktrees/foreign");
    let head = std::fs::read_to_string(foreign.join("HEAD")).unwrap();
    let dir = text(&foreign);
    for attempt in [
        format!("echo {} > {dir}/HEAD", "0".repeat(40)),
        format!("rm {dir}/index"),
        format!("touch {dir}/new"),
        format!("echo x > {}/f", text(&main)),
        format!("mv {dir} {dir}-away"),
    ] {
        let ran = world.run(&runner, &["sh", "-c", &attempt]);
        assert!(!ran.finished.status.is_success(), "{attempt}: {ran:?}");
        assert_eq!(std::fs::read_to_string(foreign.join("HEAD")).unwrap(), head);
        assert!(foreign.join("index").exists() && !foreign.join("new").exists());
        assert!(!main.join("f").exists(), "{attempt}: {ran:?}");
    }
    let ran = world.run(&runner, &["git", "config", "alias.x", "!evil"]);
    assert_reported(&ran.finished.quarantined, &main.join(".git/config"));
    let config = std::fs::read_to_string(main.join(".git/config")).unwrap();
    assert!(!config.contains("evil"), "{config}");
}

fn read_only() {
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
    let script = "echo x > .git/x; mkdir .git/y; echo z > .git/y/z; chmod 0 .git/y; rm .git/HEAD";
    world.run(&runner, &["sh", "-c", script]);
    assert!(!world.workspace.join(".git/HEAD").exists());
    assert!(world.workspace.join(".git/x").exists());
    drop(runner);
    let mirrors = world.workspace.join(".llmc/git-mirrors");
    let left = std::fs::read_dir(&mirrors).map_or(0, |dir| dir.count());
    assert_eq!(left, 0, "{mirrors:?}");
}
