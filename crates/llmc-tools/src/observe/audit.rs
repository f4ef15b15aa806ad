//! The token audit: one line of CSV per call, for spreadsheets and auditors.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use super::Counted;

const HEADER: [&str; 11] = [
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

/// The audit file, opened anew for each line so that it can be rotated under a running server.
pub(super) struct Audit {
    path: PathBuf,
    failed: bool,
}

impl Audit {
    pub(super) fn new(path: PathBuf, retention_days: u32) -> Audit {
        if retention_days > 0
            && let Err(error) = prune(&path, retention_days)
        {
            tracing::warn!(%error, "old audit lines stay");
        }
        Audit {
            path,
            failed: false,
        }
    }

    pub(super) fn add(&mut self, counted: &Counted) {
        let event = &counted.event;
        let status = counted.error_code().unwrap_or("ok");
        let line = line(&[
            Timestamp::now().to_string(),
            event.correlation_id.clone(),
            event.session.clone(),
            event.agent.clone(),
            event.tool.clone(),
            counted.tokens_in.to_string(),
            counted.tokens_out.to_string(),
            counted.tokens_withheld.to_string(),
            counted.tokens_fetched_back.to_string(),
            format!("{:.3}", counted.latency_ms()),
            status.to_owned(),
        ]);
        match self.append(&line) {
            Ok(()) => self.failed = false,
            // Once per outage, not once per call.
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::error!(%error, "the token audit cannot be written");
            }
            Err(_) => {}
        }
    }

    fn append(&self, line: &[u8]) -> std::io::Result<()> {
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        // The umask may be wide; who called what is nobody else's business.
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        let mut text = Vec::new();
        if file.metadata()?.len() == 0 {
            text.extend_from_slice(&self::line(&HEADER.map(str::to_owned)));
        }
        text.extend_from_slice(line);
        // One write, so that two servers on one file do not mix their lines.
        file.write_all(&text)
    }
}

fn line(cells: &[String]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells.iter().map(|cell| harmless(cell)));
    writer.into_inner().unwrap_or_default()
}

/// A spreadsheet runs a cell that starts like a formula; a quote in front keeps it text.
fn harmless(cell: &str) -> String {
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        return format!("'{cell}");
    }
    cell.to_owned()
}

/// Drops lines older than the limit, by writing the rest to a new file that takes the old one's place.
fn prune(path: &std::path::Path, days: u32) -> std::io::Result<()> {
    let oldest = Timestamp::now() - SignedDuration::from_hours(i64::from(days) * 24);
    let Ok(mut reader) = csv::ReaderBuilder::new().flexible(true).from_path(path) else {
        return Ok(());
    };
    let mut kept = line(&HEADER.map(str::to_owned));
    let mut dropped = false;
    for record in reader.records() {
        let record = record.map_err(std::io::Error::other)?;
        let time = record
            .get(0)
            .and_then(|cell| cell.parse::<Timestamp>().ok());
        if time.is_some_and(|time| time < oldest) {
            dropped = true;
            continue;
        }
        kept.extend_from_slice(&line(&record.iter().map(str::to_owned).collect::<Vec<_>>()));
    }
    if !dropped {
        return Ok(());
    }
    let fresh = path.with_extension("csv.new");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?
        .write_all(&kept)?;
    std::fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_become_formulas_or_break_lines() {
        let text = String::from_utf8(line(&[
            "=1+1".to_owned(),
            "a,\"b\"\nc".to_owned(),
            "-x".to_owned(),
        ]))
        .unwrap();
        assert_eq!(text, "'=1+1,\"a,\"\"b\"\"\nc\",'-x\n");
    }

    #[test]
    fn old_lines_go_and_young_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.csv");
        let now = Timestamp::now().to_string();
        std::fs::write(
            &path,
            format!("timestamp,x\n2020-01-01T00:00:00Z,old\n{now},young\n"),
        )
        .unwrap();
        prune(&path, 7).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("young") && !text.contains("old"), "{text}");
    }
}
