//! Both generations of the protocol, and clients that speak neither.

use serde_json::{Value, json};

use crate::client::Client;

/// The `_meta` that 2026-07-28 wants on every request.
fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[tokio::test]
async fn requests_without_a_handshake_are_answered() {
    for (method, params, pointer, expected) in [
        ("tools/list", json!({}), "/tools/0/name", "echo"),
        (
            "tools/call",
            json!({"name": "echo", "arguments": {}}),
            "/content/0/text",
            "{}",
        ),
        (
            "resources/list",
            json!({}),
            "/resources/0/uri",
            "llmc://docs/a",
        ),
        (
            "resources/read",
            json!({"uri": "llmc://docs/a"}),
            "/contents/0/text",
            "# A",
        ),
    ] {
        let mut client = Client::start();
        client.request(json!(1), method, params).await;
        let (answers, _) = client.finish().await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["id"], 1);
        let result = &answers[0]["result"];
        assert_eq!(
            result.pointer(pointer).and_then(Value::as_str),
            Some(expected),
            "{method}: {result}"
        );
    }
}

#[tokio::test]
async fn one_liners_without_params_work() {
    let mut client = Client::start();
    client
        .bytes(br#"{"jsonrpc":"2.0","method":"tools/list","id":1}"#)
        .await;
    let (answers, _) = client.finish().await;
    assert_eq!(answers[0]["result"]["tools"][0]["name"], "echo");
}

#[tokio::test]
async fn ping_is_answered_before_and_after_a_handshake() {
    let mut client = Client::start();
    for id in 0..2 {
        client.request(json!(id), "ping", json!({})).await;
        assert_eq!(
            client.answer().await,
            json!({"jsonrpc": "2.0", "id": id, "result": {}})
        );
        client.is_alive().await;
    }
}

#[tokio::test]
async fn a_late_handshake_is_still_answered() {
    let mut client = Client::start();
    client.is_alive().await;
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "late", "version": "0"},
    });
    client
        .request(json!("llmc:handshake"), "initialize", params)
        .await;
    let answer = client.answer().await;
    assert_eq!(answer["id"], "llmc:handshake");
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    client.is_alive().await;
}

#[tokio::test]
async fn the_id_of_the_own_handshake_is_free_for_the_client() {
    let mut client = Client::start();
    client
        .request(json!("llmc:handshake"), "tools/list", json!({}))
        .await;
    let (answers, _) = client.finish().await;
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["id"], "llmc:handshake");
    assert!(answers[0]["result"]["tools"].is_array());
}

#[tokio::test]
async fn handshakes_of_both_older_revisions() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = Client::start();
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        });
        client.request(json!(0), "initialize", params).await;
        let result = client.answer().await["result"].take();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "probe");
        assert_eq!(result["instructions"], "Use echo.");
        client
            .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        client.is_alive().await;
    }
}

#[tokio::test]
async fn a_second_handshake_does_not_change_the_revision() {
    let mut client = Client::initialized("2025-06-18").await;
    let mut shake = async |id: u64, version: &str| {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        });
        client.request(json!(id), "initialize", params).await;
        client.answer().await
    };
    for version in ["2025-11-25", "2099-01-01"] {
        let error = shake(1, version).await["error"].take();
        assert_eq!(error["code"], -32600, "{error}");
        let message = "this connection uses revision 2025-06-18: open another one for 2025-11-25";
        assert_eq!(error["message"], message);
    }
    let again = shake(2, "2025-06-18").await;
    assert_eq!(again["result"]["protocolVersion"], "2025-06-18", "{again}");
    client.is_alive().await;
}

#[tokio::test]
async fn an_unknown_revision_gets_the_newest_with_a_handshake() {
    let mut client = Client::start();
    let params = json!({
        "protocolVersion": "2099-01-01",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    });
    client.request(json!(0), "initialize", params).await;
    let answer = client.answer().await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn the_stateless_revision_needs_no_handshake() {
    let mut client = Client::start();
    let discover = json!({"_meta": meta("2026-07-28")});
    client
        .request(json!("d"), "server/discover", discover)
        .await;
    let result = client.answer().await["result"].take();
    assert!(
        result["supportedVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28"))
    );

    client
        .request(json!(1), "tools/list", json!({"_meta": meta("2026-07-28")}))
        .await;
    let result = client.answer().await["result"].take();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["ttlMs"], 3_600_000);
    assert_eq!(result["cacheScope"], "public");

    let unknown = json!({"uri": "llmc://none", "_meta": meta("2026-07-28")});
    client.request(json!(2), "resources/read", unknown).await;
    let error = client.answer().await["error"].take();
    assert_eq!(error["code"], -32602);
    assert_eq!(error["data"]["uri"], "llmc://none");

    // Once a client is stateless, every request has to say so.
    client.request(json!(3), "tools/list", json!({})).await;
    assert_eq!(client.answer().await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_refused_stateless_request_leaves_every_door_open() {
    let mut client = Client::start();
    client
        .request(json!(1), "tools/list", json!({"_meta": meta("2099-01-01")}))
        .await;
    let error = client.answer().await["error"].take();
    assert_eq!(error["code"], -32022, "{error}");
    client
        .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    client.is_alive().await;
}

#[tokio::test]
async fn older_revisions_do_not_see_the_newer_fields() {
    let mut client = Client::initialized("2025-11-25").await;
    client.request(json!(1), "tools/list", json!({})).await;
    let result = client.answer().await["result"].take();
    for field in ["resultType", "ttlMs", "cacheScope"] {
        assert_eq!(result.get(field), None, "{result}");
    }
}

#[tokio::test]
async fn request_meta_reaches_the_handler() {
    let mut client = Client::start();
    let params = json!({"name": "agent", "_meta": {"llmc/agentId": "a-7"}});
    client.request(json!(1), "tools/call", params).await;
    let answer = client.answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], "a-7");
}

#[tokio::test]
async fn the_stateless_revision_has_lost_some_methods() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "no/such",
    ] {
        let mut client = Client::start();
        let params = json!({
            "level": "info",
            "uri": "llmc://docs/a",
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
            "_meta": meta("2026-07-28"),
        });
        client.request(json!(1), method, params).await;
        let answer = client.answer().await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        let bad = json!({"_meta": meta("2026-07-28")});
        client.request(json!(2), "tools/call", bad).await;
        assert_eq!(client.answer().await["error"]["code"], -32602);
    }
}
