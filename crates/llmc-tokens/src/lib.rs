//! Exact `o200k_base` token counts, with nothing to load.
//!
//! Every answer of the server is cut to a token budget, so counting has to be there from the first call and cost next
//! to nothing when idle. A tokenizer that builds its maps at start takes a tenth of a second and tens of megabytes, more
//! than the rest of the server together. Here the build script lays the vocabulary out once, as a hash table in plain
//! bytes; the binary carries it as read-only data and looks tokens up in place.
//!
//! Only counts come out, never token ids. Text that spells a special token (`<|endoftext|>`) counts as ordinary text,
//! because that is how tool output reaches a model.
//!
//! - [`count()`] and [`fits`]: the exact number of tokens, and whether it stays within a budget.
//! - [`lines_within`]: how much of a text fits a budget, in whole lines.
//! - [`estimate()`]: what a text of any size would cost, in bounded time.
//!
//! Inside, `split` cuts text into pieces, `merge` counts the tokens of one piece, `table` holds the vocabulary, and
//! `layout` is what it shares with the build script. The tests hold all of it against `tiktoken-rs`.

mod count;
mod estimate;
mod layout;
mod lines;
mod merge;
mod split;
mod table;

pub use count::{count, fits};
pub use estimate::{Estimate, estimate};
pub use lines::lines_within;
