//! The mount points of this process, as `/proc/self/mountinfo` lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mount points at or below a path. Without `/proc` none are known.
pub(crate) fn mounts_below(path: &Path) -> Vec<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's own list, not a file of the workspace"
    )]
    let list = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    list.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescaped_mount_point)
        .filter(|mount| mount.starts_with(path))
        .collect()
}

/// A mount point as the kernel lists it: blanks, tabs, line ends and backslashes are written as three octal digits.
pub fn unescaped_mount_point(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|three| {
                let text = std::str::from_utf8(three).ok()?;
                u8::from_str_radix(text, 8).ok()
            });
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_mount_and_odd_names_are_read_back() {
        assert!(mounts_below(Path::new("/")).contains(&PathBuf::from("/")));
        assert!(mounts_below(Path::new("/no/such/place")).is_empty());
        assert_eq!(
            unescaped_mount_point(b"/a\\040b\\134c"),
            PathBuf::from("/a b\\c")
        );
    }
}
