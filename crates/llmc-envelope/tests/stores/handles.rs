//! What holds for handles on every engine.

use std::io::Write;
use std::path::Path;

use llmc_envelope::handles::{
    Draft, Error, HandleId, HandleStore, Kept, Options, Payload, SourceStamp, Swept,
};
use llmc_tokens::fits;
use proptest::prelude::*;

use crate::{Engine, HOUR, clock, noise, on_both_engines, options};

on_both_engines! {
    a_result_comes_back_with_all_that_was_said_about_it
    a_large_file_is_kept_by_its_stamp
    paths_that_are_no_text_survive
    for_anybody_else_it_does_not_exist
    pages_know_where_the_end_is
    a_stream_is_seen_only_when_it_is_finished
    an_unfinished_stream_leaves_nothing
    a_slow_stream_keeps_its_lease_and_a_stalled_one_fails
    time_runs_out_to_the_millisecond_without_a_sweep
    the_oldest_make_room
    one_result_above_the_cap_is_refused_and_removes_no_other
    handles_outlive_the_store_object
    threads_share_one_store
    chunks_are_found_as_far_as_they_are_asked_for
    hostile_texts_come_back_as_they_were
    what_one_server_stores_another_reads
    pages_join_to_the_bytes
    chunks_join_to_the_bytes
}

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

fn a_result_comes_back_with_all_that_was_said_about_it(engine: &Engine) {
    let clock = clock();
    let store = engine.open(options(&clock));
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

fn a_large_file_is_kept_by_its_stamp(engine: &Engine) {
    let store = engine.open(Options::default());
    let id = store.put(draft(), stamp()).unwrap();
    let info = store.info("me", id).unwrap();
    assert_eq!((info.kept, info.total_bytes), (Kept::File, 9_000_000));
    assert_eq!(info.source, Some(stamp()));
    let refused = Err(Error::StampOnly(Box::new(stamp())));
    assert_eq!(store.read("me", id, 0, 10), refused);
    assert_eq!(store.chunks("me", id, 10).err(), refused.err());
}

fn paths_that_are_no_text_survive(engine: &Engine) {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9/\xff")).to_owned();
    let store = engine.open(Options::default());
    let odd = SourceStamp { path, ..stamp() };
    let id = store.put(draft(), Payload::File(odd.clone())).unwrap();
    assert_eq!(store.info("me", id).unwrap().source, Some(odd));
}

fn for_anybody_else_it_does_not_exist(engine: &Engine) {
    let store = engine.open(Options::default());
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

fn pages_know_where_the_end_is(engine: &Engine) {
    let store = engine.open(Options::default());
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

fn a_stream_is_seen_only_when_it_is_finished(engine: &Engine) {
    let store = engine.open(Options::default());
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
    assert_eq!(writer.written(), bytes.len() as u64);
    assert_eq!(writer.finish(), Ok(id));
    assert_eq!(all(&store, id), bytes);
}

fn an_unfinished_stream_leaves_nothing(engine: &Engine) {
    let clock = clock();
    let store = engine.open(options(&clock));
    let mut writer = store.writer(draft()).unwrap();
    writer.write_all(&noise(1, 3 * BLOCK)).unwrap();
    assert!(store.usage().unwrap().bytes > 0);
    drop(writer);
    assert_eq!(store.usage().unwrap(), Default::default());

    // As if killed: nothing runs, the rows stay, and the first sweep after the lease removes them.
    let mut writer = store.writer(draft()).unwrap();
    writer.write_all(&noise(1, 3 * BLOCK)).unwrap();
    std::mem::forget(writer);
    let reopen = || engine.open(options(&clock));
    clock.advance(HOUR / 2);
    assert!(reopen().usage().unwrap().bytes > 0, "might still be alive");
    clock.advance(HOUR);
    let reopened = reopen();
    reopened.sweep().unwrap();
    assert_eq!(reopened.usage().unwrap(), Default::default());
}

fn a_slow_stream_keeps_its_lease_and_a_stalled_one_fails(engine: &Engine) {
    let clock = clock();
    let store = engine.open(options(&clock));
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

fn time_runs_out_to_the_millisecond_without_a_sweep(engine: &Engine) {
    let clock = clock();
    let store = engine.open(options(&clock));
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

fn the_oldest_make_room(engine: &Engine) {
    let clock = clock();
    let store = engine.open(Options {
        max_bytes: 100_000,
        ..options(&clock)
    });
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

fn one_result_above_the_cap_is_refused_and_removes_no_other(engine: &Engine) {
    let store = engine.open(Options {
        max_bytes: BLOCK as u64 * 3,
        ..Options::default()
    });
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

fn handles_outlive_the_store_object(engine: &Engine) {
    let bytes = noise(7, BLOCK + 5);
    let open = || engine.open(Options::default());
    let store = open();
    let id = store.put(draft().with("path", "x"), &bytes[..]).unwrap();
    let spans = store.chunks("me", id, 50).unwrap();
    drop(store);
    let store = open();
    assert_eq!(all(&store, id), bytes);
    assert_eq!(store.chunks("me", id, 50).unwrap(), spans);
    assert_eq!(store.info("me", id).unwrap().meta["path"], "x");
}

fn threads_share_one_store(engine: &Engine) {
    let store = engine.open(Options::default());
    let other = engine.open(Options::default());
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

fn chunks_are_found_as_far_as_they_are_asked_for(engine: &Engine) {
    let store = engine.open(Options::default());
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

/// What breaks statements and texts of databases is kept like anything else.
fn hostile_texts_come_back_as_they_were(engine: &Engine) {
    let store = engine.open(Options::default());
    for text in [
        "'; DROP TABLE handles; --",
        "\") OR 1=1 --",
        "$1 ?1 :x @y %s \\",
        "nul\0in the middle",
        "\u{feff}\u{202e}\u{1F980}",
        "",
    ] {
        let draft = Draft::new(text, text)
            .with(text, text)
            .under(serde_json::json!({ text: [text] }));
        let id = store.put(draft.clone(), text).unwrap();
        let info = store.info(text, id).unwrap();
        assert_eq!((info.kind.as_str(), &info.meta), (text, &draft.meta));
        assert_eq!(info.rules, draft.rules);
        assert_eq!(store.read(text, id, 0, 100).unwrap().bytes, text.as_bytes());
        assert_eq!(store.list(text).unwrap().len(), 1);
        assert_eq!(store.info("me", id), Err(Error::Unknown));
    }
    let bytes = [&b"\0\xff\xfe\0"[..], &noise(3, 1000)].concat();
    let id = store.put(draft(), &bytes[..]).unwrap();
    assert_eq!(all(&store, id), bytes);
}

/// Two store objects on the same rows are two servers.
fn what_one_server_stores_another_reads(engine: &Engine) {
    let (one, other) = (
        engine.open(Options::default()),
        engine.open(Options::default()),
    );
    let bytes = noise(9, 2 * BLOCK + 9);
    let mut writer = one.writer(draft()).unwrap();
    writer.write_all(&bytes).unwrap();
    let id = writer.finish().unwrap();
    assert_eq!(all(&other, id), bytes);
    let third = other.chunk("me", id, 3, 200).unwrap();
    assert_eq!(one.chunk("me", id, 3, 200).unwrap().bytes, third.bytes);
    let short = other.put(draft(), "short").unwrap();
    assert_eq!(all(&one, short), b"short");
    assert_eq!(one.usage().unwrap().count, 2);
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec("[a-zé ]{0,30}\r?\n?", 0..60).prop_map(|l| l.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..600),
        (any::<u64>(), 0usize..3 * BLOCK).prop_map(|(seed, len)| noise(seed, len)),
    ]
}

fn pages_join_to_the_bytes(engine: &Engine) {
    let store = engine.open(Options::default());
    let cases = ProptestConfig::with_cases(48);
    proptest!(cases, |(bytes in payload(), step in 1usize..200_000)| {
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
    });
}

fn chunks_join_to_the_bytes(engine: &Engine) {
    let store = engine.open(Options::default());
    let cases = ProptestConfig::with_cases(48);
    proptest!(cases, |(
        lines in prop::collection::vec("[a-zé ]{0,30}\r?\n?", 0..200),
        tail in prop::collection::vec(any::<u8>(), 0..300),
        budget in 4usize..200,
    )| {
        let bytes = [lines.concat().into_bytes(), tail].concat();
        let id = store.put(draft(), &bytes[..]).unwrap();
        let mut joined = Vec::new();
        for (n, span) in store.chunks("me", id, budget).unwrap().iter().enumerate() {
            let chunk = store.chunk("me", id, n as u64, budget).unwrap();
            prop_assert_eq!(&chunk.span, span);
            prop_assert!(fits(&String::from_utf8_lossy(&chunk.bytes), budget));
            joined.extend(chunk.bytes);
        }
        prop_assert!(joined == bytes);
    });
}
