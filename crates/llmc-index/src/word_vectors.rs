//! Vectors of words that are compiled into the executable: they tell that "remove" and `delete` mean the same.
//!
//! A text is the sum of the vectors of its words, each with a learned weight for the place where it stands: a word counts
//! differently in a question, in a name, in a path and in a text. That needs lookups and sums only, so every unit gets a
//! vector when it is indexed. Of that only the signs are kept ([`VectorCode`], 16 bytes): they choose candidates, whose
//! vectors are then computed again from their text. `bench/rag/train/` makes the table and documents its format.

use crate::classify::Realm;
use crate::words::each_word;

pub(crate) const DIMENSIONS: usize = 128;

static TABLE_BYTES: &[u8] = include_bytes!("../data/word_vectors.bin");
const MAGIC: &[u8] = b"LWV1";
const HEADER_BYTES: usize = 16;
const EMPTY_SLOT: u16 = u16::MAX;
/// An unknown word has the vector of its longest known beginning of at most and at least this many bytes.
const MAX_BEGINNING_BYTES: usize = 12;
const MIN_BEGINNING_BYTES: usize = 4;
/// The rest of such a word counts, too, if it is known and has this many bytes.
const MIN_REST_BYTES: usize = 3;
/// More words than this do not change the sum of a text.
const MAX_WORDS: usize = 4096;

/// Where a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordPlace {
    Question,
    Name,
    Path,
    Text,
}

impl WordPlace {
    const ALL: [WordPlace; 4] = [Self::Question, Self::Name, Self::Path, Self::Text];
}

/// The parts of the table, as byte ranges of the executable: nothing is allocated for it.
#[derive(Debug, Clone, Copy)]
struct WordTable {
    slots: &'static [u8],
    slot_mask: usize,
    starts: &'static [u8],
    weights: &'static [u8],
    rows: &'static [u8],
    letters: &'static [u8],
    scale: f32,
}

impl WordTable {
    fn compiled_in() -> WordTable {
        const {
            assert!(TABLE_BYTES.len() > HEADER_BYTES);
        }
        let number = |at: usize| u32_at(TABLE_BYTES, at) as usize;
        let (words, slots) = (number(4), number(12));
        debug_assert!(TABLE_BYTES.starts_with(MAGIC) && number(8) == DIMENSIONS);
        let (slot_bytes, rest) = TABLE_BYTES[HEADER_BYTES..].split_at(2 * slots);
        let (starts, rest) = rest.split_at(4 * (words + 1));
        let (weights, rest) = rest.split_at(8 * words);
        let (rows, rest) = rest.split_at(DIMENSIONS * words);
        let (letters, scale) = rest.split_at(rest.len() - 4);
        WordTable {
            slots: slot_bytes,
            slot_mask: slots - 1,
            starts,
            weights,
            rows,
            letters,
            scale: f32::from_bits(u32_at(scale, 0)),
        }
    }

    fn find(&self, word: &str) -> Option<u16> {
        let hash = word.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let mut slot = hash as usize & self.slot_mask;
        loop {
            let number = u16_at(self.slots, 2 * slot);
            if number == EMPTY_SLOT {
                return None;
            }
            let at = 4 * usize::from(number);
            let letters = u32_at(self.starts, at) as usize..u32_at(self.starts, at + 4) as usize;
            if self.letters.get(letters) == Some(word.as_bytes()) {
                return Some(number);
            }
            slot = (slot + 1) & self.slot_mask;
        }
    }

    fn weight(&self, number: u16, place: WordPlace) -> f32 {
        let at = 8 * usize::from(number) + 2 * place as usize;
        self.scale * f32::from(u16_at(self.weights, at))
    }

    fn row(&self, number: u16) -> &'static [u8] {
        let at = DIMENSIONS * usize::from(number);
        &self.rows[at..at + DIMENSIONS]
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| {
        u32::from_le_bytes([four[0], four[1], four[2], four[3]])
    })
}

/// Adds up the words of a text.
#[derive(Debug)]
pub(crate) struct VectorSum {
    table: WordTable,
    /// The numbers of the words in each place.
    words: [Vec<u16>; 4],
}

impl VectorSum {
    pub(crate) fn new() -> VectorSum {
        VectorSum {
            table: WordTable::compiled_in(),
            words: Default::default(),
        }
    }

    /// Adds a word as [`each_word`] gives it.
    pub(crate) fn add(&mut self, place: WordPlace, word: &str) {
        let words = &mut self.words[place as usize];
        if words.len() >= MAX_WORDS {
            return;
        }
        if let Some(number) = self.table.find(word) {
            words.push(number);
            return;
        }
        let longest = word.len().saturating_sub(1).min(MAX_BEGINNING_BYTES);
        for end in (MIN_BEGINNING_BYTES..=longest).rev() {
            let Some((beginning, rest)) = word.split_at_checked(end) else {
                continue;
            };
            if let Some(number) = self.table.find(beginning) {
                words.push(number);
                if rest.len() >= MIN_REST_BYTES {
                    words.extend(self.table.find(rest));
                }
                return;
            }
        }
    }

    pub(crate) fn add_text(&mut self, place: WordPlace, text: &str) {
        each_word(text, |word| self.add(place, word));
    }

    /// The vector of what was added, and an empty sum again; `None` if no word is known.
    pub(crate) fn take(&mut self) -> Option<TextVector> {
        let mut sum = [0.0_f32; DIMENSIONS];
        for place in WordPlace::ALL {
            let words = &mut self.words[place as usize];
            words.sort_unstable();
            let different = words.chunk_by(|a, b| a == b).count();
            let share = 1.0 / (different.max(1) as f32).sqrt();
            for same in words.chunk_by(|a, b| a == b) {
                let often = 1.0 + (same.len() as f32).ln();
                let weight = share * often * self.table.weight(same[0], place);
                for (sum, byte) in sum.iter_mut().zip(self.table.row(same[0])) {
                    *sum += weight * f32::from(byte.cast_signed());
                }
            }
            words.clear();
        }
        let length = sum.iter().map(|n| n * n).sum::<f32>().sqrt();
        (length > 0.0).then(|| TextVector(Box::new(sum.map(|n| n / length))))
    }
}

/// A vector of length 1.
#[derive(Debug, Clone)]
pub(crate) struct TextVector(Box<[f32; DIMENSIONS]>);

impl TextVector {
    pub(crate) fn of_question(text: &str) -> Option<TextVector> {
        let mut sum = VectorSum::new();
        sum.add_text(WordPlace::Question, text);
        sum.take()
    }

    /// The cosine of the angle between both.
    pub(crate) fn near(&self, other: &TextVector) -> f32 {
        self.0.iter().zip(other.0.iter()).map(|(a, b)| a * b).sum()
    }

    pub(crate) fn code(&self, realm: Realm) -> VectorCode {
        let mut code = [0_u64; 2];
        for (at, value) in self.0.iter().enumerate().take(DIMENSIONS - 1) {
            code[at / 64] |= u64::from(*value > 0.0) << (at % 64);
        }
        code[1] |= u64::from(realm == Realm::Docs) << 63;
        VectorCode(code)
    }
}

/// The signs of a vector, without the last dimension; its bit tells the realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VectorCode(pub(crate) [u64; 2]);

impl VectorCode {
    /// Of a text without a known word: as far from one question as from another.
    pub(crate) fn unknown(realm: Realm) -> VectorCode {
        const EVERY_SECOND_BIT: u64 = 0x5555_5555_5555_5555;
        let realm = u64::from(realm == Realm::Docs) << 63;
        VectorCode([EVERY_SECOND_BIT, EVERY_SECOND_BIT | realm])
    }

    pub(crate) fn is_of(self, realms: &[Realm]) -> bool {
        let realm = match self.0[1] >> 63 {
            0 => Realm::Repo,
            _ => Realm::Docs,
        };
        realms.contains(&realm)
    }

    /// In how many signs both differ.
    pub(crate) fn distance(self, other: VectorCode) -> u32 {
        let [a, b] = [self.0[0] ^ other.0[0], (self.0[1] ^ other.0[1]) << 1];
        a.count_ones() + b.count_ones()
    }
}

/// About the cosine of two vectors whose codes differ in that many signs.
pub(crate) fn cosine_at(distance: u32) -> f32 {
    (std::f32::consts::PI * distance as f32 / (DIMENSIONS - 1) as f32).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, text: &str) -> TextVector {
        let mut sum = VectorSum::new();
        sum.add_text(WordPlace::Name, name);
        sum.add_text(WordPlace::Path, "src/store.rs");
        sum.add_text(WordPlace::Text, text);
        sum.take().expect("known words")
    }

    #[test]
    fn the_table_is_whole() {
        let table = WordTable::compiled_in();
        let words = table.weights.len() / 8;
        assert!(TABLE_BYTES.starts_with(MAGIC) && words > 10_000, "{words}");
        assert_eq!(u32_at(TABLE_BYTES, 8) as usize, DIMENSIONS);
        assert_eq!(
            u32_at(table.starts, 4 * words) as usize,
            table.letters.len()
        );
        for number in 0..u16::try_from(words).expect("u16") {
            let at = 4 * usize::from(number);
            let letters = u32_at(table.starts, at) as usize..u32_at(table.starts, at + 4) as usize;
            let word = std::str::from_utf8(&table.letters[letters]).expect("text");
            assert_eq!(table.find(word), Some(number), "{word}");
        }
        assert!(TABLE_BYTES.len() <= 4_000_000, "{}", TABLE_BYTES.len());
        assert_eq!(table.find("no such word"), None);
    }

    #[test]
    fn what_means_the_same_is_near_without_a_common_word() {
        let question =
            TextVector::of_question("remove a directory and everything in it").expect("known");
        let deletes = unit(
            "rmtree",
            "fn rmtree(path) { for entry in fs.readdir(path) { unlink(entry) } }",
        );
        let sorts = unit(
            "quicksort",
            "fn quicksort(items) { let pivot = items[0]; swap(items, pivot) }",
        );
        assert!(question.near(&deletes) > question.near(&sorts) + 0.1);
        let far = |unit: &TextVector| {
            let code = question.code(Realm::Repo);
            code.distance(unit.code(Realm::Docs))
        };
        assert!(far(&deletes) < far(&sorts));
    }

    #[test]
    fn texts_without_known_words_have_no_vector() {
        for text in ["", "?!", "漢字", "qqqqzzzz"] {
            assert!(TextVector::of_question(text).is_none(), "{text}");
        }
        let strange = "größenabhängig漢".repeat(3000);
        let _ = TextVector::of_question(&strange);
    }

    #[test]
    fn a_code_tells_the_realm() {
        let vector = unit("open", "open the file");
        for realm in [Realm::Repo, Realm::Docs] {
            for code in [vector.code(realm), VectorCode::unknown(realm)] {
                assert!(code.is_of(&[realm]));
                assert_eq!(
                    code.distance(vector.code(Realm::Repo)),
                    code.distance(vector.code(Realm::Docs))
                );
            }
        }
        assert_eq!(
            vector.code(Realm::Repo).distance(vector.code(Realm::Docs)),
            0
        );
        assert!((cosine_at(0) - 1.0).abs() < 1e-6);
    }
}
