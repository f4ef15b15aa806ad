//! A hostile repository: everything git would start on its behalf leaves a mark.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use llmc_exec::{Confinement, Error, ExecRequest, Profile, Result, Runner, Stream};
use llmc_host::CancelToken;

use crate::world::{World, script};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("a_hostile_repository_runs_nothing", hostile);
    add("a_repository_elsewhere_is_not_read", elsewhere);
    add("git_only_reads", only_reads);
}

/// What git is asked; each must work.
const COMMANDS: &[&[&str]] = &[
    &["status"],
    &["status", "-s", "--ignored"],
    &["diff"],
    &["diff", "HEAD"],
    &["diff", "--stat"],
    &["diff", "--cached"],
    &["log", "-p"],
    &["log", "--oneline", "-5"],
    &["log", "--format=%h %G? %GS %s"],
    &["log", "--graph", "--all", "-m", "-p"],
    &["show"],
    &["show", "HEAD:b.tc"],
    &["blame", "b.tc"],
    &["grep", "-n", "one"],
    &["ls-files", "-m", "-o"],
    &["ls-files", "--eol"],
    &["branch", "-avv"],
    &["branch", "--show-current"],
    &["tag", "-n1"],
    &["describe", "--always"],
    &["rev-parse", "HEAD"],
    &["rev-list", "--count", "HEAD"],
    &["shortlog", "-sn"],
    &["cat-file", "-p", "HEAD:b.tc"],
    &["ls-tree", "-r", "HEAD"],
    &["merge-base", "HEAD", "HEAD~1"],
    &["--version"],
];

/// What plain git starts there, or the repository proves nothing.
const FIRES: &[&str] = &[
    "fsmonitor",
    "hook",
    "external",
    "textconv",
    "driver",
    "clean",
    "process",
    "odd-name",
    "included",
    "worktree",
    "info",
    "gpg",
    "sub",
];

struct Repository {
    dir: PathBuf,
    marks: PathBuf,
}

fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")])
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

impl Repository {
    /// Innocent history first, then the traps, then changes that make git look at content.
    fn new(world: &World, name: &str) -> Repository {
        let dir = world.workspace.join(name);
        let marks = world.workspace.join(format!("marks-{name}"));
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::create_dir(&marks).unwrap();
        let repository = Repository { dir, marks };
        let dir = &repository.dir;
        for place in [dir.clone(), dir.join("sub")] {
            git(&place, &["init", "-q", "-b", "main"]);
        }
        repository.write("sub/s.txt", "sub one\n");
        git(&dir.join("sub"), &["add", "."]);
        git(&dir.join("sub"), &["commit", "-qm", "sub"]);
        for file in FILES {
            repository.write(file, "one two\n");
        }
        git(dir, &["add", "."]);
        git(dir, &["commit", "-qm", "first"]);
        for file in FILES {
            repository.write(file, "one six\n");
        }
        let signer = "#!/bin/sh\ncat >/dev/null\nprintf '[GNUPG:] SIG_CREATED x\\n' >&2\n\
                      printf '%s\\n' '-----BEGIN PGP SIGNATURE-----' '' 'eA==' '-----END PGP SIGNATURE-----'\n";
        let signer = repository.program("sign.sh", signer);
        let key = format!("gpg.program={signer}");
        git(dir, &["-c", &key, "commit", "-aqS", "-m", "second"]);
        assert!(
            git(dir, &["cat-file", "-p", "HEAD"]).contains("gpgsig"),
            "not signed"
        );
        repository.arm();
        for file in FILES {
            repository.write(file, "one ten\n");
        }
        repository.write("sub/s.txt", "sub two\n");
        repository
    }

    fn arm(&self) {
        let run = |mark: &str, then: &str| {
            let script = format!("#!/bin/sh\n: > '{}/{mark}'\n{then}\n", self.marks.display());
            self.program(&format!("{mark}.sh"), &script)
        };
        let filter = |name: &str, mark: &str| {
            format!(
                "[filter \"{name}\"]\n clean = {}\n smudge = {0}\n required = true\n",
                run(mark, "cat")
            )
        };
        let mut config = String::from("[extensions]\n worktreeConfig = true\n");
        config += &format!(
            "[core]\n repositoryformatversion = 1\n fsmonitor = {}\n pager = {}\n",
            run("fsmonitor", ""),
            run("pager", "cat")
        );
        config += &format!(
            " editor = {0}\n sshCommand = {0}\n alternateRefsCommand = {0}\n askPass = {0}\n",
            run("core", "")
        );
        config += &format!(
            "[diff]\n external = {}\n submodule = log\n",
            run("external", "")
        );
        config += &format!(
            "[diff \"conv\"]\n textconv = {}\n",
            run("textconv", "cat \"$1\"")
        );
        config += &format!("[diff \"drive\"]\n command = {}\n", run("driver", ""));
        config += &filter("clean", "clean");
        config += &filter("a=b", "odd-name");
        config += &filter("info", "info");
        config += &format!(
            "[filter \"process\"]\n process = {}\n",
            run("process", "exit 1")
        );
        config += &format!("[merge \"m\"]\n driver = {}\n", run("merge", "exit 1"));
        config += &format!(
            "[gpg]\n program = {}\n[log]\n showSignature = true\n diffMerges = remerge\n",
            run("gpg", "exit 1")
        );
        config += &format!(
            "[alias]\n status = !{0}\n log = !{0}\n st = !{0}\n",
            run("alias", "")
        );
        config += &format!(
            "[trailer \"t\"]\n command = {0}\n cmd = {0}\n",
            run("trailer", "")
        );
        config += &format!(
            "[credential]\n helper = !{}\n[status]\n submoduleSummary = true\n[submodule]\n recurse = true\n",
            run("credential", "")
        );
        config += "[include]\n path = ../included.cfg\n[pager]\n log = x\n status = x\n";
        self.write(".git/config", &config);
        self.write("included.cfg", &filter("included", "included"));
        self.write(".git/config.worktree", &filter("worktree", "worktree"));
        let attributes = "*.clean filter=clean\n*.eq filter=a=b\n*.proc filter=process\n*.inc filter=included\n\
                          *.wt filter=worktree\n*.tc diff=conv\n*.drive diff=drive\n*.m merge=m\n";
        self.write(".gitattributes", attributes);
        self.write(".git/info/attributes", "*.info filter=info\n");
        let sub = run("sub", "");
        self.write(
            "sub/.git/config",
            &format!("[core]\n repositoryformatversion = 0\n fsmonitor = {sub}\n[filter \"s\"]\n clean = {sub}\n"),
        );
        self.write("sub/.git/info/attributes", "* filter=s\n");
        let hook = format!("#!/bin/sh\n: > '{}/hook'\n", self.marks.display());
        for name in [
            "post-index-change",
            "pre-commit",
            "post-checkout",
            "reference-transaction",
            "fsmonitor-watchman",
        ] {
            let path = self.dir.join(".git/hooks").join(name);
            script(&path, &hook);
        }
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.dir.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// A program beside the repository.
    fn program(&self, name: &str, text: &str) -> String {
        let file = self.dir.with_extension("bin").join(name);
        script(&file, text);
        file.to_str().unwrap().to_owned()
    }

    /// What has been started since the last look.
    fn marks(&self) -> BTreeSet<String> {
        let mut marks = BTreeSet::new();
        for entry in std::fs::read_dir(&self.marks).unwrap() {
            let entry = entry.unwrap();
            marks.insert(entry.file_name().into_string().unwrap());
            std::fs::remove_file(entry.path()).unwrap();
        }
        marks
    }
}

const FILES: &[&str] = &[
    "a.txt", "b.tc", "c.clean", "d.proc", "e.eq", "f.inc", "g.wt", "h.info", "i.drive", "j.m",
];

fn hostile() {
    let world = World::new();
    let repository = Repository::new(&world, "repo");
    for args in [
        &["status"][..],
        &["diff"],
        &["log", "-p"],
        &["blame", "b.tc"],
        &["show"],
        // With an external diff for everything, drivers have no turn.
        &["-c", "diff.external=", "diff", "i.drive"],
    ] {
        // That one ends git before the others have had theirs.
        let quiet = ["-c", "filter.process.process="];
        git(&repository.dir, &[&quiet, args].concat());
    }
    git(&repository.dir, &["diff", "d.proc"]);
    let fired = repository.marks();
    let missing: Vec<_> = FIRES
        .iter()
        .filter(|mark| !fired.contains(**mark))
        .collect();
    assert!(missing.is_empty(), "plain git started only {fired:?}");

    for runner in runners(&world) {
        for args in COMMANDS {
            // Looks stale, so that git wants to write its index and to read every file again.
            for file in FILES {
                repository.write(file, "one ten\n");
            }
            let ran = runner.run(&world, "repo", args).unwrap();
            assert_eq!(ran.code, Some(0), "{} {args:?}: {ran:?}", runner.name);
            let fired = repository.marks();
            assert!(
                fired.is_empty(),
                "{} {args:?} started {fired:?}: {ran:?}",
                runner.name
            );
        }
        let status = runner.run(&world, "repo", &["status", "-s"]).unwrap().out;
        assert!(
            status.contains(" M a.txt") && status.contains(" M h.info"),
            "{status}"
        );
        let diff = runner.run(&world, "repo", &["diff", "b.tc"]).unwrap().out;
        assert!(diff.contains("-one six\n+one ten\n"), "{diff}");
        let log = runner
            .run(&world, "repo", &["log", "-p", "--", "b.tc"])
            .unwrap()
            .out;
        assert!(
            log.contains("+one six\n") && log.contains("second"),
            "{log}"
        );
    }
    bare(&world);
}

/// A directory that is itself laid out as a repository: committed content can be that.
fn bare(world: &World) {
    let repository = Repository::new(world, "bare-source");
    let dir = world.workspace.join("planted");
    std::fs::create_dir(&dir).unwrap();
    for name in ["HEAD", "objects", "refs", "index"] {
        std::fs::rename(repository.dir.join(".git").join(name), dir.join(name)).unwrap();
    }
    let evil = repository.dir.with_extension("bin").join("fsmonitor.sh");
    let config = format!(
        "[core]\n repositoryformatversion = 0\n bare = false\n worktree = {}\n fsmonitor = {}\n",
        dir.display(),
        evil.display()
    );
    std::fs::write(dir.join("config"), config).unwrap();
    repository.marks();
    let said = git(&dir, &["status"]);
    let fired = repository.marks();
    assert!(
        fired.contains("fsmonitor"),
        "plain git did not care: {said}"
    );
    for runner in runners(world) {
        for args in [&["status"][..], &["diff"], &["log"]] {
            let ran = runner.run(world, "planted", args);
            assert!(
                repository.marks().is_empty(),
                "{} {args:?}: {ran:?}",
                runner.name
            );
        }
    }
}

/// A repository whose files or history lie outside the roots is not shown, unless it knows this working tree.
fn elsewhere() {
    let world = World::new();
    let secret = world.outside.join("private");
    std::fs::create_dir(&secret).unwrap();
    git(&secret, &["init", "-q", "-b", "main"]);
    std::fs::write(secret.join("s.txt"), "SECRET\n").unwrap();
    git(&secret, &["add", "."]);
    git(&secret, &["commit", "-qm", "SECRET"]);
    let real = world.workspace.join("linked");
    let added = git(&secret, &["worktree", "add", "-q", real.to_str().unwrap()]);
    assert!(real.join(".git").is_file(), "{added}");
    let pointer = world.workspace.join("pointer");
    std::fs::create_dir(&pointer).unwrap();
    std::fs::write(
        pointer.join(".git"),
        format!("gitdir: {}\n", secret.join(".git").display()),
    )
    .unwrap();
    let moved = world.workspace.join("moved");
    std::fs::create_dir(&moved).unwrap();
    git(&moved, &["init", "-q"]);
    git(
        &moved,
        &["config", "core.worktree", secret.to_str().unwrap()],
    );
    let borrowed = world.workspace.join("borrowed");
    std::fs::create_dir(&borrowed).unwrap();
    git(&borrowed, &["init", "-q", "-b", "main"]);
    let objects = format!("{}\n", secret.join(".git/objects").display());
    std::fs::write(borrowed.join(".git/objects/info/alternates"), objects).unwrap();
    let commit = git(&secret, &["rev-parse", "HEAD"]);
    std::fs::write(borrowed.join(".git/refs/heads/main"), commit).unwrap();
    assert!(
        git(&borrowed, &["log"]).contains("SECRET"),
        "the attack works"
    );
    let is_foreign = |refused: &Result<Ran>| {
        matches!(
            refused,
            Err(Error::Host(llmc_host::Error::ForeignRepository { .. }))
        )
    };
    for runner in runners(&world) {
        for dir in ["pointer", "linked", "borrowed"] {
            let refused = runner.run(&world, dir, &["log"]);
            if runner.through_policy {
                assert!(is_foreign(&refused), "{dir}: {refused:?}");
            }
        }
        for dir in ["pointer", "moved"] {
            for args in [
                &["log"][..],
                &["status"],
                &["ls-files", "-o"],
                &["grep", "SECRET"],
            ] {
                let refused = runner.run(&world, dir, args);
                if runner.through_policy && is_foreign(&refused) {
                    continue;
                }
                if let (true, Ok(ran)) = (runner.through_policy, &refused) {
                    // The kernel keeps git from reading there, so git itself finds no repository.
                    assert_eq!((ran.code, ran.out.as_str()), (Some(128), ""), "{ran:?}");
                    continue;
                }
                let Err(Error::CommandDenied { why, .. }) = &refused else {
                    panic!("{} {dir} {args:?}: {refused:?}", runner.name);
                };
                assert!(why.contains("outside the roots"), "{why}");
            }
        }
        // The restricted profile reads nothing outside the roots, whatever repository it belongs to.
        if !runner.through_policy {
            let ran = runner.run(&world, "linked", &["log", "--oneline"]).unwrap();
            assert!(
                ran.out.contains("SECRET"),
                "a working tree of its own: {ran:?}"
            );
        }
    }
}

fn only_reads() {
    let world = World::new();
    let repository = Repository::new(&world, "repo");
    for runner in runners(&world) {
        for args in [
            &["-c", "alias.x=!id", "x"][..],
            &["-ccore.fsmonitor=id", "status"],
            &["--config-env=core.pager=X", "log"],
            &["-C", "..", "status"],
            &["--git-dir=x", "status"],
            &["--git-dir", "x", "status"],
            &["--work-tree=/", "status"],
            &["--exec-path=.", "status"],
            &["-p", "log"],
            &["--paginate", "log"],
            &["st"],
            &["commit", "-m", "x"],
            &["push"],
            &["fetch"],
            &["ls-remote", "--upload-pack=id", "."],
            &["archive", "--exec=id", "HEAD"],
            &["config", "-l"],
            &["submodule", "foreach", "id"],
            &["rebase", "--exec", "id", "HEAD~1"],
            &["difftool"],
            &["diff", "--output=x"],
            &["diff", "--output", "x"],
            &["log", "--output=x", "-p"],
            &["diff", "--no-index", "a.txt", "/etc/passwd"],
            &["diff", "a.txt", "/etc/passwd"],
            &["diff", "--", "../../outside/outside.txt", "a.txt"],
            &["diff", "--ext-diff"],
            &["log", "-p", "--textconv"],
            &["log", "--show-signature"],
            &["log", "--diff-merges=remerge"],
            &["log", "--remerge-diff"],
            &["grep", "-O", "one"],
            &["grep", "-Oid", "one"],
            &["grep", "--no-index", "one", "/etc"],
            &["blame", "--contents", "/etc/passwd", "a.txt"],
            &["status", "--ignore-submodules=none"],
            &["describe", "--dirty"],
            &["branch", "-D", "main"],
            &["tag", "-d", "v1"],
            &["cat-file", "--textconv", "HEAD:b.tc"],
            &["show", "--textconv", "HEAD:b.tc"],
            &[],
        ] {
            let refused = runner.run(&world, "repo", args);
            assert!(
                matches!(refused, Err(Error::CommandDenied { .. })),
                "{} {args:?}: {refused:?}",
                runner.name
            );
        }
        // A name is a pattern here, never a new branch or tag.
        for args in [&["branch", "new"][..], &["tag", "new"]] {
            runner.run(&world, "repo", args).unwrap();
        }
    }
    assert!(repository.marks().is_empty());
    let refs = git(&repository.dir, &["-c", "core.fsmonitor=", "for-each-ref"]);
    assert!(!refs.contains("new"), "{refs}");
    assert!(!repository.dir.join("x").exists());
}

/// One way of running git, and its name.
struct Door {
    name: &'static str,
    runner: Runner,
    through_policy: bool,
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    #[allow(dead_code, reason = "shown when a test fails")]
    err: String,
}

/// The server's own git, confined and not, and a caller's git in the restricted profile.
fn runners(world: &World) -> Vec<Door> {
    let mut doors = vec![
        Door {
            name: "te_git unconfined",
            runner: world.runner(Confinement::Off),
            through_policy: false,
        },
        Door {
            name: "te_git confined",
            runner: world.runner(Confinement::Auto),
            through_policy: false,
        },
    ];
    let mut settings = world.settings(Confinement::Auto);
    settings.profile = Profile::Restricted;
    settings.allowlist = vec!["git".to_owned()];
    match Runner::open(settings) {
        Ok(runner) => doors.push(Door {
            name: "restricted",
            runner,
            through_policy: true,
        }),
        Err(Error::IsolationRequired { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    doors
}

impl Door {
    fn run(&self, world: &World, dir: &str, args: &[&str]) -> Result<Ran> {
        let roots = world.roots();
        let cwd = roots.open_dir(dir).unwrap();
        let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        let argv = [&["git".to_owned()][..], &args].concat();
        let ready = if self.through_policy {
            None
        } else {
            Some(self.runner.git(&args, &cwd)?)
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut collect = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Stdout => out.extend_from_slice(bytes),
            Stream::Stderr => err.extend_from_slice(bytes),
        };
        let spec = ExecRequest {
            program: ready.as_ref().map(|ready| &ready.program),
            env: ready.as_ref().map_or(&[], |ready| &ready.env),
            max_output: 1 << 20,
            ..ExecRequest::new(
                ready.as_ref().map_or(&argv, |ready| &ready.argv),
                &cwd,
                Duration::from_secs(20),
            )
        };
        let finished = self
            .runner
            .run(&spec, &mut collect, &CancelToken::default())?;
        Ok(Ran {
            code: finished.status.exit_code(),
            out: String::from_utf8_lossy(&out).into_owned(),
            err: String::from_utf8_lossy(&err).into_owned(),
        })
    }
}
