//! Writes telemetry on a thread of its own, which may have to wait for other processes or for a database.
//!
//! Rows go into a file one by one, and into a shared database in batches. While the database is away rows wait here, a
//! bounded number of them; then the oldest are dropped and counted. A server that is killed loses the rows of the last
//! batch interval.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use llmc_store::Database;

use crate::observer::{ClosingState, QueuedRow, next_in_burst};
use crate::telemetry::{Error, Telemetry, TelemetryLocation, TelemetryOptions, TelemetryRow};

/// How long SQLite waits for a lock before the thread looks whether it is to end.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a row waits for a lock in all.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long the first row of a batch waits for others.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);
const MAX_BATCH_ROWS: usize = 500;
/// How long after a failure a batch is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Rows that wait while the database is away, and bytes of the contents that go with them.
const MAX_WAITING_ROWS: usize = 10_000;
const MAX_WAITING_CONTENT_BYTES: usize = 16 << 20;

pub(crate) struct TelemetryThread {
    /// In memory without one.
    pub(crate) location: Option<TelemetryLocation>,
    pub(crate) retention_days: u32,
    pub(crate) closing: Arc<ClosingState>,
    /// Rows that nothing keeps.
    pub(crate) dropped: Arc<AtomicU64>,
}

impl TelemetryThread {
    /// Writes what comes until the sender is gone.
    pub(crate) fn run(self, rows: &Receiver<QueuedRow>) {
        match &self.location {
            Some(TelemetryLocation::Database(database)) => self.run_batches(database.clone(), rows),
            _ => self.run_rows(rows),
        }
    }

    fn options(&self) -> TelemetryOptions {
        TelemetryOptions {
            retention_days: self.retention_days,
            lock_timeout: Some(LOCK_POLL_INTERVAL),
            ..TelemetryOptions::default()
        }
    }

    fn is_over(&self) -> bool {
        self.closing.without_telemetry.load(Ordering::Relaxed)
    }

    fn run_rows(&self, rows: &Receiver<QueuedRow>) {
        let (mut store, mut woken) = (LazyStore::Closed, None);
        while let Some(row) = next_in_burst(rows, &mut woken) {
            self.write(&mut store, &row);
        }
    }

    /// Writes a row; tries again while another process has locked the store.
    fn write(&self, store: &mut LazyStore, row: &QueuedRow) {
        let give_up = Instant::now() + MAX_LOCK_WAIT;
        while !self.is_over() {
            let written = self.try_write(store, row);
            let is_locked = written.as_ref().is_err_and(Error::is_locked);
            self.closing.is_locked.store(is_locked, Ordering::Relaxed);
            if is_locked && Instant::now() < give_up {
                continue;
            }
            if let Err(error) = written {
                tracing::warn!(%error, "a telemetry row is lost");
            }
            return;
        }
    }

    fn try_write(&self, store: &mut LazyStore, row: &QueuedRow) -> Result<(), Error> {
        if let LazyStore::Closed = store {
            let opened = match &self.location {
                Some(TelemetryLocation::File(path)) => Telemetry::open(path, self.options()),
                _ => Telemetry::in_memory(self.options()),
            };
            *store = match opened {
                Ok(store) => LazyStore::Open(Box::new(store)),
                // The next try opens it.
                Err(error) if error.is_locked() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "telemetry is off");
                    LazyStore::Broken
                }
            };
        }
        match store {
            LazyStore::Open(store) => {
                let content = row.content.as_ref().map(|queued| &queued.content);
                store.record_with(&row.call, content)
            }
            LazyStore::Closed | LazyStore::Broken => Ok(()),
        }
    }

    fn run_batches(&self, database: Database, rows: &Receiver<QueuedRow>) {
        let store = Telemetry::shared(database, self.options());
        let mut waiting = WaitingRows::default();
        let mut is_open = true;
        while is_open || !waiting.rows.is_empty() {
            if is_open {
                is_open = self.fill(&mut waiting, rows);
            }
            if self.is_over() {
                break;
            }
            self.write_batches(&store, &mut waiting, is_open);
        }
        if !waiting.rows.is_empty() {
            tracing::warn!(rows = waiting.rows.len(), "telemetry rows are lost");
        }
    }

    /// Takes rows until a batch is full, its time is over, or, after a failure, the time of the next try has come; false when
    /// no more will come.
    fn fill(&self, waiting: &mut WaitingRows, rows: &Receiver<QueuedRow>) -> bool {
        if waiting.rows.is_empty() {
            let Ok(row) = rows.recv() else { return false };
            self.keep(waiting, &row);
        }
        let is_failing = self.closing.is_locked.load(Ordering::Relaxed);
        let until = Instant::now()
            + match is_failing {
                true => RETRY_INTERVAL,
                false => BATCH_INTERVAL,
            };
        while is_failing || waiting.rows.len() < MAX_BATCH_ROWS {
            match rows.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(row) => self.keep(waiting, &row),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    fn keep(&self, waiting: &mut WaitingRows, row: &QueuedRow) {
        if !waiting.add(row) && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("telemetry rows are dropped: the shared store has been away for long");
        }
    }

    /// Writes everything that waits; what fails waits on.
    fn write_batches(&self, store: &Telemetry, waiting: &mut WaitingRows, is_open: bool) {
        while !waiting.rows.is_empty() && !self.is_over() {
            let batch = waiting.rows.len().min(MAX_BATCH_ROWS);
            let written = store.write(&waiting.rows.make_contiguous()[..batch]);
            self.closing
                .is_locked
                .store(written.is_err(), Ordering::Relaxed);
            match written {
                Ok(()) => waiting.remove(batch),
                Err(error) => {
                    tracing::debug!(%error, "telemetry waits");
                    if !is_open {
                        std::thread::sleep(LOCK_POLL_INTERVAL);
                    }
                    return;
                }
            }
        }
    }
}

/// A store that is opened with the first event, not at start.
enum LazyStore {
    Closed,
    Open(Box<Telemetry>),
    Broken,
}

/// Rows on their way to a shared database, oldest first.
#[derive(Default)]
struct WaitingRows {
    rows: VecDeque<TelemetryRow>,
    content_bytes: usize,
}

impl WaitingRows {
    /// Adds a row, without its content where there is no room for that; false if the oldest had to go.
    fn add(&mut self, row: &QueuedRow) -> bool {
        let content = row.content.as_ref().map(|queued| &queued.content);
        let fits = self.content_bytes < MAX_WAITING_CONTENT_BYTES;
        let row = TelemetryRow::new(&row.call, content.filter(|_| fits));
        self.content_bytes += row.content_bytes();
        self.rows.push_back(row);
        let is_full = self.rows.len() > MAX_WAITING_ROWS;
        if is_full {
            self.remove(1);
        }
        !is_full
    }

    fn remove(&mut self, count: usize) {
        let removed = self.rows.drain(..count).map(|row| row.content_bytes());
        self.content_bytes -= removed.sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::content::{CallContent, ContentText};
    use crate::event::CallEvent;
    use crate::observer::QueuedContent;

    fn row(tool: &str, answer_bytes: usize) -> QueuedRow {
        let text = |bytes: usize| ContentText {
            text: "x".repeat(bytes),
            is_cut: false,
        };
        let content = CallContent {
            args: text(0),
            answer: text(answer_bytes),
        };
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        QueuedRow {
            call: CallEvent {
                tool: tool.to_owned(),
                ..CallEvent::default()
            },
            content: QueuedContent::new(content, &queued_bytes),
        }
    }

    #[test]
    fn while_the_database_is_away_rows_and_contents_are_bounded() {
        let mut waiting = WaitingRows::default();
        for n in 0..MAX_WAITING_ROWS {
            assert!(waiting.add(&row(&n.to_string(), 8 << 10)), "{n}");
        }
        assert!(waiting.content_bytes <= MAX_WAITING_CONTENT_BYTES + (16 << 10));
        assert!(!waiting.add(&row("last", 0)), "the oldest had to go");
        assert_eq!(waiting.rows.len(), MAX_WAITING_ROWS);
        waiting.remove(MAX_WAITING_ROWS);
        assert_eq!(waiting.content_bytes, 0);
    }
}
