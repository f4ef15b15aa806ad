//! `llmc init`: what it finds in a repository, what it makes of it, and what it leaves alone.

use crate::workspace;

/// A repository and the commands that its environment contract names.
const REPOSITORIES: [(&str, &[&str]); 8] = [
    (
        "//- Cargo.toml\n[package]\n//- src/main.rs\n",
        &["Build: `cargo build`", "Test: `cargo test`"],
    ),
    (
        "//- package.json\n{\"scripts\": {\"test\": \"vitest\", \"build\": \"tsc\"}}\n//- pnpm-lock.yaml\n",
        &["Test: `pnpm run test`", "Build: `pnpm run build`"],
    ),
    (
        "//- package.json\n{\"scripts\": {\"test\": \"echo \\\"Error: no test specified\\\" && exit 1\"}}\n",
        &["(fill in)"],
    ),
    (
        "//- pyproject.toml\n[tool.pytest.ini_options]\n//- uv.lock\n",
        &["Test: `run_pytest`"],
    ),
    (
        "//- go.mod\nmodule x\n//- main.go\n",
        &["Test: `go test ./...`"],
    ),
    (
        "//- Makefile\nall:\n\tcc x.c\ncheck: all\n//- x.c\n",
        &["Build: `make`", "Test: `make check`"],
    ),
    ("//- README.md\nhello\n", &["(fill in)"]),
    ("//- package.json\n{not json\n//- Makefile\n\u{0}\n", &[]),
];

#[test]
fn the_file_fits_the_repository_and_is_valid() {
    for (fixture, commands) in REPOSITORIES {
        let workspace = workspace(&format!("//- .git/HEAD\nref\n{fixture}"));
        // Short, and nothing beside it.
        let short = workspace.llmc(["init"]);
        assert_eq!(short.code, Some(0), "{}", short.stderr);
        let text = workspace.read("llmc.toml");
        assert!(text.lines().count() < 45, "{text}");
        assert!(!workspace.path("DOCS").exists(), "{fixture}");
        let check = workspace.llmc(["config", "check"]);
        assert!(check.stdout.contains("mode hybrid"), "{check:?}");

        let said = workspace.llmc(["init", "--full", "--force"]);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (Some(0), ""),
            "{fixture}"
        );
        let text = workspace.read("llmc.toml");
        assert!(text.lines().count() > 200, "{text}");
        for key in ["run_cmd_allowlist", "exec_timeout", "wait_s"] {
            assert!(!text.contains(&format!("\n{key} =")), "{key}: {text}");
        }
        // Reasons are given in both places.
        for part in ["nine tools", "any program may run"] {
            assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
            assert!(text.contains(part), "{part}: {text}");
        }
        let contract = workspace.read("DOCS/contracts.env.min.md");
        for command in commands {
            assert!(contract.contains(command), "{command}: {contract}");
        }
        let check = workspace.llmc(["config", "check"]);
        assert_eq!(check.code, Some(0), "{}", check.stderr);
        assert!(check.stdout.contains("mode hybrid"), "{}", check.stdout);
        // Both documents are there to be read by clients.
        let mut client = workspace.mcp([""; 0]);
        client.initialize("2025-11-25");
        let list = client.request("resources/list", serde_json::json!({}));
        let list = list.to_string();
        assert!(list.contains("llmc://docs/agents.core.min.md"), "{list}");
        assert!(list.contains("llmc://docs/contracts.env.min.md"), "{list}");
    }
}

#[test]
fn languages_are_detected_by_their_files() {
    let workspace = workspace(
        "//- .git/HEAD\nref\n//- a.rs\n//- b.rs\n//- sub/c.py\n//- node_modules/x/y.js\n//- .hidden/z.go\n",
    );
    let said = workspace.llmc(["init"]).stdout;
    assert!(said.contains("Rust (2), Python (1)"), "{said}");
    assert!(
        !said.contains("JavaScript") && !said.contains("Go ("),
        "{said}"
    );
}

#[test]
fn a_large_tree_and_links_in_circles_do_not_hold_it_up() {
    let workspace = workspace("//- .git/HEAD\nref\n//- a/b.rs\n");
    std::os::unix::fs::symlink("..", workspace.path("a/up")).unwrap();
    std::os::unix::fs::symlink("/", workspace.path("a/root")).unwrap();
    let said = workspace.llmc(["init"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("Rust (1)"), "{}", said.stdout);
}
