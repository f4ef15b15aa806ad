//! Whole lines to a byte stream, in the order they were posted.
//!
//! One task owns the stream, so lines never interleave and a dropped future never leaves half a line behind.
//! rmcp starts sending in the order it decides to and awaits later; [`Outbox::post`] queues at once, which
//! keeps a call's progress ahead of its result.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{Notify, futures::Notified, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The sending side; clones share one stream.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    lines: mpsc::UnboundedSender<OutputLine>,
    queued: Arc<QueuedBytes>,
    closed: CancellationToken,
}

/// Bytes posted and not yet written.
#[derive(Debug, Default)]
struct QueuedBytes {
    bytes: AtomicUsize,
    less: Notify,
}

#[derive(Debug)]
struct OutputLine {
    bytes: Vec<u8>,
    written: oneshot::Sender<()>,
}

/// The stream no longer takes output.
#[derive(Debug, thiserror::Error)]
#[error("the client closed its end of the output")]
pub(crate) struct OutputClosed;

impl Outbox {
    /// Starts the writing task; it ends when every clone of the outbox is gone and all is written, or at the
    /// first failed write.
    pub(crate) fn start<W>(output: W) -> (Self, JoinHandle<()>)
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (lines, receiver) = mpsc::unbounded_channel();
        let outbox = Self {
            lines,
            queued: Arc::default(),
            closed: CancellationToken::new(),
        };
        let (queued, closed) = (outbox.queued.clone(), outbox.closed.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = write_lines(output, receiver, &queued).await {
                tracing::debug!(%error, "output closed");
                closed.cancel();
            }
        });
        (outbox, task)
    }

    /// Queues one line (`bytes` without its newline) and returns a future that ends when it is written.
    pub(crate) fn post(
        &self,
        mut bytes: Vec<u8>,
    ) -> impl Future<Output = Result<(), OutputClosed>> + Send + 'static {
        bytes.push(b'\n');
        self.queued.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let (written, done) = oneshot::channel();
        // A failed send drops `written`, which the future below reports.
        let _ = self.lines.send(OutputLine { bytes, written });
        async move { done.await.map_err(|_| OutputClosed) }
    }

    /// Bytes posted and not yet written.
    pub(crate) fn queued(&self) -> usize {
        self.queued.bytes.load(Ordering::Relaxed)
    }

    /// Ends when [`queued`](Self::queued) falls the next time.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.queued.less.notified()
    }

    /// Cancelled once the stream refuses output.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

async fn write_lines<W: AsyncWrite + Unpin>(
    mut output: W,
    mut lines: mpsc::UnboundedReceiver<OutputLine>,
    queued: &QueuedBytes,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line.bytes).await?;
        output.flush().await?;
        queued.bytes.fetch_sub(line.bytes.len(), Ordering::Relaxed);
        queued.less.notify_waiters();
        let _ = line.written.send(());
    }
    Ok(())
}
