//! What runs a script: a Python of this machine when the kernel confines it fully, else the embedded interpreter.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use llmc_config::{ExecProfile, ScriptBackend};
use llmc_sandbox::PythonBackend;

use crate::app::App;
use crate::cx::{Caller, Cx};
use crate::error::{Error, ErrorKind, Result};

use super::command_session;

/// How long after a client has listed the tools Python is looked for, so that the list is answered first and a client
/// that goes at once costs nothing.
const PREPARE_DELAY: Duration = Duration::from_millis(50);

/// What runs a script.
#[derive(Debug)]
pub(super) enum Chosen {
    Python(Arc<PythonBackend>),
    Embedded,
}

/// Chooses what runs this caller's scripts. The first time, Python is looked for and the boundary around it is tried.
pub(super) async fn choose(cx: &Cx) -> Result<Chosen> {
    let sandbox = cx.app().config().mcp.code_execution.sandbox;
    let reads_files = |tools: &Arc<Vec<String>>| tools.iter().any(|name| name == "read_file");
    let may_read = cx.caller().tools.as_ref().is_none_or(reads_files);
    if without_python(cx.app()).is_some() || !may_read {
        return Ok(Chosen::Embedded);
    }
    let opened = match cx.app().scripts().python.get() {
        Some(opened) => opened.clone(),
        None => cx.blocking(|cx, _| Ok(cx.app().python())).await?,
    };
    match (opened, sandbox) {
        (Ok(python), _) => Ok(Chosen::Python(python)),
        (Err(error), ScriptBackend::Python) => Err(error),
        (Err(_), _) => Ok(Chosen::Embedded),
    }
}

/// Why the configuration leaves scripts to the embedded interpreter: a Python process reads the workspace's files by
/// itself, so nothing could be kept from it.
fn without_python(app: &App) -> Option<&'static str> {
    let mcp = &app.config().mcp;
    match mcp.code_execution.sandbox {
        ScriptBackend::Embedded => Some("mcp.code_execution.sandbox says so"),
        _ if mcp.exec.profile == ExecProfile::Restricted => Some("mcp.exec.profile is restricted"),
        _ if mcp.tools.denylist_reads => Some("mcp.tools.denylist_reads is on"),
        _ => None,
    }
}

/// Commands may run with less confinement where the operator says so; a script in Python never does.
fn with_script_hint(mut error: Error) -> Error {
    if error.kind == ErrorKind::IsolationRequired {
        error.hint = Some(
            "llmc doctor shows what this kernel offers; mcp.code_execution.sandbox = \"embedded\" needs no namespaces"
                .to_owned(),
        );
    }
    error
}

impl App {
    /// The machine's Python, found and tried when first needed.
    fn python(&self) -> Result<Arc<PythonBackend>> {
        let opened = self.scripts().python.get_or_init(|| {
            let memory = self.config().mcp.code_execution.max_memory_mb << 20;
            let opened = PythonBackend::open(&self.command_settings(), memory);
            let python = opened.map_err(|error| with_script_hint(error.into()))?;
            tracing::info!("scripts run in {}", python.describe());
            Ok(Arc::new(python))
        });
        opened.clone()
    }

    /// What runs scripts, and why it is not Python. Looks for Python if that was not done yet.
    pub fn script_backend(&self) -> String {
        self.describe_scripts(PythonBackend::describe)
    }

    /// The same without what differs between machines.
    pub(crate) fn script_backend_kind(&self) -> String {
        self.describe_scripts(PythonBackend::kind)
    }

    fn describe_scripts(&self, describe: fn(&PythonBackend) -> String) -> String {
        if let Some(why) = without_python(self) {
            return format!("the embedded interpreter: {why}");
        }
        let is_expected = self.scripts().is_expected.load(Ordering::Relaxed);
        match (self.python(), self.config().mcp.code_execution.sandbox) {
            (Ok(python), _) => {
                if !is_expected {
                    python.rest();
                }
                describe(&python)
            }
            (Err(error), ScriptBackend::Python) => format!("refused: {}", error.message),
            (Err(error), _) => format!("the embedded interpreter: {}", error.message),
        }
    }

    /// A client knows of `execute_code` and will soon call it: starts Python ahead, without anything waiting for that.
    pub fn expect_scripts(self: &Arc<App>, caller: &Caller) {
        let is_expected = self.scripts().is_expected.swap(true, Ordering::Relaxed);
        if is_expected || without_python(self).is_some() {
            return;
        }
        let (app, caller) = (Arc::downgrade(self), caller.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PREPARE_DELAY).await;
            let Some(app) = app.upgrade() else { return };
            let open = move || Some((app.python().ok()?, command_session(&app, &caller)));
            let opened = tokio::task::spawn_blocking(open).await;
            if let Ok(Some((python, session))) = opened {
                python.prepare(session.as_ref());
            }
        });
    }
}
