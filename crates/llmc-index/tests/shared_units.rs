//! Machines that share a database: what one has parsed is parsed by no other, and the answers are the same.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and tests make files directly"
)]

#[path = "it/work.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod work;

use std::fs;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use llmc_host::CancelToken;
use llmc_index::{Index, LineageDirection, SearchScope, SharedUnits};
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};
use llmc_testdb::{TestCluster, TestDatabase};

use llmc_syntax::{parse_here, set_parse_service};

use crate::work::Work;

const UPLOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Five sources that are parsed, each with the mark, and two other files.
const SHOP: &str = "//- src/pool.rs
// MARK
use crate::conn::dial;

/// Connections that wait.
pub struct Pool {
    idle: Vec<u8>,
}

impl Pool {
    /// Takes one, or dials.
    pub fn take(&mut self) -> u8 {
        self.idle.pop().unwrap_or_else(|| dial(3))
    }
}
//- src/conn.rs
// MARK
/// Opens a connection.
pub fn dial(times: u8) -> u8 {
    retry(times)
}

fn retry(times: u8) -> u8 {
    times
}
//- src/server.rs
// MARK
use crate::pool::Pool;

pub fn serve(pool: &mut Pool) {
    let conn = pool.take();
    answer(conn);
}

fn answer(_: u8) {}
//- tools/report.py
# MARK
class Report:
    def lines(self):
        return format_lines(self)

def format_lines(report):
    return [report]
//- web/cart.js
// MARK
export function total(cart) { return cart.items.map(price); }
function price(item) { return item.price; }
//- docs/pool.md
# Pool

Call `Pool::take` before use.
//- notes.txt
Connections are dialled again when the pool is empty.
";
const PARSED_FILES: u64 = 5;

/// The sources that a parser got.
static PARSED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Called with each source before it is parsed.
static BEFORE_PARSING: Mutex<Option<fn(&str)>> = Mutex::new(None);

/// Counts what is parsed in this process.
fn set_test_parser() {
    set_parse_service(|request, _| {
        PARSED.lock().unwrap().push(request.source.to_owned());
        let before = *BEFORE_PARSING.lock().unwrap();
        if let Some(before) = before {
            before(request.source);
        }
        Ok(parse_here(request))
    });
}

/// How many sources with this mark a parser got.
fn parsed_with(mark: &str) -> u64 {
    let sources = PARSED.lock().unwrap();
    let count = sources
        .iter()
        .filter(|source| source.contains(mark))
        .count();
    count as u64
}

/// A machine with these files and an index that uses the shared store.
fn machine(files: &str, units: SharedUnits) -> Work {
    set_test_parser();
    let mut work = Work::new(files);
    work.index = Index::at(&work.index_dir()).with_shared_units(units);
    work
}

fn units_of(url: &str, tenant: &str, days: u32) -> SharedUnits {
    let settings = DatabaseSettings {
        url: DatabaseUrl::parse(url).unwrap(),
        admin_url: None,
        tenant: Tenant::parse(tenant).unwrap(),
        max_connections: 4,
    };
    SharedUnits::new(Database::new(settings), days)
}

/// A database with the analyses of `SHOP` with this mark.
fn filled_by_one_machine(mark: &str) -> Option<(&'static TestCluster, TestDatabase, Work)> {
    let cluster = TestCluster::shared()?;
    let database = cluster.database();
    let first = machine(
        &SHOP.replace("MARK", mark),
        units_of(&database.url(), "team", 60),
    );
    let done = first.update();
    assert_eq!((done.parsed, done.shared), (PARSED_FILES, 0));
    assert!(first.index.finish_uploads(UPLOAD_TIMEOUT));
    Some((cluster, database, first))
}

/// What an index says about the shop.
fn answers(work: &Work) -> Vec<String> {
    let mut all = Vec::new();
    for scope in [SearchScope::Repo, SearchScope::Docs] {
        for question in [
            "take a connection from the pool",
            "dial again",
            "price of items",
            "Report lines",
        ] {
            for found in work.ask(question, scope).snippets {
                all.push(format!(
                    "{question}: {} {} {}",
                    found.src(),
                    found.score,
                    found.text
                ));
            }
        }
    }
    let stop = CancelToken::default();
    for symbol in ["Pool::take", "dial", "retry", "format_lines", "price"] {
        let uses = work
            .index
            .where_used(&work.roots, symbol, 2, &stop)
            .unwrap();
        all.push(format!("{uses:?}"));
        for direction in [LineageDirection::Callers, LineageDirection::Callees] {
            let lineage = work.index.lineage(&work.roots, symbol, direction, 3, &stop);
            all.push(format!("{:?}", lineage.unwrap()));
        }
    }
    let stats = work.index.stats().unwrap();
    let counts = (stats.files, stats.chunks, stats.symbols, stats.edges);
    all.push(format!("{counts:?} {:?}", stats.languages));
    all
}

#[test]
fn a_clone_is_indexed_without_parsing_and_answers_the_same() {
    let mark = "counted_clone";
    let Some((_, database, first)) = filled_by_one_machine(mark) else {
        return;
    };
    let clone = machine(
        &SHOP.replace("MARK", mark),
        units_of(&database.url(), "team", 60),
    );
    let done = clone.update();
    assert_eq!((done.files, done.changed), (7, 7));
    assert_eq!((done.parsed, done.shared), (0, PARSED_FILES));
    assert_eq!(clone.index.stats().unwrap().shared_files, PARSED_FILES);
    assert_eq!(parsed_with(mark), PARSED_FILES, "by the first machine");
    let alone = Work::new(&SHOP.replace("MARK", mark));
    alone.update();
    assert_eq!(answers(&clone), answers(&first));
    assert_eq!(answers(&clone), answers(&alone));
    assert!(answers(&clone).concat().contains("src/server.rs"));
}

#[test]
fn what_was_renamed_is_not_parsed_and_what_changed_is() {
    let mark = "counted_rename";
    let Some((_, database, _first)) = filled_by_one_machine(mark) else {
        return;
    };
    let files = SHOP.replace("MARK", mark);
    let files = files
        .replace("src/pool.rs", "src/db/pooling.rs")
        .replace("fn answer(_: u8) {}", "fn answer(_: u16) {}");
    let branch = machine(&files, units_of(&database.url(), "team", 60));
    let done = branch.update();
    assert_eq!((done.parsed, done.shared), (1, PARSED_FILES - 1));
    let alone = Work::new(&files);
    alone.update();
    assert_eq!(answers(&branch), answers(&alone));

    // A file that is edited while it is watched, and set back to what the first machine has.
    let server = SHOP.split("//- src/server.rs\n").nth(1).unwrap();
    let server = server.split("//- ").next().unwrap().replace("MARK", mark);
    branch.write("src/server.rs", &server);
    let before = parsed_with(mark);
    let twice = ["src/server.rs".to_owned(), "src/server.rs".to_owned()];
    let done = branch.index.update_files(&branch.roots, &twice).unwrap();
    assert_eq!((done.changed, done.parsed, done.shared), (1, 0, 1));
    assert_eq!(parsed_with(mark), before);
    branch.write("src/server.rs", &format!("{server}// edited\n"));
    let edited = ["src/server.rs".to_owned()];
    let done = branch.index.update_files(&branch.roots, &edited).unwrap();
    assert_eq!((done.parsed, done.shared), (1, 0));
}

#[test]
fn rows_that_cannot_be_right_are_parsed_and_written_again() {
    let mark = "counted_tampered";
    let Some((cluster, database, first)) = filled_by_one_machine(mark) else {
        return;
    };
    let files = SHOP.replace("MARK", mark);
    let sound = cluster.sql(
        &database.name,
        "SELECT md5(string_agg(data, NULL ORDER BY hash)) FROM llmc.index_units",
    );
    let changes = [
        "SET data = substr(data, 1, octet_length(data) - 3)",
        "SET data = '\\x00'",
        // The first byte of a later encoding.
        "SET data = set_byte(data, 0, 2)",
        "SET data = set_byte(data, octet_length(data) / 2, 255 - get_byte(data, octet_length(data) / 2))",
        // Each has the data of another content.
        "SET data = last.data FROM (SELECT hash, data FROM llmc.index_units ORDER BY hash DESC LIMIT 1) AS last \
         WHERE index_units.hash <> last.hash",
        // More than any analysis of such a source takes.
        "SET data = decode(repeat('00', 4000000), 'hex')",
    ];
    for change in changes {
        let tampered = format!("UPDATE llmc.index_units {change} RETURNING 1");
        let tampered = cluster.sql(&database.name, &tampered).lines().count() as u64;
        assert!(tampered >= PARSED_FILES - 1, "{change}");
        let work = machine(&files, units_of(&database.url(), "team", 60));
        let done = work.update();
        assert_eq!(
            (done.parsed, done.shared),
            (tampered, PARSED_FILES - tampered),
            "{change}"
        );
        assert_eq!(answers(&work), answers(&first), "{change}");
        assert!(work.index.finish_uploads(UPLOAD_TIMEOUT));
        let after = cluster.sql(
            &database.name,
            "SELECT md5(string_agg(data, NULL ORDER BY hash)) FROM llmc.index_units",
        );
        assert_eq!(after, sound, "{change}");
    }
    // Rows of a newer program are left alone, and not used.
    cluster.sql(
        &database.name,
        "UPDATE llmc.index_units SET format = format + 100",
    );
    let work = machine(&files, units_of(&database.url(), "team", 60));
    assert_eq!(work.update().parsed, PARSED_FILES);
    assert!(work.index.finish_uploads(UPLOAD_TIMEOUT));
    let rows = cluster.sql(&database.name, "SELECT count(*) FROM llmc.index_units");
    assert_eq!(rows, (2 * PARSED_FILES).to_string());
}

#[test]
fn another_tenant_sees_nothing() {
    let mark = "counted_tenant";
    let Some((cluster, database, _first)) = filled_by_one_machine(mark) else {
        return;
    };
    let files = SHOP.replace("MARK", mark);
    let other = machine(&files, units_of(&database.url(), "other", 60));
    let done = other.update();
    assert_eq!((done.parsed, done.shared), (PARSED_FILES, 0));
    assert!(other.index.finish_uploads(UPLOAD_TIMEOUT));
    let rows = "SELECT tenant, count(*) FROM llmc.index_units GROUP BY tenant ORDER BY tenant";
    assert_eq!(cluster.sql(&database.name, rows), "other|5\nteam|5");
}

#[test]
fn only_files_that_are_indexed_and_parsed_have_rows_and_no_text() {
    let mark = "counted_secret";
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let work = machine("", units_of(&database.url(), "team", 60));
    let source = format!("// {mark}\npub fn open_vault() {{ unlock(\"hunter2\") }}\n");
    work.write("src/vault.rs", &source);
    // Not indexed: a denied name, a generated file, one with NUL.
    work.write(".ssh/id_rsa.rs", &source.replace("vault", "key"));
    work.write(".env", "TOKEN=hunter2\n");
    work.write("web/min.js", &format!("/*{mark}*/{}", "f(1);".repeat(4000)));
    fs::write(work.path("nul.rs"), source.replace("hunter2", "\0")).unwrap();
    // Not UTF-8, and parsed all the same.
    let bytes = [b"// \xff\xfe ", source.replace("vault", "safe").as_bytes()].concat();
    fs::write(work.path("latin.rs"), &bytes).unwrap();
    let done = work.update();
    assert_eq!((done.parsed, done.shared), (2, 0), "{done:?}");
    assert!(work.index.finish_uploads(UPLOAD_TIMEOUT));
    let rows = "SELECT language, count(*) FROM llmc.index_units GROUP BY language";
    assert_eq!(cluster.sql(&database.name, rows), "Rust|2");

    let other = machine("", units_of(&database.url(), "team", 60));
    other.write("vault.rs", &source);
    fs::write(other.path("latin.rs"), &bytes).unwrap();
    let done = other.update();
    assert_eq!((done.parsed, done.shared), (0, 2));
    let stop = CancelToken::default();
    let shown = [&work, &other].map(|work| {
        let shown = work.index.inspect(&work.roots, "open_safe", 500, &stop);
        format!("{:?}", shown.unwrap())
    });
    assert_eq!(shown[0], shown[1]);
    assert!(shown[0].contains("latin.rs"), "{}", shown[0]);
}

#[test]
fn without_the_database_files_are_parsed_as_before() {
    let mark = "counted_away";
    set_test_parser();
    let files = SHOP.replace("MARK", mark);
    // Nothing listens there.
    let url = "postgres://llmc:x@127.0.0.1:1/llmc";
    let work = machine(&files, units_of(url, "team", 60));
    let done = work.update();
    assert_eq!((done.parsed, done.shared), (PARSED_FILES, 0));
    assert!(!work.index.finish_uploads(UPLOAD_TIMEOUT));
    let alone = Work::new(&files);
    alone.update();
    assert_eq!(answers(&work), answers(&alone));
}

#[test]
fn a_database_that_goes_away_during_a_build_does_not_end_it() {
    static CLUSTER: OnceLock<Option<TestCluster>> = OnceLock::new();
    let mark = "counted_outage";
    let Some(cluster) = CLUSTER.get_or_init(TestCluster::start) else {
        return;
    };
    let database = cluster.database();
    let work = machine("", units_of(&database.url(), "team", 60));
    let files = 450;
    for n in 0..files {
        let source = format!("// {mark}\npub fn made_{n}() {{ helper_{n}() }}\n");
        work.write(&format!("src/f{n}.rs"), &source);
    }
    // The first batch has been asked for when its first file is parsed.
    static STOPPED: OnceLock<()> = OnceLock::new();
    *BEFORE_PARSING.lock().unwrap() = Some(|source| {
        if source.contains("counted_outage") {
            STOPPED.get_or_init(|| {
                let cluster = CLUSTER.get().and_then(Option::as_ref);
                cluster.unwrap().stop("QUIT");
            });
        }
    });
    let done = work.update();
    *BEFORE_PARSING.lock().unwrap() = None;
    assert!(STOPPED.get().is_some());
    assert_eq!((done.files, done.parsed, done.shared), (files, files, 0));
    assert!(!work.index.finish_uploads(UPLOAD_TIMEOUT));
    assert_eq!(
        work.found("made_449", SearchScope::Repo)[0],
        "src/f449.rs#L1-L2"
    );

    // Another machine, when it is there again.
    cluster.run();
    let other = machine("", units_of(&database.url(), "team", 60));
    for n in 0..files {
        fs::create_dir_all(other.path("src")).unwrap();
        fs::copy(
            work.path(&format!("src/f{n}.rs")),
            other.path(&format!("src/f{n}.rs")),
        )
        .unwrap();
    }
    let done = other.update();
    assert_eq!(done.parsed + done.shared, files);
    assert!(other.index.finish_uploads(UPLOAD_TIMEOUT));
    let third = machine("", units_of(&database.url(), "team", 60));
    fs::create_dir_all(third.path("src")).unwrap();
    for n in 0..files {
        fs::copy(
            work.path(&format!("src/f{n}.rs")),
            third.path(&format!("src/f{n}.rs")),
        )
        .unwrap();
    }
    let done = third.update();
    assert_eq!((done.parsed, done.shared), (0, files));
}

#[test]
fn a_database_that_does_not_answer_does_not_stop_a_build() {
    let mark = "counted_slow";
    let Some((_, database, first)) = filled_by_one_machine(mark) else {
        return;
    };
    let settings = DatabaseSettings {
        url: DatabaseUrl::parse(&database.url()).unwrap(),
        admin_url: None,
        tenant: Tenant::parse("team").unwrap(),
        max_connections: 1,
    };
    let (locked, is_locked) = channel();
    let (done, is_done) = channel::<()>();
    let is_done = Mutex::new(is_done);
    let other = std::thread::spawn(move || {
        let lock = "LOCK TABLE llmc.index_units IN ACCESS EXCLUSIVE MODE";
        Database::new(settings).transaction(async |tx| {
            tx.execute(lock, &[]).await?;
            locked.send(()).unwrap();
            // Until the build has ended.
            let _ = is_done.lock().unwrap().recv();
            Ok::<(), llmc_store::Error>(())
        })
    });
    is_locked.recv().unwrap();
    let files = SHOP.replace("MARK", mark);
    let work = machine(&files, units_of(&database.url(), "team", 60));
    let built = work.update();
    drop(done);
    other.join().unwrap().unwrap();
    assert_eq!((built.parsed, built.shared), (PARSED_FILES, 0));
    assert_eq!(answers(&work), answers(&first));
}

#[test]
fn rows_that_no_machine_uses_are_removed_and_used_ones_stay() {
    let mark = "counted_retention";
    let Some((cluster, database, first)) = filled_by_one_machine(mark) else {
        return;
    };
    drop(first);
    let today = "(clock_timestamp() AT TIME ZONE 'UTC')::date";
    let age = format!("UPDATE llmc.index_units SET used_on = {today} - 50");
    cluster.sql(&database.name, &age);
    // A machine that has some of the files.
    let files = SHOP.replace("MARK", mark);
    let part = files.split("//- tools/report.py").next().unwrap();
    let work = machine(part, units_of(&database.url(), "team", 60));
    assert_eq!(work.update().shared, 3);
    assert!(work.index.finish_uploads(UPLOAD_TIMEOUT));
    let days =
        format!("SELECT {today} - used_on, count(*) FROM llmc.index_units GROUP BY 1 ORDER BY 1");
    assert_eq!(cluster.sql(&database.name, &days), "0|3\n50|2");
    // One that keeps rows for a shorter time.
    let work = machine(part, units_of(&database.url(), "team", 49));
    work.update();
    assert!(work.index.finish_uploads(UPLOAD_TIMEOUT));
    assert_eq!(cluster.sql(&database.name, &days), "0|3");
}
