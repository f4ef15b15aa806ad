//! The functions that a session's code can call. Every name is reserved, and none reaches a file, or a network except
//! through `model_access`.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::stream::{self, StreamExt};
use llmc_model::{ChatMessage, ChatRequest, ChatRole, Error as ModelError};
use llmc_sandbox::{Exception, ScriptCall, ScriptCallError, ScriptHost};
use llmc_syntax::Language;
use serde_json::{Value, json};

use crate::arguments::CallArguments;
use crate::definitions::DefinitionIndex;
use crate::error::Error;
use crate::model_access::ModelAccess;
use crate::prompt;
use crate::session::{self, QueryState};
use crate::text::{SourceText, TextSearch};

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
/// Loads a large text into the interpreter. Works only while the session itself calls it.
pub(crate) const LOAD_CONTEXT: &str = "_llmc_load_context";

const MAX_CONCURRENT_CALLS: usize = 8;
const MAX_BATCH_CALLS: usize = 500;
/// A question with its part of the text.
const MAX_QUESTION_CHARS: usize = 400_000;
const MAX_SLICE_CHARS: usize = 4_000_000;
/// Tokens of the reply to a question about a part: the most, and the least without which it is not asked.
const ANSWER_TOKENS: (u64, u64) = (2_048, 64);
const MAX_FINAL_BYTES: usize = 1 << 20;
const MAX_CHILD_TASK_CHARS: usize = 5_000;

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    USAGES.iter().map(|(name, _)| *name)
}

pub(crate) struct Functions {
    query: Arc<QueryState>,
    text: SourceText,
    language: Option<Language>,
    depth: u32,
    outline: Arc<OnceLock<Result<DefinitionIndex, String>>>,
    state: Mutex<FunctionsState>,
}

#[derive(Default)]
struct FunctionsState {
    answer: Option<Value>,
    /// Shown to the model after the output.
    notes: Vec<String>,
    /// Why the session must end.
    fatal: Option<Error>,
    loading: bool,
}

impl Functions {
    pub(crate) fn new(
        query: Arc<QueryState>,
        text: SourceText,
        language: Option<Language>,
        depth: u32,
    ) -> Functions {
        Functions {
            query,
            text,
            language,
            depth,
            outline: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// The argument of `FINAL`.
    pub(crate) fn answer(&self) -> Option<Value> {
        self.state().answer.clone()
    }

    /// Why the session must end, if it must.
    pub(crate) fn take_fatal(&self) -> Option<Error> {
        self.state().fatal.take()
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    pub(crate) fn set_loading(&self, loading: bool) {
        self.state().loading = loading;
    }

    fn state(&self) -> MutexGuard<'_, FunctionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn models(&self) -> &ModelAccess {
        &self.query.models
    }

    async fn search(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let search = TextSearch {
            pattern: args.text("pattern")?,
            literal: args.flag("literal")?,
            ignore_case: args.flag("ignore_case")?,
            start: args.int("start")?.unwrap_or(0),
            end: args.int("end")?,
            limit: args.count("limit", 50, 1_000)?,
        };
        args.finish()?;
        self.models()
            .report_progress(&format!("context_search {}", clipped(&search.pattern)));
        let text = self.text.clone();
        let found = run_blocking(move || text.search(&search)).await?;
        let hits: Vec<Value> = found
            .hits
            .into_iter()
            .map(|hit| json!({"start": hit.start, "end": hit.end, "line": hit.line, "text": hit.text}))
            .collect();
        Ok(json!({"total": found.total, "complete": found.complete, "hits": hits}))
    }

    fn slice(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let (start, end) = (args.int("start")?.unwrap_or(0), args.int("end")?);
        args.finish()?;
        let part = self.text.part(start, end);
        if part.chars() > MAX_SLICE_CHARS {
            return Err(ScriptCallError::value(format!(
                "a slice has at most {MAX_SLICE_CHARS} characters; take several"
            )));
        }
        self.models()
            .report_progress(&format!("context_slice {start}:{}", end.unwrap_or(-1)));
        Ok(part.as_str().into())
    }

    fn chunks(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let size = args.count("size", 20_000, usize::MAX)?;
        let overlap = args.count("overlap", 0, usize::MAX)?;
        args.finish()?;
        let pieces = self
            .text
            .chunks(size, overlap)
            .map_err(ScriptCallError::value)?;
        Ok(pieces
            .iter()
            .map(|(start, end)| json!([start, end]))
            .collect())
    }

    async fn nav(&self, name: &str, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let words = match name {
            "nav_outline" => String::new(),
            "nav_symbol" => args.text("name")?,
            _ => args.text("words")?,
        };
        let limit = match name {
            "nav_outline" => args.count("limit", 100, 2_000)?,
            "nav_symbol" => 0,
            _ => args.count("limit", 50, 2_000)?,
        };
        args.finish()?;
        self.models()
            .report_progress(&format!("{name} {}", clipped(&words)));
        let (text, language, name) = (self.text.clone(), self.language, name.to_owned());
        let outline = self.outline.clone();
        run_blocking(move || {
            let outline = outline.get_or_init(|| DefinitionIndex::parse(&text, language));
            let outline = outline.as_ref().map_err(Clone::clone)?;
            Ok(match name.as_str() {
                "nav_outline" => outline.list(&text, limit),
                "nav_symbol" => outline.named(&text, &words),
                _ => outline.matching(&text, &words, limit),
            })
        })
        .await
    }

    async fn ask(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let prompt = args.text("prompt")?;
        let span = match (args.int("start")?, args.int("end")?) {
            (None, None) => None,
            (start, end) => Some((start.unwrap_or(0), end)),
        };
        args.finish()?;
        let request = self.sub_request(&prompt, span)?;
        self.models()
            .report_progress(&format!("llm_query {}", clipped(&prompt)));
        match self.ask_sub_model(&request).await {
            Ok(text) => Ok(text.into()),
            Err(error) => Err(self.to_host_error(error)),
        }
    }

    async fn ask_many(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let prompts = match args.value("prompts")? {
            Some(Value::Array(prompts)) => prompts,
            _ => return Err(args.type_error("prompts must be a list of strings")),
        };
        let spans = match args.value("spans")? {
            None => vec![Value::Null; prompts.len()],
            Some(Value::Array(spans)) if spans.len() == prompts.len() => spans,
            Some(_) => return Err(args.type_error("spans must be a list as long as prompts")),
        };
        if prompts.len() > MAX_BATCH_CALLS {
            return Err(ScriptCallError::value(format!(
                "a batch has at most {MAX_BATCH_CALLS} prompts; combine some"
            )));
        }
        let mut requests = Vec::with_capacity(prompts.len());
        for (prompt, span) in prompts.iter().zip(&spans) {
            let Some(prompt) = prompt.as_str() else {
                return Err(args.type_error("prompts must be a list of strings"));
            };
            let span = match span {
                Value::Null => None,
                span => match (span[0].as_i64(), span[1].as_i64()) {
                    (Some(start), end) => Some((start, end)),
                    _ => return Err(args.type_error("a span is [start, end] or None")),
                },
            };
            requests.push(self.sub_request(prompt, span)?);
        }
        args.finish()?;
        self.models()
            .report_progress(&format!("llm_query_batched, {} prompts", requests.len()));
        let answers: Vec<_> = stream::iter(requests)
            .map(|request| async move { self.ask_sub_model(&request).await })
            .buffered(MAX_CONCURRENT_CALLS)
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
                    if let ScriptCallError::Stop = self.to_host_error(error) {
                        stop = Some(ScriptCallError::Stop);
                    }
                }
            }
        }
        match stop {
            Some(stop) => Err(stop),
            None => Ok(texts.into()),
        }
    }

    async fn child(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let task = args.text("task")?;
        let (start, end) = (args.int("start")?.unwrap_or(0), args.int("end")?);
        args.finish()?;
        if task.trim().is_empty() || task.chars().count() > MAX_CHILD_TASK_CHARS {
            return Err(ScriptCallError::value(format!(
                "a task has 1 to {MAX_CHILD_TASK_CHARS} characters"
            )));
        }
        if self.depth >= self.query.limits.max_depth {
            return Err(ScriptCallError::raise(
                Exception::Runtime,
                format!(
                    "depth_exceeded: analyses nest {} deep at most; use llm_query",
                    self.query.limits.max_depth
                ),
            ));
        }
        self.models()
            .report_progress(&format!("rlm_query {}", clipped(&task)));
        let part = self.text.part(start, end);
        let answered = session::converse(
            self.query.clone(),
            task,
            part,
            self.language,
            None,
            self.depth + 1,
        );
        match answered.await {
            Ok(value) => Ok(value),
            Err(Error::Model(error)) => Err(self.to_host_error(error)),
            Err(error @ Error::NoAnswer(_)) => Err(ScriptCallError::raise(
                Exception::Runtime,
                format!("{}: {error}", error.code()),
            )),
            Err(error) => {
                self.state().fatal.get_or_insert(error);
                Err(ScriptCallError::Stop)
            }
        }
    }

    fn finish(&self, mut args: CallArguments) -> Result<Value, ScriptCallError> {
        let value = args.value("value")?;
        let wrong =
            args.type_error("value must be a string, a list, a dict or a number, and not empty");
        args.finish()?;
        let value = match value {
            None => return Err(wrong),
            Some(Value::String(text)) if text.trim().is_empty() => return Err(wrong),
            Some(value) => value,
        };
        if value.to_string().len() > MAX_FINAL_BYTES {
            return Err(ScriptCallError::value(
                "the answer is larger than 1 MiB; say less",
            ));
        }
        self.state().answer.get_or_insert(value);
        Err(ScriptCallError::Stop)
    }

    fn load(&self) -> Result<Value, ScriptCallError> {
        if !self.state().loading {
            return Err(ScriptCallError::raise(Exception::Runtime, "use context"));
        }
        Ok(self.text.as_str().into())
    }

    /// The request for a question about a part.
    fn sub_request(
        &self,
        prompt: &str,
        span: Option<(i64, Option<i64>)>,
    ) -> Result<ChatRequest, ScriptCallError> {
        if prompt.trim().is_empty() {
            return Err(ScriptCallError::value("the prompt is empty"));
        }
        let part = span.map(|(start, end)| self.text.part(start, end));
        let length = prompt.chars().count() + part.as_ref().map_or(0, SourceText::chars);
        if length > MAX_QUESTION_CHARS {
            return Err(ScriptCallError::value(format!(
                "a question with its text has at most {MAX_QUESTION_CHARS} characters, this one {length}; use parts"
            )));
        }
        let text = match part {
            Some(part) => prompt::with_text(prompt, part.as_str()),
            None => prompt.to_owned(),
        };
        Ok(ChatRequest {
            system: prompt::DIRECT_SYSTEM.to_owned(),
            messages: vec![ChatMessage {
                role: ChatRole::User,
                text,
            }],
            max_output_tokens: ANSWER_TOKENS.0,
            min_output_tokens: ANSWER_TOKENS.1,
        })
    }

    async fn ask_sub_model(&self, request: &ChatRequest) -> Result<String, ModelError> {
        let models = self.models();
        let reply = models.chat(&models.sub, request, self.depth + 1).await?;
        let cut = if reply.truncated {
            "\n[cut: the answer was longer than it may be]"
        } else {
            ""
        };
        Ok(format!("{}{cut}", reply.text))
    }

    /// A failed model call becomes an exception in the script, or ends it.
    fn to_host_error(&self, error: ModelError) -> ScriptCallError {
        let mut state = self.state();
        let ends = match error {
            ModelError::Budget { .. } => !self.query.limits.allow_partial,
            ModelError::TimedOut => true,
            _ => false,
        };
        if ends {
            state.fatal.get_or_insert(Error::Model(error));
            return ScriptCallError::Stop;
        }
        ScriptCallError::raise(Exception::Runtime, format!("{}: {error}", error.code()))
    }
}

impl ScriptHost for Functions {
    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptCallError> {
        let name = call.name.clone();
        if name == LOAD_CONTEXT {
            return self.load();
        }
        let Some((_, usage)) = USAGES.iter().find(|(known, _)| *known == name) else {
            return Err(ScriptCallError::raise(
                Exception::Runtime,
                format!("no function {name}"),
            ));
        };
        let args = CallArguments::new(call, usage);
        match name.as_str() {
            "context_search" => self.search(args).await,
            "context_slice" => self.slice(args),
            "context_chunks" => self.chunks(args),
            "llm_query" => self.ask(args).await,
            "llm_query_batched" => self.ask_many(args).await,
            "rlm_query" => self.child(args).await,
            "FINAL" => self.finish(args),
            name => self.nav(name, args).await,
        }
    }
}

/// Runs work that takes the processor for a while on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ScriptCallError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(ScriptCallError::value),
        Err(_) => Err(ScriptCallError::raise(
            Exception::Runtime,
            "that failed inside",
        )),
    }
}

/// Clipped for a line of progress.
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
