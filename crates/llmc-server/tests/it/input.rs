//! What the server makes of every kind of line.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::Client;

/// Sends one line to a fresh server and to an initialized one; both must give the same error and live on.
async fn refused(line: &[u8]) -> Value {
    let mut answers = Vec::new();
    for mut client in [Client::start(), Client::initialized("2025-11-25").await] {
        client.bytes(line).await;
        client.bytes(b"\n").await;
        let mut answer = client.answer().await;
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(
            answer.as_object().unwrap().contains_key("id"),
            "the id is written even when it is null: {answer}"
        );
        client.is_alive().await;
        answer["error"]["id"] = answer["id"].take();
        answers.push(answer["error"].take());
    }
    assert_eq!(answers[0], answers[1]);
    answers.remove(0)
}

#[tokio::test]
async fn broken_lines_are_answered_with_a_null_id() {
    for line in [
        &b"{"[..],
        b"not json",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}{}",
        b"\x00",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
    ] {
        let error = refused(line).await;
        assert_eq!(error["code"], -32700, "{error}");
        assert_eq!(error["id"], Value::Null);
    }
}

#[tokio::test]
async fn broken_lines_are_answered_with_their_id_where_it_can_be_read() {
    for (line, id, reason) in [
        (
            &br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800"}}"#[..],
            json!(1),
            "hex escape",
        ),
        (
            br#"{"jsonrpc":"2.0","method":"tools/call","params":{"n":1e999},"id":"k"}"#,
            json!("k"),
            "number out of range",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"pi\xffng\"}",
            json!(3),
            "not valid UTF-8",
        ),
        (
            br#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"#,
            json!(4),
            "EOF",
        ),
    ] {
        let error = refused(line).await;
        assert_eq!(error["code"], -32700, "{error}");
        assert_eq!(error["id"], id, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(reason),
            "{error}"
        );
    }
}

#[tokio::test]
async fn json_that_is_no_request_is_answered_with_its_own_id() {
    for (line, id) in [
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":"x","method":5}"#, json!("x")),
        (r#"{"id":8,"method":"ping"}"#, json!(8)),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(1.5)),
        (
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}"#,
            json!(u64::MAX),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            Value::Null,
        ),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null),
        ("7", Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":2}}}"#,
            json!(3),
        ),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","name":"fail"}}"#,
            json!(4),
        ),
    ] {
        let error = refused(line.as_bytes()).await;
        assert_eq!(error["code"], -32600, "{line}: {error}");
        assert_eq!(error["id"], id, "{line}");
    }
}

#[tokio::test]
async fn depth_128_is_refused_with_its_own_id() {
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"echo","arguments":{{"x":{}{}}}}},"id":11}}"#,
        "[".repeat(128),
        "]".repeat(128)
    );
    let error = refused(line.as_bytes()).await;
    assert_eq!(
        error,
        json!({"code": -32600, "message": "nested deeper than 64 levels", "id": 11})
    );
}

#[tokio::test]
async fn a_line_above_64_mib_is_refused_with_its_id_and_the_limit() {
    for (head, tail) in [(r#""id":1,"#, ""), ("", r#","id":1"#)] {
        let line = format!(
            r#"{{"jsonrpc":"2.0",{head}"method":"tools/call","params":{{"name":"{}"}}{tail}}}"#,
            "x".repeat(64 << 20)
        );
        let mut client = Client::start();
        client.line(&line).await;
        let message = "line longer than 67108864 bytes: send less at once";
        let error = json!({"code": -32700, "message": message});
        assert_eq!(
            client.answer().await,
            json!({"jsonrpc": "2.0", "id": 1, "error": error})
        );
        client.is_alive().await;
    }
}

#[tokio::test]
async fn a_line_just_below_64_mib_is_served() {
    let mut client = Client::start();
    let payload = "x".repeat((64 << 20) - 200);
    let params = json!({"name": "echo", "_meta": {"p": payload}});
    client.request(json!(1), "tools/call", params).await;
    assert_eq!(client.answer().await["id"], 1);
    client.is_alive().await;
}

#[tokio::test]
async fn a_7_mb_line_is_served() {
    let mut client = Client::start();
    let payload = "x".repeat(7_000_000);
    let arguments = json!({"name": "echo", "arguments": {"p": payload}});
    // The answer is as large, so both directions must move at once.
    client.request(json!(1), "tools/call", arguments).await;
    let answer = client.answer().await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 7_000_000 + r#"{"p":""}"#.len());
}

#[tokio::test]
async fn bad_params_and_unknown_methods_have_different_codes() {
    for (method, params, code) in [
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({"name": 5}), -32602),
        (
            "tools/call",
            json!({"name": "echo", "arguments": []}),
            -32602,
        ),
        ("resources/read", json!({}), -32602),
        ("resources/read", json!({"uri": "llmc://none"}), -32002),
        ("initialize", json!({}), -32602),
        ("no/such", json!({}), -32601),
        ("tools/call", json!({"name": "nope"}), -32602),
    ] {
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let error = refused(line.to_string().as_bytes()).await;
        assert_eq!(error["code"], code, "{method} {params}: {error}");
        assert_eq!(error["id"], 1);
    }
}

#[tokio::test]
async fn a_tool_name_cannot_forge_an_answer() {
    let name = r#"x","a":"b"#;
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}});
    let error = refused(line.to_string().as_bytes()).await;
    assert_eq!(
        error,
        json!({"code": -32602, "message": format!("Unknown tool: {name}"), "id": 1})
    );
}

#[tokio::test]
async fn strays_are_dropped() {
    for mut client in [Client::start(), Client::initialized("2025-06-18").await] {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"no/such"}"#,
            r#"{"jsonrpc":"2.0","method":"x","params":{"a":1,"a":2}}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{"a":1,"a":1}}"#,
        ] {
            client.line(line).await;
        }
        client.is_alive().await;
    }
}

#[tokio::test]
async fn blank_lines_crlf_and_a_byte_order_mark_are_tolerated() {
    let mut client = Client::start();
    client
        .bytes(
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\r\n\r\n\n  \n",
        )
        .await;
    assert_eq!(client.answer().await["id"], 1);
    client.is_alive().await;
}

#[tokio::test]
async fn an_id_in_use_is_refused_and_the_first_call_goes_on() {
    let mut client = Client::start();
    client.call(1, "gate").await;
    client.call(1, "echo").await;
    let refusal = client.answer().await;
    assert_eq!(refusal["error"]["code"], -32600, "{refusal}");
    client.probe.gate.add_permits(1);
    let answer = client.answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], "opened");
    client.call(1, "echo").await;
    assert_eq!(client.answer().await["id"], 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Requests put together from plausible parts: whatever they mean, the server answers the next one.
    #[test]
    fn no_sequence_of_lines_ends_the_server(lines in proptest::collection::vec(line(), 0..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut client = Client::start();
            for line in &lines {
                client.line(line).await;
            }
            client.call(424_242, "echo").await;
            while client.answer().await["id"] != 424_242 {}
        });
    }
}

/// A line that is more or less a message.
fn line() -> impl Strategy<Value = String> {
    let id = prop_oneof![
        Just("1"),
        Just("2"),
        Just("\"a\""),
        Just("null"),
        Just("1.0"),
        Just("[]"),
        Just("-7"),
    ];
    let method = prop_oneof![
        Just("\"ping\""),
        Just("\"tools/list\""),
        Just("\"tools/call\""),
        Just("\"initialize\""),
        Just("\"server/discover\""),
        Just("\"notifications/initialized\""),
        Just("\"notifications/cancelled\""),
        Just("\"subscriptions/listen\""),
        Just("\"x\""),
        Just("7"),
    ];
    let params = prop_oneof![
        Just("{}"),
        Just("[]"),
        Just("null"),
        Just("7"),
        Just(r#"{"name":"echo"}"#),
        Just(r#"{"requestId":1}"#),
        Just(r#"{"a":1,"a":2}"#),
        Just(
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}"#
        ),
        Just(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}"#),
    ];
    let message = (
        proptest::option::of(id),
        proptest::option::of(method),
        proptest::option::of(params),
    )
        .prop_map(|(id, method, params)| {
            let mut line = String::from(r#"{"jsonrpc":"2.0""#);
            for (key, value) in [("id", id), ("method", method), ("params", params)] {
                if let Some(value) = value {
                    line.push_str(&format!(r#","{key}":{value}"#));
                }
            }
            line + "}"
        });
    prop_oneof![8 => message, 1 => "[^\n\r]{0,40}", 1 => r#"[{}\[\]":,a-z0-9]{0,40}"#]
}
