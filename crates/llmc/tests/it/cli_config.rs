//! Configuration from the command line: layers, mistakes, `llmc init`, the workspace.

use llmc_testkit::{ProcessOutput, TestWorkspace};
use serde_json::json;

use crate::cli::{FIXTURE, fails, ok};
use crate::workspace;

fn shown<'a>(ended: &'a ProcessOutput, key: &str) -> (&'a str, &'a str) {
    let line = ok(ended)
        .lines()
        .find(|line| line.split(' ').next() == Some(key))
        .unwrap_or_else(|| panic!("no {key}"));
    let (value, source) = line.split_once('=').unwrap().1.split_once("  # ").unwrap();
    (value.trim(), source.trim())
}

#[test]
fn the_command_line_wins_over_environment_over_file_over_defaults() {
    let key = "mcp.tools.read_timeout";
    let workspace = workspace(FIXTURE);
    assert_eq!(
        shown(&workspace.llmc(["config", "show"]), key),
        ("10", "default")
    );
    workspace.write("llmc.toml", "[mcp.tools]\nread_timeout = 11\n");
    let show = workspace.llmc(["config", "show"]);
    let (value, source) = shown(&show, key);
    assert_eq!(value, "11");
    assert!(source.contains("llmc.toml"), "{source}");
    assert_eq!(
        shown(&show, "mcp.mode").0,
        "\"classic\"",
        "a file without a mode"
    );
    let workspace = workspace
        .with_env("LLMC_MCP__TOOLS__READ_TIMEOUT", "12")
        .with_env("LLMC_MCP_MODE", "te")
        .with_env("LLMC_MCP_TOKEN", "sekrit-token-value");
    let show = workspace.llmc(["config", "show"]);
    let (value, source) = shown(&show, key);
    assert_eq!(value, "12");
    assert!(source.contains("LLMC_MCP__TOOLS__READ_TIMEOUT"), "{source}");
    assert_eq!(shown(&show, "mcp.mode").0, "\"te\"");
    let show = workspace.llmc([
        "config",
        "show",
        "--set",
        "mcp.tools.read_timeout=13",
        "--mode",
        "hybrid",
    ]);
    let (value, source) = shown(&show, key);
    assert_eq!(value, "13");
    assert!(source.contains("--set"), "{source}");
    let (value, source) = shown(&show, "mcp.mode");
    assert_eq!(value, "\"hybrid\"");
    assert!(source.contains("--mode"), "{source}");
    assert!(!show.stdout.contains("sekrit"), "a secret is never shown");
    // Another file, by flag and by environment.
    workspace.write("other.toml", "[mcp.tools]\nidle_timeout = 77\n");
    let show = workspace.llmc(["--config", "other.toml", "config", "show"]);
    assert_eq!(shown(&show, "mcp.tools.idle_timeout").0, "77");
    let path = workspace.path("other.toml").display().to_string();
    let workspace = workspace.with_env("LLMC_CONFIG", &path);
    let show = workspace.llmc(["config", "show"]);
    assert_eq!(shown(&show, "mcp.tools.idle_timeout").0, "77");
}

#[test]
fn a_mistake_in_the_configuration_stops_every_verb() {
    // file, what the complaint must name
    for (file, names) in [
        (
            "[mcp.tools]\n\nread_onyl = true\n",
            &["llmc.toml:3", "read_onyl", "read_only"][..],
        ),
        ("[mcp]\nmdoe = \"te\"\n", &["llmc.toml:2", "mdoe", "mode"]),
        (
            "[mcp.tools]\nread_timeout = \"soon\"\n",
            &["llmc.toml:2", "read_timeout"],
        ),
        (
            "[mcp.tools]\nread_timeout = -1\n",
            &["llmc.toml:2", "read_timeout"],
        ),
        ("[mcp]\nmode = \"fast\"\n", &["llmc.toml:2", "hybrid"]),
        ("[mcp\n", &["llmc.toml:1"]),
        ("[mcp]\nconfig_version = \"v1\"\n", &["llmc.toml:2", "v0"]),
        (
            "[mcp.linux_ops.roots]\nenforce_roots = false\n",
            &["enforce_roots"],
        ),
        ("[rlm]\nmodle = \"x\"\n", &["llmc.toml:2", "model"]),
        (
            "[mcp.tools]\nread_only = true\nread_only = false\n",
            &["llmc.toml:3"],
        ),
    ] {
        let workspace = workspace(FIXTURE);
        workspace.write("llmc.toml", file);
        for verb in [
            &["mcp"][..],
            &["config", "show"],
            &["config", "check"],
            &["repo", "validate"],
            &["tools"],
            &["tool", "stat", "--path", "a.txt"],
        ] {
            let ended = workspace.llmc(verb);
            let said = fails(&ended, 2);
            for name in names {
                assert!(
                    said.contains(name),
                    "{file:?} {verb:?}: no {name} in {said}"
                );
            }
        }
    }
    // Tables of others are theirs.
    let workspace = workspace("//- llmc.toml\n[indexing]\nwhatever = true\n");
    ok(&workspace.llmc(["config", "check"]));
    for set in [
        "mcp.tools.read_onyl=true",
        "nonsense",
        "mcp.tools.read_only=maybe",
        "=1",
        "",
    ] {
        fails(&workspace.llmc(["config", "check", "--set", set]), 2);
    }
    let workspace = workspace.with_env("LLMC_MCP__TOOLS__READ_ONYL", "true");
    let ended = workspace.llmc(["config", "check"]);
    assert!(
        fails(&ended, 2).contains("LLMC_MCP__TOOLS__READ_ONYL"),
        "{ended:?}"
    );
}

#[test]
fn a_server_that_is_switched_off_does_not_start() {
    let workspace = workspace("//- llmc.toml\n[mcp]\nenabled = false\n");
    let ended = workspace.llmc(["mcp"]);
    assert!(fails(&ended, 2).contains("mcp.enabled"));
    assert!(!workspace.path(".llmc").exists(), "nothing was made");
}

#[test]
fn init_writes_a_configuration_that_is_valid() {
    for verb in [&["init"][..], &["config", "init"]] {
        let workspace = workspace("//- Cargo.toml\n[package]\n");
        let printed = workspace.llmc([verb, &["--print"]].concat());
        let text = ok(&printed).to_owned();
        assert_eq!(workspace.tree(), ["Cargo.toml"], "printing writes nothing");
        ok(&workspace.llmc(verb));
        assert_eq!(workspace.read("llmc.toml"), text);
        assert!(
            text.contains("mode = \"hybrid\"") && text.contains("cargo"),
            "fitted to the repository: {text}"
        );
        assert!(!workspace.path("DOCS").exists(), "nothing but the file");
        let check = workspace.llmc(["config", "check"]);
        assert!(ok(&check).contains("configuration is valid"), "{check:?}");
        assert!(check.stdout.contains("mode hybrid"), "{check:?}");
        // Existing files stay without --force.
        workspace.write("llmc.toml", "# mine\n");
        workspace.write("DOCS/agents.core.min.md", "mine\n");
        fails(&workspace.llmc(verb), 6);
        assert_eq!(workspace.read("llmc.toml"), "# mine\n");
        ok(&workspace.llmc([verb, &["--force"]].concat()));
        assert_eq!(workspace.read("llmc.toml"), text);
        assert!(!workspace.path("DOCS/contracts.env.min.md").exists());
        ok(&workspace.llmc([verb, &["--force", "--full"]].concat()));
        assert!(workspace.path("DOCS/contracts.env.min.md").is_file());
        assert_eq!(workspace.read("DOCS/agents.core.min.md"), "mine\n");
        let check = workspace.llmc(["repo", "validate"]);
        ok(&check);
        list_resources(&workspace);
    }
}

fn list_resources(workspace: &TestWorkspace) {
    let list = workspace.mcp([""; 0]).request("resources/list", json!({}));
    assert_eq!(
        list["result"]["resources"].as_array().unwrap().len(),
        3,
        "two sidecars and the stubs: {list}"
    );
}

#[test]
fn the_workspace_is_the_nearest_folder_with_git() {
    let workspace = workspace("//- .git/HEAD\nref\n//- deep/er/x.txt\nx\n//- a.txt\none\n");
    let mut command = workspace.command();
    command
        .current_dir(workspace.path("deep/er"))
        .args(["tool", "stat", "--path", "a.txt"]);
    ok(&llmc_testkit::TestProcess::start(command).finish());
    assert!(!workspace.path(".llmc").exists());
    let state = std::fs::metadata(workspace.path(".git/llmc")).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&state);
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn init_replaces_a_broken_configuration_where_it_is() {
    for by_variable in [false, true] {
        let mut workspace = workspace("//- .git/HEAD\nref\n//- sub/x\n//- llmc.toml\n[mcp\n");
        if by_variable {
            std::fs::remove_dir_all(workspace.path(".git")).unwrap();
            let root = workspace.root();
            workspace = workspace.with_env("LLMC_ROOT", root.to_str().unwrap());
        }
        let init = |flags: &[&str]| {
            let mut command = workspace.command();
            command
                .current_dir(workspace.path("sub"))
                .arg("init")
                .args(flags);
            llmc_testkit::TestProcess::start(command).finish()
        };
        fails(&init(&[]), 6);
        ok(&init(&["--force"]));
        assert!(workspace.read("llmc.toml").contains("mode = \"hybrid\""));
        assert!(!workspace.path("sub/llmc.toml").exists());
        ok(&workspace.llmc(["config", "check"]));
    }
}

#[test]
fn what_is_most_likely_not_meant_is_told() {
    let workspace = workspace("//- a.txt\none\n//- plain\nno program\n");
    let plain = format!("mcp.te.script_path={:?}", workspace.path("plain"));
    for (set, told) in [
        (
            "mcp.te.script_path=\"/nowhere/te\"",
            "mcp.te.script_path: /nowhere/te does not exist",
        ),
        (plain.as_str(), "is not executable"),
        (
            "mcp.tools.allowed_roots=[\".\", \"/nowhere\"]",
            "mcp.tools.allowed_roots: /nowhere is no directory",
        ),
        (
            "mcp.linux_ops.roots.allowed_roots=[\"/nowhere\"]",
            "mcp.linux_ops.roots.allowed_roots: /nowhere is no directory",
        ),
        (
            "mcp.rlm.allowed_model_prefixes=[\"openai\"]",
            "\"openai\" can match no model; write openai/",
        ),
        (
            "mcp.rlm.allowed_model_prefixes=[\"gemini/\"]",
            "models begin with ollama/, openai/, anthropic/",
        ),
        (
            "mcp.server.host=\"0.0.0.0\"",
            "add the names that clients use to mcp.server.allowed_hosts",
        ),
    ] {
        let checked = workspace.llmc(["config", "check", "--set", set]);
        assert_eq!(checked.code, Some(0), "{set}: {}", checked.stderr);
        let warning = checked
            .stdout
            .lines()
            .find(|line| line.starts_with("warning: "));
        let warning = warning.unwrap_or_else(|| panic!("{set}: {}", checked.stdout));
        assert!(warning.contains(told), "{set}: {warning}");
    }
    let silent = [
        "mcp.rlm.allowed_model_prefixes=[\"ollama/\", \"ollama_chat/a\"]",
        "mcp.server.allowed_hosts=[\"llmc.example.org\"]",
    ];
    let checked = workspace.llmc([
        "config", "check", "--host", "0.0.0.0", "--set", silent[0], "--set", silent[1],
    ]);
    assert!(!checked.stdout.contains("warning"), "{}", checked.stdout);
    let found = workspace.llmc(["doctor", "--set", "mcp.te.script_path=\"/nowhere/te\""]);
    assert!(
        found.stdout.contains("/nowhere/te does not exist"),
        "{}",
        found.stdout
    );
}

#[test]
fn a_server_for_other_machines_says_whom_it_refuses() {
    let workspace =
        workspace("//- a.txt\none\n").with_env("LLMC_MCP_TOKEN", "token-0123456789-abcdef");
    let mut server = workspace.serve(["--host", "0.0.0.0"]);
    let told = server.process().wait_for_stderr(|stderr| {
        let line = stderr.lines().find(|line| line.contains("allowed_hosts"));
        line.filter(|line| line.contains("403")).map(str::to_owned)
    });
    assert!(told.contains("0.0.0.0"), "{told}");
}

#[test]
fn a_state_directory_of_another_version_is_kept_beside() {
    let workspace = workspace(FIXTURE);
    let use_it = |expected: &str| {
        let mut client = crate::classic(&workspace);
        let append = json!({"path": "log.txt", "content": "line\n", "mode": "append"});
        client.text("linux_fs_write", append);
        let listed = client.text("history", json!({}));
        assert!(listed.contains(expected), "{listed}");
        client.finish()
    };
    use_it("log.txt");
    assert_eq!(workspace.llmc(["rag", "index"]).code, Some(0));
    // Telemetry, history and index as a program before the first release left them.
    for (store, version) in [("te_telemetry", 2), ("history", 2), ("index/catalog", 6)] {
        let file = workspace.path(format!(".llmc/{store}.db"));
        let file = rusqlite::Connection::open(file).unwrap();
        file.pragma_update(None, "user_version", version).unwrap();
    }
    let found = workspace.llmc(["doctor"]).stdout;
    for store in ["te_telemetry.db", "history.db"] {
        let told = format!(
            "{store} is of another version (2); a server keeps it beside and begins a new one"
        );
        assert!(found.contains(&told), "{found}");
    }
    let log = use_it("log.txt").stderr;
    assert!(log.contains("te_telemetry.db.version2-1"), "{log}");
    let found = workspace.llmc(["doctor"]).stdout;
    for kept in ["te_telemetry.db.version2-1", "history.db.version2-1"] {
        assert!(workspace.path(format!(".llmc/{kept}")).exists());
        let told = format!("{kept} was kept because it could not be used; delete it");
        assert!(found.contains(&told), "{found}");
    }
    let searched = workspace.llmc(["rag", "search", "alpha"]);
    assert_eq!(searched.code, Some(0), "{}", searched.stderr);
}
