//! An MCP client that knows just enough of the protocol to test a server with it.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::process::{ProcessOutput, TestProcess};

/// The `_meta` that a request of revision 2026-07-28 carries in place of a handshake.
pub const META_2026: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"testkit","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A client of one server process. Every line the server prints must be JSON-RPC.
#[derive(Debug)]
pub struct McpClient {
    process: TestProcess,
    next_id: i64,
    /// Answers that came before they were waited for.
    early: VecDeque<Value>,
}

impl McpClient {
    pub fn new(process: TestProcess) -> McpClient {
        McpClient {
            process,
            next_id: 1,
            early: VecDeque::new(),
        }
    }

    pub fn process(&mut self) -> &mut TestProcess {
        &mut self.process
    }

    /// Performs the handshake of a revision that has one; returns the server's `result`.
    pub fn initialize(&mut self, revision: &str) -> Value {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": "testkit", "version": "1"},
        });
        let answer = self.request("initialize", params);
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    /// Sends a request and returns its whole answer, `result` or `error`.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        self.answer(&id.into())
    }

    /// Sends a request and returns its id without waiting.
    pub fn send_request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(request.to_string().as_bytes());
        id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(note.to_string().as_bytes());
    }

    /// Sends one line as it is.
    pub fn send(&mut self, line: &[u8]) {
        let mut bytes = line.to_vec();
        bytes.push(b'\n');
        self.process.write(&bytes);
    }

    /// The next message from the server; `None` when its output has ended.
    pub fn next_message(&mut self) -> Option<Value> {
        self.early.pop_front().or_else(|| self.read_message())
    }

    fn read_message(&mut self) -> Option<Value> {
        let line = self.process.line()?;
        let message: Value = serde_json::from_slice(&line).unwrap_or_else(|error| {
            panic!(
                "not JSON on standard output ({error}): {}",
                String::from_utf8_lossy(&line)
            )
        });
        assert_eq!(message["jsonrpc"], "2.0", "not JSON-RPC: {message}");
        Some(message)
    }

    /// The answer to the request with this id, whatever comes before it.
    pub fn answer(&mut self, id: &Value) -> Value {
        if let Some(at) = self.early.iter().position(|message| message["id"] == *id) {
            return self.early.remove(at).expect("just found");
        }
        loop {
            let message = self
                .read_message()
                .unwrap_or_else(|| panic!("no answer to {id}; stderr:\n{}", self.process.stderr()));
            if message["id"] == *id && message.get("method").is_none() {
                return message;
            }
            self.early.push_back(message);
        }
    }

    /// Calls a tool; whether it failed, and its text.
    ///
    /// # Panics
    /// The answer is a protocol error instead of a result.
    pub fn call_tool(&mut self, name: &str, args: Value) -> (bool, String) {
        let id = self.send_call(name, args);
        self.tool_answer(id)
    }

    /// Sends a call without waiting for its answer.
    pub fn send_call(&mut self, name: &str, args: Value) -> i64 {
        self.send_request("tools/call", json!({"name": name, "arguments": args}))
    }

    /// The answer to a call that was sent before.
    pub fn tool_answer(&mut self, id: i64) -> (bool, String) {
        let answer = self.answer(&id.into());
        let result = answer
            .get("result")
            .unwrap_or_else(|| panic!("no result: {answer}"));
        let content = result["content"].as_array().expect("content is an array");
        assert_eq!(content.len(), 1, "one block of text: {result}");
        assert_eq!(content[0]["type"], "text", "one block of text: {result}");
        let failed = result.get("isError").is_some_and(|failed| *failed == true);
        let text = content[0]["text"].as_str().expect("text is a string");
        (failed, text.to_owned())
    }

    /// Calls a tool that must succeed; its text.
    pub fn text(&mut self, name: &str, args: Value) -> String {
        let (failed, text) = self.call_tool(name, args.clone());
        assert!(!failed, "{name} {args}: {text}");
        text
    }

    /// Calls a tool that must succeed; its text as JSON.
    pub fn json(&mut self, name: &str, args: Value) -> Value {
        let text = self.text(name, args);
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        assert!(
            document.get("error").is_none(),
            "a success with an error: {text}"
        );
        document
    }

    /// Calls a tool that must fail; its error document.
    pub fn error(&mut self, name: &str, args: Value) -> Value {
        let id = self.send_call(name, args.clone());
        let answer = self.answer(&id.into());
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert_eq!(result["isError"], true, "{name} {args} succeeded: {answer}");
        let mut document = error_document(text);
        if failed_envelope(text).is_none() {
            for (key, value) in result["_meta"].as_object().into_iter().flatten() {
                document["meta"][key] = value.clone();
            }
        }
        document
    }

    /// Calls a tool that must fail; its error code.
    pub fn code(&mut self, name: &str, args: Value) -> String {
        let document = self.error(name, args);
        document["meta"]["error_code"]
            .as_str()
            .unwrap_or_else(|| panic!("no code: {document}"))
            .to_owned()
    }

    /// Calls a tool that must fail with this code.
    pub fn assert_code(&mut self, name: &str, args: Value, code: &str) {
        assert_eq!(self.code(name, args.clone()), code, "{name} {args}");
    }

    /// Calls a tool whose text must begin so.
    pub fn assert_starts(&mut self, name: &str, args: Value, start: &str) {
        let text = self.text(name, args.clone());
        assert!(text.starts_with(start), "{name} {args}: {text}");
    }

    /// Calls a tool whose text must hold this.
    pub fn assert_contains(&mut self, name: &str, args: Value, part: &str) {
        let text = self.text(name, args.clone());
        assert!(text.contains(part), "{name} {args}: {text}");
    }

    /// Closes the server's input and waits for its end.
    pub fn finish(self) -> ProcessOutput {
        self.process.finish()
    }

    /// Waits for its end with its input left open.
    pub fn wait(self) -> ProcessOutput {
        self.process.wait()
    }
}

/// The text of a failed call taken apart: `{"error": message, "meta": {error_code, hint, …}}`. An error of the Tool
/// Envelope is given the code of the other tools, so that one test serves both.
pub fn error_document(text: &str) -> Value {
    match failed_envelope(text) {
        Some(envelope) => as_document(&envelope),
        None => plain_error(text),
    }
}

/// The Tool Envelope around an error, if this is one.
fn failed_envelope(text: &str) -> Option<llmc_envelope::te::TeText> {
    llmc_envelope::te::parse(text).filter(|envelope| envelope.header.error.is_some())
}

/// `CODE: message` or, of a script, its output and `error: message`; then `hint: …`, `key: value` and blocks under
/// their labels.
fn plain_error(text: &str) -> Value {
    let mut document = json!({"error": "", "meta": {}});
    let mut block = "output";
    let mut begun = false;
    for (number, line) in text.lines().enumerate() {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let is_code = |key: &str| {
            llmc_tools::ROWS
                .iter()
                .any(|row| [row.linux, row.rlm, Some(row.http_code)].contains(&Some(key)))
        };
        if number == 0 && is_code(key) {
            document["meta"]["error_code"] = key.into();
            document["error"] = value.into();
            begun = true;
        } else if !begun && key == "error" {
            document["error"] = value.into();
            begun = true;
            block = "source";
        } else if begun && ["nearest lines:", "stdout:", "stderr:"].contains(&line) {
            block = line
                .trim_end_matches(':')
                .split(' ')
                .next()
                .unwrap_or_default();
        } else if begun
            && !value.is_empty()
            && ["output", "source"].contains(&block)
            && !line.starts_with(' ')
        {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            document["meta"][key.replace(' ', "_")] = value;
        } else {
            let so_far = document["meta"][block].as_str().unwrap_or_default();
            document["meta"][block] = format!("{so_far}{line}\n").into();
        }
    }
    assert!(begun, "no error in this text: {text}");
    document
}

/// The code of an error document as most tools have it, also when recursive analysis uses its own code.
pub fn common_code(document: &Value) -> &str {
    let code = document["meta"]["error_code"].as_str().unwrap_or_default();
    let row = llmc_tools::ROWS.iter().find(|row| row.rlm == Some(code));
    row.and_then(|row| row.linux).unwrap_or(code)
}

fn as_document(envelope: &llmc_envelope::te::TeText) -> Value {
    let code = envelope.header.error.as_deref().unwrap_or_default();
    let row = llmc_tools::ROWS.iter().find(|row| row.te == Some(code));
    let row = row.unwrap_or_else(|| panic!("no such code: {code}"));
    json!({
        "error": envelope.body,
        "meta": {
            "error_code": row.linux,
            "retryable": row.retryable,
            "hint": envelope.header.hint,
            // An envelope has none; the nil id stands in for it.
            "correlation_id": "00000000-0000-0000-0000-000000000000",
        },
    })
}
