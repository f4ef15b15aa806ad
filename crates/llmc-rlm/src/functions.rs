//! What a session's code can call. Every name here is reserved, and none of them reaches a file or a network but through
//! the desk.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::stream::{self, StreamExt};
use llmc_model::{ChatMessage, ChatRequest, ChatRole, Error as ModelError};
use llmc_sandbox::{Exception, Host, HostCall, HostError};
use llmc_syntax::Language;
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::error::Error;
use crate::given::Given;
use crate::nav::Outline;
use crate::prompt;
use crate::session::{self, Shared};
use crate::text::{Search, Text};

/// Every function with how it is called.
const USAGES: &[(&str, &str)] = &[
    (
        "context_search",
        "context_search(pattern, literal=False, ignore_case=False, start=0, end=None, limit=50)",
    ),
    ("context_slice", "context_slice(start, end=None)"),
    ("context_chunks", "context_chunks(size=20000, overlap=0)"),
    ("nav_outline", "nav_outline(limit=100)"),
    ("nav_symbol", "nav_symbol(name)"),
    ("nav_search", "nav_search(words, limit=50)"),
    ("llm_query", "llm_query(prompt, start=None, end=None)"),
    (
        "llm_query_batched",
        "llm_query_batched(prompts, spans=None)",
    ),
    ("rlm_query", "rlm_query(task, start=0, end=None)"),
    ("FINAL", "FINAL(value)"),
];
/// Brings a large text into the interpreter; answers only while a session does that itself.
pub(crate) const LOAD: &str = "_llmc_load_context";

/// Calls of one batch that run at the same time.
const AT_ONCE: usize = 8;
/// Calls of one batch.
const LARGEST_BATCH: usize = 500;
/// Characters of one question with its part of the text.
const LONGEST_QUESTION: usize = 400_000;
/// Characters of one slice.
const LONGEST_SLICE: usize = 4_000_000;
/// Tokens that a part's answer may have, and without which it is not worth asking.
const ANSWER_TOKENS: (u64, u64) = (2_048, 64);
/// Bytes of a final value.
const LARGEST_VALUE: usize = 1 << 20;
/// Characters of a task for a child.
const LONGEST_TASK: usize = 5_000;

/// The functions' names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    USAGES.iter().map(|(name, _)| *name)
}

/// The functions of one session.
pub(crate) struct Functions {
    pub(crate) shared: Arc<Shared>,
    pub(crate) text: Text,
    pub(crate) language: Option<Language>,
    pub(crate) depth: u32,
    outline: Arc<OnceLock<Result<Outline, String>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answer: Option<Value>,
    /// What the model is to be told beside its output.
    notes: Vec<String>,
    /// Why the session cannot go on.
    fatal: Option<Error>,
    loading: bool,
}

impl Functions {
    pub(crate) fn new(
        shared: Arc<Shared>,
        text: Text,
        language: Option<Language>,
        depth: u32,
    ) -> Functions {
        Functions {
            shared,
            text,
            language,
            depth,
            outline: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// What the code called final.
    pub(crate) fn answer(&self) -> Option<Value> {
        self.state().answer.clone()
    }

    /// Why the session must end, if it must.
    pub(crate) fn fatal(&self) -> Option<Error> {
        self.state().fatal.clone()
    }

    /// Takes what is to be told.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    /// Lets the text be loaded, or no longer.
    pub(crate) fn set_loading(&self, loading: bool) {
        self.state().loading = loading;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> &Desk {
        &self.shared.desk
    }

    async fn search(&self, mut given: Given) -> Result<Value, HostError> {
        let search = Search {
            pattern: given.text("pattern")?,
            literal: given.flag("literal")?,
            ignore_case: given.flag("ignore_case")?,
            start: given.int("start")?.unwrap_or(0),
            end: given.int("end")?,
            limit: given.count("limit", 50, 1_000)?,
        };
        given.finish()?;
        self.desk()
            .tell(&format!("context_search {}", clipped(&search.pattern)));
        let text = self.text.clone();
        let found = off_thread(move || text.search(&search)).await?;
        let hits: Vec<Value> = found
            .hits
            .into_iter()
            .map(|hit| json!({"start": hit.start, "end": hit.end, "line": hit.line, "text": hit.text}))
            .collect();
        Ok(json!({"total": found.total, "complete": found.complete, "hits": hits}))
    }

    fn slice(&self, mut given: Given) -> Result<Value, HostError> {
        let (start, end) = (given.int("start")?.unwrap_or(0), given.int("end")?);
        given.finish()?;
        let part = self.text.part(start, end);
        if part.chars() > LONGEST_SLICE {
            return Err(HostError::value(format!(
                "a slice has at most {LONGEST_SLICE} characters; take several"
            )));
        }
        self.desk()
            .tell(&format!("context_slice {start}:{}", end.unwrap_or(-1)));
        Ok(part.as_str().into())
    }

    fn chunks(&self, mut given: Given) -> Result<Value, HostError> {
        let size = given.count("size", 20_000, usize::MAX)?;
        let overlap = given.count("overlap", 0, usize::MAX)?;
        given.finish()?;
        let pieces = self.text.chunks(size, overlap).map_err(HostError::value)?;
        Ok(pieces
            .iter()
            .map(|(start, end)| json!([start, end]))
            .collect())
    }

    async fn nav(&self, name: &str, mut given: Given) -> Result<Value, HostError> {
        let words = match name {
            "nav_outline" => String::new(),
            "nav_symbol" => given.text("name")?,
            _ => given.text("words")?,
        };
        let limit = match name {
            "nav_outline" => given.count("limit", 100, 2_000)?,
            "nav_symbol" => 0,
            _ => given.count("limit", 50, 2_000)?,
        };
        given.finish()?;
        self.desk().tell(&format!("{name} {}", clipped(&words)));
        let (text, language, name) = (self.text.clone(), self.language, name.to_owned());
        let outline = self.outline.clone();
        off_thread(move || {
            let outline = outline.get_or_init(|| Outline::of(&text, language));
            let outline = outline.as_ref().map_err(Clone::clone)?;
            Ok(match name.as_str() {
                "nav_outline" => outline.list(&text, limit),
                "nav_symbol" => outline.named(&text, &words),
                _ => outline.matching(&text, &words, limit),
            })
        })
        .await
    }

    async fn ask(&self, mut given: Given) -> Result<Value, HostError> {
        let prompt = given.text("prompt")?;
        let span = match (given.int("start")?, given.int("end")?) {
            (None, None) => None,
            (start, end) => Some((start.unwrap_or(0), end)),
        };
        given.finish()?;
        let request = self.question(&prompt, span)?;
        self.desk().tell(&format!("llm_query {}", clipped(&prompt)));
        match self.one(&request).await {
            Ok(text) => Ok(text.into()),
            Err(error) => Err(self.raised(error)),
        }
    }

    async fn ask_many(&self, mut given: Given) -> Result<Value, HostError> {
        let prompts = match given.value("prompts")? {
            Some(Value::Array(prompts)) => prompts,
            _ => return Err(given.wrong("prompts must be a list of strings")),
        };
        let spans = match given.value("spans")? {
            None => vec![Value::Null; prompts.len()],
            Some(Value::Array(spans)) if spans.len() == prompts.len() => spans,
            Some(_) => return Err(given.wrong("spans must be a list as long as prompts")),
        };
        if prompts.len() > LARGEST_BATCH {
            return Err(HostError::value(format!(
                "a batch has at most {LARGEST_BATCH} prompts; combine some"
            )));
        }
        let mut requests = Vec::with_capacity(prompts.len());
        for (prompt, span) in prompts.iter().zip(&spans) {
            let Some(prompt) = prompt.as_str() else {
                return Err(given.wrong("prompts must be a list of strings"));
            };
            let span = match span {
                Value::Null => None,
                span => match (span[0].as_i64(), span[1].as_i64()) {
                    (Some(start), end) => Some((start, end)),
                    _ => return Err(given.wrong("a span is [start, end] or None")),
                },
            };
            requests.push(self.question(prompt, span)?);
        }
        given.finish()?;
        self.desk()
            .tell(&format!("llm_query_batched, {} prompts", requests.len()));
        let answers: Vec<_> = stream::iter(requests)
            .map(|request| async move { self.one(&request).await })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut texts = Vec::with_capacity(answers.len());
        let mut stop = None;
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(text) => texts.push(Value::from(text)),
                Err(error) => {
                    texts.push(Value::Null);
                    let note = format!("batch item {at} failed: {}: {error}", error.code());
                    self.state().notes.push(note);
                    if let HostError::Stop = self.raised(error) {
                        stop = Some(HostError::Stop);
                    }
                }
            }
        }
        match stop {
            Some(stop) => Err(stop),
            None => Ok(texts.into()),
        }
    }

    async fn child(&self, mut given: Given) -> Result<Value, HostError> {
        let task = given.text("task")?;
        let (start, end) = (given.int("start")?.unwrap_or(0), given.int("end")?);
        given.finish()?;
        if task.trim().is_empty() || task.chars().count() > LONGEST_TASK {
            return Err(HostError::value(format!(
                "a task has 1 to {LONGEST_TASK} characters"
            )));
        }
        if self.depth >= self.shared.settings.max_depth {
            return Err(HostError::raise(
                Exception::Runtime,
                format!(
                    "depth_exceeded: analyses nest {} deep at most; use llm_query",
                    self.shared.settings.max_depth
                ),
            ));
        }
        self.desk().tell(&format!("rlm_query {}", clipped(&task)));
        let part = self.text.part(start, end);
        let answered = session::converse(
            self.shared.clone(),
            task,
            part,
            self.language,
            None,
            self.depth + 1,
        );
        match answered.await {
            Ok(value) => Ok(value),
            Err(Error::Model(error)) => Err(self.raised(error)),
            Err(error @ Error::NoAnswer(_)) => Err(HostError::raise(
                Exception::Runtime,
                format!("{}: {error}", error.code()),
            )),
            Err(error) => {
                self.state().fatal.get_or_insert(error);
                Err(HostError::Stop)
            }
        }
    }

    fn finish(&self, mut given: Given) -> Result<Value, HostError> {
        let value = given.value("value")?;
        let wrong =
            given.wrong("value must be a string, a list, a dict or a number, and not empty");
        given.finish()?;
        let value = match value {
            None => return Err(wrong),
            Some(Value::String(text)) if text.trim().is_empty() => return Err(wrong),
            Some(value) => value,
        };
        if value.to_string().len() > LARGEST_VALUE {
            return Err(HostError::value(
                "the answer is larger than 1 MiB; say less",
            ));
        }
        self.state().answer.get_or_insert(value);
        Err(HostError::Stop)
    }

    fn load(&self) -> Result<Value, HostError> {
        if !self.state().loading {
            return Err(HostError::raise(Exception::Runtime, "use context"));
        }
        Ok(self.text.as_str().into())
    }

    /// A question about a part, within its limits.
    fn question(
        &self,
        prompt: &str,
        span: Option<(i64, Option<i64>)>,
    ) -> Result<ChatRequest, HostError> {
        if prompt.trim().is_empty() {
            return Err(HostError::value("the prompt is empty"));
        }
        let part = span.map(|(start, end)| self.text.part(start, end));
        let length = prompt.chars().count() + part.as_ref().map_or(0, Text::chars);
        if length > LONGEST_QUESTION {
            return Err(HostError::value(format!(
                "a question with its text has at most {LONGEST_QUESTION} characters, this one {length}; use parts"
            )));
        }
        let text = match part {
            Some(part) => prompt::with_text(prompt, part.as_str()),
            None => prompt.to_owned(),
        };
        Ok(ChatRequest {
            system: prompt::DIRECT.to_owned(),
            messages: vec![ChatMessage {
                role: ChatRole::User,
                text,
            }],
            max_output_tokens: ANSWER_TOKENS.0,
            min_output_tokens: ANSWER_TOKENS.1,
        })
    }

    async fn one(&self, request: &ChatRequest) -> Result<String, ModelError> {
        let reply = self
            .desk()
            .ask(&self.desk().sub, request, self.depth + 1)
            .await?;
        let cut = if reply.truncated {
            "\n[cut: the answer was longer than it may be]"
        } else {
            ""
        };
        Ok(format!("{}{cut}", reply.text))
    }

    /// What a failed call means for the script: an exception, or its end.
    fn raised(&self, error: ModelError) -> HostError {
        let mut state = self.state();
        let ends = match error {
            ModelError::Budget { .. } => !self.shared.settings.allow_partial,
            ModelError::TimedOut => true,
            _ => false,
        };
        if ends {
            state.fatal.get_or_insert(Error::Model(error));
            return HostError::Stop;
        }
        HostError::raise(Exception::Runtime, format!("{}: {error}", error.code()))
    }
}

impl Host for Functions {
    async fn call(&self, call: HostCall) -> Result<Value, HostError> {
        let name = call.name.clone();
        if name == LOAD {
            return self.load();
        }
        let Some((_, usage)) = USAGES.iter().find(|(known, _)| *known == name) else {
            return Err(HostError::raise(
                Exception::Runtime,
                format!("no function {name}"),
            ));
        };
        let given = Given::new(call, usage);
        match name.as_str() {
            "context_search" => self.search(given).await,
            "context_slice" => self.slice(given),
            "context_chunks" => self.chunks(given),
            "llm_query" => self.ask(given).await,
            "llm_query_batched" => self.ask_many(given).await,
            "rlm_query" => self.child(given).await,
            "FINAL" => self.finish(given),
            name => self.nav(name, given).await,
        }
    }
}

/// Runs what takes the processor for a while where it holds nobody up.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, HostError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(HostError::value),
        Err(_) => Err(HostError::raise(Exception::Runtime, "that failed inside")),
    }
}

/// As much as a line of progress has room for.
fn clipped(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(48)
        .collect();
    if text.chars().nth(48).is_some() {
        shown.push('\u{2026}');
    }
    format!("{shown:?}")
}
