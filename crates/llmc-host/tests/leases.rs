//! Leases between processes of one machine, and between machines that share a database.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and tests look at files directly"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llmc_host::Error;
use llmc_host::lease::LeaseTable;
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};
use llmc_testdb::{TestCluster, TestDatabase};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

/// Where the holders of leases are: in processes of one machine, or on machines that share a database.
struct Holders {
    state_dir: TempDir,
    database: Option<TestDatabase>,
}

impl Holders {
    /// One more holder. Machines have state directories of their own, processes of one machine share theirs.
    fn add(&self, lease: Duration) -> (TempDir, LeaseTable) {
        let own_dir = tempfile::tempdir().unwrap();
        let table = match &self.database {
            None => LeaseTable::open(self.state_dir.path(), lease).unwrap(),
            Some(database) => {
                let settings = DatabaseSettings {
                    url: DatabaseUrl::parse(&database.url()).unwrap(),
                    admin_url: None,
                    tenant: Tenant::parse("team").unwrap(),
                    max_connections: 4,
                };
                let table = LeaseTable::open(own_dir.path(), lease).unwrap();
                table.shared_in(Some(Database::new(settings)))
            }
        };
        (own_dir, table)
    }
}

/// Runs a test for processes of one machine, and for machines where there is a PostgreSQL.
fn on_both(test: impl Fn(&Holders)) {
    let run = |database| {
        test(&Holders {
            state_dir: tempfile::tempdir().unwrap(),
            database,
        });
    };
    run(None);
    if let Some(cluster) = TestCluster::shared() {
        run(Some(cluster.database()));
    }
}

fn path() -> [PathBuf; 1] {
    [PathBuf::from("/workspace/a")]
}

#[test]
fn a_lease_that_could_not_be_given_back_is_given_back_later() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let holders = Holders {
        state_dir: tempfile::tempdir().unwrap(),
        database: Some(database.clone()),
    };
    let hour = Duration::from_secs(3600);
    let (one, other) = (holders.add(hour), holders.add(hour));
    let held = one.1.acquire(&path(), "agent-1", "a").unwrap();
    cluster.sql(
        &database.name,
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''kept''; END'; \
         CREATE TRIGGER keep BEFORE DELETE ON llmc.leases FOR EACH ROW EXECUTE FUNCTION keep()",
    );
    drop(held);
    let busy = other.1.acquire(&path(), "agent-2", "a");
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    cluster.sql(&database.name, "DROP TRIGGER keep ON llmc.leases");
    let deadline = Instant::now() + LONG;
    while let Err(error) = other.1.acquire(&path(), "agent-2", "a") {
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        assert!(Instant::now() < deadline, "it is still busy");
    }
}

#[test]
fn a_file_that_one_holds_is_busy_for_another_and_free_afterwards() {
    on_both(|holders| {
        let (one, other) = (holders.add(LONG), holders.add(LONG));
        let held = one.1.acquire(&path(), "agent-1", "a").unwrap();
        let busy = other.1.acquire(&path(), "agent-2", "a");
        assert!(
            matches!(&busy, Err(Error::Busy { holder, .. }) if holder == "agent-1"),
            "{busy:?}"
        );
        held.commit(|| Ok(())).unwrap();
        drop(held);
        other.1.acquire(&path(), "agent-2", "a").unwrap();
    });
}

#[test]
fn a_change_that_is_being_made_keeps_others_out_even_when_its_lease_is_over() {
    on_both(|holders| {
        let (slow, other) = (holders.add(Duration::ZERO), holders.add(LONG));
        let held = slow.1.acquire(&path(), "slow", "a").unwrap();
        let change = || {
            let busy = other.1.acquire(&path(), "other", "a");
            assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
            Ok(())
        };
        held.commit(change).unwrap();
        other.1.acquire(&path(), "other", "a").unwrap();
    });
}

#[test]
fn a_late_holder_cannot_commit_over_its_successor() {
    on_both(|holders| {
        let (slow, quick) = (holders.add(Duration::ZERO), holders.add(LONG));
        let late = slow.1.acquire(&path(), "slow", "a").unwrap();
        let successor = quick.1.acquire(&path(), "quick", "a").unwrap();
        let refused = late.commit(|| -> llmc_host::Result<()> { panic!("must not run") });
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        drop(late);
        successor.commit(|| Ok(())).unwrap();
    });
}

#[test]
fn a_holder_that_never_gives_its_lease_back_loses_it_after_its_time() {
    on_both(|holders| {
        let (stuck, next) = (holders.add(Duration::from_millis(1500)), holders.add(LONG));
        std::mem::forget(stuck.1.acquire(&path(), "stuck", "a").unwrap());
        let first = next.1.acquire(&path(), "next", "a");
        assert!(matches!(first, Err(Error::Busy { .. })), "{first:?}");
        let deadline = Instant::now() + LONG;
        while next.1.acquire(&path(), "next", "a").is_err() {
            assert!(Instant::now() < deadline);
        }
    });
}

#[test]
fn no_change_of_a_file_that_all_change_is_lost() {
    on_both(|holders| {
        let shared = tempfile::tempdir().unwrap();
        let file = shared.path().join("counter");
        std::fs::write(&file, "0").unwrap();
        let machines = [holders.add(LONG), holders.add(LONG)];
        std::thread::scope(|scope| {
            for (_, table) in machines.iter().chain(&machines) {
                let file = &file;
                scope.spawn(move || count_up(table, file, 20));
            }
        });
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "80");
    });
}

fn count_up(table: &LeaseTable, file: &Path, times: usize) {
    let mut done = 0;
    while done < times {
        let Ok(lease) = table.acquire(&[file.to_owned()], "agent", "counter") else {
            continue;
        };
        let count: u64 = std::fs::read_to_string(file).unwrap().parse().unwrap();
        let write = || {
            std::fs::write(file, (count + 1).to_string()).unwrap();
            Ok(())
        };
        lease.commit(write).unwrap();
        done += 1;
    }
}

#[test]
fn without_the_database_nothing_is_changed() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let holders = Holders {
        state_dir: tempfile::tempdir().unwrap(),
        database: Some(cluster.database()),
    };
    let (_dir, table) = holders.add(LONG);
    let held = table.acquire(&path(), "agent", "a").unwrap();
    cluster.stop("QUIT");
    let refused = held.commit(|| -> llmc_host::Result<()> { panic!("must not run") });
    assert!(
        matches!(refused, Err(Error::NoSharedLease { .. })),
        "{refused:?}"
    );
    drop(held);
    let refused = table.acquire(&[PathBuf::from("/workspace/b")], "agent", "b");
    assert!(
        matches!(refused, Err(Error::NoSharedLease { .. })),
        "{refused:?}"
    );
}
