//! `llmc install --all`, `llmc uninstall --all`, and the offer to retire other file servers.

use std::fs;

use llmc_testkit::{ProcessOutput, TestScreen, TestWorkspace};
use serde_json::{Value, json};

use crate::install::ok;
use crate::workspace;

const CLAUDE: &str = ".claude.json";
const GEMINI: &str = ".gemini/settings.json";

/// A user who has Claude Code, Gemini CLI and Codex, with Desktop Commander in the first and server-filesystem in the last.
fn user() -> TestWorkspace {
    let workspace = workspace("//- .git/HEAD\nref\n").with_env("PATH", "/nowhere");
    let claude = json!({
        "numStartups": 3,
        "mcpServers": {
            "desktop-commander": {"command": "npx", "args": ["-y", "@wonderwhy-er/desktop-commander@latest"]},
            "github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"]}
        }
    });
    write(&workspace, CLAUDE, &format!("{claude:#}\n"));
    write(&workspace, GEMINI, "{}\n");
    write(
        &workspace,
        ".codex/config.toml",
        "model = \"o\" # mine\n\n[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv\"]\n",
    );
    workspace
}

fn write(workspace: &TestWorkspace, name: &str, text: &str) {
    let path = workspace.base().join("home").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn read(workspace: &TestWorkspace, name: &str) -> String {
    fs::read_to_string(workspace.base().join("home").join(name)).unwrap()
}

fn servers(workspace: &TestWorkspace, name: &str) -> Vec<String> {
    let settings: Value = serde_json::from_str(&read(workspace, name)).unwrap();
    let servers = settings["mcpServers"].as_object();
    servers
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
}

fn backups(workspace: &TestWorkspace, name: &str) -> Vec<String> {
    let path = workspace.base().join("home").join(name);
    let start = format!("{}.bak-", path.file_name().unwrap().display());
    let around = path.parent().unwrap().read_dir().unwrap();
    let mut found: Vec<_> = around
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .display()
                .to_string()
                .starts_with(&start)
        })
        .collect();
    found.sort();
    found
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

fn run(workspace: &TestWorkspace, args: &[&str]) -> ProcessOutput {
    workspace.llmc(args)
}

#[test]
fn every_client_that_is_found_gets_the_entry_and_loses_it() {
    let workspace = user();
    let listed = run(&workspace, &["install"]);
    assert!(
        ok(&listed).contains("found on this machine: claude-code, codex, gemini\n"),
        "{listed:?}"
    );
    let shown = run(&workspace, &["install", "--all", "--dry-run"]);
    assert_eq!(
        ok(&shown).matches("+++ ").count(),
        5,
        "three entries, two offers: {shown:?}"
    );
    assert_eq!(servers(&workspace, GEMINI), [""; 0]);
    let asked = run(&workspace, &["install", "--all"]);
    assert_eq!(asked.code, Some(2), "no terminal: {asked:?}");

    let done = run(&workspace, &["install", "--all", "--yes"]);
    for client in ["Claude Code", "Codex CLI", "Gemini CLI"] {
        assert!(
            ok(&done).contains(&format!("installed in {client}")),
            "{done:?}"
        );
    }
    assert_eq!(servers(&workspace, GEMINI), ["llmc"]);
    // The others are told of and kept: --yes is about this server's entry.
    assert_eq!(
        servers(&workspace, CLAUDE),
        ["desktop-commander", "github", "llmc"]
    );
    assert!(
        done.stdout
            .contains("Desktop Commander is there, too (entry `desktop-commander`)")
    );
    assert!(
        done.stdout
            .contains("server-filesystem is there, too (entry `files`)")
    );
    assert!(
        done.stdout.contains("llmc install codex --yes --retire"),
        "{done:?}"
    );

    let gone = run(&workspace, &["uninstall", "--all", "--yes"]);
    assert_eq!(ok(&gone).matches("removed from").count(), 3, "{gone:?}");
    assert_eq!(servers(&workspace, GEMINI), [""; 0]);
    assert_eq!(servers(&workspace, CLAUDE), ["desktop-commander", "github"]);
    let again = run(&workspace, &["uninstall", "--all", "--yes"]);
    assert!(
        ok(&again).contains("not installed in any client"),
        "{again:?}"
    );
    assert_eq!(run(&workspace, &["uninstall"]).code, Some(2));
}

#[test]
fn other_file_servers_are_retired_on_request_with_a_backup() {
    let workspace = user();
    let before = read(&workspace, CLAUDE);
    let done = run(&workspace, &["install", "--all", "--yes", "--retire"]);
    assert!(
        ok(&done).contains("`desktop-commander` removed from Claude Code"),
        "{done:?}"
    );
    assert_eq!(servers(&workspace, CLAUDE), ["github", "llmc"]);
    assert!(read(&workspace, CLAUDE).contains("\"numStartups\": 3"));
    let kept = backups(&workspace, CLAUDE);
    assert_eq!(kept.len(), 2, "one for each edit");
    assert_eq!(kept[0], before);
    assert!(kept[1].contains("desktop-commander") && kept[1].contains("llmc"));
    let codex = read(&workspace, ".codex/config.toml");
    assert!(codex.starts_with("model = \"o\" # mine\n"), "{codex}");
    assert!(!codex.contains("server-filesystem"), "{codex}");
    // Nothing is left to offer.
    let again = run(&workspace, &["install", "claude-code", "--yes", "--retire"]);
    assert!(ok(&again).contains("already installed"), "{again:?}");
    assert!(!again.stdout.contains("is there, too"), "{again:?}");
}

#[test]
fn a_person_is_asked_about_each_other_server() {
    for (answers, left) in [
        (["y", "n"], &["desktop-commander", "github", "llmc"][..]),
        (["y", "y"], &["github", "llmc"]),
    ] {
        let workspace = user();
        let mut command = workspace.command();
        command.args(["install", "claude-code"]);
        let mut screen = TestScreen::start(command);
        for (question, answer) in ["write ", "remove `desktop-commander` from"]
            .iter()
            .zip(answers)
        {
            screen.wait_for_output(question);
            screen.press(&format!("{answer}\r"));
        }
        let (_, code, _) = screen.ended();
        assert_eq!(code, Some(0));
        assert_eq!(servers(&workspace, CLAUDE), left);
    }
}

#[test]
fn one_client_that_fails_does_not_stop_the_others() {
    let workspace = user();
    write(&workspace, CLAUDE, "{broken");
    let ended = run(&workspace, &["install", "--all", "--yes"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains(CLAUDE), "{ended:?}");
    assert_eq!(read(&workspace, CLAUDE), "{broken");
    assert_eq!(servers(&workspace, GEMINI), ["llmc"]);
    // An entry of that name that starts something else stays.
    write(
        &workspace,
        CLAUDE,
        "{\"mcpServers\": {\"llmc\": {\"command\": \"npx\"}}}",
    );
    let gone = run(&workspace, &["uninstall", "--all", "--yes"]);
    assert_eq!(ok(&gone).matches("removed from").count(), 2, "{gone:?}");
    assert_eq!(servers(&workspace, CLAUDE), ["llmc"]);
}

#[test]
fn a_machine_without_clients_is_told() {
    let workspace = workspace("//- .git/HEAD\nref\n").with_env("PATH", "/nowhere");
    let ended = run(&workspace, &["install", "--all", "--yes"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stderr.contains("no MCP client was found"),
        "{ended:?}"
    );
}
