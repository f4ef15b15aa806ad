//! What of the host a run does not see, or sees otherwise than it is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::home::{MOVED_PLACES, OTHER_HOMES, other_homes};
use super::host_sockets::is_socket;
use super::plan::HiddenPlace;
use super::redact::redacted;
use super::settings::Settings;

/// Hidden files that are shown without their secrets, by the end of their path: tool chains need the rest.
const REDACTED_FILES: [&str; 13] = [
    ".gitconfig",
    ".config/git/config",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".config/pnpm/rc",
    ".bunfig.toml",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".cargo/config.toml",
    ".cargo/config",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
];
/// A larger settings file is shown empty.
const MAX_REDACTED_BYTES: u64 = 256 << 10;

/// Places that are shown although they are hidden or covered, as far as they exist right now.
pub(super) fn shown_places(settings: &Settings) -> Vec<PathBuf> {
    let named = settings.extra_read.iter().chain(&settings.sockets);
    named
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .collect()
}

/// The hidden places that exist right now, also where a variable of the server's says that they are. A place that the settings
/// name as readable or writable is left out; of a hidden folder a file that they name is shown alone.
pub(super) fn hidden_places(settings: &Settings) -> Vec<HiddenPlace> {
    let shown = shown_places(settings);
    let mut places: Vec<HiddenPlace> = Vec::new();
    for place in &settings.hidden {
        let found = match (place.strip_prefix("~/"), &settings.home) {
            (Some(name), Some(home)) => {
                let moved = moved_places(name, |variable| std::env::var_os(variable));
                // A variable can name anything, such as a device or a folder around everything.
                let is_place =
                    |path: &PathBuf| (path.is_file() || path.is_dir()) && !home.starts_with(path);
                let moved = moved
                    .iter()
                    .flat_map(|(pattern, name)| existing(pattern, name))
                    .filter(|place| is_place(&PathBuf::from(&place.path)));
                let mut found = existing(&home.join(name), name);
                found.extend(moved);
                found
            }
            (None, _) if place == OTHER_HOMES => homes_of_others(settings),
            (None, _) if place.starts_with('/') => existing(Path::new(place), place),
            _ => Vec::new(),
        };
        let found = found.into_iter().filter(|place| can_be_read(&place.path));
        for place in found {
            let mut named = shown.iter().chain(&settings.extra_write);
            let is_shown = named.any(|path| *path == place.path);
            if !is_shown && !places.iter().any(|known| known.path == place.path) {
                places.push(place);
            }
        }
    }
    places
}

/// The hidden places that Landlock can keep commands from opening where no mount hides them: it can leave out nothing of a
/// folder in which they make files, and no part of a settings file.
pub(super) fn unreadable_places(settings: &Settings) -> Vec<PathBuf> {
    let places = hidden_places(settings).into_iter();
    let places = places.filter(|place| !place.is_settings);
    places
        .map(|place| PathBuf::from(place.path))
        .filter(|place| {
            let mut roots = settings.writable().chain(&settings.read_roots);
            !roots.any(|root| place.starts_with(root) || root.starts_with(place))
        })
        .collect()
}

/// The homes of other users, which only root can read. One in which the operator has a root or programs stays in view.
fn homes_of_others(settings: &Settings) -> Vec<HiddenPlace> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let own = settings
        .home
        .as_ref()
        .and_then(|home| std::fs::canonicalize(home).ok());
    let roots = settings
        .writable()
        .chain(&settings.read_roots)
        .chain(&settings.git_dirs);
    let used: Vec<PathBuf> = roots
        .chain(&settings.search_path)
        .cloned()
        .chain(own)
        .collect();
    let homes = other_homes().into_iter();
    let homes = homes.filter(|home| {
        !used
            .iter()
            .any(|dir| dir.starts_with(home) || home.starts_with(dir))
    });
    homes
        .map(|home| HiddenPlace {
            path: home.into_os_string(),
            text: String::new(),
            is_settings: false,
        })
        .collect()
}

/// Whether this user, as whom commands run, could read anything there at all.
fn can_be_read(place: &OsStr) -> bool {
    let may = |access| rustix::fs::access(place, access).is_ok();
    may(Access::READ_OK) || (Path::new(place).is_dir() && may(Access::EXEC_OK))
}

/// Where variables say that a place of the home directory is, with its name there.
fn moved_places(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> Vec<(PathBuf, &str)> {
    let mut found = Vec::new();
    for (moved, variable) in MOVED_PLACES
        .iter()
        .filter_map(|(name, moved)| Some((*moved, variable(name)?)))
    {
        for place in std::env::split_paths(&variable).filter(|place| place.is_absolute()) {
            match Path::new(name).strip_prefix(moved) {
                Ok(rest) if rest != Path::new("") => found.push((place.join(rest), name)),
                Ok(_) => found.push((place, name)),
                Err(_) if Path::new(moved).starts_with(name) => found.push((place, moved)),
                Err(_) => {}
            }
        }
    }
    found
}

/// The existing places that a pattern stands for, under their real names: a mount covers what a link points to. `name` is
/// what the place is called in the home directory.
fn existing(pattern: &Path, name: &str) -> Vec<HiddenPlace> {
    let last = pattern.file_name().unwrap_or_default().to_string_lossy();
    let found: Vec<PathBuf> = match (last.strip_suffix('*'), pattern.parent()) {
        (Some(start), Some(dir)) => std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
            .map(|entry| entry.path())
            .collect(),
        _ => vec![pattern.to_owned()],
    };
    let is_redacted = is_redacted(Path::new(name));
    let real = found.iter().filter_map(|path| {
        // Most places do not exist, and one status call says so; finding a real name takes one call for each component.
        path.symlink_metadata().ok()?;
        let real = std::fs::canonicalize(path).ok()?;
        let text = is_redacted.then(|| redacted_file(&real));
        Some(HiddenPlace {
            path: real.into_os_string(),
            text: text.unwrap_or_default(),
            is_settings: is_redacted,
        })
    });
    real.collect()
}

/// Whether a hidden file is shown without its secrets.
fn is_redacted(path: &Path) -> bool {
    REDACTED_FILES.iter().any(|end| path.ends_with(end))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a settings file of the user's tool chain, not of the agent"
)]
fn redacted_file(path: &Path) -> String {
    let small = std::fs::metadata(path)
        .is_ok_and(|status| status.is_file() && status.len() <= MAX_REDACTED_BYTES);
    if small {
        redacted(&std::fs::read(path).unwrap_or_default())
    } else {
        String::new()
    }
}

/// Whether a settings file holds the lines of this text and no others.
#[expect(
    clippy::disallowed_methods,
    reason = "a settings file of the user's tool chain, not of the agent"
)]
pub(super) fn is_text_of(text: &str, path: &Path) -> bool {
    // Both are read as lines, of which the last may lack its end.
    let is_as_long = path.metadata().is_ok_and(|status| {
        status.is_file() && text.len() as u64 - status.len().min(text.len() as u64) <= 1
    });
    let lines = |bytes: Vec<u8>| bytes.trim_ascii_end() == text.as_bytes().trim_ascii_end();
    is_as_long && std::fs::read(path).is_ok_and(lines)
}

/// Whether a program of the host listens on a socket of this real name.
pub(super) fn is_live_socket(real: &Path) -> bool {
    if !is_socket(real) {
        return false;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "files of the kernel, not of the agent"
    )]
    let listed = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let is_bound = listed("/proc/net/unix").lines().any(|line| {
        // The name is the eighth field, as the program gave it: it may be relative, and through links.
        let name = line.split_ascii_whitespace().nth(7).map(Path::new);
        name.is_some_and(|name| match name.is_absolute() {
            true => std::fs::canonicalize(name).is_ok_and(|name| name == real),
            false => real.ends_with(name),
        })
    });
    // A socket that was mounted into a container is not on its list of sockets.
    let is_mounted = |line: &str| line.split(' ').nth(4).map(Path::new) == Some(real);
    is_bound || listed("/proc/self/mountinfo").lines().any(is_mounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_say_where_places_are() {
        let moved = |name: &'static str, wanted: &'static str, value: &'static str| {
            let variable = |name: &str| (name == wanted).then(|| value.into());
            let found = moved_places(name, variable).into_iter();
            let shown = found.map(|(path, name)| format!("{} {name}", path.display()));
            shown.collect::<Vec<_>>()
        };
        let cargo = moved(".cargo/credentials*", "CARGO_HOME", "/c");
        assert_eq!(cargo, ["/c/credentials* .cargo/credentials*"]);
        let npm = moved(".npmrc", "NPM_CONFIG_USERCONFIG", "/n/rc");
        assert_eq!(npm, ["/n/rc .npmrc"]);
        let kube = moved(".kube", "KUBECONFIG", "/a:relative:/b");
        assert_eq!(kube, ["/a .kube/config", "/b .kube/config"]);
        let config = moved(".config/gh", "XDG_CONFIG_HOME", "/x");
        assert_eq!(config, ["/x/gh .config/gh"]);
        assert_eq!(moved(".ssh", "CARGO_HOME", "/c"), [""; 0]);
    }

    #[test]
    fn every_moved_place_is_hidden_or_holds_a_hidden_one() {
        for (variable, moved) in MOVED_PLACES {
            let moved = Path::new(moved);
            let mut hidden = crate::HIDDEN_PLACES
                .iter()
                .filter_map(|place| place.strip_prefix("~/"));
            let is_used =
                hidden.any(|place| moved.starts_with(place) || Path::new(place).starts_with(moved));
            assert!(is_used, "{variable} says nothing about a hidden place");
        }
    }
}
