//! The output of `te` in a user's shell and of `te --json`: finished here, since both print it themselves.

use llmc_enrich::output;
use llmc_envelope::HandleId;
use llmc_envelope::handles::{Draft, HandleStore};
use llmc_exec::ExitStatus;
use serde_json::Value;

use super::condense::{CondenseRequest, OutputView, view};
use super::spool::Spool;
use crate::seal::shell_envelope;

/// What `te` prints of a command, and how that ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TeOutput {
    /// `None` while it runs.
    pub(crate) status: Option<ExitStatus>,
    /// Whether this is an envelope.
    pub(crate) enriched: bool,
    /// The envelope, or what the command printed.
    pub(crate) stdout: String,
    /// What it printed to stderr, unless that is in the envelope.
    pub(crate) stderr: String,
    pub(crate) matches: Option<u64>,
    pub(crate) truncated: bool,
    pub(crate) handle: Option<HandleId>,
    pub(crate) withheld_bytes: u64,
}

/// Whose output it is, for the handle store.
pub(crate) struct OutputOwner<'a> {
    pub(crate) principal: &'a str,
    /// The command as it was written.
    pub(crate) command: &'a str,
    pub(crate) store: &'a dyn Fn() -> Result<HandleStore, String>,
    /// Under which rules it is stored.
    pub(crate) rules: Value,
}

impl TeOutput {
    /// Nothing printed.
    pub(crate) fn empty(status: Option<ExitStatus>) -> TeOutput {
        TeOutput {
            status,
            enriched: false,
            stdout: String::new(),
            stderr: String::new(),
            matches: None,
            truncated: false,
            handle: None,
            withheld_bytes: 0,
        }
    }

    /// Condenses an output and stores what is left out.
    pub(crate) fn new(
        request: &CondenseRequest<'_>,
        spool: &mut Spool,
        status: Option<ExitStatus>,
        owner: &OutputOwner<'_>,
        source: impl FnMut(&str) -> Option<String>,
    ) -> TeOutput {
        let blank = TeOutput::empty(status);
        let raw_bytes = spool.bytes();
        let withheld = |shown: usize| raw_bytes.saturating_sub(shown as u64);
        match view(request, spool, status, source) {
            OutputView::Whole(whole) => TeOutput {
                stdout: whole.stdout,
                stderr: whole.stderr,
                ..blank
            },
            OutputView::BothEnds { text, .. } => TeOutput {
                handle: store(spool, owner).ok(),
                withheld_bytes: withheld(text.len()),
                stdout: text,
                truncated: true,
                ..blank
            },
            OutputView::Condensed(mut found, content_type) => {
                let mut handle = None;
                if found.truncated {
                    match store(spool, owner) {
                        Ok(id) => handle = Some(id),
                        Err(why) => found
                            .breadcrumbs
                            .push(format!("the rest is not kept: {why}")),
                    }
                }
                let matches = found.totals.matches;
                let truncated = found.truncated;
                let withheld_bytes = if truncated {
                    withheld(found.body.len())
                } else {
                    0
                };
                let cmd = output::condenser_name(request.argv).unwrap_or("run");
                let stdout = shell_envelope(cmd, found, content_type, handle);
                TeOutput {
                    enriched: true,
                    stdout,
                    matches,
                    truncated,
                    handle,
                    withheld_bytes,
                    ..blank
                }
            }
        }
    }
}

fn store(spool: &mut Spool, owner: &OutputOwner<'_>) -> Result<HandleId, String> {
    let draft = Draft::new(owner.principal, "command")
        .with("command", owner.command)
        .under(owner.rules.clone());
    let in_words = |error: llmc_envelope::handles::Error| error.to_string();
    let mut writer = (owner.store)()?.writer(draft).map_err(in_words)?;
    let written = spool.write_to(&mut writer);
    written.map_err(|error| error.to_string())?;
    writer.finish().map_err(in_words)
}
