//! Bounds the memory of values that wait between threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A number of bytes that values take and give back.
#[derive(Debug)]
pub(crate) struct ByteLimit {
    limit: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// Bytes that are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct TakenBytes {
    limit: Arc<ByteLimit>,
    bytes: usize,
}

impl ByteLimit {
    pub(crate) fn new(limit: usize) -> ByteLimit {
        ByteLimit {
            limit,
            taken: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Waits until there is room. A value above the limit waits until it is the only one.
    pub(crate) fn take(self: &Arc<ByteLimit>, bytes: usize) -> TakenBytes {
        let mut taken = llmc_host::lock(&self.taken);
        while *taken > 0 && taken.saturating_add(bytes) > self.limit {
            let waited = self.freed.wait(taken);
            taken = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *taken = taken.saturating_add(bytes);
        TakenBytes {
            limit: Arc::clone(self),
            bytes,
        }
    }
}

impl Drop for TakenBytes {
    fn drop(&mut self) {
        let mut taken = llmc_host::lock(&self.limit.taken);
        *taken = taken.saturating_sub(self.bytes);
        self.limit.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_wait_for_room_and_large_ones_for_all_of_it() {
        let limit = Arc::new(ByteLimit::new(10));
        let first = limit.take(6);
        let second = limit.take(4);
        let (sender, receiver) = channel();
        let waiting = {
            let limit = limit.clone();
            std::thread::spawn(move || {
                let large = limit.take(100);
                sender.send(()).unwrap();
                drop(large);
            })
        };
        drop(first);
        let still_waits = receiver.recv_timeout(Duration::from_millis(50));
        assert!(still_waits.is_err(), "4 of 10 bytes are taken");
        drop(second);
        receiver.recv().unwrap();
        waiting.join().unwrap();
        assert_eq!(*limit.taken.lock().unwrap(), 0);
    }
}
