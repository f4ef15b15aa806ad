//! The id of a message that cannot be parsed, read from its raw bytes.
//!
//! A client waits for the answer to the id that it sent, so a request with a lone surrogate, a number out of range or more
//! bytes than a line may have is refused under that id. The reader follows the top-level members in constant memory and
//! never looks into nested values; where even their structure is broken, no id is trusted.

use serde_json::Value;

/// Longest key, id or method that is kept.
const MAX_TOKEN_BYTES: usize = 1024;

/// Whom to answer about a message that cannot be parsed: its id, `null` where none can be read, `None` for a notification
/// or a response.
pub(crate) fn reply_id(message: &[u8]) -> Option<Value> {
    let mut reader = HeadReader::default();
    reader.feed(message);
    reader.reply_id()
}

/// Reads the top-level members of a message that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    expects: Expects,
    /// Inside a string; whether the next byte is escaped.
    string: Option<bool>,
    /// Inside a number, `true`, `false` or `null`.
    in_word: bool,
    /// Containers around the current position, within a top-level value.
    depth: usize,
    /// The key, or the value, that is being read at the top level.
    token: Vec<u8>,
    key: String,
    id: Option<Value>,
    has_two_ids: bool,
    has_method: bool,
    has_outcome: bool,
}

/// What may follow at the top level.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Expects {
    #[default]
    Object,
    Key,
    Colon,
    Value,
    Comma,
    End,
    /// Not the structure of an object.
    Nothing,
}

impl HeadReader {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.expects == Expects::Nothing {
                return;
            }
            self.step(byte);
        }
    }

    /// See [`reply_id`].
    pub(crate) fn reply_id(self) -> Option<Value> {
        if self.expects == Expects::Nothing || self.has_two_ids {
            return Some(Value::Null);
        }
        let is_whole = self.expects == Expects::End;
        match (self.has_method, self.id) {
            (true, Some(id)) => Some(id),
            (true, None) if is_whole => None,
            (false, _) if self.has_outcome => None,
            _ => Some(Value::Null),
        }
    }

    fn step(&mut self, byte: u8) {
        if let Some(escaped) = self.string {
            self.keep(byte);
            self.string = match (escaped, byte) {
                (false, b'"') => None,
                (false, b'\\') => Some(true),
                _ => Some(false),
            };
            if self.string.is_none() && self.depth == 0 {
                self.end_token();
            }
            return;
        }
        if self.depth > 0 {
            match byte {
                b'"' => self.string = Some(false),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.end_token();
                    }
                }
                _ => {}
            }
            return;
        }
        let ends_word = byte.is_ascii_whitespace() || b",}".contains(&byte);
        if self.in_word {
            if !ends_word {
                return self.keep(byte);
            }
            self.in_word = false;
            self.end_token();
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        self.expects = match (self.expects, byte) {
            (Expects::Object, b'{') => Expects::Key,
            (Expects::Key | Expects::Value, b'"') => {
                self.string = Some(false);
                self.keep(byte);
                self.expects
            }
            (Expects::Colon, b':') => Expects::Value,
            (Expects::Value, b'{' | b'[') => {
                self.depth = 1;
                Expects::Value
            }
            (Expects::Value, _) if !ends_word => {
                self.in_word = true;
                self.keep(byte);
                Expects::Value
            }
            (Expects::Comma, b',') => Expects::Key,
            (Expects::Comma, b'}') => Expects::End,
            _ => Expects::Nothing,
        };
    }

    fn keep(&mut self, byte: u8) {
        // One byte too many makes the token unreadable, which is what it should be.
        if self.depth == 0 && self.token.len() <= MAX_TOKEN_BYTES {
            self.token.push(byte);
        }
    }

    fn end_token(&mut self) {
        let token = std::mem::take(&mut self.token);
        if self.expects == Expects::Key {
            self.key = serde_json::from_slice(&token).unwrap_or_default();
            self.expects = Expects::Colon;
            return;
        }
        self.expects = Expects::Comma;
        match self.key.as_str() {
            "id" => {
                let id = serde_json::from_slice(&token).ok();
                self.has_two_ids |= self.id.is_some();
                self.id = id
                    .filter(|id: &Value| id.is_string() || id.is_number())
                    .or(Some(Value::Null));
            }
            "method" => self.has_method = true,
            "result" | "error" => self.has_outcome = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_is_read_wherever_the_structure_allows() {
        let long = "x".repeat(MAX_TOKEN_BYTES);
        let long = format!(r#"{{"id":"{long}","method":"x","params":1e999}}"#);
        for (message, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"\ud800"}}"#,
                Some(json!(7)),
            ),
            (
                r#"{"params":[{"id":1,"a":["}]"]}, "\"id\":2"], "method":"x" , "id" : "a\"b" }"#,
                Some(json!("a\"b")),
            ),
            (r#"{"id":-3,"method":"x","params":1e999}"#, Some(json!(-3))),
            (r#"{"\u0069d":4,"method":"x","a":1e999}"#, Some(json!(4))),
            // Cut off: what was complete by then.
            (r#"{"id":5,"method":"x","params":{"a":"#, Some(json!(5))),
            (r#"{"method":"x","id":5"#, Some(Value::Null)),
            (r#"{"method":"x","params":{"id":5"#, Some(Value::Null)),
            // Neither a request nor trustworthy.
            (r#"{"method":"x","params":1e999}"#, None),
            (r#"{"id":1,"result":1e999}"#, None),
            (r#"{"id":1,"params":1e999}"#, Some(Value::Null)),
            (r#"{"id":1,"id":2,"method":"\ud800"}"#, Some(Value::Null)),
            (r#"{"id":null,"method":"\ud800"}"#, Some(Value::Null)),
            (r#"{"id":[1],"method":"\ud800"}"#, Some(Value::Null)),
            (r#"{"id":1e999,"method":"x"}"#, Some(Value::Null)),
            (r#"{"id":1,"method":"x"} {}"#, Some(Value::Null)),
            (r#"{"id":1,"method":"x" "y"}"#, Some(Value::Null)),
            (r#"[{"id":1,"method":"x"}]"#, Some(Value::Null)),
            (long.as_str(), Some(Value::Null)),
            ("", Some(Value::Null)),
        ] {
            assert_eq!(reply_id(message.as_bytes()), id, "{message}");
        }
        assert_eq!(
            reply_id(b"{\"id\":9,\"method\":\"\xff\"}"),
            Some(json!(9)),
            "not UTF-8"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            reply_id(&bytes);
        }

        /// Whatever the request and however it is cut into pieces, its id is found.
        #[test]
        fn a_whole_request_gives_its_id(id in any::<i64>(), key in ".{0,20}", value in ".{0,20}", cut in 0usize..40) {
            let message = json!({"jsonrpc": "2.0", "params": {key: [value]}, "id": id, "method": "m"}).to_string();
            let mut reader = HeadReader::default();
            let (first, second) = message.as_bytes().split_at(cut.min(message.len()));
            reader.feed(first);
            reader.feed(second);
            prop_assert_eq!(reader.reply_id(), Some(json!(id)));
        }
    }
}
