//! Tells the other servers that this one is running, while it has something that they must leave alone.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use llmc_host::lock;
use llmc_store::Database;

/// Others take over four times this after the last sign.
const INTERVAL: Duration = Duration::from_secs(3);

/// What this process protects.
pub(super) struct Pulse {
    database: Database,
    server: String,
    held: Mutex<Held>,
    /// Something was given back.
    released: Condvar,
}

#[derive(Default)]
struct Held {
    workspace: i64,
    calls: HashSet<String>,
    plans: HashSet<String>,
    is_building: bool,
    is_thread_running: bool,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.plans.is_empty() && !self.is_building
    }
}

impl Pulse {
    pub(super) fn new(database: Database) -> Pulse {
        Pulse {
            database,
            server: ulid::Ulid::new().to_string(),
            held: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// The name of this process in rows.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn begin_call(self: &Arc<Pulse>, workspace: i64, call: &str) {
        self.hold(workspace, |held| {
            held.calls.insert(call.to_owned());
        });
    }

    pub(super) fn end_call(&self, call: &str) {
        self.release(|held| {
            held.calls.remove(call);
        });
    }

    pub(super) fn begin_plan(self: &Arc<Pulse>, workspace: i64, plan: &str) {
        self.hold(workspace, |held| {
            held.plans.insert(plan.to_owned());
        });
    }

    pub(super) fn end_plan(&self, plan: &str) {
        self.release(|held| {
            held.plans.remove(plan);
        });
    }

    /// Keeps the right to take the first snapshot until the value is dropped.
    pub(super) fn build(self: &Arc<Pulse>, workspace: i64) -> BuildPulse {
        self.hold(workspace, |held| held.is_building = true);
        BuildPulse {
            pulse: Arc::clone(self),
            workspace,
        }
    }

    fn hold(self: &Arc<Pulse>, workspace: i64, change: impl FnOnce(&mut Held)) {
        let mut held = lock(&self.held);
        held.workspace = workspace;
        change(&mut held);
        if held.is_thread_running {
            return;
        }
        let weak = Arc::downgrade(self);
        let spawned = std::thread::Builder::new()
            .name("history-pulse".to_owned())
            .spawn(move || beat(&weak));
        match spawned {
            Ok(_) => held.is_thread_running = true,
            Err(error) => tracing::warn!(%error, "no thread tells other servers of this one"),
        }
    }

    fn release(&self, change: impl FnOnce(&mut Held)) {
        let mut held = lock(&self.held);
        change(&mut held);
        if held.is_empty() {
            self.released.notify_all();
        }
    }

    /// Waits for the next sign; `false` when nothing is held any more, and the thread ends.
    fn wait(&self) -> bool {
        let held = lock(&self.held);
        let waited = self
            .released
            .wait_timeout_while(held, INTERVAL, |held| !held.is_empty());
        let (mut held, _) = waited.unwrap_or_else(PoisonError::into_inner);
        held.is_thread_running = !held.is_empty();
        held.is_thread_running
    }

    fn write(&self) {
        let (workspace, calls, plans, is_building) = {
            let held = lock(&self.held);
            let list = |names: &HashSet<String>| names.iter().cloned().collect::<Vec<_>>();
            let (calls, plans) = (list(&held.calls), list(&held.plans));
            (held.workspace, calls, plans, held.is_building)
        };
        let written = self.database.transaction(async |tx| {
            let sql = "WITH calls AS (UPDATE llmc.history_active SET seen_at = clock_timestamp() \
                         WHERE workspace = $1 AND call = ANY($2)), \
                       plans AS (UPDATE llmc.history_plans SET seen_at = clock_timestamp() \
                         WHERE workspace = $1 AND id = ANY($3) AND server = $4), \
                       build AS (UPDATE llmc.history_workspaces SET builder_seen_at = clock_timestamp() \
                         WHERE number = $1 AND builder = $4 AND $5) SELECT 1";
            tx.query_and_commit(
                sql,
                &[&workspace, &calls, &plans, &self.server, &is_building],
            )
            .await
        });
        if let Err(error) = written {
            tracing::debug!(%error, "other servers were not told of this one");
        }
    }
}

fn beat(weak: &Weak<Pulse>) {
    while let Some(pulse) = weak.upgrade() {
        if !pulse.wait() {
            return;
        }
        pulse.write();
    }
}

/// The first snapshot in the making.
pub(super) struct BuildPulse {
    pulse: Arc<Pulse>,
    workspace: i64,
}

impl Drop for BuildPulse {
    fn drop(&mut self) {
        self.pulse.release(|held| held.is_building = false);
        let _ = self.pulse.database.transaction(async |tx| {
            let sql = "UPDATE llmc.history_workspaces SET builder = NULL WHERE number = $1 AND builder = $2";
            tx.query_and_commit(sql, &[&self.workspace, &self.pulse.server])
                .await
        });
    }
}
