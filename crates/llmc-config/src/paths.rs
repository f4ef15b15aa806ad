//! Paths as people write them in a configuration.

use std::path::{Path, PathBuf};

/// The path with a leading `~` or `~/` replaced by the home directory.
///
/// Other users' homes (`~name`) are not looked up and stay as written, as does everything when no home is known.
pub(crate) fn expand_home(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_expanded_only_where_it_leads() {
        let home = Some(Path::new("/home/ann"));
        let cases = [
            ("~", home, "/home/ann"),
            ("~/src", home, "/home/ann/src"),
            ("~//src", home, "/home/ann/src"),
            ("~bob/src", home, "~bob/src"),
            ("a/~", home, "a/~"),
            ("/etc", home, "/etc"),
            ("~/src", None, "~/src"),
        ];
        for (path, home, expected) in cases {
            assert_eq!(expand_home(path, home), Path::new(expected), "{path}");
        }
    }
}
