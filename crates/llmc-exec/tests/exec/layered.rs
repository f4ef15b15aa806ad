//! Runs on a copy-on-write view: whatever they do, the host's files stay as they are, and what they did is listed.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use llmc_exec::{
    BaseLayer, Confinement, Error, ExecRequest, ExitStatus, LayerEntryKind, LayeredRun, Limits,
    Result, RunOwner, Runner, Settings, Stream,
};
use llmc_host::CancelToken;

use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("a_run_on_a_view_changes_nothing_and_is_listed", changes);
    add("a_view_is_no_way_to_the_files_themselves", escapes);
    add(
        "every_writable_place_and_the_sessions_tmp_are_views",
        places,
    );
    add("a_full_view_refuses_more_and_says_so", full);
    add("a_base_is_shown_over_what_is_there", base);
    add("hostile_names_of_a_base_lead_nowhere", hostile_base);
    add("credentials_are_hidden_from_a_run_on_a_view", credentials);
    add("a_run_on_a_view_that_is_ended_leaves_nothing", ended);
    add("without_confinement_there_is_no_view", unconfined);
}

const HOUR: Duration = Duration::from_secs(3600);

struct Viewed {
    layered: LayeredRun,
    out: String,
}

fn nothing(_: &BaseLayer<'_>) -> Result<()> {
    Ok(())
}

fn view(
    world: &World,
    runner: &Runner,
    script: &str,
    fill: impl FnOnce(&BaseLayer<'_>) -> Result<()>,
) -> Result<Viewed> {
    view_for(world, runner, script, fill, HOUR, "")
}

fn view_for(
    world: &World,
    runner: &Runner,
    script: &str,
    fill: impl FnOnce(&BaseLayer<'_>) -> Result<()>,
    timeout: Duration,
    session: &str,
) -> Result<Viewed> {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let mut out = Vec::new();
    let spec = ExecRequest {
        owner: RunOwner {
            principal: "local",
            session,
            ..RunOwner::default()
        },
        max_output: 1 << 20,
        ..ExecRequest::new(&argv, &cwd, timeout)
    };
    let mut collect = |stream: Stream, bytes: &[u8]| {
        if stream == Stream::Stdout {
            out.extend_from_slice(bytes);
        }
    };
    let layered = runner.run_on_view(&spec, fill, &mut collect, &CancelToken::default())?;
    Ok(Viewed {
        layered,
        out: String::from_utf8_lossy(&out).into_owned(),
    })
}

/// A runner that gives views; `None` where it must refuse, which is checked here.
fn runner(world: &World, settings: Settings) -> Option<Runner> {
    let runner = Runner::open(settings).unwrap();
    if runner.level().mountns && runner.level().pidns {
        return Some(runner);
    }
    let before = snapshot(&world.workspace);
    match view(world, &runner, "rm -rf lib; echo ran > ran", nothing) {
        Err(Error::NoView { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(viewed) => panic!("ran without namespaces: {}", viewed.out),
    }
    assert_eq!(snapshot(&world.workspace), before);
    None
}

/// Everything below a folder but the state directory: kind, mode and content.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".llmc") {
                continue;
            }
            let status = std::fs::symlink_metadata(&path).unwrap();
            let content = if status.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                target.as_os_str().as_bytes().to_vec()
            } else if status.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                if status.is_dir() {
                    next.push(path.clone());
                }
                Vec::new()
            };
            found.insert(path, (status.mode(), content));
        }
    }
    found
}

/// What would have changed: `+` created, `-` deleted, `*` changed.
fn changed(world: &World, viewed: &Viewed) -> Vec<String> {
    let changes = viewed.layered.changes().unwrap();
    assert!(changes.is_complete);
    let line = |change: &llmc_exec::LayerChange| {
        let mark = match (change.before, change.after) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '*',
        };
        let path = change.path.strip_prefix(&world.workspace);
        let path = path.unwrap_or(&change.path);
        format!("{mark}{}", path.display())
    };
    changes.list.iter().map(line).collect()
}

fn changes() {
    let world = World::new();
    std::fs::create_dir_all(world.workspace.join("old/deep")).unwrap();
    for file in ["old/a", "old/deep/b", "same", "mode", "gone", "again/x"] {
        let file = world.workspace.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "text\n").unwrap();
    }
    std::os::unix::fs::symlink("same", world.workspace.join("link")).unwrap();
    let Some(runner) = runner(&world, world.settings(Confinement::Auto)) else {
        return;
    };
    let before = snapshot(&world.workspace);
    let script = "
        set -e
        rm -rf old; rm gone
        echo text > same
        chmod 755 mode
        ln -sf mode link
        printf 'inside\\nmore\\n' > inside.txt
        mkdir new; echo 1 > new/file; mkfifo new/pipe; mkdir empty
        rm -rf again; mkdir again; echo y > again/y
        printf x > \"$(printf 'odd\\377name')\"
        echo ref > .git/refs-of-a-run
        test ! -e old && test -e new/file && cat inside.txt
        chmod 000 new";
    let viewed = view(&world, &runner, script, nothing).unwrap();
    assert!(viewed.layered.report.status.is_success(), "{}", viewed.out);
    assert_eq!(viewed.out, "inside\nmore\n");
    assert_eq!(snapshot(&world.workspace), before, "the host has changed");
    let list = changed(&world, &viewed);
    let expected = [
        "+.git/refs-of-a-run",
        "-again/x",
        "+again/y",
        "+empty",
        "-gone",
        "*inside.txt",
        "*link",
        "*mode",
        "+new",
        "+new/file",
        "+new/pipe",
        "+odd\u{fffd}name",
        "-old",
        "-old/a",
        "-old/deep",
        "-old/deep/b",
    ];
    assert_eq!(list, expected);
    let changes = viewed.layered.changes().unwrap();
    let find = |name: &str| {
        let path = world.workspace.join(name);
        changes
            .list
            .iter()
            .find(|change| change.path == path)
            .unwrap()
    };
    let inside = find("inside.txt");
    let content = |found: std::io::Result<Option<Vec<u8>>>| found.unwrap().unwrap();
    assert_eq!(content(changes.content_before(inside, 100)), b"inside\n");
    assert_eq!(
        content(changes.content_after(inside, 100)),
        b"inside\nmore\n"
    );
    assert_eq!(
        changes.content_after(inside, 3).unwrap(),
        None,
        "over the limit"
    );
    assert_eq!(content(changes.content_after(find("link"), 100)), b"mode");
    // Its folder had lost its permissions.
    assert_eq!(
        content(changes.content_after(find("new/file"), 100)),
        b"1\n"
    );
    let mode = find("mode");
    assert_eq!(mode.before.unwrap().mode & 0o111, 0);
    assert_eq!(mode.after.unwrap().mode, 0o755);
    assert_eq!(
        find("new/pipe").after.unwrap().kind,
        LayerEntryKind::Special
    );
    // The next run sees the files as they are.
    let ran = world.run(&runner, &["sh", "-c", "cat old/a; ls new 2>&1 | wc -l"]);
    assert!(ran.out.starts_with("text\n"), "{ran:?}");
}

fn escapes() {
    let world = World::new();
    let Some(runner) = runner(&world, world.settings(Confinement::Auto)) else {
        return;
    };
    let before = snapshot(&world.workspace);
    let (workspace, outside) = (world.workspace.display(), world.outside.display());
    // Each way to the real files: other names of the mount namespace, new mounts, the layer itself, the place it is mounted on.
    let script = format!(
        "for way in /proc/1/root /proc/self/root /proc/$$/root /proc/$PPID/root; do
           echo escaped > $way{workspace}/inside.txt; echo escaped > $way{outside}/outside.txt
         done 2>/dev/null
         for fd in /proc/1/fd/* /proc/self/fd/*; do echo escaped > $fd/inside.txt; done 2>/dev/null
         echo escaped > /proc/1/cwd/inside.txt 2>/dev/null
         mkdir -p m; mount --bind {workspace} m 2>/dev/null && echo MOUNTED
         umount {workspace} 2>/dev/null && echo UNMOUNTED
         unshare -Urm umount {workspace} 2>/dev/null && echo UNSHARED
         ls /dev/shm; ls /dev/shm/layers 2>/dev/null
         echo escaped > {outside}/new 2>/dev/null && echo OUTSIDE
         cat {workspace}/.llmc/token 2>/dev/null
         echo planted > llmc.toml 2>/dev/null && echo CONFIG
         echo escaped > inside.txt; cat inside.txt"
    );
    let viewed = view(&world, &runner, &script, nothing).unwrap();
    assert_eq!(viewed.out, "escaped\n");
    assert_eq!(snapshot(&world.workspace), before, "the host has changed");
    let file = std::fs::read_to_string(world.outside.join("outside.txt")).unwrap();
    assert_eq!(file, "outside\n");
    assert!(!world.outside.join("new").exists());
    // The same script changes the files where nothing is a view, or this proves nothing.
    let ran = world.run(&runner, &["sh", "-c", &script]);
    assert!(ran.out.ends_with("escaped\n"), "{ran:?}");
    assert_ne!(snapshot(&world.workspace), before);
}

fn places() {
    let world = World::new();
    let extra = world.base.join("extra");
    std::fs::create_dir(&extra).unwrap();
    std::fs::write(extra.join("kept"), "kept\n").unwrap();
    let mut settings = world.settings(Confinement::Auto);
    settings.extra_write = vec![extra.clone()];
    let Some(runner) = runner(&world, settings) else {
        return;
    };
    let session = "session-1";
    let run = |script: &str| {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let roots = world.roots();
        let cwd = roots.open_dir(".").unwrap();
        let spec = ExecRequest {
            owner: RunOwner {
                principal: "local",
                session,
                ..RunOwner::default()
            },
            ..ExecRequest::new(&argv, &cwd, HOUR)
        };
        let mut out = String::new();
        let mut collect = |_: Stream, bytes: &[u8]| out.push_str(&String::from_utf8_lossy(bytes));
        runner
            .run(&spec, &mut collect, &CancelToken::default())
            .unwrap();
        out
    };
    run("echo session > /tmp/note");
    let script = format!(
        "cat /tmp/note; echo preview > /tmp/note; echo x > /tmp/more
         rm {extra}/kept; echo new > {extra}/new; ls {extra}",
        extra = extra.display()
    );
    let viewed = view_for(&world, &runner, &script, nothing, HOUR, session).unwrap();
    assert_eq!(viewed.out, "session\nnew\n");
    assert_eq!(run("cat /tmp/note; ls /tmp"), "session\nnote\n");
    assert_eq!(snapshot(&extra).len(), 1);
    let list = changed(&world, &viewed);
    let (gone, new) = (extra.join("kept"), extra.join("new"));
    assert_eq!(
        list,
        [
            format!("-{}", gone.display()),
            format!("+{}", new.display())
        ]
    );
}

fn full() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.limits = Limits {
        tmp_bytes: 4 << 20,
        ..Limits::default()
    };
    let Some(runner) = runner(&world, settings) else {
        return;
    };
    let before = snapshot(&world.workspace);
    let script = "head -c 1000000 /dev/zero > some && echo some; head -c 64000000 /dev/zero > big || echo refused";
    let viewed = view(&world, &runner, script, nothing).unwrap();
    assert!(
        viewed.out.starts_with("some\n") && viewed.out.ends_with("refused\n"),
        "{}",
        viewed.out
    );
    assert!(viewed.layered.is_full());
    assert_eq!(viewed.layered.capacity(), 4 << 20);
    assert_eq!(changed(&world, &viewed), ["+big", "+some"]);
    // Many small files count as well.
    let script = "mkdir many; i=0; while [ $i -lt 9000 ]; do true > many/$i || { echo refused; break; }; i=$((i+1)); done";
    let viewed = view(&world, &runner, script, nothing).unwrap();
    assert!(viewed.out.ends_with("refused\n"), "{}", viewed.out);
    assert!(viewed.layered.is_full());
    assert_eq!(snapshot(&world.workspace), before);
    let viewed = view(&world, &runner, "echo x > x", nothing).unwrap();
    assert!(!viewed.layered.is_full());
}

fn base() {
    let world = World::new();
    let at = |name: &str| world.workspace.join(name);
    for file in ["changed", "untracked", "folder/new", "was-folder"] {
        std::fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        std::fs::write(at(file), "now\n").unwrap();
    }
    let mode = std::fs::Permissions::from_mode(0o750);
    std::fs::set_permissions(at("folder"), mode).unwrap();
    let Some(runner) = runner(&world, world.settings(Confinement::Auto)) else {
        return;
    };
    let before = snapshot(&world.workspace);
    let fill = |layer: &BaseLayer<'_>| {
        layer.show_file(&at("changed"), b"base\n", false).unwrap();
        layer
            .show_file(&at("deleted/since"), b"base\n", true)
            .unwrap();
        layer
            .show_file(&at("folder/old"), b"base\n", false)
            .unwrap();
        layer
            .show_file(&at("was-folder/file"), b"base\n", false)
            .unwrap();
        layer.show_link(&at("link"), b"changed").unwrap();
        layer.hide(&at("untracked")).unwrap();
        layer.hide(&at("folder/new")).unwrap();
        Ok(())
    };
    let script = "cat changed deleted/since folder/old was-folder/file link; ls -d untracked folder/new 2>/dev/null
        test -x deleted/since && stat -c %a folder; cat inside.txt; echo more >> changed";
    let viewed = view(&world, &runner, script, fill).unwrap();
    assert_eq!(viewed.out, "base\n".repeat(5) + "750\ninside\n");
    assert_eq!(snapshot(&world.workspace), before);
}

fn hostile_base() {
    let world = World::new();
    let Some(runner) = runner(&world, world.settings(Confinement::Auto)) else {
        return;
    };
    let outside = std::fs::read_to_string(world.outside.join("outside.txt")).unwrap();
    let at = |name: &str| world.workspace.join(name);
    let fill = |layer: &BaseLayer<'_>| {
        for path in [
            world.outside.join("outside.txt"),
            at("../outside/outside.txt"),
            at("a/../../outside/outside.txt"),
            world.workspace.clone(),
            PathBuf::from("relative"),
            PathBuf::from("/"),
        ] {
            assert!(
                layer.show_file(&path, b"hostile", false).is_err(),
                "{path:?}"
            );
            assert!(layer.hide(&path).is_err(), "{path:?}");
            assert!(layer.show_link(&path, b"x").is_err(), "{path:?}");
        }
        // A link of the base, and then a file below it: what a crafted tree could name.
        let target = world.outside.as_os_str().as_bytes();
        layer.show_link(&at("way"), target).unwrap();
        assert!(
            layer
                .show_file(&at("way/outside.txt"), b"hostile", false)
                .is_err()
        );
        layer.show_file(&at("twice"), b"one", false).unwrap();
        assert!(layer.show_file(&at("twice"), b"two", false).is_err());
        assert!(layer.show_file(&at("twice/below"), b"two", false).is_err());
        Ok(())
    };
    let viewed = view(&world, &runner, "cat twice", fill).unwrap();
    assert_eq!(viewed.out, "one");
    let after = std::fs::read_to_string(world.outside.join("outside.txt")).unwrap();
    assert_eq!(after, outside);
    // A base that cannot be filled in runs nothing.
    let refuse = |_: &BaseLayer<'_>| Err(Error::BadRequest("no".to_owned()));
    let refused = view(&world, &runner, "echo ran > ran", refuse);
    assert!(matches!(refused, Err(Error::BadRequest(_))));
    assert!(!at("ran").exists());
}

fn credentials() {
    let world = World::new();
    let home = world.base.join("home");
    for file in [".ssh/id", ".cache/tool/kept"] {
        std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        std::fs::write(home.join(file), "SECRET\n").unwrap();
    }
    // A secret inside the workspace is covered by a mount on top of the view.
    std::fs::write(world.workspace.join("secret"), "SECRET\n").unwrap();
    let mut settings = world.settings(Confinement::Auto);
    settings.home = Some(home.clone());
    let inside = world.workspace.join("secret").display().to_string();
    settings.hidden = vec!["~/.ssh".to_owned(), inside];
    let Some(runner) = runner(&world, settings) else {
        return;
    };
    let script = format!(
        "cat {home}/.ssh/id secret; cat {home}/.cache/tool/kept; echo $LLMC_MCP_TOKEN$OPENAI_API_KEY; env | grep -i poison",
        home = home.display()
    );
    let plain = world.run(&runner, &["sh", "-c", &script]);
    let viewed = view(&world, &runner, &script, nothing).unwrap();
    assert_eq!(viewed.out.matches("SECRET").count(), 1, "{}", viewed.out);
    assert_eq!(plain.out.matches("SECRET").count(), 1, "{plain:?}");
    assert!(!viewed.out.contains("poison"), "{}", viewed.out);
}

fn ended() {
    let world = World::new();
    let Some(runner) = runner(&world, world.settings(Confinement::Auto)) else {
        return;
    };
    let before = snapshot(&world.workspace);
    // In the background too: nothing of a run outlives it.
    let script = "rm -rf lib; (sleep 3600; echo late > late) & sleep 3600";
    let viewed = view_for(&world, &runner, script, nothing, Duration::from_secs(1), "").unwrap();
    assert!(viewed.layered.report.timed_out);
    assert_eq!(viewed.layered.report.status, ExitStatus::Stopped);
    assert_eq!(snapshot(&world.workspace), before);
    let viewed = view(
        &world,
        &runner,
        "(sleep 3600; echo late > late) & echo done",
        nothing,
    );
    assert_eq!(viewed.unwrap().out, "done\n");
    drop(runner);
    let left = std::fs::read_dir(world.workspace.join(".llmc/git-mirrors"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
}

fn unconfined() {
    let world = World::new();
    let runner = world.runner(Confinement::Off);
    let refused = view(&world, &runner, "echo ran > ran", nothing);
    assert!(matches!(refused, Err(Error::NoView { .. })));
    assert!(!world.workspace.join("ran").exists());
    // Nor where everything may be written.
    let mut settings = world.settings(Confinement::Auto);
    settings.write_roots = vec![PathBuf::from("/")];
    let runner = Runner::open(settings).unwrap();
    let refused = view(&world, &runner, "echo ran > ran", nothing);
    assert!(matches!(refused, Err(Error::NoView { .. })));
    assert!(!world.workspace.join("ran").exists());
}
