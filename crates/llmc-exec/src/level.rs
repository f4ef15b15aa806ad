//! What the kernel enforces for a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing the kernel may or may not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Feature {
    UserSpace,
    FullMap,
    MountSpace,
    PidSpace,
    FreshProc,
    NetSpace,
    Landlock,
    Seccomp,
}

/// The kernel features of one run: asked for, or, once a probe has succeeded, proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Features {
    pub(super) user: bool,
    /// The user namespace knows every id of the server's own, not just one.
    pub(super) full_map: bool,
    pub(super) mount: bool,
    pub(super) pid: bool,
    /// `/proc` shows the run's processes only.
    pub(super) fresh_proc: bool,
    pub(super) net: bool,
    pub(super) landlock: bool,
    pub(super) seccomp: bool,
}

impl Features {
    /// Everything, for a server that is root or not.
    pub(super) fn all(root: bool, network: bool) -> Features {
        Features {
            user: true,
            full_map: root,
            mount: true,
            pid: true,
            fresh_proc: true,
            net: !network,
            landlock: true,
            seccomp: true,
        }
    }

    /// Takes away what turned out not to work, and what cannot work without it. `false` if it was not there.
    pub(super) fn remove(&mut self, feature: Feature, root: bool) -> bool {
        let before = *self;
        match feature {
            Feature::UserSpace => {
                self.user = false;
                self.full_map = false;
                if !root {
                    (self.mount, self.pid, self.net) = (false, false, false);
                }
            }
            Feature::FullMap => self.full_map = false,
            Feature::MountSpace => self.mount = false,
            Feature::PidSpace => self.pid = false,
            Feature::FreshProc => self.fresh_proc = false,
            Feature::NetSpace => self.net = false,
            Feature::Landlock => self.landlock = false,
            Feature::Seccomp => self.seccomp = false,
        }
        self.fresh_proc &= self.mount && self.pid;
        *self != before
    }
}

/// How the server's own files in the writable roots are kept from commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The kernel refuses: read-only mounts.
    Mount,
    /// Changes are found and undone after the run.
    Detect,
    /// Not at all.
    None,
}

/// What the kernel enforces for every run of one [`Runner`](super::Runner), as proven by a run at start.
///
/// Prints as `landlock=7,userns,mntns,pidns,netns,seccomp,protected=mount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfinementLevel {
    /// The Landlock ABI in force.
    pub landlock: Option<u32>,
    /// A user namespace: capabilities mean nothing outside.
    pub userns: bool,
    /// A mount namespace: everything read-only but the write roots.
    pub mountns: bool,
    /// A pid namespace: other processes cannot be named, and none of the run's survives.
    pub pidns: bool,
    /// `/proc` is the run's own. Without it host processes can be listed.
    pub procfs: bool,
    /// A network namespace with nothing but a loopback of its own.
    pub netns: bool,
    /// Whether the network was to be kept away.
    pub network: bool,
    /// System calls are filtered.
    pub seccomp: bool,
    /// How the server's own files are kept.
    pub protected: Protection,
}

impl ConfinementLevel {
    /// No confinement at all.
    pub(super) const OFF: ConfinementLevel = ConfinementLevel {
        landlock: None,
        userns: false,
        mountns: false,
        pidns: false,
        procfs: false,
        netns: false,
        network: true,
        seccomp: false,
        protected: Protection::None,
    };

    pub(super) fn new(
        features: Features,
        landlock: Option<u32>,
        network: bool,
    ) -> ConfinementLevel {
        ConfinementLevel {
            landlock,
            userns: features.user,
            mountns: features.mount,
            pidns: features.pid,
            procfs: features.fresh_proc,
            netns: features.net,
            network,
            seccomp: features.seccomp,
            protected: if features.mount {
                Protection::Mount
            } else {
                Protection::Detect
            },
        }
    }

    /// What full confinement would need and this kernel does not give.
    pub fn missing(&self) -> Vec<&'static str> {
        let needs = [
            // Below ABI 3 truncation is not covered.
            (self.landlock.is_some_and(|abi| abi >= 3), "landlock"),
            (self.userns, "userns"),
            (self.mountns, "mntns"),
            (self.pidns, "pidns"),
            (self.procfs, "procfs"),
            (self.netns || self.network, "netns"),
            (self.seccomp, "seccomp"),
            (
                self.protected == Protection::Mount,
                "protected names as mounts",
            ),
        ];
        let missing = needs.into_iter().filter(|(there, _)| !there);
        missing.map(|(_, name)| name).collect()
    }
}

impl fmt::Display for ConfinementLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ConfinementLevel::OFF {
            return f.write_str("none");
        }
        if let Some(abi) = self.landlock {
            write!(f, "landlock={abi},")?;
        }
        let names = [
            (self.userns, "userns"),
            (self.mountns, "mntns"),
            (self.pidns, "pidns"),
            (self.pidns && !self.procfs, "hostproc"),
            (self.netns, "netns"),
            (self.seccomp, "seccomp"),
        ];
        for (_, name) in names.into_iter().filter(|(there, _)| *there) {
            write!(f, "{name},")?;
        }
        f.write_str(match self.protected {
            Protection::Mount => "protected=mount",
            Protection::Detect => "protected=detect",
            Protection::None => "protected=none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_reads_as_one_line() {
        let mut features = Features::all(true, false);
        let line = ConfinementLevel::new(features, Some(7), false).to_string();
        assert_eq!(
            line,
            "landlock=7,userns,mntns,pidns,netns,seccomp,protected=mount"
        );
        assert!(features.remove(Feature::UserSpace, false));
        assert!(!features.remove(Feature::NetSpace, false));
        let level = ConfinementLevel::new(features, Some(7), false);
        assert_eq!(level.to_string(), "landlock=7,seccomp,protected=detect");
        assert_eq!(
            level.missing()[..3],
            ["userns", "mntns", "pidns"],
            "what full confinement lacks is named"
        );
        assert_eq!(ConfinementLevel::OFF.to_string(), "none");
    }
}
