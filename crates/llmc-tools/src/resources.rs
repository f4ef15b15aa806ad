//! Documents that clients can read when they need them, instead of paying for them in every prompt.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use llmc_config::Config;
use llmc_envelope::HandleId;
use llmc_envelope::handles::Kept;
use llmc_host::{CancelToken, MAX_ANSWER_BYTES, Workspace, names};
use serde_json::{Value, json};

use crate::app::App;
use crate::catalog::linux_handle_read::page;
use crate::cx::{Caller, Cx};
use crate::error::{Error, ErrorKind, Result};
use crate::handle_access::open_handle;
use crate::stubs;
use crate::tool::Effect;

const DOCS: &str = "llmc://docs/";
const HANDLE: &str = "llmc://handle/";
const STUB: &str = "llmc://stubs/";

/// The URI of all tools as Python functions, and the template of one.
pub const STUBS: &str = "llmc://stubs/tools.pyi";
/// See [`STUBS`].
pub const STUB_TEMPLATE: &str = "llmc://stubs/{tool}.pyi";

/// The URI template under which stored results can be read.
pub const HANDLE_TEMPLATE: &str = "llmc://handle/{id}";

/// A document that can be listed.
#[derive(Debug, Clone)]
pub struct Sidecar {
    /// `llmc://docs/<file name>`.
    pub uri: String,
    /// The file's name.
    pub name: String,
    path: String,
}

/// What reading a resource gives.
#[derive(Debug)]
pub enum Content {
    /// Text and its media type.
    Text(String, &'static str),
    /// Anything else.
    Bytes(Vec<u8>),
}

/// The documents of `mcp.resources.sidecars` that exist.
#[derive(Debug, Default)]
pub struct Sidecars(Vec<Sidecar>);

impl Sidecars {
    /// Looks for each. A missing one is a warning if the operator named it, and nothing to report if it is one of the
    /// names that are looked for by default.
    pub(crate) fn find(paths: &[String], files: &Workspace) -> Sidecars {
        let optional = Config::default().mcp.resources.sidecars;
        let mut found: Vec<Sidecar> = Vec::new();
        for path in paths {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            let uri = format!("{DOCS}{name}");
            match files.roots.open_file(path) {
                Ok(_) if found.iter().any(|other| other.uri == uri) => {
                    tracing::warn!(sidecar = %path, "another sidecar has the same file name; not listed");
                }
                Ok(_) => found.push(Sidecar {
                    uri,
                    name,
                    path: path.clone(),
                }),
                Err(llmc_host::Error::NotFound { .. }) if optional.contains(path) => {
                    tracing::debug!(sidecar = %path, "optional sidecar not there");
                }
                Err(error) => {
                    tracing::warn!(sidecar = %path, reason = %error, "sidecar not listed")
                }
            }
        }
        Sidecars(found)
    }

    /// Those that exist.
    pub fn list(&self) -> &[Sidecar] {
        &self.0
    }
}

impl App {
    /// Reads a resource within the time limit of reads. A read that is stuck in the kernel is left behind.
    ///
    /// # Errors
    /// Those of [`App::read_resource`], and the time limit.
    pub async fn read_resource_in_time(
        self: Arc<App>,
        uri: String,
        caller: Caller,
    ) -> Result<Content> {
        let limit = self.config().mcp.tools.read_timeout();
        let late = || {
            let message = format!("no answer within {} s", limit.as_secs());
            Error::new(ErrorKind::TimedOut, message)
        };
        let stop = CancelToken::with_deadline(Instant::now() + limit);
        let read = tokio::task::spawn_blocking(move || self.read_resource(&uri, &caller, &stop));
        match tokio::time::timeout(limit, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(Error::new(ErrorKind::Internal, "reading failed")),
            Err(_) => Err(late()),
        }
    }

    /// A principal's stored results, newest first, at most `limit`; and how many there are.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn handles_of(&self, principal: &str, limit: usize) -> Result<Value> {
        let all = self.handles()?.list(principal)?;
        let shown = all.iter().take(limit).map(|info| {
            json!({
                "handle": info.id.to_string(),
                "kind": info.kind,
                "total_bytes": info.total_bytes,
                "created": format!("{:.0}", info.created),
                "expires": format!("{:.0}", info.expires),
                "meta": info.meta,
            })
        });
        Ok(json!({"handles": shown.collect::<Vec<_>>(), "total": all.len()}))
    }

    /// A page of a stored result, as `linux_handle_read` gives it, for a person who looks: no call is counted.
    ///
    /// # Errors
    /// A handle that is not this caller's, a place past its end, the time limit.
    pub async fn handle_page(
        self: &Arc<App>,
        caller: Caller,
        handle: String,
        offset: u64,
        limit: u64,
    ) -> Result<Value> {
        let time = self.config().mcp.tools.read_timeout();
        let stop = CancelToken::with_deadline(Instant::now() + time);
        let limit = limit.clamp(1, MAX_ANSWER_BYTES as u64);
        let cx = Cx::new(self.clone(), Arc::new(caller), stop);
        cx.blocking(move |cx, stop| Ok(json!(page(cx, &handle, offset, limit, stop)?)))
            .await
    }

    /// Reads a resource for a caller, until told to stop.
    ///
    /// # Errors
    /// An unknown URI, a vanished file, a handle that this caller may not read.
    pub fn read_resource(&self, uri: &str, caller: &Caller, stop: &CancelToken) -> Result<Content> {
        if let Some(document) = self
            .sidecars()
            .list()
            .iter()
            .find(|document| document.uri == uri)
        {
            let bytes = self
                .files()
                .roots
                .open_file(&document.path)?
                .read_all(MAX_ANSWER_BYTES, stop)?;
            let markdown = document.name.ends_with(".md");
            let kind = if markdown {
                "text/markdown"
            } else {
                "text/plain"
            };
            return Ok(Content::Text(
                String::from_utf8_lossy(&bytes).into_owned(),
                kind,
            ));
        }
        if let Some(name) = uri.strip_prefix(STUB) {
            return self.read_stub(name);
        }
        let Some(id) = uri.strip_prefix(HANDLE) else {
            return Err(missing(uri));
        };
        let id = HandleId::parse(id)
            .ok_or_else(|| Error::from(llmc_envelope::handles::Error::Unknown))?;
        let (store, info) = open_handle(self, caller, id)?;
        // A file that was too large to keep is also too large for one answer.
        if info.kept == Kept::File || info.total_bytes > MAX_ANSWER_BYTES as u64 {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{} bytes; page it with linux_handle_read", info.total_bytes),
            ));
        }
        let page = store.read(&caller.principal, id, 0, MAX_ANSWER_BYTES)?;
        Ok(match String::from_utf8(page.bytes) {
            Ok(text) => Content::Text(text, "text/plain"),
            Err(error) => Content::Bytes(error.into_bytes()),
        })
    }

    /// All tools as Python functions, or one of them.
    fn read_stub(&self, file: &str) -> Result<Content> {
        let tools = self.script_tools();
        let text = if file == stubs::STUB_FILE {
            Some(stubs::module(&tools))
        } else {
            let name = file.strip_suffix(".pyi");
            let tool = tools.iter().find(|tool| name == Some(tool.name));
            tool.and_then(|tool| stubs::stub(tool))
        };
        match text {
            Some(text) => Ok(Content::Text(text, "text/x-python")),
            None => Err(missing(&format!("{STUB}{file}"))),
        }
    }

    /// Whether MCP clients are offered scripts, and so have a use for stubs.
    pub fn offers_scripts(&self) -> bool {
        let mut listed = self.listing().iter();
        listed.any(|tool| tool.effect == Effect::Scripts)
    }

    /// Writes the stubs into the state directory in the background. Stubs that cannot be written are left out.
    pub fn keep_stubs(self: &Arc<App>) {
        let (app, offers) = (self.clone(), self.offers_scripts());
        let Some(dir) = self.stores().map(Path::to_owned).filter(|_| offers) else {
            return;
        };
        let write = move || {
            let text = stubs::module(&app.script_tools());
            if let Err(error) = stubs::write(&dir, &text) {
                tracing::warn!(%error, "the tools' stubs cannot be written");
            }
        };
        let spawned = std::thread::Builder::new()
            .name("llmc-stubs".to_owned())
            .spawn(write);
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to write the tools' stubs");
        }
    }
}

fn missing(uri: &str) -> Error {
    let shown = names::escape(uri.as_bytes());
    Error::new(ErrorKind::NotFound, format!("no resource {shown}"))
}
