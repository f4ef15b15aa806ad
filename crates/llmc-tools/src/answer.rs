//! What a tool gives back, before dispatch seals it.

use llmc_envelope::HandleId;
use llmc_envelope::receipt::Receipt;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Kind, Result};

/// A tool's answer: the text for a model, the data for a program, and what both leave out.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What MCP and the command line print.
    pub text: String,
    /// What REST returns as `data`; null where that is the text itself.
    pub data: Value,
    /// The rest.
    pub facts: Facts,
}

/// What observers and envelopes need to know about an answer.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The path it is about, as shown.
    pub path: Option<String>,
    /// Whether something was left out.
    pub truncated: bool,
    /// The handle that returns the rest.
    pub handle: Option<HandleId>,
    /// Bytes that were left out.
    pub withheld_bytes: u64,
    /// Whether this answer returns what an earlier one left out.
    pub fetched_back: bool,
    /// The program that a command ran.
    pub program: Option<String>,
    /// How bytes that are not plain UTF-8 were turned into text.
    pub encoding: Option<&'static str>,
    /// What the tool itself says beside its data.
    pub meta: Map<String, Value>,
}

impl Answer {
    /// A JSON document, compact.
    ///
    /// # Errors
    /// The value cannot be written as JSON, which is a defect.
    pub fn json(document: &impl Serialize, facts: Facts) -> Result<Answer> {
        let data = serde_json::to_value(document).map_err(|error| {
            Error::new(Kind::Internal, format!("answer cannot be written: {error}"))
        })?;
        Ok(Answer {
            text: data.to_string(),
            data,
            facts,
        })
    }

    /// Plain text under its receipt; an empty receipt is none.
    pub fn text(body: &str, receipt: &Receipt, facts: Facts) -> Answer {
        Answer {
            text: receipt.seal(body),
            data: Value::Null,
            facts,
        }
    }

    /// What a program gets from a tool that answers a model in text.
    pub fn data(data: impl Into<Value>, facts: Facts) -> Answer {
        Answer {
            text: String::new(),
            data: data.into(),
            facts,
        }
    }

    /// The body that `POST /tool` returns: `{"data": …, "meta": …}`, never decorated.
    pub fn rest_body(&self, correlation_id: &str) -> Value {
        let facts = &self.facts;
        let mut meta = json!({"correlation_id": correlation_id, "truncated": facts.truncated});
        if let Some(handle) = facts.handle {
            meta["handle"] = handle.to_string().into();
        }
        if let Some(path) = &facts.path {
            meta["path"] = path.clone().into();
            if let Some(text) = self.data.as_str() {
                meta["length"] = text.len().into();
            }
        }
        if let Some(encoding) = facts.encoding {
            meta["encoding"] = encoding.into();
        }
        for (key, value) in &facts.meta {
            meta[key.as_str()] = value.clone();
        }
        let data = if self.data.is_null() {
            self.text.clone().into()
        } else {
            self.data.clone()
        };
        json!({"data": data, "meta": meta})
    }
}
