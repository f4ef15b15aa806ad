//! Two changed versions of `packed-refs` made one.
//!
//! Git replaces the file as a whole, so two writers that did not see each other's lock would lose refs of one of them. What
//! the command changed against the version that both began with is carried over to the user's version.

use std::collections::BTreeMap;

/// What a packed ref points to, and what an annotated tag there points to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packed<'a> {
    oid: &'a [u8],
    peeled: Option<&'a [u8]>,
}

const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// The user's version with the command's changes. `None` if one of them does not parse, or both changed one ref differently.
pub(super) fn merged(base: &[u8], host: &[u8], command: &[u8]) -> Option<Vec<u8>> {
    let (base, mut host, command) = (parse(base)?, parse(host)?, parse(command)?);
    for (name, packed) in &command {
        if base.get(name) != Some(packed) {
            if host.get(name) != base.get(name) && host.get(name) != Some(packed) {
                return None;
            }
            host.insert(name, packed.clone());
        }
    }
    for (name, packed) in &base {
        if !command.contains_key(name) {
            if host.get(name).is_some_and(|now| now != packed) {
                return None;
            }
            host.remove(name);
        }
    }
    let mut text = HEADER.to_vec();
    for (name, packed) in host {
        text.extend_from_slice(packed.oid);
        text.push(b' ');
        text.extend_from_slice(name);
        text.push(b'\n');
        if let Some(peeled) = packed.peeled {
            text.push(b'^');
            text.extend_from_slice(peeled);
            text.push(b'\n');
        }
    }
    Some(text)
}

fn parse(text: &[u8]) -> Option<BTreeMap<&[u8], Packed<'_>>> {
    let mut refs = BTreeMap::new();
    let mut last = None;
    for line in text.split(|byte| *byte == b'\n') {
        match line {
            [] | [b'#', ..] => {}
            [b'^', peeled @ ..] => {
                let packed: &mut Packed<'_> = refs.get_mut(&last?)?;
                packed.peeled = Some(peeled);
            }
            _ => {
                let space = line.iter().position(|byte| *byte == b' ')?;
                let (oid, name) = (&line[..space], &line[space + 1..]);
                let is_oid = matches!(oid.len(), 40 | 64) && oid.iter().all(u8::is_ascii_hexdigit);
                if !is_oid || name.is_empty() {
                    return None;
                }
                refs.insert(name, Packed { oid, peeled: None });
                last = Some(name);
            }
        }
    }
    Some(refs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(refs: &[(&str, char)]) -> Vec<u8> {
        let mut text = HEADER.to_vec();
        for (name, digit) in refs {
            text.extend(format!("{} {name}\n", digit.to_string().repeat(40)).bytes());
        }
        text
    }

    #[test]
    fn both_sides_changes_are_kept() {
        let base = text(&[
            ("refs/heads/a", '1'),
            ("refs/heads/b", '1'),
            ("refs/heads/c", '1'),
        ]);
        let host = text(&[
            ("refs/heads/a", '1'),
            ("refs/heads/c", '2'),
            ("refs/heads/n", '3'),
        ]);
        let command = text(&[
            ("refs/heads/b", '1'),
            ("refs/heads/c", '1'),
            ("refs/heads/m", '4'),
        ]);
        let wanted = text(&[
            ("refs/heads/c", '2'),
            ("refs/heads/m", '4'),
            ("refs/heads/n", '3'),
        ]);
        assert_eq!(merged(&base, &host, &command), Some(wanted));
    }

    #[test]
    fn a_ref_that_both_changed_is_no_guess() {
        let base = text(&[("refs/heads/a", '1')]);
        let (host, command) = (
            text(&[("refs/heads/a", '2')]),
            text(&[("refs/heads/a", '3')]),
        );
        assert_eq!(merged(&base, &host, &command), None);
        assert_eq!(merged(&base, &host, &text(&[])), None);
        assert_eq!(merged(&base, &host, b"not refs"), None);
    }

    #[test]
    fn what_a_tag_points_to_stays_with_it() {
        let tag = format!("{}\n^{}\n", "1".repeat(40) + " refs/tags/t", "2".repeat(40));
        let command = [HEADER, tag.as_bytes()].concat();
        assert_eq!(
            merged(&text(&[]), &text(&[]), &command),
            Some(command.clone())
        );
    }
}
