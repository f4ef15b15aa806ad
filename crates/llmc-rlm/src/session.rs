//! One conversation: a model is asked, its code runs, it is shown what came of it, until something is final.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use llmc_model::{ChatMessage, ChatRequest, ChatRole, Error as ModelError};
use llmc_sandbox::{Ending, Limits, Names, Outcome, Sandbox, Session, Setup, Trouble, TroubleKind};
use llmc_syntax::Language;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::binding::binds;
use crate::blocks::{Blocks, blocks};
use crate::desk::Desk;
use crate::error::Error;
use crate::functions::{self, Functions, LOAD};
use crate::prompt;
use crate::query::Settings;
use crate::text::Text;

/// Texts up to this many bytes are a plain value in the interpreter; larger ones are brought in when code wants them.
const SMALL: usize = 256 << 10;
/// Bytes of code that one block may have.
const LONGEST_CODE: usize = 64 << 10;
/// Blocks of one answer that are run.
const MOST_BLOCKS: usize = 8;
/// What one block may spend of the processor, of memory, and print.
const BLOCK_CPU: Duration = Duration::from_secs(20);
const BLOCK_MEMORY: u64 = 256 << 20;
const BLOCK_OUTPUT: u64 = 1 << 20;
const BLOCK_CALLS: u64 = 5_000;
/// Tokens that the leading model may answer with, and without which it is not worth asking.
const TURN_TOKENS: (u64, u64) = (4_096, 256);
/// The same for a text that is answered directly.
const DIRECT_TOKENS: (u64, u64) = (8_192, 128);

/// What all conversations of a query share.
pub(crate) struct Shared {
    pub(crate) desk: Desk,
    pub(crate) settings: Settings,
    pub(crate) sandbox: Sandbox,
    pub(crate) cancel: CancellationToken,
    pub(crate) owner: String,
    /// What the leading conversation has seen last, for an answer that may be partial.
    pub(crate) last_seen: std::sync::Mutex<Option<String>>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// Leads a conversation about a text to its answer. Boxed, since conversations start conversations.
pub(crate) fn converse(
    shared: Arc<Shared>,
    task: String,
    text: Text,
    language: Option<Language>,
    name: Option<String>,
    depth: u32,
) -> Answering {
    Box::pin(async move {
        let room = usize::try_from(shared.settings.direct_tokens).unwrap_or(usize::MAX);
        // A token has at most some 128 bytes, so most texts need no counting to be seen not to fit.
        if text.bytes() <= room.saturating_mul(128)
            && llmc_tokens::fits(text.as_str(), room)
            && room > 0
        {
            return direct(&shared, &task, &text, depth).await;
        }
        let opening = prompt::opening(&task, &text, name.as_deref());
        let talk = Talk::open(shared, text, language, depth).await?;
        talk.lead(opening).await
    })
}

/// One plain question, for a text that fits into it.
async fn direct(shared: &Shared, task: &str, text: &Text, depth: u32) -> Result<Value, Error> {
    let party = shared.desk.leader(depth);
    if depth == 0 {
        shared.desk.turn.store(1, Ordering::Relaxed);
    }
    shared.desk.tell(&format!("asking {}", party.model));
    let request = ChatRequest {
        system: prompt::DIRECT.to_owned(),
        messages: vec![user(prompt::with_text(task, text.as_str()))],
        max_output_tokens: DIRECT_TOKENS.0,
        min_output_tokens: DIRECT_TOKENS.1,
    };
    let reply = shared.desk.ask(party, &request, depth).await?;
    if reply.text.trim().is_empty() {
        return Err(Error::NoAnswer(
            "the model answered with nothing".to_owned(),
        ));
    }
    if reply.truncated {
        shared.see(depth, &reply.text);
        return Err(Error::NoAnswer(
            "the model's answer was cut before its end".to_owned(),
        ));
    }
    Ok(reply.text.into())
}

impl Shared {
    fn see(&self, depth: u32, seen: &str) {
        if depth == 0 && !seen.trim().is_empty() {
            let mut last = self
                .last_seen
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            *last = Some(seen.to_owned());
        }
    }
}

/// A conversation under way.
struct Talk {
    shared: Arc<Shared>,
    session: Session,
    functions: Functions,
    depth: u32,
    size: Size,
    loaded: bool,
}

/// How the interpreter has the text.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    /// As a value like any other.
    Small,
    /// Not before code wants it.
    Large,
}

/// How an answer's code went, for the model to read.
enum Went {
    Final(Value),
    On(String),
}

impl Talk {
    async fn open(
        shared: Arc<Shared>,
        text: Text,
        language: Option<Language>,
        depth: u32,
    ) -> Result<Talk, Error> {
        let size = if text.bytes() <= SMALL {
            Size::Small
        } else {
            Size::Large
        };
        let all = |more: &[&'static str]| -> Vec<String> {
            let names = functions::names().chain(more.iter().copied());
            names.map(str::to_owned).collect()
        };
        let mut names = Names {
            functions: all(&[LOAD]),
            values: vec![("context_len".to_owned(), text.chars().into())],
            reserved: all(&["context_len", LOAD]),
            ..Names::default()
        };
        if size == Size::Small {
            names.reserved.push("context".to_owned());
            names
                .values
                .push(("context".to_owned(), text.as_str().into()));
        }
        let setup = Setup {
            names,
            checkpoints: size == Size::Small,
            ..Setup::default()
        };
        let opened = shared.sandbox.session(&shared.owner, setup).await;
        let session = opened.map_err(|error| Error::Sandbox(error.to_string()))?;
        Ok(Talk {
            session,
            functions: Functions::new(shared.clone(), text, language, depth),
            shared,
            depth,
            size,
            loaded: false,
        })
    }

    async fn lead(mut self, opening: String) -> Result<Value, Error> {
        let shared = self.shared.clone();
        let (desk, max_turns) = (&shared.desk, shared.settings.max_turns);
        let children = self.depth < shared.settings.max_depth;
        let mut request = ChatRequest {
            system: prompt::system(max_turns, children),
            messages: vec![user(opening)],
            max_output_tokens: TURN_TOKENS.0,
            min_output_tokens: TURN_TOKENS.1,
        };
        for turn in 1..=max_turns {
            if self.depth == 0 {
                desk.turn.store(turn, Ordering::Relaxed);
            }
            let party = desk.leader(self.depth);
            desk.tell(&format!("asking {}", party.model));
            let reply = desk.ask(party, &request, self.depth).await?;
            let answer = blocks(&reply.text);
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
                Went::Final(value) => return Ok(value),
                Went::On(output) => output,
            };
            self.shared.see(self.depth, &output);
            if let Some(what) = desk.ledger.refused() {
                let hint = "give a higher budget_usd, or ask for less".to_owned();
                return Err(ModelError::Budget { what, hint }.into());
            }
            let told = format!("{output}\n\n{}", prompt::turns_left(turn, max_turns));
            request.messages.push(user(told));
        }
        Err(Error::NoAnswer(format!(
            "the turns that were allowed ({max_turns}) went by, and FINAL was not called"
        )))
    }

    /// Runs the blocks of an answer, one after the other, up to the first that fails.
    async fn run_all(&mut self, answer: Blocks, cut: bool, turn: u32) -> Result<Went, Error> {
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
            if at == MOST_BLOCKS {
                add(&format!("[{} more blocks were not run]", many - at));
                break;
            }
            self.shared.desk.tell("running code");
            let (told, failed) = self.run_one(code).await;
            if let Some(recorder) = &self.shared.desk.recorder {
                recorder.ran(self.depth, turn, code, &told);
            }
            if let Some(value) = self.functions.answer() {
                return Ok(Went::Final(value));
            }
            if let Some(error) = self.functions.fatal() {
                return Err(error);
            }
            if self.shared.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            add(&prompt::shown(&told));
            for note in self.functions.notes() {
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
        if answer.foreign > 0 && answer.code.is_empty() {
            add("[Only blocks marked python are run.]");
        }
        if output.trim().is_empty() {
            output = "[your code ran and printed nothing]".to_owned();
        }
        Ok(Went::On(output))
    }

    /// Runs one block; what it printed, with what went wrong, and whether something did.
    async fn run_one(&mut self, code: &str) -> (String, bool) {
        if code.len() > LONGEST_CODE {
            let told = format!("[not run: a block has at most {LONGEST_CODE} bytes]");
            return (told, true);
        }
        if self.size == Size::Large {
            if let Some(line) = binds(code, "context") {
                let told = format!(
                    "[not run: line {line} assigns context, which is read-only; use another name]"
                );
                return (told, true);
            }
            if !self.loaded && mentions_context(code) {
                self.functions.set_loading(true);
                let load = format!("context = {LOAD}()");
                let outcome = self.feed(&load).await;
                self.functions.set_loading(false);
                if let Ending::Failed(trouble) = outcome.ending {
                    let told = format!(
                        "[context is too large to be a variable here ({}); use context_search and context_slice]",
                        trouble.message
                    );
                    return (told, true);
                }
                self.loaded = true;
            }
        }
        let outcome = self.feed(code).await;
        let mut told = outcome.output;
        let mut failed = false;
        match outcome.ending {
            Ending::Value(value) if told.trim().is_empty() => told.push_str(&value.repr),
            Ending::Value(_) | Ending::Stopped => {}
            Ending::Failed(trouble) => {
                failed = true;
                told.push_str(&troubled(&trouble));
            }
        }
        if outcome.rolled_back {
            self.loaded = false;
            told.push_str("\n[the interpreter was restarted; variables of this block, or all of them, are gone]");
        }
        (told, failed)
    }

    async fn feed(&mut self, code: &str) -> Outcome {
        let left = self
            .shared
            .settings
            .deadline
            .saturating_duration_since(Instant::now());
        let limits = Limits {
            wall: left,
            cpu: BLOCK_CPU,
            memory_bytes: BLOCK_MEMORY,
            output_bytes: BLOCK_OUTPUT,
            calls: BLOCK_CALLS,
            ..Limits::default()
        };
        self.session
            .run(code, &limits, &self.functions, &self.shared.cancel)
            .await
    }
}

fn user(text: String) -> ChatMessage {
    ChatMessage {
        role: ChatRole::User,
        text,
    }
}

/// What went wrong, as a model reads it.
fn troubled(trouble: &Trouble) -> String {
    let line = trouble
        .line
        .map_or(String::new(), |line| format!(" (line {line})"));
    let hint = trouble
        .hint
        .as_deref()
        .map_or(String::new(), |hint| format!("\nhint: {hint}"));
    let class = match (&trouble.kind, trouble.exception.as_str()) {
        (TroubleKind::Syntax, "") => "SyntaxError",
        (_, "") => "Error",
        (_, class) => class,
    };
    format!(
        "{}{class}{line}: {}{hint}",
        trouble.traceback, trouble.message
    )
}

/// Whether the word stands alone anywhere; in a comment it costs a load that was not needed, and nothing else.
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
