//! Whether a stored result may still be read: policy is checked at every read, not only when the result was made.
//!
//! A result is stored with the rules under which it was made. One that came from a file is readable while that file
//! would be. Others (searches, diffs, what commands printed) may hold anything that could be read then, so they are
//! refused once less can be read: a root was removed, or more names are denied.

use std::path::Path;

use llmc_envelope::HandleId;
use llmc_envelope::handles::{HandleInfo, HandleStore, SourceStamp};
use llmc_host::{Roots, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;

use crate::app::App;
use crate::cx::Caller;
use crate::error::{Error, ErrorKind, Result};

/// The rules under which a result is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReadRules {
    /// The tool that made it.
    tool: String,
    /// Every root, in the form that file names are shown in.
    roots: Vec<String>,
    /// Names whose content was kept from every tool.
    denied: Vec<String>,
}

impl ReadRules {
    /// Those in force now, for a result of this tool.
    pub(crate) fn now(app: &App, tool: &str) -> ReadRules {
        let rules = app.files().roots.rules();
        let mut roots: Vec<String> = all_roots(app).map(shown).collect();
        roots.sort();
        roots.dedup();
        ReadRules {
            tool: tool.to_owned(),
            roots,
            denied: rules.denied_names().to_vec(),
        }
    }

    /// As the store keeps them.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether everything that could be read under these rules can still be read.
    fn still_hold(&self, app: &App) -> bool {
        let is_inside = |root: &String| {
            let root = names::unescape(root);
            let root = Path::new(std::ffi::OsStr::from_bytes(&root));
            all_roots(app).any(|now| root.starts_with(now))
        };
        let denied = app.files().roots.rules().denied_names();
        self.roots.iter().all(is_inside) && denied.iter().all(|name| self.denied.contains(name))
    }
}

/// What is known about a stored result that this caller may read now.
///
/// # Errors
/// A handle that is unknown or not the caller's; what the policy says of its source today.
pub(crate) fn open_handle<'a>(
    app: &'a App,
    caller: &Caller,
    id: HandleId,
) -> Result<(&'a HandleStore, HandleInfo)> {
    let store = app.handles()?;
    let info = store.info(&caller.principal, id)?;
    check(app, caller, &info)?;
    Ok((store, info))
}

fn check(app: &App, caller: &Caller, info: &HandleInfo) -> Result<()> {
    let rules = info.rules.clone().map(serde_json::from_value::<ReadRules>);
    let Some(Ok(rules)) = rules else {
        // Stored by a version that kept no rules.
        return Err(llmc_envelope::handles::Error::Unknown.into());
    };
    if let Some(tools) = &caller.tools
        && !tools.contains(&rules.tool)
    {
        let message = format!("{} is not among this token's tools", rules.tool);
        return Err(Error::new(ErrorKind::CommandDenied, message));
    }
    match &info.source {
        Some(source) => check_source(app, source),
        None if rules.still_hold(app) => Ok(()),
        None => Err(Error::new(
            ErrorKind::InvalidPath,
            "the handle was made when more could be read than the operator allows now",
        )
        .hint("make the call again")),
    }
}

/// A file that is gone or has changed makes a handle stale; one that may not be read any more makes it unreadable.
fn check_source(app: &App, source: &SourceStamp) -> Result<()> {
    let path = shown(&source.path);
    let opened = |roots: &Roots| match roots.open_file(&path) {
        Ok(_)
        | Err(
            llmc_host::Error::NotFound { .. }
            | llmc_host::Error::IsDirectory { .. }
            | llmc_host::Error::NotADirectory { .. },
        ) => Ok(()),
        Err(error) => Err(error),
    };
    let [linux, files] = [app.linux(), app.files()].map(|files| opened(&files.roots));
    linux.or(files).map_err(|error| {
        // The path may lie outside the roots by now, so it is not repeated.
        let kind = Error::from(error).kind;
        Error::new(kind, "the handle's file may not be read any more")
            .hint("the operator narrowed the roots or the denylist since the handle was made")
    })
}

fn all_roots(app: &App) -> impl Iterator<Item = &Path> {
    app.files().roots.paths().chain(app.linux().roots.paths())
}

/// A path in the form that opens it again, whatever its bytes.
fn shown(path: &Path) -> String {
    names::escape(path.as_os_str().as_bytes())
}
