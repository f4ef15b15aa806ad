//! One query, from the question to the report, within its limits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use llmc_model::{Error as ModelError, Ledger, SpendingCaps, SpendingReport};
use llmc_sandbox::PythonBackend;
use llmc_syntax::Language;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::model_access::{AnswerSource, ModelAccess, ProgressCallback, QueryModel};
use crate::session::{QueryState, converse};
use crate::text::SourceText;
use crate::trace::TraceRecorder;

#[derive(Debug)]
pub struct Query {
    /// The question.
    pub task: String,
    pub text: SourceText,
    /// The text's name for the prompt, such as its path.
    pub name: Option<String>,
    pub language: Option<Language>,
    /// The model that leads the conversation.
    pub lead: QueryModel,
    /// The model that answers questions about parts.
    pub sub: QueryModel,
    pub caps: SpendingCaps,
    pub limits: QueryLimits,
}

#[derive(Debug, Clone)]
pub struct QueryLimits {
    /// Turns of each conversation.
    pub max_turns: u32,
    /// How deep conversations may start conversations.
    pub max_depth: u32,
    /// Texts of at most this many tokens are answered by one call.
    pub direct_tokens: u64,
    /// Characters of a text that the first prompt about it shows.
    pub preview_chars: u32,
    pub deadline: Instant,
    /// Whether a partial answer is returned when money or time runs out.
    pub allow_partial: bool,
}

/// What a query needs beside its own parameters.
pub struct QueryContext {
    /// Where code runs.
    pub python: PythonSource,
    pub source: AnswerSource,
    pub recorder: Option<TraceRecorder>,
    pub on_progress: Option<ProgressCallback>,
    /// Cancelled when the caller disconnects.
    pub cancel: CancellationToken,
}

/// Interpreters of all queries at a time.
const MAX_INTERPRETERS: usize = 256;

/// The Python that code runs in, found when code first needs it: a text that fits into one call needs none.
#[derive(Clone)]
pub struct PythonSource {
    find: Arc<FindPython>,
    places: Arc<Semaphore>,
}

type FindPython = dyn Fn() -> Result<Arc<PythonBackend>, String> + Send + Sync;

impl PythonSource {
    /// `find` may take a while, and says why there is none.
    pub fn new(
        find: impl Fn() -> Result<Arc<PythonBackend>, String> + Send + Sync + 'static,
    ) -> PythonSource {
        PythonSource {
            find: Arc::new(find),
            places: Arc::new(Semaphore::new(MAX_INTERPRETERS)),
        }
    }

    pub(crate) async fn open(&self) -> Result<(Arc<PythonBackend>, OwnedSemaphorePermit), String> {
        // Not waited for: those that hold a place may wait for this one.
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| format!("{MAX_INTERPRETERS} interpreters run already"))?;
        let find = self.find.clone();
        let found = tokio::task::spawn_blocking(move || find()).await;
        let python = found.map_err(|error| error.to_string())??;
        Ok((python, place))
    }
}

impl fmt::Debug for PythonSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PythonSource")
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueryAnswer {
    /// As text.
    pub answer: String,
    /// The value given to `FINAL`, if it is not a string.
    pub structured: Option<Value>,
    /// Why the answer is incomplete, if it is.
    pub partial: Option<String>,
}

#[derive(Debug)]
pub struct QueryReport {
    pub result: Result<QueryAnswer, Error>,
    pub spent: SpendingReport,
    /// Turns of the leading conversation.
    pub turns: u32,
}

/// Carries out a query.
pub async fn run(query: Query, context: QueryContext) -> QueryReport {
    if let AnswerSource::Replay(trace) = &context.source
        && let Err(error) = trace.check(&query.task, &query.text)
    {
        return QueryReport {
            result: Err(error),
            spent: SpendingReport::default(),
            turns: 0,
        };
    }
    if let Some(recorder) = &context.recorder {
        recorder.record_begin(&query.task, &query.text, &query.lead, &query.sub);
    }
    let deadline = query.limits.deadline;
    let state = Arc::new(QueryState {
        models: ModelAccess {
            lead: query.lead,
            sub: query.sub,
            source: context.source,
            recorder: context.recorder,
            ledger: Ledger::new(query.caps),
            deadline,
            on_progress: context.on_progress,
            max_turns: query.limits.max_turns,
            turn: AtomicU32::new(0),
            calls: AtomicU64::new(0),
        },
        limits: query.limits,
        python: context.python,
        cancel: context.cancel.clone(),
        last_output: Mutex::default(),
    });
    let conversation = converse(
        state.clone(),
        query.task,
        query.text,
        query.language,
        query.name,
        0,
    );
    // Dropping the future closes the connections of calls under way and ends the workers.
    let result = tokio::select! {
        () = context.cancel.cancelled() => Err(Error::Cancelled),
        () = tokio::time::sleep_until(deadline.into()) => Err(Error::Model(ModelError::TimedOut)),
        result = conversation => result,
    };
    let result = answer_or_partial(&state, result);
    let models = &state.models;
    if let Some(recorder) = &models.recorder {
        recorder.record_end(&match &result {
            Ok(found) => Ok(found
                .structured
                .clone()
                .unwrap_or(found.answer.clone().into())),
            Err(error) => Err(error.code()),
        });
    }
    QueryReport {
        result,
        spent: models.ledger.report(),
        turns: models.turn.load(Ordering::Relaxed),
    }
}

fn answer_or_partial(
    state: &QueryState,
    result: Result<Value, Error>,
) -> Result<QueryAnswer, Error> {
    let allow_partial = state.limits.allow_partial;
    let (value, partial) = match (result, state.models.ledger.refused()) {
        // A script that continued after a refused call answers from a part of what it asked for.
        (Ok(value), Some(what)) if allow_partial => (value, Some(what)),
        (Ok(_), Some(what)) => {
            let hint = "give a higher budget_usd, or ask for less".to_owned();
            return Err(ModelError::Budget { what, hint }.into());
        }
        (Ok(value), None) => (value, None),
        (Err(error), _) => {
            let ran_out = matches!(
                error,
                Error::Model(ModelError::Budget { .. } | ModelError::TimedOut) | Error::NoAnswer(_)
            );
            let last = state
                .last_output
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some(output) if ran_out && allow_partial => {
                    (Value::from(output.as_str()), Some(error.to_string()))
                }
                _ => return Err(error),
            }
        }
    };
    Ok(match value {
        Value::String(answer) => QueryAnswer {
            answer,
            structured: None,
            partial,
        },
        value => QueryAnswer {
            answer: value.to_string(),
            structured: Some(value),
            partial,
        },
    })
}
