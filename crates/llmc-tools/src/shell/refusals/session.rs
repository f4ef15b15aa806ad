//! What was explained already: in a session each cause is explained in full once.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::cause::{Cause, Refusal};
use super::installs::InstallWatch;

/// Sessions whose explanations are remembered; then all are forgotten, and explained in full again.
const MAX_SESSIONS: usize = 1024;
/// Explanations in one answer.
const MAX_EXPLANATIONS: usize = 3;

/// What the answers of a server have explained.
#[derive(Debug)]
pub(crate) struct Explained {
    /// By principal and session.
    sessions: Mutex<BTreeMap<(String, String), BTreeSet<Cause>>>,
    pub(super) installs: InstallWatch,
    started: SystemTime,
}

impl Default for Explained {
    fn default() -> Explained {
        Explained {
            sessions: Mutex::default(),
            installs: InstallWatch::default(),
            started: SystemTime::now(),
        }
    }
}

impl Explained {
    /// Explanations as a session reads them: not more than a few, each cause in full once.
    pub(super) fn notes(
        &self,
        principal: &str,
        session: &str,
        refusals: &[Refusal],
    ) -> Vec<String> {
        if refusals.is_empty() {
            return Vec::new();
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (principal.to_owned(), session.to_owned());
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&key) {
            sessions.clear();
        }
        let known = sessions.entry(key).or_default();
        let notes = refusals.iter().take(MAX_EXPLANATIONS).map(|refusal| {
            match known.insert(refusal.cause) {
                true => refusal.in_full(),
                false => refusal.in_short(),
            }
        });
        notes.collect()
    }

    /// Whether a file was last changed before this server began.
    pub(super) fn is_from_before(&self, file: &Path) -> bool {
        let began = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = i64::try_from(began.as_secs()).unwrap_or(i64::MAX);
        file.metadata().is_ok_and(|status| status.mtime() < began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_explained_in_full_once_in_a_session() {
        let explained = Explained::default();
        let tracing = [Refusal::new(Cause::Tracing, "")];
        let full = explained.notes("local", "a", &tracing);
        let short = explained.notes("local", "a", &tracing);
        assert!(full[0].len() > short[0].len(), "{full:?} {short:?}");
        assert_eq!(explained.notes("local", "b", &tracing), full);
        let many: Vec<Refusal> = (0..9)
            .map(|number| Refusal::new(Cause::Hidden, number.to_string()))
            .collect();
        assert_eq!(explained.notes("local", "a", &many).len(), MAX_EXPLANATIONS);
    }
}
