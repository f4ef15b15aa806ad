//! One thread for one call.
//!
//! A call that reads or writes files blocks, so it does not run on the async threads. Handing it to another thread at each
//! step takes longer than most calls, so it runs on one such thread from its arguments to its sealed answer.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::task::JoinHandle;

thread_local! {
    /// Whether this thread runs one call and nothing else.
    static RUNS_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs one call, so that its work may block here.
pub(crate) fn is_call_thread() -> bool {
    RUNS_CALL.get()
}

/// Runs a call on a thread of its own until it ends. Needs a tokio runtime.
pub(crate) fn run_on_call_thread<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    /// The thread is used again for other work, also after a panic.
    struct Reset;

    impl Drop for Reset {
        fn drop(&mut self) {
            RUNS_CALL.set(false);
        }
    }

    tokio::task::spawn_blocking(move || {
        let _reset = Reset;
        RUNS_CALL.set(true);
        wait_for(call)
    })
}

/// Runs a future on this thread. Not the runtime's `block_on`: that would forbid the call to use it in turn.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test]
    async fn a_call_stays_on_its_thread_and_may_wait_there() {
        let call = run_on_call_thread(async {
            let before = std::thread::current().id();
            assert!(is_call_thread());
            tokio::time::sleep(Duration::from_millis(1)).await;
            let elsewhere = tokio::spawn(async { is_call_thread() }).await;
            // As work does that waits for a slot.
            let nested = Handle::current().block_on(async { 7 });
            (
                before == std::thread::current().id(),
                elsewhere.ok(),
                nested,
            )
        });
        assert_eq!(call.await.unwrap(), (true, Some(false), 7));
    }

    #[tokio::test]
    async fn a_panic_is_the_calls_own() {
        let call = run_on_call_thread(async { panic!("of the call") });
        assert!(call.await.unwrap_err().is_panic());
        // The same thread, most likely.
        let next = tokio::task::spawn_blocking(is_call_thread);
        assert!(!next.await.unwrap());
    }
}
