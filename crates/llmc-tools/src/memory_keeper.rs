//! Keeps the memory of a server small while it waits for calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::app::App;

/// By then a client has had its answer to `initialize`, and what start alone needed is used no more.
const START_TIME: Duration = Duration::from_millis(200);
/// Resident pages of files above which those of the executable are given back after calls, too.
const MAX_RESIDENT_FILE_BYTES: usize = 24 << 20;
/// How long no call has been in progress when memory is given back: agents send calls in quick succession.
const IDLE_TIME: Duration = Duration::from_secs(1);

impl App {
    /// Gives memory back to the kernel, after the start and whenever calls have ended. Runs until it is dropped; a server
    /// that gets no calls is not woken.
    pub async fn keep_memory_small(self: Arc<App>) {
        sleep(START_TIME).await;
        let _ = spawn_blocking(|| {
            llmc_memory::trim_heap();
            llmc_memory::unmap_clean_code();
        })
        .await;
        loop {
            self.running().rest(IDLE_TIME).await;
            let _ = spawn_blocking(|| {
                llmc_memory::trim_heap();
                if llmc_memory::resident_file_bytes() > MAX_RESIDENT_FILE_BYTES {
                    llmc_memory::unmap_clean_code();
                }
            })
            .await;
        }
    }
}
