//! `llmc allow`: the user lets commands of a workspace write, read or reach more, and servers that run follow at once.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use llmc_testkit::{McpClient, ProcessOutput, TestProcess, TestScreen, TestWorkspace, skip};
use serde_json::json;

use crate::{classic, workspace};

fn allow(workspace: &TestWorkspace, flags: &[&str]) -> ProcessOutput {
    let ended = workspace.llmc([&["allow"], flags].concat());
    assert_eq!(ended.code, Some(0), "{} {}", ended.stdout, ended.stderr);
    ended
}

/// What a command prints, in the answer of a server.
fn run(client: &mut McpClient, line: &str) -> String {
    client.call_tool("run_cmd", json!({"command": line})).1
}

fn has_mounts(client: &mut McpClient) -> bool {
    let health = client.json("health", json!({}));
    health["confinement"].to_string().contains("mntns")
}

#[test]
fn a_running_server_follows_what_is_allowed_and_taken_back() {
    let workspace = workspace("//- a.txt\none\n");
    let shared = workspace.outside("shared");
    fs::create_dir(&shared).unwrap();
    let shared = shared.to_str().unwrap();
    let secrets = workspace.base().join("home/.ssh");
    fs::create_dir_all(&secrets).unwrap();
    fs::write(secrets.join("config"), "Host somewhere\n").unwrap();
    let secrets = secrets.to_str().unwrap();
    let mut client = classic(&workspace);
    run(&mut client, "true");
    if !has_mounts(&mut client) {
        return skip("no mount namespaces");
    }
    let write = format!("mkdir -p {shared} && echo x > {shared}/made; ls {shared}");
    let read = format!("cat {secrets}/config");
    let is_written = || Path::new(shared).join("made").exists();
    run(&mut client, &write);
    assert!(!is_written());
    assert!(!run(&mut client, &read).contains("somewhere"));

    let said = allow(&workspace, &["--yes", "--write", shared, "--read", secrets]);
    for part in [format!("write {shared}"), format!("read {secrets}")] {
        assert!(said.stdout.contains(&part), "{}", said.stdout);
    }
    run(&mut client, &write);
    assert!(is_written(), "without a restart");
    assert!(run(&mut client, &read).contains("somewhere"));
    let listed = allow(&workspace, &[]).stdout;
    assert!(
        listed.contains(&format!("write {shared}")) && listed.contains(&format!("read {secrets}")),
        "{listed}"
    );
    // Another workspace of the same user has none of it.
    let inner = workspace.path("other");
    fs::create_dir_all(inner.join(".git")).unwrap();
    let other = allow(&workspace, &["--root", inner.to_str().unwrap()]);
    assert!(
        other.stdout.contains("nothing is allowed"),
        "{}",
        other.stdout
    );

    fs::remove_file(Path::new(shared).join("made")).unwrap();
    allow(
        &workspace,
        &["--remove", "--write", shared, "--read", secrets],
    );
    run(&mut client, &write);
    assert!(!is_written());
    assert!(!run(&mut client, &read).contains("somewhere"));
    assert!(allow(&workspace, &[]).stdout.contains("nothing is allowed"));
    let ended = workspace.llmc(["allow", "--remove", "--write", shared]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
}

#[test]
fn a_variable_is_passed_once_it_is_allowed() {
    let workspace = workspace("//- a.txt\none\n").with_env("ZZ_SETTING", "passed");
    let mut client = classic(&workspace);
    let line = "echo \"<$ZZ_SETTING>\"";
    run(&mut client, line);
    allow(&workspace, &["--yes", "--env", "ZZ_SETTING"]);
    assert!(run(&mut client, line).contains("<passed>"));
}

#[test]
fn a_socket_is_reached_once_it_is_allowed() {
    let workspace = workspace("//- a.txt\none\n");
    let path = workspace.outside("service");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"reached");
        }
    });
    workspace.write(
        "connect.py",
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint(s.recv(9).decode())\n",
    );
    let mut client = classic(&workspace);
    let own = "python3 -c 'import socket; socket.socket(socket.AF_UNIX); print(\"made\")'";
    if !run(&mut client, own).contains("made") {
        return skip("no local sockets for commands");
    }
    let path = path.to_str().unwrap();
    let line = format!("python3 connect.py {path}");
    assert!(!run(&mut client, &line).contains("reached"));
    let said = allow(&workspace, &["--yes", "--socket", path]).stdout;
    assert!(said.contains("rights of its own"), "{said}");
    let answer = run(&mut client, &line);
    assert!(answer.contains("reached"), "{answer}");
}

/// Runs git in the folder that holds everything, and returns what it printed.
fn git(workspace: &TestWorkspace, line: &str) -> String {
    let mut command = workspace.command_of("sh");
    command.current_dir(workspace.base()).args(["-c", line]);
    let ended = TestProcess::start(command).finish();
    assert_eq!(ended.code, Some(0), "{line}: {}", ended.stderr);
    ended.stdout
}

const COMMIT: &str = "git -c user.name=a -c user.email=a@b commit -q";

#[test]
fn a_git_directory_is_allowed_under_guard() {
    let workspace = workspace("//- a.txt\none\n");
    git(
        &workspace,
        "git init -q --bare outside/remote.git && git -C w init -q",
    );
    let mut client = classic(&workspace);
    run(&mut client, "true");
    if !has_mounts(&mut client) {
        return skip("no mount namespaces");
    }
    let remote = workspace.outside("remote.git");
    let remote = remote.to_str().unwrap();
    let push = format!("git add a.txt; {COMMIT} -m one; git push -q {remote} HEAD:refs/heads/main");
    run(&mut client, &push);
    let refs = || git(&workspace, "git -C outside/remote.git for-each-ref");
    assert_eq!(refs(), "");
    let said = allow(&workspace, &["--yes", "--write", remote]).stdout;
    assert!(said.contains("use the git directory"), "{said}");
    let answer = run(&mut client, &push);
    assert!(refs().contains("refs/heads/main"), "{answer}");
    let plant = format!(
        "git -C {remote} config core.fsmonitor ./evil; echo evil > {remote}/hooks/post-update"
    );
    run(&mut client, &plant);
    let config = fs::read_to_string(Path::new(remote).join("config")).unwrap();
    assert!(!config.contains("evil"), "{config}");
    assert!(!Path::new(remote).join("hooks/post-update").exists());
    allow(&workspace, &["--remove", "--write", remote]);
    run(
        &mut client,
        &format!("git push -q {remote} HEAD:refs/heads/late"),
    );
    assert!(!refs().contains("refs/heads/late"));
}

/// Its `.git` file leads to a repository that does not point back, so it is not followed unless the user says so.
#[test]
fn a_working_tree_that_its_repository_does_not_know_is_allowed() {
    let workspace = workspace("");
    let main = workspace.outside("main");
    let make = format!(
        "git init -q outside/main && cd outside/main && {COMMIT} --allow-empty -m base && git worktree add -q ../../w -b tree"
    );
    git(&workspace, &make);
    let private = main.join(".git/worktrees/w");
    fs::write(private.join("gitdir"), "/nowhere/.git\n").unwrap();
    let mut client = classic(&workspace);
    run(&mut client, "true");
    if !has_mounts(&mut client) {
        return skip("no mount namespaces");
    }
    let commit = format!("echo a > f; git add f; {COMMIT} -m one");
    run(&mut client, &commit);
    let log = || git(&workspace, "git -C outside/main log --format=%s tree");
    assert_eq!(log(), "base\n");
    let private = private.to_str().unwrap();
    allow(&workspace, &["--yes", "--write", private]);
    let answer = run(&mut client, &commit);
    assert_eq!(log(), "one\nbase\n", "{answer}");
    let main = main.join(".git");
    allow(&workspace, &["--remove", "--write", main.to_str().unwrap()]);
    assert!(allow(&workspace, &[]).stdout.contains("nothing is allowed"));
    run(
        &mut client,
        &format!("echo b > g; git add g; {COMMIT} -m two"),
    );
    assert_eq!(log(), "one\nbase\n");
}

/// A command that runs `llmc allow`, or writes the record, allows nothing.
#[test]
fn a_command_cannot_allow_itself_anything() {
    let workspace = workspace("//- a.txt\none\n");
    let target = workspace.outside("target");
    fs::create_dir(&target).unwrap();
    let target = target.to_str().unwrap();
    // A record that is there, and one that a command would make.
    for is_there in [false, true] {
        let record = workspace.base().join("home/.local/state/llmc/trust.toml");
        if is_there {
            allow(&workspace, &["--yes", "--env", "ZZ_SETTING"]);
        }
        let before = fs::read(&record).ok();
        let mut client = classic(&workspace);
        run(&mut client, "true");
        if !has_mounts(&mut client) {
            return skip("no mount namespaces");
        }
        let llmc = workspace.program().display().to_string();
        let said = run(&mut client, &format!("{llmc} allow --yes --write {target}"));
        assert!(said.contains("a shell of their own"), "{said}");
        let said = run(&mut client, &format!("{llmc} trust --yes"));
        assert!(said.contains("a shell of their own"), "{said}");
        let root = workspace.root();
        let forged = format!(
            "d=$HOME/.local/state/llmc; mkdir -p $d; chmod 700 $d; rm -f $d/trust.toml\n\
             printf '[allowed.\"{}\"]\\nwrite = [\"{target}\"]\\n' > $d/trust.toml; chmod 600 $d/trust.toml\n\
             mv $HOME/.local/state/llmc $HOME/.local/state/llmc2; mv $HOME/.local $HOME/.local2; true",
            root.display()
        );
        run(&mut client, &forged);
        assert_eq!(fs::read(&record).ok(), before, "the record has changed");
        if is_there {
            let said = run(&mut client, "echo a > $HOME/.local/state/llmc/trust.toml");
            assert!(
                said.contains("Read-only file system"),
                "no silent copy: {said}"
            );
        }
        run(&mut client, &format!("echo x > {target}/planted"));
        assert!(!Path::new(target).join("planted").exists());
        if is_there {
            let seen = run(&mut client, "cat $HOME/.local/state/llmc/trust.toml");
            assert!(
                !seen.contains("ZZ_SETTING"),
                "the record is not seen: {seen}"
            );
        }
    }
}

#[test]
fn the_question_is_asked_and_what_decides_over_agents_is_refused() {
    let workspace = workspace("//- a.txt\none\n//- .git/HEAD\nref: refs/heads/main\n");
    let dir = workspace.outside("dir");
    for name in [
        "repository.git/objects",
        "repository.git/refs",
        "repository.git/hooks",
    ] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("repository.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let home = workspace.base().join("home");
    let record = home.join(".local/state/llmc/trust.toml");
    fs::create_dir_all(home.join(".config/llmc")).unwrap();
    fs::create_dir_all(home.join(".local/state/llmc")).unwrap();
    let asked = workspace.llmc(["allow", "--write", dir.to_str().unwrap()]);
    assert_eq!(asked.code, Some(2), "{}", asked.stderr);
    assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
    for (answer, expected) in [("n", "nothing was allowed"), ("y", "need no restart")] {
        assert!(!record.exists());
        let mut command = workspace.command();
        command.args(["allow", "--write"]).arg(&dir);
        let mut screen = TestScreen::start(command);
        screen.wait_for_output("allow this? [y/N] ");
        screen.press(answer);
        screen.press("\n");
        let said = screen.ended().0;
        assert!(said.contains(expected), "{said}");
    }
    let mode = record.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let at = |place: &str| workspace.base().join(place).display().to_string();
    let refused = [
        ("--write", "/".to_owned(), "where you decide over agents"),
        ("--write", at("home"), "where you decide over agents"),
        (
            "--write",
            at("home/.local/state"),
            "where you decide over agents",
        ),
        ("--write", at("home/.config/llmc"), "its own files"),
        ("--write", at("outside/none"), "make it first"),
        (
            "--write",
            at("outside/dir/repository.git/hooks"),
            "under guard",
        ),
        ("--write", "/proc/self".to_owned(), "the kernel's"),
        ("--read", at("home/.local/state/llmc"), "its own secrets"),
        ("--read", "/".to_owned(), "name the place"),
        ("--socket", at("w/a.txt"), "no socket"),
        ("--env", "LLMC_MCP_TOKEN".to_owned(), "not the name"),
        ("--env", "A=b".to_owned(), "not the name"),
        ("--host", "https://example.com/".to_owned(), "no host"),
    ];
    for (flag, value, why) in refused {
        let ended = workspace.llmc(["allow", "--yes", flag, &value]);
        assert_ne!(ended.code, Some(0), "{flag} {value}");
        assert!(
            ended.stderr.contains(why),
            "{flag} {value}: {}",
            ended.stderr
        );
    }
    let said = allow(&workspace, &["--yes", "--write", &at("w")]).stdout;
    assert!(said.contains("already"), "{said}");
    let said = allow(&workspace, &["--yes", "--host", "Example.com:443"]).stdout;
    assert!(
        said.contains("reach example.com:443") && said.contains("without effect"),
        "{said}"
    );
}
