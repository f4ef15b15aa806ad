//! How a file is recognised: by its path, and by what the kernel reports about it.
//!
//! Only hashes are stored. A wrong match of a path's hash does no harm, because the identity of the other file differs; for a
//! wrong match of both, 128 bits would have to agree.

use std::time::Duration;

use rustix::fs::Stat;

/// Two odd constants with about as many ones as zeros.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const START: u64 = 0xa076_1d64_78bd_642f;
/// How long a file has to be unchanged before it counts as settled. A stamp is late by at most a tick of the kernel, ten
/// milliseconds, or by a second on file systems with coarse times; the rest is for a write that takes long, since the kernel
/// stamps its beginning.
pub const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The hash of a path, relative to the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHash(pub(crate) u64);

impl PathHash {
    pub fn of(path: &[u8]) -> PathHash {
        let mut hash = START ^ path.len() as u64;
        for word in path.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hash = mixed(hash, u64::from_le_bytes(bytes));
        }
        PathHash(mixed(hash, MULTIPLIER))
    }
}

/// What the kernel reports about a file. While it stays the same the content does too, if it was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub inode: u64,
}

impl FileIdentity {
    pub fn of(stat: &Stat) -> FileIdentity {
        FileIdentity {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }

    /// Whether a change after `read_ns`, nanoseconds since 1970, would show. The time that counts is the one that only the
    /// kernel sets.
    pub fn is_settled(&self, read_ns: i64) -> bool {
        let settled = i64::try_from(SETTLE_TIME.as_nanos()).unwrap_or(i64::MAX);
        self.ctime_ns.saturating_add(settled) < read_ns
    }

    /// Stands for all of it; never zero. The index keeps all but the two lowest bits.
    pub fn fingerprint(&self) -> u64 {
        let words = [
            self.size,
            self.mtime_ns.cast_unsigned(),
            self.inode,
            self.ctime_ns.cast_unsigned(),
        ];
        let hash = words.into_iter().fold(START, mixed);
        mixed(hash, MULTIPLIER).max(4)
    }
}

fn nanoseconds(seconds: i64, rest: impl TryInto<i64>) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(rest.try_into().unwrap_or(0))
}

/// Both halves of a product, so that every bit of the result depends on every bit of the word.
fn mixed(hash: u64, word: u64) -> u64 {
    let product = u128::from((hash ^ word).rotate_left(23) ^ MULTIPLIER) * u128::from(START | 1);
    let [low, high] = [product, product >> 64].map(|half| (half & u128::from(u64::MAX)) as u64);
    (low ^ high).wrapping_add(hash.rotate_left(31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_paths_and_identities_differ() {
        let mut hashes = std::collections::HashSet::new();
        for number in 0..20_000_u32 {
            assert!(hashes.insert(PathHash::of(format!("src/module_{number}.rs").as_bytes())));
        }
        assert_ne!(PathHash::of(b"a"), PathHash::of(b"a\0"));
        assert_ne!(PathHash::of(b""), PathHash::of(b"\0"));
        let identity = FileIdentity {
            size: 7,
            mtime_ns: 1_700_000_000_123_456_789,
            ctime_ns: 1_700_000_000_123_456_789,
            inode: 12,
        };
        let others = [
            FileIdentity {
                size: 8,
                ..identity
            },
            FileIdentity {
                inode: 13,
                ..identity
            },
            FileIdentity {
                mtime_ns: identity.mtime_ns + 1,
                ..identity
            },
            FileIdentity {
                ctime_ns: identity.ctime_ns + 1,
                ..identity
            },
        ];
        for other in others {
            assert_ne!(other.fingerprint(), identity.fingerprint());
        }
    }

    #[test]
    fn a_recent_change_is_not_settled() {
        let second = 1_000_000_000;
        let recent = FileIdentity {
            size: 0,
            mtime_ns: 10 * second + 5,
            ctime_ns: 10 * second + 5,
            inode: 1,
        };
        assert!(!recent.is_settled(10 * second + 6));
        assert!(!recent.is_settled(12 * second));
        assert!(recent.is_settled(13 * second));
        // A clock that was set back.
        assert!(!recent.is_settled(9 * second));
    }
}
