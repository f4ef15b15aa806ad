//! What is special about handles that servers share: tenants, and a database that goes away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use llmc_envelope::handles::{Draft, Error, HandleId, HandleStore, Options};
use llmc_store::{Database, DatabaseSettings};
use llmc_testdb::TestCluster;

use crate::{noise, settings};

/// How often a server that was refused tries again.
const PACE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(60);

fn draft() -> Draft {
    Draft::new("me", "command")
}

fn open(settings: &DatabaseSettings) -> HandleStore {
    HandleStore::shared(Database::new(settings.clone()), Options::default())
}

#[test]
fn a_tenant_learns_nothing_of_another() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let (ours, theirs) = (settings(&database.url()), settings(&database.url()));
    let (own, other) = (open(&ours), open(&theirs));
    let id = own.put(draft(), &noise(1, 300_000)[..]).unwrap();
    own.chunk_count("me", id, 100).unwrap();
    assert_eq!(other.info("me", id), Err(Error::Unknown));
    assert_eq!(other.read("me", id, 0, 10), Err(Error::Unknown));
    assert_eq!(other.chunk("me", id, 0, 100), Err(Error::Unknown));
    assert!(other.list("me").unwrap().is_empty());
    assert_eq!(other.usage().unwrap(), Default::default());
    // A store that is full for one is not full for the other.
    let small = Options {
        max_bytes: 10_000,
        ..Options::default()
    };
    let small = HandleStore::shared(Database::new(theirs), small);
    for seed in 0..5 {
        small.put(draft(), &noise(seed, 4_000)[..]).unwrap();
    }
    small.sweep().unwrap();
    assert_eq!(small.usage().unwrap().count, 2);
    assert_eq!(own.usage().unwrap().count, 1);
    assert_eq!(
        own.read("me", id, 0, usize::MAX).unwrap().bytes.len(),
        300_000
    );
    // The owner of the tables is bound as well, with any tenant and with none.
    for (tenant, rows) in [("", 0), ("nobody", 0), (ours.tenant.as_str(), 1)] {
        let count = format!(
            "SET ROLE {}; SET llmc.tenant = '{tenant}'; SELECT count(*) FROM llmc.handles",
            database.role
        );
        assert_eq!(
            cluster.sql(&database.name, &count),
            rows.to_string(),
            "{tenant}"
        );
    }
}

/// Servers store results while the database is stopped and started: what they were told is stored can be read, what was
/// not stored says why, and nothing is started again.
#[test]
fn a_database_that_goes_away_loses_nothing_it_acknowledged() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let settings = settings(&database.url());
    let stores = [open(&settings), open(&settings)];
    let early = stores[0].put(draft(), "early").unwrap();
    let kept: Mutex<Vec<(HandleId, u64)>> = Mutex::default();
    let causes: Mutex<Vec<String>> = Mutex::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (report, reports) = mpsc::channel();
        for (thread, store) in stores.iter().enumerate() {
            let (report, kept, causes, done) = (report.clone(), &kept, &causes, &done);
            scope.spawn(move || {
                let mut seed = thread as u64;
                while !done.load(Ordering::Relaxed) {
                    seed += 2;
                    let stored = store.put(draft(), &noise(seed, 30_000)[..]);
                    let _ = report.send((thread, stored.is_ok()));
                    match stored {
                        Ok(id) => kept.lock().unwrap().push((id, seed)),
                        Err(Error::Unavailable { cause }) => {
                            causes.lock().unwrap().push(cause);
                            std::thread::sleep(PACE);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        // Waits until each server reports this once more.
        let both = |wanted: bool| {
            while reports.try_recv().is_ok() {}
            let mut seen = [false; 2];
            while seen != [true; 2] {
                let (thread, stored) = reports.recv_timeout(TIMEOUT).unwrap();
                seen[thread] |= stored == wanted;
            }
        };
        for signal in ["QUIT", "KILL"] {
            both(true);
            cluster.stop(signal);
            both(false);
            let read = stores[0].read("me", early, 0, 10);
            assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
            cluster.run();
            both(true);
        }
        done.store(true, Ordering::Relaxed);
    });
    let kept = kept.into_inner().unwrap();
    assert!(kept.len() > 4);
    for (id, seed) in kept {
        let page = stores[0].read("me", id, 0, usize::MAX).unwrap();
        assert!(page.bytes == noise(seed, 30_000), "{id}");
    }
    for cause in causes.into_inner().unwrap() {
        let is_told = ["cannot be reached", "was lost", "did not answer in time"]
            .iter()
            .any(|told| cause.contains(told));
        assert!(is_told, "{cause}");
    }
}
