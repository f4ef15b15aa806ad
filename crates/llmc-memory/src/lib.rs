//! Gives memory that this process no longer uses back to the kernel.
//!
//! A server waits most of its life, and an MCP client often runs one for each project. Three things would stay resident
//! for nothing:
//!
//! - pages of the executable that only its start used: [`unmap_clean_code`]
//! - heap that large answers took and freed, which the C library keeps for later: [`trim_heap`]
//! - pages of mapped files that earlier questions used: [`MappedFile`]
//!
//! Must not know anything else of the workspace. This is the only crate with `unsafe` code.

mod code;
mod heap;
mod mapped;

pub use code::unmap_clean_code;
pub use heap::trim_heap;
pub use mapped::{MappedFile, resident_file_bytes};
