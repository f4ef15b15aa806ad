//! What of the host a run does not see, or sees otherwise than it is: credentials and sockets.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

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
/// Host sockets that are covered one by one.
const MAX_HOST_SOCKETS: usize = 512;
/// Folders of which a run has its own, so that nothing in them needs to be covered.
const PRIVATE_DIRS: [&str; 4] = ["/tmp", "/run", "/dev", "/proc"];

/// The hidden places that exist right now.
pub(super) fn hidden_places(settings: &Settings) -> Vec<HiddenPlace> {
    let Some(home) = &settings.home else {
        let absolute = settings
            .hidden
            .iter()
            .filter(|place| place.starts_with('/'));
        return absolute
            .flat_map(|place| existing(Path::new(place)))
            .collect();
    };
    let places = settings.hidden.iter().filter_map(|place| {
        let path = match place.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(place),
        };
        path.is_absolute().then_some(path)
    });
    places.flat_map(|path| existing(&path)).collect()
}

/// The existing places that a pattern stands for, under their real names: a mount covers what a link points to.
fn existing(pattern: &Path) -> Vec<HiddenPlace> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let found: Vec<PathBuf> = match (name.strip_suffix('*'), pattern.parent()) {
        (Some(start), Some(dir)) => std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
            .map(|entry| entry.path())
            .collect(),
        _ => vec![pattern.to_owned()],
    };
    let real = found.iter().filter_map(|path| {
        // Most places do not exist, and one status call says so; finding a real name takes one call for each component.
        path.symlink_metadata().ok()?;
        let real = std::fs::canonicalize(path).ok()?;
        let text = REDACTED_FILES
            .iter()
            .any(|end| path.ends_with(end))
            .then(|| redacted_file(&real));
        Some(HiddenPlace {
            path: real.into_os_string(),
            text: text.unwrap_or_default(),
        })
    });
    real.collect()
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

/// Sockets of the host that lie where a run could reach them, write roots included. One that is made later outside the
/// run's own folders and the private layers (through which no socket of the host can be reached) is not covered for a run
/// that has begun. `None` if there are too many to cover.
pub(super) fn host_sockets() -> Option<Vec<PathBuf>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "files of the kernel, not of the agent"
    )]
    let listed = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let (bound, mounts) = (listed("/proc/net/unix"), listed("/proc/self/mountinfo"));
    let bound = bound.lines().filter_map(|line| {
        let at = line.find('/')?;
        Some(&line[at..])
    });
    // A socket that was mounted into a container is not on its list of sockets.
    let mounted = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let is_private = |path: &Path| PRIVATE_DIRS.iter().any(|dir| path.starts_with(dir));
    let mut sockets: Vec<PathBuf> = bound
        .chain(mounted)
        .map(Path::new)
        .filter(|path| {
            path.symlink_metadata()
                .is_ok_and(|status| status.file_type().is_socket())
        })
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .filter(|path| !is_private(path))
        .collect();
    sockets.sort();
    sockets.dedup();
    (sockets.len() <= MAX_HOST_SOCKETS).then_some(sockets)
}
