//! Addresses of other repositories, and paths, as values of settings and as the text of pointers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::is_printable;

/// Longer addresses are not judged.
const MAX_ADDRESS_BYTES: usize = 4096;

/// Where paths in the values of a file lead.
#[derive(Debug)]
pub(super) struct PathBase<'a> {
    /// What relative paths are relative to, if that is known.
    pub(super) relative_to: Option<&'a Path>,
    /// Directories below which paths may lead.
    pub(super) allowed: &'a [PathBuf],
}

/// Whether git reaches a repository at this address over https or ssh, or as a path of the workspace.
///
/// `scheme://` for any other scheme, and `name::` in any address, make git run the program `git-remote-name`.
pub(super) fn is_address(address: &[u8], base: &PathBase<'_>) -> bool {
    let is_plain = !address.is_empty()
        && address.len() <= MAX_ADDRESS_BYTES
        && is_printable(address)
        && !address.starts_with(b"-")
        && !address.windows(2).any(|pair| pair == b"::");
    if !is_plain {
        return false;
    }
    if let Some(rest) = address.strip_prefix(b"https://") {
        return is_https_rest(rest);
    }
    if let Some(rest) = address.strip_prefix(b"ssh://") {
        return is_ssh_rest(rest);
    }
    if let Some(path) = address.strip_prefix(b"file://") {
        // Git decodes what is written with percent signs.
        return path.starts_with(b"/") && !path.contains(&b'%') && is_allowed_path(path, base);
    }
    if address.windows(3).any(|part| part == b"://") {
        return false;
    }
    let slash = address.iter().position(|byte| *byte == b'/');
    match address.iter().position(|byte| *byte == b':') {
        Some(colon) if slash.is_none_or(|slash| colon < slash) => {
            let (host, path) = (&address[..colon], &address[colon + 1..]);
            is_authority(host) && !path.is_empty() && !path.starts_with(b"-") && has_no_space(path)
        }
        _ => is_allowed_path(address, base),
    }
}

/// Whether a path leads below one of the directories that are allowed.
pub(super) fn is_allowed_path(path: &[u8], base: &PathBase<'_>) -> bool {
    resolved(path, base.relative_to).is_some_and(|path| is_below(&path, base.allowed))
}

pub(super) fn is_below(path: &Path, allowed: &[PathBuf]) -> bool {
    allowed.iter().any(|dir| path.starts_with(dir))
}

/// The absolute path that a text names, by the text alone; `None` for what would need a look at the disk: `..` after a
/// name, which may be a link, and `~`.
pub(super) fn resolved(path: &[u8], relative_to: Option<&Path>) -> Option<PathBuf> {
    if path.is_empty() || !is_printable(path) || path.starts_with(b"~") {
        return None;
    }
    let path = Path::new(OsStr::from_bytes(path));
    let mut out = match path.is_absolute() {
        true => PathBuf::from("/"),
        false => relative_to?.to_path_buf(),
    };
    let mut has_name = false;
    for part in path.components() {
        match part {
            Component::ParentDir if has_name => return None,
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => {
                has_name = true;
                out.push(name);
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(out)
}

fn is_https_rest(rest: &[u8]) -> bool {
    rest.first().is_some_and(u8::is_ascii_alphanumeric) && has_no_space(rest)
}

fn is_ssh_rest(rest: &[u8]) -> bool {
    let slash = rest.iter().position(|byte| *byte == b'/');
    slash.is_some_and(|slash| is_authority(&rest[..slash])) && has_no_space(rest)
}

/// `[user@]host[:port]`, of which ssh takes neither part for an option.
fn is_authority(text: &[u8]) -> bool {
    let is_part = |part: &[u8]| {
        part.first().is_some_and(|first| *first != b'-')
            && part
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"._~:[]+-".contains(b))
    };
    let mut parts = text.rsplitn(2, |byte| *byte == b'@');
    parts.next().is_some_and(is_part) && parts.next().is_none_or(is_part)
}

fn has_no_space(text: &[u8]) -> bool {
    text.iter()
        .all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(address: &str) -> bool {
        let base = PathBase {
            relative_to: Some(Path::new("/w/repo")),
            allowed: &[PathBuf::from("/w")],
        };
        is_address(address.as_bytes(), &base)
    }

    #[test]
    fn addresses_of_hosts_and_of_the_workspace_are_taken() {
        for address in [
            "https://example.org/a.git",
            "https://user:token@example.org:8443/a b".trim_end_matches(" b"),
            "ssh://git@example.org:22/a/b.git",
            "git@github.com:owner/name.git",
            "host:path",
            "host:~/path",
            "/w/other",
            "/w",
            "../other.git",
            "./sub",
            "sub/dir",
            "file:///w/other",
        ] {
            assert!(is_taken(address), "{address}");
        }
    }

    #[test]
    fn addresses_that_run_programs_or_leave_the_workspace_are_not() {
        for address in [
            "",
            "http://example.org/a",
            "git://example.org/a",
            "HTTPS://example.org/a",
            "ext::sh -c evil",
            "https::example",
            "foo://bar",
            "x://-a",
            "-oProxyCommand=evil:path",
            "git@-oProxyCommand=evil:path",
            "-u@host:path",
            "host:-path",
            "ssh://-oProxyCommand=evil/path",
            "ssh://%2doProxyCommand=evil/path",
            "ssh://host",
            "https://",
            "https://-a",
            "https://a b",
            "host:pa th",
            "/etc",
            "/wide",
            "../../etc",
            "/w/../etc",
            "/w/link/../x",
            "~/x",
            "~root/x",
            "file:///etc",
            "file:///w/%2e%2e/etc",
            "file://host/w",
            "/w/a\nb",
        ] {
            assert!(!is_taken(address), "{address}");
        }
    }
}
