//! The only place that calls models, so that every call meets the ledger, the deadline, the trace and the progress
//! callback.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use llmc_model::{
    ChatReply, ChatRequest, Error as ModelError, Ledger, ModelClient, ModelName, Price, Route,
};

use crate::trace::{RecordedTrace, TraceRecorder};

/// A model that a query may call.
#[derive(Debug, Clone)]
pub struct QueryModel {
    pub name: ModelName,
    pub price: Option<Price>,
    /// `None` in a replay, which sends nothing.
    pub route: Option<Route>,
}

/// Where the models' replies come from.
#[derive(Debug)]
pub enum AnswerSource {
    Live(ModelClient),
    Replay(RecordedTrace),
}

#[derive(Debug, Clone, Copy)]
pub struct QueryProgress<'a> {
    /// The turn of the leading conversation.
    pub turn: u32,
    pub max_turns: u32,
    /// Answered calls so far.
    pub calls: u64,
    /// Input and output so far.
    pub tokens: u64,
    pub cost_usd: f64,
    /// The current activity.
    pub doing: &'a str,
}

pub type ProgressCallback = Arc<dyn Fn(&QueryProgress<'_>) + Send + Sync>;

/// What all conversations of a query share to call models.
pub(crate) struct ModelAccess {
    pub(crate) lead: QueryModel,
    pub(crate) sub: QueryModel,
    pub(crate) source: AnswerSource,
    pub(crate) recorder: Option<TraceRecorder>,
    pub(crate) ledger: Ledger,
    pub(crate) deadline: Instant,
    pub(crate) on_progress: Option<ProgressCallback>,
    pub(crate) max_turns: u32,
    pub(crate) turn: AtomicU32,
    pub(crate) calls: AtomicU64,
}

impl ModelAccess {
    /// Calls a model. After the first refusal by a cap, every further call is refused.
    pub(crate) async fn chat(
        &self,
        model: &QueryModel,
        request: &ChatRequest,
        depth: u32,
    ) -> Result<ChatReply, ModelError> {
        if let Some(what) = self.ledger.refused() {
            let hint = "a cap was reached before".to_owned();
            return Err(ModelError::Budget { what, hint });
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let answer = match (&self.source, &model.route) {
            (AnswerSource::Live(client), Some(route)) => {
                let (ledger, deadline) = (&self.ledger, self.deadline);
                client.chat(route, request, ledger, deadline).await
            }
            (AnswerSource::Live(_), None) => Err(ModelError::Egress {
                what: format!("model {} has no route", model.name),
                hint: "only models that the policy admitted are asked".to_owned(),
            }),
            (AnswerSource::Replay(trace), _) => self.replay(trace, model, request),
        };
        if let Some(recorder) = &self.recorder {
            recorder.record_call(number, depth, &model.name, request, &answer);
        }
        answer
    }

    fn replay(
        &self,
        trace: &RecordedTrace,
        model: &QueryModel,
        request: &ChatRequest,
    ) -> Result<ChatReply, ModelError> {
        let answer = trace.answer(&model.name, request);
        match &answer {
            Ok(reply) => {
                let (input, output) = (request.input_tokens(), request.max_output_tokens);
                let reservation =
                    self.ledger
                        .reserve(&model.name, model.price, input, output, 0)?;
                reservation.settle(reply.usage);
            }
            // Calls that were concurrent in the recording are sequential here: the cap must refuse where it did then.
            Err(ModelError::Budget { what, .. }) => self.ledger.refuse(what),
            Err(_) => {}
        }
        answer
    }

    /// The model that leads a conversation at this depth.
    pub(crate) fn leader(&self, depth: u32) -> &QueryModel {
        if depth == 0 { &self.lead } else { &self.sub }
    }

    pub(crate) fn report_progress(&self, doing: &str) {
        if let Some(on_progress) = &self.on_progress {
            let total = self.ledger.report().total;
            on_progress(&QueryProgress {
                turn: self.turn.load(Ordering::Relaxed),
                max_turns: self.max_turns,
                calls: total.calls,
                tokens: total.tokens_in.saturating_add(total.tokens_out),
                cost_usd: total.cost_usd,
                doing,
            });
        }
    }
}
