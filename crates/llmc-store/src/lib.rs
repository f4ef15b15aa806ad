//! The database that the servers of a team share: connecting to it, its schema, its tenants.
//!
//! One machine needs none of this: without `mcp.store.url` every store is a SQLite file and nothing here runs, not even a
//! thread. With it, a store keeps its rows here, behind the same methods as its SQLite rows; the crate that owns a store
//! owns its statements on both engines.
//!
//! - [`DatabaseUrl`]: where the database is, with its password kept out of every text.
//! - [`Database`]: transactions from any thread, bounded in time, each as one [`Tenant`].
//! - [`Listener`]: waits for notifications of other servers.
//! - [`DatabaseReport`], [`CreationReport`]: what `llmc doctor` and `llmc store migrate` say.
//! - [`Error`]: what is wrong and what to do about it.
//!
//! Tenants are kept apart by the database: every table has row-level security that applies to its owner too, and a
//! transaction names its tenant by `SET LOCAL`. A role that row-level security does not apply to is refused.

mod block_on;
mod database;
mod error;
mod listen;
mod report;
mod schema;
mod tenant;
mod tls;
mod transaction;
mod url;

pub use database::{Database, DatabaseSettings, IsLost};
pub use error::Error;
pub use listen::{ListenOutcome, Listener};
pub use report::DatabaseReport;
pub use schema::{CreationReport, SCHEMA_VERSION};
pub use tenant::Tenant;
pub use tokio_postgres::Row;
pub use tokio_postgres::types::{FromSql, ToSql};
pub use transaction::{Statement, TenantTransaction};
pub use url::DatabaseUrl;

/// A result whose error says why the database could not do it.
pub type Result<T, E = Error> = std::result::Result<T, E>;
