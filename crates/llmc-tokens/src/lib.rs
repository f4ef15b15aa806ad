//! Exact `o200k_base` token counts from a table compiled into the executable.
//!
//! Owns the vocabulary and the counting. Must not know budgets of answers or what a text is: text goes in, a number
//! comes out, never token ids. Text that spells a special token (`<|endoftext|>`) counts as ordinary text, because that
//! is how tool output reaches a model.
//!
//! Every answer of the server is cut to a token budget, so counting must work from the first call and cost almost nothing
//! when idle. A tokenizer that builds its maps at start takes a tenth of a second and tens of megabytes. Here the build
//! script writes the vocabulary (`data`) as a hash table in plain bytes, which the executable carries as read-only data.
//!
//! The crate has one public type, [`TokenEstimate`]; the rest is functions.
//!
//! - [`count()`] and [`fits`]: the exact number of tokens, and whether it stays within a budget
//! - [`lines_within`]: how much of a text fits a budget, in whole lines
//! - [`estimate()`], [`TokenEstimate`]: the cost of a text of any size, in bounded time
//!
//! Inside, `split` cuts text into pieces, `merge` counts the tokens of one piece, `table` holds the vocabulary, and
//! `layout` is shared with the build script. The tests compare the counts with `tiktoken-rs`.

mod count;
mod estimate;
mod layout;
mod lines;
mod merge;
mod split;
mod table;

pub use count::{count, fits};
pub use estimate::{TokenEstimate, estimate};
pub use lines::lines_within;
