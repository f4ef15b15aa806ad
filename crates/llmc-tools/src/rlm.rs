//! Recursive analysis as a tool: arguments checked, files read through the same door as everywhere, the operator's policy
//! applied, and one row written about each call.
//!
//! Nothing is read that a name on the denylist leads to, nothing is sent before model and endpoint are admitted, and
//! neither log nor audit ever holds a word of the text, the task or the answer.

mod audit;
mod models;
mod source;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llmc_model::{ApiKeys, Error as ModelError, ModelClient, SpendingCaps, SpendingReport};
use llmc_rlm::{Around, Ended, Finding, Query, Recorder, Settings, Source, Tape};
use llmc_sandbox::{Options, Sandbox};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Facts};
use crate::catalog::bounded;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use models::Models;
use source::Opened;

/// Longer than any query may take.
pub(crate) const LONGEST: Duration = Duration::from_secs(MOST_SECONDS as u64 + 60);

const MOST_SECONDS: i64 = 86_400;
const LONGEST_TASK: usize = 5_000;
const LEAST_BUDGET: f64 = 0.01;
const DEFAULT_BUDGET: f64 = 1.0;
/// The largest text, whatever `max_bytes` says.
const MOST_BYTES: i64 = 256 << 20;
/// Interpreters at the same time; each query has one for every depth.
const INTERPRETERS: usize = 256;

/// The arguments of `rlm_query`.
pub(crate) struct Asked {
    pub(crate) task: String,
    pub(crate) path: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) budget_usd: Option<f64>,
    pub(crate) model: Option<String>,
    pub(crate) max_bytes: Option<i64>,
    pub(crate) timeout_s: Option<i64>,
    pub(crate) max_turns: Option<i64>,
    pub(crate) language: Option<String>,
}

/// What analyses of one application share.
#[derive(Debug)]
pub(crate) struct Analyses {
    sandbox: Sandbox,
    client: ModelClient,
    shell: Mutex<Shell>,
}

/// What whoever sits at the shell asks for beside the arguments. Nothing that a client sends leads here: none can name a
/// file to write, or a model where the operator does not let callers choose.
#[derive(Debug, Default)]
pub struct Shell {
    /// The model that leads, in the place of `rlm.model`.
    pub model: Option<String>,
    /// Where the next query is recorded.
    pub record: Option<Recorder>,
    /// What the next query is answered from.
    pub replay: Option<Tape>,
}

impl Default for Analyses {
    fn default() -> Analyses {
        Analyses {
            sandbox: Sandbox::new(Options {
                sessions: INTERPRETERS,
                ..Options::default()
            }),
            client: ModelClient {
                keys: ApiKeys::from_environment(),
                ..ModelClient::default()
            },
            shell: Mutex::default(),
        }
    }
}

impl Analyses {
    /// Applies to the next query.
    pub(crate) fn prepare(&self, shell: Shell) {
        *self.shell.lock().unwrap_or_else(PoisonError::into_inner) = shell;
    }

    fn shell(&self) -> Shell {
        std::mem::take(&mut *self.shell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is known about a call when it ends, however it ends.
#[derive(Default)]
struct Known {
    session: String,
    bytes_read: u64,
    model: String,
    spent: SpendingReport,
    turns: u32,
}

/// Carries out a call and writes its row.
pub(crate) async fn query(cx: &Cx, asked: Asked) -> Result<Answer> {
    let started = Instant::now();
    let mut known = Known {
        session: uuid::Uuid::new_v4().to_string(),
        ..Known::default()
    };
    let result = answer(cx, asked, started, &mut known).await;
    audit::write(cx, &known, started.elapsed(), result.as_ref().err()).await;
    result
}

async fn answer(cx: &Cx, asked: Asked, started: Instant, known: &mut Known) -> Result<Answer> {
    let config = cx.app().config();
    let checked = Checked::of(cx, &asked)?;
    let shell = cx.app().analyses().shell();
    let opened = Opened::find(cx, asked.path, asked.context, checked.max_bytes).await?;
    // Who is asked is settled before the text is even read.
    let models = match &shell.replay {
        Some(tape) => Models::recorded(tape),
        None => {
            let (asked, chosen) = (asked.model.as_deref(), shell.model.as_deref());
            Models::admitted(config, asked, chosen).await?
        }
    };
    known.model = models.lead.model.to_string();
    let read = opened.read(cx).await?;
    known.bytes_read = read.text.bytes() as u64;
    let mut source = read.source;
    source.insert("bytes_read".to_owned(), known.bytes_read.into());
    source.insert("truncated".to_owned(), false.into());
    let (model, sub_model) = (models.lead.model.to_string(), models.sub.model.to_string());
    let replayed = shell.replay.is_some();
    let query = Query {
        task: asked.task,
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
        settings: Settings {
            max_turns: checked.max_turns,
            max_depth: config.rlm.max_depth,
            direct_tokens: config.rlm.direct_tokens,
            deadline: started + checked.timeout,
            allow_partial: config.mcp.rlm.allow_partial,
        },
    };
    let analyses = cx.app().analyses();
    let around = Around {
        sandbox: analyses.sandbox.clone(),
        owner: cx.caller().principal.clone(),
        source: match shell.replay {
            Some(tape) => Source::Tape(tape),
            None => Source::Live(analyses.client.clone()),
        },
        recorder: shell.record,
        watch: Some(watch(cx)),
        cancel: cx.cancel().clone(),
    };
    let Ended {
        result,
        spent,
        turns,
    } = llmc_rlm::run(query, around).await;
    known.spent = spent;
    known.turns = turns;
    let budget = summary(&known.spent, turns);
    let found = result.map_err(|error| {
        translated(error, checked.timeout)
            .with("session_id", known.session.as_str())
            .with("budget_summary", budget.clone())
    })?;
    let mut meta = Map::new();
    meta.insert("source".to_owned(), Value::Object(source));
    meta.insert("model_used".to_owned(), model.clone().into());
    if sub_model != model {
        meta.insert("sub_model_used".to_owned(), sub_model.into());
    }
    meta.insert("trace_included".to_owned(), false.into());
    Ok(document(found, &known.session, budget, meta, read.path))
}

fn document(
    found: Finding,
    session: &str,
    budget: Value,
    mut meta: Map<String, Value>,
    path: Option<String>,
) -> Answer {
    let mut data = json!({"answer": found.answer});
    if let Some(structured) = found.structured {
        data["structured"] = structured;
    }
    data["session_id"] = session.into();
    data["budget_summary"] = budget;
    if let Some(why) = found.partial {
        meta.insert("partial".to_owned(), true.into());
        meta.insert("partial_reason".to_owned(), why.into());
    }
    let text = json!({"data": data, "meta": meta}).to_string();
    let facts = Facts {
        path,
        meta,
        ..Facts::default()
    };
    Answer { text, data, facts }
}

/// Arguments within their bounds.
struct Checked {
    budget_usd: f64,
    max_bytes: usize,
    timeout: Duration,
    max_turns: u32,
    language: Option<llmc_syntax::Language>,
}

impl Checked {
    fn of(cx: &Cx, asked: &Asked) -> Result<Checked> {
        let config = cx.app().config();
        let length = asked.task.chars().count();
        if asked.task.trim().is_empty() {
            return Err(Error::bad_args("task is empty").hint("say what you want to know"));
        }
        if length > LONGEST_TASK {
            return Err(Error::bad_args(format!(
                "task has {length} characters; at most {LONGEST_TASK} are allowed"
            ))
            .hint("put long material into context"));
        }
        match (&asked.path, &asked.context) {
            (Some(_), Some(_)) | (None, None) => {
                return Err(Error::bad_args("give exactly one of path and context"));
            }
            _ => {}
        }
        let most = config.rlm.max_budget_usd;
        let budget_usd = match asked.budget_usd {
            None => DEFAULT_BUDGET.min(most),
            Some(given) if (LEAST_BUDGET..=most).contains(&given) => given,
            Some(_) => {
                return Err(Error::bad_args(format!(
                    "budget_usd must be from {LEAST_BUDGET} to {most} (rlm.max_budget_usd)"
                )));
            }
        };
        let policy = &config.mcp.rlm;
        let default = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let max_bytes = bounded(
            "max_bytes",
            asked.max_bytes,
            default(policy.default_max_bytes).min(MOST_BYTES),
            1..=MOST_BYTES,
        )?;
        let timeout = bounded(
            "timeout_s",
            asked.timeout_s,
            default(policy.default_timeout_s).min(MOST_SECONDS),
            1..=MOST_SECONDS,
        )?;
        let max_turns = bounded("max_turns", asked.max_turns, 5, 1..=10)?;
        let language = asked.language.as_deref().map(llmc_rlm::language);
        Ok(Checked {
            budget_usd,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            timeout: Duration::from_secs(timeout),
            max_turns: u32::try_from(max_turns).unwrap_or(1),
            language: language.transpose().map_err(Error::bad_args)?,
        })
    }
}

/// Tells the client how far the query is, in one line.
fn watch(cx: &Cx) -> llmc_rlm::Watch {
    let cx = cx.clone();
    Arc::new(move |at| {
        cx.tell(format!(
            "turn {}/{}, {} calls, {} tokens, ${:.4}: {}",
            at.turn, at.max_turns, at.calls, at.tokens, at.cost_usd, at.doing
        ));
    })
}

fn summary(spent: &SpendingReport, turns: u32) -> Value {
    let total = &spent.total;
    json!({
        "total_cost_usd": total.cost_usd,
        "tokens_in": total.tokens_in,
        "tokens_out": total.tokens_out,
        "tokens_cached": total.tokens_cached,
        "calls": total.calls,
        "turns": turns,
        "by_model": spent.by_model,
    })
}

fn translated(error: llmc_rlm::Error, limit: Duration) -> Error {
    use llmc_rlm::Error as Rlm;
    let message = error.to_string();
    match error {
        Rlm::Model(error) => models::translated(error, Some(limit)),
        Rlm::NoAnswer(_) => Error::new(Kind::NoAnswer, message)
            .hint("ask something narrower, allow more turns, or use a more capable model"),
        Rlm::Cancelled => Error::new(Kind::Cancelled, message),
        Rlm::Sandbox(_) => Error::new(Kind::Internal, message),
        Rlm::Trace(_) => Error::bad_args(message),
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Error {
        models::translated(error, None)
    }
}
