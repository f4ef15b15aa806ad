//! A query: from the question to its end, within its bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use llmc_model::{Error as ModelError, Ledger, SpendingCaps, SpendingReport};
use llmc_sandbox::Sandbox;
use llmc_syntax::Language;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::desk::{Desk, Party, Source, Watch};
use crate::error::Error;
use crate::session::{Shared, converse};
use crate::text::Text;
use crate::trace::Recorder;

/// What is asked, of whom.
#[derive(Debug)]
pub struct Query {
    /// The question.
    pub task: String,
    /// What it is about.
    pub text: Text,
    /// How the text is called, if it has a name.
    pub name: Option<String>,
    /// Its language, if it is source code.
    pub language: Option<Language>,
    /// Who leads.
    pub lead: Party,
    /// Who is asked about parts.
    pub sub: Party,
    /// What may be spent.
    pub caps: SpendingCaps,
    /// The other bounds.
    pub settings: Settings,
}

/// Bounds of a query.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Turns of one conversation.
    pub max_turns: u32,
    /// How deep conversations may start conversations.
    pub max_depth: u32,
    /// Texts of at most this many tokens are answered in one plain call.
    pub direct_tokens: u64,
    /// When everything must be over.
    pub deadline: Instant,
    /// Whether something is returned when money or time runs out.
    pub allow_partial: bool,
}

/// What a query needs of its surroundings.
pub struct Around {
    /// Where code runs.
    pub sandbox: Sandbox,
    /// Whose query it is; decides whose workers serve it.
    pub owner: String,
    /// Where answers come from.
    pub source: Source,
    /// Where the trace goes.
    pub recorder: Option<Recorder>,
    /// Who watches.
    pub watch: Option<Watch>,
    /// Fires when the caller goes away.
    pub cancel: CancellationToken,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// As text.
    pub answer: String,
    /// As it was given, when that was no text.
    pub structured: Option<Value>,
    /// Why it is not the whole answer, if it is not.
    pub partial: Option<String>,
}

/// How a query ended, and what it took.
#[derive(Debug)]
pub struct Ended {
    /// The answer, or why there is none.
    pub result: Result<Finding, Error>,
    /// What was spent.
    pub spent: SpendingReport,
    /// Turns of the leading conversation.
    pub turns: u32,
}

/// Carries out a query.
pub async fn run(query: Query, around: Around) -> Ended {
    if let Source::Tape(tape) = &around.source
        && let Err(error) = tape.check(&query.task, &query.text)
    {
        return Ended {
            result: Err(error),
            spent: SpendingReport::default(),
            turns: 0,
        };
    }
    if let Some(recorder) = &around.recorder {
        recorder.begin(&query.task, &query.text, &query.lead, &query.sub);
    }
    let deadline = query.settings.deadline;
    let shared = Arc::new(Shared {
        desk: Desk {
            lead: query.lead,
            sub: query.sub,
            source: around.source,
            recorder: around.recorder,
            ledger: Ledger::new(query.caps),
            deadline,
            watch: around.watch,
            max_turns: query.settings.max_turns,
            turn: AtomicU32::new(0),
            asked: AtomicU64::new(0),
        },
        settings: query.settings,
        sandbox: around.sandbox,
        cancel: around.cancel.clone(),
        owner: around.owner,
        last_seen: Mutex::default(),
    });
    let answering = converse(
        shared.clone(),
        query.task,
        query.text,
        query.language,
        query.name,
        0,
    );
    // Whatever is under way is dropped with the future: calls hang up, workers end.
    let result = tokio::select! {
        () = around.cancel.cancelled() => Err(Error::Cancelled),
        () = tokio::time::sleep_until(deadline.into()) => Err(Error::Model(ModelError::TimedOut)),
        result = answering => result,
    };
    let result = finding(&shared, result);
    let desk = &shared.desk;
    if let Some(recorder) = &desk.recorder {
        recorder.ended(&match &result {
            Ok(found) => Ok(found
                .structured
                .clone()
                .unwrap_or(found.answer.clone().into())),
            Err(error) => Err(error.code()),
        });
    }
    Ended {
        result,
        spent: desk.ledger.report(),
        turns: desk.turn.load(Ordering::Relaxed),
    }
}

fn finding(shared: &Shared, result: Result<Value, Error>) -> Result<Finding, Error> {
    let refused = shared.desk.ledger.refused();
    let (value, partial) = match (result, refused) {
        // A script that went on after a cap had struck answers from a part of what it wanted to know.
        (Ok(value), Some(what)) if shared.settings.allow_partial => (value, Some(what)),
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
            let seen = shared
                .last_seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match (&*seen, ran_out && shared.settings.allow_partial) {
                (Some(seen), true) => (Value::from(seen.as_str()), Some(error.to_string())),
                _ => return Err(error),
            }
        }
    };
    Ok(match value {
        Value::String(answer) => Finding {
            answer,
            structured: None,
            partial,
        },
        value => Finding {
            answer: value.to_string(),
            structured: Some(value),
            partial,
        },
    })
}
