//! The token audit: one line of CSV per call, for spreadsheets and auditors.

use std::time::Duration;

use crate::csv_log::{CsvLog, LOCK_TIMEOUT};
use crate::event::CallEvent;
use crate::observer::AuditOptions;

pub(crate) const HEADER: &[&str] = &[
    "timestamp",
    "correlation_id",
    "session_id",
    "agent_id",
    "tool",
    "tokens_in",
    "tokens_out",
    "tokens_withheld",
    "tokens_fetched_back",
    "duration_ms",
    "status",
];

pub(crate) struct TokenAudit {
    log: CsvLog,
    failed: bool,
}

impl TokenAudit {
    pub(crate) fn open(options: &AuditOptions, retention_days: u64) -> TokenAudit {
        let log = CsvLog::new(&options.root, &options.path, HEADER);
        log.prune_or_warn(retention_days);
        TokenAudit { log, failed: false }
    }

    pub(crate) fn add(&mut self, call: &CallEvent) {
        let cells = [
            call.time.to_string(),
            call.correlation_id.clone(),
            call.session.clone(),
            call.agent.clone(),
            call.tool.clone(),
            call.tokens_in.to_string(),
            call.tokens_served.to_string(),
            call.tokens_withheld.to_string(),
            call.tokens_fetched_back.to_string(),
            format!("{:.3}", call.duration_ms),
            call.error_code.clone().unwrap_or_else(|| "ok".to_owned()),
        ];
        // After a failure the following calls do not wait as well.
        let timeout = if self.failed {
            Duration::ZERO
        } else {
            LOCK_TIMEOUT
        };
        match self.log.append(&cells, timeout) {
            Ok(()) => self.failed = false,
            // Once per outage, not once per call.
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::error!(%error, "the token audit cannot be written");
            }
            Err(_) => {}
        }
    }
}
