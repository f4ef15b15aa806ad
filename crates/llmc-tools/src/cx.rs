//! What a tool gets besides its arguments: the application, the caller, and its cancellation.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use llmc_envelope::HandleId;
use llmc_envelope::handles::{Draft, Payload};
use llmc_exec::{ExecRequest, Process, RunOwner, Runner};
use llmc_gateway::AskUser;
use llmc_host::{CancelToken, OpenDir, Workspace};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::call::Call;
use crate::call_thread::is_call_thread;
use crate::error::{Error, ErrorKind, Result};
use crate::handle_access::ReadRules;
use crate::recording::{self, CallRecording};
use crate::slots::CallSlot;

/// Where a call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// An MCP client; the mode limits what it may call.
    Mcp,
    /// REST.
    Http,
    /// The command line.
    Cli,
    /// A script.
    Code,
}

/// In which form the caller takes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text for a model: bounded, with a receipt.
    Text,
    /// Data for a program: whole, undecorated.
    Data,
    /// Text for a person at a terminal: a page where a model gets a JSON document.
    Page,
}

/// The agent of a caller that gives no name; also the default of `mcp.session.default_agent_id`.
pub const UNKNOWN_AGENT: &str = "unknown";

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    pub surface: Surface,
    /// What it reads.
    pub form: Form,
    /// Whose handles and sessions these are: `local`, or the token's name.
    pub principal: String,
    /// The agent's name.
    pub agent: String,
    /// The conversation.
    pub session: String,
    /// The model.
    pub model: String,
    /// Name and version of the program that calls, as it gives them.
    pub client: Option<String>,
    /// Whether this caller may only look.
    pub read_only: bool,
    /// The tools this caller may use; all when unset.
    pub tools: Option<Arc<Vec<String>>>,
    /// Whether the call came over HTTP, REST or MCP.
    pub remote: bool,
}

/// How long the processes of a session over HTTP live after its last command.
const HTTP_SESSION_LIFETIME: Duration = Duration::from_secs(3600);

impl Caller {
    /// Whose private layer a command uses, and among whose processes it runs. The command line's process ends with its answer,
    /// and so would a session.
    pub(crate) fn run_owner(&self) -> RunOwner<'_> {
        RunOwner {
            principal: &self.principal,
            session: match self.surface {
                Surface::Cli => "",
                _ => &self.session,
            },
            session_lifetime: self.remote.then_some(HTTP_SESSION_LIFETIME),
        }
    }

    /// A run of this caller that no time and no amount of output ends.
    pub(crate) fn exec_request<'a>(
        &'a self,
        argv: &'a [String],
        cwd: &'a OpenDir,
        env: &'a [(String, String)],
    ) -> ExecRequest<'a> {
        ExecRequest {
            env,
            owner: self.run_owner(),
            ..ExecRequest::new(argv, cwd, Duration::MAX)
        }
    }

    /// The local user with full rights, on the given surface.
    pub fn local(surface: Surface, app: &App) -> Caller {
        let env = |name: &str, other: &str| match std::env::var(name) {
            Ok(value) if !value.is_empty() => value,
            _ => other.to_owned(),
        };
        let session = &app.config().mcp.session;
        Caller {
            surface,
            form: Form::Text,
            principal: "local".to_owned(),
            agent: env("TE_AGENT_ID", &session.default_agent_id),
            session: env("TE_SESSION_ID", app.session_id()),
            model: env("TE_MODEL", &session.default_model),
            client: None,
            read_only: false,
            tools: None,
            remote: false,
        }
    }

    /// The environment variables that describe this caller to programs it starts.
    pub(crate) fn environment(&self) -> [(String, String); 3] {
        [
            ("TE_AGENT_ID".to_owned(), self.agent.clone()),
            ("TE_SESSION_ID".to_owned(), self.session.clone()),
            ("TE_MODEL".to_owned(), self.model.clone()),
        ]
    }
}

/// The argument by which a call says how long its answer may be.
const MAX_TOKENS: &str = "max_tokens";

/// A number that a model may have written as a text.
fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    }
}

/// The context of one call.
#[derive(Debug, Clone)]
pub(crate) struct Cx {
    app: Arc<App>,
    caller: Arc<Caller>,
    stop: CancelToken,
    /// What the call is at, in words.
    words: watch::Sender<String>,
    correlation_id: Arc<str>,
    cancel: CancellationToken,
    ask_user: Option<AskUser>,
    /// The tool that is called.
    tool: &'static str,
    /// Of no use once the call has ended, even if some of its work goes on.
    slot: Weak<CallSlot>,
    /// What the call changes goes there.
    recording: Option<Arc<CallRecording>>,
    /// Tokens that the caller wants an answer to have at most.
    asked_tokens: Option<u64>,
    files: Workspace,
    linux: Workspace,
}

impl Cx {
    pub(crate) fn new(app: Arc<App>, caller: Arc<Caller>, stop: CancelToken) -> Cx {
        let tmp = app.session_tmp(&caller);
        let with_tmp = |files: &Workspace| match tmp.as_ref().and_then(|tmp| tmp.try_clone().ok()) {
            Some(tmp) => files.with_roots(files.roots.with_private_dir(Path::new("/tmp"), tmp)),
            None => files.clone(),
        };
        Cx {
            files: with_tmp(app.files()),
            linux: with_tmp(app.linux()),
            app,
            caller,
            stop,
            words: watch::Sender::default(),
            correlation_id: Arc::default(),
            cancel: CancellationToken::new(),
            ask_user: None,
            tool: "run_cmd",
            slot: Weak::new(),
            recording: None,
            asked_tokens: None,
        }
    }

    /// The same for a call whose changes are recorded.
    pub(crate) fn recorded(self, recording: Option<Arc<CallRecording>>) -> Cx {
        let Some(recording) = recording else {
            return self;
        };
        let hooked = |files: &Workspace| {
            let recording = recording.clone();
            files.with_change_hook(move |path| recording.before_change(path))
        };
        Cx {
            files: hooked(&self.files),
            linux: hooked(&self.linux),
            recording: Some(recording),
            ..self
        }
    }

    /// What starts commands, for one that may change files: what it changes is recorded from now on.
    pub(crate) fn recorded_commands(&self) -> Result<&Runner> {
        let commands = self.app.commands()?;
        recording::begin(self);
        Ok(commands)
    }

    /// What this call changes; none where nothing is recorded.
    pub(crate) fn recording(&self) -> Option<&Arc<CallRecording>> {
        self.recording.as_ref()
    }

    /// The same for a call of this tool; without one, `te` in a shell runs a command.
    pub(crate) fn for_tool(self, tool: &'static str) -> Cx {
        Cx { tool, ..self }
    }

    /// Tokens that the caller wants the answer to have at most.
    pub(crate) fn asked_tokens(&self) -> Option<u64> {
        self.asked_tokens
    }

    /// The tool that is called.
    pub(crate) fn tool(&self) -> &'static str {
        self.tool
    }

    /// The rules under which results are stored now.
    pub(crate) fn read_rules(&self) -> Value {
        ReadRules::now(&self.app, self.tool).to_value()
    }

    /// Tells a caller who asked for progress what the call is at.
    pub(crate) fn tell(&self, words: String) {
        self.words.send_replace(words);
    }

    /// Receives the progress texts of this call.
    pub(crate) fn progress_texts(&self) -> watch::Receiver<String> {
        self.words.subscribe()
    }

    /// The same for a call that its client can cancel.
    pub(crate) fn for_call(self, call: &Call) -> Cx {
        Cx {
            cancel: call.cancel.clone(),
            correlation_id: call.correlation_id.as_deref().unwrap_or_default().into(),
            ask_user: call.ask_user.clone(),
            slot: call.slot.as_ref().map(Arc::downgrade).unwrap_or_default(),
            asked_tokens: call.args.get(MAX_TOKENS).and_then(whole_number),
            ..self
        }
    }

    /// The same for work that outlives the call: it has no slot, and what it changes is recorded nowhere.
    pub(crate) fn detached(&self, stop: CancelToken) -> Cx {
        Cx {
            files: self.app.files().clone(),
            linux: self.app.linux().clone(),
            slot: Weak::new(),
            recording: None,
            cancel: CancellationToken::new(),
            ask_user: None,
            stop,
            ..self.clone()
        }
    }

    pub(crate) fn with_stop(&self, stop: CancelToken) -> Cx {
        Cx {
            stop,
            ..self.clone()
        }
    }

    /// The application.
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Who calls.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Lets a person watch what a program of this call prints.
    pub(crate) fn show_output(&self, process: &Process) {
        let output = process.output_reader();
        self.app.running().show_output(&self.correlation_id, output);
    }

    /// The call's id in logs and audits.
    pub(crate) fn correlation_id(&self) -> &str {
        &self.correlation_id
    }

    /// Fires when the call is cancelled or its client disconnects; file work checks its [`CancelToken`].
    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Asks the user; none where the client cannot.
    pub(crate) fn ask_user(&self) -> Option<&AskUser> {
        self.ask_user.as_ref()
    }

    /// The name under which leases are taken.
    pub(crate) fn owner(&self) -> String {
        format!("{} (session {})", self.caller.agent, self.caller.session)
    }

    /// Runs file work off the async threads, with the call's deadline.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cx, &CancelToken) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if is_call_thread() {
            return work(self, &self.stop);
        }
        let (cx, span) = (self.clone(), tracing::Span::current());
        match tokio::task::spawn_blocking(move || span.in_scope(|| work(&cx, &cx.stop))).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::new(
                ErrorKind::Cancelled,
                "the server is shutting down",
            )),
        }
    }

    /// Waits for something outside the server, within [`Cx::blocking`]; the call has no slot meanwhile.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        match self.slot.upgrade() {
            Some(slot) => slot.while_waiting(wait),
            None => wait(),
        }
    }

    /// The files of general tools.
    pub(crate) fn files(&self) -> &Workspace {
        &self.files
    }

    /// The files of `linux_*` tools, whose roots may differ.
    pub(crate) fn linux(&self) -> &Workspace {
        &self.linux
    }

    /// Stores what an answer leaves out. `None` when the store cannot take it: an answer is never lost for that.
    pub(crate) fn keep<'a>(
        &self,
        draft: impl FnOnce(Draft) -> Draft,
        kind: &str,
        payload: impl Into<Payload<'a>>,
    ) -> Option<HandleId> {
        let draft = draft(Draft::new(self.caller.principal.as_str(), kind));
        let draft = draft.under(self.read_rules());
        self.app.handle_keeper().put(draft, payload)
    }

    /// Stores what `write` writes, piece by piece, so that it never stands in memory twice; also its length.
    pub(crate) fn keep_written(
        &self,
        draft: impl FnOnce(Draft) -> Draft,
        kind: &str,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> (Option<HandleId>, u64) {
        let draft = draft(Draft::new(self.caller.principal.as_str(), kind));
        let draft = draft.under(self.read_rules());
        self.app.handle_keeper().put_written(draft, write)
    }
}
