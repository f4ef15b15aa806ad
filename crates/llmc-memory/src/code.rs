use std::ffi::c_void;
use std::fs;

use rustix::mm::{Advice, madvise};

/// Unmaps pages of the executable that no longer need to be resident, and returns how many bytes of address space that
/// concerned.
///
/// The kernel maps sixteen pages around each one that is used, so a start that runs 3 MB of code scattered over the
/// executable makes 20 MB resident. Pages that are used again are found in the page cache, at the price of a minor fault.
#[expect(
    clippy::disallowed_methods,
    reason = "what the kernel says of this process, not a file of the workspace"
)]
pub fn unmap_clean_code() -> usize {
    // Without /proc nothing is known about the mappings, and all stay.
    let (Ok(executable), Ok(smaps)) = (
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/smaps"),
    ) else {
        return 0;
    };
    let Some(executable) = executable.to_str() else {
        return 0;
    };
    let clean = clean_mappings(&smaps, executable);
    clean.filter(unmap_pages).map(|mapping| mapping.len).sum()
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    len: usize,
}

fn unmap_pages(mapping: &Mapping) -> bool {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(mapping.start);
    // SAFETY: the range is a private mapping of the executable that cannot be written and holds no page that differs from
    // the file (`clean_mappings`), so an access after this reads the same bytes from the page cache. The executable is mapped
    // once, before any thread runs, and stays mapped as it is; of libraries, which another thread may be loading, that
    // could not be said.
    unsafe { madvise(start, mapping.len, Advice::LinuxDontNeed) }.is_ok()
}

/// The private mappings of the executable that cannot be written and hold no page of their own.
///
/// The pages that hold relocated addresses are read-only, too, once the process has started; the kernel counts those as
/// anonymous, since they differ from the file.
fn clean_mappings(smaps: &str, executable: &str) -> impl Iterator<Item = Mapping> {
    let mut candidate = None;
    smaps.lines().filter_map(move |line| {
        if let Some(rest) = line.strip_prefix("Anonymous:") {
            let mapping = candidate.take()?;
            return (rest.trim() == "0 kB").then_some(mapping);
        }
        if let Some(head) = head_of_mapping(line, executable) {
            candidate = head;
        }
        None
    })
}

/// `None` for a line that begins no mapping, `Some(None)` for a mapping that stays as it is.
fn head_of_mapping(line: &str, executable: &str) -> Option<Option<Mapping>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let is_read_only = rest.starts_with("r-xp ") || rest.starts_with("r--p ");
    // Permissions, offset, device, inode, and the path behind blanks.
    let path = rest.splitn(5, ' ').nth(4).map(str::trim_start);
    Some(
        (is_read_only && path == Some(executable)).then_some(Mapping {
            start,
            len: end.saturating_sub(start),
        }),
    )
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
pub(crate) mod tests {
    use super::{Mapping, clean_mappings, unmap_clean_code};

    pub(crate) fn resident_kb(field: &str) -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn code_is_unmapped_and_runs_on() {
        let before = resident_kb("RssFile:");
        assert!(before > 0);
        assert!(unmap_clean_code() > 0);
        let after = resident_kb("RssFile:");
        assert!(after < before, "{before} kB before, {after} kB after");
        // Formatting, allocation and relocated tables still work.
        assert_eq!(format!("{:>5}", 2.5_f64), "  2.5");
    }

    #[test]
    fn only_clean_read_only_parts_of_the_executable_count() {
        let smaps = "\
1000-3000 r-xp 00001000 fe:00 12   /bin/a program
Rss:                   8 kB
Anonymous:             0 kB
3000-5000 r--p 00003000 fe:00 12   /bin/a program
Anonymous:             4 kB
5000-6000 rw-p 00005000 fe:00 12   /bin/a program
Anonymous:             0 kB
6000-7000 r--s 00000000 fe:00 12   /bin/a program
Anonymous:             0 kB
7000-8000 r--p 00000000 00:00 0
Anonymous:             0 kB
8000-9000 r-xp 00000000 00:00 0    [vdso]
Anonymous:             0 kB
9000-a000 r--p 00000000 fe:00 14   /lib/library.so
Anonymous:             0 kB
a000-b000 r--p 00000000 fe:00 12   /bin/a program
Anonymous:             0 kB
";
        let clean: Vec<Mapping> = clean_mappings(smaps, "/bin/a program").collect();
        let wanted = [(0x1000, 0x2000), (0xa000, 0x1000)];
        assert_eq!(clean, wanted.map(|(start, len)| Mapping { start, len }));
    }
}
