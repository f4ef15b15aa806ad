//! What `llmc doctor` says about the database.

use std::time::{Duration, Instant};

use crate::database::DatabaseSettings;
use crate::schema::{check_usable, connect, schema_version};
use crate::{Error, Result};

/// A database that can be used.
#[derive(Debug, Clone)]
pub struct DatabaseReport {
    /// `PostgreSQL 15.8`.
    pub server: String,
    pub role: String,
    /// The schema; `None` if the first server is still to create it.
    pub schema: Option<i32>,
    pub is_encrypted: bool,
    /// How long the shortest statement took.
    pub round_trip: Duration,
}

pub(crate) async fn check(settings: &DatabaseSettings) -> Result<DatabaseReport> {
    let client = connect(&settings.url).await?;
    let usable = check_usable(&client).await;
    let is_new = usable == Err(Error::NoSchema);
    if is_new {
        // The first server creates it, if it may.
        check_may_create(settings).await?;
    } else {
        usable?;
    }
    let facts = client
        .query_one(
            "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1), current_user::text, \
             coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)",
            &[],
        )
        .await?;
    let started = Instant::now();
    client.batch_execute("SELECT").await?;
    let round_trip = started.elapsed();
    Ok(DatabaseReport {
        server: facts.try_get(0)?,
        role: facts.try_get(1)?,
        schema: match is_new {
            true => None,
            false => schema_version(&client).await?,
        },
        is_encrypted: facts.try_get(2)?,
        round_trip,
    })
}

async fn check_may_create(settings: &DatabaseSettings) -> Result<()> {
    let client = connect(settings.creation_url()).await?;
    let may = "SELECT has_database_privilege(current_database(), 'CREATE')";
    match client.query_one(may, &[]).await?.try_get(0)? {
        true => Ok(()),
        false => Err(Error::NoSchema),
    }
}
