//! The audit of a call in the database that servers share: no answer without a row.
//!
//! A call that may change something is recorded before it begins, and is not carried out if that fails. Every call is
//! recorded again when it has ended, with its counts; an answer whose row cannot be written is withheld.

use std::sync::Arc;
use std::time::Duration;

use llmc_config::Config;
use llmc_observe::{AuditRow, SharedAudit};
use llmc_store::Database;

use crate::app::App;
use crate::call::CallOutcome;
use crate::cx::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::observe::{self, ObservedArgs};
use crate::seal::Sealed;
use crate::tool::ToolDef;

/// The audit of all servers, if there is one.
pub(crate) fn open(
    config: &Config,
    database: Option<&Database>,
    server: &str,
) -> Option<Arc<SharedAudit>> {
    let database = database.filter(|_| observe::keeps_audit(config))?;
    let days = config.mcp.observability.retention_days;
    let audit = SharedAudit::new(database.clone(), server.to_owned(), days);
    Some(Arc::new(audit))
}

/// What an agent does about a call that was not carried out, or that only reads.
const AGAIN: &str = "call again in some seconds";
/// The same about one that was carried out.
const LOOK_FIRST: &str = "look at what it has changed before you repeat it";

/// The row of one call.
pub(crate) struct CallAudit {
    audit: Option<Arc<SharedAudit>>,
    id: String,
    /// Whether the call may have changed something.
    has_begun: bool,
}

impl CallAudit {
    pub(crate) fn of(app: &App) -> CallAudit {
        let audit = app.shared_audit().cloned();
        CallAudit {
            id: match audit {
                Some(_) => uuid::Uuid::new_v4().to_string(),
                None => String::new(),
            },
            audit,
            has_begun: false,
        }
    }

    /// Records a call that may change something.
    pub(crate) async fn begin(
        &mut self,
        tool: &'static ToolDef,
        caller: &Caller,
        correlation_id: &str,
    ) -> Result<&'static ToolDef> {
        if self.audit.is_none() || tool.effect.only_looks() {
            return Ok(tool);
        }
        let (session, agent) = (&caller.session, &caller.agent);
        let row = AuditRow::started(correlation_id, session, agent, tool.full_name());
        match self.write(row).await {
            Ok(()) => {
                self.has_begun = true;
                Ok(tool)
            }
            Err(error) => {
                // The refusal itself has no row either.
                self.audit = None;
                let message = format!("not carried out: the audit cannot be written: {error}");
                Err(Error::new(ErrorKind::Unavailable, message).hint(next_step(AGAIN, &error)))
            }
        }
    }

    /// Records how a call has ended; without that its answer is withheld.
    pub(crate) async fn finish(
        &self,
        outcome: &mut CallOutcome,
        caller: &Caller,
        args: &ObservedArgs,
        latency: Duration,
    ) {
        if self.audit.is_none() {
            return;
        }
        let row = AuditRow::finished(&observe::event(outcome, caller, args.clone(), latency));
        let Err(error) = self.write(row).await else {
            return;
        };
        let why = format!("the answer is withheld: the audit cannot be written: {error}");
        outcome.result = Err(match self.has_begun {
            // Once more would do it twice.
            true => Error::new(ErrorKind::Unavailable, format!("carried out, but {why}"))
                .hint(next_step(LOOK_FIRST, &error))
                .retry(false),
            false => {
                let hint = match read_offset(&outcome.result) {
                    Some(offset) => next_step(&format!("{AGAIN} with offset={offset}"), &error),
                    None => next_step(AGAIN, &error),
                };
                Error::new(ErrorKind::Unavailable, why).hint(hint)
            }
        });
    }

    /// Writes the row, on a thread that may wait.
    async fn write(&self, row: AuditRow) -> Result<(), llmc_store::Error> {
        let Some(audit) = self.audit.clone() else {
            return Ok(());
        };
        let id = self.id.clone();
        let written = tokio::task::spawn_blocking(move || audit.write(&id, &row));
        written
            .await
            .unwrap_or_else(|panicked| Err(llmc_store::Error::Failed(panicked.to_string())))
    }
}

/// What the agent can do, and what the operator can.
fn next_step(agent: &str, error: &llmc_store::Error) -> String {
    format!("{agent}; for the operator: {}", error.hint())
}

/// Where an answer with a part of a process's output began: reading it has moved the process's own position on.
fn read_offset(result: &Result<Sealed>) -> Option<u64> {
    let data = result.as_ref().ok()?.data();
    data.get("next_offset")?;
    data.get("offset")?.as_u64()
}
