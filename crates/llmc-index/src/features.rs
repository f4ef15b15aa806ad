//! What is known of a candidate as numbers, and how much each counts.
//!
//! The strength of a unit is `exp` of the sum of its features, each times its weight in [`WEIGHTS`]. `bench/rag/train/rank.py`
//! learns the weights from documentation and the functions it belongs to, and from messages of commits and the files they
//! changed; features that such questions do not have are weighted by hand. `llmc rag search --explain` shows the terms.

/// One number about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// The logarithm of the BM25 share: 0 for a perfect unit, that of [`NO_WORDS_SHARE`] where nothing matches.
    Words,
    /// The part of that share that its name has.
    NameWords,
    /// The cosine of the question's and the unit's vector, less [`USUAL_COSINE`]; 0 without vectors.
    Near,
    /// The cosine by a provider's vectors.
    ProviderNear,
    /// The share of the question's rarity whose words it has.
    Coverage,
    /// The share of the question's pairs of words that it has.
    Adjacent,
    /// 1 if the question has its name, written as code.
    Named,
    /// 1 if a word of the question is its whole name; less, as the next one and `Users`, where it covers little of the question.
    PlainName,
    /// The share of its name's words that the question has, by their rarity among the candidates' names.
    NameAsked,
    /// The share of the question's rarity that its name has.
    AskedInName,
    /// 1 for a test, unless the question is about tests.
    Test,
    /// 1 for vendored or generated code.
    Foreign,
    /// 1 for a generated page of documentation.
    ForeignPage,
    /// 1 for a type, a module, a window of text.
    Type,
    Module,
    Text,
    /// The logarithm of how many units use its name.
    Users,
    /// 1 if it holds the question word for word.
    Verbatim,
    /// The logarithm of 1 and three times the share of a quoted text that it holds.
    Quote,
    /// 1 if the question names its file.
    FileNamed,
    /// Its place among the candidates by words, cosine, coverage and adjacent words: see [`Features::set_place`].
    WordsPlace,
    NearPlace,
    CoveragePlace,
    AdjacentPlace,
    /// The logarithm of 1 and the strength of the other candidates of its file, measured by the best candidate's.
    SameFile,
    /// 1 for lines of a C or C++ header that define neither a type nor a function.
    Declared,
}

/// The weights, with the names that `--explain` shows.
pub(crate) const WEIGHTS: [(Feature, &str, f32); 26] = [
    (Feature::Words, "words", 1.0),
    (Feature::NameWords, "name_words", -0.1),
    (Feature::Near, "near", 3.6),
    (Feature::ProviderNear, "provider_near", 1.5),
    (Feature::Coverage, "coverage", 1.1),
    (Feature::Adjacent, "adjacent", 0.5),
    (Feature::Named, "named", 0.8),
    (Feature::PlainName, "plain_name", 0.2),
    (Feature::NameAsked, "name_asked", 0.4),
    (Feature::AskedInName, "asked_in_name", -0.1),
    (Feature::Test, "test", -0.7),
    (Feature::Foreign, "foreign", -0.8),
    (Feature::ForeignPage, "foreign_page", -0.8),
    (Feature::Type, "type", -0.5),
    (Feature::Module, "module", -0.1),
    (Feature::Text, "text", -0.2),
    (Feature::Users, "users", 0.04),
    (Feature::Verbatim, "verbatim", 0.5),
    (Feature::Quote, "quote", 3.0),
    (Feature::FileNamed, "file_named", 1.0),
    (Feature::WordsPlace, "words_place", 0.5),
    (Feature::NearPlace, "near_place", 1.0),
    (Feature::CoveragePlace, "coverage_place", 0.7),
    (Feature::AdjacentPlace, "adjacent_place", 0.5),
    (Feature::SameFile, "same_file", 0.3),
    (Feature::Declared, "declared", -1.0),
];

/// Features that also count by place.
pub(crate) const PLACES: [(Feature, Feature); 4] = [
    (Feature::Words, Feature::WordsPlace),
    (Feature::Near, Feature::NearPlace),
    (Feature::Coverage, Feature::CoveragePlace),
    (Feature::Adjacent, Feature::AdjacentPlace),
];
/// A candidate with as many better ones as this counts half as much as the best.
const HALF_PLACE: f32 = 5.0;
/// Sets the scale of the scores that answers show.
const BIAS: f32 = -1.2;

/// A unit in which nothing matches has the strength of one with this BM25 share.
const NO_WORDS_SHARE: f32 = 0.03;

/// The cosine of a unit that is about the subject of a question.
const USUAL_COSINE: f32 = 0.4;

/// The features of one candidate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Features([f32; WEIGHTS.len()]);

impl Features {
    pub(crate) fn set(&mut self, feature: Feature, value: f32) {
        self.0[feature as usize] = value;
    }

    pub(crate) fn set_words(&mut self, share: f32) {
        let share = share.clamp(0.0, 1.0);
        self.set(
            Feature::Words,
            ((share + NO_WORDS_SHARE) / (1.0 + NO_WORDS_SHARE)).ln(),
        );
    }

    pub(crate) fn set_cosine(&mut self, cosine: f32) {
        self.set(Feature::Near, cosine.max(0.0) - USUAL_COSINE);
    }

    /// How far it is behind the best of a feature: 0 for the best, towards -1 with the number of better candidates. The best
    /// of a search counts for being it, however small its lead.
    pub(crate) fn set_place(&mut self, feature: Feature, better: usize) {
        self.set(feature, HALF_PLACE / (HALF_PLACE + better as f32) - 1.0);
    }

    pub(crate) fn get(&self, feature: Feature) -> f32 {
        self.0[feature as usize]
    }

    pub(crate) fn strength(&self) -> f32 {
        let terms = self.0.iter().zip(WEIGHTS);
        let sum: f32 = terms.map(|(value, (_, _, weight))| value * weight).sum();
        (BIAS + sum).exp()
    }

    /// Those that are not 0, the largest effect first: name, value, what it adds.
    pub(crate) fn reasons(&self) -> Vec<(&'static str, f32, f32)> {
        let terms = self.0.iter().zip(WEIGHTS);
        let mut reasons: Vec<(&'static str, f32, f32)> = terms
            .filter(|(value, _)| **value != 0.0)
            .map(|(value, (_, name, weight))| (name, *value, value * weight))
            .collect();
        reasons.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_stand_at_the_place_of_their_feature() {
        for (place, (feature, name, _)) in WEIGHTS.iter().enumerate() {
            assert_eq!(*feature as usize, place, "{name}");
        }
    }

    #[test]
    fn reasons_are_the_terms_of_the_strength() {
        let mut features = Features::default();
        features.set_words(0.4);
        features.set(Feature::Near, 0.5);
        features.set(Feature::Test, 1.0);
        assert_eq!(features.get(Feature::Near), 0.5);
        let reasons = features.reasons();
        assert_eq!(reasons.len(), 3);
        let sum: f32 = reasons.iter().map(|(_, _, adds)| adds).sum();
        assert!(((BIAS + sum).exp() - features.strength()).abs() < 1e-5);
        assert!(reasons.is_sorted_by(|a, b| a.2.abs() >= b.2.abs()));
    }
}
