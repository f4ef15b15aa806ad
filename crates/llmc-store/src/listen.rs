//! Notifications of other servers: `LISTEN` on a connection of its own.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel, error::TryRecvError};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client};

use crate::block_on::block_on;
use crate::database::OPERATION_TIMEOUT;
use crate::schema::check_usable;
use crate::tls::TlsMaker;
use crate::{Database, Error, Result};

/// Listens on one channel of a database; connects at the first wait, and again after a failure.
#[derive(Debug)]
pub struct Listener {
    database: Database,
    channel: String,
    open: Option<OpenListener>,
}

#[derive(Debug)]
struct OpenListener {
    client: Client,
    /// One message for any number of notifications; closed when the connection is lost.
    notifications: Receiver<()>,
}

/// What a wait for notifications ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenOutcome {
    /// A notification arrived, or the connection is new: one may have been missed before it.
    Notified,
    /// None arrived, and the database answers.
    Unchanged,
}

impl Listener {
    pub(crate) fn new(database: Database, channel: String) -> Listener {
        Listener {
            database,
            channel,
            open: None,
        }
    }

    /// Waits for a notification, at most this long.
    ///
    /// # Errors
    /// The database cannot be reached, or has not answered. The next wait connects anew.
    pub fn wait(&mut self, limit: Duration) -> Result<ListenOutcome> {
        let handle = self.database.runtime_handle()?;
        let waited = block_on(&handle, async {
            match &mut self.open {
                None => {
                    let opening = open(&self.database, &self.channel);
                    let opened = timeout(OPERATION_TIMEOUT, opening).await;
                    self.open = Some(opened.map_err(|_| Error::TooSlow)??);
                    Ok(ListenOutcome::Notified)
                }
                Some(open) => open.wait(limit).await,
            }
        });
        if waited.is_err() {
            self.open = None;
        }
        waited
    }
}

impl OpenListener {
    async fn wait(&mut self, limit: Duration) -> Result<ListenOutcome> {
        match timeout(limit, self.notifications.recv()).await {
            Ok(Some(())) => Ok(ListenOutcome::Notified),
            Ok(None) => Err(Error::Lost),
            // Silence may also mean that the connection is cut.
            Err(_) => {
                let asked = timeout(OPERATION_TIMEOUT, self.client.batch_execute("SELECT"));
                asked.await.map_err(|_| Error::TooSlow)??;
                match self.notifications.try_recv() {
                    Ok(()) => Ok(ListenOutcome::Notified),
                    Err(TryRecvError::Empty) => Ok(ListenOutcome::Unchanged),
                    Err(TryRecvError::Disconnected) => Err(Error::Lost),
                }
            }
        }
    }
}

async fn open(database: &Database, channel_name: &str) -> Result<OpenListener> {
    let url = &database.settings().url;
    let (client, mut connection) = url.config().connect(TlsMaker::new(url)?).await?;
    // One message is enough: the reader reads everything anew.
    let (notify, notifications) = channel(1);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                let _ = notify.try_send(());
            }
        }
    });
    check_usable(&client).await?;
    let listen = format!("LISTEN \"{}\"", channel_name.replace('"', ""));
    client.batch_execute(&listen).await?;
    Ok(OpenListener {
        client,
        notifications,
    })
}
