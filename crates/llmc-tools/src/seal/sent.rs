//! A sealed answer on its way from the server that made it to the one whose client asked.
//!
//! It is passed on as it is: the seal of the first server has cut, escaped and counted it.

use llmc_envelope::HandleId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Facts, Sealed};

/// Everything about an answer but images and encodings, which no tool that is tied to a server returns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SentAnswer {
    text: String,
    data: Option<Value>,
    path: Option<String>,
    truncated: bool,
    handle: Option<String>,
    withheld_bytes: u64,
    fetched_back: bool,
    program: Option<String>,
    meta: Map<String, Value>,
    printed: Option<String>,
    warning: Option<String>,
}

impl From<Sealed> for SentAnswer {
    fn from(sealed: Sealed) -> SentAnswer {
        let Facts {
            path,
            truncated,
            handle,
            withheld_bytes,
            fetched_back,
            program,
            encoding: _,
            meta,
            printed,
            warning,
        } = sealed.facts;
        SentAnswer {
            text: sealed.text,
            data: sealed.data,
            path,
            truncated,
            handle: handle.map(|handle| handle.to_string()),
            withheld_bytes,
            fetched_back,
            program,
            meta,
            printed,
            warning,
        }
    }
}

impl From<SentAnswer> for Sealed {
    fn from(sent: SentAnswer) -> Sealed {
        Sealed {
            text: sent.text,
            data: sent.data,
            facts: Facts {
                path: sent.path,
                truncated: sent.truncated,
                handle: sent.handle.as_deref().and_then(HandleId::parse),
                withheld_bytes: sent.withheld_bytes,
                fetched_back: sent.fetched_back,
                program: sent.program,
                encoding: None,
                meta: sent.meta,
                printed: sent.printed,
                warning: sent.warning,
            },
            image: None,
        }
    }
}
