//! One transaction as one tenant.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::{Result, Tenant};

/// A transaction in progress. Statements are prepared once a connection and see the rows of its tenant only.
pub struct TenantTransaction<'c> {
    client: &'c ClientWrapper,
}

/// What every transaction is bounded by in the database itself, so that no lock outlives a server that went away.
const LIMITS: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '3s'; \
                      SET LOCAL idle_in_transaction_session_timeout = '30s'";

impl<'c> TenantTransaction<'c> {
    pub(crate) async fn begin(client: &'c ClientWrapper, tenant: &Tenant) -> Result<Self> {
        // One round trip. A tenant's name needs no escaping.
        client
            .batch_execute(&format!(
                "BEGIN; {LIMITS}; SET LOCAL llmc.tenant = '{tenant}'"
            ))
            .await?;
        Ok(TenantTransaction { client })
    }

    pub(crate) async fn commit(self) -> Result<()> {
        Ok(self.client.batch_execute("COMMIT").await?)
    }

    pub(crate) async fn roll_back(self) -> Result<()> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }

    /// Keeps the locks of this transaction for as long as its connection lives, however long this process is suspended.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn keep_locks_while_connected(&self) -> Result<()> {
        let limits = "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL tcp_keepalives_idle = 30; \
                      SET LOCAL tcp_keepalives_interval = 10; SET LOCAL tcp_keepalives_count = 3";
        Ok(self.client.batch_execute(limits).await?)
    }

    /// Bounds how long the statements that follow wait for rows that other transactions have locked.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn wait_for_locks_at_most(&self, wait: Duration) -> Result<()> {
        let limit = format!("SET LOCAL lock_timeout = {}", wait.as_millis().max(1));
        Ok(self.client.batch_execute(&limit).await?)
    }

    /// All rows that a statement gives.
    pub async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    /// The only row of a statement that gives one or none.
    pub async fn query_opt(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query_opt(&statement, params).await?)
    }

    /// The only row of a statement that always gives one.
    pub async fn query_one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query_one(&statement, params).await?)
    }

    /// How many rows a statement changed.
    pub async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.execute(&statement, params).await?)
    }
}
