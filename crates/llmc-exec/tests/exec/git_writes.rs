//! Where the user's git would write because of what a command left: the files that an index names, and the ends of links.

use std::path::Path;

use crate::git_world::{assert_reported, git, mirrored, ok, texts_below};
use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("an_index_that_leads_elsewhere_stays_out", indexes);
    add("no_links_are_made_where_git_writes", links);
    add("links_in_new_repositories_are_taken_away", new_links);
    add("a_repository_that_is_made_again_is_judged", made_again);
    add("addresses_in_old_forms_stay_out", old_addresses);
    add("names_of_objects_keep_their_length", formats);
    add("repositories_have_their_git_directory_elsewhere", apart);
    add("a_submodule_is_moved", moved_submodule);
}

/// An index of one entry.
fn index_with(name: &str) -> Vec<u8> {
    let mut entry = vec![0; 24];
    entry.extend(0o100_755_u32.to_be_bytes());
    entry.extend([0; 12 + 20]);
    entry.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
    entry.extend(name.as_bytes());
    entry.resize((entry.len() + 8) & !7, 0);
    [&b"DIRC\0\0\0\x02\0\0\0\x01"[..], &entry, &[0; 20]].concat()
}

fn indexes() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let dir = &world.workspace;
    git(dir, &["worktree", "add", "-q", "tree"]);
    std::fs::write(dir.join("bad"), index_with(".git/hooks/post-checkout")).unwrap();
    for (script, index) in [
        ("cat bad >.git/index", ".git/index"),
        ("cp bad .git/x && mv .git/x .git/index", ".git/index"),
        (
            "rm .git/index; ln bad .git/index || cp bad .git/index",
            ".git/index",
        ),
        ("cp bad .git/sharedindex.0", ".git/sharedindex.0"),
        (
            "cp bad .git/worktrees/tree/index",
            ".git/worktrees/tree/index",
        ),
        (
            "git init -q made && cp bad made/.git/index",
            "made/.git/index",
        ),
        (
            "git clone -q --bare . made.git && git -C made.git worktree add -q ../cloned &&
             cp bad made.git/worktrees/cloned/index",
            "made.git/worktrees/cloned/index",
        ),
    ] {
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert!(ran.finished.status.is_success(), "{script}: {ran:?}");
        assert_reported(&ran.finished.quarantined, &dir.join(index));
        let left = std::fs::read(dir.join(index)).unwrap_or_default();
        assert!(!left.windows(5).any(|part| part == b"hooks"), "{script}");
    }
    let ran = world.run(
        &runner,
        &[
            "sh",
            "-c",
            "cp bad .git/index.lock && mv .git/index.lock .git/index",
        ],
    );
    assert!(!ran.finished.status.is_success(), "{ran:?}");
    ok(&world, &runner, "rm -f .git/index.lock; git reset -q");
    assert_eq!(git(dir, &["ls-files"]), "inside.txt\n");
    ok(&world, &runner, "echo x > inside.txt && git commit -qam x");
}

fn links() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let made = |script: &str| {
        let ran = world.run(&runner, &["sh", "-c", script]);
        ran.finished.status.is_success()
    };
    for name in [
        "logs/x",
        "logs/refs/heads/x",
        "refs/heads/x",
        "objects/pack/x",
    ] {
        assert!(!made(&format!("ln -s /x .git/{name}")), "{name}");
        let dir = Path::new(name).parent().unwrap().display();
        assert!(!made(&format!("cd .git/{dir} && ln -s /x x")), "{name}");
        assert!(!made(&format!("ln -s .git g; ln -s /x g/{name}")), "{name}");
        assert!(
            !made(&format!(
                "ln -s /x x; mv -T x .git/{name} && test -h .git/{name}"
            )),
            "{name}"
        );
        let path = world.workspace.join(".git").join(name);
        assert!(path.symlink_metadata().is_err(), "{name}");
    }
    // Everywhere else they are.
    let script = "mkdir d && ln -s ../inside.txt d/l && test \"$(cat d/l)\" = inside && (cd d && ln -s l m) &&
                  test \"$(readlink d/m)\" = l && ! ln -s x d/l 2>/dev/null && ! ln -s x none/l 2>/dev/null &&
                  ! ln -s x /proc/l 2>/dev/null && ln -s y /tmp/l && readlink /tmp/l";
    assert!(made(script));
    let link = std::fs::read_link(world.workspace.join("d/m")).unwrap();
    assert_eq!(link, Path::new("l"));
}

fn new_links() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let script = "for d in logs/refs refs/heads objects/pack .; do
                      git init -q made; mkdir -p made/.git/$d; ln -s /x made/.git/$d/l
                  done; git init -q --bare made.git && ln -s /x made.git/l && ln -s /x made.git/logs";
    let ran = world.run(&runner, &["sh", "-c", script]);
    for name in [
        "made/.git/logs/refs/l",
        "made/.git/refs/heads/l",
        "made/.git/objects/pack/l",
        "made/.git/l",
        "made.git/l",
        "made.git/logs",
    ] {
        let path = world.workspace.join(name);
        assert!(path.symlink_metadata().is_err(), "{name}: {ran:?}");
        assert_reported(&ran.finished.quarantined, &path);
    }
}

fn made_again() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let evil = "printf '[core]\\n\\tfsmonitor = ./evil\\n'";
    let script = format!("rm -rf .git && git init -q -b main && {evil} >> .git/config");
    let ran = world.run(&runner, &["sh", "-c", &script]);
    assert!(ran.finished.status.is_success(), "{ran:?}");
    assert_reported(
        &ran.finished.quarantined,
        &world.workspace.join(".git/config"),
    );
    let left = texts_below(&world.workspace.join(".git"));
    assert!(!left.contains("evil"), "{ran:?}");
    ok(
        &world,
        &runner,
        "git add inside.txt && git -c user.name=a -c user.email=a@b commit -qm new",
    );
    assert_eq!(git(&world.workspace, &["log", "--format=%s"]), "new\n");
    let script = "rm -rf .git && git init -q -b main && git add inside.txt && git -c user.name=a -c user.email=a@b commit -qm again";
    ok(&world, &runner, script);
    assert_eq!(git(&world.workspace, &["log", "--format=%s"]), "again\n");
}

fn old_addresses() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let script = "mkdir -p .git/remotes .git/branches; echo 'URL: evil::a' > .git/remotes/o; echo evil::a > .git/branches/o
                  git init -q made; mkdir -p made/.git/remotes; echo 'URL: evil::a' > made/.git/remotes/o";
    let ran = world.run(&runner, &["sh", "-c", script]);
    for name in [".git/remotes/o", ".git/branches/o", "made/.git/remotes/o"] {
        let path = world.workspace.join(name);
        assert!(!path.exists(), "{name}");
        assert_reported(&ran.finished.quarantined, &path);
    }
}

/// An index that is harmless with short names of objects may not be with long ones.
fn formats() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let ran = world.run(
        &runner,
        &["git", "config", "extensions.objectFormat", "sha256"],
    );
    assert!(!ran.finished.status.is_success(), "{ran:?}");
    assert_reported(
        &ran.finished.quarantined,
        &world.workspace.join(".git/config"),
    );
    ok(
        &world,
        &runner,
        "git init -q --object-format=sha256 made && cd made && echo x > x && git add x &&
         git -c user.name=a -c user.email=a@b commit -qm long",
    );
    let made = world.workspace.join("made");
    assert_eq!(git(&made, &["log", "--format=%s"]), "long\n");
    ok(
        &world,
        &runner,
        "cd made && git mv x y && git -c user.name=a -c user.email=a@b commit -qm later",
    );
    assert_eq!(git(&made, &["ls-files"]), "y\n");
}

fn apart() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m";
    ok(
        &world,
        &runner,
        &format!("git init -q --separate-git-dir made.git made && cd made && {commit} one"),
    );
    ok(&world, &runner, &format!("cd made && {commit} two"));
    let made = world.workspace.join("made");
    assert_eq!(git(&made, &["log", "--format=%s"]), "two\none\n");
    // A file that leads to what is no repository here is taken away.
    let ran = world.run(
        &runner,
        &[
            "sh",
            "-c",
            "mkdir cloned && echo 'gitdir: ../none' > cloned/.git",
        ],
    );
    assert_reported(
        &ran.finished.quarantined,
        &world.workspace.join("cloned/.git"),
    );
}

fn moved_submodule() {
    let world = World::new();
    let Some(runner) = mirrored(&world) else {
        return;
    };
    let dir = &world.workspace;
    git(dir, &["init", "-q", "sub"]);
    let identity = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "protocol.file.allow=always",
    ];
    let host = |args: &[&str]| git(dir, &[&identity, args].concat());
    host(&["-C", "sub", "commit", "-q", "--allow-empty", "-m", "x"]);
    host(&["submodule", "--quiet", "add", "./sub", "libs/one"]);
    host(&["commit", "-qm", "sub"]);
    ok(
        &world,
        &runner,
        "git mv libs/one libs/two && git commit -qm moved",
    );
    assert_eq!(host(&["-C", "libs/two", "log", "--format=%s"]), "x\n");
    let ran = world.run(
        &runner,
        &[
            "git",
            "-C",
            "libs/two",
            "config",
            "core.worktree",
            "../../../../../.git",
        ],
    );
    assert!(!ran.finished.status.is_success(), "{ran:?}");
}
