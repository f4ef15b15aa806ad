//! What a call changes, as one entry of the history.
//!
//! A call of a file tool tells which paths it is about to change; a command may change anything, so the workspace is
//! compared before and after it. Recording begins with the first of either. All calls of a script belong to the script's
//! entry.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use llmc_history::{ChangeAuthor, Recording};
use llmc_host::RootedPath;
use llmc_observe::mask_secrets;
use serde_json::{Map, Value};

use crate::app::App;
use crate::call::Call;
use crate::cx::Cx;
use crate::history_keeper::{self, SnapshotWait};
use crate::processes::Entry;
use crate::tool::{Effect, ToolDef};

/// Characters of an argument that an entry shows.
const MAX_ARGUMENT_CHARS: usize = 60;

/// How long one command of the process waits for the first snapshot. It takes milliseconds in most workspaces; in a large
/// one commands go on without it, and their answers say so.
const COMMAND_SNAPSHOT_WAIT: SnapshotWait = SnapshotWait {
    small: Duration::from_secs(20),
    large: Duration::from_secs(3),
    is_last: true,
};
/// The same for a change of a file, which can be undone without it.
const EDIT_SNAPSHOT_WAIT: SnapshotWait = SnapshotWait {
    small: Duration::from_millis(500),
    large: Duration::from_millis(500),
    is_last: false,
};
/// The key under which a document, and what a program gets, says why the call's changes cannot be undone.
pub(crate) const NOT_UNDOABLE: &str = "not_undoable";

/// The same in a text.
pub(crate) fn undo_note(why: &str) -> String {
    format!("not undoable: {why}")
}

/// The changes of one call.
pub(crate) struct CallRecording {
    app: Weak<App>,
    author: ChangeAuthor,
    extent: RecordingExtent,
    state: Mutex<RecordingProgress>,
}

/// What a call may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordingExtent {
    /// The paths it names.
    NamedPaths,
    /// Anything.
    Workspace,
}

#[derive(Default)]
struct RecordingProgress {
    recording: Option<Recording>,
    is_over: bool,
    /// Paths that were kept.
    named: HashSet<PathBuf>,
    /// Processes that the call has started and that go on.
    processes: Vec<Weak<Entry>>,
    not_undoable: Option<String>,
    /// The entry, once it is written.
    entry: Option<String>,
}

impl App {
    /// The recording of a call: its script's, or its own if it may change files.
    pub(crate) fn record_call(
        self: &Arc<App>,
        tool: &ToolDef,
        call: &Call,
        script: Option<&Arc<CallRecording>>,
    ) -> Option<Arc<CallRecording>> {
        if let Some(script) = script {
            return Some(script.clone());
        }
        let extent = match tool.effect {
            Effect::Reads | Effect::SendsOut | Effect::UpstreamReads => return None,
            Effect::Writes => RecordingExtent::NamedPaths,
            Effect::Runs | Effect::Scripts | Effect::UpstreamRuns => RecordingExtent::Workspace,
        };
        if !self.history_keeper().is_on() {
            return None;
        }
        Some(Arc::new(CallRecording {
            app: Arc::downgrade(self),
            author: history_keeper::author(&call.caller, tool.name, short_args(&call.args)),
            extent,
            state: Mutex::default(),
        }))
    }
}

/// Does what takes time before a file is changed: a lease is held while the change itself is recorded.
pub(crate) fn prepare(cx: &Cx) {
    let Some(recording) = cx.recording() else {
        return;
    };
    match recording.extent {
        RecordingExtent::NamedPaths => {
            // A history that cannot be opened is named by the answer.
            let _ = cx.app().history_keeper().with_snapshot(&EDIT_SNAPSHOT_WAIT);
        }
        RecordingExtent::Workspace => begin(cx),
    }
}

/// Begins to record what a command changes, unless its call is recorded already.
pub(crate) fn begin(cx: &Cx) {
    if let Some(recording) = cx.recording() {
        recording.begin(&mut recording.lock());
    }
}

/// Records what the call of `cx` has changed; what a script's call changes is recorded with the script.
pub(crate) fn finish(cx: &Cx) {
    if let Some(recording) = cx.recording().filter(|own| own.author.tool == cx.tool()) {
        recording.finish();
    }
}

impl CallRecording {
    /// Keeps what is at a path that is about to change.
    pub(crate) fn before_change(&self, path: &RootedPath) {
        let mut state = self.lock();
        self.begin(&mut state);
        // A call that makes a missing folder tells its file again; what was there before is known.
        if state.named.insert(path.absolute())
            && let Some(recording) = &state.recording
        {
            recording.before_write(path);
        }
    }

    /// Notes what a script has done.
    pub(crate) fn step(&self, text: &str) {
        if let Some(recording) = &self.lock().recording {
            recording.step(text);
        }
    }

    /// Goes on with the recording, after the call, until a process has ended.
    pub(crate) fn continue_with(&self, process: &Arc<Entry>) {
        self.lock().processes.push(Arc::downgrade(process));
    }

    /// Why what the call has changed cannot be undone, if so.
    pub(crate) fn not_undoable(&self) -> Option<String> {
        self.lock().not_undoable.clone()
    }

    /// The entry of what the call has changed, such as `h12`, once there is one.
    pub(crate) fn entry(&self) -> Option<String> {
        self.lock().entry.clone()
    }

    fn begin(&self, state: &mut RecordingProgress) {
        if state.recording.is_some() || state.is_over || state.not_undoable.is_some() {
            return;
        }
        let Some(app) = self.app.upgrade() else {
            return;
        };
        let keeper = app.history_keeper();
        let author = || ChangeAuthor {
            args_short: mask_secrets(&self.author.args_short),
            ..self.author.clone()
        };
        let begun = match self.extent {
            RecordingExtent::NamedPaths => keeper.history().map(|history| history.begin(author())),
            RecordingExtent::Workspace => {
                keeper.background().checkpoint_all();
                keeper
                    .with_snapshot(&COMMAND_SNAPSHOT_WAIT)
                    .map(|history| history.begin_all(author()))
            }
        };
        match begun {
            Ok(recording) => state.recording = Some(recording),
            Err(why) => state.not_undoable = Some(why),
        }
    }

    fn finish(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let Some(recording) = state.recording.take() else {
            return;
        };
        let recorded = if state.processes.is_empty() {
            recording.finish()
        } else {
            let recorded = recording.checkpoint();
            if let Some(app) = self.app.upgrade() {
                let background = app.history_keeper().background();
                background.follow(&app, recording, &state.processes);
            }
            recorded
        };
        if let Ok(Some(recorded)) = &recorded {
            state.entry = recorded.id.map(|id| id.to_string());
        }
        state.not_undoable = match recorded {
            Ok(recorded) => recorded.and_then(|recorded| recorded.not_undoable),
            Err(error) => Some(error.to_string()),
        };
    }

    fn lock(&self) -> MutexGuard<'_, RecordingProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CallRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecording")
            .field("author", &self.author)
            .finish_non_exhaustive()
    }
}

/// The arguments in short: the text of the first, or of both paths of a move.
pub(crate) fn short_args(args: &Map<String, Value>) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Some(words.join(" "))
        }
        _ => None,
    };
    let main = [
        "path", "source", "target", "command", "argv", "args", "code", "entry",
    ];
    let is_path = |name: &str| matches!(name, "path" | "source" | "target");
    let shown: Vec<String> = main
        .iter()
        .filter_map(|name| Some((name, text(args.get(*name)?)?)))
        // A path that is cut names another file.
        .map(|(name, text)| match is_path(name) {
            true => text,
            false => clipped(&text),
        })
        .filter(|text| !text.is_empty())
        .collect();
    shown.join(", ")
}

/// The beginning of an argument's first line.
pub(crate) fn clipped(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default();
    line.chars().take(MAX_ARGUMENT_CHARS).collect()
}
