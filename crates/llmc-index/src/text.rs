//! Words of units, in tantivy: ranked search, and who mentions which name.
//!
//! Nothing is stored but a unit's number; text is always read from the file it came from. Code and documentation have
//! fields of their own, so a scope is a choice of fields and not a filter: a plain union of words is what tantivy can
//! search without looking at every match.

mod folder;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tantivy::collector::{DocSetCollector, TopDocs};
use tantivy::columnar::Column;
use tantivy::indexer::{IndexWriterOptions, NoMergePolicy};
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{TextAnalyzer, WhitespaceTokenizer};
use tantivy::{
    Index, IndexReader, IndexSettings, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, Term,
};

use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::words::WordTokenizer;
use folder::{Folder, For, Refusal};

/// Memory for indexing when much is new, and when little is.
const LARGE_ARENA: usize = 64 << 20;
const SMALL_ARENA: usize = 16 << 20;

/// A text part up to this size is checked whole when it is opened; a larger one when somebody asks for it.
const CHECKED_AT_ONCE: u64 = 32 << 20;

/// The three places where a word can stand in a unit, and what it counts there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Name,
    Path,
    Text,
}

impl Place {
    pub(crate) const ALL: [Place; 3] = [Self::Name, Self::Path, Self::Text];

    pub(crate) fn weight(self) -> f32 {
        match self {
            Self::Name => 2.0,
            Self::Path => 0.5,
            Self::Text => 1.0,
        }
    }
}

/// How a unit uses a name, as the first letter of the term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Call,
    Import,
    Inherit,
    Mention,
}

impl Use {
    pub(crate) const ALL: [Use; 4] = [Self::Call, Self::Import, Self::Inherit, Self::Mention];

    pub(crate) fn letter(self) -> char {
        match self {
            Self::Call => 'c',
            Self::Import => 'i',
            Self::Inherit => 'h',
            Self::Mention => 'm',
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Fields {
    unit: Field,
    file: Field,
    /// By realm and place.
    words: [[Field; 3]; 2],
    uses: Field,
}

impl Fields {
    fn schema() -> (Schema, Fields) {
        let mut schema = Schema::builder();
        let text = |tokenizer: &str, record, norms| {
            let indexing = TextFieldIndexing::default()
                .set_tokenizer(tokenizer)
                .set_index_option(record)
                .set_fieldnorms(norms);
            TextOptions::default().set_indexing_options(indexing)
        };
        let words = text("words", IndexRecordOption::WithFreqs, true);
        let uses = text("uses", IndexRecordOption::Basic, false);
        let fields = Fields {
            unit: schema.add_u64_field("unit", FAST),
            file: schema.add_u64_field("file", INDEXED),
            words: [
                ["name", "path", "text"].map(|name| schema.add_text_field(name, words.clone())),
                ["docs_name", "docs_path", "docs_text"]
                    .map(|name| schema.add_text_field(name, words.clone())),
            ],
            uses: schema.add_text_field("uses", uses),
        };
        (schema.build(), fields)
    }

    fn word(&self, realm: Realm, place: Place) -> Field {
        self.words[realm as usize][place as usize]
    }
}

/// The text part of an index, open.
pub(crate) struct TextIndex {
    index: Index,
    /// Opened by the first search: who only writes would keep files alive that are long merged.
    reader: OnceLock<IndexReader>,
    fields: Fields,
    dir: PathBuf,
    refusal: Refusal,
}

/// What a unit has to say, ready for the index.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) text: String,
    /// Terms of the names it uses, with blanks between.
    pub(crate) uses: String,
}

impl TextIndex {
    /// Opens what is there; [`Error::Missing`] if nothing is.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let directory = Folder::open(dir, For::Searching).ok_or(Error::Missing)?;
        if !Index::exists(&directory).map_err(|_| Error::Missing)? {
            return Err(Error::Missing);
        }
        let refusal = directory.refusal();
        let opened = Self::with(Index::open(directory)?, dir, refusal)?;
        let size = |entry: std::fs::DirEntry| entry.metadata().map_or(0, |found| found.len());
        let bytes: u64 = std::fs::read_dir(dir)?.flatten().map(size).sum();
        if bytes <= CHECKED_AT_ONCE && !opened.is_sound()? {
            return Err(Error::Damaged("its text part is corrupt".into()));
        }
        Ok(opened)
    }

    /// Whether every byte is as it was written.
    pub(crate) fn is_sound(&self) -> Result<bool> {
        // Mapped, since a file is looked at in one piece.
        let mapped = Folder::open(&self.dir, For::Writing).ok_or(Error::Missing)?;
        Ok(Index::open(mapped)?.validate_checksum()?.is_empty())
    }

    /// Opens or makes it.
    pub(crate) fn open_or_make(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let directory = Folder::open(dir, For::Writing)
            .ok_or_else(|| Error::Unwritable("its folder cannot be opened".into()))?;
        let refusal = directory.refusal();
        let (schema, _) = Fields::schema();
        let settings = IndexSettings::default();
        if Index::exists(&directory).map_err(tantivy::TantivyError::from)? {
            Self::with(Index::open(directory)?, dir, refusal)
        } else {
            Self::with(Index::create(directory, schema, settings)?, dir, refusal)
        }
    }

    fn with(mut index: Index, dir: &Path, refusal: Refusal) -> Result<Self> {
        let (schema, fields) = Fields::schema();
        if index.schema() != schema {
            return Err(Error::Damaged("another version wrote it".into()));
        }
        // Documents hold nothing but numbers; compressing them would only cost time.
        index.settings_mut().docstore_compression = tantivy::store::Compressor::None;
        let tokenizers = index.tokenizers();
        tokenizers.register("words", TextAnalyzer::from(WordTokenizer));
        tokenizers.register("uses", TextAnalyzer::from(WhitespaceTokenizer::default()));
        Ok(Self {
            index,
            reader: OnceLock::new(),
            fields,
            dir: dir.to_owned(),
            refusal,
        })
    }

    fn reader(&self) -> Result<&IndexReader> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let reader = self
            .index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(0)
            .try_into()?;
        Ok(self.reader.get_or_init(|| reader))
    }

    /// The generation of the last commit; `None` before the first.
    pub(crate) fn generation(&self) -> Result<Option<i64>> {
        let payload = self.index.load_metas()?.payload;
        Ok(payload.and_then(|text| text.parse().ok()))
    }

    /// Looks for later commits.
    pub(crate) fn reload(&self) -> Result<()> {
        Ok(self.reader()?.reload()?)
    }

    pub(crate) fn searcher(&self) -> Result<TextSearcher> {
        Ok(TextSearcher {
            searcher: self.reader()?.searcher(),
            fields: self.fields,
        })
    }

    /// In how many pieces it lies; each of them is searched by itself.
    pub(crate) fn pieces(&self) -> Result<usize> {
        Ok(self.index.searchable_segment_metas()?.len())
    }

    pub(crate) fn writer(&self, size: Size) -> Result<TextWriter> {
        let arena = match size {
            Size::Build => LARGE_ARENA,
            Size::Update | Size::Few => SMALL_ARENA,
        };
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(arena)
            .build();
        self.refusal.forget();
        let writer = self.index.writer_with_options(options)?;
        match size {
            Size::Few => writer.set_merge_policy(Box::new(NoMergePolicy)),
            Size::Build | Size::Update => {
                let mut policy = tantivy::merge_policy::LogMergePolicy::default();
                policy.set_min_num_segments(6);
                writer.set_merge_policy(Box::new(policy));
            }
        }
        Ok(TextWriter {
            writer,
            fields: self.fields,
            refusal: self.refusal.clone(),
        })
    }
}

/// What is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Everything.
    Build,
    /// What has changed in the whole tree.
    Update,
    /// A few files, at once: pieces are left as they are, and joined when there is time.
    Few,
}

pub(crate) struct TextWriter {
    writer: IndexWriter,
    fields: Fields,
    refusal: Refusal,
}

impl TextWriter {
    pub(crate) fn add(&self, file: u64, unit: u64, realm: Realm, words: Words) -> Result<()> {
        let fields = &self.fields;
        let mut doc = TantivyDocument::default();
        doc.add_u64(fields.file, file);
        doc.add_u64(fields.unit, unit);
        doc.add_text(fields.word(realm, Place::Name), words.name);
        doc.add_text(fields.word(realm, Place::Path), words.path);
        doc.add_text(fields.word(realm, Place::Text), words.text);
        doc.add_text(fields.uses, words.uses);
        let added = self.writer.add_document(doc);
        added
            .map(|_| ())
            .map_err(|error| self.refusal.behind(error))
    }

    pub(crate) fn remove(&self, file: u64) {
        self.writer
            .delete_term(Term::from_field_u64(self.fields.file, file));
    }

    pub(crate) fn commit(&mut self, generation: i64) -> Result<()> {
        let done = self.writer.prepare_commit().and_then(|mut commit| {
            commit.set_payload(&generation.to_string());
            commit.commit()
        });
        done.map(|_| ()).map_err(|error| self.refusal.behind(error))
    }

    /// Waits for the merging of segments.
    pub(crate) fn finish(self) -> Result<()> {
        let refusal = self.refusal;
        let done = self.writer.wait_merging_threads();
        done.map_err(|error| refusal.behind(error))
    }
}

/// One consistent view of the text part.
pub(crate) struct TextSearcher {
    searcher: Searcher,
    fields: Fields,
}

/// A word that is looked for, and how much it counts.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) word: String,
    pub(crate) weight: f32,
}

impl TextSearcher {
    /// How many units there are.
    pub(crate) fn units(&self) -> u64 {
        self.searcher.num_docs()
    }

    /// How many units have this word in this place.
    pub(crate) fn with_word(&self, realm: Realm, place: Place, word: &str) -> u64 {
        let term = Term::from_field_text(self.fields.word(realm, place), word);
        self.searcher.doc_freq(&term).unwrap_or(0)
    }

    /// How many words stand in this place on the average, over all units.
    pub(crate) fn average(&self, realm: Realm, place: Place) -> f32 {
        let field = self.fields.word(realm, place);
        let segments = self.searcher.segment_readers().iter();
        let words: u64 = segments
            .filter_map(|segment| segment.inverted_index(field).ok())
            .map(|words| words.total_num_tokens())
            .sum();
        words as f32 / (self.units().max(1) as f32)
    }

    /// The units in which these words count most, with their scores, best first.
    pub(crate) fn best(
        &self,
        realms: &[Realm],
        wanted: &[Wanted],
        limit: usize,
    ) -> Result<Vec<(f32, u64)>> {
        let mut parts: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for realm in realms {
            for place in Place::ALL {
                let field = self.fields.word(*realm, place);
                for wanted in wanted {
                    let term = Term::from_field_text(field, &wanted.word);
                    let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
                    let weight = place.weight() * wanted.weight;
                    parts.push((
                        Occur::Should,
                        Box::new(BoostQuery::new(Box::new(query), weight)),
                    ));
                }
            }
        }
        let collector = TopDocs::with_limit(limit.max(1)).order_by_score();
        let found = self
            .searcher
            .search(&BooleanQuery::new(parts), &collector)?;
        let columns = self.unit_columns()?;
        let units = found.into_iter().filter_map(|(score, doc)| {
            let column = columns.get(doc.segment_ord as usize)?;
            Some((score, column.first(doc.doc_id)?))
        });
        Ok(units.collect())
    }

    /// How many units use a name.
    pub(crate) fn users_count(&self, name: &str) -> u64 {
        let terms = Use::ALL.iter().map(|how| self.use_term(*how, name));
        terms
            .map(|term| self.searcher.doc_freq(&term).unwrap_or(0))
            .sum()
    }

    /// The units that use a name in one of these ways.
    pub(crate) fn users(&self, hows: &[Use], name: &str) -> Result<Vec<u64>> {
        let parts = hows.iter().map(|how| {
            let query = TermQuery::new(self.use_term(*how, name), IndexRecordOption::Basic);
            (Occur::Should, Box::new(query) as Box<dyn Query>)
        });
        let query = BooleanQuery::new(parts.collect());
        let found = self.searcher.search(&query, &DocSetCollector)?;
        let columns = self.unit_columns()?;
        let units = found.into_iter().filter_map(|doc| {
            let column = columns.get(doc.segment_ord as usize)?;
            column.first(doc.doc_id)
        });
        let mut units: Vec<u64> = units.collect();
        units.sort_unstable();
        Ok(units)
    }

    /// How many uses of names are known.
    pub(crate) fn edges(&self) -> u64 {
        let segments = self.searcher.segment_readers().iter();
        segments
            .filter_map(|segment| segment.inverted_index(self.fields.uses).ok())
            .map(|uses| uses.total_num_tokens())
            .sum()
    }

    fn use_term(&self, how: Use, name: &str) -> Term {
        Term::from_field_text(self.fields.uses, &format!("{}{name}", how.letter()))
    }

    fn unit_columns(&self) -> Result<Vec<Column<u64>>> {
        let segments = self.searcher.segment_readers().iter();
        let columns = segments.map(|segment| segment.fast_fields().u64("unit"));
        Ok(columns.collect::<tantivy::Result<_>>()?)
    }
}
