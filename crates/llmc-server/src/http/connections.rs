//! The connections that are open, and which of them makes room for the next.
//!
//! Every connection takes a descriptor, and a client needs no token to open one. So connections that have not
//! authenticated may take only a part of the descriptors, and when there is no room left, one is closed: first those
//! without a token, the longest idle before the others; then idle ones with a token. A connection whose authenticated
//! request is being answered is never closed for another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::connection::Connection;

/// Of four connections, at most three without a token; the rest is reserved for those with one.
const UNAUTHENTICATED_SHARE: (usize, usize) = (3, 4);
/// How long a new connection waits for one that is being closed.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// The open connections of a server.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    limit: usize,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    closed: Notify,
}

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    number: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.open().remove(&self.number);
        self.table.closed.notify_one();
    }
}

impl ConnectionTable {
    pub(super) fn new(limit: usize) -> Arc<ConnectionTable> {
        Arc::new(ConnectionTable {
            limit,
            next: AtomicU64::new(0),
            open: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// A place for a new connection, if need be that of another. `None` when no other can be closed.
    pub(super) async fn admit(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Option<ConnectionSlot> {
        let admitted = async {
            loop {
                match self.try_admit(connection) {
                    Ok(slot) => return Some(slot),
                    Err(RoomError::Closing) => self.closed.notified().await,
                    Err(RoomError::AllBusy) => return None,
                }
            }
        };
        tokio::time::timeout(ROOM_TIMEOUT, admitted).await.ok()?
    }

    fn try_admit(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<ConnectionSlot, RoomError> {
        let mut open = self.open();
        let unauthenticated = open.values().filter(|other| !other.is_authenticated());
        let (part, of) = UNAUTHENTICATED_SHARE;
        let is_full = open.len() >= self.limit;
        if is_full || unauthenticated.count() >= (self.limit * part / of).max(1) {
            if open.values().any(|other| other.is_evicted()) {
                return Err(RoomError::Closing);
            }
            // Only a full table takes the place of an authenticated connection.
            let victim = open
                .values()
                .filter(|other| !other.is_authenticated() || (is_full && other.is_idle()))
                .min_by_key(|other| {
                    (
                        other.is_authenticated(),
                        !other.is_idle(),
                        other.last_active(),
                    )
                });
            let Some(victim) = victim else {
                return Err(RoomError::AllBusy);
            };
            victim.evict();
            return Err(RoomError::Closing);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, connection.clone());
        Ok(ConnectionSlot {
            table: self.clone(),
            number,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no room.
enum RoomError {
    /// A connection is being closed.
    Closing,
    /// Every connection answers an authenticated request.
    AllBusy,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(String::new()))
    }

    #[tokio::test]
    async fn silent_connections_make_room_and_authenticated_ones_stay() {
        let table = ConnectionTable::new(8);
        let trusted = connection();
        let kept = table.admit(&trusted).await.unwrap();
        trusted.request_begins();
        trusted.authenticated();
        let mut silent = Vec::new();
        // Six without a token are a share of three quarters.
        for _ in 0..6 {
            let one = connection();
            let slot = table.admit(&one).await.unwrap();
            silent.push((one, Some(slot)));
        }
        let next = connection();
        let waiting = {
            let (table, next) = (table.clone(), next.clone());
            tokio::spawn(async move { table.admit(&next).await.is_some() })
        };
        let first = silent[0].0.clone();
        first.evicted().await;
        assert!(!silent[1..].iter().any(|(one, _)| one.is_evicted()));
        silent[0].1.take();
        assert!(waiting.await.unwrap());
        assert!(!trusted.is_evicted());
        drop(kept);
    }

    #[tokio::test]
    async fn nothing_makes_room_when_every_connection_answers_an_authenticated_request() {
        let table = ConnectionTable::new(2);
        let both = [connection(), connection()];
        let mut slots = Vec::new();
        for one in &both {
            slots.push(table.admit(one).await.unwrap());
            one.request_begins();
            one.authenticated();
        }
        assert!(table.admit(&connection()).await.is_none());
        // An idle one does.
        both[1].request_ends();
        let table_of_task = table.clone();
        let waiting =
            tokio::spawn(async move { table_of_task.admit(&connection()).await.is_some() });
        both[1].evicted().await;
        slots.pop();
        assert!(waiting.await.unwrap());
        assert!(!both[0].is_evicted());
    }
}
