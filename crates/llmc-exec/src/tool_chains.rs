//! Which tool chains are there, and whether they start inside the boundary.

use std::path::PathBuf;
use std::time::Duration;

use super::follow::Stream;
use super::programs::find_program;
use super::runner::{ExecRequest, Runner};
use llmc_host::{CancelToken, OpenDir};

/// How long one of them may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Much more than any of them prints.
const MAX_VERSION_BYTES: u64 = 64 << 10;

/// The program of each tool chain and what makes it print its version.
const TOOL_CHAINS: [&[&str]; 17] = [
    &["bash", "--version"],
    &["git", "--version"],
    &["make", "--version"],
    &["cmake", "--version"],
    &["cc", "--version"],
    &["cargo", "--version"],
    &["go", "version"],
    &["node", "--version"],
    &["npm", "--version"],
    &["deno", "--version"],
    &["bun", "--version"],
    &["python", "--version"],
    &["uv", "--version"],
    &["java", "-version"],
    &["mvn", "--version"],
    &["ruby", "--version"],
    &["dotnet", "--version"],
];

/// A tool chain that was found.
#[derive(Debug, Clone)]
pub struct ToolChain {
    pub name: &'static str,
    pub program: PathBuf,
    /// The first line it printed inside the boundary, or why it did not start there.
    pub version: Result<String, String>,
}

/// Looks every known tool chain up in the search path and runs one command of each, confined.
pub fn check_tool_chains(runner: &Runner, cwd: &OpenDir) -> Vec<ToolChain> {
    let search_path = &runner.settings().search_path;
    let found = TOOL_CHAINS.iter().filter_map(|argv| {
        let name = argv.first()?;
        let program = find_program(name, &cwd.path.absolute(), search_path).ok()?;
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        let mut printed = Vec::new();
        let spec = ExecRequest {
            program: Some(&program),
            max_output: MAX_VERSION_BYTES,
            ..ExecRequest::new(&argv, cwd, VERSION_TIMEOUT)
        };
        let mut collect = |_: Stream, bytes: &[u8]| printed.extend_from_slice(bytes);
        let ran = runner.run(&spec, &mut collect, &CancelToken::default());
        let printed = String::from_utf8_lossy(&printed);
        let mut lines = printed.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let first = without_terminal_escapes(first);
        let version = match ran {
            Ok(report) if report.status.is_success() => Ok(first),
            Ok(report) if report.timed_out => Err("it took too long".to_owned()),
            Ok(_) => Err(first),
            Err(error) => Err(error.to_string()),
        };
        Some(ToolChain {
            name,
            program: program.path,
            version,
        })
    });
    found.collect()
}

/// The text without colour codes, which Maven prints into pipes too.
fn without_terminal_escapes(line: &str) -> String {
    let mut plain = String::new();
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            // A sequence ends with its first letter.
            let _ = chars.find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}
