use std::collections::BTreeMap;
use std::fmt::Write as _;

use llmc_index::IndexState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::Result;
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagStats;

/// Size and state of the code index.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// What the index holds.
#[derive(Serialize, JsonSchema)]
pub(super) struct IndexReport {
    files: u64,
    chunks: u64,
    symbols: u64,
    edges: u64,
    #[schemars(with = "BTreeMap<String, u64>", extend("x-help" = "files by language"))]
    languages: Counts,
    bytes: u64,
    index_bytes: u64,
    updated_iso: Option<String>,
    state: IndexState,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, u64>>", extend("x-help" = "files by reason"))]
    not_indexed: Option<Counts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parser_crashed_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
}

#[derive(Serialize, JsonSchema)]
struct Progress {
    done: u64,
    total: u64,
}

/// Counts by name, in the order of the index.
struct Counts(Vec<(String, u64)>);

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

impl Tool for RagStats {
    const NAME: &'static str = "rag_stats";
    const ALIASES: &'static [&'static str] = &["rag.stats"];
    const EFFECT: Effect = Effect::Reads;
    const KEYWORDS: &'static str = "languages count";
    type Args = Args;
    type Output = Document<IndexReport>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<IndexReport>> {
        cx.blocking(move |cx, stop| {
            let Args {} = args;
            rag::freshen(cx, stop);
            Ok(Document::new(report(cx)?).page(page))
        })
        .await
    }
}

/// One fact a line.
fn page(report: &IndexReport) -> String {
    let mut out = String::new();
    let state = match report.state {
        IndexState::Ready => "ready",
        IndexState::Building => "building",
        IndexState::None => "none",
    };
    let updated = report.updated_iso.as_deref().unwrap_or("never");
    let _ = writeln!(
        out,
        "files    {}\nchunks   {}\nsymbols  {}\nedges    {}\nsource   {} bytes\nindex    {} bytes\nstate    {state}\nupdated  {updated}",
        report.files, report.chunks, report.symbols, report.edges, report.bytes, report.index_bytes,
    );
    let counts = [
        ("languages", Some(&report.languages)),
        ("not indexed", report.not_indexed.as_ref()),
    ];
    for (title, counts) in counts {
        let counts = counts.map_or(&[][..], |counts| &counts.0);
        if !counts.is_empty() {
            let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
            let _ = writeln!(out, "{title}: {}", counts.collect::<Vec<_>>().join(", "));
        }
    }
    if !report.parser_crashed_on.is_empty() {
        let _ = writeln!(
            out,
            "not parsed, because the parser crashed: {}",
            report.parser_crashed_on.join(", ")
        );
    }
    if let Some(why) = &report.last_error {
        let _ = writeln!(out, "{why}");
    }
    out
}

fn report(cx: &Cx) -> Result<IndexReport> {
    let index = cx.app().index();
    let stats = index.stats()?;
    let updated = jiff::Timestamp::from_second(stats.updated).map(|time| time.to_string());
    let passed: Vec<(String, u64)> = stats
        .passed
        .iter()
        .map(|(why, count)| ((*why).to_owned(), *count))
        .collect();
    let state = index.state();
    let progress = index.progress();
    Ok(IndexReport {
        files: stats.files,
        chunks: stats.chunks,
        symbols: stats.symbols,
        edges: stats.edges,
        languages: Counts(stats.languages),
        bytes: stats.bytes,
        index_bytes: stats.index_bytes,
        updated_iso: updated.ok().filter(|_| stats.updated > 0),
        state,
        not_indexed: (!passed.is_empty()).then_some(Counts(passed)),
        parser_crashed_on: stats.unparsed,
        last_error: index.failure(),
        progress: (state == IndexState::Building).then(|| Progress {
            done: progress.done(),
            total: progress.total(),
        }),
    })
}
