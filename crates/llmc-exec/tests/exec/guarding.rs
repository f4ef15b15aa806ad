//! Protected names: what decides over the agent, and what runs programs later.

use std::path::Path;

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
        match runner.level().protected {
            Protection::Mount => {
                assert_eq!(
                    ran.finished.status.exit_code(),
                    Some(1),
                    "{words:?}: {ran:?}"
                );
                assert!(ran.finished.quarantined.is_empty(), "{words:?}: {ran:?}");
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

fn planting() {
    let cases: &[(&str, &str)] = &[
        (
            "sh",
            "mkdir -p lib/new/.git/hooks; echo x > lib/new/.git/hooks/pre-commit",
        ),
        ("sh", "echo x > lib/llmc.toml"),
        ("sh", "mkdir lib/.llmc; echo forged > lib/.llmc/token"),
        ("sh", "echo x > .git/config.worktree"),
        ("sh", "ln -s /etc/passwd lib/llmc.toml"),
        (
            "sh",
            "mv lib lib2; mkdir -p lib/nested/.git; echo x > lib/nested/.git/config",
        ),
        (
            "sh",
            "mkdir lib/.git; echo x > lib/.git/config; chmod 0 lib/.git",
        ),
    ];
    let planted = [
        "lib/new/.git",
        "lib/llmc.toml",
        "lib/.llmc",
        ".git/config.worktree",
        "lib/llmc.toml",
        "lib/nested/.git",
        "lib/.git",
    ];
    for ((program, script), name) in cases.iter().zip(planted) {
        let world = World::new();
        let runner = world.runner(Confinement::Auto);
        // It may be gone before the script has done everything.
        let ran = world.run(&runner, &[program, "-c", script]);
        let path = world.workspace.join(name);
        assert!(
            path.symlink_metadata().is_err(),
            "{script}: {name} is there: {ran:?}"
        );
        let taken = ran
            .finished
            .quarantined
            .iter()
            .find(|taken| taken.path == path);
        let moved = taken.and_then(|taken| taken.moved_to.as_ref());
        let moved = moved.unwrap_or_else(|| panic!("{script}: not reported: {ran:?}"));
        assert!(
            moved.starts_with(world.workspace.join(".llmc/quarantine")),
            "{moved:?}"
        );
        assert!(moved.symlink_metadata().is_ok(), "{moved:?} is not there");
    }
    // A root without any of them.
    let world = World::new();
    for name in ["llmc.toml", ".git", "lib"] {
        let path = world.workspace.join(name);
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    let runner = world.runner(Confinement::Auto);
    let script = "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo x > llmc.toml; echo y > fine.txt";
    let ran = world.run(&runner, &["sh", "-c", script]);
    assert_eq!(ran.finished.quarantined.len(), 2, "{ran:?}");
    assert!(world.workspace.join("fine.txt").exists());
    assert!(!world.workspace.join(".git").exists());
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
    let made = std::process::Command::new("git")
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
    for refused in ["git config user.name x", "git remote add o /x"] {
        let ran = world.run(&runner, &["sh", "-c", refused]);
        assert_ne!(
            ran.finished.status.exit_code(),
            Some(0),
            "{refused}: {ran:?}"
        );
        assert!(ran.finished.quarantined.is_empty(), "{ran:?}");
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
