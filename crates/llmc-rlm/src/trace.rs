//! Traces: model calls and code runs as JSON lines, and their replay.
//!
//! A replay runs the recorded replies through the same session on the same text, without any provider. Replies are found
//! by the hash of their request, so a session that would send something else fails at once.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::sync::{Mutex, PoisonError};

use llmc_model::{
    ChatReply, ChatRequest, Error as ModelError, ModelName, Price, Provider, TokenUsage,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::model_access::QueryModel;
use crate::text::SourceText;

const FORMAT_VERSION: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceDetail {
    /// Can be replayed.
    Full,
    /// Sizes and hashes instead of every text; cannot be replayed.
    Redacted,
}

pub struct TraceRecorder {
    out: Mutex<Box<dyn Write + Send>>,
    detail: TraceDetail,
}

impl std::fmt::Debug for TraceRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TraceRecorder").field(&self.detail).finish()
    }
}

impl TraceRecorder {
    pub fn new(out: impl Write + Send + 'static, detail: TraceDetail) -> TraceRecorder {
        TraceRecorder {
            out: Mutex::new(Box::new(out)),
            detail,
        }
    }

    pub(crate) fn record_begin(
        &self,
        task: &str,
        text: &SourceText,
        lead: &QueryModel,
        sub: &QueryModel,
    ) {
        let described = |model: &QueryModel| {
            let price = model
                .price
                .map(|price| [price.input, price.cached, price.output]);
            json!({"model": model.name.to_string(), "price": price})
        };
        self.write_line(json!({
            "event": "begin",
            "version": FORMAT_VERSION,
            "redacted": self.detail == TraceDetail::Redacted,
            "task": self.redacted(task),
            "task_sha256": sha256(task),
            "text_sha256": sha256(text.as_str()),
            "text_bytes": text.bytes(),
            "lead": described(lead),
            "sub": described(sub),
        }));
    }

    pub(crate) fn record_call(
        &self,
        number: u64,
        depth: u32,
        model: &ModelName,
        request: &ChatRequest,
        answer: &Result<ChatReply, ModelError>,
    ) {
        let messages: Vec<Value> = request
            .messages
            .iter()
            .map(|one| json!({"role": one.role.as_str(), "text": self.redacted(&one.text)}))
            .collect();
        let mut line = json!({
            "event": "ask",
            "number": number,
            "depth": depth,
            "model": model.to_string(),
            "question": request_hash(model, request),
            "system": self.redacted(&request.system),
            "messages": messages,
        });
        match answer {
            Ok(reply) => {
                let usage = reply
                    .usage
                    .map(|usage| [usage.input, usage.output, usage.cached]);
                line["reply"] = json!({"text": self.redacted(&reply.text), "cut": reply.truncated, "usage": usage});
            }
            Err(error) => {
                line["error"] =
                    json!({"code": error.code(), "message": self.redacted(&error.to_string())});
            }
        }
        self.write_line(line);
    }

    pub(crate) fn record_run(&self, depth: u32, turn: u32, code: &str, output: &str) {
        self.write_line(json!({
            "event": "run",
            "depth": depth,
            "turn": turn,
            "code": self.redacted(code),
            "output": self.redacted(output),
        }));
    }

    pub(crate) fn record_end(&self, result: &Result<Value, &'static str>) {
        let mut line = json!({"event": "end"});
        match result {
            Ok(value) => line["answer"] = self.redacted(&value.to_string()),
            Err(code) => line["error_code"] = (*code).into(),
        }
        self.write_line(line);
    }

    fn redacted(&self, text: &str) -> Value {
        match self.detail {
            TraceDetail::Full => text.into(),
            TraceDetail::Redacted => json!({"bytes": text.len(), "sha256": sha256(text)}),
        }
    }

    fn write_line(&self, line: Value) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not fail a query that was paid for; the replay of the incomplete trace then fails.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

#[derive(Debug)]
pub struct RecordedTrace {
    /// The leading model and its price.
    pub lead: (ModelName, Option<Price>),
    /// The model for parts and its price.
    pub sub: (ModelName, Option<Price>),
    task_sha256: String,
    text_sha256: String,
    answers: Mutex<HashMap<String, NumberedAnswers>>,
}

/// The answers to one request by call number: concurrent calls end in any order.
type NumberedAnswers = BTreeMap<u64, Result<ChatReply, ModelError>>;

impl RecordedTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// It is malformed, redacted, or of another version.
    pub fn read(lines: impl BufRead) -> Result<RecordedTrace, Error> {
        let mut trace: Option<RecordedTrace> = None;
        for (at, line) in lines.lines().enumerate() {
            let number = at + 1;
            let failed = |source| Error::TraceLine {
                line: number,
                source,
            };
            let line = line.map_err(|error| failed(error.into()))?;
            let line: Value = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
            let known = match (line["event"].as_str(), &trace) {
                (Some("begin"), None) => {
                    trace = Some(RecordedTrace::read_begin(&line)?);
                    Some(())
                }
                (Some("ask"), Some(trace)) => trace.read_call(&line),
                (Some("run" | "end"), Some(_)) => Some(()),
                _ => None,
            };
            known.ok_or_else(|| Error::Trace(format!("line {number} does not belong there")))?;
        }
        trace.ok_or_else(|| Error::Trace("it is empty".to_owned()))
    }

    fn read_begin(line: &Value) -> Result<RecordedTrace, Error> {
        let bad = |why: &str| Error::Trace(why.to_owned());
        if line["version"] != FORMAT_VERSION {
            return Err(bad("it is of another version"));
        }
        if line["redacted"] != false {
            return Err(bad("it is redacted; record one without redaction"));
        }
        let model = |key: &str| -> Option<(ModelName, Option<Price>)> {
            let name = line[key]["model"].as_str()?.parse().ok()?;
            let price = match &line[key]["price"] {
                Value::Null => None,
                price => Some(Price::new(
                    price[0].as_f64()?,
                    price[1].as_f64()?,
                    price[2].as_f64()?,
                )),
            };
            Some((name, price))
        };
        let text = |key: &str| line[key].as_str().map(str::to_owned);
        let begun = || {
            Some(RecordedTrace {
                lead: model("lead")?,
                sub: model("sub")?,
                task_sha256: text("task_sha256")?,
                text_sha256: text("text_sha256")?,
                answers: Mutex::default(),
            })
        };
        begun().ok_or_else(|| bad("its first line is not the beginning of a trace"))
    }

    fn read_call(&self, line: &Value) -> Option<()> {
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

    /// Fails unless the trace is of this task and text.
    pub(crate) fn check(&self, task: &str, text: &SourceText) -> Result<(), Error> {
        if self.task_sha256 != sha256(task) {
            return Err(Error::Trace("it is of another task".to_owned()));
        }
        if self.text_sha256 != sha256(text.as_str()) {
            return Err(Error::Trace("the text has changed since".to_owned()));
        }
        Ok(())
    }

    /// The recorded answer to a request.
    pub(crate) fn answer(
        &self,
        model: &ModelName,
        request: &ChatRequest,
    ) -> Result<ChatReply, ModelError> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = answers.get_mut(&request_hash(model, request));
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

/// An error from a trace; only a provider's has its original form.
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

/// The hash of the model and all text it is sent.
fn request_hash(model: &ModelName, request: &ChatRequest) -> String {
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
