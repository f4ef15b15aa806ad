//! The workspace as the agent sees it: the only crate that touches the agent's files.
//!
//! - [`Roots`], [`RootedPath`]: the allowed directories, and paths proven to lie inside them
//! - [`Rules`]: names that are off limits whatever the roots allow
//! - [`OpenFile`], [`Slice`]: reading in bounded memory
//! - [`Workspace`]: writing, editing, moving, deleting, each atomic and under a lease
//! - [`lock`]: leases between agents and processes
//! - [`walk`], [`search`]: listing and searching by descriptor
//! - [`machine`]: processors, memory and disks
//! - [`names`]: file names as text, without loss
//! - [`CancelToken`]: cancellation flag and deadline of a call
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod cancel;
pub mod edit;
mod error;
pub mod lock;
pub mod machine;
pub mod names;
mod patch;
mod read;
mod roots;
mod rules;
mod scratch;
pub mod search;
mod tree;
pub mod walk;
mod write;

pub use cancel::CancelToken;
pub use error::{Error, Result};
pub use patch::{Patched, PatchedHow};
pub use read::{
    ANSWER_LIMIT, Encoding, OpenDir, OpenFile, Slice, TAG_DIGITS, mtime_ns, read_beside, sha256_hex,
};
pub use roots::{Last, RootedPath, Roots, file_type, refuse_kernel_file_system};
pub use rules::{Access, CONFIG_FILE, Rules, STATE_DIR};
pub use tree::{Depth, IfThere};
pub use write::{EDIT_LIMIT, ExpectedHash, Workspace, WriteMode, WriteState, Written};
