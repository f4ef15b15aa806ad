//! What can be wrong with the database, and what to do about it.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

/// Why the database could not be used. The text names no host and no password, so that an agent may read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("mcp.store.url or mcp.store.admin_url cannot be read: {0}")]
    BadUrl(String),
    /// Nothing answers there, or not in time.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// All connections are in use.
    #[error("all connections to the database are in use")]
    Busy,
    /// The database has no connection left for this server.
    #[error("the database accepts no further connection: {0}")]
    NoConnection(String),
    /// Another transaction has locked the rows for longer than a statement waits.
    #[error("another server has locked the rows")]
    Locked,
    /// A statement took longer than calls may wait.
    #[error("the database did not answer in time")]
    TooSlow,
    /// Wrong password, no password, or a user that may not connect from here.
    #[error("the database refuses the login: {0}")]
    LoginRefused(String),
    /// There is no such database.
    #[error("the database of the address does not exist")]
    NoDatabase,
    /// The server's certificate is not accepted, or it has none.
    #[error("no encrypted connection to the database: {0}")]
    Tls(String),
    /// Not a version that this was made for.
    #[error("the database is PostgreSQL {found}; {needed} or newer is needed")]
    OldServer {
        /// What it is.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// The role lacks a right.
    #[error("the database role lacks rights: {0}")]
    NoRights(String),
    /// Row-level security would not apply.
    #[error("row-level security does not apply to the role {role}")]
    Unconfined {
        /// The role of `mcp.store.url`.
        role: String,
    },
    /// Nothing was created yet.
    #[error("the database has no tables of LLMC yet")]
    NoSchema,
    /// A program before the first release made the schema.
    #[error("the tables of the database are of a program before the first release")]
    FormerSchema,
    /// A newer program made the schema.
    #[error("the database has schema {found}, which is newer than this program's {known}")]
    NewSchema {
        /// What it has.
        found: i32,
        /// The newest that this program knows.
        known: i32,
    },
    /// The connection was lost while it was in use.
    #[error("the connection to the database was lost")]
    Lost,
    /// Anything else, in the database's words.
    #[error("the database reports: {0}")]
    Failed(String),
}

impl Error {
    /// What the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::BadUrl(_) => {
                "write it as postgres://user:password@host/database?sslmode=verify-full"
            }
            Error::Unreachable(_) | Error::Lost => {
                "check host and port of mcp.store.url, and that the database runs and accepts connections from here"
            }
            Error::Busy => "raise mcp.store.max_connections",
            Error::NoConnection(_) => {
                "raise max_connections of PostgreSQL or the connection limit of the role, or lower mcp.store.max_connections; pg_stat_activity shows who has the connections"
            }
            Error::TooSlow | Error::Locked => {
                "look at the load of the database; pg_stat_activity shows what it does"
            }
            Error::LoginRefused(_) => {
                "check user and password of mcp.store.url, and pg_hba.conf of the database"
            }
            Error::NoDatabase => "create it: CREATE DATABASE name",
            Error::Tls(_) => {
                "name the authority's certificate with sslrootcert=FILE in mcp.store.url, and the host as the certificate has it"
            }
            Error::OldServer { .. } => "upgrade PostgreSQL",
            Error::NoRights(_) | Error::NoSchema => {
                "run llmc store migrate, with mcp.store.admin_url naming a role that may create tables"
            }
            Error::Unconfined { .. } => {
                "put this address into mcp.store.admin_url, name a new user and password in mcp.store.url, and run llmc store migrate, which creates that role"
            }
            Error::FormerSchema => {
                "remove them with all that they hold, as their owner: DROP SCHEMA llmc CASCADE; then run llmc store migrate"
            }
            Error::NewSchema { .. } => "upgrade this program",
            Error::Failed(_) => "see the log of the database",
        }
    }

    /// Whether the same call may succeed at once on another connection.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        matches!(self, Error::Lost)
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return without_answer(&error);
        };
        let message = db.message().to_owned();
        let code = db.code();
        if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            return Error::LoginRefused(message);
        }
        if *code == SqlState::INVALID_CATALOG_NAME {
            return Error::NoDatabase;
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Error::NoRights(message);
        }
        if *code == SqlState::QUERY_CANCELED {
            return Error::TooSlow;
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Error::Locked;
        }
        if *code == SqlState::TOO_MANY_CONNECTIONS {
            return Error::NoConnection(message);
        }
        let is_restart = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        if is_restart.contains(code) {
            return Error::Lost;
        }
        if *code == SqlState::CANNOT_CONNECT_NOW {
            return Error::Unreachable(message);
        }
        Error::Failed(message)
    }
}

/// What the client library itself found. It shows the kind of an error in a fixed text only.
fn without_answer(error: &tokio_postgres::Error) -> Error {
    let kind = error.to_string();
    let cause = error.source().map_or_else(|| kind.clone(), root_cause);
    if error.is_closed() || kind.starts_with("error communicating") {
        return Error::Lost;
    }
    if kind.starts_with("error performing TLS") {
        return Error::Tls(cause);
    }
    if kind.starts_with("authentication error") || cause.contains("password missing") {
        return Error::LoginRefused(cause);
    }
    if kind.starts_with("error connecting") || kind.starts_with("timeout") {
        return Error::Unreachable(cause);
    }
    Error::Failed(match cause == kind {
        true => kind,
        false => format!("{kind}: {cause}"),
    })
}

fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}
