//! A hook that runs before each parse and can refuse it.
//!
//! Grammars are C code whose crash ends the process. The hook records what is being parsed, so that a later process can
//! skip a source whose parsing crashed.

use std::any::Any;
use std::sync::OnceLock;

/// Returns a guard that is dropped after the parse, or `None` to refuse the source.
type Gate = dyn Fn(&str) -> Option<Box<dyn Any>> + Send + Sync;

static PARSE_GATE: OnceLock<Box<Gate>> = OnceLock::new();

/// Sets the hook for every parse of this process; only the first call has an effect.
pub fn set_parse_gate(gate: impl Fn(&str) -> Option<Box<dyn Any>> + Send + Sync + 'static) {
    let _ = PARSE_GATE.set(Box::new(gate));
}

/// The guard to hold while a source is parsed; `None` if the hook refuses it.
pub(super) fn enter(source: &str) -> Option<Option<Box<dyn Any>>> {
    match PARSE_GATE.get() {
        Some(gate) => gate(source).map(Some),
        None => Some(None),
    }
}
