//! Notifications of other servers: `LISTEN` on one connection, which all listeners of a database share.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel, error::TryRecvError};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client};

use crate::block_on::block_on;
use crate::database::OPERATION_TIMEOUT;
use crate::migrate::check_usable;
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
    connection: Arc<ListenConnection>,
    /// One message for any number of notifications; closed when the connection is lost.
    notifications: Receiver<()>,
}

/// The connection of all listeners; closed when the last of them is dropped.
#[derive(Debug)]
struct ListenConnection {
    client: Client,
    subscribers: Subscribers,
    /// Whether a listener has found that it does not answer.
    is_broken: AtomicBool,
}

/// Channels, and where the notifications of each go.
type Subscribers = Arc<Mutex<Vec<(String, Sender<()>)>>>;

/// Where the listeners of a database find their connection.
#[derive(Debug, Default)]
pub(crate) struct ListenSlot(tokio::sync::Mutex<Weak<ListenConnection>>);

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
        if waited.is_err()
            && let Some(open) = self.open.take()
        {
            open.connection.is_broken.store(true, Ordering::Relaxed);
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
                let client = &self.connection.client;
                let asked = timeout(OPERATION_TIMEOUT, client.batch_execute("SELECT"));
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

impl ListenConnection {
    fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && !self.client.is_closed()
    }
}

async fn open(database: &Database, channel_name: &str) -> Result<OpenListener> {
    let mut slot = database.listen_slot().0.lock().await;
    let connection = match slot.upgrade().filter(|known| known.is_usable()) {
        Some(connection) => connection,
        None => {
            let connection = Arc::new(connect(database).await?);
            *slot = Arc::downgrade(&connection);
            connection
        }
    };
    drop(slot);
    // One message is enough: the reader reads everything anew.
    let (notify, notifications) = channel(1);
    lock(&connection.subscribers).push((channel_name.to_owned(), notify));
    let listen = format!("LISTEN \"{}\"", channel_name.replace('"', ""));
    connection.client.batch_execute(&listen).await?;
    Ok(OpenListener {
        connection,
        notifications,
    })
}

async fn connect(database: &Database) -> Result<ListenConnection> {
    let url = &database.settings().url;
    let (client, mut connection) = url.config().connect(TlsMaker::new(url)?).await?;
    let subscribers = Subscribers::default();
    let listeners = subscribers.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                lock(&listeners).retain(|(channel, notify)| {
                    if channel == notification.channel() {
                        let _ = notify.try_send(());
                    }
                    !notify.is_closed()
                });
            }
        }
        // Their listeners learn that the connection is lost.
        lock(&listeners).clear();
    });
    check_usable(&client).await?;
    Ok(ListenConnection {
        client,
        subscribers,
        is_broken: AtomicBool::new(false),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
