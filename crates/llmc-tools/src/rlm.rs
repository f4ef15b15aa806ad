//! Recursive analysis as a tool: checks the arguments, applies the operator's policy, reads the text, runs the query and
//! writes one audit row for each call.
//!
//! No file on the denylist is read, nothing is sent before model and endpoint are admitted, and neither log nor audit
//! holds any of the text, the task or the answer.

mod audit;
mod models;
mod source;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llmc_model::{
    ApiKeys, Error as ModelError, ModelClient, ModelSpending, SpendingCaps, SpendingReport,
};
use llmc_rlm::{
    AnswerSource, PythonSource, Query, QueryAnswer, QueryContext, QueryLimits, QueryReport,
    RecordedTrace, TraceRecorder,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::catalog::bounded_by;
use crate::catalog::rlm_query::Args as RlmQueryArgs;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerRoom, Render, Rendition};
pub(crate) use audit::write_refused;
use models::QueryModels;
pub use models::useless_model_prefix;
use source::TextSource;

/// Longer than any query may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(MAX_TIMEOUT_SECONDS as u64 + 60);

const MAX_TIMEOUT_SECONDS: i64 = 86_400;
const MAX_TASK_CHARS: usize = 5_000;
const MIN_BUDGET_USD: f64 = 0.01;
const DEFAULT_BUDGET_USD: f64 = 1.0;
/// The largest text, whatever `max_bytes` says.
const MAX_TEXT_BYTES: i64 = 256 << 20;

/// Shared by all analyses of one application.
#[derive(Debug)]
pub(crate) struct AnalysisState {
    python: OnceLock<PythonSource>,
    client: ModelClient,
    shell: Mutex<AnalysisShell>,
}

/// What the command line sets beside the arguments. A client cannot: it must not name a file to write, or a model where
/// the operator does not let callers choose.
#[derive(Debug, Default)]
pub struct AnalysisShell {
    /// The leading model, in place of `rlm.model`.
    pub model: Option<String>,
    /// Records the next query.
    pub record: Option<TraceRecorder>,
    /// Replaces the providers of the next query.
    pub replay: Option<RecordedTrace>,
}

impl Default for AnalysisState {
    fn default() -> AnalysisState {
        AnalysisState {
            python: OnceLock::new(),
            client: ModelClient {
                keys: ApiKeys::from_environment(),
                ..ModelClient::default()
            },
            shell: Mutex::default(),
        }
    }
}

impl AnalysisState {
    /// Sets what applies to the next query.
    pub(crate) fn prepare(&self, shell: AnalysisShell) {
        *self.shell.lock().unwrap_or_else(PoisonError::into_inner) = shell;
    }

    fn take_shell(&self) -> AnalysisShell {
        std::mem::take(&mut *self.shell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the audit row holds, also of a call that fails.
#[derive(Default)]
struct AuditFacts {
    session: String,
    bytes_read: u64,
    model: String,
    spent: SpendingReport,
    turns: u32,
}

/// What an analysis came to: its data, and what is said beside it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct AnalysisOutput {
    data: AnalysisData,
    #[serde(skip)]
    meta: Map<String, Value>,
    #[serde(skip)]
    path: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AnalysisData {
    answer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured: Option<Value>,
    session_id: String,
    budget_summary: BudgetSummary,
    /// Only for scripts, whose value is this document; other callers get it in the answer's `meta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "source, model_used; partial and partial_reason of an answer that was cut short"))]
    meta: Option<Map<String, Value>>,
}

/// What an analysis has spent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct BudgetSummary {
    total_cost_usd: f64,
    tokens_in: u64,
    tokens_out: u64,
    tokens_cached: u64,
    calls: u64,
    turns: u32,
    #[schemars(with = "Vec<Value>")]
    by_model: Vec<ModelSpending>,
}

impl Render for AnalysisOutput {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        Ok(Rendition {
            path: self.path.clone(),
            meta: self.meta.clone(),
            ..Rendition::document()
        })
    }
}

/// Carries out a call and writes its audit row.
pub(crate) async fn query(cx: &Cx, args: RlmQueryArgs) -> Result<AnalysisOutput> {
    let started = Instant::now();
    let mut facts = AuditFacts {
        session: uuid::Uuid::new_v4().to_string(),
        ..AuditFacts::default()
    };
    let result = answer(cx, args, started, &mut facts).await;
    audit::write(cx, &facts, started.elapsed(), result.as_ref().err()).await;
    result
}

async fn answer(
    cx: &Cx,
    args: RlmQueryArgs,
    started: Instant,
    facts: &mut AuditFacts,
) -> Result<AnalysisOutput> {
    let config = cx.app().config();
    let checked = CheckedArgs::check(cx, &args)?;
    let shell = cx.app().analyses().take_shell();
    let opened = TextSource::open(cx, args.path, args.context, checked.max_bytes).await?;
    // The models are admitted before the text is read.
    let models = match &shell.replay {
        Some(trace) => QueryModels::recorded(trace),
        None => {
            let (asked, chosen) = (args.model.as_deref(), shell.model.as_deref());
            QueryModels::admitted(config, asked, chosen).await?
        }
    };
    facts.model = models.lead.name.to_string();
    let read = opened.read(cx).await?;
    facts.bytes_read = read.text.bytes() as u64;
    let mut source = read.source;
    source.insert("bytes_read".to_owned(), facts.bytes_read.into());
    source.insert("truncated".to_owned(), false.into());
    let (model, sub_model) = (models.lead.name.to_string(), models.sub.name.to_string());
    let replayed = shell.replay.is_some();
    let query = Query {
        task: args.task,
        text: read.text,
        name: read.path.clone(),
        language: checked.language.or(read.language),
        lead: models.lead,
        sub: models.sub,
        caps: if replayed {
            // It was paid for when it was recorded.
            SpendingCaps {
                usd: 1e6,
                tokens: u64::MAX / 4,
            }
        } else {
            SpendingCaps {
                usd: checked.budget_usd,
                tokens: config.rlm.token_budget,
            }
        },
        limits: QueryLimits {
            max_turns: checked.max_turns,
            max_depth: config.rlm.max_depth,
            direct_tokens: config.rlm.direct_tokens,
            preview_chars: config.rlm.preview_chars,
            deadline: started + checked.timeout,
            allow_partial: config.mcp.rlm.allow_partial,
        },
    };
    let analyses = cx.app().analyses();
    let context = QueryContext {
        python: analyses
            .python
            .get_or_init(|| cx.app().analysis_python())
            .clone(),
        source: match shell.replay {
            Some(trace) => AnswerSource::Replay(trace),
            None => AnswerSource::Live(analyses.client.clone()),
        },
        recorder: shell.record,
        on_progress: Some(progress_callback(cx)),
        cancel: cx.cancel().clone(),
    };
    let QueryReport {
        result,
        spent,
        turns,
    } = llmc_rlm::run(query, context).await;
    facts.spent = spent;
    facts.turns = turns;
    let budget = budget_summary(&facts.spent, turns);
    let found = result.map_err(|error| {
        translate_error(error, checked.timeout)
            .with("session_id", facts.session.as_str())
            .with("budget_summary", json!(budget))
    })?;
    let mut meta = Map::new();
    meta.insert("source".to_owned(), Value::Object(source));
    meta.insert("model_used".to_owned(), model.clone().into());
    if sub_model != model {
        meta.insert("sub_model_used".to_owned(), sub_model.into());
    }
    meta.insert("trace_included".to_owned(), false.into());
    Ok(document(found, &facts.session, budget, meta, read.path))
}

fn document(
    found: QueryAnswer,
    session: &str,
    budget: BudgetSummary,
    mut meta: Map<String, Value>,
    path: Option<String>,
) -> AnalysisOutput {
    if let Some(why) = found.partial {
        meta.insert("partial".to_owned(), true.into());
        meta.insert("partial_reason".to_owned(), why.into());
    }
    let data = AnalysisData {
        answer: found.answer,
        structured: found.structured,
        session_id: session.to_owned(),
        budget_summary: budget,
        meta: None,
    };
    AnalysisOutput { data, meta, path }
}

/// Arguments within their bounds.
struct CheckedArgs {
    budget_usd: f64,
    max_bytes: usize,
    timeout: Duration,
    max_turns: u32,
    language: Option<llmc_syntax::Language>,
}

impl CheckedArgs {
    fn check(cx: &Cx, args: &RlmQueryArgs) -> Result<CheckedArgs> {
        let config = cx.app().config();
        let length = args.task.chars().count();
        if args.task.trim().is_empty() {
            return Err(Error::bad_args("task is empty").hint("say what you want to know"));
        }
        if length > MAX_TASK_CHARS {
            return Err(Error::bad_args(format!(
                "task has {length} characters; at most {MAX_TASK_CHARS} are allowed"
            ))
            .hint("put long material into context"));
        }
        match (&args.path, &args.context) {
            (Some(_), Some(_)) | (None, None) => {
                return Err(Error::bad_args("give exactly one of path and context"));
            }
            _ => {}
        }
        let most = config.rlm.max_budget_usd;
        let budget_usd = match args.budget_usd {
            None => DEFAULT_BUDGET_USD.min(most),
            Some(given) if (MIN_BUDGET_USD..=most).contains(&given) => given,
            Some(_) => {
                return Err(Error::bad_args(format!(
                    "budget_usd must be from {MIN_BUDGET_USD} to {most} (rlm.max_budget_usd)"
                )));
            }
        };
        let policy = &config.mcp.rlm;
        let default = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let max_bytes = bounded_by(
            "max_bytes",
            args.max_bytes,
            default(policy.default_max_bytes).min(MAX_TEXT_BYTES),
            1..=MAX_TEXT_BYTES,
        )?;
        let timeout = bounded_by(
            "timeout_s",
            args.timeout_s,
            default(policy.default_timeout_s).min(MAX_TIMEOUT_SECONDS),
            1..=MAX_TIMEOUT_SECONDS,
        )?;
        let max_turns = bounded_by("max_turns", args.max_turns, 5, 1..=10)?;
        let language = args.language.as_deref().map(llmc_rlm::parse_language);
        Ok(CheckedArgs {
            budget_usd,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            timeout: Duration::from_secs(timeout),
            max_turns: u32::try_from(max_turns).unwrap_or(1),
            language: language.transpose().map_err(Error::bad_args)?,
        })
    }
}

/// Sends the query's progress to the client, in one line.
fn progress_callback(cx: &Cx) -> llmc_rlm::ProgressCallback {
    let cx = cx.clone();
    Arc::new(move |at| {
        cx.tell(format!(
            "turn {}/{}, {} calls, {} tokens, ${:.4}: {}",
            at.turn, at.max_turns, at.calls, at.tokens, at.cost_usd, at.doing
        ));
    })
}

fn budget_summary(spent: &SpendingReport, turns: u32) -> BudgetSummary {
    let total = &spent.total;
    BudgetSummary {
        total_cost_usd: total.cost_usd,
        tokens_in: total.tokens_in,
        tokens_out: total.tokens_out,
        tokens_cached: total.tokens_cached,
        calls: total.calls,
        turns,
        by_model: spent.by_model.clone(),
    }
}

fn translate_error(error: llmc_rlm::Error, limit: Duration) -> Error {
    use llmc_rlm::Error as Rlm;
    let message = error.to_string();
    match error {
        Rlm::Model(error) => models::translate_error(error, Some(limit)),
        Rlm::NoAnswer(_) => Error::new(ErrorKind::NoAnswer, message)
            .hint("ask something narrower, allow more turns, or use a more capable model"),
        Rlm::Cancelled => Error::new(ErrorKind::Cancelled, message),
        Rlm::NoPython(_) => Error::new(ErrorKind::IsolationRequired, message),
        Rlm::Trace(_) | Rlm::TraceLine { .. } => Error::bad_args(message),
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Error {
        models::translate_error(error, None)
    }
}
