//! File access, limited to the workspace: the only crate that opens, changes, walks or searches the agent's files.
//!
//! Owns roots, path containment, atomic writes, leases, walks and searches. Must not know tools, answers, tokens or
//! programs: it returns plain data and its own [`Error`], and starts no process.
//!
//! The three types to know: [`Roots`] turns a requested path into a [`RootedPath`], which is proven to lie inside a root;
//! [`Workspace`] changes files, each change atomic and under a lease.
//!
//! - [`PathRules`]: protected names and the denylist
//! - [`OpenFile`], [`FileSlice`]: reading in bounded memory
//! - [`edit`], [`PatchedFile`]: replacing text, applying patches
//! - [`PathEntry`], [`NewEntry`]: what is at a path, links included, and putting something else there
//! - [`lease`]: leases between agents and processes
//! - [`walk`], [`search`]: listing and searching by descriptor
//! - [`RepositoryStamp`]: whether git would stay inside the roots; [`included_git_configs`]: what else configures it
//! - [`machine`]: processors, memory and disks
//! - [`names`]: file names as text, without loss
//! - [`CancelToken`]: cancellation flag and deadline of a call
//! - [`lock`]: a mutex without poisoning
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod bare_repository;
mod cancel;
mod change_hook;
pub mod edit;
mod error;
mod exact;
#[cfg(test)]
mod fuzz;
mod git_config;
mod journal;
pub mod lease;
pub mod machine;
mod mounts;
pub mod names;
mod patch;
mod private_file;
mod read;
mod read_block;
mod repository;
mod roots;
mod rules;
mod scratch;
pub mod search;
mod sync;
mod tree;
pub mod walk;
mod write;

pub use bare_repository::GitDirParts;
pub use cancel::CancelToken;
pub use error::{Error, Result};
pub use exact::{NewEntry, PathEntry, PutOutcome};
pub use git_config::included_git_configs;
pub use mounts::{is_local_file_system, is_remote_file_system, unescaped_mount_point};
pub use patch::{PatchAction, PatchedFile};
pub use private_file::open_private;
pub use read::{
    Encoding, FileSlice, MAX_ANSWER_BYTES, OpenDir, OpenFile, TAG_DIGITS, ctime_ns, mtime_ns,
    read_below_cwd, sha256_hex,
};
pub use read_block::ReadBlock;
pub use repository::RepositoryStamp;
pub use roots::{FinalLink, RootedPath, Roots, file_type, refuse_kernel_file_system};
pub use rules::{
    Access, CONFIG_FILE, GIT_STATE_DIR, PROTECTED_NAMES, PathRules, STATE_DIR, is_protected_name,
    protected_git_entry,
};
pub use sync::lock;
pub use tree::{DeleteScope, ExistingDir, ExistingTarget};
pub use write::{ExpectedHash, NewAttributes, Workspace, WriteMode, WriteReport, WriteState};
