use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use llmc_envelope::handles::{
    Draft, Error, HandleId, HandleStore, Kept, Options, Payload, SourceStamp, Swept,
};
use llmc_tokens::fits;
use proptest::prelude::*;

use crate::{HOUR, clock, in_memory, noise, options};

const BLOCK: usize = 256 * 1024;

fn draft() -> Draft {
    Draft::new("me", "command")
}

fn stamp() -> SourceStamp {
    SourceStamp {
        path: "src/big.log".into(),
        size: 9_000_000,
        mtime_ns: 1_700_000_000_123_456_789,
        sha256: "ab".repeat(32),
    }
}

fn all(store: &HandleStore, id: HandleId) -> Vec<u8> {
    store.read("me", id, 0, usize::MAX).unwrap().bytes
}

#[test]
fn a_result_comes_back_with_all_that_was_said_about_it() {
    let clock = clock();
    let store = HandleStore::in_memory(options(&clock)).unwrap();
    let draft = Draft::new("me", "file_content")
        .with("path", "src/a.rs")
        .with("root", 0)
        .from_source(stamp());
    let id = store.put(draft.clone(), "fn main() {}\n").unwrap();
    let info = store.info("me", id).unwrap();
    assert_eq!(info.id, id);
    assert_eq!(info.kind, "file_content");
    assert_eq!(info.meta, draft.meta);
    assert_eq!(info.total_bytes, 13);
    assert_eq!(info.created, clock.now());
    assert_eq!(
        info.expires.as_second() - info.created.as_second(),
        24 * 3600
    );
    assert_eq!(info.source, Some(stamp()));
    assert_eq!(info.kept, Kept::Bytes);
    assert_eq!(HandleId::parse(&id.to_string()), Some(id));
}

#[test]
fn a_large_file_is_kept_by_its_stamp() {
    let store = in_memory();
    let id = store.put(draft(), stamp()).unwrap();
    let info = store.info("me", id).unwrap();
    assert_eq!((info.kept, info.total_bytes), (Kept::File, 9_000_000));
    assert_eq!(info.source, Some(stamp()));
    let refused = Err(Error::StampOnly(Box::new(stamp())));
    assert_eq!(store.read("me", id, 0, 10), refused);
    assert_eq!(store.chunks("me", id, 10).err(), refused.err());
}

#[test]
fn paths_that_are_no_text_survive() {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9/\xff")).to_owned();
    let store = in_memory();
    let odd = SourceStamp { path, ..stamp() };
    let id = store.put(draft(), Payload::File(odd.clone())).unwrap();
    assert_eq!(store.info("me", id).unwrap().source, Some(odd));
}

#[test]
fn for_anybody_else_it_does_not_exist() {
    let store = in_memory();
    let id = store.put(draft(), "secret").unwrap();
    let never = HandleId::parse("res_01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
    for (owner, id) in [
        ("you", id),
        ("", id),
        ("me%", id),
        ("ME", id),
        ("me", never),
    ] {
        assert_eq!(store.info(owner, id), Err(Error::Unknown), "{owner}");
        assert_eq!(store.read(owner, id, 0, 1), Err(Error::Unknown));
        assert_eq!(store.read(owner, id, 99, 1), Err(Error::Unknown));
        assert_eq!(store.chunk(owner, id, 0, 10), Err(Error::Unknown));
        assert_eq!(store.chunks(owner, id, 10), Err(Error::Unknown));
    }
    assert!(store.list("you").unwrap().is_empty());
    assert_eq!(store.list("me").unwrap().len(), 1);
}

#[test]
fn pages_know_where_the_end_is() {
    let store = in_memory();
    let bytes = noise(1, 3 * BLOCK + 17);
    let id = store.put(draft(), &bytes[..]).unwrap();
    let total = bytes.len() as u64;
    for (offset, limit) in [
        (0, 10),
        (BLOCK - 1, 2),
        (BLOCK, BLOCK),
        (2 * BLOCK - 5, BLOCK + 20),
        (3 * BLOCK, 17),
        (0, bytes.len()),
        (5, 0),
    ] {
        let page = store.read("me", id, offset as u64, limit).unwrap();
        assert_eq!(page.bytes, &bytes[offset..offset + limit]);
        assert_eq!(page.eof, offset + limit == bytes.len());
        assert_eq!(page.total_bytes, total);
    }
    let end = store.read("me", id, total, 5).unwrap();
    assert!(end.eof && end.bytes.is_empty());
    assert_eq!(
        store.read("me", id, total + 1, 5),
        Err(Error::BadRange {
            unit: "byte",
            asked: total + 1,
            count: total
        })
    );
    let empty = store.put(draft(), "").unwrap();
    assert!(store.read("me", empty, 0, 5).unwrap().eof);
    assert_eq!(store.chunk("me", empty, 0, 5).unwrap().chunks, Some(1));
}

#[test]
fn a_stream_is_seen_only_when_it_is_finished() {
    let store = in_memory();
    let mut bytes = Vec::new();
    let mut writer = store.writer(draft()).unwrap();
    let id = writer.id();
    for n in 0..40 {
        let piece = noise(n, 33_333);
        writer.write_all(&piece).unwrap();
        bytes.extend(piece);
        assert_eq!(store.info("me", id), Err(Error::Unknown));
    }
    assert!(
        store.usage().unwrap().bytes > 0,
        "blocks go out as they fill"
    );
    assert_eq!(store.usage().unwrap().count, 0);
    writer.meta_mut().insert("exit".into(), 3.into());
    assert_eq!(writer.written(), bytes.len() as u64);
    assert_eq!(writer.finish(), Ok(id));
    assert_eq!(all(&store, id), bytes);
    assert_eq!(store.info("me", id).unwrap().meta["exit"], 3);
}

#[test]
fn an_unfinished_stream_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = HandleStore::open(tmp.path(), options(&clock)).unwrap();
    let mut writer = store.writer(draft()).unwrap();
    writer.write_all(&noise(1, 3 * BLOCK)).unwrap();
    assert!(store.usage().unwrap().bytes > 0);
    drop(writer);
    assert_eq!(store.usage().unwrap(), Default::default());

    // As if killed: nothing runs, the rows stay, and the next start after the lease removes them.
    let mut writer = store.writer(draft()).unwrap();
    writer.write_all(&noise(1, 3 * BLOCK)).unwrap();
    std::mem::forget(writer);
    let reopen = || HandleStore::open(tmp.path(), options(&clock)).unwrap();
    clock.advance(HOUR / 2);
    assert!(reopen().usage().unwrap().bytes > 0, "might still be alive");
    clock.advance(HOUR);
    assert_eq!(reopen().usage().unwrap(), Default::default());
}

#[test]
fn a_slow_stream_keeps_its_lease_and_a_stalled_one_fails() {
    let clock = clock();
    let store = HandleStore::in_memory(options(&clock)).unwrap();
    let mut writer = store.writer(draft()).unwrap();
    for n in 0..4 {
        writer.write_all(&noise(n, BLOCK + 1)).unwrap();
        clock.advance(HOUR / 2);
        store.sweep().unwrap();
    }
    clock.advance(2 * HOUR);
    store.sweep().unwrap();
    assert!(matches!(writer.finish(), Err(Error::Unavailable { .. })));
    assert_eq!(store.usage().unwrap(), Default::default());
}

#[test]
fn time_runs_out_to_the_millisecond_without_a_sweep() {
    let clock = clock();
    let store = HandleStore::in_memory(options(&clock)).unwrap();
    let day = store.put(draft(), "a").unwrap();
    let short = store.put(draft().living(HOUR), "b").unwrap();
    clock.advance(HOUR - std::time::Duration::from_millis(1));
    assert_eq!(all(&store, short), b"b");
    clock.advance(std::time::Duration::from_millis(1));
    assert_eq!(store.info("me", short), Err(Error::Unknown));
    assert_eq!(store.list("me").unwrap().len(), 1);
    assert_eq!(store.usage().unwrap().count, 1);
    clock.advance(23 * HOUR);
    assert_eq!(store.read("me", day, 0, 1), Err(Error::Unknown));
    assert_eq!(
        store.sweep().unwrap(),
        Swept {
            expired: 2,
            evicted: 0
        }
    );
    assert_eq!(store.usage().unwrap(), Default::default());
}

#[test]
fn the_oldest_make_room() {
    let clock = clock();
    let store = HandleStore::in_memory(Options {
        max_bytes: 100_000,
        ..options(&clock)
    })
    .unwrap();
    let ids: Vec<_> = (0..10)
        .map(|n| {
            clock.advance(HOUR / 100);
            store.put(draft(), &noise(n, 30_000)[..]).unwrap()
        })
        .collect();
    let left: Vec<_> = store.list("me").unwrap().iter().map(|i| i.id).collect();
    assert_eq!(left, [ids[9], ids[8], ids[7]]);
    assert!(store.usage().unwrap().bytes <= 100_000);
    for id in &ids[7..] {
        assert_eq!(all(&store, *id).len(), 30_000);
    }
    // What compresses well takes little: the cap counts what is stored.
    let id = store.put(draft(), "x".repeat(1_000_000).as_str()).unwrap();
    assert_eq!(store.list("me").unwrap().len(), 4);
    assert_eq!(all(&store, id).len(), 1_000_000);
}

#[test]
fn one_result_above_the_cap_is_refused_and_removes_no_other() {
    let store = HandleStore::in_memory(Options {
        max_bytes: BLOCK as u64 * 3,
        ..Options::default()
    })
    .unwrap();
    let kept = store.put(draft(), "kept").unwrap();
    let before = store.usage().unwrap();
    let big = noise(1, 4 * BLOCK);
    assert!(matches!(
        store.put(draft(), &big[..]),
        Err(Error::TooLarge { .. })
    ));
    assert_eq!(all(&store, kept), b"kept");
    let mut writer = store.writer(draft()).unwrap();
    let failed = writer.write_all(&noise(2, 8 * BLOCK)).unwrap_err();
    assert!(
        failed.to_string().contains("handle store holds"),
        "{failed}"
    );
    assert!(matches!(writer.finish(), Err(Error::TooLarge { .. })));
    assert_eq!(store.usage().unwrap(), before);
}

#[test]
fn handles_outlive_the_store_object() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("state/te_handles");
    let bytes = noise(7, BLOCK + 5);
    let open = || HandleStore::open(&dir, Options::default()).unwrap();
    let store = open();
    let id = store.put(draft().with("path", "x"), &bytes[..]).unwrap();
    let spans = store.chunks("me", id, 50).unwrap();
    drop(store);
    let store = open();
    assert_eq!(all(&store, id), bytes);
    assert_eq!(store.chunks("me", id, 50).unwrap(), spans);
    assert_eq!(store.info("me", id).unwrap().meta["path"], "x");
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
fn threads_share_one_store() {
    let tmp = tempfile::tempdir().unwrap();
    let store = HandleStore::open(tmp.path(), Options::default()).unwrap();
    let other = HandleStore::open(tmp.path(), Options::default()).unwrap();
    let stores = [store, other];
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4usize)
            .map(|t| {
                let store = stores[t % 2].clone();
                scope.spawn(move || {
                    (0..15)
                        .map(|n| {
                            let bytes = noise((t * 100 + n) as u64, 1000 + n * 20_000);
                            let mut writer = store.writer(draft()).unwrap();
                            writer.write_all(&bytes).unwrap();
                            (writer.finish().unwrap(), bytes)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    assert_eq!(made.len(), 60);
    for (id, bytes) in made {
        assert_eq!(all(&stores[0], id), bytes);
    }
}

#[test]
fn chunks_are_found_as_far_as_they_are_asked_for() {
    let store = in_memory();
    let text: String = (0..20_000)
        .map(|n| format!("line {n} of the text\n"))
        .collect();
    let id = store.put(draft(), text.as_str()).unwrap();
    let third = store.chunk("me", id, 3, 100).unwrap();
    assert_eq!(third.chunks, None, "the end has not been seen");
    let count = store.chunk_count("me", id, 100).unwrap();
    assert_eq!(store.chunk("me", id, 3, 100).unwrap().chunks, Some(count));
    let last = store.chunk("me", id, count - 1, 100).unwrap();
    assert!(text.as_bytes().ends_with(&last.bytes));
    assert_eq!(
        store.chunk("me", id, count, 100),
        Err(Error::BadRange {
            unit: "chunk",
            asked: count,
            count
        })
    );
    assert_eq!(store.chunk("me", id, 3, 100).unwrap().bytes, third.bytes);
    let other = store.chunk("me", id, 0, 1_000_000).unwrap();
    assert_eq!(
        (other.bytes.as_slice(), other.chunks),
        (text.as_bytes(), Some(1))
    );
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

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec("[a-zé ]{0,30}\r?\n?", 0..60).prop_map(|l| l.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..600),
        (any::<u64>(), 0usize..3 * BLOCK).prop_map(|(seed, len)| noise(seed, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_join_to_the_bytes(bytes in payload(), step in 1usize..200_000) {
        let store = shared();
        let id = store.put(draft(), &bytes[..]).unwrap();
        let mut joined = Vec::new();
        let mut offset = 0;
        loop {
            let page = store.read("me", id, offset, step.max(bytes.len() / 20)).unwrap();
            prop_assert_eq!(page.offset, offset);
            offset += page.bytes.len() as u64;
            joined.extend(page.bytes);
            if page.eof {
                break;
            }
        }
        prop_assert!(joined == bytes);
    }

    #[test]
    fn chunks_join_to_the_bytes(
        lines in prop::collection::vec("[a-zé ]{0,30}\r?\n?", 0..200),
        tail in prop::collection::vec(any::<u8>(), 0..300),
        budget in 4usize..200,
    ) {
        let bytes = [lines.concat().into_bytes(), tail].concat();
        let store = shared();
        let id = store.put(draft(), &bytes[..]).unwrap();
        let mut joined = Vec::new();
        for (n, span) in store.chunks("me", id, budget).unwrap().iter().enumerate() {
            let chunk = store.chunk("me", id, n as u64, budget).unwrap();
            prop_assert_eq!(&chunk.span, span);
            prop_assert!(fits(&String::from_utf8_lossy(&chunk.bytes), budget));
            joined.extend(chunk.bytes);
        }
        prop_assert!(joined == bytes);
    }
}

fn shared() -> Arc<HandleStore> {
    thread_local!(static STORE: Arc<HandleStore> = Arc::new(in_memory()));
    STORE.with(Arc::clone)
}
