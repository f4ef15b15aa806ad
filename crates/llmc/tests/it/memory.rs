//! What a server gives back to the kernel.

use std::time::Instant;

use llmc_testkit::TEST_TIMEOUT;
use rustix::process::Pid;
use serde_json::json;

use crate::{classic, workspace};

#[test]
fn code_that_only_the_start_used_does_not_stay_resident() {
    let workspace = workspace("//- a.txt\nhello\n");
    let mut client = classic(&workspace);
    let pid = client.process().pid();
    let began = Instant::now();
    let mut most = 0;
    loop {
        let resident = file_backed_kb(pid);
        most = most.max(resident);
        if resident * 2 < most {
            break;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{resident} kB of {most} kB");
        std::thread::yield_now();
    }
    // What was unmapped is found again.
    let (is_error, text) = client.call_tool("read_file", json!({"path": "a.txt"}));
    assert!(!is_error && text.starts_with("hello\n"), "{text}");
}

/// Resident pages of files: of the executable and its libraries.
fn file_backed_kb(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssFile:"));
    let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse().unwrap()
}
