//! What a tool of an upstream returned.

use serde_json::Value;

use crate::error::{Error, Result, quoted};

/// The result of a call, before it is fitted to a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamAnswer {
    pub parts: Vec<AnswerPart>,
    /// What the server gives for programs.
    pub structured: Option<Value>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

/// One part of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPart {
    Text(String),
    /// In base64, as it was sent.
    Image {
        mime_type: String,
        data: String,
    },
    /// Something that is named but not shown, in words.
    Named(String),
}

impl UpstreamAnswer {
    /// Reads a result leniently: a part of a kind that is not known is named.
    pub(crate) fn of_result(mut result: Value) -> Result<UpstreamAnswer> {
        let structured = result
            .get_mut("structuredContent")
            .map(Value::take)
            .filter(|value| !value.is_null());
        let is_error = result["isError"].as_bool().unwrap_or(false);
        let parts = match result.get_mut("content") {
            Some(Value::Array(parts)) => parts.iter_mut().map(part).collect(),
            None if structured.is_some() => Vec::new(),
            _ => return Err(Error::Protocol("a result without content".to_owned())),
        };
        Ok(UpstreamAnswer {
            parts,
            structured,
            is_error,
        })
    }

    /// The texts, one after the other, and what else there is in words.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            AnswerPart::Text(text) | AnswerPart::Named(text) => Some(text.as_str()),
            AnswerPart::Image { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

fn part(part: &mut Value) -> AnswerPart {
    let take = |part: &mut Value, key: &str| match part.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let kind = take(part, "type");
    match kind.as_str() {
        "text" => AnswerPart::Text(take(part, "text")),
        "image" => AnswerPart::Image {
            mime_type: take(part, "mimeType"),
            data: take(part, "data"),
        },
        "resource" => {
            let mut resource = part["resource"].take();
            match take(&mut resource, "text") {
                text if !text.is_empty() => AnswerPart::Text(text),
                _ => {
                    let bytes = resource["blob"].as_str().map_or(0, str::len) / 4 * 3;
                    let uri = quoted(resource["uri"].as_str().unwrap_or_default());
                    AnswerPart::Named(format!("[resource {uri}, {bytes} bytes]"))
                }
            }
        }
        "resource_link" => {
            let uri = quoted(part["uri"].as_str().unwrap_or_default());
            AnswerPart::Named(format!("[link {uri}]"))
        }
        "audio" => {
            let bytes = part["data"].as_str().map_or(0, str::len) / 4 * 3;
            let mime_type = quoted(part["mimeType"].as_str().unwrap_or_default());
            AnswerPart::Named(format!("[audio {mime_type}, {bytes} bytes]"))
        }
        kind => AnswerPart::Named(format!("[{} is not shown]", quoted(kind))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_part_is_text_an_image_or_named() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "two"}},
            {"type": "resource", "resource": {"uri": "a://c", "blob": "AAAAAAAA"}},
            {"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "hologram"},
            7,
        ], "isError": true});
        let answer = UpstreamAnswer::of_result(result).unwrap();
        assert!(answer.is_error);
        assert_eq!(
            answer.text(),
            "one\ntwo\n[resource a://c, 6 bytes]\n[link file:///etc/passwd]\n[audio audio/wav, 3 bytes]\n\
             [hologram is not shown]\n[ is not shown]"
        );
        assert!(matches!(&answer.parts[1], AnswerPart::Image { data, .. } if data == "AAAA"));
    }

    #[test]
    fn a_result_without_content_is_an_error_unless_it_is_structured() {
        let answer = UpstreamAnswer::of_result(json!({"structuredContent": {"a": 1}})).unwrap();
        assert_eq!(answer.structured, Some(json!({"a": 1})));
        UpstreamAnswer::of_result(json!({})).unwrap_err();
        UpstreamAnswer::of_result(json!({"content": "text"})).unwrap_err();
        UpstreamAnswer::of_result(json!(null)).unwrap_err();
    }
}
