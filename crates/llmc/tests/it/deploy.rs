//! What a container relies on, without one: state on a volume, a workspace that cannot be written, health, and a quiet
//! standard output.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use llmc_testkit::TestWorkspace;
use serde_json::json;

use crate::workspace;

/// As the image sets it: state on the volume, listening for others, a token from outside.
fn container(fixture: &str) -> TestWorkspace {
    let workspace = workspace(fixture);
    let volume = workspace.outside("../volume");
    fs::create_dir(&volume).unwrap();
    workspace
        .with_env("LLMC_MCP__DOCKER__DATA_VOLUME", volume.to_str().unwrap())
        .with_env("LLMC_MCP_TOKEN", "0123456789abcdef0123456789abcdef")
}

#[test]
fn telemetry_and_handles_on_the_volume_survive_a_restart() {
    let long: String = (0..5000).map(|line| format!("line {line}\n")).collect();
    let workspace = container(&format!("//- .git/HEAD\nref\n//- long.txt\n{long}"));
    let volume = workspace.outside("../volume");
    let start = || {
        let mut client = workspace.mcp(["--mode", "classic"]);
        client.initialize("2025-11-25");
        client
    };
    let mut client = start();
    let text = client.text("te_cat", json!({"path": "long.txt"}));
    let header: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    let handle = header["handle"].as_str().unwrap().to_owned();
    assert_eq!(client.finish().code, Some(0));

    // The container is gone and another one starts on the same volume; the workspace is mounted read-only by now.
    let stored = |name: &str| volume.join(name);
    assert!(stored("te_telemetry.db").is_file());
    assert!(
        !workspace.path(".llmc").exists(),
        "nothing in the workspace"
    );
    fs::set_permissions(workspace.root(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut client = start();
    let part = client.json(
        "linux_handle_read",
        json!({"handle": handle, "offset": 0, "limit": 20}),
    );
    assert_eq!(part["data"], "line 0\nline 1\nline 2");
    assert_eq!(client.finish().code, Some(0));
    let said = workspace.llmc(["te", "analyze"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(
        said.stdout.contains("te_cat"),
        "from before: {}",
        said.stdout
    );
    assert!(
        said.stdout.contains("linux_handle_read"),
        "and after: {}",
        said.stdout
    );
    fs::set_permissions(workspace.root(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unwanted_results_are_not_stored() {
    let workspace = container("//- .git/HEAD\nref\n//- a\nx\n")
        .with_env("LLMC_MCP__DOCKER__PERSIST_TELEMETRY", "false");
    let mut client = workspace.mcp(["--mode", "classic"]);
    client.initialize("2025-11-25");
    client.text("te_cat", json!({"path": "a"}));
    assert_eq!(client.finish().code, Some(0));
    assert!(!workspace.outside("../volume/te_telemetry.db").exists());
}

#[test]
fn a_server_for_others_needs_a_token() {
    let workspace = workspace("//- .git/HEAD\nref\n");
    let refused = workspace.llmc(["serve", "--host", "0.0.0.0", "--port", "0"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(
        refused.stderr.contains("LLMC_MCP_TOKEN"),
        "{}",
        refused.stderr
    );
}

#[test]
fn health_serves_container_probes() {
    let workspace = workspace("//- .git/HEAD\nref\n");
    let server = workspace.serve([""; 0]);
    let well = workspace.llmc(["health", "--url", &server.url]);
    assert_eq!((well.code, well.stderr.as_str()), (Some(0), ""), "{well:?}");
    assert!(well.stdout.contains("\"ok\":true"), "{}", well.stdout);
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    let by_port = workspace.llmc(["health", "--host", "0.0.0.0", "--port", &port]);
    assert_eq!(by_port.code, Some(0), "{by_port:?}");
    drop(server);
    let gone = workspace.llmc(["health", "--port", &port]);
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(1), ""), "{gone:?}");
    assert!(gone.stderr.contains("does not answer"), "{}", gone.stderr);
}

#[test]
fn the_files_for_teams_use_settings_that_exist() {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let settings = fs::read_to_string(top.join("docs/config.md")).unwrap();
    for name in ["docker-compose.team.yml", "kubernetes.team.yml"] {
        let text = fs::read_to_string(top.join("deploy").join(name)).unwrap();
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        let used: Vec<&str> = text
            .split(|c| !is_part(c))
            .filter(|word| word.starts_with("LLMC_MCP__"))
            .collect();
        assert!(used.contains(&"LLMC_MCP__STORE__URL"), "{name}: {used:?}");
        for variable in used {
            assert!(
                settings.contains(&format!("`{variable}`")),
                "{name}: {variable}"
            );
        }
    }
}
