//! Protected names: what decides over the agent, and what runs programs later.

use std::path::Path;
use std::process::Command;

use llmc_exec::{Confinement, Protection};

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("protected_names_that_exist_cannot_be_changed", existing);
    add(
        "protected_names_that_do_not_exist_cannot_be_planted",
        planting,
    );
    add("the_token_cannot_be_read", token);
    add("a_workspace_below_tmp_is_seen_there", below_tmp);
    add("git_works_as_far_as_it_may", git);
    add("the_whole_disk_as_a_root_still_has_programs", whole_disk);
}

fn existing() {
    let attacks: &[&[&str]] = &[
        &["write", "llmc.toml"],
        &["unlink", "llmc.toml"],
        &["rename", "inside.txt", "llmc.toml"],
        &["rename", "llmc.toml", "other.toml"],
        &["link-write", "llmc.toml", "linked.toml"],
        &["write", ".git/config"],
        &["rename", "inside.txt", ".git/config"],
        &["write", ".git/hooks/pre-commit"],
        &["rename", ".git/hooks", ".git/old"],
        &["rename", ".git", "old"],
        &["write", ".git/modules/m/config"],
        &["write", "lib/nested/.git/config"],
        &["write", "lib/nested/.git/hooks/post-checkout"],
        &["rename", "lib/nested/.git", "lib/nested/old"],
        &["write", "artifacts/audit.csv"],
        &["rename", "artifacts", "old"],
        &["chmod", "llmc.toml"],
    ];
    for words in attacks {
        let argv: Vec<&str> = ["attack"].iter().chain(*words).copied().collect();
        let world = World::new();
        let before = protected(&world);
        let runner = world.runner(Confinement::Auto);
        let ran = world.run(&runner, &argv);
        // In the run's copy of a git directory a settings file can be written, which is told and changes nothing.
        let is_in_copy = words[0] == "write" && words[1].ends_with("config");
        match runner.level().protected {
            Protection::Mount => {
                let is_reported = !ran.finished.quarantined.is_empty();
                assert_eq!(is_reported, is_in_copy, "{words:?}: {ran:?}");
                let is_refused = ran.finished.status.exit_code() == Some(1);
                assert_eq!(is_refused, !is_in_copy, "{words:?}: {ran:?}");
                assert_eq!(protected(&world), before, "{words:?}");
            }
            // Moves of whole directories are not covered, as the level states.
            Protection::Detect if words[0] == "write" || words[0] == "unlink" => {
                assert!(!ran.finished.quarantined.is_empty(), "{words:?}: {ran:?}");
                assert_eq!(protected(&world), before, "{words:?}");
            }
            _ => {}
        }
        let world = World::new();
        let ran = world.run(&world.runner(Confinement::Off), &argv);
        assert_eq!(
            ran.finished.status.exit_code(),
            Some(0),
            "{words:?} proves nothing: {ran:?}"
        );
    }
}

/// The protected files' contents.
fn protected(world: &World) -> Vec<Option<String>> {
    [
        "llmc.toml",
        ".git/config",
        ".git/hooks/README",
        ".git/hooks/pre-commit",
        ".git/modules/m/config",
        "lib/nested/.git/config",
        "lib/nested/.git/hooks/post-checkout",
        "artifacts/audit.csv",
    ]
    .iter()
    .map(|name| std::fs::read_to_string(world.workspace.join(name)).ok())
    .collect()
}

/// What is planted, and the name that is judged or moved away for it.
const PLANTING: &[(&str, &str)] = &[
    (
        "mkdir -p lib/new/.git/hooks; echo x > lib/new/.git/hooks/pre-commit",
        "lib/new/.git/hooks/pre-commit",
    ),
    (
        "mkdir -p lib/new/.git/hooks; echo x > lib/new/.git/hooks/pre-commit; chmod 0 lib/new/.git/hooks",
        "lib/new/.git/hooks/pre-commit",
    ),
    ("echo x > lib/llmc.toml", "lib/llmc.toml"),
    ("mkdir lib/.llmc; echo x > lib/.llmc/token", "lib/.llmc"),
    ("echo x > .git/config.worktree", ".git/config.worktree"),
    ("ln -s /etc/passwd lib/llmc.toml", "lib/llmc.toml"),
    (
        "mv lib lib2; mkdir -p lib/nested/.git; echo x > lib/nested/.git/config",
        "lib/nested/.git/config",
    ),
    (
        "mkdir lib/.git; echo x > lib/.git/config; chmod 0 lib/.git",
        "lib/.git/config",
    ),
    (
        "mkdir -p lib/.git/modules/m; echo x > lib/.git/modules/m/config; chmod 0 lib/.git/modules/m",
        "lib/.git/modules/m/config",
    ),
    ("echo 'gitdir: /x' > lib/.git", "lib/.git"),
    ("ln -s /elsewhere lib/.git", "lib/.git"),
];

fn planting() {
    for (script, name) in PLANTING {
        let world = World::new();
        let runner = world.runner(Confinement::Auto);
        // It may be gone before the script has done everything.
        let ran = world.run(&runner, &["sh", "-c", script]);
        let path = world.workspace.join(name);
        // Made readable again, it still is not there.
        let readable = Command::new("chmod")
            .args(["-R", "u+rwX"])
            .arg(world.workspace.join("lib"))
            .status();
        assert!(readable.unwrap().success());
        // Of settings the harmless part stays, and what was there before is put back.
        let is_kept = std::fs::read_to_string(&path).is_ok_and(|text| !text.contains('x'));
        let is_gone = path.symlink_metadata().is_err();
        assert!(is_kept || is_gone, "{script}: {name} is there: {ran:?}");
        let mut taken = ran.finished.quarantined.iter();
        let taken = taken.find(|taken| path.starts_with(&taken.path));
        let taken = taken.unwrap_or_else(|| panic!("{script}: not reported: {ran:?}"));
        // What is in the run's copy of a git directory is not moved.
        let is_copied = name.starts_with(".git/") && runner.level().mountns;
        assert!(
            taken.moved_to.is_some() || is_kept || is_copied,
            "{script}: {ran:?}"
        );
        if let Some(moved) = &taken.moved_to {
            let quarantine = world.workspace.join(".llmc/quarantine");
            assert!(moved.starts_with(quarantine), "{moved:?}");
            assert!(moved.symlink_metadata().is_ok(), "{moved:?} is not there");
        }
    }
    // A root without any of them.
    let world = World::new();
    for name in ["llmc.toml", ".git", "lib"] {
        let path = world.workspace.join(name);
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    let runner = world.runner(Confinement::Auto);
    let script = "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo x > llmc.toml; echo y > fine.txt; echo z > .git/fine";
    let ran = world.run(&runner, &["sh", "-c", script]);
    assert_eq!(ran.finished.quarantined.len(), 2, "{ran:?}");
    assert!(world.workspace.join("fine.txt").exists());
    assert!(world.workspace.join(".git/fine").exists());
    assert!(!world.workspace.join(".git/hooks/pre-commit").exists());
    assert!(!world.workspace.join("llmc.toml").exists());
}

fn token() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    for path in [".llmc/token", &text(&world.workspace.join(".llmc/token"))] {
        if runner.level().mountns {
            let ran = world.run(&runner, &["attack", "read", path]);
            assert_eq!(ran.finished.status.exit_code(), Some(1), "{ran:?}");
        }
        let ran = world.run(&world.runner(Confinement::Off), &["attack", "read", path]);
        assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    }
    // A state directory elsewhere is hidden as well.
    let elsewhere = world.outside.join("state");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("token"), "TOKEN").unwrap();
    let mut settings = world.settings(Confinement::Auto);
    settings.state_dir = Some(elsewhere.clone());
    let runner = llmc_exec::Runner::open(settings).unwrap();
    if runner.level().mountns {
        let ran = world.run(
            &runner,
            &["attack", "read", &text(&elsewhere.join("token"))],
        );
        assert_eq!(ran.finished.status.exit_code(), Some(1), "{ran:?}");
    }
}

fn below_tmp() {
    let world = World::below("/tmp");
    let runner = world.runner(Confinement::Auto);
    if runner.level().mountns {
        // The programs of this world lie in /tmp too, which the run has for itself.
        let script =
            "echo x > made.txt && ls -d $PWD/.. && ls /tmp && echo x > /tmp/llmc-exec-test";
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
        assert_eq!(
            std::fs::read_to_string(world.workspace.join("made.txt")).unwrap(),
            "x\n"
        );
        let mine = world.base.file_name().unwrap().to_str().unwrap();
        assert!(
            ran.out.ends_with(&format!("{mine}\n")),
            "only itself in /tmp: {ran:?}"
        );
        assert!(!Path::new("/tmp/llmc-exec-test").exists());
        // What may only be read is seen there, too.
        let mut settings = world.settings(Confinement::Auto);
        settings.read_roots = std::mem::take(&mut settings.write_roots);
        let runner = llmc_exec::Runner::open(settings).unwrap();
        let ran = world.run(&runner, &["cat", "inside.txt"]);
        assert_eq!(ran.out, "inside\n", "{ran:?}");
        let ran = world.run(&runner, &["sh", "-c", "echo x > inside.txt"]);
        assert_ne!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    }
}

fn git() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if runner.resolve("git", &world.workspace).is_err() || !runner.level().mountns {
        return;
    }
    std::fs::remove_dir_all(world.workspace.join(".git")).unwrap();
    let made = Command::new("git")
        .args(["init", "-q"])
        .current_dir(&world.workspace)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", &world.outside)
        .status();
    assert!(made.unwrap().success());
    let ok = |script: &str| {
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert_eq!(
            ran.finished.status.exit_code(),
            Some(0),
            "{script}: {ran:?}"
        );
    };
    ok("git -c safe.directory='*' add inside.txt");
    ok("git -c safe.directory='*' -c user.name=a -c user.email=a@b commit -qm x");
    ok(
        "git -c safe.directory='*' checkout -q -b other && git -c safe.directory='*' status --short",
    );
    ok("git config user.name x && git remote add o https://example.com/x.git");
    let config = std::fs::read_to_string(world.workspace.join(".git/config")).unwrap();
    for part in ["name = x", "url = https://example.com/x.git"] {
        assert!(config.contains(part), "{config}");
    }
}

fn whole_disk() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.write_roots = vec!["/".into()];
    settings.homes = vec![world.workspace.clone()];
    let runner = llmc_exec::Runner::open(settings).unwrap();
    let level = *runner.level();
    assert!(
        runner.resolve("sh", &world.workspace).is_ok(),
        "{:?}",
        runner.unresolved()
    );
    let error = runner
        .resolve("attack", &world.workspace)
        .unwrap_err()
        .to_string();
    assert!(error.contains("commands can write"), "{error}");

    let new = world.outside("new");
    let ran = world.run(&runner, &["sh", "-c", &format!("echo x > {new}")]);
    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "x\n");

    let planted = format!("/usr/bin/llmc-test-{}", std::process::id());
    for script in [
        format!("echo x > {planted}"),
        // Each harmless should it work; the last is put back at once.
        "touch -d @0 /usr/bin".to_owned(),
        "test -d /boot && mv /boot /boot-away && mv /boot-away /boot".to_owned(),
    ] {
        // Without mounts the owner may still change times, as the level states.
        if script.starts_with("touch") && !level.mountns {
            continue;
        }
        let ran = world.run(&runner, &["sh", "-c", &script]);
        assert_ne!(
            ran.finished.status.exit_code(),
            Some(0),
            "{script}: {ran:?}"
        );
        assert!(!Path::new(&planted).exists());
    }
    let ran = world.run(
        &runner,
        &[
            "sh",
            "-c",
            "echo x > .git/hooks/pre-commit; echo y > llmc.toml",
        ],
    );
    let hooks = std::fs::read_dir(world.workspace.join(".git/hooks")).unwrap();
    assert_eq!(hooks.count(), 1, "{ran:?}");
    let config = std::fs::read_to_string(world.workspace.join("llmc.toml")).unwrap();
    assert_eq!(config, "# the operator's\n", "{ran:?}");
}
