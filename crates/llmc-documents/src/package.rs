//! ZIP packages of XML: which document one holds, and its XML in reading order.

use std::borrow::Cow;
use std::io::{Cursor, Read};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::{ConversionFault, DocumentText, open_document, sheets, slides, word};

/// The most bytes of XML that one file of a package unpacks to.
const MAX_XML_BYTES: usize = 48 << 20;
/// Elements inside each other; real documents have a few dozen.
const MAX_DEPTH: usize = 512;

/// Reads the document that a package holds, whatever its name says.
pub(crate) fn read(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let mut package = Package::open(bytes)?;
    if package.has("word/document.xml") {
        return word::read(&mut package);
    }
    if package.has("ppt/presentation.xml") {
        return slides::read(&mut package);
    }
    if package.has("xl/workbook.xml") || package.has("xl/workbook.bin") {
        return sheets::read_workbook(bytes);
    }
    let media_type = package.text("mimetype")?.unwrap_or_default();
    let Some(kind) = media_type
        .trim()
        .strip_prefix("application/vnd.oasis.opendocument.")
    else {
        return Err(ConversionFault::Unknown);
    };
    if package
        .text("META-INF/manifest.xml")?
        .is_some_and(|manifest| manifest.contains(":encryption-data"))
    {
        return Err(ConversionFault::Encrypted);
    }
    match kind.trim_end_matches("-template") {
        "spreadsheet" => sheets::read_open_sheet(bytes),
        "text" => open_document::read_text(&mut package),
        "presentation" => open_document::read_slides(&mut package),
        _ => Err(ConversionFault::Unknown),
    }
}

/// An opened ZIP archive.
pub(crate) struct Package<'b> {
    archive: ZipArchive<Cursor<&'b [u8]>>,
}

impl<'b> Package<'b> {
    fn open(bytes: &'b [u8]) -> Result<Package<'b>, ConversionFault> {
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(fault)?;
        Ok(Package { archive })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(name).is_some()
    }

    /// A file of the package as text; `None` where there is none of that name.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ConversionFault> {
        let file = match self.archive.by_name(name) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(fault(error)),
        };
        let mut bytes = Vec::new();
        // The size that the archive states may be a lie.
        file.take(MAX_XML_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(ConversionFault::damaged)?;
        if bytes.len() > MAX_XML_BYTES {
            let most = MAX_XML_BYTES >> 20;
            return Err(ConversionFault::TooLarge(format!(
                "{name} in it unpacks to more than {most} MiB"
            )));
        }
        Ok(Some(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }))
    }

    /// The same of a file without which there is no document.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, ConversionFault> {
        self.text(name)?
            .ok_or_else(|| ConversionFault::damaged(format!("{name} is missing")))
    }
}

fn fault(error: ZipError) -> ConversionFault {
    match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => ConversionFault::Encrypted,
        error => ConversionFault::damaged(error),
    }
}

/// One step through XML; names are without their prefixes.
pub(crate) enum XmlStep<'x> {
    Open(XmlElement<'x>),
    Close(&'x str),
    Text(Cow<'x, str>),
}

/// An element that begins.
pub(crate) struct XmlElement<'x> {
    start: &'x BytesStart<'x>,
}

impl<'x> XmlElement<'x> {
    pub(crate) fn name(&self) -> &'x str {
        self.start.local_name().into_inner()
    }

    /// An attribute's value by its name without prefix.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        let found = self
            .start
            .attributes()
            .with_checks(false)
            .flatten()
            .find(|attribute| attribute.key.local_name().as_ref() == name)?;
        Some(match quick_xml::escape::unescape(&found.value) {
            Ok(value) => value.into_owned(),
            Err(_) => found.value.into_owned(),
        })
    }

    /// The id of a relation, which shares its name with other ids but has a prefix.
    pub(crate) fn relation(&self) -> Option<String> {
        let found = self
            .start
            .attributes()
            .with_checks(false)
            .flatten()
            .find(|attribute| {
                let name: &str = attribute.key.as_ref();
                name.ends_with(":id")
            })?;
        Some(found.value.into_owned())
    }
}

/// Walks through XML until it ends or `visit` returns `false`. Entities that a document declares are not expanded.
pub(crate) fn walk_xml(
    xml: &str,
    mut visit: impl FnMut(XmlStep<'_>) -> bool,
) -> Result<(), ConversionFault> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().expand_empty_elements = true;
    let mut depth = 0_usize;
    loop {
        let event = reader.read_event().map_err(ConversionFault::damaged)?;
        let goes_on = match &event {
            Event::Start(start) => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(ConversionFault::damaged(
                        "its elements are nested too deeply",
                    ));
                }
                visit(XmlStep::Open(XmlElement { start }))
            }
            Event::End(end) => {
                depth = depth.saturating_sub(1);
                visit(XmlStep::Close(end.local_name().into_inner()))
            }
            Event::Text(text) => visit(XmlStep::Text(text.xml10_content())),
            Event::CData(text) => visit(XmlStep::Text(text.xml10_content())),
            Event::GeneralRef(reference) => {
                let char = reference.resolve_char_ref().ok().flatten();
                match char {
                    Some(char) => visit(XmlStep::Text(char.to_string().into())),
                    None => visit(XmlStep::Text(named_entity(reference))),
                }
            }
            Event::Eof => return Ok(()),
            _ => true,
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// The five entities of XML; any other stays as it is written.
fn named_entity(name: &str) -> Cow<'static, str> {
    match quick_xml::escape::resolve_xml_entity(name) {
        Some(text) => text.into(),
        None => format!("&{name};").into(),
    }
}
