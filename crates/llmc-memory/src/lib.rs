//! Gives memory that this process no longer uses back to the kernel.
//!
//! A server waits most of its life, and an MCP client often runs one for each project. Three things would stay resident
//! for nothing:
//!
//! - pages of the executable that only its start used: [`unmap_clean_code`]
//! - heap that large answers took and freed, which the C library keeps for later, in many heaps if there are many threads:
//!   [`trim_heap`], [`share_heaps_between_threads`]
//! - pages of mapped files that earlier questions used: [`MappedFile`]
//!
//! Must not know anything else of the workspace. With `llmc-supervise` the only crate with `unsafe` code.

mod code;
mod heap;
mod mapped;

pub use code::unmap_clean_code;
pub use heap::{share_heaps_between_threads, trim_heap};
pub use mapped::{MappedFile, resident_file_bytes};
