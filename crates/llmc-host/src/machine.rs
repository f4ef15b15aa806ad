//! Load, memory and disk space of the machine.

use std::path::{Path, PathBuf};

use rustix::system::{Sysinfo, sysinfo};

/// The kernel counts load in units of this.
const LOAD_FIXED_POINT: f64 = 65536.0;

/// The state of the machine at one moment.
#[derive(Debug, Clone)]
pub struct MachineSnapshot {
    /// Processors that this process may use.
    pub cpu_count: usize,
    /// The average number of runnable processes over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    pub mem_total_bytes: u64,
    /// Memory available without swapping.
    pub mem_available_bytes: u64,
    /// One entry per file system.
    pub disks: Vec<Disk>,
    /// Seconds since the machine was started.
    pub uptime_s: u64,
}

/// A file system.
#[derive(Debug, Clone)]
pub struct Disk {
    /// A directory on it.
    pub path: PathBuf,
    /// Its size.
    pub total_bytes: u64,
    /// What an ordinary user may still write.
    pub free_bytes: u64,
}

/// Reads the machine's state and that of the file systems that hold these directories.
pub fn snapshot<'a>(dirs: impl Iterator<Item = &'a Path>) -> MachineSnapshot {
    let info = sysinfo();
    let unit = u64::from(info.mem_unit);
    let total = info.totalram as u64 * unit;
    MachineSnapshot {
        cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
        load: info
            .loads
            .map(|load| round_hundredths(load as f64 / LOAD_FIXED_POINT)),
        mem_total_bytes: total,
        mem_available_bytes: read_available_memory()
            .unwrap_or_else(|| free_memory(&info))
            .min(total),
        disks: disks(dirs),
        uptime_s: u64::try_from(info.uptime).unwrap_or(0),
    }
}

fn disks<'a>(dirs: impl Iterator<Item = &'a Path>) -> Vec<Disk> {
    let mut seen = Vec::new();
    let mut disks = Vec::new();
    for path in dirs {
        let (Ok(status), Ok(space)) = (rustix::fs::stat(path), rustix::fs::statvfs(path)) else {
            continue;
        };
        if seen.contains(&status.st_dev) {
            continue;
        }
        seen.push(status.st_dev);
        disks.push(Disk {
            path: path.to_owned(),
            total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        });
    }
    disks
}

/// `MemAvailable`, which counts the caches that the kernel would release.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, not of the agent"
)]
fn read_available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn free_memory(info: &Sysinfo) -> u64 {
    (info.freeram + info.bufferram) * u64::from(info.mem_unit)
}

fn round_hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reports_all_figures_and_each_disk_once() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let gone = dir.path().join("gone");
        let seen = snapshot([dir.path(), &below, &gone].into_iter());
        assert!(seen.cpu_count > 0 && seen.uptime_s > 0, "{seen:?}");
        assert!(seen.mem_total_bytes >= seen.mem_available_bytes, "{seen:?}");
        assert!(seen.mem_available_bytes > 0, "{seen:?}");
        assert_eq!(seen.disks.len(), 1, "{seen:?}");
        assert!(
            seen.disks[0].total_bytes >= seen.disks[0].free_bytes,
            "{seen:?}"
        );
    }
}
