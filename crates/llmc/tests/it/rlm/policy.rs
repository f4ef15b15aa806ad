//! What may be read, and where it may go.

use std::os::unix::fs::symlink;

use llmc_testkit::{ModelAction, ModelServer, TestWorkspace};
use serde_json::json;

use super::{client, code_of, fail, haystack, with_models};
use crate::workspace;

fn final_server() -> ModelServer {
    ModelServer::start(|_| ModelAction::code("FINAL('found')"))
}

/// A workspace with this configuration alone.
fn configured(toml: &str) -> TestWorkspace {
    let workspace = workspace("");
    workspace.write("llmc.toml", format!("[mcp]\nmode = \"classic\"\n{toml}"));
    workspace.write("hay.txt", haystack());
    workspace
}

/// Fails with `egress_denied`, and no model was asked.
fn assert_denied(server: &ModelServer, toml: &str, args: serde_json::Value, word: &str) {
    let workspace = configured(toml).with_env("OPENAI_API_KEY", "sk-canary");
    let error = fail(&workspace, args);
    assert_eq!(code_of(&error), "egress_denied", "{toml}: {error}");
    let hint = error["meta"]["hint"].as_str().unwrap_or_default();
    let text = format!("{} {hint}", error["error"]);
    assert!(text.contains(word), "{toml}: {text}");
    assert!(!text.contains("sk-canary"));
    assert_eq!(server.requests().len(), 0, "{toml}");
}

#[test]
fn models_and_hosts_outside_the_policy_are_never_reached() {
    let server = final_server();
    let url = server.url();
    let none = json!({});
    let lead = "[rlm]\nmodel = \"ollama/lead\"\n";
    assert_denied(&server, "", none.clone(), "rlm.model");
    let cloud = format!("[rlm]\nmodel = \"openai/gpt-5\"\nbase_url = \"{url}\"\n");
    assert_denied(&server, &cloud, none.clone(), "allowed: ollama/");
    let empty = format!("{lead}base_url = \"{url}\"\n[mcp.rlm]\nallowed_model_prefixes = []\n");
    assert_denied(&server, &empty, none.clone(), "allows none");
    let other = format!(
        "{lead}base_url = \"{url}\"\n[mcp.rlm]\nallowed_model_prefixes = [\"ollama/other\", \"ollama\", \"o\"]\n"
    );
    assert_denied(&server, &other, none.clone(), "allowed_model_prefixes");
    // The model for parts is held to the same rules, before anything is sent to the other.
    let sub = format!("{lead}sub_model = \"openai/gpt-5\"\nbase_url = \"{url}\"\n");
    assert_denied(&server, &sub, none.clone(), "openai/gpt-5");
    for host in [
        "http://192.0.2.1:11434",
        "http://models.example",
        "https://api.openai.com/v1",
        "http://localhost.evil.example",
        "http://0.0.0.0:11434",
        "http://[::ffff:192.0.2.1]:80",
    ] {
        let elsewhere = format!("{lead}base_url = \"{host}\"\n");
        assert_denied(&server, &elsewhere, none.clone(), "restricted");
    }
    let sneaky = format!("{lead}base_url = \"http://127.0.0.1@192.0.2.1/\"\n");
    assert_denied(&server, &sneaky, none, "address");
}

#[test]
fn callers_choose_the_model_only_where_the_operator_lets_them() {
    let server = final_server();
    let base = format!(
        "[rlm]\nmodel = \"ollama/lead\"\nbase_url = \"{}\"\ndirect_tokens = 0\n",
        server.url()
    );
    for (policy, model, word) in [
        ("", "ollama/other", "restricted"),
        ("", "ollama/../openai/x", "restricted"),
        (
            "allow_model_override = true\n",
            "ollama/other",
            "restricted",
        ),
        (
            "profile = \"unrestricted\"\n",
            "ollama/other",
            "allow_model_override",
        ),
        (
            "profile = \"unrestricted\"\nallow_model_override = true\n",
            "ollama/../openai/x",
            "not a model",
        ),
        (
            "profile = \"unrestricted\"\nallow_model_override = true\n",
            "gpt-5",
            "provider/model",
        ),
        (
            "profile = \"unrestricted\"\nallow_model_override = true\n",
            "nobody/x",
            "provider",
        ),
        (
            "profile = \"unrestricted\"\nallow_model_override = true\nallowed_model_prefixes = [\"ollama/a\"]\n",
            "ollama/b",
            "allowed: ollama/a",
        ),
    ] {
        let toml = format!("{base}[mcp.rlm]\n{policy}");
        assert_denied(&server, &toml, json!({"model": model}), word);
    }
    let toml =
        format!("{base}[mcp.rlm]\nprofile = \"unrestricted\"\nallow_model_override = true\n");
    let workspace = configured(&toml);
    let args = json!({"task": "?", "path": "hay.txt", "model": "ollama_chat/other"});
    let answer = client(&workspace).json("rlm_query", args);
    assert_eq!(answer["meta"]["model_used"], "ollama/other");
    assert_eq!(server.requests()[0].model(), "other");
}

#[test]
fn another_providers_model_does_not_go_to_this_ones_address() {
    let server = final_server();
    // Anthropic's usual address must not be reached by the name server's answer alone: what matters is
    // that the configured address, which is Ollama's, is not asked.
    let toml = format!(
        "[rlm]\nmodel = \"ollama/lead\"\nsub_model = \"anthropic/claude-haiku-4-5\"\nbase_url = \"{}\"\n\
         [mcp.rlm]\nallowed_model_prefixes = [\"ollama/\", \"anthropic/\"]\n",
        server.url()
    );
    assert_denied(&server, &toml, json!({}), "api.anthropic.com");
}

#[test]
fn the_unrestricted_profile_asks_any_provider_with_its_key() {
    let server = final_server();
    for (model, header, value) in [
        ("openai/gpt-5", "authorization", "Bearer sk-1"),
        ("anthropic/claude-sonnet-4-5", "x-api-key", "sk-2"),
    ] {
        let toml = format!(
            "[rlm]\nmodel = \"{model}\"\nbase_url = \"{}/v9\"\ndirect_tokens = 0\n[mcp.rlm]\nprofile = \"unrestricted\"\n",
            server.url()
        );
        let workspace = configured(&toml)
            .with_env("OPENAI_API_KEY", "sk-1")
            .with_env("ANTHROPIC_API_KEY", "sk-2");
        let mut client = workspace.mcp(["--log-level", "trace"]);
        client.initialize("2025-11-25");
        let answer = client.json("rlm_query", json!({"task": "?", "path": "hay.txt"}));
        assert!(
            answer["data"]["budget_summary"]["total_cost_usd"]
                .as_f64()
                .unwrap()
                > 0.0
        );
        let asked = server.requests().pop().unwrap();
        assert_eq!(asked.headers[header], value);
        assert!(asked.path.starts_with("/v9/"));
        let log = client.finish().stderr;
        assert!(!log.contains("sk-1") && !log.contains("sk-2"), "{log}");
        assert!(!workspace.read(".llmc/rlm_audit.csv").contains("sk-"));
    }
}

#[test]
fn redirects_lead_nowhere() {
    let elsewhere = final_server();
    let to = format!("{}/api/chat", elsewhere.url());
    let server = ModelServer::start(move |_| ModelAction::Redirect(to.clone()));
    let workspace = with_models(&server, "");
    let error = fail(&workspace, json!({}));
    assert_eq!(code_of(&error), "provider_error");
    assert_eq!(
        (server.requests().len(), elsewhere.requests().len()),
        (1, 0)
    );
}

#[test]
fn secrets_by_name_are_neither_read_nor_sent_nor_written() {
    const SECRET: &str = "canary-secret-value";
    let server = final_server();
    let workspace = with_models(&server, "");
    let names = [
        ".env",
        "prod/.ENV",
        "server.pem",
        "CA.PEM",
        "id_rsa",
        "id_rsa.bak",
        "aws-credentials.json",
        "Credential.txt",
        "my_token_list.txt",
        "TOKENS",
    ];
    for name in names {
        workspace.write(name, SECRET);
    }
    symlink(workspace.path(".env"), workspace.path("notes.txt")).unwrap();
    symlink("notes.txt", workspace.path("chain.txt")).unwrap();
    symlink("hay.txt", workspace.path("api_token")).unwrap();
    std::fs::create_dir(workspace.path("sub")).unwrap();
    let mut client = workspace.mcp(["--log-level", "trace"]);
    client.initialize("2025-11-25");
    let mut answers = String::new();
    let asked = [
        "notes.txt",
        "chain.txt",
        "api_token",
        "./.env",
        "sub/../.env",
        "prod//.ENV",
        "missing.pem",
    ];
    for path in names.into_iter().chain(asked) {
        let error = client.error("rlm_query", json!({"task": "?", "path": path}));
        assert_eq!(code_of(&error), "path_denied", "{path}: {error}");
        assert!(error["meta"]["hint"].is_string(), "{path}: {error}");
        answers.push_str(&error.to_string());
    }
    let log = client.finish().stderr;
    let trace = workspace.llmc([
        "rlm",
        "query",
        "?",
        "--file",
        ".env",
        "--trace",
        "run.jsonl",
    ]);
    assert_eq!(trace.code, Some(4), "{}", trace.stderr);
    let written = workspace.read("run.jsonl") + &workspace.read(".llmc/rlm_audit.csv");
    for place in [&log, &answers, &written, &trace.stderr, &trace.stdout] {
        assert!(!place.contains(SECRET), "{place}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn paths_go_through_the_same_door_as_everywhere() {
    let server = final_server();
    let workspace = with_models(&server, "");
    symlink(workspace.outside("canary"), workspace.path("out")).unwrap();
    symlink(workspace.outside(""), workspace.path("outdir")).unwrap();
    let mut client = client(&workspace);
    let absolute = workspace.path("hay.txt");
    let absolute = absolute.to_str().unwrap();
    for path in [
        "../outside/canary",
        "out",
        "outdir/canary",
        absolute,
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/environ",
        ".llmc/token",
        "\0",
    ] {
        let code = client.code("rlm_query", json!({"task": "?", "path": path}));
        assert_eq!(code, "path_denied", "{path:?}");
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        workspace.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    client.assert_code(
        "rlm_query",
        json!({"task": "?", "path": "pipe"}),
        "path_denied",
    );
    let _socket = std::os::unix::net::UnixListener::bind(workspace.path("socket")).unwrap();
    for (link, target) in [
        ("zero", "/dev/zero"),
        ("loop", "loop"),
        ("fd", "/proc/self/fd/0"),
    ] {
        symlink(target, workspace.path(link)).unwrap();
    }
    for path in ["socket", "zero", "loop", "fd"] {
        let code = client.code("rlm_query", json!({"task": "?", "path": path}));
        assert_eq!(code, "path_denied", "{path:?}");
    }
    assert_eq!(server.requests().len(), 0);
    // Where the whole disk is a root, devices and the kernel's files are still none of its files.
    let open = "[mcp.rlm]\nallow_absolute_paths = true\n[mcp.tools]\nallowed_roots = [\"/\"]\n";
    let workspace = with_models(&server, open);
    let mut everywhere = super::client(&workspace);
    for path in [
        "/dev/zero",
        "/dev/tty",
        "/proc/self/environ",
        "/sys/kernel/uevent_seqnum",
    ] {
        let code = everywhere.code("rlm_query", json!({"task": "?", "path": path}));
        assert_eq!(code, "path_denied", "{path:?}");
    }
    assert_eq!(server.requests().len(), 0);
    let workspace = with_models(&server, "[mcp.rlm]\nallow_path = false\n");
    assert_eq!(code_of(&fail(&workspace, json!({}))), "path_denied");
    let workspace = with_models(&server, "[mcp.rlm]\nallow_absolute_paths = true\n");
    let absolute = workspace.path("hay.txt");
    let args = json!({"task": "?", "path": absolute.to_str().unwrap()});
    assert_eq!(
        super::client(&workspace).json("rlm_query", args)["meta"]["source"]["path"],
        "hay.txt"
    );
    let outside = json!({"task": "?", "path": workspace.outside("canary").to_str().unwrap()});
    assert_eq!(
        super::client(&workspace).code("rlm_query", outside),
        "path_denied"
    );
}
