//! Paths as people write them in a configuration.

use std::path::{Component, Path, PathBuf};

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

/// Where a path leads, links resolved; the part that does not exist is taken as written.
///
/// The last part of a path to a file stays: a file is known by the name it was found under, wherever that links to.
pub(crate) fn canonical_place(path: &Path) -> PathBuf {
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if !path.is_dir() => (folder, Some(name)),
        _ => (path, None),
    };
    for existing in folder.ancestors() {
        let Ok(mut place) = existing.canonicalize() else {
            continue;
        };
        let rest = folder.strip_prefix(existing).unwrap_or(Path::new(""));
        for part in rest.components() {
            match part {
                Component::ParentDir => drop(place.pop()),
                part => place.push(part),
            }
        }
        place.extend(name);
        return place;
    }
    path.to_owned()
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

    #[test]
    fn a_place_is_where_folders_lead_and_a_file_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        let cases = [
            (".", root.clone()),
            ("sub/..", root.clone()),
            ("sub/../..", root.parent().unwrap().to_owned()),
            ("none/../..", root.parent().unwrap().to_owned()),
            ("none/x", root.join("none/x")),
            ("out", "/".into()),
            ("out/etc", "/etc".into()),
            ("file", root.join("file")),
            ("link", root.join("link")),
        ];
        for (path, expected) in cases {
            assert_eq!(canonical_place(&root.join(path)), expected, "{path}");
        }
    }
}
