//! The program from outside: over MCP, from the shell, killed, attacked, observed.
//!
//! - `modes`: how one is chosen, what it costs, the security checklist of hybrid mode
//! - `protocol`: the three revisions of MCP, modes, aliases; `resources`: resources and pages of handles
//! - `hints`: every text names what its reader can call
//! - `shapes`: what every tool answers, field by field; `arguments`: the arguments it refuses
//! - `history`: every change can be seen and undone; `history_api`: by whom, over HTTP and in a shell
//! - `hostile`: hostile paths, patterns, files and lines; `hostile_roots`: roots, protected names, the denylist
//! - `crash`: kill -9 at any moment, several processes on one file
//! - `observe`: audit, telemetry, metrics, handles over restarts; `logs`: what a server logs
//! - `memory`: what a server gives back to the kernel
//! - `commands`: programs inside the boundary
//! - `code`: scripts that call tools; `code_escapes`: scripts that mean harm; `code_files`: Python's own file functions;
//! - `procs`: programs that outlive their calls; `procs_limits`: their limits, owners and signals
//! - `tool_chains`: cargo, npm, pytest and the rest, without configuration
//! - `confined`: what the server says about confinement, proves, demands and hides
//! - `soak`: very many commands, and nothing left of them
//! - `policy`: the restricted profile, the operator's rules, git
//! - `cli`: the verbs of the command line; `cli_config`: their configuration; `shell`: help, completions, colour, exit codes
//! - `install`, `install_all`: clients' settings; `init`: a configuration fitted to the repository
//! - `exit`: how a server ends
//! - `te`: the Tool Envelope
//! - `envelope`: what every enveloped answer keeps, whatever is in the files
//! - `equivalents`: what the tools of Desktop Commander do, done here
//! - `te_diff`, `run_pytest`: two of its tools, on real repositories and test runs
//! - `run_preview`, `run_compare`: commands on copy-on-write views, which change nothing
//! - `foreign_repositories`: git is not led outside the roots; `handle_policy`: handles under a narrowed policy
//! - `http_flood`: very many connections without a token
//! - `http`: every route's answer; `http_mcp`: MCP over HTTP; `http_gates`: who gets none; `http_hostile`: requests that mean harm;
//!   `http_life`: TLS, sockets, start and end; `http_watch`: what dashboards read
//! - `dashboard`: calls of every server, what runs, who sees it, and the one-time link
//! - `rag`: the code index; `rag_whole`: what its answers say about what they leave out;
//!   `rag_builders`: several servers while it is built
//! - `rlm`: recursive analysis, against a scripted model
//! - `trust`: what a repository's own files cannot do to configuration, start and tokens; `allow`: what the user allows
//!   commands beyond the configuration
//! - `tui`: the live picture, in a real terminal
//! - `deploy`: what containers rely on; `store`: servers that share a database
//! - `names`: names and words across the workspace; `threat_model`: the tests that it names
//! - `goldens`: recorded answers of every tool on every surface
//! - `documents`: documents and images, real ones and hostile ones
//! - `docs`: the generated reference pages; `guides`: the written ones, whose examples are run

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and tests look at files and start programs from outside"
)]

mod allow;
mod approvals;
mod arguments;
mod cli;
mod cli_config;
mod code;
mod code_escapes;
mod code_files;
mod code_python;
mod commands;
mod confined;
mod crash;
mod dashboard;
mod deploy;
mod docs;
mod documents;
mod envelope;
mod equivalents;
mod exit;
mod foreign_repositories;
mod goldens;
mod guides;
mod handle_policy;
mod hints;
mod history;
mod history_api;
mod history_terminal;
mod history_undo;
mod hostile;
mod hostile_roots;
mod http;
mod http_flood;
mod http_gates;
mod http_hostile;
mod http_life;
mod http_mcp;
mod http_watch;
mod init;
mod install;
mod install_all;
mod logs;
mod long_runs;
mod modes;
mod names;
mod observe;
mod pages;
mod policy;
mod procs;
mod procs_limits;
mod protocol;
mod rag;
mod rag_builders;
mod rag_disk;
mod rag_hostile;
mod rag_whole;
mod reading;
mod refusals;
mod resources;
mod rlm;
mod run_compare;
mod run_compare_tests;
mod run_preview;
mod run_pytest;
mod run_tests;
mod sessions;
mod shapes;
mod shell;
mod soak;
mod store;
mod te;
mod te_cli;
mod te_diff;
mod te_run;
mod threat_model;
mod tool_chains;
mod trust;
mod tui;
mod upstream;

use llmc_testkit::{McpClient, TestWorkspace};

/// A workspace from a fixture, around the program under test.
fn workspace(fixture: &str) -> TestWorkspace {
    TestWorkspace::from_fixture(env!("CARGO_BIN_EXE_llmc"), fixture)
}

/// A server that lists everything, after a handshake.
fn classic(workspace: &TestWorkspace) -> McpClient {
    let mut client = workspace.mcp(["--mode", "classic"]);
    client.initialize("2025-11-25");
    client
}

/// Sorted keys of an object.
fn keys(object: &serde_json::Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .unwrap_or_else(|| panic!("not an object: {object}"))
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// A file whose first line is short and whose 200 GiB take far longer to hash than any test runs; it takes no space.
fn huge(workspace: &TestWorkspace, name: &str) {
    workspace.write(name, "first\n");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(workspace.path(name))
        .unwrap();
    file.set_len(200 << 30).unwrap();
}
