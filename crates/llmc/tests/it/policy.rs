//! What commands may be asked: the restricted profile, the operator's rules, and git over `te_git`.

use llmc_testkit::{McpClient, TestWorkspace, skip};
use serde_json::{Value, json};

use crate::{classic, workspace};

const RESTRICTED: &str = "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.exec]\nprofile = \"restricted\"\n\
    //- src/a.rs\nfn foo() {}\nfn bar() {}\n//- src/b.rs\nfn baz() {}\n//- .env\nfoo=KEY\n";

fn git(workspace: &TestWorkspace, args: &[&str]) {
    let mut command = workspace.command_of("git");
    let ended = command
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args)
        .output()
        .unwrap();
    assert!(
        ended.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn committed(fixture: &str) -> TestWorkspace {
    let workspace = workspace(fixture);
    git(&workspace, &["init", "-q", "-b", "main"]);
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-qm", "first"]);
    workspace
}

/// Whether this kernel allows the restricted profile at all.
fn confined(workspace: &TestWorkspace) -> bool {
    let ended = workspace.llmc(["tool", "health"]);
    if ended.code == Some(4) {
        assert!(
            ended.stderr.contains("cannot be confined"),
            "{}",
            ended.stderr
        );
        skip(&ended.stderr);
        return false;
    }
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    true
}

fn enveloped(client: &mut McpClient, args: Value) -> (llmc_envelope::te::TeHeader, String) {
    let text = client.text("te_git", json!({"args": args}));
    let parsed = llmc_envelope::te::parse(&text).unwrap_or_else(|| panic!("{text}"));
    (parsed.header, parsed.body.to_owned())
}

#[test]
fn refused_git_configuration_is_explained() {
    let workspace = committed("//- a.txt\none\n");
    let allowed = "mcp.tools.run_cmd_allowlist=[\"git\", \"ls\"]";
    let mut client = workspace.mcp(["--mode", "classic", "--set", allowed]);
    client.initialize("2025-11-25");
    let text = client.text("run_cmd", json!({"command": "git config user.name x"}));
    assert!(
        !text.contains("exit ") && !text.contains("# LLMC"),
        "{text}"
    );
    let text = client.text(
        "run_cmd",
        json!({"command": "git config core.pager ./evil"}),
    );
    let words = [
        "core.pager was not taken over",
        "in their own shell",
        "exit ",
    ];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    for command in [
        "git config --global user.name x",
        "git clone . /srv/elsewhere",
    ] {
        let code = client.code("run_cmd", json!({"command": command}));
        assert_eq!(code, "COMMAND_DENIED", "{command}");
    }
    // A program by another way to the same file, but not by another name.
    if std::fs::canonicalize("/bin").is_ok_and(|bin| bin == std::path::Path::new("/usr/bin")) {
        let text = client.text("run_cmd", json!({"argv": ["/bin/ls"]}));
        assert!(text.contains("a.txt"), "{text}");
        std::os::unix::fs::symlink("/usr/bin/ls", workspace.path("list")).unwrap();
        let list = workspace.path("list").display().to_string();
        client.assert_code("run_cmd", json!({"argv": [list]}), "COMMAND_DENIED");
    }
}

#[test]
fn a_restricted_server_reads_and_refuses_the_rest() {
    let workspace = committed(RESTRICTED);
    if !confined(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    assert_eq!(health["profile"], "restricted");
    let summary = health["confinement"].as_str().unwrap();
    assert!(summary.contains("network off"), "{summary}");
    for (command, expected) in [
        ("rg -n foo src", "src/a.rs:1:fn foo() {}"),
        ("git log --oneline -5", "first"),
        ("sed -n 1,5p src/a.rs", "fn foo() {}\nfn bar() {}\n"),
        ("find . -name '*.rs'", "./src/a.rs"),
        ("git status -s", ""),
        ("git show --stat", "src/a.rs"),
        ("git blame src/a.rs", "fn foo"),
    ] {
        let text = client.text("run_cmd", json!({"command": command}));
        assert!(
            text.contains(expected) && !text.contains("exit "),
            "{command}: {text}"
        );
    }
    for (command, word) in [
        ("rg --pre cat foo", "--pre"),
        ("rg -nz foo", "-z"),
        ("find . -exec id ';'", "-exec"),
        ("find . -delete", "-delete"),
        ("sed -n '1e id' src/a.rs", "scripts that print"),
        ("sed -i 1d src/a.rs", "-i"),
        ("tail -f src/a.rs", "-f"),
        ("git -c alias.x=!id x", "-c"),
        ("git grep -O foo", "-O"),
        ("git diff --output=x", "--output"),
        ("git commit -m x", "commit"),
        ("git log -p --ext-diff", "--ext-diff"),
        ("cat /etc/passwd", "/etc/passwd"),
        ("cat .env", ".env"),
        (
            "cat /proc/self/root/etc/passwd",
            "outside the allowed roots",
        ),
        ("bash -c id", "bash"),
        ("env -S id", "env"),
        ("ls --colo", "--colo"),
    ] {
        let document = client.error("run_cmd", json!({"command": command}));
        assert_eq!(
            document["meta"]["error_code"], "COMMAND_DENIED",
            "{command}: {document}"
        );
        assert!(
            document["error"].as_str().unwrap().contains(word),
            "{command}: {document}"
        );
        assert!(
            !document["meta"]["hint"].as_str().unwrap().is_empty(),
            "{document}"
        );
    }
    // Secrets by name are kept from tools and commands alike.
    let text = client.text("run_cmd", json!({"argv": ["grep", "-r", "KEY", "."]}));
    assert!(!text.contains("foo=KEY"), "{text}");
    client.assert_code("read_file", json!({"path": ".env"}), "INVALID_PATH");
    let text = client.text("te_git", json!({"args": ["show"]}));
    assert!(
        text.contains("fn foo") && !text.contains("foo=KEY"),
        "{text}"
    );
    assert!(!workspace.path("x").exists());
}

#[test]
fn a_list_or_policy_that_cannot_be_held_is_a_start_error() {
    let workspace = workspace(RESTRICTED);
    let start = |flags: &[&str]| {
        let mut args = vec!["mcp"];
        for flag in flags {
            args.extend(["--set", flag]);
        }
        let ended = workspace.llmc(args);
        (ended.code, ended.stderr)
    };
    let (code, said) = start(&["mcp.tools.run_cmd_allowlist=[\"rg\",\"bash\"]"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("bash starts other programs") && said.contains("run_cmd_allowlist"),
        "{said}"
    );
    let (code, said) = start(&["mcp.tools.run_cmd_allowlist=[\"rg\",\"jq\"]"]);
    assert!(
        code == Some(2) && said.contains("jq") && said.contains("policy_file"),
        "{said}"
    );
    let (code, said) = start(&["mcp.tools.allow_outbound_network=true"]);
    assert!(
        code == Some(2) && said.contains("allow_outbound_network"),
        "{said}"
    );
    workspace.write("policy.toml", "[[rule]]\nprogram = \"jq\"\nflags = { \"-r\" = \"nothing\" }\nmatch = [[\"jq\"]]\nno_match = [[\"jq\", \"-f\"]]\n");
    for profile in ["restricted", "unrestricted"] {
        let profile = format!("mcp.exec.profile='{profile}'");
        let (code, said) = start(&[&profile, "mcp.exec.policy_file='policy.toml'"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("policy.toml:3: -r:"), "{said}");
        let (code, said) = start(&[&profile, "mcp.exec.policy_file='gone.toml'"]);
        assert!(code == Some(2) && said.contains("gone.toml"), "{said}");
    }
}

#[test]
fn the_operators_rules_hold() {
    let workspace = workspace(RESTRICTED);
    if !confined(&workspace) {
        return;
    }
    workspace.write(
        "policy.toml",
        "[[rule]]\nprogram = \"basename\"\noperands = \"text\"\nflags = { \"-s\" = \"text\" }\n\
         match = [[\"basename\", \"-s\", \".rs\", \"a/b.rs\"]]\nno_match = [[\"basename\", \"-z\", \"x\"]]\n\
         [[rule]]\nprogram = \"git\"\nsubcommand = \"blame\"\ndeny = true\nmatch = [[\"git\", \"blame\", \"x\"]]\n",
    );
    let mut client = workspace.mcp([
        "--mode",
        "classic",
        "--set",
        "mcp.exec.policy_file='policy.toml'",
    ]);
    client.initialize("2025-11-25");
    let argv = json!({"argv": ["basename", "-s", ".rs", "a/b.rs"]});
    assert_eq!(client.text("run_cmd", argv), "b\n");
    client.assert_code(
        "run_cmd",
        json!({"argv": ["basename", "-z", "x"]}),
        "COMMAND_DENIED",
    );
    client.assert_code(
        "run_cmd",
        json!({"argv": ["git", "blame", "src/a.rs"]}),
        "COMMAND_DENIED",
    );
    let (failed, text) = client.call_tool("te_git", json!({"args": ["blame", "src/a.rs"]}));
    assert!(failed && text.contains("command_denied"), "{text}");
    // And the agent cannot rewrite them.
    client.assert_code(
        "linux_fs_write",
        json!({"path": "policy.toml", "content": ""}),
        "INVALID_PATH",
    );
}

#[test]
fn te_git_condenses_and_keeps_what_it_leaves_out() {
    let workspace = committed("//- a.txt\none\n");
    let lines: String = (0..20_000)
        .map(|n| format!("line {n} of a long file\n"))
        .collect();
    workspace.write("long.txt", &lines);
    workspace.write("bin", b"\xff\xfe\x00");
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-qm", "second"]);
    workspace.write("a.txt", "two\n");
    let mut client = classic(&workspace);

    let (_, body) = enveloped(&mut client, json!(["status", "-s"]));
    assert_eq!(body, " M a.txt\n");
    let (_, body) = enveloped(&mut client, json!(["git", "diff"]));
    assert!(body.contains("-one") && body.contains("+two"), "{body}");
    let (_, body) = enveloped(&mut client, json!(["log", "--oneline"]));
    assert!(body.contains("second") && body.contains("first"), "{body}");

    let (header, body) = enveloped(&mut client, json!(["show", "HEAD"]));
    assert!(
        header.truncated && llmc_tokens::count(&body) < 2100,
        "{body}"
    );
    assert!(
        body.contains("second") && body.contains("long.txt"),
        "{body}"
    );
    let handle = header.handle.unwrap().to_string();
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "limit": 8_000_000}),
    );
    let raw = workspace
        .command_of("git")
        .args(["show", "HEAD"])
        .output()
        .unwrap();
    assert_eq!(
        page["data"].as_str().unwrap(),
        String::from_utf8(raw.stdout).unwrap()
    );

    // A git that fails is data.
    let (header, body) = enveloped(&mut client, json!(["log", "no-such-branch"]));
    assert!(
        header.error.is_none() && body.contains("fatal: ") && body.ends_with("exit 128\n"),
        "{body}"
    );
    let (_, body) = enveloped(&mut client, json!(["diff", "--exit-code", "--stat"]));
    assert!(body.ends_with("exit 1\n"), "{body}");

    for (args, code) in [
        (json!([]), "invalid_args"),
        (json!(["log", "a\u{0}b"]), "invalid_args"),
        (json!(["push"]), "command_denied"),
        (json!(["-c", "core.pager=id", "log"]), "command_denied"),
        (
            json!(["diff", "--no-index", "a.txt", "/etc/passwd"]),
            "command_denied",
        ),
        (json!(["diff", "a.txt", "../outside.txt"]), "command_denied"),
        (json!(["log", "x".repeat(1 << 20)]), "command_denied"),
    ] {
        let (failed, text) = client.call_tool("te_git", json!({"args": args}));
        assert!(failed && text.contains(code), "{args}: {text}");
    }
}

#[test]
fn what_is_counted_in_a_part_of_a_large_diff_is_not_called_its_total() {
    let workspace = committed("//- a.txt\none\n");
    let lines = |word: &str| -> String {
        (0..200_000)
            .map(|n| format!("{word} line {n} of a file that changes as a whole\n"))
            .collect()
    };
    for (name, word) in [("a.txt", "old"), ("b.txt", "same")] {
        workspace.write(name, lines(word));
    }
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-qm", "second"]);
    for name in ["a.txt", "b.txt"] {
        workspace.write(name, lines("new"));
    }
    let mut client = classic(&workspace);
    let text = client.text("te_git", json!({"args": ["diff"]}));
    let answer = llmc_envelope::te::parse(&text).unwrap_or_else(|| panic!("{text}"));
    assert!(
        answer
            .body
            .starts_with("(git was ended after 16 MiB of output; this is of that much)\n"),
        "{}",
        answer.body
    );
    assert_eq!((answer.header.matches, answer.header.files), (None, None));
    let id = answer.header.handle.expect("a handle");
    assert!(
        text.contains(&format!(
            "te_handle handle={id} returns what was printed until then"
        )) && !text.contains("returns the rest"),
        "{text}"
    );

    let mut te = workspace.command_of(env!("CARGO_BIN_EXE_te"));
    let ended = te.args(["git", "diff"]).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    let answer =
        llmc_envelope::te::parse(text.trim_end_matches('\n')).unwrap_or_else(|| panic!("{text}"));
    let size = answer.header.size.expect("a size");
    assert!(size > 16 << 20, "{size}");
    assert!(
        answer.body.starts_with("(of the first 8,388,") && answer.body.contains("1 file, 1 hunk, "),
        "{}",
        answer.body
    );
    assert_eq!((answer.header.matches, answer.header.files), (None, None));
}

#[test]
fn te_git_runs_nothing_of_the_repositorys_whatever_the_profile() {
    let workspace = committed("//- a.txt\none\n");
    let mark = workspace.path("mark");
    workspace.write("evil.sh", format!(": > '{}'\n", mark.display()));
    let evil = format!("sh '{}'", workspace.path("evil.sh").display());
    for key in [
        "core.fsmonitor",
        "diff.external",
        "filter.x=y.clean",
        "diff.d.textconv",
    ] {
        git(&workspace, &["config", key, &evil]);
    }
    workspace.write(".gitattributes", "a.txt filter=x=y diff=d\n");
    workspace.write("a.txt", "two\n");
    let _ = workspace.command_of("git").arg("diff").output().unwrap();
    assert!(mark.exists(), "plain git starts it");
    std::fs::remove_file(&mark).unwrap();
    for flags in [
        &["--mode", "te"][..],
        &["--mode", "te", "--set", "mcp.exec.confinement='off'"],
        &["--mode", "te", "--set", "mcp.tools.enable_run_cmd=false"],
        &["--mode", "te", "--set", "mcp.tools.read_only=true"],
    ] {
        let mut client = workspace.mcp(flags);
        client.initialize("2025-11-25");
        for args in [
            json!(["status"]),
            json!(["diff"]),
            json!(["log", "-p"]),
            json!(["show"]),
            json!(["blame", "a.txt"]),
        ] {
            let (_, body) = enveloped(&mut client, args.clone());
            assert!(!body.contains("exit "), "{args}: {body}");
            assert!(!mark.exists(), "{flags:?} {args}");
        }
    }
    let mut client = workspace.mcp(["--mode", "te", "--set", "mcp.te.core_only=true"]);
    client.initialize("2025-11-25");
    let list = client.request("tools/list", json!({}));
    assert!(!list.to_string().contains("te_git"));
}

#[test]
fn te_git_takes_gits_words_in_the_shell() {
    let workspace = committed("//- a.txt\none\n");
    for words in [
        &["te_git", "log", "--oneline", "-5"][..],
        &["te_git", "--args", r#"{"args":["log","--oneline","-5"]}"#],
    ] {
        let ended = workspace.llmc([&["tool"], words].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains("first"), "{}", ended.stdout);
    }
    let ended = workspace.llmc(["tool", "te_git", "push", "--force"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}
