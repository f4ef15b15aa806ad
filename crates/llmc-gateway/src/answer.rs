//! What a tool of an upstream returned.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::{Error, Result, quoted};

/// The result of a call, before it is fitted to a reader.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpstreamAnswer {
    pub parts: Vec<AnswerPart>,
    /// What the server gives for programs.
    pub structured: Option<Value>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// What the answer leaves out, in words.
    pub notes: Vec<String>,
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
    /// A resource that is neither text nor an image, in base64.
    Blob {
        uri: String,
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
            Some(Value::Array(parts)) => {
                let is_one = parts.len() == 1;
                parts.iter_mut().map(|found| part(found, is_one)).collect()
            }
            None if structured.is_some() => Vec::new(),
            _ => return Err(Error::Protocol("a result without content".to_owned())),
        };
        Ok(UpstreamAnswer {
            parts,
            structured,
            is_error,
            ..UpstreamAnswer::default()
        })
    }

    /// The contents of a resource.
    pub(crate) fn of_contents(mut result: Value) -> Result<UpstreamAnswer> {
        let Some(Value::Array(contents)) = result.get_mut("contents") else {
            return Err(Error::Protocol("a resource without contents".to_owned()));
        };
        let is_one = contents.len() == 1;
        let parts = contents.iter_mut();
        Ok(UpstreamAnswer {
            parts: parts.map(|found| resource(found, is_one)).collect(),
            ..UpstreamAnswer::default()
        })
    }

    /// The messages of a prompt: as text who says what, as data a list of them.
    pub(crate) fn of_prompt(mut result: Value) -> Result<UpstreamAnswer> {
        let description = taken(&mut result, "description");
        let Some(Value::Array(messages)) = result.get_mut("messages") else {
            return Err(Error::Protocol("a prompt without messages".to_owned()));
        };
        let (mut parts, mut data) = (Vec::new(), Vec::new());
        for message in messages {
            let role = quoted(&taken(message, "role"));
            let content = match message.get_mut("content") {
                Some(content) => part(content, true),
                None => AnswerPart::Text(String::new()),
            };
            match content {
                image @ AnswerPart::Image { .. } => {
                    data.push(json!({"role": role, "text": "[image]"}));
                    parts.push(image);
                }
                other => {
                    let text = other.text();
                    parts.push(AnswerPart::Text(format!("{role}: {text}")));
                    data.push(json!({"role": role, "text": text}));
                }
            }
        }
        let data = json!({"description": description, "messages": data});
        Ok(UpstreamAnswer {
            parts,
            structured: Some(data),
            ..UpstreamAnswer::default()
        })
    }

    /// Data for programs, and nothing else.
    pub(crate) fn of_data(data: Value) -> UpstreamAnswer {
        UpstreamAnswer {
            structured: Some(data),
            ..UpstreamAnswer::default()
        }
    }

    /// The texts, one after the other, and what else there is in words.
    pub fn text(&self) -> String {
        let shown = self
            .parts
            .iter()
            .filter(|part| !matches!(part, AnswerPart::Image { .. }));
        shown.map(AnswerPart::text).collect::<Vec<_>>().join("\n")
    }
}

impl AnswerPart {
    /// The part in words.
    fn text(&self) -> Cow<'_, str> {
        match self {
            AnswerPart::Text(text) | AnswerPart::Named(text) => text.into(),
            AnswerPart::Image { mime_type, data } => {
                format!("[image {mime_type}, {} bytes]", decoded_bytes(data)).into()
            }
            AnswerPart::Blob { uri, data, .. } => {
                format!("[resource {uri}, {} bytes]", decoded_bytes(data)).into()
            }
        }
    }
}

/// Takes a text out of an object; empty if there is none.
fn taken(object: &mut Value, key: &str) -> String {
    match object.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Bytes that base64 stands for.
fn decoded_bytes(data: &str) -> usize {
    data.len() / 4 * 3
}

/// Reads a part; one that is not the only one says where it is from.
fn part(part: &mut Value, is_only_one: bool) -> AnswerPart {
    let kind = taken(part, "type");
    match kind.as_str() {
        "text" => AnswerPart::Text(taken(part, "text")),
        "image" => AnswerPart::Image {
            mime_type: taken(part, "mimeType"),
            data: taken(part, "data"),
        },
        "resource" => match part.get_mut("resource") {
            Some(found) => resource(found, is_only_one),
            None => AnswerPart::Named("[an empty resource]".to_owned()),
        },
        "resource_link" => AnswerPart::Named(link(part)),
        "audio" => {
            let bytes = decoded_bytes(part["data"].as_str().unwrap_or_default());
            let mime_type = quoted(part["mimeType"].as_str().unwrap_or_default());
            AnswerPart::Named(format!("[audio {mime_type}, {bytes} bytes]"))
        }
        kind => AnswerPart::Named(format!("[{} is not shown]", quoted(kind))),
    }
}

/// The contents of a resource: its text, an image, or other bytes.
fn resource(resource: &mut Value, is_only_one: bool) -> AnswerPart {
    let uri = quoted(&taken(resource, "uri"));
    let mime_type = quoted(&taken(resource, "mimeType"));
    if !resource["blob"].is_string() {
        let text = taken(resource, "text");
        return AnswerPart::Text(match is_only_one {
            true => text,
            false => format!("[resource {uri}]\n{text}"),
        });
    }
    let data = taken(resource, "blob");
    match mime_type.starts_with("image/") {
        true => AnswerPart::Image { mime_type, data },
        false => AnswerPart::Blob {
            uri,
            mime_type,
            data,
        },
    }
}

/// `[link report.csv: db://7, text/csv, 20 bytes: The sums of May]`. It is never followed here.
fn link(link: &Value) -> String {
    let text = |key: &str| quoted(link[key].as_str().unwrap_or_default());
    let mut words = match text("name") {
        name if name.is_empty() => text("uri"),
        name => format!("{name}: {}", text("uri")),
    };
    let size = link["size"].as_u64().map(|size| format!("{size} bytes"));
    for further in [text("mimeType"), size.unwrap_or_default()] {
        if !further.is_empty() {
            words.push_str(&format!(", {further}"));
        }
    }
    match text("description") {
        about if about.is_empty() => format!("[link {words}]"),
        about => format!("[link {words}: {about}]"),
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
            {"type": "resource_link", "uri": "a://d", "mimeType": "text/csv", "size": 9, "description": "All\nof it"},
            {"type": "resource", "resource": {"uri": "a://e", "mimeType": "image/png", "blob": "AAAA"}},
            {"type": "resource"},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "hologram"},
            7,
        ], "isError": true});
        let answer = UpstreamAnswer::of_result(result).unwrap();
        assert!(answer.is_error);
        assert_eq!(
            answer.text(),
            "one\n[resource a://b]\ntwo\n[resource a://c, 6 bytes]\n[link x: file:///etc/passwd]\n\
             [link a://d, text/csv, 9 bytes: All of it]\n[an empty resource]\n[audio audio/wav, 3 bytes]\n\
             [hologram is not shown]\n[ is not shown]"
        );
        let images = answer.parts.iter();
        let images =
            images.filter(|part| matches!(part, AnswerPart::Image { data, .. } if data == "AAAA"));
        assert_eq!(images.count(), 2);
    }

    #[test]
    fn a_result_without_content_is_an_error_unless_it_is_structured() {
        let answer = UpstreamAnswer::of_result(json!({"structuredContent": {"a": 1}})).unwrap();
        assert_eq!(answer.structured, Some(json!({"a": 1})));
        UpstreamAnswer::of_result(json!({})).unwrap_err();
        UpstreamAnswer::of_result(json!({"content": "text"})).unwrap_err();
        UpstreamAnswer::of_result(json!(null)).unwrap_err();
    }

    #[test]
    fn resources_and_prompts_are_read_as_text_and_data() {
        let contents = json!({"contents": [{"uri": "a://b", "text": "{\"a\": 1}"}]});
        assert_eq!(
            UpstreamAnswer::of_contents(contents).unwrap().text(),
            "{\"a\": 1}"
        );
        let two =
            json!({"contents": [{"uri": "a://b", "text": "x"}, {"uri": "a://c", "blob": "AAAA"}]});
        let answer = UpstreamAnswer::of_contents(two).unwrap();
        assert_eq!(
            answer.text(),
            "[resource a://b]\nx\n[resource a://c, 3 bytes]"
        );
        let prompt = json!({"description": "Asks.", "messages": [
            {"role": "user", "content": {"type": "text", "text": "Why?"}},
            {"role": "assistant", "content": {"type": "resource_link", "uri": "a://b"}},
        ]});
        let answer = UpstreamAnswer::of_prompt(prompt).unwrap();
        assert_eq!(answer.text(), "user: Why?\nassistant: [link a://b]");
        let said = json!([{"role": "user", "text": "Why?"}, {"role": "assistant", "text": "[link a://b]"}]);
        assert_eq!(answer.structured.unwrap()["messages"], said);
        for bad in [
            json!({}),
            json!(null),
            json!({"contents": 3, "messages": 3}),
        ] {
            UpstreamAnswer::of_contents(bad.clone()).unwrap_err();
            UpstreamAnswer::of_prompt(bad).unwrap_err();
        }
    }
}
