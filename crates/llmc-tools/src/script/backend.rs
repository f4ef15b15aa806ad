//! Which Python runs a script: one that reads the workspace by itself, or one that the server reads it for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use llmc_config::{ExecProfile, LoadedConfig};
use llmc_rlm::PythonSource;
use llmc_sandbox::{PYTHON_PACKAGE, PythonBackend, WorkspaceAccess, look_for_python};

use crate::app::App;
use crate::command_keeper::search_path;
use crate::cx::{Caller, Cx};
use crate::error::Result;

use super::command_session;

/// How long after a client has listed the tools Python is looked for, so that the list is answered first and a client
/// that goes at once costs nothing.
const PREPARE_DELAY: Duration = Duration::from_millis(50);

/// Looks for a Python that scripts could run in. Where there is none, modes do not list `execute_code`.
pub fn look_for_scripts(loaded: &mut LoadedConfig) {
    let found = look_for_python(&loaded.root, &search_path(loaded));
    if let Err(why) = &found {
        tracing::warn!("no scripts: {why}");
    }
    loaded.config.without_scripts = found.err();
}

/// Chooses what runs this caller's scripts. The first time, Python is looked for and the boundary around it is tried.
pub(super) async fn choose(cx: &Cx) -> Result<Arc<PythonBackend>> {
    let reads_files = |tools: &Arc<Vec<String>>| tools.iter().any(|name| name == "read_file");
    let may_read = cx.caller().tools.as_ref().is_none_or(reads_files);
    match cx.app().known_python(may_read) {
        Some(known) => known,
        None => cx.blocking(move |cx, _| cx.app().python(may_read)).await,
    }
}

/// Why a script may not read the workspace by itself: nothing could be kept from it.
fn without_reading(app: &App) -> Option<&'static str> {
    let mcp = &app.config().mcp;
    match mcp.exec.profile {
        ExecProfile::Restricted => Some("mcp.exec.profile is restricted"),
        _ if mcp.tools.denylist_reads => Some("mcp.tools.denylist_reads is on"),
        _ => None,
    }
}

impl App {
    /// The Python of callers that may read files, or may not. For the former, where mounts cover what it must not see, it reads
    /// the workspace by itself.
    fn python(&self, may_read: bool) -> Result<Arc<PythonBackend>> {
        if may_read && without_reading(self).is_none() {
            let reading = self
                .scripts()
                .reading
                .get_or_init(|| self.open_python(WorkspaceAccess::Reads));
            if let Ok(python) = reading {
                return Ok(python.clone());
            }
        }
        self.sealed_python()
    }

    /// The same if it was looked for before.
    fn known_python(&self, may_read: bool) -> Option<Result<Arc<PythonBackend>>> {
        if may_read && without_reading(self).is_none() {
            let reading = self.scripts().reading.get()?;
            if reading.is_ok() {
                return Some(reading.clone());
            }
        }
        self.scripts().sealed.get().cloned()
    }

    /// The Python that has no rights in the workspace.
    pub(crate) fn sealed_python(&self) -> Result<Arc<PythonBackend>> {
        let opened = self
            .scripts()
            .sealed
            .get_or_init(|| self.open_python(WorkspaceAccess::ThroughServer));
        opened.clone()
    }

    /// The machine's Python, found and tried.
    fn open_python(&self, access: WorkspaceAccess) -> Result<Arc<PythonBackend>> {
        let memory = self.config().mcp.code_execution.max_memory_mb << 20;
        let python = PythonBackend::open(&self.command_settings(), access, memory)?;
        tracing::info!("scripts run in {}", python.describe());
        Ok(Arc::new(python))
    }

    /// The Python of recursive analyses, whose code has neither files nor commands.
    pub(crate) fn analysis_python(self: &Arc<App>) -> PythonSource {
        let app = Arc::downgrade(self);
        PythonSource::new(move || {
            let app = app.upgrade().ok_or("the server ends")?;
            let python = app.sealed_python();
            python.map_err(|error| match error.hint {
                Some(hint) => format!("{} ({hint})", error.message),
                None => error.message,
            })
        })
    }

    /// What runs scripts, or why nothing does. Looks for Python if that was not done yet.
    pub fn script_backend(&self) -> String {
        let mut words = self.describe_scripts(PythonBackend::describe);
        let is_sealed = matches!(self.known_python(true), Some(Ok(_)));
        let why = match (without_reading(self), self.scripts().reading.get()) {
            (Some(why), _) if is_sealed => why,
            (None, Some(Err(_))) if is_sealed => "not all namespaces are available here",
            _ => return words,
        };
        words.push_str(&format!("; the server reads the workspace for it: {why}"));
        words
    }

    /// The same without what differs between machines.
    pub(crate) fn script_backend_kind(&self) -> String {
        self.describe_scripts(PythonBackend::kind)
    }

    fn describe_scripts(&self, describe: fn(&PythonBackend) -> String) -> String {
        let is_expected = self.scripts().is_expected.load(Ordering::Relaxed);
        match self.python(true) {
            Ok(python) => {
                if !is_expected {
                    python.rest();
                }
                describe(&python)
            }
            Err(error) => {
                let hint = error.hint.unwrap_or_else(|| PYTHON_PACKAGE.to_owned());
                format!("nothing: {} ({hint})", error.message)
            }
        }
    }

    /// A client knows of `execute_code` and will soon call it: starts Python ahead, without anything waiting for that.
    pub fn expect_scripts(self: &Arc<App>, caller: &Caller) {
        if self.scripts().is_expected.swap(true, Ordering::Relaxed) {
            return;
        }
        let (app, caller) = (Arc::downgrade(self), caller.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PREPARE_DELAY).await;
            let Some(app) = app.upgrade() else { return };
            let open = move || Some((app.python(true).ok()?, command_session(&app, &caller)));
            let opened = tokio::task::spawn_blocking(open).await;
            if let Ok(Some((python, session))) = opened {
                python.prepare(session.as_ref());
            }
        });
    }
}
