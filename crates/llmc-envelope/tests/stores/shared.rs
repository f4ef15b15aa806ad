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

#[test]
fn a_machine_that_joins_brings_its_handles() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let ours = settings(&cluster.database().url());
    let dir = tempfile::tempdir().unwrap();
    let clock = crate::clock();
    let own = HandleStore::open(dir.path(), crate::options(&clock)).unwrap();
    let shared = HandleStore::shared(Database::new(ours), crate::options(&clock));
    let large = noise(7, 700_000);
    let small = own.put(draft().with("path", "a\0b"), "small").unwrap();
    let empty = own.put(Draft::new("other\0", "te"), "").unwrap();
    let long = own.put(draft().living(crate::HOUR), &large[..]).unwrap();
    let brief = own.put(draft().living(crate::HOUR / 2), "brief").unwrap();
    clock.advance(crate::HOUR / 2);

    let done = own.copy_to(&shared).unwrap();
    assert_eq!((done.copied, done.known, done.left_out), (3, 0, 0));
    assert_eq!(done.bytes, 5 + 700_000);
    for (owner, id) in [("me", small), ("other\0", empty), ("me", long)] {
        let (there, here) = (
            shared.info(owner, id).unwrap(),
            own.info(owner, id).unwrap(),
        );
        assert_eq!((there.kind, there.meta), (here.kind, here.meta));
        assert_eq!(there.expires, here.expires);
        assert_eq!(
            shared.read(owner, id, 0, usize::MAX).unwrap().bytes,
            own.read(owner, id, 0, usize::MAX).unwrap().bytes
        );
    }
    assert_eq!(shared.info("me", brief), Err(Error::Unknown), "expired");
    assert_eq!(shared.info("me", empty), Err(Error::Unknown), "not theirs");

    // Again, with one that is new.
    own.put(draft(), "later").unwrap();
    let again = own.copy_to(&shared).unwrap();
    assert_eq!((again.copied, again.known), (1, 3));
    // A store that is too small for one takes the others.
    let tiny = Options {
        max_bytes: 100_000,
        ..crate::options(&clock)
    };
    let tiny = HandleStore::shared(Database::new(settings(&cluster.database().url())), tiny);
    let done = own.copy_to(&tiny).unwrap();
    assert_eq!((done.copied, done.left_out), (3, 1));
    assert_eq!(tiny.info("me", long), Err(Error::Unknown));
}

#[test]
fn a_copy_that_was_cut_off_is_finished_by_the_next() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let ours = settings(&cluster.database().url());
    let dir = tempfile::tempdir().unwrap();
    let own = HandleStore::open(dir.path(), Options::default()).unwrap();
    let ids: Vec<HandleId> = (0..4)
        .map(|seed| own.put(draft(), &noise(seed, 600_000)[..]).unwrap())
        .collect();
    // The state after a copy that ended in the middle of its third result.
    open(&ours).usage().unwrap();
    let half = ids[2].to_string();
    cluster.sql(
        "db0",
        &format!(
            "INSERT INTO llmc.handles (tenant, id, owner, kind, meta, pending, kept_file, total_bytes, stored_bytes, created_ms, expires_ms) \
             VALUES ('{}', '{half}', 'me', 'command', '{{}}', true, false, 600000, 1, 0, 9999999999999)",
            ours.tenant
        ),
    );
    let shared = open(&ours);
    assert_eq!(own.copy_to(&shared).unwrap().copied, 4);
    for (seed, id) in (0..).zip(ids) {
        let read = shared.read("me", id, 0, usize::MAX).unwrap();
        assert_eq!(read.bytes, noise(seed, 600_000));
    }
    cluster.stop("QUIT");
    assert!(matches!(
        own.copy_to(&shared),
        Err(Error::Unavailable { .. })
    ));
}
