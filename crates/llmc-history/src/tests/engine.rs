//! The engine that the tests of this module run on: a SQLite file, or PostgreSQL for the second copy of the module.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use llmc_host::Workspace;
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};
use llmc_testdb::{TestCluster, TestDatabase};

use super::TestHistory;
use crate::history::{History, HistorySettings};
use crate::store::marker::workspace_key;

pub(super) const IS_SHARED: bool = is_shared(module_path!().as_bytes());

/// The address for a process that a test starts.
const URL: &str = "LLMC_HISTORY_TEST_URL";

const fn is_shared(module: &[u8]) -> bool {
    // `llmc_history::tests_on_postgres::engine`, and not `llmc_history::tests::engine`.
    module.len() > "llmc_history::tests::engine".len()
}

/// The database of this test program; `None` where there is no PostgreSQL.
fn database() -> Option<&'static (&'static TestCluster, TestDatabase)> {
    static SHARED: OnceLock<Option<(&TestCluster, TestDatabase)>> = OnceLock::new();
    let start = || TestCluster::shared().map(|cluster| (cluster, cluster.database()));
    SHARED.get_or_init(start).as_ref()
}

/// The connections of this process: servers in one test share them.
fn connections() -> Option<Database> {
    static SHARED: OnceLock<Option<Database>> = OnceLock::new();
    let connect = || {
        let url = match std::env::var(URL) {
            Ok(url) => url,
            Err(_) => database()?.1.url(),
        };
        Some(Database::new(DatabaseSettings {
            url: DatabaseUrl::parse(&url).unwrap(),
            admin_url: None,
            tenant: Tenant::parse("tests").unwrap(),
            max_connections: 20,
        }))
    };
    SHARED.get_or_init(connect).clone()
}

/// A history; on SQLite as well where there is no PostgreSQL, which under `CI=true` is a failure.
pub(super) fn open(state: &Path, files: Workspace, settings: HistorySettings) -> History {
    match connections().filter(|_| IS_SHARED) {
        Some(database) => {
            let history = History::open_shared(database, files, settings);
            // As the background thread of a server does.
            history.0.take_over().unwrap();
            history
        }
        None => History::open(state, files, settings).unwrap(),
    }
}

pub(super) fn child_environment() -> Vec<(&'static str, String)> {
    match database().filter(|_| IS_SHARED) {
        Some((_, database)) => vec![(URL, database.url())],
        None => Vec::new(),
    }
}

pub(super) fn end_as_if_killed(test: &TestHistory) {
    if IS_SHARED {
        age_rows(&test.root);
        return;
    }
    // Its locks are free, its rows stay.
    let name = test.history.0.store.server_name();
    std::fs::remove_file(test.path(&format!(".llmc/history-servers/{name}"))).unwrap();
}

/// Runs a statement as the superuser; `KEY` and `WORKSPACE` stand for conditions on the workspace's row and on others.
pub(super) fn sql(root: &Path, statement: &str) {
    let Some((cluster, database)) = database().filter(|_| IS_SHARED) else {
        return;
    };
    let key = format!("key = '{}'", workspace_key(root).unwrap());
    let workspace = format!("workspace = (SELECT number FROM llmc.history_workspaces WHERE {key})");
    let statement = statement
        .replace("WORKSPACE", &workspace)
        .replace("KEY", &key);
    cluster.sql(&database.name, &statement);
}

/// Makes rows of running calls and undos in a workspace those of servers that have not been heard of for a minute.
pub(super) fn age_rows(root: &Path) {
    let Some((cluster, database)) = database().filter(|_| IS_SHARED) else {
        return;
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_settled = "SELECT pg_postmaster_start_time() < clock_timestamp() - interval '6 seconds'";
    while cluster.sql(&database.name, is_settled) != "t" {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(100));
    }
    // Other names, so that no heartbeat of this very process renews them.
    for change in [
        "history_active SET call = call || ' killed'",
        "history_plans SET server = 'killed'",
    ] {
        let aged = format!(
            "UPDATE llmc.{change}, seen_at = seen_at - interval '1 minute' WHERE WORKSPACE"
        );
        sql(root, &aged);
    }
}
