//! One transaction as one tenant.
//!
//! A round trip to the database may take longer than all else that a call does, so statements are sent without waiting where
//! nothing depends on the answer: the beginning goes out with the first statement, and the end with the last one if the
//! work says which that is.

use std::cell::Cell;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::{Error, Result, Tenant};

/// A statement with its parameters.
pub type Statement<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// What follows the statements that are sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Commit,
}

/// A transaction in progress. Statements are prepared once a connection and see the rows of its tenant only.
pub struct TenantTransaction<'c> {
    client: &'c ClientWrapper,
    /// What begins it, until it has been sent.
    beginning: Cell<Option<String>>,
    is_committed: Cell<bool>,
}

/// What every transaction is bounded by in the database itself, so that no lock outlives a server that went away.
const LIMITS: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '3s'; \
                      SET LOCAL idle_in_transaction_session_timeout = '30s'";

/// The same for statements outside of transactions.
pub(crate) const CONNECTION_LIMITS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '3s'";

impl<'c> TenantTransaction<'c> {
    pub(crate) fn begin(client: &'c ClientWrapper, tenant: &Tenant) -> Self {
        // A tenant's name needs no escaping.
        let beginning = format!("BEGIN; {LIMITS}; SET LOCAL llmc.tenant = '{tenant}'");
        TenantTransaction {
            client,
            beginning: Cell::new(Some(beginning)),
            is_committed: Cell::new(false),
        }
    }

    pub(crate) async fn commit(self) -> Result<()> {
        if self.is_committed.get() {
            return Ok(());
        }
        self.run("COMMIT").await
    }

    pub(crate) async fn roll_back(self) -> Result<()> {
        match self.beginning.take() {
            Some(_) => Ok(()),
            None if self.is_committed.get() => Ok(()),
            None => Ok(self.client.batch_execute("ROLLBACK").await?),
        }
    }

    /// Statements without parameters, in one round trip.
    async fn run(&self, sql: &str) -> Result<()> {
        let sent = match self.beginning.take() {
            Some(beginning) => {
                self.client
                    .batch_execute(&format!("{beginning}; {sql}"))
                    .await
            }
            None => self.client.batch_execute(sql).await,
        };
        Ok(sent?)
    }

    /// Keeps the locks of this transaction for as long as its connection lives, however long this process is suspended.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn keep_locks_while_connected(&self) -> Result<()> {
        let limits = "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL tcp_keepalives_idle = 30; \
                      SET LOCAL tcp_keepalives_interval = 10; SET LOCAL tcp_keepalives_count = 3";
        self.run(limits).await
    }

    /// Bounds how long the statements that follow wait for rows that other transactions have locked.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn wait_for_locks_at_most(&self, wait: Duration) -> Result<()> {
        let limit = format!("SET LOCAL lock_timeout = {}", wait.as_millis().max(1));
        self.run(&limit).await
    }

    /// Lets each of the statements that follow take so long, in [`Database::transaction_within`](crate::Database::transaction_within).
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn allow_statements(&self, time: Duration) -> Result<()> {
        let limit = format!("SET LOCAL statement_timeout = {}", time.as_millis().max(1));
        self.run(&limit).await
    }

    /// All rows that a statement gives.
    pub async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let (_, rows) = self.send(None, (sql, params), End::Open).await?;
        Ok(rows)
    }

    /// The rows of two statements in one round trip; the second sees what was committed while the first waited for a lock.
    ///
    /// # Errors
    /// That of the first which failed.
    pub async fn query_both(
        &self,
        first: Statement<'_>,
        second: Statement<'_>,
    ) -> Result<(Vec<Row>, Vec<Row>)> {
        self.send(Some(first), second, End::Open).await
    }

    /// The rows of the last statement, which is sent together with the end of the transaction.
    ///
    /// # Errors
    /// The statement failed, and nothing of the transaction stays; or the connection was lost.
    pub async fn query_and_commit(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let (_, rows) = self.send(None, (sql, params), End::Commit).await?;
        Ok(rows)
    }

    /// Both of that: two statements and the end of the transaction in one round trip.
    ///
    /// # Errors
    /// A statement failed, and nothing of the transaction stays; or the connection was lost.
    pub async fn query_both_and_commit(
        &self,
        first: Statement<'_>,
        second: Statement<'_>,
    ) -> Result<(Vec<Row>, Vec<Row>)> {
        self.send(Some(first), second, End::Commit).await
    }

    /// Sends everything before it waits for the first answer.
    async fn send(
        &self,
        first: Option<Statement<'_>>,
        (last, last_params): Statement<'_>,
        end: End,
    ) -> Result<(Vec<Row>, Vec<Row>)> {
        if self.is_committed.get() {
            return Err(Error::Failed("the transaction has ended".to_owned()));
        }
        // All are prepared before any is sent, so that they arrive in their order.
        let first = match first {
            Some((sql, params)) => Some((self.client.prepare_cached(sql).await?, params)),
            None => None,
        };
        let last = self.client.prepare_cached(last).await?;
        let beginning = self.beginning.take();
        let begin = async {
            match &beginning {
                Some(beginning) => self.client.batch_execute(beginning).await,
                None => Ok(()),
            }
        };
        let one = async {
            match &first {
                Some((statement, params)) => self.client.query(statement, params).await,
                None => Ok(Vec::new()),
            }
        };
        // After an error the database takes COMMIT for ROLLBACK.
        let commit = async {
            match end {
                End::Commit => self.client.batch_execute("COMMIT").await,
                End::Open => Ok(()),
            }
        };
        let (begun, one, two, committed) =
            tokio::join!(biased; begin, one, self.client.query(&last, last_params), commit);
        self.is_committed.set(end == End::Commit);
        begun?;
        let rows = (one?, two?);
        committed?;
        Ok(rows)
    }

    /// The only row of a statement that gives one or none.
    pub async fn query_opt(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            _ => Err(unexpected_rows()),
        }
    }

    /// The only row of a statement that always gives one.
    pub async fn query_one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let row = self.query_opt(sql, params).await?;
        row.ok_or_else(unexpected_rows)
    }

    /// How many rows a statement changed.
    pub async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        let statement = self.client.prepare_cached(sql).await?;
        let execute = self.client.execute(&statement, params);
        let Some(beginning) = self.beginning.take() else {
            return Ok(execute.await?);
        };
        let (begun, changed) = tokio::join!(self.client.batch_execute(&beginning), execute);
        begun?;
        Ok(changed?)
    }
}

fn unexpected_rows() -> Error {
    Error::Failed("a statement gave an unexpected number of rows".to_owned())
}
