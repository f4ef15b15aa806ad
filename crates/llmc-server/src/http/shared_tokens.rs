//! Tokens of the database, as this server knows them.
//!
//! A thread reads them, and again whenever the database notifies it of a change. It also notes when it last heard
//! from the database: a server that has not for longer than the grace time accepts none of them, since it would not learn
//! that one was revoked.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_observe::lock;
use llmc_store::{ListenOutcome, Listener};
use tokio_util::sync::CancellationToken;

use super::tokens::{Token, TokenLimits, is_same};
use crate::token_store::{StoredToken, TOKEN_CHANNEL, TokenStore};

/// How long the thread waits for a change before it asks whether the database is still there.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long the start of a server waits for the tokens.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The tokens that this server accepts from the database.
#[derive(Debug)]
pub(super) struct SharedTokens {
    grace: Duration,
    known: Mutex<KnownTokens>,
}

#[derive(Debug, Default)]
struct KnownTokens {
    list: Arc<Vec<SharedToken>>,
    /// When the list was last known to be current.
    current_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct SharedToken {
    stored: StoredToken,
    token: Arc<Token>,
    expires_at: Option<Instant>,
}

impl SharedTokens {
    /// Starts the thread that keeps them current until the server stops, and waits a little for the first reading.
    pub(super) fn watch(
        store: TokenStore,
        limits: TokenLimits,
        taken: Vec<String>,
        grace: Duration,
        stop: CancellationToken,
    ) -> Arc<SharedTokens> {
        let shared = Arc::new(SharedTokens {
            grace,
            known: Mutex::default(),
        });
        let (first, is_read) = sync_channel(1);
        let watcher = TokenWatcher {
            listener: store.database().listener(TOKEN_CHANNEL),
            store,
            limits,
            taken,
            shared: shared.clone(),
            stop,
        };
        let thread = std::thread::Builder::new().name("llmc-tokens".to_owned());
        match thread.spawn(move || watcher.run(&first)) {
            Ok(_) => {
                let _ = is_read.recv_timeout(FIRST_READ_TIMEOUT);
            }
            Err(error) => tracing::error!(%error, "tokens of the database do not count"),
        }
        shared
    }

    /// The token with this digest.
    pub(super) fn find(&self, digest: &[u8; 32]) -> Option<Arc<Token>> {
        let (list, current_at) = {
            let known = lock(&self.known);
            (known.list.clone(), known.current_at)
        };
        let now = Instant::now();
        let mut found = None;
        for known in list.iter() {
            if is_same(known.token.digest(), digest) {
                found = Some(known);
            }
        }
        let is_current = current_at.is_some_and(|at| now.duration_since(at) <= self.grace);
        let counts = |known: &&SharedToken| known.expires_at.is_none_or(|end| now < end);
        found
            .filter(counts)
            .filter(|_| is_current)
            .map(|known| known.token.clone())
    }
}

/// Keeps the tokens current.
struct TokenWatcher {
    store: TokenStore,
    listener: Listener,
    limits: TokenLimits,
    /// Names of the configuration's tokens.
    taken: Vec<String>,
    shared: Arc<SharedTokens>,
    stop: CancellationToken,
}

impl TokenWatcher {
    fn run(mut self, first: &SyncSender<()>) {
        let mut needs_reading = true;
        while !self.stop.is_cancelled() {
            // Before the wait: a change after this moment causes a notification.
            let asked = Instant::now();
            match self.listener.wait(ASK_INTERVAL) {
                Ok(outcome) => needs_reading |= outcome == ListenOutcome::Notified,
                Err(error) => {
                    tracing::debug!(%error, "changes of tokens cannot be awaited");
                    std::thread::sleep(RETRY_PAUSE);
                    continue;
                }
            }
            if needs_reading {
                match self.store.read() {
                    Ok(tokens) => self.take(tokens),
                    Err(error) => {
                        tracing::debug!(%error, "tokens cannot be read");
                        std::thread::sleep(RETRY_PAUSE);
                        continue;
                    }
                }
                needs_reading = false;
            }
            lock(&self.shared.known).current_at = Some(asked);
            let _ = first.try_send(());
        }
    }

    /// Takes over the tokens that were read. One that has not changed keeps its rate and its slots.
    fn take(&self, tokens: Vec<StoredToken>) {
        let before = lock(&self.shared.known).list.clone();
        let before: HashMap<&str, &SharedToken> = (before.iter())
            .map(|known| (known.stored.name.as_str(), known))
            .collect();
        let mut list = Vec::with_capacity(tokens.len());
        for stored in tokens {
            if self.taken.contains(&stored.name) {
                tracing::warn!(
                    token = stored.name,
                    "a token of the database has the name of one of the configuration, and does not count"
                );
                continue;
            }
            let same = (before.get(stored.name.as_str())).filter(|known| {
                let known = &known.stored;
                known.digest == stored.digest
                    && known.read_only == stored.read_only
                    && known.tools == stored.tools
                    && known.rate_rps == stored.rate_rps
            });
            list.push(SharedToken {
                token: match same {
                    Some(known) => known.token.clone(),
                    None => Arc::new(self.limits.stored(&stored)),
                },
                expires_at: stored.expires_in.map(|left| Instant::now() + left),
                stored,
            });
        }
        lock(&self.shared.known).list = Arc::new(list);
    }
}
