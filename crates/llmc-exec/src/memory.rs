//! How much memory the machine has.

/// Bytes of the machine's memory; `None` where the kernel does not say.
pub(super) fn machine_memory_bytes() -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1 << 10)
}
