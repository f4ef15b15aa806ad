//! Fuzz target: what this crate parses itself. The parsers of other crates are held by the process they run in.

use llmc_fuzz::{FuzzInput, check};

use crate::{Conversion, FileFormat, convert_here, word};

#[test]
fn document_texts() {
    check!("document_texts", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let is_xml = input.byte().is_multiple_of(2);
        let rest = input.rest();
        let document = if is_xml {
            word::read_xml(&String::from_utf8_lossy(rest)).ok()
        } else {
            match convert_here(FileFormat::Notebook, rest) {
                Ok(Conversion::Text(document)) => Some(document),
                _ => None,
            }
        };
        if let Some(document) = document {
            assert!(document.is_sound(), "{document:?}");
            for part in &document.parts {
                assert!(document.lines_of(&part.name).is_some() || document.text.is_empty());
            }
            let _ = FileFormat::of("a.docx", rest);
        }
    });
}
