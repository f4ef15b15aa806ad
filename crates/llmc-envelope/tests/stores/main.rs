//! The handle store as its users see it: across restarts, processes, owners, time and damage.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files and start programs directly"
)]
#![allow(clippy::unwrap_used)]

mod files;
mod handles;
mod processes;
mod shared;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::Clock;
use llmc_envelope::handles::{HandleStore, Options};
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};
use llmc_testdb::{TestCluster, TestDatabase};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

fn clock() -> Clock {
    Clock::manual(Timestamp::from_second(1_800_000_000).unwrap())
}

fn options(clock: &Clock) -> Options {
    Options {
        clock: clock.clone(),
        ..Options::default()
    }
}

/// Where the rows of one test are.
enum Engine {
    Sqlite(TempDir),
    Postgres(Box<DatabaseSettings>),
}

impl Engine {
    fn sqlite() -> Engine {
        Engine::Sqlite(tempfile::tempdir().unwrap())
    }

    /// A tenant of its own in one database; `None` where there is no PostgreSQL.
    fn postgres() -> Option<Engine> {
        static DATABASE: OnceLock<Option<TestDatabase>> = OnceLock::new();
        let database = DATABASE.get_or_init(|| Some(TestCluster::shared()?.database()));
        Some(Engine::Postgres(Box::new(settings(
            &database.as_ref()?.url(),
        ))))
    }

    /// The store as one more server opens it.
    fn open(&self, options: Options) -> HandleStore {
        match self {
            Engine::Sqlite(dir) => HandleStore::open(dir.path(), options).unwrap(),
            Engine::Postgres(settings) => {
                HandleStore::shared(Database::new((**settings).clone()), options)
            }
        }
    }
}

/// A database as a tenant that no other test has.
fn settings(url: &str) -> DatabaseSettings {
    static TENANTS: AtomicU32 = AtomicU32::new(0);
    let tenant = format!("tenant{}", TENANTS.fetch_add(1, Ordering::Relaxed));
    DatabaseSettings {
        url: DatabaseUrl::parse(url).unwrap(),
        admin_url: None,
        tenant: Tenant::parse(&tenant).unwrap(),
        max_connections: 4,
    }
}

/// Runs each of these functions on a SQLite file and on PostgreSQL.
macro_rules! on_both_engines {
    ($($name:ident)+) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::Engine::sqlite());
            })+
        }

        mod postgres {
            $(#[test]
            fn $name() {
                if let Some(engine) = crate::Engine::postgres() {
                    super::$name(&engine);
                }
            })+
        }
    };
}
use on_both_engines;

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
