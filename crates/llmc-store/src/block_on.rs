//! Waiting for a future on the calling thread, whatever that thread is.
//!
//! Stores are called from threads of all kinds, threads of an async runtime among them, where tokio's own `block_on`
//! panics. The future runs here; the connections that it waits for run on the database's own runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end; timers and sockets in it belong to `runtime`.
pub(crate) fn block_on<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let _context = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
