//! Calls of scripts that the user is asked about first, in both generations of the protocol.

use llmc_testkit::{META_2026, McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::workspace;

const SCRIPT: &str = "
print('before')
try:
    tools.linux_fs_write(path='made.txt', content='x')
    print('written')
except PermissionError as error:
    print(error)
";

fn client(workspace: &TestWorkspace) -> McpClient {
    workspace.mcp(["--set", r#"mcp.code_execution.ask=["linux_fs_write"]"#])
}

/// The handshake of a client that can ask its user.
fn initialize(client: &mut McpClient, capabilities: Value) {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": capabilities,
        "clientInfo": {"name": "testkit", "version": "1"},
    });
    client.request("initialize", params);
    client.notify("notifications/initialized", json!({}));
}

#[test]
fn a_client_is_asked_while_the_call_goes_on() {
    for (action, printed, made) in [
        ("accept", "before\nwritten", true),
        (
            "decline",
            "before\nCOMMAND_DENIED: linux_fs_write: the user declined",
            false,
        ),
    ] {
        let workspace = workspace("");
        let mut client = client(&workspace);
        initialize(&mut client, json!({"elicitation": {}}));
        let call = client.send_call("execute_code", json!({"code": SCRIPT}));
        let asked = loop {
            let message = client.next_message().expect("a question");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        let question = asked["params"]["message"].as_str().unwrap();
        assert!(
            question.contains(r#"linux_fs_write(path="made.txt", content="x")"#),
            "{question}"
        );
        assert!(!workspace.path("made.txt").exists());
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": action}});
        client.send(answer.to_string().as_bytes());
        let (failed, text) = client.tool_answer(call);
        assert!(!failed && text.starts_with(printed), "{text}");
        assert_eq!(workspace.path("made.txt").exists(), made);
    }
}

#[test]
fn a_client_that_cannot_be_asked_is_refused_by_name_of_the_setting() {
    let workspace = workspace("");
    let mut client = client(&workspace);
    initialize(&mut client, json!({}));
    let text = client.text("execute_code", json!({"code": SCRIPT}));
    assert!(
        text.contains("cannot be asked") && text.contains("mcp.code_execution.ask"),
        "{text}"
    );
    assert!(!workspace.path("made.txt").exists());
    // The setting is about scripts; a client asks about direct calls itself.
    client.text(
        "linux_fs_write",
        json!({"path": "made.txt", "content": "x"}),
    );
}

/// A call of the revision without a handshake.
fn call_2026(client: &mut McpClient, code: &str, resumed: Value) -> Value {
    let mut meta: Value = serde_json::from_str(META_2026).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let mut params = json!({"name": "execute_code", "arguments": {"code": code}, "_meta": meta});
    for (key, value) in resumed.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    client.request("tools/call", params)
}

#[test]
fn a_paused_call_is_resumed_once_by_its_signed_state() {
    let workspace = workspace("");
    let mut client = client(&workspace);
    let asked = call_2026(&mut client, SCRIPT, Value::Null);
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let request = &result["inputRequests"]["approval"];
    assert_eq!(request["method"], "elicitation/create");
    let state = result["requestState"].as_str().unwrap().to_owned();
    let resumed = |state: &str, action: &str| json!({"requestState": state, "inputResponses": {"approval": {"action": action}}});
    // Neither a changed state nor other code resumes it.
    let mut forged = state.clone();
    let last = forged.pop().unwrap();
    forged.push(if last == 'A' { 'B' } else { 'A' });
    for (code, state) in [(SCRIPT, forged.as_str()), ("print(1)", &state)] {
        let refused = call_2026(&mut client, code, resumed(state, "accept"));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(!workspace.path("made.txt").exists());
    }
    let done = call_2026(&mut client, SCRIPT, resumed(&state, "accept"));
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("before\nwritten"), "{done}");
    assert_eq!(workspace.read("made.txt"), "x");
    let again = call_2026(&mut client, SCRIPT, resumed(&state, "accept"));
    assert_eq!(again["error"]["code"], -32602, "{again}");
}

#[test]
fn python_s_own_file_functions_are_asked_about_too() {
    let workspace = workspace("");
    let python = r#"mcp.code_execution.sandbox="python""#;
    let ask = r#"mcp.code_execution.ask=["linux_fs_write", "run_cmd"]"#;
    let mut client = workspace.mcp(["--set", ask, "--set", python]);
    initialize(&mut client, json!({}));
    for code in [
        "with open('made.txt', 'w') as file:\n    file.write('x')",
        "import pathlib\npathlib.Path('made.txt').write_text('x')",
        "import subprocess\nsubprocess.run(['touch', 'made.txt'], check=True)",
    ] {
        let error = client.error("execute_code", json!({"code": code}));
        let message = error["error"].as_str().unwrap();
        assert!(message.contains("cannot be asked"), "{code}: {error}");
        assert!(!workspace.path("made.txt").exists(), "{code}");
    }
}
