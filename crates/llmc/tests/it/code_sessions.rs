//! Sessions of `execute_code` keep their variables, and belong to who opened them.

use serde_json::json;

use crate::code::{EMBEDDED, FIXTURE, fails, server};
use crate::workspace;

#[test]
fn sessions_keep_variables_and_belong_to_a_principal() {
    let workspace = workspace(FIXTURE);
    let in_session = |code: &str, name: &str| json!({"code": code, "session": name});
    let mut client = server(&workspace, &[EMBEDDED]);
    let text = client.text(
        "execute_code",
        in_session("x = [1]\ndef f(n): return n + 1\nx", "s"),
    );
    assert_eq!(text, "[1]\n# LLMC: session s is new");
    assert_eq!(
        client.text("execute_code", in_session("x.append(f(1))\nx", "s")),
        "[1, 2]"
    );
    // Another name is another session, and none is none.
    assert!(
        client.error("execute_code", in_session("x", "t"))["error"]
            .as_str()
            .unwrap()
            .contains("NameError")
    );
    assert!(
        fails(&mut client, "x")["error"]
            .as_str()
            .unwrap()
            .contains("NameError")
    );
    // A script that fails keeps what it had done; one that is ended does not.
    client.error("execute_code", in_session("x.append(3)\n1 / 0", "s"));
    assert_eq!(
        client.text("execute_code", in_session("x", "s")),
        "[1, 2, 3]"
    );
    let (_, text) = client.call_tool(
        "execute_code",
        in_session("x.append(4)\ny = 'a' * 10**11", "s"),
    );
    assert!(
        text.ends_with("# LLMC: session s is as it was before this call"),
        "{text}"
    );
    assert_eq!(
        client.text("execute_code", in_session("x", "s")),
        "[1, 2, 3]"
    );
    // What is too large to be kept is not, and what was kept before still is.
    let text = client.text(
        "execute_code",
        in_session("big = 'a' * 10_000_000\nlen(big)", "s"),
    );
    assert!(text.contains("session not kept"), "{text}");
    assert_eq!(
        client.text("execute_code", in_session("x", "s")),
        "[1, 2, 3]"
    );
    client.finish();
    // They outlive the server, until they expire.
    let mut client = server(&workspace, &[EMBEDDED]);
    assert_eq!(client.text("execute_code", in_session("f(x[2])", "s")), "4");
    let dir = workspace.path(".llmc/code_sessions");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3600);
    for entry in std::fs::read_dir(&dir).unwrap() {
        let file = std::fs::File::options()
            .write(true)
            .open(entry.unwrap().path())
            .unwrap();
        file.set_modified(old).unwrap();
    }
    let error = client.error("execute_code", in_session("x", "s"));
    assert_eq!(error["meta"]["error_code"], "HANDLE_EXPIRED", "{error}");
    assert!(
        error["meta"]["hint"].as_str().unwrap().contains("new one"),
        "{error}"
    );
    let text = client.text("execute_code", in_session("x = 5", "s"));
    assert!(text.contains("session s is new"), "{text}");
    // A damaged one is no better than an expired one, and no worse.
    for entry in std::fs::read_dir(&dir).unwrap() {
        std::fs::write(entry.unwrap().path(), b"not a session").unwrap();
    }
    let error = client.error("execute_code", in_session("x", "s"));
    assert_eq!(error["meta"]["error_code"], "HANDLE_EXPIRED", "{error}");
    let text = client.text("execute_code", in_session("x = 6", "s"));
    assert!(text.contains("session s is new"), "{text}");
    // Two scripts in one session take turns.
    let ids: Vec<i64> = (0..8)
        .map(|_| client.send_call("execute_code", in_session("x += 1", "s")))
        .collect();
    for id in ids {
        let (failed, text) = client.tool_answer(id);
        assert!(!failed, "{text}");
    }
    assert_eq!(client.text("execute_code", in_session("x", "s")), "14");
}
