//! What an upstream asks the user of a call, in both generations of the protocol on both sides, and what passes through a call
//! while it goes on: progress and cancellation.

use llmc_testkit::{META_2026, McpClient, TestWorkspace};
use serde_json::{Value, json};

use super::{tool, with_stub};
use crate::code::{run, server};

const ASK: &str = "print(tools.stub.ask())";

/// A client whose user can be asked.
fn asking(workspace: &TestWorkspace) -> McpClient {
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "testkit", "version": "1"},
    });
    client.request("initialize", params);
    client.notify("notifications/initialized", json!({}));
    client
}

/// The next message of this kind.
fn next(client: &mut McpClient, method: &str) -> Value {
    loop {
        let message = client.next_message().expect("a message");
        if message["method"] == method {
            return message;
        }
    }
}

#[test]
fn a_question_of_a_server_reaches_the_user_of_the_call() {
    for modes in [&["extras"][..], &["extras", "stateless"]] {
        let workspace = with_stub(modes, &["--promote", "ask"]);
        let mut client = asking(&workspace);
        for (name, args) in [
            ("execute_code", json!({"code": ASK})),
            ("stub_ask", json!({})),
        ] {
            let call = client.send_call(name, args);
            let asked = next(&mut client, "elicitation/create");
            let params = &asked["params"];
            assert_eq!(params["message"], "The MCP server stub asks: Who are you?");
            let properties = &params["requestedSchema"]["properties"];
            assert_eq!(properties["greeting"]["default"], "Hello", "{asked}");
            let result = json!({"action": "accept", "content": {"name": "Jo"}});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
            client.send(answer.to_string().as_bytes());
            let (failed, text) = client.tool_answer(call);
            assert!(!failed && text.contains("accept"), "{name}: {text}");
            // What the user left out is the form's own value.
            assert!(
                text.contains("Jo") && text.contains("Hello"),
                "{name}: {text}"
            );
        }
        let call = client.send_call("stub_ask", json!({}));
        let asked = next(&mut client, "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
        client.send(answer.to_string().as_bytes());
        let (_, text) = client.tool_answer(call);
        assert!(text.contains("decline"), "{text}");
        assert_eq!(client.finish().code, Some(0));
    }
}

#[test]
fn a_client_without_requests_answers_by_calling_again() {
    let workspace = with_stub(&["extras"], &[]);
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    let mut meta: Value = serde_json::from_str(META_2026).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let mut params = json!({"name": "execute_code", "arguments": {"code": ASK}, "_meta": meta});
    let asked = client.request("tools/call", params.clone());
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let requests = result["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    let message = request["params"]["message"].as_str().unwrap();
    assert!(message.contains("Who are you?"), "{request}");
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"][key] = json!({"action": "accept", "content": {"name": "Jo"}});
    let answer = client.request("tools/call", params);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Jo") && text.contains("Hello"), "{answer}");
}

#[test]
fn a_user_who_cannot_be_asked_is_not() {
    // A server is not told that there is one, or its question is refused.
    let workspace = with_stub(&["extras"], &[]);
    let mut client = server(&workspace, &[]);
    assert!(run(&mut client, ASK).contains("not asked"));
    assert!(
        tool(&workspace, "stub.ask", &json!({}))
            .stdout
            .contains("not asked")
    );
    let workspace = with_stub(&["extras", "stateless"], &[]);
    let refused = tool(&workspace, "stub.ask", &json!({}));
    assert_eq!(refused.code, Some(9), "{}", refused.stdout);
    let why = "elicitation/create is not offered by this client";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // It goes on working.
    let shouted = tool(&workspace, "stub.shout", &json!({"text": "a"}));
    assert_eq!(shouted.stdout, "A \n", "{}", shouted.stderr);
}

#[test]
fn progress_and_cancellation_pass_through() {
    let workspace = with_stub(&["extras"], &["--promote", "steps"]);
    let mut client = server(&workspace, &[]);
    for params in [
        json!({"name": "stub_steps", "arguments": {}}),
        json!({"name": "execute_code", "arguments": {"code": "tools.stub.steps()"}}),
    ] {
        let mut params = params;
        params["_meta"] = json!({"progressToken": "p"});
        let call = client.send_request("tools/call", params);
        loop {
            let note = next(&mut client, "notifications/progress");
            assert_eq!(note["params"]["progressToken"], "p");
            let said = note["params"]["message"].as_str().unwrap();
            if said.contains("1 of 3, counting") {
                break;
            }
        }
        client.notify("notifications/cancelled", json!({"requestId": call}));
        let seen = run(&mut client, "tools.stub.cancelled()");
        assert!(seen.contains("notifications/cancelled"), "{seen}");
    }
    assert_eq!(client.finish().code, Some(0));
}
