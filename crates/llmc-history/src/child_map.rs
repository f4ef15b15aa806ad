//! What is known of the names in one directory, ordered by name, in little memory.
//!
//! Most directories hold a few names. A B-tree has room for eleven entries at once, a kilobyte even for a single name: of a
//! workspace with tens of thousands of directories that would be most of what history keeps in memory. So few names are a
//! sorted list, and a B-tree holds only many.

use std::collections::BTreeMap;

use crate::snapshot::Known;

/// A directory with more names has a B-tree, since adding to a long list takes time.
const MAX_LISTED_NAMES: usize = 64;

#[derive(Debug)]
pub(crate) enum ChildMap {
    Few(Vec<(Box<[u8]>, Known)>),
    Many(BTreeMap<Box<[u8]>, Known>),
}

impl Default for ChildMap {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl ChildMap {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Few(names) => names.is_empty(),
            Self::Many(names) => names.is_empty(),
        }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Known> {
        match self {
            Self::Few(names) => place(names, name).ok().map(|at| &names[at].1),
            Self::Many(names) => names.get(name),
        }
    }

    /// Returns what was known of the name before.
    pub(crate) fn insert(&mut self, name: Box<[u8]>, known: Known) -> Option<Known> {
        match self {
            Self::Few(names) => match place(names, &name) {
                Ok(at) => Some(std::mem::replace(&mut names[at].1, known)),
                Err(at) if names.len() < MAX_LISTED_NAMES => {
                    if names.len() == names.capacity() {
                        names.reserve_exact(1 + names.len() / 4);
                    }
                    names.insert(at, (name, known));
                    None
                }
                Err(_) => {
                    let mut many: BTreeMap<_, _> = names.drain(..).collect();
                    many.insert(name, known);
                    *self = Self::Many(many);
                    None
                }
            },
            Self::Many(names) => names.insert(name, known),
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Known> {
        match self {
            Self::Few(names) => place(names, name).ok().map(|at| names.remove(at).1),
            Self::Many(names) => names.remove(name),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Known)> {
        let (few, many) = match self {
            Self::Few(names) => (names.as_slice(), None),
            Self::Many(names) => (&[][..], Some(names)),
        };
        let few = few.iter().map(|(name, known)| (name.as_ref(), known));
        let many = many.into_iter().flatten();
        few.chain(many.map(|(name, known)| (name.as_ref(), known)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut Known)> {
        let (few, many) = match self {
            Self::Few(names) => (names.as_mut_slice(), None),
            Self::Many(names) => (&mut [][..], Some(names)),
        };
        let few = few.iter_mut().map(|(name, known)| (&**name, known));
        let many = many.into_iter().flatten();
        few.chain(many.map(|(name, known)| (name.as_ref(), known)))
    }
}

/// Where a name is, or where it would be.
fn place(names: &[(Box<[u8]>, Known)], name: &[u8]) -> Result<usize, usize> {
    names.binary_search_by(|(other, _)| other.as_ref().cmp(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::ChildMap;
    use crate::entry::PathState;
    use crate::snapshot::{Known, Stamp};

    fn known(mode: u32) -> Known {
        Known::new(PathState::Dir { mode }, Stamp::default())
    }

    fn mode_of(known: &Known) -> u32 {
        match known.state {
            PathState::Dir { mode } => mode,
            _ => 0,
        }
    }

    /// Names come and go in a scrambled order, below and above the length of a list.
    #[test]
    fn it_holds_what_a_plain_map_holds() {
        for count in [3, 60, 64, 65, 200_u32] {
            let mut map = ChildMap::default();
            let mut plain: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            for step in 0..4 * count {
                let name = format!("n{}", step * 7919 % count).into_bytes();
                if step % 5 == 4 {
                    let gone = map.remove(&name).as_ref().map(mode_of);
                    assert_eq!(gone, plain.remove(&name));
                } else {
                    let old = map.insert(name.clone().into(), known(step));
                    assert_eq!(old.as_ref().map(mode_of), plain.insert(name, step));
                }
                assert_eq!(map.is_empty(), plain.is_empty());
            }
            map.iter_mut()
                .for_each(|(_, known)| *known = self::known(mode_of(known) + 1));
            let all: Vec<(&[u8], u32)> = map.iter().map(|(n, known)| (n, mode_of(known))).collect();
            let wanted: Vec<(&[u8], u32)> =
                plain.iter().map(|(n, mode)| (&n[..], mode + 1)).collect();
            assert_eq!(all, wanted);
            for (name, mode) in &plain {
                assert_eq!(map.get(name).map(mode_of), Some(mode + 1));
            }
            assert!(map.get(b"other").is_none());
        }
    }
}
