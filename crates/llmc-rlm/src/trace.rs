//! Traces: what was asked, answered and run, one JSON line each; and the replay of one.
//!
//! A replay runs the recorded answers through the same session, on the same text, without any provider: answers are found
//! by the hash of their question, so a session that would ask something else is noticed at once.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::sync::{Mutex, PoisonError};

use llmc_model::{
    ChatReply, ChatRequest, Error as ModelError, ModelName, Price, Provider, TokenUsage,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::desk::Party;
use crate::error::Error;
use crate::text::Text;

/// The form of these lines.
const VERSION: u64 = 1;

/// How much a trace tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Everything; can be replayed.
    Full,
    /// Sizes and hashes in the place of every text; cannot be replayed.
    Redacted,
}

/// Writes a trace.
pub struct Recorder {
    out: Mutex<Box<dyn Write + Send>>,
    detail: Detail,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Recorder").field(&self.detail).finish()
    }
}

impl Recorder {
    /// Writes to `out`.
    pub fn new(out: impl Write + Send + 'static, detail: Detail) -> Recorder {
        Recorder {
            out: Mutex::new(Box::new(out)),
            detail,
        }
    }

    pub(crate) fn begin(&self, task: &str, text: &Text, lead: &Party, sub: &Party) {
        let party = |party: &Party| {
            let price = party
                .price
                .map(|price| [price.input, price.cached, price.output]);
            json!({"model": party.model.to_string(), "price": price})
        };
        self.line(json!({
            "event": "begin",
            "version": VERSION,
            "redacted": self.detail == Detail::Redacted,
            "task": self.told(task),
            "task_sha256": sha256(task),
            "text_sha256": sha256(text.as_str()),
            "text_bytes": text.bytes(),
            "lead": party(lead),
            "sub": party(sub),
        }));
    }

    pub(crate) fn asked(
        &self,
        number: u64,
        depth: u32,
        model: &ModelName,
        request: &ChatRequest,
        answer: &Result<ChatReply, ModelError>,
    ) {
        let said = request.messages.iter();
        let messages: Vec<Value> = said
            .map(|one| json!({"role": one.role.as_str(), "text": self.told(&one.text)}))
            .collect();
        let mut line = json!({
            "event": "ask",
            "number": number,
            "depth": depth,
            "model": model.to_string(),
            "question": question(model, request),
            "system": self.told(&request.system),
            "messages": messages,
        });
        match answer {
            Ok(reply) => {
                let usage = reply
                    .usage
                    .map(|usage| [usage.input, usage.output, usage.cached]);
                line["reply"] =
                    json!({"text": self.told(&reply.text), "cut": reply.truncated, "usage": usage});
            }
            Err(error) => {
                line["error"] =
                    json!({"code": error.code(), "message": self.told(&error.to_string())});
            }
        }
        self.line(line);
    }

    pub(crate) fn ran(&self, depth: u32, turn: u32, code: &str, output: &str) {
        self.line(json!({
            "event": "run",
            "depth": depth,
            "turn": turn,
            "code": self.told(code),
            "output": self.told(output),
        }));
    }

    pub(crate) fn ended(&self, result: &Result<Value, &'static str>) {
        let mut line = json!({"event": "end"});
        match result {
            Ok(value) => line["answer"] = self.told(&value.to_string()),
            Err(code) => line["error_code"] = (*code).into(),
        }
        self.line(line);
    }

    fn told(&self, text: &str) -> Value {
        match self.detail {
            Detail::Full => text.into(),
            Detail::Redacted => json!({"bytes": text.len(), "sha256": sha256(text)}),
        }
    }

    fn line(&self, line: Value) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not fail a query that was paid for; the trace then lacks its end, and a replay says so.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// A trace to be replayed.
#[derive(Debug)]
pub struct Tape {
    /// Who led the recorded query.
    pub lead: (ModelName, Option<Price>),
    /// Who was asked about parts.
    pub sub: (ModelName, Option<Price>),
    task_sha256: String,
    text_sha256: String,
    answers: Mutex<HashMap<String, Recorded>>,
}

/// The answers to one question with the numbers they were asked under: calls that ran together end in any order.
type Recorded = BTreeMap<u64, Result<ChatReply, ModelError>>;

impl Tape {
    /// Reads a trace.
    ///
    /// # Errors
    /// It is none, it is redacted, or it is of another version.
    pub fn read(lines: impl BufRead) -> Result<Tape, Error> {
        let bad = |why: String| Error::Trace(why);
        let mut tape: Option<Tape> = None;
        for (number, line) in lines.lines().enumerate() {
            let number = number + 1;
            let line = line.map_err(|error| bad(format!("line {number}: {error}")))?;
            let line: Value = serde_json::from_str(&line)
                .map_err(|error| bad(format!("line {number}: {error}")))?;
            let known = match (line["event"].as_str(), &tape) {
                (Some("begin"), None) => {
                    tape = Some(Tape::begun(&line)?);
                    Some(())
                }
                (Some("ask"), Some(tape)) => tape.heard(&line),
                (Some("run" | "end"), Some(_)) => Some(()),
                _ => None,
            };
            known.ok_or_else(|| bad(format!("line {number} does not belong there")))?;
        }
        tape.ok_or_else(|| bad("it is empty".to_owned()))
    }

    fn begun(line: &Value) -> Result<Tape, Error> {
        let bad = |why: &str| Error::Trace(why.to_owned());
        if line["version"] != VERSION {
            return Err(bad("it is of another version"));
        }
        if line["redacted"] != false {
            return Err(bad("it is redacted; record one without redaction"));
        }
        let party = |key: &str| -> Option<(ModelName, Option<Price>)> {
            let model = line[key]["model"].as_str()?.parse().ok()?;
            let price = match &line[key]["price"] {
                Value::Null => None,
                price => Some(Price::new(
                    price[0].as_f64()?,
                    price[1].as_f64()?,
                    price[2].as_f64()?,
                )),
            };
            Some((model, price))
        };
        let text = |key: &str| line[key].as_str().map(str::to_owned);
        let begun = || {
            Some(Tape {
                lead: party("lead")?,
                sub: party("sub")?,
                task_sha256: text("task_sha256")?,
                text_sha256: text("text_sha256")?,
                answers: Mutex::default(),
            })
        };
        begun().ok_or_else(|| bad("its first line is not the beginning of a trace"))
    }

    fn heard(&self, line: &Value) -> Option<()> {
        let question = line["question"].as_str()?;
        let model: ModelName = line["model"].as_str()?.parse().ok()?;
        let answer = match (line.get("reply"), line.get("error")) {
            (Some(reply), None) => Ok(ChatReply {
                text: reply["text"].as_str()?.to_owned(),
                truncated: reply["cut"].as_bool()?,
                usage: match &reply["usage"] {
                    Value::Null => None,
                    usage => Some(TokenUsage {
                        input: usage[0].as_u64()?,
                        output: usage[1].as_u64()?,
                        cached: usage[2].as_u64()?,
                    }),
                },
            }),
            (None, Some(error)) => Err(recorded_error(model.provider(), error)?),
            _ => return None,
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = line["number"].as_u64()?;
        answers
            .entry(question.to_owned())
            .or_default()
            .insert(number, answer);
        Some(())
    }

    /// Whether this trace is of that question about that text.
    pub(crate) fn check(&self, task: &str, text: &Text) -> Result<(), Error> {
        if self.task_sha256 != sha256(task) {
            return Err(Error::Trace("it is of another task".to_owned()));
        }
        if self.text_sha256 != sha256(text.as_str()) {
            return Err(Error::Trace("the text has changed since".to_owned()));
        }
        Ok(())
    }

    /// The recorded answer to a question.
    pub(crate) fn answer(
        &self,
        model: &ModelName,
        request: &ChatRequest,
    ) -> Result<ChatReply, ModelError> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = answers.get_mut(&question(model, request));
        let first = recorded.and_then(BTreeMap::pop_first);
        first.map(|(_, answer)| answer).unwrap_or_else(|| {
            Err(ModelError::Provider {
                provider: model.provider(),
                what: "the trace has no answer to this question; it was recorded by another version or never finished"
                    .to_owned(),
                retryable: false,
            })
        })
    }
}

/// An error as a trace has it; only a provider's can be told again word for word.
fn recorded_error(provider: Provider, error: &Value) -> Option<ModelError> {
    let message = error["message"].as_str()?;
    let what = message
        .strip_prefix(&format!("{provider}: "))
        .unwrap_or(message);
    Some(match error["code"].as_str()? {
        "timeout" => ModelError::TimedOut,
        "budget_exceeded" => ModelError::Budget {
            what: message.to_owned(),
            hint: String::new(),
        },
        _ => ModelError::Provider {
            provider,
            what: what.to_owned(),
            retryable: true,
        },
    })
}

/// What identifies a question: the model and every word it is sent.
fn question(model: &ModelName, request: &ChatRequest) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(&model.to_string());
    add(&request.system);
    for message in &request.messages {
        add(message.role.as_str());
        add(&message.text);
    }
    hex(&hash.finalize())
}

pub(crate) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
