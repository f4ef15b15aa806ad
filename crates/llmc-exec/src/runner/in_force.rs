//! What runs are started with: the settings, and what the user allows beyond them while the server runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use llmc_host::lock;

use super::Runner;
use crate::environment::base_environment;
use crate::protect::Guard;
use crate::settings::{Profile, Settings};

/// What the user allows runs beyond the settings (`llmc allow`). Paths are absolute and free of links; one that is not there
/// under that name, such as a link now, gives nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunAllowances {
    pub write: Vec<PathBuf>,
    pub read: Vec<PathBuf>,
    pub sockets: Vec<PathBuf>,
    pub env: Vec<String>,
    /// In place of those of the settings.
    pub git_dirs: Vec<PathBuf>,
}

/// What holds for a run from its start to its end, whatever is allowed meanwhile.
#[derive(Debug)]
pub(super) struct InForce {
    /// What was allowed, and of that what is there.
    allowed: RunAllowances,
    present: RunAllowances,
    /// With these.
    pub(super) settings: Settings,
    pub(super) guard: Arc<Guard>,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl RunAllowances {
    fn present(&self) -> RunAllowances {
        let is_there =
            |path: &&PathBuf| std::fs::canonicalize(path).is_ok_and(|real| real == **path);
        let there = |paths: &[PathBuf]| paths.iter().filter(is_there).cloned().collect();
        RunAllowances {
            write: there(&self.write),
            read: there(&self.read),
            sockets: there(&self.sockets),
            env: self.env.clone(),
            git_dirs: self.git_dirs.clone(),
        }
    }
}

impl InForce {
    pub(super) fn of_settings(settings: &Settings) -> InForce {
        let allowed = RunAllowances {
            git_dirs: settings.git_dirs.clone(),
            ..RunAllowances::default()
        };
        InForce {
            present: allowed.clone(),
            allowed,
            settings: settings.clone(),
            guard: Arc::new(Guard::new(settings)),
            env: base_environment(settings),
        }
    }

    /// The same with other allowances.
    fn with(&self, base: &Settings, allowed: RunAllowances, present: RunAllowances) -> InForce {
        let mut settings = base.clone();
        settings.extra_write.extend(present.write.iter().cloned());
        settings.extra_read.extend(present.read.iter().cloned());
        settings.sockets.extend(present.sockets.iter().cloned());
        settings.env.extend(present.env.iter().cloned());
        settings.git_dirs.clone_from(&present.git_dirs);
        InForce {
            allowed,
            present,
            guard: Arc::new(self.guard.with_settings(&settings)),
            env: base_environment(&settings),
            settings,
        }
    }
}

impl Runner {
    /// Sets what the user allows the runs that are started from now on. The restricted profile allows nothing beyond its
    /// settings.
    pub fn set_allowances(&self, allowed: RunAllowances) {
        if self.settings.profile == Profile::Restricted {
            return;
        }
        let mut current = lock(&self.in_force);
        if current.allowed != allowed {
            let present = allowed.present();
            *current = Arc::new(current.with(&self.settings, allowed, present));
        }
    }

    /// Where runs that start now may write.
    pub fn writable_places(&self) -> Vec<PathBuf> {
        self.in_force().settings.writable().cloned().collect()
    }

    /// What holds for a run that starts now.
    pub(super) fn in_force(&self) -> Arc<InForce> {
        let mut current = lock(&self.in_force);
        let present = current.allowed.present();
        if current.present != present {
            let allowed = current.allowed.clone();
            *current = Arc::new(current.with(&self.settings, allowed, present));
        }
        current.clone()
    }
}
