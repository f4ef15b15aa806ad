//! A strict first look at a JSON-RPC message.
//!
//! `serde_json` silently keeps the last of two duplicate keys, so two readers of one message can see
//! two different requests. [`inspect`] walks a message once, without building it, and refuses duplicate keys
//! at any level, nesting deeper than [`MAX_DEPTH`] and whatever is not a JSON-RPC 2.0 message. What it lets
//! through is safe to hand to any parser.
//!
//! A refusal says whom to answer: the request's own id where one can be read, also of a message that is not valid JSON;
//! `null` where none can; and not sent when the message is a notification or a response, which JSON-RPC forbids answering.

use std::{borrow::Cow, collections::HashSet, fmt};

use rmcp::model::ErrorCode;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value, json};

use crate::head;

/// Containers may be nested this deep, the message itself included.
pub const MAX_DEPTH: usize = 64;

/// Longest part of a hostile key that an error message repeats.
const MAX_KEY_CHARS: usize = 40;

/// What a well-formed message is.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageShape {
    /// Has a method and an id, and wants an answer.
    Request {
        /// The id as it was written: a string or a number.
        id: Value,
        /// What is asked for.
        method: String,
    },
    /// Has a method and no id.
    Notification,
    /// Has a result or an error: the answer to something we asked.
    Response,
}

/// Why a message is not passed on.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRefusal {
    /// The JSON-RPC error code.
    pub code: ErrorCode,
    /// What is wrong, for the person who wrote the client.
    pub message: Cow<'static, str>,
    /// The id to answer, `null` where it cannot be known; `None` for a notification or a response.
    pub reply_id: Option<Value>,
}

impl MessageRefusal {
    /// A refusal of a message whose id cannot be known.
    pub fn anonymous(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::to(Value::Null, code, message)
    }

    /// A refusal of the request with this id.
    pub fn to(id: Value, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            reply_id: Some(id),
        }
    }

    /// The error response to send; `None` where JSON-RPC forbids a response.
    #[must_use]
    pub fn response(&self) -> Option<Value> {
        let id = self.reply_id.as_ref()?;
        Some(json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": {"code": self.code, "message": self.message},
        }))
    }
}

/// Checks one whole message and says what it is.
///
/// # Errors
///
/// A [`MessageRefusal`] with -32700 for what is not UTF-8 or not JSON, and -32600 for everything else: duplicate keys,
/// depth, batches, and JSON that is no JSON-RPC 2.0 message.
pub fn inspect(message: &[u8]) -> Result<MessageShape, MessageRefusal> {
    let (root, scan) = scan(message).map_err(|error| MessageRefusal {
        code: ErrorCode::PARSE_ERROR,
        message: error.into(),
        reply_id: head::reply_id(message),
    })?;
    match root {
        Value::Object(_) => scan.head.classify(scan.fault),
        Value::Array(_) => Err(MessageRefusal::anonymous(
            ErrorCode::INVALID_REQUEST,
            "batches are not supported: send one message per line",
        )),
        _ => Err(MessageRefusal::anonymous(
            ErrorCode::INVALID_REQUEST,
            "a message must be a JSON object",
        )),
    }
}

/// The same strictness for JSON that is no message: arguments on a command line, the body of a REST call.
///
/// # Errors
///
/// What is wrong: not UTF-8, not JSON, a duplicate key, nested too deep.
pub fn check(document: &[u8]) -> Result<(), String> {
    match scan(document)?.1.fault {
        Some(fault) => Err(fault.to_string()),
        None => Ok(()),
    }
}

/// Walks a document once; yields its outermost kind, and what was found on the way.
fn scan(document: &[u8]) -> Result<(Value, Scan), String> {
    let text = std::str::from_utf8(document)
        .map_err(|error| format!("not valid UTF-8 at byte {}", error.valid_up_to()))?;
    let mut scan = Scan::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let root = Node {
        scan: &mut scan,
        depth: 0,
        place: Position::Root,
    }
    .deserialize(&mut json)
    .and_then(|root| json.end().map(|()| root))
    .map_err(|error| format!("not valid JSON: {error}"))?;
    Ok((root, scan))
}

/// The top-level members that decide what a message is.
#[derive(Debug, Default)]
struct MessageHead {
    jsonrpc: Option<Value>,
    id: Option<Value>,
    id_is_ambiguous: bool,
    method: Option<Value>,
    has_outcome: bool,
}

impl MessageHead {
    fn classify(self, fault: Option<MessageFault>) -> Result<MessageShape, MessageRefusal> {
        let id = match &self.id {
            Some(id @ (Value::String(_) | Value::Number(_))) if !self.id_is_ambiguous => {
                Some(id.clone())
            }
            _ => None,
        };
        let refuse = |message: Cow<'static, str>| MessageRefusal {
            code: ErrorCode::INVALID_REQUEST,
            message,
            reply_id: match (&self.method, &self.id) {
                (Some(Value::String(_)), None) => None,
                (None, _) if self.has_outcome => None,
                _ => Some(id.clone().unwrap_or(Value::Null)),
            },
        };
        if let Some(fault) = fault {
            return Err(refuse(fault.to_string().into()));
        }
        if self.jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
            return Err(refuse("\"jsonrpc\" must be \"2.0\"".into()));
        }
        match (&self.method, &self.id) {
            (Some(Value::String(_)), None) => Ok(MessageShape::Notification),
            (Some(Value::String(method)), Some(_)) => match id.clone() {
                Some(id) => Ok(MessageShape::Request {
                    id,
                    method: method.clone(),
                }),
                None => Err(refuse("\"id\" must be a string or a number".into())),
            },
            (Some(_), _) => Err(refuse("\"method\" must be a string".into())),
            (None, _) if self.has_outcome => Ok(MessageShape::Response),
            (None, _) => Err(refuse("\"method\" is missing".into())),
        }
    }
}

/// The first thing found that JSON allows and we do not.
#[derive(Debug)]
enum MessageFault {
    Duplicate(String),
    Depth,
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageFault::Duplicate(key) => write!(f, "duplicate key {key:?}"),
            MessageFault::Depth => write!(f, "nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

#[derive(Debug, Default)]
struct Scan {
    fault: Option<MessageFault>,
    head: MessageHead,
}

impl Scan {
    fn duplicate(&mut self, key: &str) {
        self.fault.get_or_insert_with(|| {
            MessageFault::Duplicate(key.chars().take(MAX_KEY_CHARS).collect())
        });
    }
}

/// Where in the message a value stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Position {
    /// The message itself.
    Root,
    /// A top-level member that [`MessageHead`] keeps.
    MessageHead,
    /// Anywhere else: walked, not kept.
    Below,
}

/// Walks one value.
///
/// What comes back is its kind alone: containers are empty and strings below the head are too, so that
/// nothing is copied.
struct Node<'a> {
    scan: &'a mut Scan,
    /// How many containers enclose this value.
    depth: usize,
    place: Position,
}

impl Node<'_> {
    fn child(&mut self, place: Position) -> Node<'_> {
        Node {
            scan: self.scan,
            depth: self.depth + 1,
            place,
        }
    }

    /// True when a container here would be too deep; its content is then skipped without recursion, so that
    /// an id behind it can still be found.
    fn is_too_deep(&mut self) -> bool {
        let too_deep = self.depth >= MAX_DEPTH;
        if too_deep {
            self.scan.fault.get_or_insert(MessageFault::Depth);
        }
        too_deep
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(match self.place {
            Position::MessageHead => value.to_owned(),
            Position::Root | Position::Below => String::new(),
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        if self.is_too_deep() {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        } else {
            while seq
                .next_element_seed(self.child(Position::Below))?
                .is_some()
            {}
        }
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        if self.is_too_deep() {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Object(serde_json::Map::new()));
        }
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let is_head = self.place == Position::Root
                && matches!(
                    key.as_str(),
                    "jsonrpc" | "id" | "method" | "result" | "error"
                );
            let place = if is_head {
                Position::MessageHead
            } else {
                Position::Below
            };
            let value = map.next_value_seed(self.child(place))?;
            if keys.contains(&key) {
                self.scan.duplicate(&key);
                self.scan.head.id_is_ambiguous |= is_head && key == "id";
            } else if is_head {
                let head = &mut self.scan.head;
                match key.as_str() {
                    "jsonrpc" => head.jsonrpc = Some(value),
                    "id" => head.id = Some(value),
                    "method" => head.method = Some(value),
                    _ => head.has_outcome = true,
                }
            }
            keys.insert(key);
        }
        Ok(Value::Object(serde_json::Map::new()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Input, then `request ID`, `notification`, `response`, or `CODE ID message` (`-` for an unanswered one).
    fn verdict(input: &str) -> String {
        match inspect(input.as_bytes()) {
            Ok(MessageShape::Request { id, .. }) => format!("request {id}"),
            Ok(MessageShape::Notification) => "notification".into(),
            Ok(MessageShape::Response) => "response".into(),
            Err(MessageRefusal {
                code,
                message,
                reply_id,
            }) => {
                let id = reply_id.map_or("-".into(), |id| id.to_string());
                format!("{} {id} {message}", code.0)
            }
        }
    }

    #[test]
    fn messages_are_classified() {
        for (input, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1"),
            (
                r#"{"method":"ping","id":"a\"b","jsonrpc":"2.0"}"#,
                r#"request "a\"b""#,
            ),
            (r#"{"jsonrpc":"2.0","method":"x"}"#, "notification"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
            (r#"{"jsonrpc":"2.0","error":{},"id":null}"#, "response"),
            ("[]", "-32600 null batches"),
            ("7", "-32600 null a message must"),
            ("\"x\"", "-32600 null a message must"),
            ("", "-32700 null not valid JSON"),
            ("{", "-32700 null not valid JSON"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#,
                "-32700 null not valid JSON",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
                "-32700 1 not valid JSON",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":1e999}}"#,
                "-32700 1 not valid JSON: number out of range",
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, "-32600 1 \"method\" is"),
            ("{}", "-32600 null \"jsonrpc\" must"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
                "-32600 1 \"method\" must",
            ),
            (
                r#"{"jsonrpc":"1.0","id":"k","method":"x"}"#,
                r#"-32600 "k" "jsonrpc""#,
            ),
            (r#"{"id":9,"method":"x"}"#, "-32600 9 \"jsonrpc\""),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
                "-32600 null \"id\" must",
            ),
            (
                r#"{"jsonrpc":"2.0","id":{"a":1},"method":"x"}"#,
                "-32600 null \"id\" must",
            ),
        ] {
            let got = verdict(input);
            assert!(got.starts_with(expected), "{input}\n got {got}");
        }
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_level() {
        for (input, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2}}"#,
                r#"-32600 1 duplicate key "a""#,
            ),
            (
                r#"{"params":[{"x":{"\u0061":1,"a":2}}],"jsonrpc":"2.0","method":"x","id":"z"}"#,
                r#"-32600 "z" duplicate key "a""#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
                r#"-32600 null duplicate key "id""#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#,
                r#"-32600 1 duplicate key "method""#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"x","params":{"a":1,"a":2}}"#,
                "-32600 - duplicate",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}"#,
                "-32600 - duplicate",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"b":1},"b":{"b":1}}}"#,
                "request 1",
            ),
        ] {
            let got = verdict(input);
            assert!(got.starts_with(expected), "{input}\n got {got}");
        }
    }

    #[test]
    fn depth_is_bounded_and_the_id_behind_it_is_found() {
        let nested = |levels: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"x","params":{}{},"id":5}}"#,
                "[".repeat(levels),
                "]".repeat(levels)
            )
        };
        assert_eq!(verdict(&nested(MAX_DEPTH - 1)), "request 5");
        for levels in [MAX_DEPTH, 128, 1_000_000] {
            assert_eq!(
                verdict(&nested(levels)),
                "-32600 5 nested deeper than 64 levels"
            );
        }
        let objects = format!("{}1{}", r#"{"a":"#.repeat(200_000), "}".repeat(200_000));
        assert_eq!(
            verdict(&objects),
            "-32600 null nested deeper than 64 levels"
        );
        assert!(verdict(&"[".repeat(1_000_000)).starts_with("-32700 null"));
    }

    #[test]
    fn invalid_utf8_is_a_parse_error() {
        let refusal = inspect(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}");
        assert_eq!(
            refusal,
            Err(MessageRefusal::to(
                json!(1),
                ErrorCode::PARSE_ERROR,
                "not valid UTF-8 at byte 34"
            ))
        );
    }

    #[test]
    fn a_refusal_cannot_be_forged_through_a_key() {
        let message = r#"{"jsonrpc":"2.0","id":1,"x\",\"result\":{}":1,"x\",\"result\":{}":2}"#;
        let response = inspect(message.as_bytes()).unwrap_err().response().unwrap();
        assert_eq!(response["id"], 1);
        assert_eq!(response.as_object().unwrap().len(), 3);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = inspect(&bytes);
        }

        #[test]
        fn no_json_like_text_makes_it_panic(text in r#"[\[\]{}":,0-9a-z\\u \-\.]{0,200}"#) {
            let _ = inspect(text.as_bytes());
        }

        /// What passes here passes serde_json, and says the same id.
        #[test]
        fn accepted_requests_parse(id in any::<i64>(), key in ".{0,20}", value in ".{0,20}") {
            let message = json!({"jsonrpc": "2.0", "id": id, "method": "m", "params": {key: value}}).to_string();
            let method = "m".to_owned();
            prop_assert_eq!(inspect(message.as_bytes()), Ok(MessageShape::Request { id: json!(id), method }));
        }
    }
}
