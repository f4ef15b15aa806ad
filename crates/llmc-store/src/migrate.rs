//! The schema of the database: made and upgraded by whichever server comes first.
//!
//! Migrations run in one transaction under an advisory lock, so that several servers that start at the same time do it
//! once. Each says with which older programs its result still works, so that servers are upgraded one after the other.

use std::time::Duration;

use postgres_protocol::password::scram_sha_256;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::database::DatabaseSettings;
use crate::tls::TlsMaker;
use crate::{DatabaseUrl, Error, Result};

/// The schema that this program works with.
pub const SCHEMA_VERSION: i32 = 7;
/// The oldest PostgreSQL that the tests run on.
const OLDEST_SERVER: i32 = 15;
/// How long a migration may take, the wait for another server's included.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Any number that no other program takes for its own lock in the same database.
const MIGRATION_LOCK: i64 = 0x6c6c_6d63_0001;

/// One step from a version to the next.
struct Migration {
    version: i32,
    /// The oldest version of a program that works with the result.
    works_with: i32,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        works_with: 1,
        sql: include_str!("migrations/1_handles.sql"),
    },
    // A program that takes no shared leases would write over those that do.
    Migration {
        version: 2,
        works_with: 2,
        sql: include_str!("migrations/2_leases.sql"),
    },
    Migration {
        version: 3,
        works_with: 2,
        sql: include_str!("migrations/3_calls.sql"),
    },
    Migration {
        version: 4,
        works_with: 2,
        sql: include_str!("migrations/4_tokens.sql"),
    },
    Migration {
        version: 5,
        works_with: 2,
        sql: include_str!("migrations/5_servers.sql"),
    },
    Migration {
        version: 6,
        works_with: 2,
        sql: include_str!("migrations/6_index_units.sql"),
    },
    Migration {
        version: 7,
        works_with: 2,
        sql: include_str!("migrations/7_history.sql"),
    },
];

/// Where the versions are recorded.
const HISTORY_TABLE: &str = "CREATE TABLE IF NOT EXISTS llmc.schema_history (
    version    integer PRIMARY KEY,
    works_with integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)";

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationReport {
    /// The schema before; 0 if there was none.
    pub from: i32,
    /// The schema after.
    pub to: i32,
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

/// Creates or upgrades everything.
pub(crate) async fn migrate(settings: &DatabaseSettings) -> Result<MigrationReport> {
    let migrated = timeout(MIGRATION_TIMEOUT, async {
        let client = connect(settings.migration_url()).await?;
        check_server(&client).await?;
        client
            .batch_execute(&format!(
                "BEGIN; SET LOCAL lock_timeout = '50s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"
            ))
            .await?;
        // An error leaves the transaction to the end of the connection, which undoes it.
        let from = upgrade(&client).await?;
        let created_role = match settings.admin_url {
            Some(_) => admit(&client, settings).await?,
            None => {
                // The servers will be this role: one that is refused later must not own the tables.
                check_usable(&client).await?;
                false
            }
        };
        client.batch_execute("COMMIT").await?;
        Ok(MigrationReport {
            from,
            to: found_schema(&client)
                .await?
                .map_or(0, |schema| schema.version),
            created_role,
        })
    });
    migrated.await.map_err(|_| Error::TooSlow)?
}

/// Applies what is missing; the version before.
async fn upgrade(client: &Client) -> Result<i32> {
    let found = found_schema(client).await?;
    let from = found.map_or(0, |schema| schema.version);
    if let Some(schema) = found
        && schema.version >= SCHEMA_VERSION
    {
        schema.check()?;
        return Ok(from);
    }
    if found.is_none() {
        // Only if it is not there: creating takes a right on the database that a prepared schema makes needless.
        let exists = "SELECT 1 FROM pg_namespace WHERE nspname = 'llmc'";
        if client.query_opt(exists, &[]).await?.is_none() {
            client.batch_execute("CREATE SCHEMA llmc").await?;
        }
        client.batch_execute(HISTORY_TABLE).await?;
    }
    for migration in MIGRATIONS.iter().filter(|step| step.version > from) {
        client.batch_execute(migration.sql).await?;
        client
            .execute(
                "INSERT INTO llmc.schema_history (version, works_with) VALUES ($1, $2)",
                &[&migration.version, &migration.works_with],
            )
            .await?;
    }
    Ok(from)
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
             REVOKE INSERT, UPDATE, DELETE ON llmc.schema_history FROM {name}"
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
    let exists = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                  WHERE n.nspname = 'llmc' AND c.relname = 'schema_history'";
    if client.query_opt(exists, &[]).await?.is_none() {
        return Ok(None);
    }
    let newest =
        "SELECT version, works_with FROM llmc.schema_history ORDER BY version DESC LIMIT 1";
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
        if self.version < SCHEMA_VERSION {
            return Err(Error::OldSchema {
                found: self.version,
                needed: SCHEMA_VERSION,
            });
        }
        if self.works_with > SCHEMA_VERSION {
            return Err(Error::NewSchema {
                found: self.version,
                known: SCHEMA_VERSION,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_lead_to_the_version_of_this_program() {
        let versions: Vec<i32> = MIGRATIONS.iter().map(|step| step.version).collect();
        assert_eq!(versions, (1..=SCHEMA_VERSION).collect::<Vec<_>>());
        assert!(
            MIGRATIONS
                .iter()
                .all(|step| step.works_with <= step.version)
        );
    }

    #[test]
    fn every_table_has_row_level_security_that_binds_its_owner() {
        for migration in MIGRATIONS {
            for rest in migration.sql.split("CREATE TABLE llmc.").skip(1) {
                let table = rest.split_whitespace().next().unwrap();
                for needed in [
                    format!("ALTER TABLE llmc.{table} ENABLE ROW LEVEL SECURITY"),
                    format!("ALTER TABLE llmc.{table} FORCE ROW LEVEL SECURITY"),
                    format!("CREATE POLICY tenant ON llmc.{table}"),
                ] {
                    assert!(migration.sql.contains(&needed), "{needed}");
                }
            }
        }
    }
}
