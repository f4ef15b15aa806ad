//! How much memory all processes of a run may use together.

/// The bound on a run as a whole: that of one process, or most of the machine's memory where that is more, so that parallel
/// builds work and the machine stays usable.
pub(super) fn run_memory_bytes(one_process: u64) -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line
        .and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    one_process.max((kilobytes << 10) / 4 * 3)
}
