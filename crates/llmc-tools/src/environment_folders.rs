//! Folders in which a tool chain keeps an environment, installed packages or build results.
//!
//! They are no part of the project's sources, whether git ignores them or not: a virtual environment that lost the files
//! that git does not track is broken, and what a command then prints says nothing about the project.

use std::collections::{BTreeSet, HashMap};

use llmc_host::{OpenDir, Roots};

use crate::base_view::folders;
use crate::catalog::below;

/// How such a folder is recognised: by its name, by something that it holds, or by both.
struct EnvironmentSign {
    name: Option<&'static str>,
    holds: Option<&'static str>,
}

const fn called(name: &'static str) -> EnvironmentSign {
    EnvironmentSign {
        name: Some(name),
        holds: None,
    }
}

const fn holding(file: &'static str) -> EnvironmentSign {
    EnvironmentSign {
        name: None,
        holds: Some(file),
    }
}

const fn both(name: &'static str, file: &'static str) -> EnvironmentSign {
    EnvironmentSign {
        name: Some(name),
        holds: Some(file),
    }
}

const SIGNS: &[EnvironmentSign] = &[
    // Python: environments, packages, and what an installed project says of itself.
    holding("pyvenv.cfg"),
    holding("conda-meta"),
    holding("PKG-INFO"),
    called("__pypackages__"),
    called(".tox"),
    called(".nox"),
    called(".eggs"),
    // Any cache that says that it is one: cargo's `target`, `.pytest_cache`, `.mypy_cache`, `.ruff_cache`.
    holding("CACHEDIR.TAG"),
    // JavaScript.
    called("node_modules"),
    called("bower_components"),
    called(".next"),
    called(".nuxt"),
    called(".svelte-kit"),
    called(".turbo"),
    called(".parcel-cache"),
    // C and C++.
    holding("CMakeCache.txt"),
    holding("build.ninja"),
    holding("meson-private"),
    // Java, Scala, Kotlin.
    called(".gradle"),
    both("target", "classes"),
    both("target", "maven-status"),
    both("build", "classes"),
    // Others: Ruby, PHP, Go, .NET, Haskell, Elixir, Dart, Zig, Swift.
    called(".bundle"),
    both("bundle", "ruby"),
    both("vendor", "composer"),
    both("vendor", "modules.txt"),
    both("obj", "project.assets.json"),
    called(".stack-work"),
    called("dist-newstyle"),
    both("_build", "dev"),
    both("_build", "test"),
    both("deps", ".hex"),
    called(".dart_tool"),
    called("zig-cache"),
    called(".zig-cache"),
    both(".build", "checkouts"),
];

/// Remembers which folders are environments, and which of them were met.
#[derive(Default)]
pub(crate) struct EnvironmentFolders {
    known: HashMap<Vec<u8>, bool>,
    met: BTreeSet<Vec<u8>>,
}

impl EnvironmentFolders {
    /// Whether a path is in such a folder below `dir`. A folder that `is_tracked` belongs to the project.
    pub(crate) fn hold(
        &mut self,
        roots: &Roots,
        dir: &OpenDir,
        path: &[u8],
        is_tracked: impl Fn(&[u8]) -> bool,
    ) -> bool {
        for folder in folders(path).filter(|folder| !is_tracked(folder)) {
            let is_known = match self.known.get(folder) {
                Some(is_known) => *is_known,
                None => {
                    let is_known = is_environment(roots, dir, folder);
                    self.known.insert(folder.to_vec(), is_known);
                    is_known
                }
            };
            if is_known {
                self.met.insert(folder.to_vec());
                return true;
            }
        }
        false
    }

    /// What a reader should know: which folders are not as they were.
    pub(crate) fn note(&self) -> Option<String> {
        const MAX_NAMED: usize = 5;
        let names: Vec<_> = self
            .met
            .iter()
            .take(MAX_NAMED)
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        let more = match self.met.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!names.is_empty()).then(|| {
            format!(
                "not in git, so the base has them as they are now: {}{more}",
                names.join(", ")
            )
        })
    }
}

fn is_environment(roots: &Roots, dir: &OpenDir, folder: &[u8]) -> bool {
    let name = folder.rsplit(|byte| *byte == b'/').next().unwrap_or(folder);
    SIGNS.iter().any(|sign| {
        let holds = |file: &str| {
            let path = [folder, b"/", file.as_bytes()].concat();
            roots.stat(&below(roots, &dir.path, &path)).is_ok()
        };
        sign.name.is_none_or(|called| called.as_bytes() == name) && sign.holds.is_none_or(holds)
    })
}
