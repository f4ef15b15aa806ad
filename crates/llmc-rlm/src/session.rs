//! One conversation: a model is called, its code runs, it is shown the output, until the code calls `FINAL`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use llmc_model::{ChatMessage, ChatRequest, ChatRole, Error as ModelError};
use llmc_sandbox::{
    PythonBackend, PythonSession, ScriptEnd, ScriptError, ScriptErrorKind, ScriptLimits,
    ScriptNames, ScriptOutcome,
};
use llmc_syntax::Language;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::code_blocks::{CodeBlocks, find_code_blocks};
use crate::error::Error;
use crate::functions::{self, Functions, LOAD_CONTEXT};
use crate::model_access::ModelAccess;
use crate::prompt;
use crate::query::{PythonSource, QueryLimits};
use crate::text::SourceText;

/// Texts up to this size are a plain value in the interpreter; larger ones are loaded when code names them.
const MAX_PRELOADED_BYTES: usize = 256 << 10;
const MAX_BLOCK_BYTES: usize = 64 << 10;
/// Blocks of one reply that are run.
const MAX_BLOCKS: usize = 8;
const MAX_BLOCK_CPU: Duration = Duration::from_secs(20);
const MAX_BLOCK_OUTPUT_BYTES: u64 = 1 << 20;
const MAX_BLOCK_CALLS: u64 = 5_000;
/// Tokens of a leading model's reply: the most, and the least without which it is not called.
const TURN_TOKENS: (u64, u64) = (4_096, 256);
/// The same for a text that is answered by one call.
const DIRECT_TOKENS: (u64, u64) = (8_192, 128);

/// Shared by all conversations of a query.
pub(crate) struct QueryState {
    pub(crate) models: ModelAccess,
    pub(crate) limits: QueryLimits,
    pub(crate) python: PythonSource,
    pub(crate) cancel: CancellationToken,
    /// The last output in the leading conversation, for a partial answer.
    pub(crate) last_output: std::sync::Mutex<Option<String>>,
}

type AnswerFuture = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// Leads a conversation about a text to its answer. Boxed, because conversations start conversations.
pub(crate) fn converse(
    state: Arc<QueryState>,
    task: String,
    text: SourceText,
    language: Option<Language>,
    name: Option<String>,
    depth: u32,
) -> AnswerFuture {
    Box::pin(async move {
        let room = usize::try_from(state.limits.direct_tokens).unwrap_or(usize::MAX);
        // A token has at most some 128 bytes, so a longer text need not be counted.
        if text.bytes() <= room.saturating_mul(128)
            && llmc_tokens::fits(text.as_str(), room)
            && room > 0
        {
            return direct(&state, &task, &text, depth).await;
        }
        let opening = prompt::opening(&task, &text, name.as_deref(), state.limits.preview_chars);
        let conversation = Conversation::open(state, text, language, depth).await?;
        conversation.lead(opening).await
    })
}

/// One call, for a text that fits into it.
async fn direct(
    state: &QueryState,
    task: &str,
    text: &SourceText,
    depth: u32,
) -> Result<Value, Error> {
    let model = state.models.leader(depth);
    if depth == 0 {
        state.models.turn.store(1, Ordering::Relaxed);
    }
    state
        .models
        .report_progress(&format!("asking {}", model.name));
    let request = ChatRequest {
        system: prompt::DIRECT_SYSTEM.to_owned(),
        messages: vec![user(prompt::with_text(task, text.as_str()))],
        max_output_tokens: DIRECT_TOKENS.0,
        min_output_tokens: DIRECT_TOKENS.1,
    };
    let reply = state.models.chat(model, &request, depth).await?;
    if reply.text.trim().is_empty() {
        return Err(Error::NoAnswer(
            "the model answered with nothing".to_owned(),
        ));
    }
    if reply.truncated {
        state.keep_output(depth, &reply.text);
        return Err(Error::NoAnswer(
            "the model's answer was cut before its end".to_owned(),
        ));
    }
    Ok(reply.text.into())
}

impl QueryState {
    fn keep_output(&self, depth: u32, output: &str) {
        if depth == 0 && !output.trim().is_empty() {
            let mut last = self
                .last_output
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            *last = Some(output.to_owned());
        }
    }
}

struct Conversation {
    state: Arc<QueryState>,
    python: Arc<PythonBackend>,
    session: PythonSession,
    names: ScriptNames,
    functions: Functions,
    depth: u32,
    size: TextSize,
    loaded: bool,
    /// Bounds the interpreters of all queries.
    _place: OwnedSemaphorePermit,
}

/// How the interpreter gets the text.
#[derive(Clone, Copy, PartialEq)]
enum TextSize {
    /// As a value from the start.
    Small,
    /// When code names it.
    Large,
}

enum TurnResult {
    Final(Value),
    /// What the model is shown next.
    Output(String),
}

impl Conversation {
    async fn open(
        state: Arc<QueryState>,
        text: SourceText,
        language: Option<Language>,
        depth: u32,
    ) -> Result<Conversation, Error> {
        let size = if text.bytes() <= MAX_PRELOADED_BYTES {
            TextSize::Small
        } else {
            TextSize::Large
        };
        let all = |more: &[&'static str]| -> Vec<String> {
            let names = functions::names().chain(more.iter().copied());
            names.map(str::to_owned).collect()
        };
        let mut names = ScriptNames {
            functions: all(&[LOAD_CONTEXT]),
            values: vec![("context_len".to_owned(), text.chars().into())],
            reserved: all(&["context", "context_len", LOAD_CONTEXT]),
            ..ScriptNames::default()
        };
        if size == TextSize::Small {
            names
                .values
                .push(("context".to_owned(), text.as_str().into()));
        }
        let (python, place) = state.python.open().await.map_err(Error::NoPython)?;
        Ok(Conversation {
            session: python.session(None),
            python,
            names,
            functions: Functions::new(state.clone(), text, language, depth),
            state,
            depth,
            size,
            loaded: false,
            _place: place,
        })
    }

    async fn lead(mut self, opening: String) -> Result<Value, Error> {
        let state = self.state.clone();
        let (models, max_turns) = (&state.models, state.limits.max_turns);
        let children = self.depth < state.limits.max_depth;
        let mut request = ChatRequest {
            system: prompt::system(max_turns, children),
            messages: vec![user(opening)],
            max_output_tokens: TURN_TOKENS.0,
            min_output_tokens: TURN_TOKENS.1,
        };
        for turn in 1..=max_turns {
            if self.depth == 0 {
                models.turn.store(turn, Ordering::Relaxed);
            }
            let model = models.leader(self.depth);
            models.report_progress(&format!("asking {}", model.name));
            let reply = models.chat(model, &request, self.depth).await?;
            let answer = find_code_blocks(&reply.text);
            let said = if reply.text.trim().is_empty() {
                "(nothing)".to_owned()
            } else {
                reply.text
            };
            request.messages.push(ChatMessage {
                role: ChatRole::Assistant,
                text: said,
            });
            let output = match self.run_all(answer, reply.truncated, turn).await? {
                TurnResult::Final(value) => return Ok(value),
                TurnResult::Output(output) => output,
            };
            self.state.keep_output(self.depth, &output);
            if let Some(what) = models.ledger.refused() {
                let hint = "give a higher budget_usd, or ask for less".to_owned();
                return Err(ModelError::Budget { what, hint }.into());
            }
            let shown = format!("{output}\n\n{}", prompt::turns_left(turn, max_turns));
            request.messages.push(user(shown));
        }
        Err(Error::NoAnswer(format!(
            "the turns that were allowed ({max_turns}) went by, and FINAL was not called"
        )))
    }

    /// Runs the blocks of a reply in order, up to the first that fails.
    async fn run_all(
        &mut self,
        answer: CodeBlocks,
        cut: bool,
        turn: u32,
    ) -> Result<TurnResult, Error> {
        let mut output = String::new();
        let mut add = |text: &str| {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str(text);
        };
        if answer.code.is_empty() && !answer.unclosed {
            add(
                "[No code ran: your reply had no closed python block. Only code is run; answers are given by FINAL(...).]",
            );
        }
        let many = answer.code.len();
        for (at, code) in answer.code.iter().enumerate() {
            if at == MAX_BLOCKS {
                add(&format!("[{} more blocks were not run]", many - at));
                break;
            }
            self.state.models.report_progress("running code");
            let (shown, failed) = self.run_one(code).await;
            if let Some(recorder) = &self.state.models.recorder {
                recorder.record_run(self.depth, turn, code, &shown);
            }
            if let Some(value) = self.functions.answer() {
                return Ok(TurnResult::Final(value));
            }
            if let Some(error) = self.functions.take_fatal() {
                return Err(error);
            }
            if self.state.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            add(&prompt::cut_output(&shown));
            for note in self.functions.take_notes() {
                add(&format!("[{note}]"));
            }
            if failed {
                if at + 1 < many {
                    add(&format!(
                        "[the {} blocks after it were not run]",
                        many - at - 1
                    ));
                }
                break;
            }
        }
        if answer.unclosed || (cut && answer.code.is_empty()) {
            add(
                "[Your reply was cut: its last block has no end and was not run. Write less in one reply.]",
            );
        }
        if answer.other_languages > 0 && answer.code.is_empty() {
            add("[Only blocks marked python are run.]");
        }
        if output.trim().is_empty() {
            output = "[your code ran and printed nothing]".to_owned();
        }
        Ok(TurnResult::Output(output))
    }

    /// Runs one block; returns its output with the error, and whether it failed.
    async fn run_one(&mut self, code: &str) -> (String, bool) {
        if code.len() > MAX_BLOCK_BYTES {
            let shown = format!("[not run: a block has at most {MAX_BLOCK_BYTES} bytes]");
            return (shown, true);
        }
        if self.size == TextSize::Large && !self.loaded && mentions_context(code) {
            self.functions.set_loading(true);
            // Not an assignment, which is refused.
            let load = format!("globals()['context'] = {LOAD_CONTEXT}()");
            let outcome = self.feed(&load).await;
            self.functions.set_loading(false);
            if let ScriptEnd::Failed(error) = outcome.ending {
                let shown = format!(
                    "[context is too large to be a variable here ({}); use context_search and context_slice]",
                    error.message
                );
                return (shown, true);
            }
            self.loaded = true;
        }
        let outcome = self.feed(code).await;
        let mut shown = outcome.output;
        let mut failed = false;
        match outcome.ending {
            ScriptEnd::Value(value) if shown.trim().is_empty() => shown.push_str(&value.repr),
            ScriptEnd::Value(_) | ScriptEnd::Stopped => {}
            ScriptEnd::Failed(error) => {
                failed = true;
                shown.push_str(&render_error(&error));
            }
        }
        if failed && !self.session.can_go_on() {
            shown.push_str("\n[the interpreter was restarted; all variables are gone]");
        }
        (shown, failed)
    }

    async fn feed(&mut self, code: &str) -> ScriptOutcome {
        if !self.session.can_go_on() {
            self.session = self.python.session(None);
            self.loaded = false;
        }
        let left = self
            .state
            .limits
            .deadline
            .saturating_duration_since(Instant::now());
        let limits = ScriptLimits {
            wall: left,
            calls_wall: left,
            cpu: MAX_BLOCK_CPU,
            memory_bytes: self.python.memory_bytes(),
            output_bytes: MAX_BLOCK_OUTPUT_BYTES,
            calls: MAX_BLOCK_CALLS,
            ..ScriptLimits::default()
        };
        self.session
            .run(
                code,
                &self.names,
                &limits,
                &self.functions,
                &self.state.cancel,
            )
            .await
    }
}

fn user(text: String) -> ChatMessage {
    ChatMessage {
        role: ChatRole::User,
        text,
    }
}

/// A script error as the model reads it.
fn render_error(error: &ScriptError) -> String {
    let line = error
        .line
        .map_or(String::new(), |line| format!(" (line {line})"));
    let hint = error
        .hint
        .as_deref()
        .map_or(String::new(), |hint| format!("\nhint: {hint}"));
    let class = match (&error.kind, error.exception.as_str()) {
        (ScriptErrorKind::Syntax, "") => "SyntaxError",
        (_, "") => "Error",
        (_, class) => class,
    };
    format!("{}{class}{line}: {}{hint}", error.traceback, error.message)
}

/// Whether the word stands alone anywhere. In a comment it costs a needless load, nothing else.
fn mentions_context(code: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("context").any(|(at, found)| {
        !code[..at].ends_with(word) && !code[at + found.len()..].starts_with(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_wanted_by_its_own_name_only() {
        for (code, wants) in [
            ("print(len(context))", true),
            ("context", true),
            ("context_search('x')", false),
            ("my_context = 1", false),
            ("x = context[3:4]", true),
        ] {
            assert_eq!(mentions_context(code), wants, "{code}");
        }
    }
}
