//! What decides what git runs: judged by its content, wherever a command plants it.

use llmc_exec::{Confinement, GitAccess, Protection, Runner};

use crate::git_world::{
    WAIT, assert_reported, git, let_go_on, make_repository, mirrored, ok, repository, start,
    texts_below, wait_for, wait_until,
};
use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("planted_git_names_never_reach_the_host", planted);
    add("settings_are_judged_one_by_one", settings);
    add("settings_are_judged_wherever_the_repository_is", places);
    add("what_stays_out_goes_with_its_directory", left_out);
    add("new_repositories_are_judged_at_any_depth", nested);
    add("a_repository_that_is_moved_stays", moved);
    add("new_repositories_are_judged_while_a_run_goes_on", at_once);
    add(
        "a_run_that_makes_repositories_without_end_is_ended",
        endless,
    );
    add("bare_repositories_run_nothing_new", bare);
    add("what_gits_configuration_includes_stays", included);
}

/// A setting that runs a program, for git and for these tests by its name.
const EVIL: &str = "[core]\n\tfsmonitor = ./evil\n";

/// What git runs or follows, where a command could plant it, and with which content.
const PLANTED: &[(&str, &str)] = &[
    (".git/commondir", "../evil\n"),
    (".git/gitdir", "/evil/.git\n"),
    (".git/rebase-merge/git-rebase-todo", "exec ./evil\n"),
    (".git/rebase-merge/done", "pick evil\nexec ./evil\n"),
    (".git/rebase-apply/evil", "evil\n"),
    (".git/sequencer/todo", "exec ./evil\n"),
    (".git/config.worktree", EVIL),
    (".git/info/attributes", "* filter=evil\n"),
    (".git/objects/info/alternates", "/evil/objects\n"),
    (".git/objects/info/http-alternates", "http://evil/\n"),
    (".git/modules/libs/foo/config", EVIL),
    (".git/modules/m/hooks/post-checkout", "#!/bin/sh\nevil\n"),
    (".git/modules/m/worktrees/w/commondir", "../evil\n"),
    (".git/worktrees/w/commondir", "../../../evil\n"),
    (".git/worktrees/w/gitdir", "/evil/.git\n"),
    (".git/worktrees/w/config.worktree", EVIL),
    ("lib/nested/.git/commondir", "../evil\n"),
    ("lib/nested/.git/modules/a/b/config", EVIL),
];

fn planted() {
    let script = |world: &World| {
        let mut script = "set -e\n".to_owned();
        for (at, (name, content)) in PLANTED.iter().enumerate() {
            let source = world.workspace.join(format!("content-{at}"));
            std::fs::write(source, content).unwrap();
            script.push_str(&format!(
                "mkdir -p $(dirname {name})\ncat content-{at} > {name}\ntest -e {name}\n"
            ));
        }
        script + "echo x > .git/harmless\n" + WAIT
    };
    let there = |world: &World| -> Vec<&str> {
        let is_there = |name: &&str| {
            let text = std::fs::read_to_string(world.workspace.join(name));
            text.is_ok_and(|text| text.contains("evil"))
        };
        PLANTED
            .iter()
            .map(|(name, _)| *name)
            .filter(is_there)
            .collect()
    };
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let process = start(&world, &runner, &script(&world), GitAccess::ReadWrite);
    wait_for(&world.workspace.join("ready"));
    if runner.level().mountns {
        assert_eq!(there(&world), [""; 0], "on the host while it runs");
    }
    let end = let_go_on(&world, &process);
    assert!(end.status.is_success(), "{end:?}");
    assert_eq!(there(&world), [""; 0], "on the host: {end:?}");
    for (name, _) in PLANTED {
        assert_reported(&end.quarantined, &world.workspace.join(name));
    }
    assert!(world.workspace.join(".git/harmless").exists(), "{end:?}");
    // Nor does a later run bring it there.
    let ran = world.run(&runner, &["sh", "-c", "echo y > .git/harmless"]);
    assert!(ran.finished.status.is_success(), "{ran:?}");
    drop(runner);
    assert_eq!(there(&world), [""; 0], "on the host later: {ran:?}");
    // Without a boundary all of it works, or this proves nothing.
    let world = World::new();
    let runner = world.runner(Confinement::Off);
    let process = start(&world, &runner, &script(&world), GitAccess::ReadWrite);
    wait_for(&world.workspace.join("ready"));
    let_go_on(&world, &process);
    assert_eq!(there(&world).len(), PLANTED.len());
}

/// A command that changes the settings, the items that stay out, and what is set at the end.
type SettingsCase = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

const SETTINGS: &[SettingsCase] = &[
    (
        "git config user.name c; git config alias.x '!evil'; git config branch.main.rebase true",
        &["alias.x"],
        &[("user.name", "c"), ("branch.main.rebase", "true")],
    ),
    (
        "printf '[user]\\n\\tname = c\\n[core]\\n\\tpager = evil\\n\\thooksPath = evil\\n' >> .git/config",
        &["core.hookspath", "core.pager"],
        &[("user.name", "c")],
    ),
    (
        "git remote add o https://example.com/o.git; git config include.path ../evil; git remote rename o p",
        &["include.path"],
        &[("remote.p.url", "https://example.com/o.git")],
    ),
    (
        "echo 'evil = 1' > .git/config",
        &["the file"],
        &[("user.name", "a")],
    ),
    ("rm .git/config", &["the file"], &[("user.name", "a")]),
    (
        "git config core.pager evil; git config alias.x '!evil'; true",
        &["alias.x", "core.pager"],
        &[("user.name", "a")],
    ),
];

fn settings() {
    for (script, out, set) in SETTINGS {
        let world = World::new();
        let Some(runner) = repository(&world) else {
            return;
        };
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert!(ran.finished.status.is_success(), "{script}: {ran:?}");
        let config = world.workspace.join(".git/config");
        for (key, value) in *set {
            let found = git(&world.workspace, &["config", "--get", key]);
            assert_eq!(found.trim_end(), *value, "{script}: {key}: {ran:?}");
        }
        let content = std::fs::read_to_string(&config).unwrap();
        assert!(!content.contains("evil"), "{script}: {content}");
        let mut named: Vec<String> = Vec::new();
        for one in &ran.finished.quarantined {
            assert_eq!(one.path, config, "{script}: {ran:?}");
            named.extend(one.rejected.as_ref().map(|one| one.item.to_lowercase()));
        }
        named.sort();
        assert_eq!(named, *out, "{script}: {ran:?}");
        let ran = world.run(&runner, &["git", "config", "--get", "user.name"]);
        assert!(ran.finished.quarantined.is_empty(), "{script}: {ran:?}");
        assert_eq!(ran.out, git(&world.workspace, &["config", "user.name"]));
    }
}

/// A submodule, and a repository in a further place that commands may write.
fn places() {
    let world = World::new();
    if repository(&world).is_none() {
        return;
    }
    let extra = world.outside.join("extra");
    std::fs::create_dir(&extra).unwrap();
    make_repository(&extra);
    let from = text(&extra);
    let add = ["submodule", "--quiet", "add", "--force", &from, "sub"];
    let allowed = ["-c", "protocol.file.allow=always"];
    git(&world.workspace, &[&allowed[..], &add].concat());
    let mut settings = world.settings(Confinement::Auto);
    settings.extra_write = vec![extra.clone()];
    let runner = Runner::open(settings).unwrap();
    for (place, git_dir) in [
        ("sub", world.workspace.join(".git/modules/sub")),
        (&from, extra.join(".git")),
    ] {
        let script = format!(
            "git -C {place} config user.name c; git -C {place} config core.fsmonitor ./evil
             echo evil > {}/hooks/post-checkout; git -C {place} -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
            text(&git_dir)
        );
        let ran = world.run(&runner, &["sh", "-c", &script]);
        assert!(ran.finished.status.is_success(), "{ran:?}");
        assert_reported(&ran.finished.quarantined, &git_dir.join("config"));
        let config = std::fs::read_to_string(git_dir.join("config")).unwrap();
        assert!(
            config.contains("name = c") && !config.contains("evil"),
            "{config}"
        );
        assert!(!git_dir.join("hooks/post-checkout").exists(), "{ran:?}");
        let dir = world.workspace.join(place);
        assert_eq!(git(&dir, &["log", "-1", "--format=%s"]), "x\n", "{ran:?}");
    }
}

fn left_out() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let dir = world.workspace.join(".git/sequencer");
    let script = "mkdir .git/sequencer && echo 'exec ./evil' > .git/sequencer/todo";
    let ran = world.run(&runner, &["sh", "-c", script]);
    assert_reported(&ran.finished.quarantined, &dir.join("todo"));
    // The shell makes the file before it writes to it, and an empty one is harmless.
    let kept = std::fs::read_to_string(dir.join("todo")).unwrap_or_default();
    assert_eq!(kept, "", "{ran:?}");
    std::fs::remove_dir_all(&dir).unwrap();
    for _ in 0..2 {
        ok(&world, &runner, "test ! -e .git/sequencer");
        assert!(!dir.exists(), "it is back");
    }
}

fn nested() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let deep = "a/b/c/d/e/f/g/h/i/j/k/l/m/n";
    let script = format!(
        "mkdir -p {deep}/.git/hooks node_modules/x/y/.git/hooks; for n in $(seq 600); do mkdir -p many/$n; done
         mkdir -p many/zzz/.git/hooks; for d in {deep} node_modules/x/y many/zzz
         do printf '[user]\\n\\tname = x\\n{evil}' > $d/.git/config; echo evil > $d/.git/hooks/post-checkout; done",
        evil = EVIL.replace('\n', "\\n").replace('\t', "\\t"),
    );
    // Some may be gone before it writes to them.
    let ran = world.run(&runner, &["sh", "-c", &script]);
    for dir in [deep, "node_modules/x/y", "many/zzz"] {
        let git_dir = world.workspace.join(dir).join(".git");
        let config = std::fs::read_to_string(git_dir.join("config")).unwrap();
        assert!(config.contains("name = x"), "{dir}: {config}");
        let left = texts_below(&git_dir);
        assert!(!left.contains("evil"), "{dir}: {left} {ran:?}");
        for name in ["config", "hooks/post-checkout"] {
            assert_reported(&ran.finished.quarantined, &git_dir.join(name));
        }
    }
}

/// Makes a repository and a bare one whose configuration runs a program, and a harmless folder.
const MAKE_REPOSITORIES: &str =
    "mkdir -p sub/.git/objects sub/.git/refs deep/bare/objects deep/bare/refs other/objects
    for d in sub/.git deep/bare; do
        echo 'ref: refs/heads/main' > $d/HEAD
        printf '[core]\\n fsmonitor = ./evil\\n worktree = .\\n bare = false\\n' > $d/config
    done
    echo evil > other/config\n";

fn at_once() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let script = format!("{MAKE_REPOSITORIES}{WAIT}");
    let process = start(&world, &runner, &script, GitAccess::ReadOnly);
    wait_for(&world.workspace.join("ready"));
    let configs = ["sub/.git/config", "deep/bare/config"];
    let is_evil = |world: &World, name: &str| {
        let config = std::fs::read_to_string(world.workspace.join(name));
        config.is_ok_and(|config| config.contains("evil") || config.contains("worktree"))
    };
    for name in configs {
        wait_until(
            || !is_evil(&world, name),
            &format!("{name} stays while it runs"),
        );
    }
    let end = let_go_on(&world, &process);
    for name in configs {
        assert!(!is_evil(&world, name), "{end:?}");
        assert_reported(&end.quarantined, &world.workspace.join(name));
    }
    assert!(world.workspace.join("sub/.git/HEAD").exists(), "{end:?}");
    assert!(world.workspace.join("deep/bare/HEAD").exists(), "{end:?}");
    assert!(is_evil(&world, "other/config"), "no repository");
    // Without a boundary they stay.
    let world = World::new();
    let runner = world.runner(Confinement::Off);
    let process = start(&world, &runner, &script, GitAccess::ReadOnly);
    wait_for(&world.workspace.join("ready"));
    let_go_on(&world, &process);
    assert!(configs.iter().all(|name| is_evil(&world, name)));
}

fn endless() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let script = "i=0; while :; do i=$((i + 1)); d=many/$((i % 500))/.git/hooks
                  mkdir -p $d; echo evil > $d/pre-commit; done";
    let ran = world.run(&runner, &["sh", "-c", script]);
    let notes = ran.finished.notes.join(" ");
    assert!(notes.contains("without end"), "{:?}", ran.finished);
    assert!(!ran.finished.timed_out, "{:?}", ran.finished);
    let left = texts_below(&world.workspace.join("many"));
    assert!(!left.contains("evil"), "{left}");
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
