//! Copies the calls of a file into the shared database, for a machine that joins a team.

use llmc_store::Database;
use rusqlite::Row;

use super::row::RowContent;
use super::shared::SharedCalls;
use super::{COLUMNS, Error, Telemetry, TelemetryRow, TelemetryStore, read_row};

/// Calls of one transaction; each may have 32 KiB of texts.
const CALLS_PER_BATCH: usize = 100;

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedCalls {
    pub copied: u64,
    /// Calls that the database had already.
    pub known: u64,
}

/// Whether the start of arguments and answers is copied too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedTexts {
    Keep,
    LeaveOut,
}

impl Telemetry {
    /// Copies every call with its time. Doing it again copies what is new.
    ///
    /// # Errors
    /// One of the stores cannot be used.
    pub fn copy_to(&self, database: Database, texts: CopiedTexts) -> Result<CopiedCalls, Error> {
        let target = SharedCalls::new(database);
        let mut done = CopiedCalls::default();
        let mut last = 0;
        loop {
            let (rows, end) = self.rows_after(last, texts)?;
            if rows.is_empty() {
                return Ok(done);
            }
            last = end;
            let made = target.write(&rows, &self.options)?;
            done.copied += made;
            done.known += (rows.len() as u64).saturating_sub(made);
        }
    }

    /// The next rows of a file, and the number of the last one; none of a database.
    fn rows_after(&self, last: i64, texts: CopiedTexts) -> Result<(Vec<TelemetryRow>, i64), Error> {
        let TelemetryStore::File(file) = &self.store else {
            return Ok((Vec::new(), last));
        };
        let sql = format!(
            "SELECT {COLUMNS}, args, (SELECT args FROM contents WHERE seq = calls.seq), \
             (SELECT args_cut FROM contents WHERE seq = calls.seq), (SELECT answer FROM contents WHERE seq = calls.seq), \
             (SELECT answer_cut FROM contents WHERE seq = calls.seq) \
             FROM calls WHERE seq > ?1 ORDER BY seq LIMIT ?2"
        );
        let mut end = last;
        let rows = file.store.read(|conn| {
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map([last, CALLS_PER_BATCH as i64], |row| {
                end = row.get(23)?;
                copied_row(row, texts)
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        Ok((rows, end))
    }
}

fn copied_row(row: &Row<'_>, texts: CopiedTexts) -> rusqlite::Result<TelemetryRow> {
    let call = read_row(row)?;
    let mut copied = TelemetryRow::new(&call, None);
    copied.time_ms = Some(call.time.as_millisecond());
    // Masked and cut when it was recorded.
    copied.args = call.args.as_deref().map(super::without_nul);
    let content: Option<String> = row.get(25)?;
    if let (CopiedTexts::Keep, Some(args)) = (texts, content) {
        copied.content = Some(RowContent {
            args: super::without_nul(&args),
            args_cut: row.get(26)?,
            answer: super::without_nul(&row.get::<_, String>(27)?),
            answer_cut: row.get(28)?,
        });
    }
    Ok(copied)
}
