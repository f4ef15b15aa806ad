//! One transaction as one tenant.

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
