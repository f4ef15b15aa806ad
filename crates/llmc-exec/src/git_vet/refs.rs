//! Whether a file is a branch, or the log of one.
//!
//! Below `modules` a branch named `rebase-later` and the state of a rebase have paths of the same form. What reads as a
//! branch is harmless also as a configuration or as the state of an operation, because git refuses its first line. A
//! shell would run what follows in it, so in the place of a hook only the name of an object is harmless.

use super::FileKind;

/// Whether a text is what git writes for a ref or for its log, and harmless also if the file is what its name says.
pub(super) fn is_harmless_as(kind: FileKind<'_>, text: &[u8]) -> bool {
    match kind {
        FileKind::Config | FileKind::Operation { .. } | FileKind::Misplaced => {
            is_ref(text) || is_reflog(text)
        }
        _ => is_object_id(text.strip_suffix(b"\n").unwrap_or(text)),
    }
}

/// Whether a text is the name of an object, in full.
pub(super) fn is_object_id(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a text is the full name of a ref that git would accept.
pub(super) fn is_ref_name(text: &[u8]) -> bool {
    text.starts_with(b"refs/")
        && text.len() <= 1024
        && !text
            .iter()
            .any(|b| b.is_ascii_control() || b" ~^:?*[\\".contains(b))
        && !text
            .windows(2)
            .any(|pair| pair == b".." || pair == b"//" || pair == b"@{")
}

fn is_ref(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    is_object_id(text) || text.strip_prefix(b"ref: ").is_some_and(is_ref_name)
}

fn is_reflog(text: &[u8]) -> bool {
    super::lines_of(text).all(|line| {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        words.next().is_some_and(is_object_id)
            && words.next().is_some_and(is_object_id)
            && words.next().is_some()
    })
}
