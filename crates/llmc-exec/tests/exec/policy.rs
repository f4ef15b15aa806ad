//! Which programs, which arguments, which environment.

use std::os::unix::fs::PermissionsExt;

use llmc_exec::{Confinement, Error, Profile, Runner};

use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("only_what_is_listed_runs", allowlist);
    add("a_file_in_the_repository_is_no_command", planted);
    add("arguments_are_never_interpreted", arguments);
    add("bad_arguments_are_refused", bad_arguments);
    add("the_environment_is_short", environment);
    add("nothing_but_three_descriptors_is_inherited", descriptors);
    add("demands_are_met_or_refused", demands);
    add("a_vanished_working_directory_is_an_error", vanished);
}

fn allowlist() {
    fn shared<T: Send + Sync>(_: &T) {}
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    shared(&runner);
    let attack = world.bin.join("attack");
    assert_eq!(
        runner.resolve("attack", &world.workspace).unwrap().path,
        attack
    );
    assert!(
        runner
            .resolve(attack.to_str().unwrap(), &world.workspace)
            .is_ok()
    );
    for name in [
        "ls",
        "bash",
        "./attack",
        "../bin/attack",
        "/bin/ls",
        "/proc/self/root/bin/sh",
        "",
        "sh ",
        "SH",
    ] {
        let error = world.try_run(&runner, &[name]).unwrap_err();
        assert!(
            matches!(error, Error::CommandDenied { .. }),
            "{name}: {error}"
        );
    }
}

fn planted() {
    let world = World::new();
    let fake = world.workspace.join("cat");
    std::fs::write(&fake, "#!/bin/sh\necho fake\n").unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut settings = world.settings(Confinement::Auto);
    settings.search_path.insert(0, world.workspace.clone());
    let runner = Runner::open(settings).unwrap();
    let ran = world.run(&runner, &["cat", "inside.txt"]);
    assert_eq!(ran.out, "inside\n", "{ran:?}");
}

fn arguments() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let words = [
        "a b",
        "; echo x",
        "$(id)",
        "`id`",
        "*",
        "",
        "\n",
        "-n",
        "é\u{1f600}",
        "'",
        "\"",
    ];
    let mut argv = vec![
        "sh",
        "-c",
        "for word in \"$@\"; do printf '%s|' \"$word\"; done",
        "sh",
    ];
    argv.extend(words);
    let ran = world.run(&runner, &argv);
    assert_eq!(
        ran.out,
        words.map(|word| format!("{word}|")).concat(),
        "{ran:?}"
    );
    let long = "x".repeat(120_000);
    let ran = world.run(
        &runner,
        &["sh", "-c", "printf %s \"$1\" | wc -c", "sh", &long],
    );
    assert_eq!(ran.out.trim(), "120000", "{ran:?}");
    let ran = world.run(&runner, &["sh", "-c", "printf '\\377\\376no newline'"]);
    assert_eq!(ran.out, "\u{fffd}\u{fffd}no newline");
}

fn bad_arguments() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let huge = "x".repeat(1 << 20);
    for argv in [&[][..], &["sh", "a\0b"], &["sh", "-c", ":", &huge]] {
        let error = world.try_run(&runner, argv).unwrap_err();
        assert!(matches!(error, Error::BadRequest(_)), "{error}");
    }
}

fn environment() {
    // The parent has put secrets into this process's environment; see `roles`.
    assert!(std::env::var_os("LLMC_MCP_TOKEN").is_some());
    let world = World::new();
    for confinement in [Confinement::Auto, Confinement::Off] {
        let ran = world.run(&world.runner(confinement), &["attack", "env"]);
        assert!(ran.out.contains("TERM=dumb\n"), "{ran:?}");
        assert!(ran.out.contains("TE_AGENT_ID=agent-7\n"), "{ran:?}");
        assert!(ran.out.contains("PLAIN_SETTING=passes\n"), "{ran:?}");
        assert!(!ran.out.contains("LLMC_"), "{ran:?}");
        assert!(!ran.out.contains("poison"), "{ran:?}");
    }
}

fn descriptors() {
    let world = World::new();
    for confinement in [Confinement::Auto, Confinement::Off] {
        // 3 is the listing itself.
        let ran = world.run(&world.runner(confinement), &["attack", "descriptors"]);
        assert_eq!(ran.out, "0 1 2 3\n", "{ran:?}");
    }
}

fn demands() {
    let world = World::new();
    let open = |change: fn(&mut llmc_exec::Settings)| {
        let mut settings = world.settings(Confinement::Full);
        settings.network = false;
        change(&mut settings);
        Runner::open(settings)
    };
    let refused = |runner: Result<Runner, Error>| match runner {
        Err(Error::IsolationRequired { missing, hint }) => {
            assert!(!hint.is_empty());
            missing
        }
        other => panic!("{other:?}"),
    };
    let auto = world.runner(Confinement::Auto);
    let missing = auto.level().missing();
    match missing.is_empty() {
        true => {
            assert_eq!(open(|_| {}).unwrap().level(), auto.level());
            assert!(
                open(|settings| {
                    settings.profile = Profile::Restricted;
                    settings.allowlist.clear();
                })
                .is_ok()
            );
        }
        false => {
            let said = refused(open(|_| {}));
            assert!(missing.iter().all(|name| said.contains(name)), "{said}");
            refused(open(|settings| {
                settings.confinement = Confinement::Auto;
                settings.profile = Profile::Restricted;
                settings.allowlist.clear();
            }));
        }
    }
    refused(open(|settings| settings.confinement = Confinement::Off));
    refused(open(|settings| {
        settings.confinement = Confinement::Off;
        settings.profile = Profile::Restricted;
        settings.allowlist.clear();
        settings.network = true;
    }));
    let off = world.runner(Confinement::Off);
    assert_eq!(off.level().to_string(), "none");
}

fn vanished() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let gone = world.workspace.join("gone");
    std::fs::create_dir(&gone).unwrap();
    let roots = world.roots();
    let cwd = roots.open_dir("gone").unwrap();
    std::fs::remove_dir(&gone).unwrap();
    let argv = ["true".to_owned()];
    let spec = llmc_exec::ExecRequest {
        max_output: 10,
        ..llmc_exec::ExecRequest::new(&argv, &cwd, std::time::Duration::from_secs(5))
    };
    let run = runner.run(&spec, &mut |_, _| {}, &llmc_host::CancelToken::default());
    if runner.level().mountns {
        assert!(matches!(run, Err(Error::NoWorkingDirectory)), "{run:?}");
    }
}
