//! Programs that run other programs, or code they are given: with one of them allowed, a list of names bounds nothing.

use super::policy::is_launcher;

/// Programs that start others only by certain arguments, which rules can refuse.
const BOUND_BY_RULES: &[&str] = &["find", "git", "sed", "sort"];

/// Whether a program on a list of allowed names can run anything else.
///
/// Takes a name or a path; a version at the end (`python3.12`, `gcc-13`) changes nothing. That a name is not known here
/// proves nothing: this list serves warnings and refusals, the boundary is the kernel's.
pub fn is_interpreter(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    is_launcher(name) || BOUND_BY_RULES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_known_by_name_path_and_version() {
        for name in [
            "bash",
            "/usr/bin/python3.12",
            "python",
            "gcc-13",
            "env",
            "pip3",
        ] {
            assert!(is_interpreter(name), "{name}");
        }
        for name in [
            "rg",
            "grep",
            "cat",
            "ls",
            "/usr/bin/wc",
            "stat",
            "bashful",
            "",
            "3",
        ] {
            assert!(!is_interpreter(name), "{name}");
        }
    }
}
