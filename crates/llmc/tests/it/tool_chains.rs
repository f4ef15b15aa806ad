//! Tool chains from a clone without configuration, through `run_cmd command=…`: they work, the home directory stays as it
//! is, and credentials are out of sight.
//!
//! Programs that `scripts/test` does not declare (go, make, cmake) are tried by `scripts/test-tool-chains`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use llmc_testkit::{McpClient, TestWorkspace, skip};
use serde_json::json;

use crate::workspace;

/// A workspace whose programs are found as in the shell that runs this test.
fn project(fixture: &str) -> TestWorkspace {
    let path = std::env::var("PATH").unwrap();
    let home = std::env::var("HOME").unwrap_or_default();
    let rustup = std::env::var("RUSTUP_HOME").unwrap_or_else(|_| format!("{home}/.rustup"));
    let project = workspace(fixture)
        .with_env("PATH", &path)
        .with_env("RUSTUP_HOME", &rustup);
    for (file, text) in [
        (".cargo/registry/index", "index\n"),
        (".cache/pip/http/0", "cached\n"),
        (".npm/_cacache/0", "cached\n"),
        (".profile", "# mine\n"),
    ] {
        write_home(&project, file, text);
    }
    project
}

fn write_home(project: &TestWorkspace, file: &str, text: &str) {
    let file = project.base().join("home").join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// Every path of the home directory with its kind and content.
fn home_state(project: &TestWorkspace) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut next = vec![project.base().join("home")];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let status = entry.metadata().unwrap();
            if status.is_dir() {
                next.push(path.clone());
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            found.insert(path, (format!("{:?}", status.file_type()), bytes));
        }
    }
    found
}

fn hybrid(project: &TestWorkspace) -> McpClient {
    let mut client = project.mcp::<&str>([]);
    client.initialize("2025-11-25");
    client
}

/// Runs shell lines of which each must print its text, and checks that the home directory stays as it was.
fn runs(project: &TestWorkspace, lines: &[(&str, &str)]) {
    let before = home_state(project);
    let mut client = hybrid(project);
    for (line, wanted) in lines {
        let text = client.text("run_cmd", json!({"command": line, "timeout": 300}));
        assert!(text.contains(wanted), "{line}: {text}");
        assert!(!text.contains("\nexit "), "{line}: {text}");
    }
    client.finish();
    assert_eq!(
        home_state(project),
        before,
        "the home directory has changed"
    );
}

/// The packages of pytest; under CI they must be there.
fn pytest_packages() -> Option<PathBuf> {
    let site = std::env::var_os("LLMC_TEST_PYTHON_SITE").map(PathBuf::from);
    if site.is_none() {
        skip("pytest, which scripts/test provides in LLMC_TEST_PYTHON_SITE");
    }
    site
}

#[test]
fn cargo_tests_a_crate() {
    let project = project(
        "//- Cargo.toml\n[package]\nname = \"sum\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         //- src/lib.rs\n#[test]\nfn adds() {\n    assert_eq!(1 + 1, 2);\n}\n",
    );
    runs(
        &project,
        &[
            ("cargo test", "1 passed"),
            ("cargo test -q 2>&1 | grep -c 'test result: ok'", "2"),
            ("ls $HOME/.cargo && echo kept", "kept"),
        ],
    );
    assert!(project.path("target/debug").is_dir());
}

#[test]
fn npm_tests_a_package() {
    let project = project(
        "//- package.json\n{\"name\": \"p\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node test.js\"}}\n\
         //- test.js\nconsole.log('1 test passed')\n",
    );
    runs(
        &project,
        &[
            ("npm test", "1 test passed"),
            ("npm install --offline --no-audit --no-fund", "up to date"),
        ],
    );
}

#[test]
fn pytest_runs_in_the_projects_own_environment() {
    let Some(site) = pytest_packages() else {
        return;
    };
    let project = project(
        "//- test_local.py\nimport multiprocessing, os, socket, tempfile\n\
         def square(n):\n    return n * n\n\
         def test_multiprocessing():\n    with multiprocessing.Pool(2) as pool:\n        assert pool.map(square, [1, 2, 3]) == [1, 4, 9]\n\
         def test_sockets():\n    a, b = socket.socketpair()\n    a.sendall(b'x')\n    assert b.recv(1) == b'x'\n\
         \x20   path = os.path.join(tempfile.mkdtemp(), 's')\n    server = socket.socket(socket.AF_UNIX)\n    server.bind(path)\n    server.listen()\n\
         \x20   client = socket.socket(socket.AF_UNIX)\n    client.connect(path)\n\
         \x20   tcp = socket.socket()\n    tcp.bind(('127.0.0.1', 0))\n    tcp.listen()\n    socket.create_connection(tcp.getsockname(), 5).close()\n",
    );
    let made = project
        .command_of("python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .status();
    assert!(made.unwrap().success());
    let version = project
        .command_of(project.path(".venv/bin/python"))
        .args([
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ])
        .output()
        .unwrap();
    let packages = PathBuf::from(String::from_utf8(version.stdout).unwrap().trim());
    let copied = Command::new("cp")
        .arg("-rT")
        .arg(site)
        .arg(&packages)
        .status();
    assert!(copied.unwrap().success());
    let python = project.path(".venv/bin/python");
    let script = format!(
        "#!{}\nimport sys, pytest\nsys.exit(pytest.main())\n",
        python.display()
    );
    project.write(".venv/bin/pytest", script);
    executable(&project.path(".venv/bin/pytest"));
    runs(
        &project,
        &[
            ("python -m pytest", "2 passed"),
            ("pytest -q", "2 passed"),
            ("pytest -q 2>&1 | tail -1", "2 passed"),
            (
                "python -c 'import sys; print(sys.prefix, sys.executable)'",
                "/.venv",
            ),
        ],
    );
}

fn executable(path: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

#[test]
fn shell_lines_do_what_a_shell_does() {
    let project = project("//- a.txt\none\ntwo\n");
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"];
        let status = project.command_of("git").args(identity).args(args).status();
        assert!(status.unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "a.txt"]);
    git(&["commit", "-qm", "first commit"]);
    runs(
        &project,
        &[
            ("git log | head", "first commit"),
            (
                "git log --oneline | head -1 | cut -d' ' -f2-",
                "first commit",
            ),
            (
                "cat <<'END' | sort -r | head -1\n$HOME\nzebra\nEND",
                "zebra",
            ),
            ("for f in *.txt; do wc -l < $f; done", "2"),
            ("set -o pipefail; false | true; echo code $?", "code 1"),
        ],
    );
}

#[test]
#[ignore = "needs go, make and cmake: scripts/test-tool-chains"]
fn go_make_and_cmake_build_and_test() {
    let project = project(
        "//- go.mod\nmodule example.com/sum\n\ngo 1.18\n\
         //- sum_test.go\npackage sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif 1+1 != 2 {\n\t\tt.Fatal()\n\t}\n}\n\
         //- Makefile\nall:\n\t@echo made\n\
         //- CMakeLists.txt\ncmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(p main.c)\n\
         //- main.c\nint main(void) { return 0; }\n",
    );
    runs(
        &project,
        &[
            ("go test ./... && echo tested", "tested"),
            ("make", "made"),
            (
                "cmake -B build . >/dev/null && cmake --build build && ./build/p && echo built",
                "built",
            ),
        ],
    );
}

/// Where programs keep credentials.
const PLACES: [&str; 44] = [
    ".ssh/id_ed25519",
    ".ssh/config",
    ".gnupg/private-keys-v1.d/k.key",
    ".aws/credentials",
    ".aws/sso/cache/t.json",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".config/gcloud/access_tokens.db",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".gem/credentials",
    ".m2/settings-security.xml",
    ".config/composer/auth.json",
    ".config/containers/auth.json",
    ".cache/huggingface/token",
    ".kaggle/kaggle.json",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".pulumi/credentials.json",
    ".fly/config.yml",
    ".config/rclone/rclone.conf",
    ".s3cfg",
    ".boto",
    ".password-store/a.gpg",
    ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/p/logins.json",
    ".config/google-chrome/Default/Login Data",
    ".config/chromium/Default/Cookies",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".bash_history",
    ".thunderbird/p/logins.json",
    ".config/op/config",
];

#[test]
fn a_script_that_looks_for_credentials_finds_none() {
    const MARK: &str = "M4RK-0F-A-CREDENTIAL";
    let project = project("//- a.txt\n");
    for place in PLACES {
        write_home(&project, place, &format!("token = {MARK}\n"));
    }
    // Settings that tool chains need are shown without their secrets.
    write_home(
        &project,
        ".npmrc",
        &format!("//r.example/:_authToken={MARK}\nfund=false\n"),
    );
    write_home(
        &project,
        ".cargo/config.toml",
        &format!("[net]\nretry = 3\n[registries.r]\ntoken = \"{MARK}\"\n"),
    );
    write_home(
        &project,
        ".m2/settings.xml",
        &format!(
            "<settings><servers><server><password>{MARK}</password></server></servers></settings>\n"
        ),
    );
    let seek =
        format!("grep -rsF {MARK} $HOME; cat $HOME/.npmrc $HOME/.cargo/config.toml; echo done");
    let mut client = hybrid(&project);
    let text = client.text("run_cmd", json!({"command": seek}));
    assert!(!text.contains(MARK), "{text}");
    assert!(
        text.contains("fund=false") && text.contains("retry = 3"),
        "{text}"
    );
    // The same script finds them all where nothing is hidden.
    let mut open = project.mcp(["--set", "mcp.exec.hidden=[]"]);
    open.initialize("2025-11-25");
    let count = format!("grep -rslF {MARK} $HOME | wc -l");
    let text = open.text("run_cmd", json!({"command": count}));
    assert_eq!(text.trim(), (PLACES.len() + 3).to_string());
}

#[test]
fn settings_of_commands_are_read() {
    let project = workspace("//- a\n")
        .with_env("NAMED_TOKEN", "yes")
        .with_env("OTHER_TOKEN", "yes");
    write_home(&project, "mine/file", "seen\n");
    write_home(&project, ".cache/x", "");
    let home = project.base().join("home");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dial = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo yes || echo no");
    let outside = project.outside("").display().to_string();
    let write = format!("(echo x > {outside}/made) 2>/dev/null && echo yes || echo no");
    let extra = format!("mcp.exec.extra_write=[{outside:?}]");
    let see = "cat $HOME/mine/file 2>/dev/null || echo no";
    let cache = "(echo x > $HOME/.cache/y) 2>/dev/null && echo yes || echo no";
    for (setting, line, wanted, by_default) in [
        ("mcp.exec.network=false", dial.as_str(), "no", "yes"),
        (extra.as_str(), write.as_str(), "yes", "no"),
        ("mcp.exec.hidden=[\"~/mine\"]", see, "no", "seen"),
        (
            "mcp.exec.env=[\"NAMED_TOKEN\"]",
            "echo ${NAMED_TOKEN:-no}${OTHER_TOKEN:-}",
            "yes",
            "no",
        ),
        ("mcp.exec.caches=\"off\"", cache, "no", "yes"),
        ("mcp.exec.caches=\"shared\"", cache, "yes", "yes"),
    ] {
        for (flags, wanted) in [(vec![], by_default), (vec!["--set", setting], wanted)] {
            let mut client = project.mcp(flags);
            client.initialize("2025-11-25");
            let text = client.text("run_cmd", json!({"command": line}));
            // What is hidden is explained below it.
            assert_eq!(text.lines().next(), Some(wanted), "{setting}: {line}");
        }
        // Only shared caches reach the user's own.
        assert_eq!(
            home.join(".cache/y").exists(),
            setting.contains("shared"),
            "{setting}"
        );
    }
    assert!(project.outside("made").exists());
}

#[test]
fn commands_have_the_users_environment_without_secrets() {
    let large = "x".repeat(100_000);
    let project = workspace("//- a\n")
        .with_env("DATABASE_URL", "postgres://localhost/shop")
        .with_env("CACHE_URL", "redis://:pass-of-ann@localhost/0")
        .with_env("API_TOKEN", "s3cret")
        .with_env("HTTPS_PROXY", "http://proxy.example:3128")
        .with_env("MULTI", "one\ntwo")
        .with_env("LARGE", &large);
    let mut client = hybrid(&project);
    let line = "echo $DATABASE_URL $HTTPS_PROXY ${CACHE_URL-none} ${API_TOKEN-none} ${#LARGE}; echo \"$MULTI\"; env | grep -c ^LLMC";
    let text = client.text("run_cmd", json!({"command": line}));
    let wanted =
        "postgres://localhost/shop http://proxy.example:3128 none none 100000\none\ntwo\n0\n";
    assert!(text.starts_with(wanted), "{text}");
    let guide = client.text("init", json!({}));
    assert!(guide.contains("API_TOKEN, CACHE_URL"), "{guide}");
    assert!(
        !guide.contains("pass-of-ann") && !guide.contains("s3cret"),
        "{guide}"
    );
    let written = project.llmc(["init"]);
    assert!(
        written.stdout.contains("API_TOKEN, CACHE_URL"),
        "{}",
        written.stdout
    );
}

#[test]
fn bad_surroundings_cost_nothing() {
    // An environment that is broken, one that points outside and one that means harm.
    let project =
        workspace("//- .venv/pyvenv.cfg\nhome = /nowhere\n//- hello.py\nprint('hello')\n");
    std::fs::create_dir_all(project.path(".venv/bin")).unwrap();
    let python = project.path(".venv/bin/python");
    std::os::unix::fs::symlink("/no/such/python", &python).unwrap();
    std::os::unix::fs::symlink(&python, project.path(".venv/bin/python3")).unwrap();
    let mut client = hybrid(&project);
    let text = client.text("run_cmd", json!({"command": "python3 hello.py"}));
    assert_eq!(text, "hello\n");
    let text = client.text("run_cmd", json!({"argv": ["python", "hello.py"]}));
    assert_eq!(text, "hello\n");
    std::fs::remove_file(&python).unwrap();
    std::os::unix::fs::symlink(project.outside("canary"), &python).unwrap();
    let text = client.text("run_cmd", json!({"command": "python3 hello.py"}));
    assert_eq!(text, "hello\n");
    std::fs::remove_file(&python).unwrap();
    let harm = format!(
        "#!/bin/sh\necho x > {0}/planted; echo ran; exit 0\n",
        project.outside("").display()
    );
    project.write(".venv/bin/python", harm);
    executable(&python);
    let text = client.text("run_cmd", json!({"command": "python hello.py 2>/dev/null"}));
    assert_eq!(text, "ran\n");
    project.assert_outside_untouched();

    // A search path with folders that are missing, relative, closed and open to everyone.
    let open = project.base().join("open");
    let closed = project.base().join("closed");
    for (dir, mode) in [(&open, 0o777), (&closed, 0o000)] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("tool"), "#!/bin/sh\necho planted\n").unwrap();
        executable(&dir.join("tool"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir, mode).unwrap();
    }
    let path = format!(
        "/no/such/dir:relative/bin::{}:{}:/usr/bin:/bin",
        closed.display(),
        open.display()
    );
    let odd = workspace("//- relative/bin/tool\n#!/bin/sh\necho planted\n").with_env("PATH", &path);
    executable(&odd.path("relative/bin/tool"));
    let text = hybrid(&odd).text(
        "run_cmd",
        json!({"command": "echo works; tool 2>/dev/null; true"}),
    );
    assert_eq!(text, "works\n");

    // A home directory that is not there, empty or not writable.
    for home in ["", "/no/such/home", "/proc", "relative"] {
        let project = workspace("//- a\n").with_env("HOME", home);
        let text = hybrid(&project).text("run_cmd", json!({"command": "echo works"}));
        assert_eq!(text, "works\n", "HOME={home}");
    }
}

#[test]
fn bad_requests_cost_nothing() {
    let project = workspace("//- a\n");
    let mut client = hybrid(&project);
    let (failed, text) = client.call_tool("run_cmd", json!({"command": "echo a\u{0}b"}));
    assert!(
        failed && text.starts_with("BAD_ARGS: ") && text.contains("NUL"),
        "{text}"
    );
    // Ten megabytes of input arrive whole.
    let input = "0123456789abcde\n".repeat(10 << 16);
    let text = client.text("run_cmd", json!({"command": "wc -c", "input": input}));
    assert_eq!(text.trim(), (10 << 20).to_string());
    // What forks and detaches goes on with the command that the call no longer waits for, and ends with it.
    let line = "setsid sh -c 'echo $$ > detached; while :; do sleep 1; done' >/dev/null 2>&1 & while [ ! -s detached ]; do sleep 0.1; done; echo up; wait";
    let text = client.text("run_cmd", json!({"command": line, "timeout": 2}));
    assert!(
        text.starts_with("up\n") && text.contains("still running"),
        "{text}"
    );
    let id = text
        .split("proc=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    // Another session has no such process.
    let params = json!({
        "name": "run_cmd",
        "arguments": {"proc": id, "timeout": 1},
        "_meta": {"llmc/sessionId": "another"},
    });
    let answer = client.request("tools/call", params);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(answer.to_string().contains("NOT_FOUND"), "{answer}");
    client.finish();
    assert!(project.path("detached").exists());
}

#[test]
fn credentials_are_hidden_where_variables_say_that_they_are() {
    const MARK: &str = "M4RK-0F-A-CREDENTIAL";
    let mut project = project("//- a.txt\n");
    let home = project.base().join("home");
    let places = [
        ("CARGO_HOME", "rust", "rust/credentials.toml"),
        ("XDG_CONFIG_HOME", "settings", "settings/gh/hosts.yml"),
        ("KUBECONFIG", "cluster.yaml", "cluster.yaml"),
        ("GNUPGHOME", "keys", "keys/secring.gpg"),
        ("AWS_SHARED_CREDENTIALS_FILE", "cloud.ini", "cloud.ini"),
    ];
    for (variable, place, file) in places {
        write_home(&project, file, &format!("token = {MARK}\n"));
        let place = home.join(place).display().to_string();
        project = project.with_env(variable, &place);
    }
    // What else a file holds is shown.
    let settings = format!("//r.example/:_authToken={MARK}\nfund=false\n");
    write_home(&project, "npm", &settings);
    let npm = home.join("npm").display().to_string();
    let project = project
        .with_env("NPM_CONFIG_USERCONFIG", &npm)
        .with_env("PIP_CONFIG_FILE", "/dev/null");
    let seek = format!("grep -rsF {MARK} $HOME; cat $HOME/npm; echo x > /dev/null && echo done");
    let text = hybrid(&project).text("run_cmd", json!({"command": seek}));
    assert_eq!(text.trim(), "fund=false\ndone");
    let mut open = project.mcp(["--set", "mcp.exec.hidden=[]"]);
    open.initialize("2025-11-25");
    let count = format!("grep -rslF {MARK} $HOME | wc -l");
    let text = open.text("run_cmd", json!({"command": count}));
    assert_eq!(text.trim(), (places.len() + 1).to_string());
}

#[test]
fn the_servers_own_key_is_hidden_whatever_the_list_says() {
    let project = project("//- a.txt\n");
    write_home(&project, "server.pem", "M4RK-0F-A-KEY\n");
    let key = project.base().join("home/server.pem");
    let key = format!("mcp.server.tls_key={key:?}");
    let command = json!({"command": "cat $HOME/server.pem; echo done"});
    for (set, is_shown) in [(key.as_str(), false), ("mcp.server.port=0", true)] {
        let mut client = project.mcp(["--set", "mcp.exec.hidden=[]", "--set", set]);
        client.initialize("2025-11-25");
        let text = client.text("run_cmd", command.clone());
        assert!(text.trim().ends_with("done"), "{text}");
        assert_eq!(text.contains("M4RK"), is_shown, "{set}: {text}");
    }
}
