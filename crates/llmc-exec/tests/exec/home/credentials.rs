//! Credentials in the home directory are hidden or shown without their secrets.

use super::*;

/// Where a seeker looks. Not all of them are in the table by these names.
const USUAL_PLACES: [&str; 42] = [
    ".ssh/id_ed25519",
    ".ssh/config",
    ".gnupg/secring.gpg",
    ".aws/credentials",
    ".aws/sso/cache/a.json",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".config/gcloud/application_default_credentials.json",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip/pip.conf",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".cache/huggingface/token",
    ".kaggle/kaggle.json",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".config/rclone/rclone.conf",
    ".config/containers/auth.json",
    ".pgpass",
    ".my.cnf",
    ".mozilla/firefox/p/logins.json",
    ".config/google-chrome/Default/Login Data",
    ".config/chromium/Default/Cookies",
    ".local/share/keyrings/login.keyring",
    ".password-store/a.gpg",
    ".bash_history",
    ".claude/.credentials.json",
    ".codex/auth.json",
];

pub(super) fn credentials() {
    let home = Home::new();
    for place in USUAL_PLACES {
        home.write(place, &format!("token = {SECRET}\n"));
    }
    // The test binary in `bin` holds the value, too.
    let seek = format!("grep -rslF --exclude-dir=bin {SECRET} $HOME | wc -l");
    let found = |runner: &Runner| {
        let (code, out) = shell(&home.world, runner, RunOwner::default(), &seek);
        assert_eq!(code, Some(0), "{out}");
        out.trim().parse::<usize>().unwrap()
    };
    let free = Runner::open(home.settings(Confinement::Off)).unwrap();
    assert_eq!(found(&free), USUAL_PLACES.len(), "proves nothing");
    let runner = home.runner();
    if runner.level().mountns {
        let listed = format!("grep -rsF --exclude-dir=bin {SECRET} $HOME; true");
        let (_, out) = shell(&home.world, &runner, RunOwner::default(), &listed);
        assert_eq!(out, "");
        // Nor by another way: links, the process file system, the layer's own folders.
        for way in ["/proc/1/root", "/proc/self/root", "/proc/self/cwd/../.."] {
            let line = format!("grep -sF {SECRET} {way}{}/.netrc; true", text(&home.dir));
            let (_, out) = shell(&home.world, &runner, RunOwner::default(), &line);
            assert_eq!(out, "", "{way}");
        }
    }
    if !runner.level().mountns && runner.level().landlock.is_some() {
        // Landlock leaves out no part of a file, and programs need the rest of their settings.
        let settings = [".npmrc", ".yarnrc.yml", ".config/pip/pip.conf"];
        let settings = settings.into_iter().chain([
            ".cargo/config.toml",
            ".m2/settings.xml",
            ".gradle/gradle.properties",
        ]);
        assert_eq!(found(&runner), settings.count(), "what else is readable");
        let line = "echo x > new && cat new inside.txt /etc/hostname > /dev/null && ls $HOME/.ssh";
        let (code, out) = shell(&home.world, &runner, RunOwner::default(), line);
        assert_eq!((code, out.as_str()), (Some(0), "config\nid_ed25519\n"));
    }
    // What the home directory holds is not touched by hiding it.
    for place in USUAL_PLACES {
        let kept = std::fs::read_to_string(home.dir.join(place)).unwrap();
        assert!(kept.contains(SECRET), "{place}");
    }
    // `off` hides too: caches and credentials are separate.
    let settings = Settings {
        caches: CacheMode::Off,
        ..home.settings(Confinement::Auto)
    };
    let off = Runner::open(settings).unwrap();
    if off.level().mountns {
        assert_eq!(found(&off), 0);
        let line = "echo x > $HOME/.cache/x";
        assert_ne!(
            shell(&home.world, &off, RunOwner::default(), line).0,
            Some(0)
        );
    }
}

pub(super) fn redacted() {
    let home = Home::new();
    home.write(
        ".npmrc",
        &format!("registry=https://npm.example/\n//npm.example/:_authToken={SECRET}\n"),
    );
    let runner = home.runner();
    if !runner.level().mountns {
        return;
    }
    let ran = shell(
        &home.world,
        &runner,
        RunOwner::default(),
        "cat $HOME/.npmrc",
    );
    assert_eq!(ran, (Some(0), "registry=https://npm.example/\n".to_owned()));
    // A workspace that lies in a hidden folder is still there, its neighbours are not.
    let inside = home.dir.join(".codex/worktrees/ws");
    std::fs::create_dir_all(&inside).unwrap();
    home.write(".codex/auth.json", SECRET);
    std::fs::write(inside.join("file"), "inside\n").unwrap();
    let settings = Settings {
        write_roots: vec![home.world.workspace.clone(), inside.clone()],
        ..home.settings(Confinement::Auto)
    };
    let runner = Runner::open(settings).unwrap();
    let line = format!(
        "cat {0}/file; echo new > {0}/new; cat {0}/../../auth.json",
        text(&inside)
    );
    let (_, out) = shell(&home.world, &runner, RunOwner::default(), &line);
    assert!(
        out.starts_with("inside\n") && !out.contains(SECRET),
        "{out}"
    );
    assert!(inside.join("new").exists());
}
