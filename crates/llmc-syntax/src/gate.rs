//! Somebody who is asked before each parse and told when it is over.
//!
//! Grammars are C code: one that crashes takes the process along. What it was parsing then can only be known by whoever
//! had noted it before, so that the next process leaves that source alone.

use std::any::Any;
use std::sync::OnceLock;

/// Gives something that is dropped when the parse is over, or nothing if the source is not to be parsed.
type Gate = dyn Fn(&str) -> Option<Box<dyn Any>> + Send + Sync;

static GATE: OnceLock<Box<Gate>> = OnceLock::new();

/// Has every parse of this process go through this gate; the first one stays.
pub fn set_gate(gate: impl Fn(&str) -> Option<Box<dyn Any>> + Send + Sync + 'static) {
    let _ = GATE.set(Box::new(gate));
}

/// To be held while a source is parsed; `None` if it is not to be.
pub(super) fn enter(source: &str) -> Option<Option<Box<dyn Any>>> {
    match GATE.get() {
        Some(gate) => gate(source).map(Some),
        None => Some(None),
    }
}
