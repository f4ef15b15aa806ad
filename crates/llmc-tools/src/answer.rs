//! A finished text as an output, for tools that do not describe theirs yet.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::Result;
use crate::render::{AnswerRoom, Layout, Render, Rendition};
pub(crate) use crate::seal::Facts;

/// A tool's answer: the text for a model, the data for a program, and what both leave out.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// What MCP and the command line print.
    pub(crate) text: String,
    /// What REST returns as `data`; null where that is the text itself.
    pub(crate) data: Value,
    /// The rest.
    pub(crate) facts: Facts,
}

impl Answer {
    /// What a program gets from a tool that answers a model in text.
    pub(crate) fn data(data: impl Into<Value>, facts: Facts) -> Answer {
        Answer {
            text: String::new(),
            data: data.into(),
            facts,
        }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.data.serialize(serializer)
    }
}

impl Render for Answer {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let facts = self.facts.clone();
        Ok(Rendition {
            layout: Layout::Finished {
                text: self.text.clone(),
                data: self.data.clone(),
                handle: facts.handle,
            },
            truncated: facts.truncated,
            path: facts.path,
            withheld_bytes: Some(facts.withheld_bytes),
            fetched_back: facts.fetched_back,
            program: facts.program,
            encoding: facts.encoding,
            meta: facts.meta,
            ..Rendition::default()
        })
    }
}
