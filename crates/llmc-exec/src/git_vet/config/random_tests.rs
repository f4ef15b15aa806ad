//! What git writes is taken, and random changes of a configuration never pass anything harmful.

use super::super::test_support::{Random, git, vet_bytes};
use super::*;

/// Commands that people run, each on a repository with settings of its user.
#[test]
fn what_git_itself_writes_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = git(dir.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    run(&["init", "-q", "-b", "main"]);
    run(&["commit", "-q", "--allow-empty", "-m", "one"]);
    run(&["config", "alias.x", "!true"]);
    run(&["remote", "add", "origin", "https://example.org/a.git"]);
    run(&[
        "config",
        "remote.origin.uploadpack",
        "/user/git-upload-pack",
    ]);
    let read = || std::fs::read(dir.path().join(".git/config")).unwrap();
    let mut before = read();
    for command in [
        "config user.email a@b.c",
        "remote add other https://example.org/b.git",
        "remote set-url --push origin git@example.org:a.git",
        "config branch.main.merge refs/heads/main",
        "config branch.main.remote origin",
        "branch --edit-description",
        "branch -m main trunk",
        "remote rename origin upstream",
        "sparse-checkout set a",
        "config extensions.worktreeConfig true",
        "config --unset user.email",
        "remote remove upstream",
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        let output = git(dir.path())
            .env("GIT_EDITOR", "echo text >")
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let after = read();
        assert_eq!(
            vet_bytes("config", &after, Some(&before)),
            Verdict::Harmless,
            "{command}"
        );
        before = after;
    }
}

/// Texts made of pieces that matter: whatever the verdict takes, git reads nothing in it that is new and not harmless.
#[test]
fn nothing_harmful_passes_however_a_text_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let pieces = [
        "[alias]\n",
        "[core]\n",
        "[remote \"origin\"]\n",
        "[remote \"b\"]\n",
        "[branch \"main\"]\n",
        "\thooksPath = /user/hooks\n",
        "\thooksPath = /evil\n",
        "\tst = status\n",
        "\tst = !evil\n",
        "\tproxy = p\n",
        "\turl = https://h/a\n",
        "\turl = ext::x\n",
        "\tbare = true\n",
        "\tbare\n",
        "\tpager = \"evil\"\n",
        "[include]\n\tpath = x\n",
        "\"",
        "\\",
        "\n",
        "#",
        "]",
        "[",
        " = ",
        "\r\n",
        "=",
    ];
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let place = ConfigPlace {
        base: PathBase {
            relative_to: Some(Path::new("/w/repo")),
            allowed: &["/w".into()],
        },
        holder: Holder::Repository,
        own_dir: Path::new("/w/repo/.git"),
    };
    let (mut taken, mut asked) = (0, 0);
    for round in 0..6000 {
        let mut new = HOST.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let lines: Vec<usize> = (0..new.len())
                .filter(|at| *at == 0 || new[at - 1] == b'\n')
                .collect();
            let from = *random.pick(&lines);
            let at = if random.below(3) == 0 {
                random.below(new.len())
            } else {
                from
            };
            let end = new[at..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(new.len(), |end| at + end + 1);
            match random.below(3) {
                0 => drop(new.drain(at..end)),
                1 => drop(new.splice(at..at, random.pick(&pieces).bytes())),
                _ => drop(new.splice(at..end, random.pick(&pieces).bytes())),
            }
        }
        let content = match vet_bytes("config", &new, Some(HOST.as_bytes())) {
            Verdict::Harmless => new,
            Verdict::Filtered { content, .. } => content,
            Verdict::Refused(_) => continue,
        };
        taken += 1;
        let lines = parse(&content).unwrap();
        let old_lines = parse(HOST.as_bytes()).unwrap();
        let mut known: Vec<&Entry> = entries(&old_lines).collect();
        let judgement = Judgement::new(&lines, &old_lines, &place);
        for entry in entries(&lines).filter(|entry| vet_entry(entry, &place).is_err()) {
            let key = judgement.old_key(entry);
            let at = known
                .iter()
                .position(|old| old.key == *key && old.value == entry.value);
            known.remove(
                at.unwrap_or_else(|| panic!("{entry:?} in {}", String::from_utf8_lossy(&content))),
            );
        }
        if round % 16 == 0 {
            asked += 1;
            std::fs::write(dir.path().join("text"), &content).unwrap();
            let arguments = ["config", "-f", "text", "-z", "--list"];
            let listed = git(dir.path()).args(arguments).output().unwrap();
            assert!(listed.status.success());
            let listed = String::from_utf8(listed.stdout).unwrap();
            for evil in ["evil", "ext::", "include"] {
                assert!(!listed.contains(evil), "{listed:?}");
            }
        }
    }
    assert!(taken > 1000 && asked > 100, "{taken} {asked}");
}

#[test]
fn arbitrary_bytes_get_a_verdict() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for _ in 0..3000 {
        let count = random.below(60);
        let bytes: Vec<u8> = (0..count)
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect();
        for path in [
            "config",
            "info/attributes",
            "rebase-merge/git-rebase-todo",
            "rebase-merge/author-script",
        ] {
            vet_bytes(path, &bytes, None);
            vet_bytes(path, &bytes, Some(HOST.as_bytes()));
        }
        vet_bytes("objects/info/alternates", &bytes, None);
        vet_bytes("worktrees/w/gitdir", &bytes, None);
        vet_bytes("sequencer/opts", &bytes, None);
        vet_bytes("rebase-apply/apply-opt", &bytes, None);
        vet_bytes("rebase-merge/strategy_opts", &bytes, None);
    }
}
