//! Helpers for runs: taken from the broker of a principal, which prepares them in advance, or started for one run.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use llmc_host::lock;

use super::Runner;
use crate::broker::Broker;
use crate::layer_limit::mark_large_layers;
use crate::plan::{Failure, Input, Plan};
use crate::stdio::StdioEnds;
use crate::tree::Tree;

/// A slot that the broker prepares while the server prepares the run. An unused one is released.
pub(super) struct SlotRequest<'a> {
    runner: &'a Runner,
    principal: &'a str,
    open: bool,
}

impl<'a> SlotRequest<'a> {
    /// Asks for a slot if a broker runs; else [`SlotRequest::take`] starts one.
    pub(super) fn new(runner: &'a Runner, principal: &'a str) -> SlotRequest<'a> {
        let mut held = lock(&runner.brokers);
        let asked = held.get_mut(principal).map(Broker::ask);
        if let Some(Err(_)) = asked {
            held.remove(principal);
        }
        SlotRequest {
            runner,
            principal,
            open: matches!(asked, Some(Ok(()))),
        }
    }

    fn take(mut self) -> io::Result<Result<UnixStream, Failure>> {
        self.open = false;
        self.runner.slot(self.principal)
    }
}

impl Drop for SlotRequest<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.runner.slot(self.principal);
        }
    }
}

impl Runner {
    /// Starts a helper on a plan: in a namespace the broker has ready, or, without pid namespaces, by itself.
    pub(super) fn start(
        &self,
        cwd: &OwnedFd,
        plan: &Plan,
        input: Input,
        slot_request: SlotRequest<'_>,
    ) -> io::Result<Result<Tree, Failure>> {
        let ends = StdioEnds::new(input)?;
        if !self.features.pid {
            return Tree::with_own_helper(&self.settings.helper, cwd, plan, ends);
        }
        match slot_request.take()? {
            Ok(slot) => {
                let is_command = plan.target.is_some();
                let cgroup = is_command
                    .then(|| self.cgroups.make(&plan.limits))
                    .flatten();
                Tree::in_slot(slot, cwd, plan, ends, cgroup).map(Ok)
            }
            Err(failure) => Ok(Err(failure)),
        }
    }

    fn slot(&self, principal: &str) -> io::Result<Result<UnixStream, Failure>> {
        let mut held = lock(&self.brokers);
        if let Some(broker) = held.get_mut(principal) {
            match broker.slot() {
                // Gone or out of step: a new one takes its place.
                Err(_) => {
                    held.remove(principal);
                }
                Ok(slot) => return Ok(slot),
            }
        }
        let stage = self.stage(principal);
        let stores = stage.iter().flat_map(|stage| &stage.layers);
        let stores: Vec<PathBuf> = stores
            .filter_map(|layer| layer.store.clone().map(PathBuf::from))
            .collect();
        match Broker::start(&self.settings.helper, self.features, stage)? {
            Ok(mut broker) => {
                mark_large_layers(stores, self.settings.cache_max_bytes);
                let slot = broker.slot();
                held.insert(principal.to_owned(), broker);
                slot
            }
            Err(failure) => Ok(Err(failure)),
        }
    }
}
