//! The tables of the database: made by whichever server comes first.
//!
//! They are made in one transaction under an advisory lock, so that several servers that start at the same time do it
//! once. A database records the version of its schema, and with which older programs that still works: a later version can
//! then let servers be upgraded one after the other.

use std::time::Duration;

use postgres_protocol::password::scram_sha_256;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::database::DatabaseSettings;
use crate::tls::TlsMaker;
use crate::{DatabaseUrl, Error, Result};

/// The schema that this program works with.
pub const SCHEMA_VERSION: i32 = 1;
/// The oldest PostgreSQL that the tests run on.
const OLDEST_SERVER: i32 = 15;
/// How long making the tables may take, the wait for another server's included.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Any number that no other program takes for its own lock in the same database.
const CREATION_LOCK: i64 = 0x6c6c_6d63_0001;

/// The tables of each store.
const TABLES: [&str; 6] = [
    include_str!("schema/handles.sql"),
    include_str!("schema/leases.sql"),
    include_str!("schema/calls.sql"),
    include_str!("schema/tokens.sql"),
    include_str!("schema/script_sessions.sql"),
    include_str!("schema/history.sql"),
];

/// Where the version is recorded.
const VERSION_TABLE: &str = "CREATE TABLE llmc.schema_version (
    version    integer PRIMARY KEY,
    works_with integer NOT NULL,
    made_at    timestamptz NOT NULL DEFAULT now()
)";
/// Where programs before the first release recorded it.
const FORMER_TABLE: &str = "schema_history";

/// What was made in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationReport {
    /// Whether the tables were not there before.
    pub created_tables: bool,
    /// Whether the role of `mcp.store.url` was created.
    pub created_role: bool,
}

/// The schema of a database.
#[derive(Debug, Clone, Copy)]
struct FoundSchema {
    version: i32,
    works_with: i32,
}

/// Opens a connection of its own.
pub(crate) async fn connect(url: &DatabaseUrl) -> Result<Client> {
    let (client, connection) = url.config().connect(TlsMaker::new(url)?).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// Creates what is missing.
pub(crate) async fn create(settings: &DatabaseSettings) -> Result<CreationReport> {
    let created = timeout(CREATION_TIMEOUT, async {
        let client = connect(settings.creation_url()).await?;
        check_server(&client).await?;
        client
            .batch_execute(&format!(
                "BEGIN; SET LOCAL lock_timeout = '50s'; SELECT pg_advisory_xact_lock({CREATION_LOCK})"
            ))
            .await?;
        // An error leaves the transaction to the end of the connection, which undoes it.
        let created_tables = create_tables(&client).await?;
        let created_role = match settings.admin_url {
            Some(_) => admit(&client, settings).await?,
            None => {
                // The servers will be this role: one that is refused later must not own the tables.
                check_usable(&client).await?;
                false
            }
        };
        client.batch_execute("COMMIT").await?;
        Ok(CreationReport {
            created_tables,
            created_role,
        })
    });
    created.await.map_err(|_| Error::TooSlow)?
}

/// Creates the tables if there are none; whether it did.
async fn create_tables(client: &Client) -> Result<bool> {
    if let Some(schema) = found_schema(client).await? {
        schema.check()?;
        return Ok(false);
    }
    // Only if it is not there: creating takes a right on the database that a prepared schema makes needless.
    let exists = "SELECT 1 FROM pg_namespace WHERE nspname = 'llmc'";
    if client.query_opt(exists, &[]).await?.is_none() {
        client.batch_execute("CREATE SCHEMA llmc").await?;
    }
    for tables in TABLES.iter().chain([&VERSION_TABLE]) {
        client.batch_execute(tables).await?;
    }
    let record = "INSERT INTO llmc.schema_version (version, works_with) VALUES ($1, $1)";
    client.execute(record, &[&SCHEMA_VERSION]).await?;
    Ok(true)
}

/// Gives the role of the servers what they need, and creates it if it is not there; whether it was created.
async fn admit(client: &Client, settings: &DatabaseSettings) -> Result<bool> {
    let (role, password) = {
        let config = settings.url.config();
        let role = config.get_user().ok_or_else(|| {
            Error::BadUrl("it names no user, and mcp.store.admin_url is another's".to_owned())
        })?;
        (role.to_owned(), config.get_password().map(<[u8]>::to_vec))
    };
    let quoted = client
        .query_one(
            "SELECT quote_ident($1), EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)",
            &[&role],
        )
        .await?;
    let (name, exists): (String, bool) = (quoted.try_get(0)?, quoted.try_get(1)?);
    if !exists {
        let login = match &password {
            // The password itself would reach the log of the database. A verifier has no character to escape.
            Some(password) => format!("LOGIN PASSWORD '{}'", scram_sha_256(password)),
            None => "LOGIN".to_owned(),
        };
        client
            .batch_execute(&format!(
                "CREATE ROLE {name} {login} NOSUPERUSER NOBYPASSRLS"
            ))
            .await?;
    }
    client
        .batch_execute(&format!(
            "GRANT USAGE ON SCHEMA llmc TO {name}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA llmc TO {name}; \
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA llmc TO {name}; \
             REVOKE INSERT, UPDATE, DELETE ON llmc.schema_version FROM {name}"
        ))
        .await?;
    Ok(!exists)
}

/// Whether this program can work here with this role.
pub(crate) async fn check_usable(client: &Client) -> Result<()> {
    check_server(client).await?;
    let role = client
        .query_one(
            "SELECT rolname::text, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user",
            &[],
        )
        .await?;
    if role.try_get(1)? {
        return Err(Error::Unconfined {
            role: role.try_get(0)?,
        });
    }
    match found_schema(client).await? {
        None => Err(Error::NoSchema),
        Some(schema) => schema.check(),
    }
}

/// The version of the schema, if there is one.
pub(crate) async fn schema_version(client: &Client) -> Result<Option<i32>> {
    Ok(found_schema(client).await?.map(|schema| schema.version))
}

async fn check_server(client: &Client) -> Result<()> {
    let found = "SELECT current_setting('server_version_num')::integer / 10000";
    let found: i32 = client.query_one(found, &[]).await?.try_get(0)?;
    match found < OLDEST_SERVER {
        true => Err(Error::OldServer {
            found,
            needed: OLDEST_SERVER,
        }),
        false => Ok(()),
    }
}

async fn found_schema(client: &Client) -> Result<Option<FoundSchema>> {
    // By the catalogue: a role without rights is another matter than a database without tables.
    let tables = "SELECT coalesce(bool_or(c.relname = 'schema_version'), false), coalesce(bool_or(c.relname = $1), false) \
                  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'llmc'";
    let tables = client.query_one(tables, &[&FORMER_TABLE]).await?;
    let (is_there, is_former): (bool, bool) = (tables.try_get(0)?, tables.try_get(1)?);
    if is_former {
        return Err(Error::FormerSchema);
    }
    if !is_there {
        return Ok(None);
    }
    let newest =
        "SELECT version, works_with FROM llmc.schema_version ORDER BY version DESC LIMIT 1";
    let Some(newest) = client.query_opt(newest, &[]).await? else {
        return Ok(None);
    };
    Ok(Some(FoundSchema {
        version: newest.try_get(0)?,
        works_with: newest.try_get(1)?,
    }))
}

impl FoundSchema {
    fn check(self) -> Result<()> {
        match self.works_with > SCHEMA_VERSION {
            true => Err(Error::NewSchema {
                found: self.version,
                known: SCHEMA_VERSION,
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_row_level_security_that_binds_its_owner() {
        for sql in TABLES {
            for rest in sql.split("CREATE TABLE llmc.").skip(1) {
                let table = rest.split_whitespace().next().unwrap();
                for needed in [
                    format!("ALTER TABLE llmc.{table} ENABLE ROW LEVEL SECURITY"),
                    format!("ALTER TABLE llmc.{table} FORCE ROW LEVEL SECURITY"),
                    format!("CREATE POLICY tenant ON llmc.{table}"),
                ] {
                    assert!(sql.contains(&needed), "{needed}");
                }
            }
        }
    }
}
