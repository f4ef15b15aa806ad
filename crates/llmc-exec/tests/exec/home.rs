//! The user's home directory: tool chains write their caches without changing it, and credentials are out of sight.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llmc_exec::{
    CacheMode, Confinement, ExecRequest, HIDDEN_PLACES, LayerStore, Probe, ProbeResult, RunOwner,
    Runner, Settings, Stream, run_probes,
};
use llmc_host::CancelToken;

use crate::world::{World, text};

mod credentials;
mod places;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("caches_are_written_and_the_home_stays_as_it_is", private);
    add("a_layer_belongs_to_one_server_and_one_principal", layers);
    add("a_layer_that_cannot_be_used_is_replaced", unusable);
    add(
        "missing_tool_folders_come_through_variables",
        places::missing_folders,
    );
    add("the_home_directory_is_live", places::live);
    add("odd_home_directories_do_no_harm", places::odd_homes);
    add("a_full_layer_fails_the_command_only", full);
    add("a_layer_above_its_limit_is_begun_anew", too_large);
    add("python_stands_for_python3", python);
    add("shared_caches_are_the_users_own", shared);
    add(
        "a_seeker_of_credentials_finds_none",
        credentials::credentials,
    );
    add(
        "settings_are_shown_without_their_secrets",
        credentials::redacted,
    );
    add("probes_of_the_home_hold_and_leave_no_trace", probes);
    add("a_session_keeps_its_tmp", session_tmp);
    add(
        "local_sockets_work_among_a_commands_own_processes",
        local_sockets,
    );
    add("sockets_of_the_host_are_out_of_reach", places::host_sockets);
    add("what_only_root_can_read_is_hidden", places::as_root);
    add(
        "the_repository_around_a_workspace_is_readable",
        places::around,
    );
    add("every_program_of_the_search_path_runs", any_program);
    add(
        "a_listed_program_is_not_the_one_in_the_layer",
        listed_program,
    );
}

const SECRET: &str = "S3CR3T-VALUE";

/// A world with a home directory that holds the workspace, as most do.
struct Home {
    world: World,
    dir: PathBuf,
}

impl Home {
    fn new() -> Home {
        let world = World::new();
        let home = Home {
            dir: world.base.clone(),
            world,
        };
        for (name, text) in [
            (".cargo/registry/index", "index\n"),
            (".cargo/config.toml", "[net]\nretry = 3\n"),
            (".cache/go-build/00", "object\n"),
            (".profile", "# mine\n"),
        ] {
            home.write(name, text);
        }
        home
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.dir.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn settings(&self, confinement: Confinement) -> Settings {
        Settings {
            allowlist: vec!["*".to_owned()],
            home: Some(self.dir.clone()),
            hidden: HIDDEN_PLACES
                .iter()
                .map(|&place| place.to_owned())
                .collect(),
            local_sockets: true,
            homes: vec![self.world.workspace.clone()],
            ..self.world.settings(confinement)
        }
    }

    fn runner(&self) -> Runner {
        Runner::open(self.settings(Confinement::Auto)).unwrap()
    }

    /// Everything in the home directory but the workspace: kind, size, time and owner of each path.
    fn state(&self) -> BTreeMap<PathBuf, (u32, u64, i64, i64, u32)> {
        let mut found = BTreeMap::new();
        let mut next = vec![self.dir.clone()];
        while let Some(dir) = next.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                let path = entry.path();
                if path == self.world.workspace {
                    continue;
                }
                let status = entry.metadata().unwrap();
                if status.is_dir() {
                    next.push(path.clone());
                }
                let what = (
                    status.mode(),
                    status.size(),
                    status.mtime(),
                    status.mtime_nsec(),
                    status.uid(),
                );
                found.insert(path, what);
            }
        }
        found
    }
}

/// Runs a shell line and returns its exit code and what it printed.
fn shell(world: &World, runner: &Runner, owner: RunOwner<'_>, line: &str) -> (Option<i32>, String) {
    let argv = ["sh", "-c", line].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let mut out = Vec::new();
    let spec = ExecRequest {
        max_output: 1 << 20,
        owner,
        ..ExecRequest::new(&argv, &cwd, Duration::from_secs(20))
    };
    let mut collect = |_: Stream, bytes: &[u8]| out.extend_from_slice(bytes);
    let finished = runner
        .run(&spec, &mut collect, &CancelToken::default())
        .unwrap();
    (
        finished.status.exit_code(),
        String::from_utf8_lossy(&out).into_owned(),
    )
}

fn has_layer(runner: &Runner) -> bool {
    runner.layers().iter().all(|layer| layer.store.is_some()) && !runner.layers().is_empty()
}

const WRITES: &str = "set -e
echo changed >> $HOME/.cargo/registry/index
echo new > $HOME/.cargo/registry/new
rm $HOME/.cache/go-build/00
mkdir -p $npm_config_cache/_logs $GOPATH/pkg/mod
echo log > $npm_config_cache/_logs/1
chmod 700 $HOME/.cargo";

/// Places where a user would look for what was written: none of them is private to commands.
const REFUSED: [&str; 5] = [
    "notes.txt",
    ".npm/made",
    ".profile",
    ".config/tool/settings",
    "src/other/file",
];

fn private() {
    let home = Home::new();
    let runner = home.runner();
    let before = home.state();
    let owner = RunOwner::default();
    let (code, out) = shell(&home.world, &runner, owner, WRITES);
    assert_eq!(
        home.state(),
        before,
        "the home directory has changed: {out}"
    );
    if !runner.level().mountns {
        assert_ne!(code, Some(0), "{out}");
        return;
    }
    assert!(has_layer(&runner), "{:?}", runner.layers());
    assert_eq!(code, Some(0), "{out}");
    let look =
        "cat $HOME/.cargo/registry/index $HOME/.cargo/registry/new; ls $HOME/.cache/go-build";
    let wanted = "index\nchanged\nnew\n";
    assert_eq!(shell(&home.world, &runner, owner, look).1, wanted);
    for name in REFUSED {
        let line = format!("mkdir -p $(dirname $HOME/{name}); echo x >> $HOME/{name}");
        let (code, out) = shell(&home.world, &runner, owner, &line);
        assert_ne!(code, Some(0), "{name}: {out}");
        assert!(out.contains("Read-only file system"), "{name}: {out}");
    }
    // The workspace in the home directory is the real one.
    shell(&home.world, &runner, owner, "echo made > made.txt");
    assert!(home.world.workspace.join("made.txt").exists());
    // The next server finds it again.
    drop(runner);
    let runner = home.runner();
    assert_eq!(runner.layers()[0].store, Some(LayerStore::Disk));
    assert_eq!(shell(&home.world, &runner, owner, look).1, wanted);
    assert_eq!(home.state(), before);
}

fn layers() {
    let home = Home::new();
    let first = home.runner();
    if !first.level().mountns {
        return;
    }
    let owner = |principal| RunOwner {
        principal,
        session: "",
        ..RunOwner::default()
    };
    let mark = "echo mine > $HOME/.cache/mark";
    let look = "cat $HOME/.cache/mark 2>/dev/null || echo none";
    shell(&home.world, &first, owner("a"), mark);
    assert_eq!(shell(&home.world, &first, owner("a"), look).1, "mine\n");
    assert_eq!(shell(&home.world, &first, owner("b"), look).1, "none\n");
    // Runs at the same time see one layer.
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (home, first) = (&home, &first);
            scope.spawn(move || {
                let line = format!("echo x > $HOME/.cache/at-once-{n}");
                assert_eq!(shell(&home.world, first, owner("a"), &line).0, Some(0));
            });
        }
    });
    let count = "ls $HOME/.cache | grep -c at-once";
    assert_eq!(shell(&home.world, &first, owner("a"), count).1, "4\n");
    // A second server of the workspace works, with a layer of its own.
    let second = home.runner();
    assert_eq!(shell(&home.world, &second, owner("a"), look).1, "none\n");
    let other = "echo theirs > $HOME/.cache/mark";
    assert_eq!(shell(&home.world, &second, owner("a"), other).0, Some(0));
    for server in [&first, &second] {
        let stores = server.layers().iter().map(|layer| layer.store);
        assert!(
            stores
                .into_iter()
                .all(|store| store == Some(LayerStore::Disk))
        );
    }
    assert_eq!(shell(&home.world, &first, owner("a"), look).1, "mine\n");
    assert_eq!(shell(&home.world, &second, owner("a"), look).1, "theirs\n");
}

fn unusable() {
    let home = Home::new();
    let runner = home.runner();
    if !runner.level().mountns {
        return;
    }
    drop(runner);
    // Whatever is in the way of the layers' folders.
    let caches = home.world.workspace.join(".llmc/caches");
    let mut broken = 0;
    for principal in std::fs::read_dir(&caches).unwrap().flatten() {
        for layer in std::fs::read_dir(principal.path()).unwrap().flatten() {
            let upper = layer.path().join("upper");
            std::fs::remove_dir_all(&upper).unwrap();
            std::fs::write(&upper, "not a folder").unwrap();
            broken += 1;
        }
    }
    assert!(broken > 0);
    let runner = home.runner();
    assert_eq!(runner.layers()[0].store, Some(LayerStore::DiskRenewed));
    let line = "echo x > $HOME/.cache/y && cat $HOME/.cache/y";
    let ran = shell(&home.world, &runner, RunOwner::default(), line);
    assert_eq!(ran, (Some(0), "x\n".to_owned()));
}

fn full() {
    let home = Home::new();
    let mut settings = home.settings(Confinement::Auto);
    settings.state_dir = None;
    settings.limits.tmp_bytes = 4 << 20;
    let runner = Runner::open(settings).unwrap();
    if !runner.level().mountns {
        return;
    }
    assert_eq!(runner.layers()[0].store, Some(LayerStore::Memory));
    let fill = "head -c 16777216 /dev/zero > $HOME/.cache/big";
    let (code, out) = shell(&home.world, &runner, RunOwner::default(), fill);
    assert_ne!(code, Some(0), "{out}");
    assert!(out.contains("No space left"), "{out}");
    let after = shell(&home.world, &runner, RunOwner::default(), "echo works");
    assert_eq!(after, (Some(0), "works\n".to_owned()));
}

fn too_large() {
    let home = Home::new();
    let open = || {
        let mut settings = home.settings(Confinement::Auto);
        settings.cache_max_bytes = 1 << 20;
        Runner::open(settings).unwrap()
    };
    let runner = open();
    if !runner.level().mountns {
        return;
    }
    let owner = RunOwner::default();
    let look = "test -e $HOME/.cache/big && echo there";
    let fill = "head -c 3000000 /dev/zero > $HOME/.cache/big";
    assert_eq!(shell(&home.world, &runner, owner, fill).0, Some(0));
    drop(runner);
    // A server that starts with it uses it, and counts it meanwhile.
    let runner = open();
    assert_eq!(runner.layers()[0].store, Some(LayerStore::Disk));
    assert_eq!(shell(&home.world, &runner, owner, look).1, "there\n");
    let caches = home.world.workspace.join(".llmc/caches");
    let is_marked = || {
        let mut principals = std::fs::read_dir(&caches).unwrap().flatten();
        principals.any(|dir| dir.path().join("too-large").exists())
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !is_marked() {
        assert!(std::time::Instant::now() < deadline, "it is never counted");
        std::thread::yield_now();
    }
    drop(runner);
    let runner = open();
    assert_eq!(runner.layers()[0].store, Some(LayerStore::DiskRenewed));
    assert_eq!(shell(&home.world, &runner, owner, look).1, "");
    drop(runner);
    assert_eq!(open().layers()[0].store, Some(LayerStore::Disk));
}

fn python() {
    let home = Home::new();
    let world = &home.world;
    let bin = home.dir.join("tools");
    crate::world::script(&bin.join("python3"), "#!/bin/sh\necho three $*\n");
    for program in ["sh", "ls"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), bin.join(program)).unwrap();
    }
    let mut settings = home.settings(Confinement::Auto);
    settings.search_path = vec![world.workspace.join(".venv/bin"), bin.clone()];
    let open = || Runner::open(settings.clone()).unwrap();
    let line = |runner: &Runner| shell(world, runner, RunOwner::default(), "python -m x").1;
    let runner = open();
    assert_eq!(world.run(&runner, &["python", "a"]).out, "three a\n");
    if !runner.level().mountns {
        return;
    }
    assert_eq!(line(&runner), "three -m x\n");
    // The project's own comes first, also one that was made later.
    let own = world.workspace.join(".venv/bin/python");
    crate::world::script(&own, "#!/bin/sh\necho own\n");
    assert_eq!(line(&runner), "own\n");
    std::fs::remove_file(own).unwrap();
    // Where there is a `python` nothing is added.
    crate::world::script(&bin.join("python"), "#!/bin/sh\necho two $*\n");
    let runner = open();
    assert_eq!(line(&runner), "two -m x\n");
    let links = shell(
        world,
        &runner,
        RunOwner::default(),
        "ls /run/llmc 2>&1; echo $PATH",
    )
    .1;
    assert!(!links.ends_with("/run/llmc/bin\n"), "{links}");
}

fn shared() {
    let home = Home::new();
    let settings = Settings {
        caches: CacheMode::Shared,
        ..home.settings(Confinement::Auto)
    };
    let runner = Runner::open(settings).unwrap();
    let line = "echo x > $HOME/.cargo/shared; echo x > $HOME/.profile";
    shell(&home.world, &runner, RunOwner::default(), line);
    assert!(home.dir.join(".cargo/shared").exists());
    let profile = std::fs::read_to_string(home.dir.join(".profile")).unwrap();
    assert_eq!(profile, "# mine\n");
}

fn probes() {
    let home = Home::new();
    // Probes read a credential that is there, and make none.
    home.write(".ssh/id_test", SECRET);
    let before = home.state();
    for (confinement, network) in [
        (Confinement::Auto, false),
        (Confinement::Auto, true),
        (Confinement::Off, true),
    ] {
        let settings = Settings {
            network,
            ..home.settings(confinement)
        };
        let runner = Runner::open(settings).unwrap();
        let roots = home.world.roots();
        let found = run_probes(&runner, &roots.open_dir(".").unwrap());
        let of_home: Vec<&Probe> = found
            .iter()
            .filter(|probe| probe.what.contains("home directory"))
            .collect();
        assert_eq!(of_home.len(), 2);
        for probe in of_home {
            match &probe.result {
                ProbeResult::Held(_) => assert_eq!(confinement, Confinement::Auto, "{probe:?}"),
                ProbeResult::Open(_) => assert!(!runner.level().mountns, "{probe:?}"),
                ProbeResult::Escaped | ProbeResult::Untried(_) => panic!("{probe:?}"),
            }
        }
        assert!(
            found
                .iter()
                .all(|probe| probe.result != ProbeResult::Escaped),
            "{found:?}"
        );
        // Where commands may make local sockets it is not the filter that keeps them from the host's.
        let level = runner.level();
        if level.mountns && level.landlock.is_some_and(|abi| abi >= 6) {
            let scope = if network { "landlock" } else { "netns" };
            for (what, layer) in [("unix socket", "mntns"), ("abstract socket", scope)] {
                let probe = found.iter().find(|probe| probe.what.contains(what));
                let result = &probe.unwrap().result;
                assert_eq!(result, &ProbeResult::Held(layer.to_owned()), "{what}");
            }
        }
    }
    assert_eq!(
        home.state().keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
}

fn session_tmp() {
    let home = Home::new();
    let runner = home.runner();
    if !runner.level().mountns || !runner.level().pidns {
        return;
    }
    fn owner(session: &str) -> RunOwner<'_> {
        RunOwner {
            principal: "p",
            session,
            ..RunOwner::default()
        }
    }
    let run = |session: &str, line: &str| shell(&home.world, &runner, owner(session), line).1;
    let name = format!("kept-{}", std::process::id());
    run(
        "one",
        &format!("echo here > /tmp/{name}; mkdir -p /tmp/d; echo x > /tmp/d/f"),
    );
    let look = format!("cat /tmp/{name} 2>/dev/null || echo none");
    assert_eq!(run("one", &look), "here\n");
    assert_eq!(run("two", &look), "none\n");
    assert_eq!(
        run("", &look),
        "none\n",
        "without a session nothing is shared"
    );
    assert!(!Path::new("/tmp").join(&name).exists());
    // Many sessions: those without a run give way to new ones.
    for n in 0..80 {
        run(&format!("many-{n}"), &format!("echo {n} > /tmp/{name}"));
    }
    assert_eq!(run("many-79", &look), "79\n");
    assert_eq!(run("one", &look), "none\n");
    let mut small = home.settings(Confinement::Auto);
    small.limits.tmp_bytes = 1 << 20;
    let runner = Runner::open(small).unwrap();
    let fill = "head -c 4194304 /dev/zero > /tmp/big";
    let (code, out) = shell(&home.world, &runner, owner("small"), fill);
    assert!(code != Some(0) && out.contains("No space left"), "{out}");
}

fn local_sockets() {
    let home = Home::new();
    let runner = home.runner();
    let world = &home.world;
    let allowed = runner.level().mountns && runner.level().pidns;
    for path in ["/tmp/own.sock", &text(&world.workspace.join("own.sock"))] {
        let ran = world.run(&runner, &["attack", "own-socket", path]);
        assert_eq!(
            ran.finished.status.exit_code() == Some(0),
            allowed,
            "{path}: {ran:?}"
        );
        let _ = std::fs::remove_file(path);
    }
    let ran = world.run(&runner, &["attack", "own-abstract"]);
    assert_eq!(
        ran.finished.status.exit_code() == Some(0),
        allowed,
        "{ran:?}"
    );
}

fn any_program() {
    let home = Home::new();
    let world = &home.world;
    let tool = world.workspace.join(".venv/bin/tool");
    crate::world::script(&tool, "#!/bin/sh\necho from the workspace\n");
    let mut settings = home.settings(Confinement::Auto);
    settings
        .search_path
        .insert(0, world.workspace.join(".venv/bin"));
    let runner = Runner::open(settings).unwrap();
    assert_eq!(world.run(&runner, &["tool"]).out, "from the workspace\n");
    assert_eq!(
        world.run(&runner, &["./.venv/bin/tool"]).out,
        "from the workspace\n"
    );
    assert_eq!(
        world.run(&runner, &["sh", "-c", "tool"]).out,
        "from the workspace\n"
    );
    // A broken environment does not hide the system's program.
    std::os::unix::fs::symlink("/no/such/cat", world.workspace.join(".venv/bin/cat")).unwrap();
    assert_eq!(world.run(&runner, &["cat", "inside.txt"]).out, "inside\n");
    let error = world.try_run(&runner, &["no-such-program"]).unwrap_err();
    assert!(error.to_string().contains("no such program"), "{error}");
    std::fs::write(world.workspace.join(".venv/pyvenv.cfg"), "").unwrap();
    let printed = world.run(&runner, &["sh", "-c", "echo $VIRTUAL_ENV"]).out;
    assert_eq!(printed.trim(), text(&world.workspace.join(".venv")));
}

fn listed_program() {
    let home = Home::new();
    let world = &home.world;
    crate::world::script(
        &home.dir.join(".cargo/bin/listed"),
        "#!/bin/sh\necho the real one\n",
    );
    let mut settings = home.settings(Confinement::Auto);
    settings.allowlist = vec!["listed".to_owned(), "sh".to_owned()];
    settings.search_path.insert(0, home.dir.join(".cargo/bin"));
    let runner = Runner::open(settings).unwrap();
    let plant = "printf '#!/bin/sh\\necho planted\\n' > $HOME/.cargo/bin/listed";
    shell(world, &runner, RunOwner::default(), plant);
    assert_eq!(world.run(&runner, &["listed"]).out, "the real one\n");
    assert!(world.try_run(&runner, &["cat", "inside.txt"]).is_err());
}
