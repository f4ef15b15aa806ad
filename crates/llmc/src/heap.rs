//! Keeps the heap of a server small, which waits most of its life: an MCP client often runs one for each project.
//!
//! With `llmc-supervise` the only code that calls the kernel or the C library without a safe wrapper.
#![allow(unsafe_code, reason = "glibc's settings of its allocator")]

use std::sync::Arc;
use std::time::Duration;

use llmc_tools::App;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// By then a client has had its answer to `initialize`, and what start alone needed is used no more.
const START_TIME: Duration = Duration::from_millis(200);
/// How long no call has been in progress when memory is given back: agents send calls in quick succession.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// The most heaps that threads are spread over, on a machine with many processors.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: usize = 8;

/// Gives freed memory back to the kernel, after the start and whenever calls have ended. Runs until it is dropped; a server
/// that gets no calls is not woken.
pub(crate) async fn keep_small(app: Arc<App>) {
    sleep(START_TIME).await;
    loop {
        let _ = spawn_blocking(trim).await;
        app.rest_between_calls(IDLE_TIME).await;
    }
}

/// Lets all threads share a few heaps, one for each processor. By default glibc makes eight for each, and every one keeps what
/// its threads once took: a server answers calls on many threads, of which few run at a time.
///
/// To be called before there are other threads. Does nothing where the C library is not glibc.
pub(crate) fn share_between_threads() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let arenas = processors.clamp(2, MAX_ARENAS) as libc::c_int;
        // SAFETY: `mallopt` changes a number that the allocator reads under its own lock.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, arenas);
        }
    }
}

/// Returns freed pages to the kernel, those of all threads. Costs about a millisecond for each 50 MB of heap.
///
/// Does nothing where the C library is not glibc.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes the allocator's own locks and releases only pages that hold no allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::{MAX_ARENAS, share_between_threads, trim};

    #[test]
    fn many_threads_share_few_heaps() {
        const THREADS: usize = 64;
        /// A heap of glibc starts at a multiple of this.
        const HEAP_ALIGNMENT: usize = 64 << 20;
        share_between_threads();
        let all_allocated = Barrier::new(THREADS);
        let heaps: HashSet<usize> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let block = vec![1_u8; 4096];
                        all_allocated.wait();
                        block.as_ptr() as usize / HEAP_ALIGNMENT
                    })
                })
                .collect();
            let ended = started.into_iter().map(|thread| thread.join().unwrap());
            ended.collect()
        });
        // Threads of other tests may have made some before; the default on two processors is 16.
        assert!(heaps.len() < 2 * MAX_ARENAS - 4, "{} heaps", heaps.len());
    }

    #[test]
    fn freed_blocks_below_a_living_one_are_returned() {
        // Blocks too small to be mappings of their own. The last one lives, so that the heap cannot shrink from its end.
        let blocks: Vec<Vec<u8>> = (0..4096).map(|n| vec![n as u8 | 1; 16 << 10]).collect();
        let last = vec![1_u8; 16 << 10];
        let full = anonymous_kb();
        drop(blocks);
        trim();
        let trimmed = anonymous_kb();
        assert!(
            trimmed + (48 << 10) < full,
            "{full} kB before, {trimmed} kB after"
        );
        assert_eq!(last[7], 1);
    }

    /// Resident pages of this process that belong to no file.
    #[allow(clippy::disallowed_methods, reason = "tests look from outside")]
    fn anonymous_kb() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
