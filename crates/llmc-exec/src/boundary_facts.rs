//! What the boundary of commands allows, as facts that distinguish a refusal from another failure.
//!
//! The kernel reports a refused path to nobody. A caller that finds a path in the output of a command asks here what the
//! boundary does with that place, so that an explanation rests on the rules in force and not on the text alone.

use std::path::{Path, PathBuf};

use super::environment::withheld_names;
use super::home::TOOL_FOLDERS;
use super::level::ConfinementLevel;
use super::plan::file_name_of;
use super::runner::{PrivateLayer, Runner};
use super::settings::Settings;
use super::view::{hidden_places, is_live_socket, is_text_of};

/// Folders of which commands have their own where there are mounts.
const OWN_DIRS: [&str; 4] = ["/tmp", "/dev", "/proc", "/run"];

/// What a command may do with a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceRule {
    /// Change it as the user may.
    Writable,
    /// Change it in a private layer that the user's shell does not see.
    Private,
    /// Use one of the session's own in its place.
    Own,
    /// Read it.
    ReadOnly,
    /// Not even that: it is outside of what runs of this profile may read.
    Unreadable,
}

/// A place that commands see otherwise than it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenFact {
    /// Its real path.
    pub path: PathBuf,
    /// Whether it is a settings file, of which commands see all but its secrets.
    pub is_settings: bool,
    /// Whether it is a settings file that has some.
    pub has_secrets: bool,
}

/// The rules in force for commands of one runner.
#[derive(Debug, Clone, Copy)]
pub struct BoundaryFacts<'a> {
    pub settings: &'a Settings,
    pub level: &'a ConfinementLevel,
    pub layers: &'a [PrivateLayer],
}

impl Runner {
    /// The rules in force for its commands.
    pub fn facts(&self) -> BoundaryFacts<'_> {
        BoundaryFacts {
            settings: self.settings(),
            level: self.level(),
            layers: self.layers(),
        }
    }
}

impl BoundaryFacts<'_> {
    /// What commands may do with a place, by its real path. Protected names and hidden places are not considered.
    pub fn rule(&self, real: &Path) -> PlaceRule {
        let is_bounded = self.level.mountns || self.level.landlock.is_some();
        if !is_bounded {
            return PlaceRule::Writable;
        }
        let is_in = |dir: &PathBuf| real.starts_with(dir);
        if self.settings.read_only_system_dirs().iter().any(is_in) {
            return PlaceRule::ReadOnly;
        }
        if self.settings.writable().any(is_in) {
            return PlaceRule::Writable;
        }
        if let Some(rule) = self.rule_in_layers(real) {
            return rule;
        }
        let shown = self.settings.read_roots.iter().chain(&self.settings.home);
        let is_shown = shown.into_iter().any(is_in);
        if self.level.mountns && !is_shown && OWN_DIRS.iter().any(|dir| real.starts_with(dir)) {
            return PlaceRule::Own;
        }
        let seen = self.settings.sees.as_ref();
        match seen.is_none_or(|seen| seen.iter().any(is_in)) {
            true => PlaceRule::ReadOnly,
            false => PlaceRule::Unreadable,
        }
    }

    /// What the private layer over the home directory, or over a folder of a tool chain elsewhere, makes of a place in it.
    fn rule_in_layers(&self, real: &Path) -> Option<PlaceRule> {
        let mut layers = self.layers.iter().filter(|layer| layer.store.is_some());
        let (layer, inside) =
            layers.find_map(|layer| Some((layer, real.strip_prefix(&layer.path).ok()?)))?;
        if self.settings.home.as_ref() != Some(&layer.path) {
            return Some(PlaceRule::Private);
        }
        let first = inside.components().next().map(|name| name.as_os_str());
        let mut folders = TOOL_FOLDERS.iter();
        Some(match folders.any(|folder| first == Some(folder.as_ref())) {
            true => PlaceRule::Private,
            false => PlaceRule::ReadOnly,
        })
    }

    /// The places that are hidden and exist right now; none where nothing can hide them.
    pub fn hidden(&self) -> Vec<HiddenFact> {
        if !self.level.mountns && self.level.landlock.is_none() {
            return Vec::new();
        }
        let places = hidden_places(self.settings).into_iter();
        places
            .filter(|place| self.level.mountns || !place.is_settings)
            .map(|place| HiddenFact {
                has_secrets: place.is_settings && !is_text_of(&place.text, place.path.as_ref()),
                is_settings: place.is_settings,
                path: place.path.into(),
            })
            .collect()
    }

    /// Whether a program of the host listens on this socket.
    pub fn is_host_socket(&self, real: &Path) -> bool {
        is_live_socket(real)
    }

    /// Variables of the server's own environment that commands do not get, without the server's own ones.
    pub fn withheld_names(&self) -> Vec<String> {
        withheld_names(self.settings)
    }

    /// The layers of a principal that are kept on the disk: the user's folder, and where what commands write in it is.
    pub fn layer_dirs(&self, principal: &str) -> Vec<(PathBuf, PathBuf)> {
        let Some(state) = &self.settings.state_dir else {
            return Vec::new();
        };
        // Servers of one workspace have folders of their own, which end in a number.
        let name = file_name_of(principal);
        let is_of_principal = |found: &str| {
            let rest = found.strip_prefix(&name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let stores = std::fs::read_dir(state.join("caches"));
        let stores = stores.into_iter().flatten().flatten();
        let stores = stores.filter(|entry| is_of_principal(&entry.file_name().to_string_lossy()));
        let layers = self.layers.iter().filter(|layer| layer.store.is_some());
        let layers: Vec<&Path> = layers.map(|layer| layer.path.as_path()).collect();
        let mut dirs = Vec::new();
        for store in stores {
            dirs.extend(layers.iter().map(|layer| {
                let upper = store.path().join(file_name_of(layer)).join("upper");
                (layer.to_path_buf(), upper)
            }));
        }
        dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LayerStore;
    use crate::{Protection, Settings};

    const LEVEL: ConfinementLevel = ConfinementLevel {
        landlock: Some(7),
        userns: true,
        mountns: true,
        pidns: true,
        procfs: true,
        netns: false,
        network: true,
        seccomp: true,
        protected: Protection::Mount,
    };

    fn settings() -> Settings {
        Settings {
            home: Some("/home/u".into()),
            write_roots: vec!["/home/u/src/w".into(), "/tmp/root".into()],
            extra_write: vec!["/srv/data".into()],
            ..Settings::default()
        }
    }

    #[test]
    fn each_place_has_its_rule() {
        let settings = settings();
        let layers = [PrivateLayer {
            path: "/home/u".into(),
            store: Some(LayerStore::Disk),
        }];
        let facts = BoundaryFacts {
            settings: &settings,
            level: &LEVEL,
            layers: &layers,
        };
        for (path, rule) in [
            ("/home/u/src/w/a", PlaceRule::Writable),
            ("/srv/data/x", PlaceRule::Writable),
            ("/tmp/root/x", PlaceRule::Writable),
            ("/tmp/x", PlaceRule::Own),
            ("/dev/kvm", PlaceRule::Own),
            ("/home/u/.cargo/bin/x", PlaceRule::Private),
            ("/home/u/go/bin", PlaceRule::Private),
            ("/home/u/notes.txt", PlaceRule::ReadOnly),
            ("/home/u/src/other", PlaceRule::ReadOnly),
            ("/home/u", PlaceRule::ReadOnly),
            ("/etc/hosts", PlaceRule::ReadOnly),
        ] {
            assert_eq!(facts.rule(Path::new(path)), rule, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_had_here_refuses_nothing() {
        let settings = settings();
        let rule = |level: &ConfinementLevel, path: &str| {
            let facts = BoundaryFacts {
                settings: &settings,
                level,
                layers: &[],
            };
            facts.rule(Path::new(path))
        };
        let off = ConfinementLevel::OFF;
        assert_eq!(rule(&off, "/home/u/notes.txt"), PlaceRule::Writable);
        let no_mounts = ConfinementLevel {
            mountns: false,
            ..LEVEL
        };
        assert_eq!(rule(&no_mounts, "/tmp/x"), PlaceRule::ReadOnly);
        assert_eq!(rule(&no_mounts, "/home/u/.cargo/x"), PlaceRule::ReadOnly);
        let bounded = Settings {
            sees: Some(vec!["/usr".into()]),
            ..settings.clone()
        };
        let facts = BoundaryFacts {
            settings: &bounded,
            level: &LEVEL,
            layers: &[],
        };
        assert_eq!(facts.rule(Path::new("/opt/x")), PlaceRule::Unreadable);
        assert_eq!(facts.rule(Path::new("/usr/x")), PlaceRule::ReadOnly);
    }
}
