//! What git does in commands, as the host's git sees it afterwards.

use crate::git_world::{Step, git, ok, play, repository};
use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("what_git_does_reaches_the_host", work);
    add("operations_go_on_in_later_runs", operations);
    add("many_repositories_in_one_run", many);
    add("a_deleted_repository_is_gone", deleted);
}

const WORK: &[Step] = &[
    (
        "echo one > f && git add f && git commit -qm one",
        &[
            (&["log", "--format=%s"], "one\nstart\n"),
            (&["status", "--short", "--untracked-files=no"], ""),
        ],
    ),
    (
        "git checkout -q -b topic && echo two >> f && git commit -qam two",
        &[(&["branch", "--show-current"], "topic\n")],
    ),
    // A branch gives way to a folder of branches, and the other way round.
    (
        "git branch b && git branch -D -q b && git branch b/c",
        &[(&["branch", "--list", "b*"], "  b/c\n")],
    ),
    (
        "git branch -D -q b/c && git branch b",
        &[(&["branch", "--list", "b*"], "  b\n")],
    ),
    (
        "echo three >> f && git stash -q && git checkout -q main && git stash list | grep -q topic",
        &[(&["stash", "list", "--format=%gd"], "stash@{0}\n")],
    ),
    (
        "git merge -q topic && git stash pop -q && git commit -qam three && git tag v1",
        &[(&["log", "-1", "--format=%s", "v1"], "three\n")],
    ),
    (
        "for n in 1 2 3 4 5; do echo $n > g && git add g && git commit -qm g$n || exit; done",
        &[(&["log", "-1", "--format=%s"], "g5\n")],
    ),
    (
        "git gc -q --prune=now && git pack-refs --all && test ! -e .git/refs/heads/main",
        &[(&["count-objects"], "0 objects, 0 kilobytes\n")],
    ),
    ("git branch -D -q b", &[(&["branch", "--list", "b*"], "")]),
    (
        "git config user.name c && git config --unset user.name && git config user.name d",
        &[(&["config", "--local", "--get-all", "user.name"], "d\n")],
    ),
    (
        "git remote add o https://example.com/o.git && git remote rename o p",
        &[(&["remote"], "p\n")],
    ),
    ("git remote remove p", &[(&["remote"], "")]),
    (
        "git init -q -b main made && git -C made -c user.name=a -c user.email=a@b commit -q --allow-empty -m made",
        &[(&["-C", "made", "log", "--format=%s"], "made\n")],
    ),
    (
        "git clone -q made cloned && git -C cloned fetch -q origin",
        &[
            (&["-C", "cloned", "log", "--format=%s"], "made\n"),
            (
                &["-C", "cloned", "branch", "-r", "--list", "origin/main"],
                "  origin/main\n",
            ),
        ],
    ),
    (
        "git -c protocol.file.allow=always submodule --quiet add $PWD/made libs/sub && git commit -qm sub",
        &[
            (&["-C", "libs/sub", "log", "--format=%s"], "made\n"),
            (&["log", "-1", "--format=%s"], "sub\n"),
            (
                &[
                    "submodule",
                    "foreach",
                    "--quiet",
                    "git branch --show-current",
                ],
                "main\n",
            ),
        ],
    ),
    (
        "git -C libs/sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m inner",
        &[(&["-C", "libs/sub", "log", "-1", "--format=%s"], "inner\n")],
    ),
    (
        "git worktree add -q tree -b side && git -C tree commit -q --allow-empty -m side",
        &[
            (&["log", "-1", "--format=%s", "side"], "side\n"),
            (
                &["-C", "tree", "status", "--short", "--branch"],
                "## side\n",
            ),
        ],
    ),
    (
        "git -C tree commit -q --allow-empty -m later",
        &[(&["-C", "tree", "log", "-1", "--format=%s"], "later\n")],
    ),
    (
        "git worktree remove --force tree && git branch -D -q side",
        &[(&["branch", "--list", "side"], "")],
    ),
];

fn work() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let host = |args: &[&str]| git(&world.workspace, args);
    play(&world, &runner, WORK);
    assert!(!world.workspace.join(".git/worktrees/tree").exists());
    // Working trees that the host makes are as good.
    host(&["worktree", "add", "-q", "tree", "-b", "other"]);
    ok(
        &world,
        &runner,
        "git worktree list | grep -q other && git -C tree commit -q --allow-empty -m other",
    );
    assert_eq!(host(&["log", "-1", "--format=%s", "other"]), "other\n");
    assert_eq!(host(&["fsck", "--full", "--no-dangling"]), "");
}

/// Operations that stop, and go on in another run.
const OPERATIONS: &[&[Step]] = &[
    &[
        (
            "git checkout -q -b l && echo l > f && git add f && git commit -qm l
             git checkout -q -b r main && echo r > f && git add f && git commit -qm r
             ! git merge -q l",
            &[
                (&["diff", "--name-only", "--diff-filter=U"], "f\n"),
                (&["log", "-1", "--format=%s", "MERGE_HEAD"], "l\n"),
            ],
        ),
        (
            "test -e .git/MERGE_MSG && echo both > f && git commit -qam merged",
            &[
                (&["log", "-1", "--format=%s", "HEAD^2"], "l\n"),
                (&["status", "--short", "--untracked-files=no"], ""),
            ],
        ),
    ],
    &[
        (
            "git checkout -q -b l && for n in 1 2 3; do echo l$n > f && git add f && git commit -qm l$n || exit; done
             git checkout -q main && echo r > f && git add f && git commit -qm r
             git checkout -q l; ! git rebase -q main",
            &[
                (&["diff", "--name-only", "--diff-filter=U"], "f\n"),
                (&["log", "-1", "--format=%s", "REBASE_HEAD"], "l1\n"),
            ],
        ),
        (
            "echo l1 > f && git add f && GIT_EDITOR=true git rebase --continue > /dev/null",
            &[
                (&["log", "--format=%s"], "l3\nl2\nl1\nr\nstart\n"),
                (&["branch", "--show-current"], "l\n"),
                (&["status", "--short", "--untracked-files=no"], ""),
            ],
        ),
        // A directory of the same name, made anew within one run.
        (
            "git reset -q --hard main && echo x > f && git commit -qam x && git checkout -q -b m HEAD~2
             echo m1 > f && git add f && git commit -qm m1; ! git rebase -q l && git rebase --abort && ! git rebase -q l",
            &[(&["log", "-1", "--format=%s", "REBASE_HEAD"], "m1\n")],
        ),
        (
            "echo m1 > f && git add f && GIT_EDITOR=true git rebase --continue > /dev/null",
            &[(&["log", "--format=%s"], "m1\nx\nr\nstart\n")],
        ),
    ],
    &[
        (
            "git checkout -q -b l && for n in 1 2; do echo $n > f && git add f && git commit -qm l$n || exit; done
             git checkout -q main && echo r > f && git add f && git commit -qm r
             ! git cherry-pick l~1 l > /dev/null 2>&1",
            &[(&["log", "-1", "--format=%s", "CHERRY_PICK_HEAD"], "l1\n")],
        ),
        (
            "echo 1 > f && git add f && GIT_EDITOR=true git cherry-pick --continue > /dev/null",
            &[(&["log", "--format=%s"], "l2\nl1\nr\nstart\n")],
        ),
    ],
];

fn operations() {
    for steps in OPERATIONS {
        let world = World::new();
        let Some(runner) = repository(&world) else {
            return;
        };
        play(&world, &runner, steps);
        for left in [
            "rebase-merge",
            "sequencer",
            "MERGE_HEAD",
            "CHERRY_PICK_HEAD",
        ] {
            assert!(!world.workspace.join(".git").join(left).exists(), "{left}");
        }
    }
}

fn many() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let names: Vec<String> = (0..40).map(|n| format!("many/r{n}")).collect();
    for name in &names {
        git(&world.workspace, &["init", "-q", "-b", "main", name]);
    }
    ok(
        &world,
        &runner,
        "for d in many/*; do echo $d > $d/f && git -C $d add f && \
         git -C $d -c user.name=a -c user.email=a@b commit -qm $d || exit; done",
    );
    for name in &names {
        let dir = world.workspace.join(name);
        assert_eq!(git(&dir, &["log", "--format=%s"]), format!("{name}\n"));
        assert_eq!(git(&dir, &["status", "--short"]), "");
    }
}

fn deleted() {
    let world = World::new();
    let Some(runner) = repository(&world) else {
        return;
    };
    let host = |args: &[&str]| git(&world.workspace, args);
    host(&["init", "-q", "sub"]);
    host(&[
        "-C",
        "sub",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    ]);
    ok(&world, &runner, "git -C sub status");
    // Some of it is mounted, so the command itself may say that it is busy.
    let ran = world.run(
        &runner,
        &[
            "sh",
            "-c",
            "rm -rf sub 2> /dev/null; test ! -e sub/.git/HEAD",
        ],
    );
    assert!(ran.finished.status.is_success(), "{ran:?}");
    assert!(ran.finished.quarantined.is_empty(), "{ran:?}");
    assert!(!world.workspace.join("sub/.git").exists(), "{ran:?}");
    // One of that name is another one.
    ok(
        &world,
        &runner,
        "rm -rf sub && git init -q sub && git -C sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m y",
    );
    assert_eq!(host(&["-C", "sub", "log", "--format=%s"]), "y\n");
    // One whose refs and commits are still there is not.
    let ran = world.run(&runner, &["sh", "-c", "rm .git/HEAD .git/index"]);
    assert!(world.workspace.join(".git/config").exists(), "{ran:?}");
    assert!(!world.workspace.join(".git/HEAD").exists(), "{ran:?}");
}
