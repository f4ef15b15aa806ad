//! What lines that say the same thing have in common.

use super::level::LogLevel;

/// The line with `<n>` for numbers and `<id>` for what looks like an identifier.
pub(super) fn template(line: &str) -> String {
    let mut out = String::new();
    pieces(line, |piece| out.push_str(piece));
    out
}

/// A number that lines of one kind share: a hash of the template, which need not be written down for it.
pub(super) fn fingerprint(line: &str, level: Option<LogLevel>) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ level.map_or(0, |level| level as u64 + 1);
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(PRIME).rotate_left(23);
    pieces(line, |piece| {
        let (eights, rest) = piece.as_bytes().as_chunks::<8>();
        for eight in eights {
            mix(u64::from_le_bytes(*eight));
        }
        // The length too, to distinguish a text that ends in zeroes from a shorter one.
        let tail = rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        mix(tail | (rest.len() as u64) << 56);
    });
    hash
}

/// The parts of a line's template, in order.
fn pieces(line: &str, mut each: impl FnMut(&str)) {
    const ID_LENGTH: usize = 8;
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (mut run, mut digits) = (0, 0);
        for byte in &bytes[at..] {
            if !byte.is_ascii_alphanumeric() {
                break;
            }
            run += 1;
            digits += usize::from(byte.is_ascii_digit());
        }
        if run == 0 {
            let plain = bytes[at..]
                .iter()
                .take_while(|b| !b.is_ascii_alphanumeric())
                .count();
            each(&line[at..at + plain]);
            at += plain;
            continue;
        }
        let word = &line[at..at + run];
        if digits == 0 {
            each(word);
        } else if digits == run {
            each("<n>");
        } else if run >= ID_LENGTH && word.bytes().all(|b| b.is_ascii_hexdigit()) {
            each("<id>");
        } else {
            for part in word
                .as_bytes()
                .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
            {
                match std::str::from_utf8(part) {
                    Ok(letters) if !part[0].is_ascii_digit() => each(letters),
                    _ => each("<n>"),
                }
            }
        }
        at += run;
    }
}

/// A template without the time at its start.
pub(super) fn without_time(template: &str) -> &str {
    let mut rest = template.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        let bare = word.replace("<n>", "");
        let time = word.contains("<n>") && bare.chars().all(|c| "TZ-:/.,+[]".contains(c));
        if !time {
            break;
        }
        rest = after.trim_start();
    }
    rest
}
