//! What a file is, by its first bytes.
//!
//! This runs in the server and only compares bytes. A file name decides where bytes cannot: any ZIP archive may be a
//! document, and a notebook is JSON like any other.

use serde::{Deserialize, Serialize};

/// A file that can be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFormat {
    Pdf,
    /// A ZIP package: DOCX, XLSX, PPTX, ODT, ODS, ODP.
    Package,
    /// A compound file: XLS, or an encrypted DOCX, XLSX or PPTX.
    Compound,
    Notebook,
    Image,
}

/// Extensions of documents that are ZIP packages.
const PACKAGES: &[&str] = &[
    "docx", "docm", "dotx", "xlsx", "xlsm", "xltx", "xlsb", "pptx", "pptm", "odt", "ott", "ods",
    "ots", "odp",
];
/// Extensions of documents that may be compound files.
const COMPOUNDS: &[&str] = &[
    "xls", "docx", "docm", "xlsx", "xlsm", "xlsb", "pptx", "pptm",
];
/// How far into a file a PDF may begin.
const PDF_SEARCH_BYTES: usize = 1024;

impl FileFormat {
    /// How many bytes of a file's beginning [`FileFormat::of`] looks at.
    pub const HEAD_BYTES: usize = PDF_SEARCH_BYTES;

    /// The format of a file with this name and beginning; `None` for every other file.
    pub fn of(path: &str, head: &[u8]) -> Option<FileFormat> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        let extension = extension.unwrap_or_default().to_ascii_lowercase();
        let extension = extension.as_str();
        let head = &head[..head.len().min(PDF_SEARCH_BYTES)];
        let is_image = head.starts_with(b"\x89PNG\r\n\x1a\n")
            || head.starts_with(b"\xff\xd8\xff")
            || head.starts_with(b"GIF87a")
            || head.starts_with(b"GIF89a")
            || (head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP"));
        if is_image {
            Some(FileFormat::Image)
        } else if head.starts_with(b"%PDF-") || (extension == "pdf" && holds(head, b"%PDF-")) {
            Some(FileFormat::Pdf)
        } else if head.starts_with(b"PK\x03\x04") && PACKAGES.contains(&extension) {
            Some(FileFormat::Package)
        } else if head.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
            && COMPOUNDS.contains(&extension)
        {
            Some(FileFormat::Compound)
        } else if extension == "ipynb" && first_visible(head) == Some(b'{') {
            Some(FileFormat::Notebook)
        } else {
            None
        }
    }
}

fn holds(head: &[u8], wanted: &[u8]) -> bool {
    head.windows(wanted.len()).any(|window| window == wanted)
}

/// The first byte after white space and a byte order mark.
fn first_visible(head: &[u8]) -> Option<u8> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    head.iter()
        .copied()
        .find(|byte| !byte.is_ascii_whitespace())
}
