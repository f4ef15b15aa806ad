//! What a file that is no text is.

/// The first bytes of formats, where they start, and what to call them.
const MAGIC: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
    (0, b"GIF8", "GIF image"),
    (8, b"WEBP", "WebP image"),
    (0, b"BM", "BMP image"),
    (0, b"II*\0", "TIFF image"),
    (0, b"MM\0*", "TIFF image"),
    (0, b"\0\0\x01\0", "icon"),
    (0, b"%PDF-", "PDF document"),
    (0, b"\x7fELF", "ELF program or library"),
    (0, b"MZ", "Windows program"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (0, b"\xca\xfe\xba\xbe", "Java class"),
    (0, b"\0asm", "WebAssembly module"),
    (0, b"!<arch>\n", "static library"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"PAR1", "Parquet table"),
    (0, b"ARROW1", "Arrow table"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x89HDF\r\n", "HDF5 data"),
    (0, b"PK\x03\x04", "ZIP archive"),
    (0, b"PK\x05\x06", "empty ZIP archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\x04\"M\x18", "LZ4 data"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (0, b"Rar!", "RAR archive"),
    (257, b"ustar", "tar archive"),
    (0, b"wOFF", "WOFF font"),
    (0, b"wOF2", "WOFF2 font"),
    (0, b"\0\x01\0\0", "TrueType font"),
    (0, b"OTTO", "OpenType font"),
    (0, b"ID3", "MP3 audio"),
    (0, b"OggS", "Ogg media"),
    (0, b"fLaC", "FLAC audio"),
    (8, b"WAVE", "WAV audio"),
    (8, b"AVI ", "AVI video"),
    (4, b"ftyp", "MP4 media"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska video"),
    (0, b"GGUF", "GGUF model"),
    (0, b"\x80\x02", "Python pickle"),
    (0, b"\x80\x04", "Python pickle"),
    (0, b"DIRC", "git index"),
    (0, b"PACK", "git pack"),
];

/// What it is called, with the dimensions of an image where they are easy to read.
pub(super) fn name(path: &str, head: &[u8]) -> String {
    let found = MAGIC
        .iter()
        .find(|(at, magic, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    let Some((_, _, name)) = found else {
        let extension = path
            .rsplit('/')
            .next()
            .and_then(|name| name.rsplit_once('.'))
            .filter(|(stem, extension)| {
                !stem.is_empty()
                    && extension.len() <= 8
                    && extension.bytes().all(|b| b.is_ascii_alphanumeric())
            });
        return match extension {
            Some((_, extension)) => format!("binary data (.{extension})"),
            None => "binary data".to_owned(),
        };
    };
    let number = |at: usize, big: bool, length: usize| {
        let bytes = head.get(at..at + length)?;
        let fold = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if big {
            bytes.iter().fold(0, fold)
        } else {
            bytes.iter().rev().fold(0, fold)
        })
    };
    let dimensions = match *name {
        "PNG image" => number(16, true, 4).zip(number(20, true, 4)),
        "GIF image" => number(6, false, 2).zip(number(8, false, 2)),
        _ => None,
    };
    match dimensions {
        Some((width, height)) => format!("{name}, {width}x{height}"),
        None => (*name).to_owned(),
    }
}

/// A size for people, exact in bytes.
pub(super) fn size(bytes: u64) -> String {
    match crate::entries::short_size(bytes) {
        short if short.ends_with(|c: char| c.is_ascii_digit()) => format!("{bytes} bytes"),
        short => format!("{short} ({bytes} bytes)"),
    }
}
