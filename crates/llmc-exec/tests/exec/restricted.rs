//! The restricted profile with real programs and real files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llmc_exec::{Confinement, Error, Profile, Runner};
use llmc_host::{PathRules, Roots};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("restricted_programs_do_their_work", work);
    add("restricted_programs_stay_inside", inside);
    add("restricted_programs_read_no_swapped_folder", swapped);
    add("the_denylist_holds_for_objects_of_git", objects);
    add("a_restricted_list_is_checked_at_start", at_start);
}

/// Every program that has a rule.
const PROGRAMS: &str = "rg grep ls cat head tail wc stat file diff find sed git";

/// A server in the restricted profile, where this kernel allows one.
fn restricted(world: &World) -> Option<Runner> {
    restricted_that_sees(world, None)
}

fn restricted_that_sees(world: &World, sees: Option<Vec<PathBuf>>) -> Option<Runner> {
    let mut settings = world.settings(Confinement::Auto);
    settings.sees = sees;
    settings.profile = Profile::Restricted;
    settings.network = true;
    settings.allowlist = PROGRAMS.split(' ').map(str::to_owned).collect();
    let dir = world.workspace.clone();
    let denylist = ["**/.env".to_owned(), "*secret*".to_owned()];
    let rules = PathRules::default().with_denylist(&denylist, true).unwrap();
    let roots = Roots::open(&dir, std::slice::from_ref(&dir), Arc::new(rules)).unwrap();
    settings.roots = Some(Arc::new(roots));
    match Runner::open(settings) {
        Ok(runner) => {
            assert!(!runner.level().network, "restricted means no network");
            Some(runner)
        }
        Err(Error::IsolationRequired { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn work() {
    let world = World::new();
    std::fs::create_dir(world.workspace.join("src")).unwrap();
    std::fs::write(
        world.workspace.join("src/a.rs"),
        "fn foo() {}\nfn bar() {}\nlast\n",
    )
    .unwrap();
    std::fs::write(
        world.workspace.join("src/b.rs"),
        "fn foo() {}\nfn baz() {}\nlast\n",
    )
    .unwrap();
    std::fs::write(world.workspace.join("-odd"), "odd\n").unwrap();
    std::fs::write(world.workspace.join(".env"), "foo KEY\n").unwrap();
    std::fs::write(world.workspace.join("src/Secrets.txt"), "foo KEY\n").unwrap();
    let Some(runner) = restricted(&world) else {
        return;
    };
    for (argv, expected) in [
        (&["rg", "-n", "foo", "src"][..], "src/a.rs:1:fn foo() {}"),
        (
            &["rg", "-n", "fn ba", "src", "--sort", "path"],
            "src/a.rs:2:fn bar() {}",
        ),
        (&["rg", "foo"], "src/b.rs:fn foo"),
        (&["grep", "-rn", "foo", "src"], "src/b.rs:1:fn foo() {}"),
        (&["ls", "-1", "src"], "a.rs\n"),
        (&["cat", "src/a.rs"], "fn foo() {}\n"),
        (&["cat", "--", "-odd"], "odd\n"),
        (&["head", "-1", "src/a.rs"], "fn foo() {}\n"),
        (&["head", "-n", "1", "src/a.rs"], "fn foo() {}\n"),
        (&["tail", "-n+3", "src/a.rs"], "last\n"),
        (&["wc", "-l", "src/a.rs"], "3 src/a.rs"),
        (&["stat", "-c", "%s %n", "inside.txt"], "7 inside.txt"),
        (&["diff", "-u", "src/a.rs", "src/b.rs"], "+fn baz() {}"),
        (&["diff", "-rq", "src", "lib"], "Only in src: a.rs"),
        (&["find", ".", "-name", "*.rs"], "./src/a.rs\n"),
        (
            &[
                "find", "src", "(", "-name", "a*", "-o", "-empty", ")", "-printf", "%f\\n",
            ],
            "a.rs\n",
        ),
        (
            &["sed", "-n", "1,2p", "src/a.rs"],
            "fn foo() {}\nfn bar() {}\n",
        ),
        (
            &["sed", "-n", "/bar/,$p", "src/a.rs"],
            "fn bar() {}\nlast\n",
        ),
    ] {
        let ran = world.run(&runner, argv);
        assert!(ran.out.contains(expected), "{argv:?}: {ran:?}");
        assert!(!ran.out.contains("KEY"), "{argv:?}: {ran:?}");
    }
    for argv in [
        &["rg", "-uu", "foo"][..],
        &["rg", "-uu", "-g", ".env", "KEY"],
        &["rg", "-uu", "--iglob", ".ENV", "KEY"],
        &["grep", "-r", "KEY", "."],
        &["grep", "-r", "--include=.env", "KEY", "."],
        &["diff", "-r", "-N", "src", "lib"],
    ] {
        let ran = world.run(&runner, argv);
        assert!(!ran.out.contains("KEY"), "denylisted: {argv:?}: {ran:?}");
    }
}

fn inside() {
    let world = World::new();
    let dir = &world.workspace;
    let outside = world.outside("outside.txt");
    symlink(&outside, dir.join("out")).unwrap();
    symlink(&world.outside, dir.join("outdir")).unwrap();
    symlink("inside.txt", dir.join("in")).unwrap();
    symlink("/proc/self/root", dir.join("root")).unwrap();
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    std::fs::write(dir.join(".env"), "KEY\n").unwrap();
    std::fs::create_dir(dir.join("sub")).unwrap();
    let Some(runner) = restricted(&world) else {
        return;
    };
    let magic = format!("/proc/self/root{outside}");
    for operand in [
        outside.as_str(),
        "../outside/outside.txt",
        "sub/../../outside/outside.txt",
        "out",
        "outdir/outside.txt",
        "root/etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        &magic,
        "/dev/zero",
        "/dev/stdin",
        "-",
        "pipe",
        ".env",
        "./sub/../.ENV",
        "",
        "gone/../../outside/outside.txt",
    ] {
        for argv in [
            &["cat", operand][..],
            &["head", "--", operand],
            &["grep", "x", operand],
            &["rg", "x", operand],
            &["sed", "-n", "1p", operand],
            &["diff", "inside.txt", operand],
            &["wc", operand],
            &["tail", operand],
            &["grep", "-f", operand, "inside.txt"],
        ] {
            let refused = world.try_run(&runner, argv);
            let Err(Error::CommandDenied { why, .. }) = &refused else {
                panic!("{argv:?}: {refused:?}");
            };
            assert!(!why.contains(&text(&world.base)), "{why}");
        }
    }
    for argv in [
        &["ls", "outdir/"][..],
        &["ls", "out"],
        &["stat", "out"],
        &["find", "outdir", "-type", "f"],
        &["find", ".", "-newer", "/etc/passwd"],
        &["file", "/etc/passwd"],
    ] {
        let refused = world.try_run(&runner, argv);
        assert!(
            matches!(refused, Err(Error::CommandDenied { .. })),
            "{argv:?}: {refused:?}"
        );
    }
    for argv in [
        &["cat", "in"][..],
        &["cat", &text(&dir.join("inside.txt"))],
        &["cat", "sub/../inside.txt"],
        &["grep", "-r", "side", "."],
        &["rg", "side"],
    ] {
        let ran = world.run(&runner, argv);
        assert!(ran.out.contains("inside"), "{argv:?}: {ran:?}");
        assert!(!ran.out.contains("outside"), "{argv:?}: {ran:?}");
    }
    // What is not there is for the program to say.
    let ran = world.run(&runner, &["cat", "gone"]);
    assert!(
        ran.finished.status.exit_code() == Some(1) && ran.err.contains("No such file"),
        "{ran:?}"
    );
}

/// A folder and a link to the outside change places while programs read through the name.
fn swapped() {
    let world = World::new();
    let dir = &world.workspace;
    std::fs::create_dir(dir.join("cur")).unwrap();
    std::fs::write(dir.join("cur/p"), "mine\n").unwrap();
    std::fs::write(world.outside.join("p"), "LEAKED\n").unwrap();
    symlink(&world.outside, dir.join("other")).unwrap();
    let Some(runner) = restricted(&world) else {
        return;
    };
    let naive = restricted_that_sees(&world, Some(vec!["/".into()])).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cur, other) = (dir.join("cur"), dir.join("other"));
            while !done.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &cur, CWD, &other, RenameFlags::EXCHANGE);
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        let reads = |runner: &Runner| match world.try_run(runner, &["cat", "cur/p"]) {
            Ok(ran) => ran.out,
            Err(Error::CommandDenied { .. }) => String::new(),
            Err(error) => panic!("{error}"),
        };
        // Ends the swapping whatever fails.
        let _done = SetAtEnd(&done);
        let (mut read, mut tried) = (0, 0);
        while tried < 400 && read < 40 {
            let out = reads(&runner);
            assert!(!out.contains("LEAKED"), "after {tried} runs");
            read += usize::from(out == "mine\n");
            tried += 1;
        }
        assert!(read > 0, "nothing was read at all");
        let leaks = (0..600).any(|_| reads(&naive).contains("LEAKED"));
        assert!(leaks, "the race proves nothing");
    });
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn objects() {
    let world = World::new();
    let dir = &world.workspace;
    std::fs::remove_dir_all(dir.join(".git")).unwrap();
    std::fs::write(dir.join(".env"), "KEY\n").unwrap();
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "-c",
                "safe.directory=*",
            ])
            .args(args)
            .current_dir(dir)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    git(&["add", "-f", ".env", "inside.txt"]);
    git(&["commit", "-qm", "start"]);
    let Some(runner) = restricted(&world) else {
        return;
    };
    let secret = git(&["rev-parse", ":.env"]);
    let other = git(&["rev-parse", ":inside.txt"]);
    let range = format!("{other}..{secret}");
    let peeled = format!("{secret}^{{blob}}");
    for argv in [
        &["show", ":.env"][..],
        &["show", ":0:.env"],
        &["show", ":./.env"],
        &["show", ":.ENV"],
        &["show", "HEAD:.env"],
        &["show", "HEAD^{tree}:.env"],
        &["show", ":/start:.env"],
        &["show", "@{0}:.env"],
        &["cat-file", "-p", ":.env"],
        &["cat-file", "blob", ":0:.env"],
        &["diff", ":.env", ":inside.txt"],
        &["grep", "KEY", "--", ":(glob).env"],
        &["show", &secret],
        &["show", &secret[..8]],
        &["cat-file", "-p", &secret],
        &["cat-file", "blob", &peeled],
        &["diff", &other, &secret],
        &["diff", &range],
    ] {
        let argv = [&["git"][..], argv].concat();
        let refused = world.try_run(&runner, &argv);
        assert!(
            matches!(refused, Err(Error::CommandDenied { .. })),
            "{argv:?}: {refused:?}"
        );
    }
    for argv in [
        &["git", "show", ":inside.txt"][..],
        &["git", "show", ":0:inside.txt"],
        &["git", "cat-file", "-p", "HEAD:inside.txt"],
    ] {
        let ran = world.run(&runner, argv);
        assert_eq!(ran.out, "inside\n", "{argv:?}: {ran:?}");
    }
}

fn at_start() {
    let world = World::new();
    let open = |name: &str| {
        let mut settings = world.settings(Confinement::Auto);
        settings.profile = Profile::Restricted;
        settings.allowlist = vec![name.to_owned()];
        Runner::open(settings)
    };
    for name in ["bash", "sh", "attack", "env", "/bin/sh"] {
        assert!(matches!(open(name), Err(Error::BadPolicy { .. })), "{name}");
    }
    // A shell by another name.
    let cat = world.bin.join("cat");
    symlink("/bin/sh", &cat).unwrap();
    std::fs::set_permissions(&world.bin, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(open(&text(&cat)), Err(Error::BadPolicy { .. })));
}
