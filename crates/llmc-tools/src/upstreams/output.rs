//! What a tool of an upstream returned, for the seal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmc_documents::{Conversion, FileFormat, ScaledImage, convert};
use llmc_enrich::preview::{self, PreviewPart, TextEnds};
use llmc_enrich::sniff::ContentKind;
use llmc_envelope::receipt::Receipt;
use llmc_gateway::{AnswerPart, UpstreamAnswer};
use llmc_host::CancelToken;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::instructions::{instruction_like, warning};
use crate::cx::Form;
use crate::error::Result;
use crate::render::{AnswerImage, AnswerRoom, Render, Rendition, Rest};

/// The kind of result, as the handle store lists it.
const KIND: &str = "upstream";
/// Images that cannot be converted before no further one is tried.
const MAX_BAD_IMAGES: usize = 3;

/// The result of a call.
#[derive(Debug)]
pub(super) struct UpstreamOutput {
    /// `NAME.tool`.
    tool: &'static str,
    /// What a program gets.
    data: Value,
    /// What a model reads.
    text: String,
    is_json: bool,
    /// The first that can be shown.
    image: Option<AnswerImage>,
    /// How many more there are.
    unshown: usize,
    /// What stands for each image where a script prints the result.
    image_names: Vec<String>,
    /// Whether there are no bytes in the data.
    is_plain: bool,
    notes: Vec<String>,
    /// That the text reads like instructions to a model.
    warning: Option<String>,
}

impl UpstreamOutput {
    /// Reads the answer; images are scaled in a confined process.
    pub(super) fn of(
        tool: &'static str,
        answer: UpstreamAnswer,
        cancel: &CancelToken,
    ) -> UpstreamOutput {
        let mut text = answer.text();
        let (mut notes, mut image_names) = (answer.notes.clone(), Vec::new());
        let (mut image, mut unshown, mut raw_images) = (None, 0, Vec::new());
        let mut blobs = Vec::new();
        for part in &answer.parts {
            let (mime_type, data) = match part {
                AnswerPart::Image { mime_type, data } => (mime_type, data),
                AnswerPart::Blob {
                    uri,
                    mime_type,
                    data,
                } => {
                    blobs.push(json!({"uri": uri, "mime_type": mime_type, "data": data}));
                    continue;
                }
                AnswerPart::Text(_) | AnswerPart::Named(_) => continue,
            };
            let bytes = data.len() / 4 * 3;
            image_names.push(format!("[image {mime_type}, {bytes} bytes]"));
            raw_images.push(json!({"mime_type": mime_type, "data": data}));
            // One is shown, so no other is converted.
            if image.is_some() || notes.len() >= MAX_BAD_IMAGES {
                unshown += 1;
                continue;
            }
            match scaled(data, cancel) {
                Ok(scaled) => image = Some(scaled),
                Err(why) => notes.push(format!("an image is not shown: {why}")),
            }
        }
        let parsed = match answer.structured {
            Some(structured) => Some(structured),
            None => serde_json::from_str::<Value>(&text)
                .ok()
                .filter(|value| value.is_object() || value.is_array()),
        };
        if let (Some(parsed), true) = (&parsed, text.trim().is_empty()) {
            text = parsed.to_string();
        }
        // The text may say in words what the data says.
        let is_json = parsed.is_some() && text.trim_start().starts_with(['{', '[']);
        let is_plain = raw_images.is_empty() && blobs.is_empty();
        let data = match (parsed, is_plain) {
            (Some(parsed), true) => parsed,
            (None, true) => text.clone().into(),
            (parsed, false) => {
                let mut data = json!({"text": text, "data": parsed, "images": raw_images});
                if !blobs.is_empty() {
                    data["blobs"] = blobs.into();
                }
                data
            }
        };
        let upstream = tool.split('.').next().unwrap_or(tool);
        UpstreamOutput {
            warning: instruction_like(&text).map(|found| warning(upstream, &found)),
            tool,
            data,
            text,
            is_json,
            image,
            unshown,
            image_names,
            is_plain,
            notes,
        }
    }
}

impl Serialize for UpstreamOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.data.serialize(serializer)
    }
}

impl Render for UpstreamOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            let mut rendition = Rendition::data();
            rendition.notes = self.notes.clone();
            if room.is_in_script() {
                rendition.withheld_bytes = Some(self.text.len() as u64);
                rendition.warning = self.warning.clone();
            } else {
                rendition.notes.extend(self.warning.clone());
            }
            if !self.is_plain && room.is_in_script() {
                // Images as text would cost more than they say.
                let mut lines = vec![self.text.clone()];
                lines.extend(self.image_names.iter().cloned());
                rendition.printed = Some(lines.join("\n"));
            }
            return Ok(rendition);
        }
        let kind = match self.is_json {
            true => ContentKind::Json,
            false => ContentKind::Text,
        };
        let ends = TextEnds {
            head: &self.text,
            tail: None,
            total_bytes: self.text.len() as u64,
            total_lines: self.text.lines().count() as u64,
            survey: None,
        };
        let found = room.condense(self.text.len(), |tokens| {
            preview::condense(self.tool, kind, &ends, PreviewPart::Whole, tokens)
        });
        let mut notes = self.notes.clone();
        notes.extend(self.warning.clone());
        if self.unshown > 0 {
            notes.push(format!("{} more images are not shown", self.unshown));
        }
        let mut receipt = Receipt::new();
        if found.truncated {
            receipt = receipt.note(format!(
                "{} of {} lines, {} bytes in all",
                found.shown,
                ends.total_lines,
                self.text.len()
            ));
            for crumb in &found.breadcrumbs {
                receipt = receipt.note(crumb.clone());
            }
        }
        let rest = found
            .truncated
            .then(|| Rest::bytes(KIND, self.text.as_bytes()).about("command", self.tool));
        let mut rendition = Rendition::text(found.body, receipt)
            .truncated(found.truncated)
            .rest(rest);
        rendition.notes = notes;
        rendition.image = self.image.clone();
        Ok(rendition)
    }
}

/// An image as a model is sent it.
fn scaled(data: &str, cancel: &CancelToken) -> std::result::Result<AnswerImage, String> {
    let bytes = STANDARD
        .decode(data.trim())
        .map_err(|_| "it is no base64".to_owned())?;
    let head = &bytes[..bytes.len().min(FileFormat::HEAD_BYTES)];
    let format = FileFormat::of("image", head).ok_or("its format is not known")?;
    let converted = convert(format, &bytes, &|| cancel.check().is_err());
    match converted.map_err(|fault| fault.to_string())? {
        Conversion::Image(ScaledImage {
            kind,
            width,
            height,
            bytes,
            ..
        }) => Ok(AnswerImage {
            mime_type: kind.mime_type(),
            width,
            height,
            bytes,
        }),
        Conversion::Text(_) => Err("it is a document".to_owned()),
    }
}
