//! The index of the workspace: opened when first needed, kept current by a thread from the first question on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llmc_config::{Config, EmbeddingProvider};
use llmc_host::CancelToken;
use llmc_index::{Index, IndexState};
use serde_json::{Value, json};

use crate::app::App;
use crate::embedding;

/// How long a state that was looked up is given again: `health` is asked often, and a look reads files.
const STATE_MAX_AGE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct IndexKeeper {
    /// Where the index lies, or why there can be none.
    dir: Result<PathBuf, String>,
    index: OnceLock<Index>,
    is_kept: AtomicBool,
    state: Mutex<Option<(Instant, IndexState)>>,
}

impl IndexKeeper {
    pub(crate) fn new(dir: Result<PathBuf, String>) -> IndexKeeper {
        IndexKeeper {
            dir,
            index: OnceLock::new(),
            is_kept: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// The index; without a state directory there is none, and searches go over the files.
    pub(crate) fn index(&self, config: &Config) -> &Index {
        self.index.get_or_init(|| {
            let index = match &self.dir {
                Ok(dir) => Index::at(dir),
                Err(why) => Index::unavailable(why.clone()),
            };
            if config.mcp.rag.embedding.provider == EmbeddingProvider::None {
                return index.without_word_vectors();
            }
            if self.dir.is_err() {
                return index;
            }
            match embedding::embedder(config) {
                Some(embedder) => index.with_embedder(embedder),
                None => index,
            }
        })
    }

    /// The state of the index, looked up now and then.
    pub(crate) fn state(&self, config: &Config) -> IndexState {
        let mut seen = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((at, state)) if at.elapsed() < STATE_MAX_AGE => state,
            _ => {
                let state = self.index(config).state();
                *seen = Some((Instant::now(), state));
                state
            }
        }
    }
}

impl App {
    /// The index of the workspace.
    pub fn index(&self) -> &Index {
        self.index_keeper().index(self.config())
    }

    /// How far this process is with looking at the whole tree, while it does.
    pub fn index_progress(&self) -> Option<Value> {
        let progress = self.index().progress();
        let (done, total) = (progress.done(), progress.total());
        progress
            .is_running()
            .then(|| json!({"done": done, "total": total.max(done)}))
    }

    /// Begins to keep the index where questions are to be expected: tools that need it are offered, and the workspace
    /// is a repository or has an index already. Elsewhere (a home directory, a mode without retrieval) the first
    /// question begins it.
    pub fn expect_questions(self: &Arc<App>) {
        let offered = self.listing().iter().any(|tool| tool.retrieves);
        let is_kept = self.index_keeper().is_kept.load(Ordering::Relaxed);
        let worth_it = || self.root().join(".git").exists() || self.index().bytes() > 0;
        if offered && !is_kept && worth_it() {
            self.keep_index();
        }
    }

    /// Keeps the index current in the background from now on; asking again changes nothing.
    pub(crate) fn keep_index(self: &Arc<App>) {
        if self.index_keeper().is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        self.index().mark_kept();
        let app = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || {
                let roots = app.files().roots.clone();
                app.index().keep_current(&roots, &CancelToken::default());
            });
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "no thread to keep the index");
        }
    }
}
