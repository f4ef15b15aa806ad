//! File systems: the mount points of this process, as `/proc/self/mountinfo` lists them, and which are remote or local.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatFs;

/// File systems that other machines change without an event here: NFS, SMB, CIFS, FUSE, 9P, Ceph, AFS.
const REMOTE_FILE_SYSTEMS: [u32; 8] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
];

/// File systems that only this machine changes, and that stamp every change: ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs,
/// F2FS, ZFS, bcachefs. FAT and its like keep no time of change.
const LOCAL_FILE_SYSTEMS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// Whether changes come without events, and times may be reported late.
pub fn is_remote_file_system(file_system: &StatFs) -> bool {
    REMOTE_FILE_SYSTEMS.contains(&magic(file_system))
}

/// Whether the kernel reports every change of a name by an event, and every change of a file in its status.
pub fn is_local_file_system(file_system: &StatFs) -> bool {
    LOCAL_FILE_SYSTEMS.contains(&magic(file_system))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "magic numbers have 32 bits; the field's type differs between targets"
)]
fn magic(file_system: &StatFs) -> u32 {
    file_system.f_type as u32
}

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
