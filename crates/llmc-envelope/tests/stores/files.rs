//! What is special about handles in a file.

use std::fs;

use llmc_envelope::handles::{Draft, Error, HandleId, HandleStore, Options};

use crate::{HOUR, clock, noise, options};

const BLOCK: usize = 256 * 1024;

fn draft() -> Draft {
    Draft::new("me", "command")
}

fn all(store: &HandleStore, id: HandleId) -> Vec<u8> {
    store.read("me", id, 0, usize::MAX).unwrap().bytes
}

#[test]
fn a_ruined_file_costs_the_handles_and_nothing_else() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("handles.db");
    let open = || HandleStore::open(tmp.path(), Options::default()).unwrap();
    let id = open().put(draft(), "x").unwrap();
    for ruin in [&b"garbage"[..], &[0xff; 40_000]] {
        fs::write(&path, ruin).unwrap();
        let store = open();
        assert_eq!(store.info("me", id), Err(Error::Unknown));
        let again = store.put(draft(), "y").unwrap();
        assert_eq!(all(&store, again), b"y");
    }
    let aside = fs::read_dir(tmp.path())
        .unwrap()
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("corrupt")
        })
        .count();
    assert_eq!(aside, 2, "the first is kept, and the latest");
}

#[test]
fn damage_in_the_middle_of_a_file_is_survived() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("handles.db");
    let open = || HandleStore::open(tmp.path(), Options::default());
    let id = open()
        .unwrap()
        .put(draft(), &noise(1, 20 * BLOCK)[..])
        .unwrap();
    let mut db = fs::read(&path).unwrap();
    let len = db.len();
    db[8192..len - 8192].fill(0x55);
    fs::write(&path, db).unwrap();
    // Whichever call meets the damage says so; none of them panics, and in the end the store works again.
    let store = open().unwrap();
    let _ = store.read("me", id, 0, usize::MAX);
    let works = (0..3).any(|_| {
        store
            .put(draft(), "y")
            .is_ok_and(|id| all(&store, id) == b"y")
    });
    assert!(works);
}

#[test]
fn a_file_that_lies_is_not_believed() {
    let tmp = tempfile::tempdir().unwrap();
    let store = HandleStore::open(tmp.path(), Options::default()).unwrap();
    let id = store.put(draft(), "x\n".repeat(400_000).as_str()).unwrap();
    let forged = rusqlite::Connection::open(tmp.path().join("handles.db")).unwrap();
    for lie in [
        "UPDATE handles SET total_bytes = 4611686018427387904",
        "UPDATE handles SET total_bytes = -1",
        "UPDATE handles SET total_bytes = 800001",
        "INSERT INTO chunks VALUES (1, 10, 9223372036854775807, 9223372036854775000, 9223372036854775000)",
        "INSERT INTO chunks VALUES (1, 20, -1, -1, -1)",
        "UPDATE blocks SET data = zeroblob(10)",
        "DELETE FROM blocks WHERE n = 0",
        "UPDATE handles SET meta = '['",
    ] {
        forged.execute_batch(lie).unwrap();
        for budget in [10, 20, 30] {
            let _ = store.info("me", id);
            let _ = store.list("me");
            let _ = store.chunk("me", id, 0, budget);
            let _ = store.chunk_count("me", id, budget);
        }
        assert!(store.read("me", id, 0, usize::MAX).is_err(), "{lie}");
    }
    store.put(draft(), "still works").unwrap();
}

#[test]
fn chunk_marks_go_with_their_result() {
    let clock = clock();
    let tmp = tempfile::tempdir().unwrap();
    let store = HandleStore::open(tmp.path(), options(&clock)).unwrap();
    let text = "a b c\n".repeat(100_000);
    let id = store.put(draft(), text.as_str()).unwrap();
    assert!(store.chunk_count("me", id, 30).unwrap() > 1000);
    let grown = fs::metadata(tmp.path().join("handles.db")).unwrap().len();
    clock.advance(48 * HOUR);
    store.sweep().unwrap();
    drop(store);
    let shrunk = fs::metadata(tmp.path().join("handles.db")).unwrap().len();
    assert!(shrunk < 100_000, "{grown} -> {shrunk}");
}
