//! The text part, in tantivy: ranked search over the words of units, and which units use a name.
//!
//! Only a unit's number is stored; text is always read from its file. Code and documentation have separate fields, so a
//! scope is a choice of fields and not a filter: tantivy searches a plain union of words without visiting every match.

mod candidates;
mod directory;
mod tokens;

use std::path::Path;
use std::sync::OnceLock;

use tantivy::collector::DocSetCollector;
use tantivy::columnar::Column;
use tantivy::directory::{Directory, META_LOCK};
use tantivy::indexer::{AddOperation, IndexWriterOptions, NoMergePolicy, SegmentWriter};
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{
    Index, IndexReader, IndexSettings, IndexWriter, ReloadPolicy, Searcher, Segment,
    TantivyDocument, Term,
};

use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::word_vectors::VectorCode;
pub(crate) use candidates::{CandidateQuery, CandidateUnits};
use directory::{IndexDirectory, WriteErrors};
use tokens::BlankTokenizer;

/// Memory of a segment that is being written: the least that tantivy takes, and for a whole tree more. Larger segments are
/// merged less often, which is a sixth of the processor time of a build with small ones.
const SMALL_ARENA_BYTES: usize = 15_000_000;
const LARGE_ARENA_BYTES: usize = 48_000_000;
/// A segment is closed when less than this is left.
const ARENA_MARGIN_BYTES: usize = 1_000_000;

/// The names under which an index knows its tokenizer, for words and for uses.
const WORDS_TOKENIZER: &str = "words";
const USES_TOKENIZER: &str = "uses";

/// The names of the columns with the halves of a code.
const CODE_FIELDS: [&str; 2] = ["code_low", "code_high"];

/// A text part up to this size is checked whole when it is opened; a larger one on request.
const MAX_CHECKED_AT_OPEN_BYTES: u64 = 32 << 20;

/// Where a word is in a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordField {
    Name,
    Path,
    Text,
}

impl WordField {
    pub(crate) const ALL: [WordField; 3] = [Self::Name, Self::Path, Self::Text];

    pub(crate) fn weight(self) -> f32 {
        match self {
            Self::Name => 2.0,
            Self::Path => 0.5,
            Self::Text => 1.0,
        }
    }
}

/// How a unit uses a name; the first letter of the term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseKind {
    Call,
    Import,
    Inherit,
    Mention,
}

impl UseKind {
    pub(crate) const ALL: [UseKind; 4] = [Self::Call, Self::Import, Self::Inherit, Self::Mention];

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
    /// The halves of a unit's [`VectorCode`].
    codes: [Field; 2],
    /// By realm and field.
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
        let words = text(WORDS_TOKENIZER, IndexRecordOption::WithFreqs, true);
        let uses = text(USES_TOKENIZER, IndexRecordOption::Basic, false);
        let fields = Fields {
            unit: schema.add_u64_field("unit", FAST),
            file: schema.add_u64_field("file", INDEXED),
            codes: CODE_FIELDS.map(|name| schema.add_u64_field(name, FAST)),
            words: [
                ["name", "path", "text"].map(|name| schema.add_text_field(name, words.clone())),
                ["docs_name", "docs_path", "docs_text"]
                    .map(|name| schema.add_text_field(name, words.clone())),
            ],
            uses: schema.add_text_field("uses", uses),
        };
        (schema.build(), fields)
    }

    fn word(&self, realm: Realm, field: WordField) -> Field {
        self.words[realm as usize][field as usize]
    }
}

/// The text part of an index, open.
pub(crate) struct TextIndex {
    index: Index,
    /// Opened by the first search: in a writer it would keep merged files alive.
    reader: OnceLock<IndexReader>,
    fields: Fields,
    directory: IndexDirectory,
}

/// The indexed terms of a unit, each followed by a blank.
#[derive(Debug, Default)]
pub(crate) struct UnitWords {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) text: String,
    /// Of the names it uses.
    pub(crate) uses: String,
    pub(crate) code: Option<VectorCode>,
}

impl TextIndex {
    /// Opens for searching; [`Error::Missing`] if there is no index.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let directory = IndexDirectory::open(dir).ok_or(Error::Missing)?;
        if !Index::exists(&directory).map_err(|_| Error::Missing)? {
            return Err(Error::Missing);
        }
        let opened = Self::with(Index::open(directory.clone())?, directory)?;
        let size = |entry: std::fs::DirEntry| entry.metadata().map_or(0, |found| found.len());
        let bytes: u64 = std::fs::read_dir(dir)?.flatten().map(size).sum();
        if bytes <= MAX_CHECKED_AT_OPEN_BYTES && !opened.is_sound()? {
            return Err(Error::Damaged("its text part is corrupt".into()));
        }
        Ok(opened)
    }

    /// Whether every byte is as it was written.
    pub(crate) fn is_sound(&self) -> Result<bool> {
        // A writer in another process must not delete a merged segment meanwhile, which would look like damage.
        let _lock = self.directory.acquire_lock(&META_LOCK);
        let index = Index::open(self.directory.clone())?;
        Ok(index.validate_checksum()?.is_empty())
    }

    /// Opens for writing, creating it if needed.
    pub(crate) fn open_or_create(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let directory = IndexDirectory::open(dir)
            .ok_or_else(|| Error::Unwritable("its folder cannot be opened".into()))?;
        let (schema, _) = Fields::schema();
        let settings = IndexSettings::default();
        let index = match Index::exists(&directory).map_err(tantivy::TantivyError::from)? {
            true => Index::open(directory.clone())?,
            false => Index::create(directory.clone(), schema, settings)?,
        };
        Self::with(index, directory)
    }

    fn with(mut index: Index, directory: IndexDirectory) -> Result<Self> {
        let (schema, fields) = Fields::schema();
        if index.schema() != schema {
            return Err(Error::Damaged("another version wrote it".into()));
        }
        // Documents hold only numbers; compression would cost time.
        index.settings_mut().docstore_compression = tantivy::store::Compressor::None;
        index.settings_mut().docstore_compress_dedicated_thread = false;
        for name in [WORDS_TOKENIZER, USES_TOKENIZER] {
            let terms = TextAnalyzer::from(BlankTokenizer);
            index.tokenizers().register(name, terms);
        }
        Ok(Self {
            index,
            reader: OnceLock::new(),
            fields,
            directory,
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

    /// The number of segments; each is searched by itself.
    pub(crate) fn segments(&self) -> Result<usize> {
        Ok(self.index.searchable_segment_metas()?.len())
    }

    pub(crate) fn writer(&self, size: WriteScale) -> Result<TextWriter> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(SMALL_ARENA_BYTES)
            .build();
        let write_errors = self.directory.write_errors();
        write_errors.clear();
        let writer = self.index.writer_with_options(options)?;
        match size {
            WriteScale::Few => writer.set_merge_policy(Box::new(NoMergePolicy)),
            WriteScale::Many => {
                let mut policy = tantivy::merge_policy::LogMergePolicy::default();
                policy.set_min_num_segments(8);
                writer.set_merge_policy(Box::new(policy));
            }
        }
        Ok(TextWriter {
            writer,
            segment: None,
            arena_bytes: match size {
                WriteScale::Few => SMALL_ARENA_BYTES,
                WriteScale::Many => LARGE_ARENA_BYTES,
            },
            fields: self.fields,
            write_errors,
        })
    }
}

/// How much is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteScale {
    /// The whole tree, or its changes.
    Many,
    /// A few files, fast: segments are not merged.
    Few,
}

/// Writes segments on the calling thread. Tantivy's own writer starts a thread for each commit, and the allocator keeps
/// what a segment took once for each of the arenas that such threads came to use: hundreds of megabytes in all.
pub(crate) struct TextWriter {
    writer: IndexWriter,
    segment: Option<(Segment, SegmentWriter)>,
    arena_bytes: usize,
    fields: Fields,
    write_errors: WriteErrors,
}

impl TextWriter {
    pub(crate) fn add(
        &mut self,
        file: u64,
        unit: u64,
        realm: Realm,
        words: UnitWords,
    ) -> Result<()> {
        let fields = &self.fields;
        let mut doc = TantivyDocument::default();
        doc.add_u64(fields.file, file);
        doc.add_u64(fields.unit, unit);
        let code = words.code.unwrap_or(VectorCode::unknown(realm));
        for (field, half) in fields.codes.into_iter().zip(code.0) {
            doc.add_u64(field, half);
        }
        doc.add_text(fields.word(realm, WordField::Name), words.name);
        doc.add_text(fields.word(realm, WordField::Path), words.path);
        doc.add_text(fields.word(realm, WordField::Text), words.text);
        doc.add_text(fields.uses, words.uses);
        self.add_to_segment(doc)
            .map_err(|error| self.write_errors.cause(error))
    }

    fn add_to_segment(&mut self, document: TantivyDocument) -> tantivy::Result<()> {
        let (_, writer) = match &mut self.segment {
            Some(open) => open,
            none => {
                let segment = self.writer.new_segment();
                let writer = SegmentWriter::for_segment(self.arena_bytes, segment.clone())?;
                none.insert((segment, writer))
            }
        };
        // Files that are removed have other ids, so no deletion concerns what was added in the same step.
        let opstamp = 0;
        writer.add_document(AddOperation { opstamp, document })?;
        if writer.mem_usage() + ARENA_MARGIN_BYTES >= self.arena_bytes {
            self.close_segment()?;
        }
        Ok(())
    }

    fn close_segment(&mut self) -> tantivy::Result<()> {
        let Some((segment, writer)) = self.segment.take() else {
            return Ok(());
        };
        let segment = segment.with_max_doc(writer.max_doc());
        writer.finalize()?;
        segment.meta().untrack_temp_docstore();
        self.writer.add_segment(segment.meta().clone())
    }

    pub(crate) fn remove(&self, file: u64) {
        self.writer
            .delete_term(Term::from_field_u64(self.fields.file, file));
    }

    pub(crate) fn commit(&mut self, generation: i64) -> Result<()> {
        let done = self.close_segment().and_then(|()| {
            let mut commit = self.writer.prepare_commit()?;
            commit.set_payload(&generation.to_string());
            commit.commit()
        });
        done.map(|_| ())
            .map_err(|error| self.write_errors.cause(error))
    }

    /// Waits for the merging of segments.
    pub(crate) fn finish(self) -> Result<()> {
        let write_errors = self.write_errors;
        let done = self.writer.wait_merging_threads();
        done.map_err(|error| write_errors.cause(error))
    }
}

/// One consistent view of the text part.
pub(crate) struct TextSearcher {
    searcher: Searcher,
    fields: Fields,
}

/// A word to search for.
#[derive(Debug, Clone)]
pub(crate) struct WeightedWord {
    pub(crate) word: String,
    pub(crate) weight: f32,
}

impl TextSearcher {
    /// The number of units.
    pub(crate) fn units(&self) -> u64 {
        self.searcher.num_docs()
    }

    /// The number of units with this word in this field.
    pub(crate) fn with_word(&self, realm: Realm, field: WordField, word: &str) -> u64 {
        let term = Term::from_field_text(self.fields.word(realm, field), word);
        self.searcher.doc_freq(&term).unwrap_or(0)
    }

    /// The average number of words in this field, over all units.
    pub(crate) fn average(&self, realm: Realm, field: WordField) -> f32 {
        let field = self.fields.word(realm, field);
        let segments = self.searcher.segment_readers().iter();
        let words: u64 = segments
            .filter_map(|segment| segment.inverted_index(field).ok())
            .map(|words| words.total_num_tokens())
            .sum();
        words as f32 / (self.units().max(1) as f32)
    }

    /// The number of units that use a name.
    pub(crate) fn users_count(&self, name: &str) -> u64 {
        let terms = UseKind::ALL.iter().map(|kind| self.use_term(*kind, name));
        terms
            .map(|term| self.searcher.doc_freq(&term).unwrap_or(0))
            .sum()
    }

    /// The units that use a name in one of these ways.
    pub(crate) fn users(&self, kinds: &[UseKind], name: &str) -> Result<Vec<u64>> {
        let parts = kinds.iter().map(|kind| {
            let query = TermQuery::new(self.use_term(*kind, name), IndexRecordOption::Basic);
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

    /// The number of uses.
    pub(crate) fn edges(&self) -> u64 {
        let segments = self.searcher.segment_readers().iter();
        segments
            .filter_map(|segment| segment.inverted_index(self.fields.uses).ok())
            .map(|uses| uses.total_num_tokens())
            .sum()
    }

    fn use_term(&self, kind: UseKind, name: &str) -> Term {
        Term::from_field_text(self.fields.uses, &format!("{}{name}", kind.letter()))
    }

    fn unit_columns(&self) -> Result<Vec<Column<u64>>> {
        self.columns("unit")
    }

    /// A column of numbers, by segment.
    fn columns(&self, name: &str) -> Result<Vec<Column<u64>>> {
        let segments = self.searcher.segment_readers().iter();
        let columns = segments.map(|segment| segment.fast_fields().u64(name));
        Ok(columns.collect::<tantivy::Result<_>>()?)
    }
}
