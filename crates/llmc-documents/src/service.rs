//! Where files are converted: in a confined process, which the program sets up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::{Conversion, ConversionFault, FileFormat};
use crate::{notebook, package, pdf, picture, sheets};

/// Converts a file in another process; the function says whether to give up.
pub type ConversionService = dyn Fn(FileFormat, &[u8], &dyn Fn() -> bool) -> Result<Conversion, ConversionFault>
    + Send
    + Sync;

static SERVICE: OnceLock<Box<ConversionService>> = OnceLock::new();

/// Sets where this process converts; only the first call has an effect.
pub fn set_conversion_service(
    service: impl Fn(FileFormat, &[u8], &dyn Fn() -> bool) -> Result<Conversion, ConversionFault>
    + Send
    + Sync
    + 'static,
) {
    let _ = SERVICE.set(Box::new(service));
}

/// Converts a file where the program has said.
///
/// # Errors
/// [`ConversionFault::Unavailable`] in a program that has set no service: nothing is parsed in the calling process.
pub fn convert(
    format: FileFormat,
    bytes: &[u8],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Conversion, ConversionFault> {
    match SERVICE.get() {
        Some(service) => service(format, bytes, is_cancelled),
        None => Err(ConversionFault::Unavailable(
            "this program has set up none".to_owned(),
        )),
    }
}

/// Converts a file in this process. For confined processes and tests: a hostile file can end it.
///
/// # Errors
/// The file is encrypted, damaged, too large or no document.
pub fn convert_here(format: FileFormat, bytes: &[u8]) -> Result<Conversion, ConversionFault> {
    if bytes.len() > crate::MAX_DOCUMENT_BYTES {
        return Err(ConversionFault::TooLarge(too_large_message(
            bytes.len() as u64
        )));
    }
    let convert = || match format {
        FileFormat::Pdf => pdf::read(bytes).map(Conversion::Text),
        FileFormat::Package => package::read(bytes).map(Conversion::Text),
        FileFormat::Compound => sheets::read_compound(bytes).map(Conversion::Text),
        FileFormat::Notebook => notebook::read(bytes).map(Conversion::Text),
        FileFormat::Image => picture::scale(bytes).map(Conversion::Image),
    };
    // Parsers of damaged files panic; the process itself is still sound.
    catch_unwind(AssertUnwindSafe(convert))
        .unwrap_or_else(|_| Err(ConversionFault::Damaged("its parser gave up".to_owned())))
}

/// What is said of a file above [`MAX_DOCUMENT_BYTES`](crate::MAX_DOCUMENT_BYTES).
pub(crate) fn too_large_message(bytes: u64) -> String {
    let most = crate::MAX_DOCUMENT_BYTES >> 20;
    format!("it has {bytes} bytes, and only files up to {most} MiB are converted")
}
