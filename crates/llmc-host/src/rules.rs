//! Which names are off limits, whatever the roots allow.
//!
//! The agent must never change what decides over the agent: the configuration, the state directory, the audit file,
//! git's hooks and configuration (which run programs on the user's next `git status`). These are matched on the resolved
//! path, at any depth and in any case, so neither a link nor a nested repository nor a case-folding file system is a way
//! round.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, Result};

/// The state directory's name inside a workspace.
pub const STATE_DIR: &str = ".llmc";
/// The configuration file's name.
pub const CONFIG_FILE: &str = "llmc.toml";

/// What a caller wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Look at it or its content.
    Read,
    /// Create it or change its content.
    Write,
    /// Move it away, move something onto it, or delete it.
    Replace,
}

/// The rules of one server.
#[derive(Debug, Default)]
pub struct Rules {
    state_dir: Option<PathBuf>,
    protected: Vec<PathBuf>,
    denylist: GlobSet,
    denylist_reads: bool,
}

impl Rules {
    /// Rules for a state directory and further protected files (configuration, audit, policy), all canonical.
    pub fn new(state_dir: Option<PathBuf>, protected: Vec<PathBuf>) -> Rules {
        Rules {
            state_dir,
            protected,
            ..Rules::default()
        }
    }

    /// Adds the denylist. Globs match the file name alone, in any case; `on_reads` applies them to every file tool.
    ///
    /// # Errors
    /// A glob that does not parse.
    pub fn with_denylist(mut self, globs: &[String], on_reads: bool) -> Result<Rules> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let name = glob.rsplit('/').next().unwrap_or(glob);
            let glob = GlobBuilder::new(name).case_insensitive(true).build();
            set.add(glob.map_err(|error| Error::BadPattern(error.to_string()))?);
        }
        self.denylist = set
            .build()
            .map_err(|error| Error::BadPattern(error.to_string()))?;
        self.denylist_reads = on_reads;
        Ok(self)
    }

    /// Whether the denylist names this file.
    pub fn denylisted(&self, path: &Path) -> bool {
        path.file_name()
            .is_some_and(|name| self.denylist.is_match(name))
    }

    /// Whether content of denylisted files is kept from every tool.
    pub fn denylist_reads(&self) -> bool {
        self.denylist_reads
    }

    /// The part of the check that needs only the text that was asked for.
    pub(crate) fn check_asked(&self, asked: &str, _access: Access) -> Result<()> {
        if self.denylist_reads && self.denylisted(Path::new(asked)) {
            return Err(Error::Denylisted {
                path: asked.to_owned(),
            });
        }
        Ok(())
    }

    /// Checks a resolved absolute path.
    pub(crate) fn check(&self, path: &Path, asked: &str, access: Access) -> Result<()> {
        if self.denylist_reads && self.denylisted(path) {
            return Err(Error::Denylisted {
                path: asked.to_owned(),
            });
        }
        match self.protected_part(path, access) {
            Some(what) => Err(Error::Protected {
                path: asked.to_owned(),
                what,
            }),
            None => Ok(()),
        }
    }

    /// The protected thing that this access would touch.
    pub(crate) fn protected_part(&self, path: &Path, access: Access) -> Option<String> {
        let is = |part: &[u8], name: &str| part.eq_ignore_ascii_case(name.as_bytes());
        let parts: Vec<&[u8]> = path
            .components()
            .map(|part| part.as_os_str().as_bytes())
            .collect();
        if let Some(at) = parts.iter().position(|part| is(part, STATE_DIR)) {
            // Stubs are written there for the agent to read; everything else in it is the server's.
            let stub = parts.get(at + 1).is_some_and(|part| is(part, "stubs"));
            if access != Access::Read || !stub {
                return Some(format!("the state directory {STATE_DIR}"));
            }
        }
        if self
            .state_dir
            .as_ref()
            .is_some_and(|dir| path.starts_with(dir))
            && access != Access::Read
        {
            return Some("the state directory".to_owned());
        }
        if access == Access::Read {
            let inside = self
                .state_dir
                .as_ref()
                .and_then(|dir| path.strip_prefix(dir).ok());
            return match inside {
                Some(rest) if !rest.starts_with("stubs") => Some("the state directory".to_owned()),
                _ => None,
            };
        }
        if parts.iter().any(|part| is(part, CONFIG_FILE)) {
            return Some(format!("the configuration {CONFIG_FILE}"));
        }
        if let Some(at) = parts.iter().position(|part| is(part, ".git")) {
            let inner = &parts[at + 1..];
            if inner.is_empty() {
                return Some("the repository's .git".to_owned());
            }
            for name in ["hooks", "config", "config.worktree"] {
                if inner.iter().any(|part| is(part, name)) {
                    return Some(format!("git's {name}"));
                }
            }
        }
        let hit = self
            .protected
            .iter()
            .find(|file| *file == path || (access == Access::Replace && file.starts_with(path)));
        hit.map(|_| "a file of the server".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(path: &str, access: Access) -> bool {
        let rules = Rules::new(Some("/state".into()), vec!["/w/artifacts/audit.csv".into()]);
        rules.protected_part(Path::new(path), access).is_some()
    }

    #[test]
    fn what_decides_over_the_agent_is_not_the_agents_to_write() {
        for path in [
            "/w/llmc.toml",
            "/w/deep/er/LLMC.toml",
            "/w/.llmc",
            "/w/sub/.llmc/token",
            "/w/.git/hooks/pre-commit",
            "/w/sub/.git/config",
            "/w/.git/modules/x/config",
            "/w/.GIT/Hooks",
            "/w/.git",
            "/w/artifacts/audit.csv",
            "/state/handles.db",
        ] {
            assert!(touched(path, Access::Write), "{path}");
            assert!(touched(path, Access::Replace), "{path}");
        }
        for path in [
            "/w/a.txt",
            "/w/.git/info/exclude",
            "/w/.gitignore",
            "/w/hooks/x",
            "/w/config",
            "/w/artifacts",
        ] {
            assert!(!touched(path, Access::Write), "{path}");
        }
    }

    #[test]
    fn a_folder_that_holds_a_protected_file_stays_where_it_is() {
        assert!(touched("/w/artifacts", Access::Replace));
        assert!(!touched("/w/other", Access::Replace));
    }

    #[test]
    fn the_state_directory_is_read_only_where_it_holds_stubs() {
        assert!(touched("/w/.llmc/token", Access::Read));
        assert!(touched("/w/.llmc", Access::Read));
        assert!(touched("/state/token", Access::Read));
        assert!(!touched("/w/.llmc/stubs/tools.pyi", Access::Read));
        assert!(!touched("/state/stubs/tools.pyi", Access::Read));
        assert!(!touched("/w/llmc.toml", Access::Read));
    }

    #[test]
    fn the_denylist_matches_names_in_any_case() {
        let globs = ["**/.env", "**/*.pem", "**/id_rsa*"].map(str::to_owned);
        let rules = Rules::default().with_denylist(&globs, true).unwrap();
        for path in ["/w/.env", "/w/.ENV", "/w/x/Key.PEM", "/w/id_rsa.pub"] {
            assert!(rules.denylisted(Path::new(path)), "{path}");
        }
        assert!(!rules.denylisted(Path::new("/w/.envrc")));
    }
}
