//! The trigrams of a text.

/// Different trigrams.
const TRIGRAMS: usize = 1 << 24;

/// Lower case for the letters of ASCII, every other byte as it is.
pub(crate) const FOLDED: [u8; 256] = folded();

const fn folded() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).to_ascii_lowercase();
        byte += 1;
    }
    table
}

/// Finds the trigrams of one text after another; keeps two megabytes for that.
#[derive(Debug)]
pub struct TrigramExtractor {
    /// One bit for each trigram of the text; all zero between two texts.
    seen: Vec<u64>,
    found: Vec<u32>,
}

impl Default for TrigramExtractor {
    fn default() -> Self {
        Self {
            seen: vec![0; TRIGRAMS / 64],
            found: Vec::new(),
        }
    }
}

impl TrigramExtractor {
    /// Every trigram of the text once. None spans a line end, since no match does.
    pub fn of(&mut self, text: &[u8]) -> &[u32] {
        self.found.clear();
        let mut window = 0_u32;
        let mut bytes = 0_u32;
        for byte in text {
            if *byte == b'\n' {
                bytes = 0;
                continue;
            }
            window = (window << 8 | u32::from(FOLDED[usize::from(*byte)])) & 0x00ff_ffff;
            bytes += 1;
            if bytes >= 3 {
                let word = &mut self.seen[(window >> 6) as usize];
                let bit = 1 << (window & 63);
                if *word & bit == 0 {
                    *word |= bit;
                    self.found.push(window);
                }
            }
        }
        for trigram in &self.found {
            self.seen[(trigram >> 6) as usize] = 0;
        }
        &self.found
    }
}

/// The trigram of three bytes that are folded already.
pub(crate) fn trigram(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |window, byte| window << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trigram_once_folded_and_within_lines() {
        let mut extractor = TrigramExtractor::default();
        let mut texts = |text: &str| -> Vec<String> {
            let found = extractor.of(text.as_bytes());
            let text =
                |trigram: &u32| String::from_utf8_lossy(&trigram.to_be_bytes()[1..]).into_owned();
            found.iter().map(text).collect()
        };
        assert_eq!(texts("Abcab\ncABC\r\nxy\nz"), ["abc", "bca", "cab", "bc\r"]);
        assert_eq!(texts("xx\nyy"), Vec::<String>::new());
        assert_eq!(texts("aaaaaa"), ["aaa"]);
    }
}
