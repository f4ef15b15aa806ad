//! The one place where models are asked: whoever asks, the ledger, the clock, the trace and the watcher see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use llmc_model::{
    ChatReply, ChatRequest, Error as ModelError, Ledger, ModelClient, ModelName, Price, Route,
};

use crate::trace::{Recorder, Tape};

/// A model that may be asked, and what it costs.
#[derive(Debug, Clone)]
pub struct Party {
    /// The model.
    pub model: ModelName,
    /// Its price, if anybody knows it.
    pub price: Option<Price>,
    /// The way there; a replay has none.
    pub route: Option<Route>,
}

/// Where answers come from.
#[derive(Debug)]
pub enum Source {
    /// Providers.
    Live(ModelClient),
    /// A trace.
    Tape(Tape),
}

/// How far a query is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The turn of the leading conversation.
    pub turn: u32,
    /// How many there may be.
    pub max_turns: u32,
    /// Calls answered so far.
    pub calls: u64,
    /// Tokens so far, sent and received.
    pub tokens: u64,
    /// Dollars so far.
    pub cost_usd: f64,
    /// What is being done.
    pub doing: &'a str,
}

/// Somebody who watches.
pub type Watch = Arc<dyn Fn(&Progress<'_>) + Send + Sync>;

/// Everything that all conversations of a query share.
pub(crate) struct Desk {
    pub(crate) lead: Party,
    pub(crate) sub: Party,
    pub(crate) source: Source,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) ledger: Ledger,
    pub(crate) deadline: Instant,
    pub(crate) watch: Option<Watch>,
    pub(crate) max_turns: u32,
    pub(crate) turn: AtomicU32,
    pub(crate) asked: AtomicU64,
}

impl Desk {
    /// Asks a model. Once a cap has struck, nobody is asked any more.
    pub(crate) async fn ask(
        &self,
        party: &Party,
        request: &ChatRequest,
        depth: u32,
    ) -> Result<ChatReply, ModelError> {
        if let Some(what) = self.ledger.refused() {
            let hint = "a cap was reached before".to_owned();
            return Err(ModelError::Budget { what, hint });
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = match (&self.source, &party.route) {
            (Source::Live(client), Some(route)) => {
                client
                    .chat(route, request, &self.ledger, self.deadline)
                    .await
            }
            (Source::Live(_), None) => Err(ModelError::Egress {
                what: format!("model {} has no route", party.model),
                hint: "only models that the policy admitted are asked".to_owned(),
            }),
            (Source::Tape(tape), _) => self.replay(tape, party, request),
        };
        if let Some(recorder) = &self.recorder {
            recorder.asked(number, depth, &party.model, request, &answer);
        }
        answer
    }

    fn replay(
        &self,
        tape: &Tape,
        party: &Party,
        request: &ChatRequest,
    ) -> Result<ChatReply, ModelError> {
        let answer = tape.answer(&party.model, request);
        match &answer {
            Ok(reply) => {
                let (input, max_output_tokens) =
                    (request.input_tokens(), request.max_output_tokens);
                let held =
                    self.ledger
                        .reserve(&party.model, party.price, input, max_output_tokens, 0)?;
                held.settle(reply.usage);
            }
            // Calls that ran together when it was recorded come one by one now: the cap strikes where it struck then.
            Err(ModelError::Budget { what, .. }) => self.ledger.refuse(what),
            Err(_) => {}
        }
        answer
    }

    /// Who leads a conversation at this depth.
    pub(crate) fn leader(&self, depth: u32) -> &Party {
        if depth == 0 { &self.lead } else { &self.sub }
    }

    /// Tells whoever watches.
    pub(crate) fn tell(&self, doing: &str) {
        if let Some(watch) = &self.watch {
            let total = self.ledger.report().total;
            watch(&Progress {
                turn: self.turn.load(Ordering::Relaxed),
                max_turns: self.max_turns,
                calls: total.calls,
                tokens: total.tokens_in + total.tokens_out,
                cost_usd: total.cost_usd,
                doing,
            });
        }
    }
}
