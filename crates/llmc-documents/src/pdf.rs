//! The text of a PDF, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, PlainTextOutput, output_doc_page};

use crate::parts::PartsText;
use crate::{ConversionFault, DocumentKind, DocumentText, PartUnit};

pub(crate) fn read(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let mut document = Document::load_mem(bytes).map_err(ConversionFault::damaged)?;
    // Many files are encrypted with the empty password, which only asks viewers not to print.
    if document.is_encrypted() && document.decrypt("").is_err() {
        return Err(ConversionFault::Encrypted);
    }
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    if pages.is_empty() {
        return Err(ConversionFault::damaged("it has no pages"));
    }
    let mut parts = PartsText::new(DocumentKind::Pdf, PartUnit::Page);
    for page in &pages {
        if parts.is_full() {
            break;
        }
        let heading = format!("page {page} of {}", pages.len());
        parts.begin(
            page.to_string(),
            (pages.len() > 1).then_some(heading.as_str()),
        );
        // The extractor panics on some pages; the others are as good as before.
        let text = catch_unwind(AssertUnwindSafe(|| page_text(&document, *page)));
        match text.as_ref().map(|text| text.as_deref().map(str::trim)) {
            Ok(Ok("")) => parts.line("(no text on this page; it may be a scanned picture)"),
            Ok(Ok(text)) => parts.lines(text),
            _ => parts.line("(this page cannot be read)"),
        }
    }
    Ok(parts.finish())
}

fn page_text(document: &Document, page: u32) -> Result<String, pdf_extract::OutputError> {
    let mut text = String::new();
    let mut output = PlainTextOutput::new(&mut text);
    output_doc_page(document, &mut output, page)?;
    Ok(text)
}
