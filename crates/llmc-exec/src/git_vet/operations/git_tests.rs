//! Operations of real git that stop half-way.

use std::path::Path;

use super::super::Verdict;
use super::super::test_support::{git, vet_bytes};

/// Operations that stop, in a new repository each, and whether their state is taken.
#[test]
fn what_git_itself_leaves_behind_is_judged() {
    for (branch, command, is_taken) in [
        ("topic", "rebase main", true),
        ("topic", "rebase --apply main", true),
        (
            "topic",
            "rebase --autostash --update-refs --rebase-merges -X patience -X diff-algorithm=histogram --signoff main",
            true,
        ),
        (
            "topic",
            "rebase -s recursive -X ours -X find-renames=40 -i main",
            true,
        ),
        ("topic", "rebase --root -i", true),
        (
            "topic",
            "rebase --committer-date-is-author-date --rerere-autoupdate main",
            true,
        ),
        ("topic", "rebase --exec true main", false),
        ("main", "cherry-pick main..topic", true),
        (
            "main",
            "cherry-pick -X patience -X renormalize -x -s --allow-empty main..topic",
            true,
        ),
        ("main", "cherry-pick -s main..topic", true),
        ("main", "revert --no-edit HEAD~1 HEAD~2", true),
        (
            "main",
            "am -3 -C1 -p1 --whitespace=fix --exclude=a'b --reject --keep --message-id -s ../patches",
            true,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let repository = dir.path().join("repository");
        std::fs::create_dir(&repository).unwrap();
        stop(&repository, branch, command);
        let mut found = 0;
        let mut rejected = Vec::new();
        for name in ["rebase-merge", "rebase-apply", "sequencer"] {
            let Ok(files) = std::fs::read_dir(repository.join(".git").join(name)) else {
                continue;
            };
            for file in files {
                let file = file.unwrap();
                let path = format!("{name}/{}", file.file_name().to_str().unwrap());
                let text = std::fs::read(file.path()).unwrap();
                found += 1;
                if let Verdict::Refused(list) = vet_bytes(&path, &text, None) {
                    rejected.extend(list);
                }
            }
        }
        assert!(found >= 3, "{command}: {found}");
        assert_eq!(rejected.is_empty(), is_taken, "{command}: {rejected:?}");
    }
}

/// Makes a repository with two branches that conflict, and runs a command that stops there.
fn stop(dir: &Path, branch: &str, command: &str) {
    let run = |line: &str| {
        let arguments: Vec<&str> = line.split(' ').collect();
        let editor = "sed -i -e 1s/^pick/reword/ -e 2s/^pick/edit/ -e '3s/^pick/fixup -C/'";
        let mut git = git(dir);
        git.env("GIT_SEQUENCE_EDITOR", editor)
            .env("GIT_EDITOR", "true");
        git.args(arguments).output().unwrap()
    };
    let commit = |text: &str| {
        std::fs::write(dir.join("f"), text).unwrap();
        assert!(run("add .").status.success());
        assert!(run(&format!("commit -qm {text}")).status.success());
    };
    run("init -q -b main");
    commit("base");
    run("switch -qc topic");
    ["t1", "t2é", "t3"].into_iter().for_each(commit);
    run("switch -q main");
    ["m1", "m2"].into_iter().for_each(commit);
    std::fs::write(
        dir.join("../patches"),
        run("format-patch --stdout main..topic").stdout,
    )
    .unwrap();
    run(&format!("switch -q {branch}"));
    run(command);
}
