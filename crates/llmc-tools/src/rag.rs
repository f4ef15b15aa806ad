//! What the retrieval tools share: limits, shapes, and keeping the index current.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use llmc_config::DefaultScope as Configured;
use llmc_host::CancelToken;
use llmc_index::{IndexState, IndexedShare, SearchAnswer, SearchRequest, SearchScope, Snippet};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cx::{Cx, Surface};
use crate::error::{Error, ErrorKind, Result};

/// How long a call from the shell brings the index up to date before it asks it.
const FRESHEN: Duration = Duration::from_secs(2);

/// How often a call that waits for the index checks it.
const WAIT: Duration = Duration::from_millis(20);

/// How often it tells the caller how far the index is.
const TELL: Duration = Duration::from_millis(500);

/// The arguments of a search as the caller gave them.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) query: String,
    pub(crate) scope: Option<String>,
    pub(crate) k: Option<i64>,
    pub(crate) budget_tokens: Option<i64>,
    /// Whether each snippet says why it has its score.
    pub(crate) explain: bool,
}

/// The same within the configured limits, and which of them were lowered.
#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) scope: SearchScope,
    pub(crate) k: usize,
    pub(crate) budget: usize,
    pub(crate) clamped: Vec<&'static str>,
}

/// Applies the configuration.
pub(crate) fn limited(cx: &Cx, asked: &Asked) -> Result<Limited> {
    let rag = &cx.app().config().mcp.rag;
    let mut clamped = Vec::new();
    let mut bounded = |name: &'static str, asked: Option<i64>, most: u64| {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        match asked.map(|asked| usize::try_from(asked).unwrap_or(0)) {
            None => Ok(most),
            Some(0) => Err(Error::bad_args(format!("{name} must be at least 1"))),
            Some(asked) if asked > most => {
                clamped.push(name);
                Ok(most)
            }
            Some(asked) => Ok(asked),
        }
    };
    let k = bounded("k", asked.k, rag.top_k)?;
    let budget = bounded("budget_tokens", asked.budget_tokens, rag.token_budget)?;
    Ok(Limited {
        scope: scope(cx, asked.scope.as_deref())?,
        k,
        budget,
        clamped,
    })
}

/// The scope of that name, or the configured one.
pub(crate) fn scope(cx: &Cx, asked: Option<&str>) -> Result<SearchScope> {
    match asked {
        Some("repo") => Ok(SearchScope::Repo),
        Some("docs") => Ok(SearchScope::Docs),
        Some("both") => Ok(SearchScope::Both),
        Some(other) => Err(Error::bad_args(format!(
            "scope must be repo, docs or both, not {other:?}"
        ))),
        None => Ok(match cx.app().config().mcp.rag.default_scope {
            Configured::Repo => SearchScope::Repo,
            Configured::Docs => SearchScope::Docs,
            Configured::Both => SearchScope::Both,
        }),
    }
}

/// Searches within the limits.
pub(crate) fn search(
    cx: &Cx,
    query: &str,
    limits: &Limited,
    stop: &CancelToken,
) -> Result<SearchAnswer> {
    freshen(cx, stop);
    tell_progress(cx);
    let request = SearchRequest {
        query,
        scope: limits.scope,
        k: limits.k,
        budget: limits.budget,
    };
    let roots = &cx.files().roots;
    Ok(cx.app().index().search(roots, &request, stop)?)
}

/// Makes sure the index is kept up to date: by a server in the background from its first question on, while a call from the
/// shell updates it once, if there is an index at all.
pub(crate) fn freshen(cx: &Cx, stop: &CancelToken) {
    let index = cx.app().index();
    if cx.caller().surface == Surface::Cli {
        if index.state() == IndexState::Ready && !stop.is_cancelled() {
            let soon = CancelToken::with_deadline(Instant::now() + FRESHEN);
            if let Err(error) = index.update(&cx.files().roots, &soon) {
                tracing::info!(error = %error, "the index is used as it is");
            }
        }
    } else {
        cx.app().keep_index();
    }
}

/// A snippet as answers give it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ShownSnippet {
    text: String,
    #[schemars(extend("x-help" = "path#L10-L20"))]
    src: String,
    #[serde(serialize_with = "llmc_index::three_decimals")]
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Only where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    why: Option<Vec<ScoreReason>>,
}

/// A part of a snippet's score.
#[derive(Debug, Clone, Serialize)]
struct ScoreReason {
    name: &'static str,
    #[serde(serialize_with = "llmc_index::three_decimals")]
    value: f32,
    /// What it adds to the logarithm of the strength.
    #[serde(serialize_with = "llmc_index::three_decimals")]
    adds: f32,
}

impl From<&Snippet> for ShownSnippet {
    fn from(snippet: &Snippet) -> ShownSnippet {
        ShownSnippet {
            text: snippet.text.clone(),
            src: snippet.src(),
            score: snippet.score,
            symbol: snippet.symbol.clone(),
            kind: snippet.kind,
            why: None,
        }
    }
}

/// Whether the answer is what the files hold now.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Freshness {
    Fresh(FreshMark),
    /// What changed while the answer was made.
    Changed {
        unverified: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(crate) enum FreshMark {
    #[serde(rename = "FRESH")]
    Fresh,
}

impl Freshness {
    pub(crate) fn of(unverified: Vec<String>) -> Freshness {
        if unverified.is_empty() {
            Freshness::Fresh(FreshMark::Fresh)
        } else {
            Freshness::Changed { unverified }
        }
    }
}

/// The document of a search.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FoundSnippets<T = ShownSnippet> {
    pub(crate) snippets: Vec<T>,
    provenance: bool,
    freshness: Freshness,
    index: IndexState,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clamped: Vec<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Filled in by the seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
}

impl<T: for<'a> From<&'a Snippet>> FoundSnippets<T> {
    /// What a search found, each snippet in its form.
    pub(crate) fn new(found: &SearchAnswer, limits: &Limited) -> FoundSnippets<T> {
        FoundSnippets {
            snippets: found.snippets.iter().map(T::from).collect(),
            provenance: true,
            freshness: Freshness::of(found.unverified.clone()),
            index: found.index,
            clamped: limits.clamped.clone(),
            truncated: found.omitted.is_some(),
            note: found.note.as_ref().map(ToString::to_string),
            handle: None,
        }
    }
}

impl FoundSnippets {
    /// Says of each snippet why it has its score.
    pub(crate) fn explain(mut self, found: &SearchAnswer) -> FoundSnippets {
        for (shown, snippet) in self.snippets.iter_mut().zip(&found.snippets) {
            let reasons = snippet.reasons.iter();
            let reasons = reasons.map(|(name, value, adds)| ScoreReason {
                name,
                value: *value,
                adds: *adds,
            });
            shown.why = Some(reasons.collect());
        }
        self
    }

    /// Place, score, name and numbered lines of each snippet.
    pub(crate) fn page(&self) -> String {
        let mut out = String::new();
        for snippet in &self.snippets {
            let name = [snippet.kind, snippet.symbol.as_deref()];
            let name: Vec<&str> = name.into_iter().flatten().collect();
            let _ = writeln!(
                out,
                "{}  {:.2}  {}",
                snippet.src,
                snippet.score,
                name.join(" ")
            );
            for why in snippet.why.iter().flatten() {
                let ScoreReason { name, value, adds } = why;
                let _ = writeln!(out, "        {name:<14} {value:>8.3}  {adds:+.3}");
            }
            let lines = snippet.src.rsplit("#L").next().unwrap_or_default();
            let first: usize = lines
                .split('-')
                .next()
                .map_or(1, |n| n.parse().unwrap_or(1));
            for (nth, line) in snippet.text.lines().enumerate() {
                let _ = writeln!(out, "{:>6}  {line}", first + nth);
            }
            out.push('\n');
        }
        // Where hits were left out, the note says how many.
        if self.snippets.is_empty() && !self.truncated {
            out.push_str("nothing found\n");
        }
        for name in &self.clamped {
            let setting = match *name {
                "k" => "mcp.rag.top_k",
                _ => "mcp.rag.token_budget",
            };
            let _ = writeln!(
                out,
                "{name} is lowered to the maximum; --set {setting}=… raises it"
            );
        }
        if let Freshness::Changed { unverified } = &self.freshness {
            let _ = writeln!(out, "changed meanwhile: {}", unverified.join(", "));
        }
        if let Some(note) = &self.note {
            let _ = writeln!(out, "{note}");
        }
        if self.index == IndexState::None {
            out.push_str("llmc rag index builds one\n");
        }
        out
    }
}

/// Tells the caller how far the index is; whether it is being built.
fn tell_progress(cx: &Cx) -> bool {
    let progress = cx.app().index().progress();
    let at_work = progress.is_running();
    if at_work {
        let (done, total) = (progress.done(), progress.total().max(progress.done()));
        cx.tell(format!("indexing, {done} of {total} files"));
    }
    at_work
}

/// Waits for an index, for questions that cannot be answered without one: the shell builds it, a server waits for the
/// builder during half of the time that the call has. What is built by then has to do, and is returned.
pub(crate) fn await_index(cx: &Cx, stop: &CancelToken) -> Result<Option<IndexedShare>> {
    let index = cx.app().index();
    freshen(cx, stop);
    if index.state() == IndexState::Ready {
        return Ok(None);
    }
    if cx.caller().surface == Surface::Cli {
        index.update(&cx.files().roots, stop)?;
        return Ok(None);
    }
    let started = Instant::now();
    let half = stop
        .deadline()
        .map(|deadline| started + deadline.saturating_duration_since(started) / 2);
    let mut told: Option<Instant> = None;
    let mut requested: Option<Instant> = None;
    while index.state() != IndexState::Ready {
        if requested.is_none_or(|requested| requested.elapsed() >= TELL) {
            index.request_build();
            requested = Some(Instant::now());
        }
        if !index.progress().is_running()
            && let Some(why) = index.failure()
        {
            return Err(Error::from(llmc_index::Error::Missing).hint(why));
        }
        if told.is_none_or(|told| told.elapsed() >= TELL) && tell_progress(cx) {
            told = Some(Instant::now());
        }
        if half.is_some_and(|half| Instant::now() >= half) {
            let share = index.indexed_share();
            return match share.files {
                0 => Err(not_built(share)),
                _ => Ok(Some(share)),
            };
        }
        stop.check()?;
        std::thread::sleep(WAIT);
    }
    Ok(None)
}

/// What was found in an index of which `built` is ready, if that is not all of it.
pub(crate) fn found_in<T>(
    built: Option<IndexedShare>,
    found: llmc_index::Result<T>,
) -> Result<T, Error> {
    match (built, found) {
        (Some(share), Err(llmc_index::Error::NoSymbol { .. })) => Err(not_built(share)),
        (_, found) => Ok(found?),
    }
}

/// The note of an answer from an index that is being built.
pub(crate) fn building_note(built: IndexedShare) -> String {
    format!("the index is being built, it has {built}; ask again for the rest")
}

fn not_built(built: IndexedShare) -> Error {
    let message = format!("not in the index yet, which is being built and has {built}");
    Error::new(ErrorKind::Busy, message)
        .hint("ask again soon; rag_search and grep also search files that are not indexed")
        .with("files_indexed", built.files)
}
