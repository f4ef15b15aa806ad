//! The text of documents, and images scaled for a model.
//!
//! Pure functions from a file's bytes to plain data. The crate must not know files, processes or tools. What it parses was
//! written by strangers, and its parsers can panic, loop or take much memory on purpose-made files: the program runs
//! [`convert_here`] in a confined process only and reaches it through [`convert`], which refuses without one.
//!
//! Parts: `format` recognises a file by its first bytes, `conversion` is what comes out, `service` where converting happens,
//! `parts` assembles text from pages, sheets or cells. `package` opens ZIP packages of XML; `pdf`, `word`, `slides`,
//! `open_document`, `sheets` (with `short_cells`) and `notebook` read one kind of document each, `picture` scales images.

mod conversion;
mod format;
#[cfg(test)]
mod fuzz;
mod notebook;
mod open_document;
mod package;
mod parts;
mod pdf;
mod picture;
mod service;
mod sheets;
mod short_cells;
mod slides;
mod word;

pub use conversion::{
    Conversion, ConversionFault, DocumentKind, DocumentPart, DocumentText, ImageKind, PartUnit,
    ScaledImage,
};
pub use format::FileFormat;
pub use service::{ConversionService, convert, convert_here, set_conversion_service};

/// Larger files are not converted.
pub const MAX_DOCUMENT_BYTES: usize = 32 << 20;
/// The longest text of a document; more is cut, and said to be.
pub const MAX_TEXT_BYTES: usize = 8 << 20;
/// The longest side of an image that a model gets.
pub const MAX_IMAGE_SIDE: u32 = 1568;
/// The most bytes of an image that a model gets.
pub const MAX_IMAGE_BYTES: usize = 3 << 20;
