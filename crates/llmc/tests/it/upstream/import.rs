//! `llmc upstream import` from the settings of every client, and the hint at it.

use std::fs;

use llmc_testkit::TestWorkspace;
use serde_json::json;

use super::{STUB, tool};
use crate::workspace;

fn with_file(path: &str, text: &str) -> (TestWorkspace, std::path::PathBuf) {
    let workspace = workspace("//- a.txt\none\n");
    workspace.write("stub.py", STUB);
    let stub = workspace.path("stub.py").display().to_string();
    let file = workspace.base().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text.replace("THE_STUB", &stub)).unwrap();
    (workspace, file)
}

#[test]
fn continues_files_are_read_and_edited() {
    let text = "name: mine\nversion: 0.0.1\nschema: v1\nmcpServers:\n  # the first\n  - name: My Stub\n    command: python3\n    args:\n      - THE_STUB\n    env:\n      STUB_KEY: kept\n  - name: hub\n    command: python3\n    env:\n      KEY: ${{ secrets.KEY }}\nrules: []\n";
    let (workspace, file) = with_file("home/.continue/config.yaml", text);
    let further = workspace
        .base()
        .join("home/.continue/mcpServers/second.json");
    fs::create_dir_all(further.parent().unwrap()).unwrap();
    let stub = workspace.path("stub.py").display().to_string();
    let second = json!({"mcpServers": {"second": {"command": "python3", "args": [stub]}}});
    fs::write(&further, second.to_string()).unwrap();
    let moved = workspace.llmc(["upstream", "import", "continue", "--scope", "user", "--yes"]);
    assert_eq!(moved.code, Some(0), "{}{}", moved.stdout, moved.stderr);
    assert!(moved.stdout.contains("hub stays"), "{}", moved.stdout);
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        !after.contains("My Stub") && !after.contains("kept"),
        "{after}"
    );
    assert!(after.contains("  # the first\n  - name: hub\n"), "{after}");
    assert!(after.ends_with("rules: []\n"), "{after}");
    assert!(!fs::read_to_string(&further).unwrap().contains("second"));
    for name in ["my_stub", "second"] {
        let shouted = tool(&workspace, &format!("{name}.shout"), &json!({"text": "a"}));
        assert_eq!(shouted.stdout, "A \n", "{name}: {}", shouted.stderr);
    }
    let again = workspace.llmc(["upstream", "import", "continue", "--scope", "user", "--yes"]);
    assert_eq!(again.code, Some(3), "{}", again.stdout);
}

#[test]
fn every_client_can_be_imported_from() {
    let json = r#"{"KEY": {"one": {"command": "python3", "args": ["THE_STUB"]}}}"#;
    let toml = "[mcp_servers.one]\ncommand = \"python3\"\nargs = [\"THE_STUB\"]\n";
    let yaml = "mcpServers:\n  - name: one\n    command: python3\n    args: [\"THE_STUB\"]\n";
    for (client, path, text) in [
        (
            "claude-desktop",
            "home/.config/Claude/claude_desktop_config.json",
            json.replace("KEY", "mcpServers"),
        ),
        (
            "claude-code",
            "home/.claude.json",
            json.replace("KEY", "mcpServers"),
        ),
        ("codex", "home/.codex/config.toml", toml.to_owned()),
        (
            "cursor",
            "w/.cursor/mcp.json",
            json.replace("KEY", "mcpServers"),
        ),
        (
            "vscode",
            "w/.vscode/mcp.json",
            json.replace("KEY", "servers"),
        ),
        (
            "continue",
            "w/.continue/mcpServers/one.yaml",
            yaml.to_owned(),
        ),
        (
            "cline",
            "home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            json.replace("KEY", "mcpServers"),
        ),
        (
            "zed",
            "w/.zed/settings.json",
            json.replace("KEY", "context_servers"),
        ),
        (
            "gemini",
            "home/.gemini/settings.json",
            json.replace("KEY", "mcpServers"),
        ),
        (
            "windsurf",
            "home/.codeium/windsurf/mcp_config.json",
            json.replace("KEY", "mcpServers"),
        ),
    ] {
        let (workspace, file) = with_file(path, &text);
        let moved = workspace.llmc(["upstream", "import", client, "--yes"]);
        assert_eq!(
            moved.code,
            Some(0),
            "{client}: {}{}",
            moved.stdout,
            moved.stderr
        );
        assert!(
            moved.stdout.contains("accepted 14 tools"),
            "{client}: {}",
            moved.stdout
        );
        let after = fs::read_to_string(&file).unwrap();
        assert!(!after.contains("stub.py"), "{client}: {after}");
    }
}

#[test]
fn install_names_the_import_and_moves_nothing() {
    let text = r#"{"mcpServers": {"one": {"command": "python3", "args": ["THE_STUB"]}, "two": {"url": "https://example.com/mcp"}}}"#;
    let (workspace, file) = with_file("home/.claude.json", text);
    let installed = workspace.llmc(["install", "claude-code", "--yes"]);
    assert_eq!(installed.code, Some(0), "{}", installed.stderr);
    let hint = "2 other MCP servers are in these settings";
    assert!(installed.stdout.contains(hint), "{}", installed.stdout);
    assert!(
        installed
            .stdout
            .contains("`llmc upstream import claude-code`"),
        "{}",
        installed.stdout
    );
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("stub.py") && after.contains("example.com"),
        "{after}"
    );
    let (alone, _) = with_file("home/.claude.json", "{}");
    let installed = alone.llmc(["install", "claude-code", "--yes"]);
    assert!(
        !installed.stdout.contains("upstream import"),
        "{}",
        installed.stdout
    );
}
