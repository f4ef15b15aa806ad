//! Files over which the parser fails, or for which there is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use llmc_index::SearchScope;
use llmc_syntax::{ParseFailure, parse_here, set_parse_service};

use crate::work::Work;

/// Whether there is a parser for sources with `waiting_wolf`.
static HAS_PARSER: AtomicBool = AtomicBool::new(false);

/// Whether sources with `held_heron` wait for their parser.
static IS_HELD: Mutex<bool> = Mutex::new(false);
static RELEASED: Condvar = Condvar::new();

/// Lets sources with `held_heron` wait for their parser until it is dropped; for one test.
pub(crate) struct HeldParser;

impl HeldParser {
    pub(crate) fn new() -> HeldParser {
        set_test_parser();
        *IS_HELD.lock().unwrap() = true;
        HeldParser
    }
}

impl Drop for HeldParser {
    fn drop(&mut self) {
        *IS_HELD.lock().unwrap() = false;
        RELEASED.notify_all();
    }
}

/// Sets a service for all tests of this process, which fails over some sources of this file only.
fn set_test_parser() {
    set_parse_service(|request, _| {
        if request.source.contains("held_heron") {
            let held = IS_HELD.lock().unwrap();
            drop(RELEASED.wait_while(held, |held| *held).unwrap());
        }
        if request.source.contains("crashing_crane") {
            return Err(ParseFailure::Crashed);
        }
        if request.source.contains("waiting_wolf") && !HAS_PARSER.load(Ordering::Relaxed) {
            return Err(ParseFailure::Unavailable);
        }
        Ok(parse_here(request))
    });
}

#[test]
fn a_crash_makes_windows_and_is_named() {
    set_test_parser();
    let work =
        Work::new("//- a.rs\npub fn crashing_crane() {}\n//- b.rs\npub fn beta_carotene() {}\n");
    work.update();
    let stats = work.index.stats().unwrap();
    assert_eq!(stats.unparsed, ["a.rs"]);
    assert_eq!((stats.files, stats.symbols), (2, 1));
    let found = work.ask("crashing_crane", SearchScope::Repo);
    assert_eq!(found.snippets[0].src(), "a.rs#L1-L1");
    // It is not parsed again until it changes.
    assert_eq!(work.update().changed, 0);
    work.write("a.rs", "pub fn calm_crane() {}\n");
    work.update();
    let stats = work.index.stats().unwrap();
    assert!(stats.unparsed.is_empty());
    assert_eq!(stats.symbols, 2);
}

#[test]
fn a_file_for_which_there_was_no_parser_is_parsed_later() {
    set_test_parser();
    let work =
        Work::new("//- a.rs\npub fn waiting_wolf() {}\n//- b.rs\npub fn beta_carotene() {}\n");
    work.update();
    let stats = work.index.stats().unwrap();
    assert!(stats.unparsed.is_empty());
    assert_eq!((stats.files, stats.symbols), (2, 1));
    HAS_PARSER.store(true, Ordering::Relaxed);
    // Answers parse it themselves, and the next scan does.
    let found = work.ask("waiting_wolf", SearchScope::Repo);
    assert_eq!(found.snippets[0].symbol.as_deref(), Some("waiting_wolf"));
    assert_eq!(work.update().changed, 1);
    assert_eq!(work.index.stats().unwrap().symbols, 2);
    assert_eq!(work.update().changed, 0);
}
