use llmc_host::CancelToken;
use llmc_index::{Error, LineageDirection};

use crate::work::Work;

const SHOP: &str = "//- src/pool.rs
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

    pub fn refill(&mut self) {
        let one = self.take();
        self.idle.push(one);
    }
}
//- src/conn.rs
/// Opens a connection.
pub fn dial(times: u8) -> u8 {
    retry(times)
}

fn retry(times: u8) -> u8 {
    times
}
//- src/server.rs
use crate::pool::Pool;

pub fn serve(pool: &mut Pool) {
    // take() in a comment is no use
    let conn = pool.take();
    answer(conn);
}

fn answer(_: u8) {}
//- src/other.rs
pub struct Queue;

impl Queue {
    pub fn take(&mut self) -> u8 {
        1
    }
}

pub fn drain(queue: &mut Queue) {
    queue.take();
}
//- tests/pool.rs
use shop::pool::Pool;

#[test]
fn takes() {
    Pool::take(&mut pool());
}
//- web/dial.js
export function dial() { return retry(); }
//- docs/pool.md
# Pool

Call `Pool::take` before use.
";

fn indexed() -> Work {
    let work = Work::new(SHOP);
    work.update();
    work
}

#[test]
fn uses_have_line_enclosing_symbol_and_confidence() {
    let work = indexed();
    let found = work
        .index
        .where_used(&work.roots, "conn::dial", 1, &CancelToken::default())
        .unwrap();
    assert_eq!(found.symbol, "dial");
    let told: Vec<String> = found
        .sites
        .iter()
        .map(|site| format!("{}:{} {} {}", site.path, site.line, site.symbol, site.text))
        .collect();
    assert_eq!(
        told,
        [
            "src/pool.rs:1  use crate::conn::dial;",
            "src/pool.rs:11 Pool::take self.idle.pop().unwrap_or_else(|| dial(3))",
        ]
    );
    assert!(
        found.sites.iter().all(|site| site.confidence >= 0.8),
        "{found:?}"
    );
    assert_eq!(found.total, 2);
}

#[test]
fn of_two_methods_with_one_name_the_right_one_is_surer() {
    let work = indexed();
    let found = work
        .index
        .where_used(&work.roots, "Pool::take", 1, &CancelToken::default())
        .unwrap();
    let at = |path: &str, line: u32| {
        let site = found
            .sites
            .iter()
            .find(|site| site.path == path && site.line == line);
        site.map_or(0.0, |site| site.confidence)
    };
    assert!(at("src/pool.rs", 15) > 0.9, "{found:?}");
    assert!(at("tests/pool.rs", 5) > 0.9);
    assert!(at("src/server.rs", 5) > 0.6);
    assert!(at("src/other.rs", 10) < 0.3);
    assert_eq!(at("src/server.rs", 4), 0.0, "a comment");
}

#[test]
fn steps_add_up() {
    let work = indexed();
    let found = work
        .index
        .where_used(&work.roots, "retry", 3, &CancelToken::default());
    let found = found.unwrap();
    let deepest = found.sites.iter().map(|site| site.depth).max();
    assert_eq!(deepest, Some(3));
    let callers = work
        .index
        .lineage(
            &work.roots,
            "src/conn.rs#retry",
            LineageDirection::Callers,
            3,
            &CancelToken::default(),
        )
        .unwrap();
    let names: Vec<(&str, usize)> = callers
        .nodes
        .iter()
        .map(|node| (node.symbol.as_str(), node.depth))
        .collect();
    assert!(
        names.contains(&("dial", 1)) && names.contains(&("Pool::take", 2)),
        "{names:?}"
    );
    assert!(names.contains(&("Pool::refill", 3)), "{names:?}");
    let callees = work
        .index
        .lineage(
            &work.roots,
            "Pool::refill",
            LineageDirection::Callees,
            5,
            &CancelToken::default(),
        )
        .unwrap();
    let names: Vec<(&str, usize)> = callees
        .nodes
        .iter()
        .map(|node| (node.symbol.as_str(), node.depth))
        .collect();
    assert_eq!(names, [("Pool::take", 1), ("dial", 2), ("retry", 3)]);
    assert_eq!(callees.nodes[1].src, "src/conn.rs#L2-L4");
}

#[test]
fn all_about_a_symbol() {
    let work = indexed();
    let found = work
        .index
        .inspect(&work.roots, "Pool::take", 500, &CancelToken::default())
        .unwrap();
    assert_eq!(found.symbol.as_deref(), Some("Pool::take"));
    assert_eq!(
        (found.kind.as_str(), found.src.as_str()),
        ("function", "src/pool.rs#L9-L12")
    );
    assert_eq!(found.signature, "pub fn take(&mut self) -> u8");
    assert_eq!(found.doc, "Takes one, or dials.");
    assert!(
        found.text.starts_with("    /// Takes one"),
        "{}",
        found.text
    );
    let names = |related: &[llmc_index::RelatedSymbol]| -> Vec<String> {
        related.iter().map(|one| one.symbol.clone()).collect()
    };
    assert_eq!(names(&found.callers), ["Pool::refill", "serve"]);
    assert_eq!(names(&found.callees), ["dial"]);
    assert_eq!(names(&found.tests), ["takes"]);
    assert_eq!(found.docs[0].src, "docs/pool.md#L1-L3");
    let file = work
        .index
        .inspect_file(&work.roots, "src/conn.rs", 500)
        .unwrap();
    assert_eq!(file.kind, "Rust");
    assert!(
        file.text.contains("pub fn dial(times: u8) -> u8"),
        "{}",
        file.text
    );
}

#[test]
fn names_that_do_not_exist_or_mean_several() {
    let work = indexed();
    let ask = |name: &str| {
        work.index
            .where_used(&work.roots, name, 1, &CancelToken::default())
    };
    let Err(Error::NoSymbol { nearest, .. }) = ask("refil") else {
        panic!("found");
    };
    assert_eq!(nearest[0], "refill");
    let Err(Error::NoSymbol { nearest, .. }) = ask("Basket::take") else {
        panic!("found");
    };
    assert!(
        nearest.contains(&"src/pool.rs#Pool::take".to_owned()),
        "{nearest:?}"
    );
    let several = ask("take").unwrap();
    assert_eq!(
        several.ambiguous,
        ["src/other.rs#Queue::take", "src/pool.rs#Pool::take"]
    );
    for empty in ["", " ", "::", "#"] {
        assert!(matches!(ask(empty), Err(Error::BadRequest(_))), "{empty:?}");
    }
    assert!(ask(&"x".repeat(100_000)).is_err());
    // Another spelling of a name that exists.
    assert_eq!(ask("reFill").unwrap().symbol, "Pool::refill");
}

#[test]
fn lines_follow_the_file() {
    let work = indexed();
    let text = std::fs::read_to_string(work.path("src/conn.rs")).unwrap();
    work.write("src/conn.rs", &format!("// new\n// new\n{text}"));
    let found = work
        .index
        .inspect(&work.roots, "dial", 500, &CancelToken::default())
        .unwrap();
    assert_eq!(found.src, "src/conn.rs#L1-L6");
    let found = work
        .index
        .where_used(&work.roots, "retry", 1, &CancelToken::default())
        .unwrap();
    assert_eq!(found.sites[0].line, 5);
}

#[test]
fn a_plan_reads_code_then_users_tests_and_docs() {
    let work = indexed();
    let plan = work.index.plan(
        &work.roots,
        "take a connection from the pool",
        &CancelToken::default(),
    );
    let plan = plan.unwrap();
    assert!(plan.confidence > 0.0 && plan.confidence <= 1.0);
    let order: Vec<&str> = plan.steps.iter().map(|step| step.src.as_str()).collect();
    assert!(
        order.iter().any(|src| src.starts_with("src/pool.rs")),
        "{order:?}"
    );
    assert!(order.contains(&"tests/pool.rs#L3-L6"), "{order:?}");
}

#[test]
fn counts() {
    let work = Work::new(SHOP);
    assert_eq!(work.index.stats().unwrap().files, 0);
    work.update();
    let stats = work.index.stats().unwrap();
    assert_eq!(stats.files, 7);
    assert!(
        stats.chunks >= 10 && stats.symbols >= 12 && stats.edges > 10,
        "{stats:?}"
    );
    assert_eq!(stats.languages[0], ("Rust".to_owned(), 5));
    assert_eq!(work.index.check().unwrap(), Vec::<String>::new());
}
