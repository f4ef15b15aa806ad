use llmc_index::{Error, IndexState, SearchRequest, SearchScope};

use crate::work::Work;

const SHOP: &str = "//- src/pool.rs
use std::time::Duration;

/// Connections that wait to be used again.
pub struct Pool {
    idle: Vec<Conn>,
}

impl Pool {
    /// Takes an idle connection, or opens a new one.
    pub fn take(&mut self, wait: Duration) -> Conn {
        self.idle.pop().unwrap_or_else(|| open_connection(wait))
    }

    /// Gives a connection back.
    pub fn give_back(&mut self, conn: Conn) {
        self.idle.push(conn);
    }
}

fn open_connection(wait: Duration) -> Conn {
    Conn::dial(wait)
}
//- src/parse.rs
/// Reads the header of an HTTP request.
pub fn parse_http_header(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')
}

pub fn parse_body(text: &str) -> &str {
    text.trim()
}
//- tests/pool.rs
#[test]
fn take_gives_an_idle_connection_first() {
    let mut pool = Pool::new();
    pool.take(WAIT);
}
//- docs/guide.md
# Guide

## Connection pool

The pool keeps idle connections.

## Headers

`parse_http_header` splits a header line.
";

#[test]
fn english_names_and_scopes() {
    let work = Work::new(SHOP);
    // Without an index, from one, and the same both times.
    for state in [IndexState::None, IndexState::Ready] {
        assert_eq!(work.index.state(), state);
        let first = |query: &str, scope| work.found(query, scope)[0].clone();
        assert_eq!(
            first(
                "how does one take an idle connection or open a new one",
                SearchScope::Repo
            ),
            "src/pool.rs#L9-L12"
        );
        assert_eq!(
            first("parseHttpHeader", SearchScope::Repo),
            "src/parse.rs#L1-L4"
        );
        assert_eq!(
            first("parsing http headers", SearchScope::Repo),
            "src/parse.rs#L1-L4"
        );
        assert_eq!(
            first("idle connections", SearchScope::Docs),
            "docs/guide.md#L3-L5"
        );
        let both = work.found("parse_http_header", SearchScope::Both);
        assert!(both.contains(&"docs/guide.md#L7-L9".to_owned()), "{both:?}");
        let repo = work.found("idle connection", SearchScope::Repo);
        assert!(repo.iter().all(|src| !src.starts_with("docs/")), "{repo:?}");
        let answer = work.ask("give a connection back", SearchScope::Repo);
        assert_eq!(answer.index, state);
        assert!(answer.unverified.is_empty());
        assert_eq!(
            answer.snippets[0].symbol.as_deref(),
            Some("Pool::give_back")
        );
        assert_eq!(answer.snippets[0].kind, Some("function"));
        work.update();
    }
}

#[test]
fn a_stack_trace_leads_to_its_lines() {
    let work = Work::new(SHOP);
    let trace = "thread 'main' panicked at /build/x/src/pool.rs:16:9:\nsomething odd happened\nnote: run with RUST_BACKTRACE=1";
    assert_eq!(
        work.found(trace, SearchScope::Repo)[0],
        "src/pool.rs#L14-L17"
    );
    work.update();
    assert_eq!(
        work.found(trace, SearchScope::Repo)[0],
        "src/pool.rs#L14-L17"
    );
    // The file as it is now counts, not as it was indexed.
    let text = std::fs::read_to_string(work.path("src/pool.rs")).unwrap();
    work.write("src/pool.rs", &format!("\n\n\n\n{text}"));
    assert_eq!(
        work.found(trace, SearchScope::Repo)[0],
        "src/pool.rs#L13-L16"
    );
}

#[test]
fn who_raised_comes_first_and_then_its_callers() {
    let helpers: String = (0..40)
        .map(|n| format!("def checkout_{n}(pool, wait):\n    return pool.take(wait)\n\n"))
        .collect();
    let work = Work::new(&format!(
        "//- shop/db.py\nclass Pool:\n    def take(self, wait):\n        return self.find(wait)\n\n    def find(self, key):\n        return self.idle[key]\n//- shop/web.py\ndef checkout(pool):\n    return pool.take(2)\n//- shop/other.py\n{helpers}"
    ));
    let trace = "Traceback (most recent call last):
  File \"/app/shop/web.py\", line 2, in checkout
    return pool.take(2)
  File \"/app/shop/db.py\", line 3, in take
    return self.find(wait)
  File \"/app/shop/db.py\", line 6, in find
    return self.idle[key]
KeyError: 2";
    for state in [IndexState::None, IndexState::Ready] {
        assert_eq!(work.index.state(), state);
        let found = work.found(trace, SearchScope::Repo);
        assert_eq!(
            found[..3],
            ["shop/db.py#L5-L6", "shop/db.py#L2-L3", "shop/web.py#L1-L2"],
            "{state:?}"
        );
        work.update();
    }
}

#[test]
fn the_line_of_a_trace_is_shown_however_far_down_it_stands() {
    let body: String = (0..300).map(|n| format!("    step_{n}();\n")).collect();
    let work = Work::new(&format!(
        "//- src/long.rs\npub fn long_work() {{\n{body}}}\n"
    ));
    work.update();
    let answer = work.ask_for("panicked at src/long.rs:250:5", SearchScope::Repo, 1, 60);
    let shown = &answer.snippets[0];
    assert!((shown.first..=shown.last).contains(&250), "{shown:?}");
}

#[test]
fn a_pasted_error_leads_to_the_text_that_it_prints() {
    let work = Work::new(
        r##"//- web/globals.py
_no_app_msg = """\
Working outside of application context.

This typically means that you attempted to use functionality that needed
the current application.\
"""
current_app = LocalProxy(_cv_app, "app", unbound_message=_no_app_msg)
//- web/ctx.py
def copy_context(function):
    """Keeps the application context for work that is done outside of it."""
    context = _cv_app.get(None)
    if context is None:
        raise RuntimeError("copy_context needs an application context")
    return context.copy(function)


def app_context(application):
    """The application context: pushes the application while working in it."""
    return AppContext(application)
//- web/options.py
def convert(name, value):
    raise BadParameter(f"option {name} expects a number between {low} and {high}")


def number(option, name, value):
    """A number for an option with a name and a value between others."""
    return int(value)
"##,
    );
    for state in [IndexState::None, IndexState::Ready] {
        assert_eq!(work.index.state(), state);
        for (query, place) in [
            (
                "RuntimeError: Working outside of application context.",
                "web/globals.py#L1-L7",
            ),
            (
                "Working outside of application context.",
                "web/globals.py#L1-L7",
            ),
            (
                "E   web.BadParameter: option --size expects a number between 1 and 9",
                "web/options.py#L1-L2",
            ),
        ] {
            let found = work.found(query, SearchScope::Repo);
            assert_eq!(found[0], place, "{query}: {found:?}");
        }
        work.update();
    }
}

#[test]
fn own_code_before_tests_unless_asked_for() {
    let work = Work::new(SHOP);
    work.update();
    let code = work.found("takes an idle connection or opens one", SearchScope::Repo);
    assert_eq!(code[0], "src/pool.rs#L9-L12");
    let test = work.found(
        "test that take gives an idle connection first",
        SearchScope::Repo,
    );
    assert_eq!(test[0], "tests/pool.rs#L1-L5");
}

#[test]
fn budgets_are_exact_and_cut_between_lines() {
    let body: String = (0..100)
        .map(|i| format!("    work_on(step_{i});\n"))
        .collect();
    let work = Work::new(&format!("//- a.rs\npub fn long_work() {{\n{body}}}\n"));
    work.update();
    for budget in [1, 5, 20, 100, 500, 5000] {
        let answer = work.ask_for("long_work", SearchScope::Repo, 3, budget);
        assert!(budget < 20 || answer.snippets[0].first == 1, "{answer:?}");
    }
    let one = work.ask_for("long_work step_50", SearchScope::Repo, 1, 100_000);
    assert_eq!(one.snippets.len(), 1);
    let all = work.ask_for("long_work", SearchScope::Repo, 1_000_000_000, 100_000);
    assert!(!all.snippets.is_empty());
}

#[test]
fn copies_are_shown_once() {
    let text = "pub fn count_all_words(text: &str) -> usize {\n    let words = text.split_whitespace();\n    let kept = words.filter(|word| !word.is_empty());\n    kept.count()\n}\n";
    let work = Work::new(&format!("//- a/count.rs\n{text}//- b/count.rs\n{text}"));
    work.update();
    assert_eq!(
        work.found("count_all_words", SearchScope::Repo),
        ["a/count.rs#L1-L5"]
    );
}

#[test]
fn names_in_any_script_are_found() {
    let names = [
        "считать_строки",
        "行を数える",
        "줄_세기",
        "عد_الأسطر",
        "पंक्ति_गिनें",
        "μέτρησε_γραμμές",
        "zeilenzähler",
        "นับ_บรรทัด",
    ];
    let mut files = String::new();
    for (place, name) in names.iter().enumerate() {
        files += &format!("//- {name}/m{place}.py\ndef {name}(text):\n    return text\n");
    }
    let work = Work::new(&files);
    work.update();
    for (place, name) in names.iter().enumerate() {
        let found = work.found(name, SearchScope::Repo);
        assert_eq!(found[0], format!("{name}/m{place}.py#L1-L2"), "{found:?}");
    }
}

#[test]
fn a_long_class_does_not_hide_its_methods() {
    let mut class = String::from("class Account:\n    \"\"\"An account with a balance.\"\"\"\n");
    for place in 0..40 {
        class += &format!("\n    def step_{place}(self):\n        return {place}\n");
    }
    class += "\n    def close_account(self, balance):\n        self.balance = balance\n";
    let work = Work::new(&format!("//- bank.py\n{class}"));
    work.update();
    let answer = work.ask("an account with a balance", SearchScope::Repo);
    let symbols: Vec<_> = answer
        .snippets
        .iter()
        .map(|found| found.symbol.as_deref())
        .collect();
    assert!(symbols.contains(&Some("Account")), "{symbols:?}");
    assert!(
        symbols.contains(&Some("Account::close_account")),
        "{symbols:?}"
    );
    let shown = answer
        .snippets
        .iter()
        .find(|found| found.symbol.as_deref() == Some("Account"))
        .expect("the class");
    assert_eq!((shown.first, shown.last), (1, 3), "its head");
}

#[test]
fn a_definition_comes_before_its_declaration() {
    let work = Work::new(
        "//- ring.h
struct ring;
int ring_pop_oldest(struct ring *ring, int *value);
int ring_push_value(struct ring *ring, int value);
//- ring.c
int ring_push_value(struct ring *ring, int value)
{
    ring->values[ring->end++] = value;
    return 0;
}

int ring_pop_oldest(struct ring *ring, int *value)
{
    *value = ring->values[ring->start++];
    return 0;
}
",
    );
    work.update();
    let found = work.found("pop the oldest value of the ring", SearchScope::Repo);
    assert_eq!(found[0], "ring.c#L7-L11", "{found:?}");
    assert!(found.contains(&"ring.h#L1-L3".to_owned()), "{found:?}");
}

#[test]
fn questions_that_ask_nothing_or_too_much() {
    let work = Work::new(SHOP);
    work.update();
    let one_word = "x".repeat(1 << 20);
    for query in ["", "  ", "\u{0}", "?", one_word.as_str()] {
        let request = SearchRequest {
            query,
            scope: SearchScope::Repo,
            k: 1,
            budget: 100,
        };
        let failed = work
            .index
            .search(&work.roots, &request, &Default::default());
        assert!(matches!(failed, Err(Error::BadRequest(_))), "{query:.9?}");
    }
    let long = "connection pool lorem ".repeat(50_000);
    assert!(!work.found(&long, SearchScope::Repo).is_empty());
    assert!(work.found("zxqvwy", SearchScope::Repo).is_empty());
}
