//! What a program that calls a tool has to know beyond the schema: defaults, limits, what comes back, what goes wrong.
//!
//! None of this is in the schemas, because a model pays for those in every conversation. Here it costs only whoever asks.

use crate::error::Kind::{self, *};

/// One tool, for people and models who write programs.
pub(super) struct Entry {
    pub(super) tool: &'static str,
    /// The Python type of what a script gets.
    pub(super) returns: &'static str,
    /// What is in it.
    pub(super) gives: &'static str,
    /// Arguments with a default (a Python literal) or limits worth telling.
    pub(super) args: &'static [Arg],
    /// What goes wrong beside bad arguments and the time limit.
    pub(super) fails: &'static [Kind],
    /// Further words it is looked for by.
    pub(super) words: &'static str,
}

/// One argument: its name, its default as a Python literal or nothing, its limits or nothing.
pub(super) struct Arg(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// What a tool without an entry is told by.
pub(super) static PLAIN: Entry = Entry {
    tool: "",
    returns: "dict | str",
    gives: "",
    args: &[],
    fails: &[],
    words: "",
};

/// The entry of a tool.
pub(super) fn of(tool: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.tool == tool)
}

const PATH: &[Kind] = &[InvalidPath, NotFound, PermissionDenied];
const READ: &[Kind] = &[InvalidPath, NotFound, IsDirectory, TooLarge];
const WRITE: &[Kind] = &[InvalidPath, NotFound, PreconditionFailed, Busy, WriteFailed];
const RUN: &[Kind] = &[CommandDenied, IsolationRequired, InvalidPath];
const PROCESS: &[Kind] = &[NotFound];
const RAG: &[Kind] = &[NotFound, Busy];
const TE: &str = "TE text: a header line of JSON with the totals, then the body";
const SNIPPETS: &str = "{snippets: [{text, src: \"path#L10-L20\", score, symbol?, kind?}], freshness, index, truncated?, note?}";
const SEARCH: &[Arg] = &[
    Arg("scope", "", "repo, docs or both"),
    Arg("k", "", "at most mcp.rag.top_k"),
    Arg("budget_tokens", "", "at most mcp.rag.token_budget"),
];

/// Every tool that a script can call.
#[rustfmt::skip] // One row a tool, to be read as the table it is.
static ENTRIES: &[Entry] = &[
    Entry { tool: "read_file", returns: "str", gives: "the text, whole unless a slice is asked for, without a tag line",
        args: &[Arg("offset_lines", "0", "lines to skip"), Arg("max_lines", "", "1 to 100000; the whole file without")],
        fails: READ, words: "open load cat content" },
    Entry { tool: "list_dir", returns: "list[str]", gives: "names; those of directories end in /",
        args: &[Arg("include_hidden", "False", "")], fails: PATH, words: "ls folder entries files" },
    Entry { tool: "stat", returns: "dict", gives: "{size, mtime (Unix seconds), mode: \"0644\", type: file|dir|symlink|other}",
        args: &[], fails: PATH, words: "exists info metadata modified permission" },
    Entry { tool: "linux_fs_read", returns: "dict", gives: "{content, handle, meta: {path, total_lines, truncated, sha256}}; sha256 is the tag for expected_sha256",
        args: &[Arg("offset_lines", "0", "lines to skip"), Arg("max_lines", "200", "1 to 2000")], fails: READ, words: "open load content hash" },
    Entry { tool: "linux_fs_write", returns: "dict", gives: "{bytes_written, new_sha256}",
        args: &[Arg("mode", "\"rewrite\"", ""), Arg("expected_sha256", "", "full hash, or a tag of 8 digits or more")],
        fails: WRITE, words: "save store overwrite new output" },
    Entry { tool: "linux_fs_edit", returns: "dict", gives: "{replacements, bytes_written, new_sha256}",
        args: &[Arg("expected_replacements", "1", "1 to 1000000; must be the true count"), Arg("expected_sha256", "", "full hash, or a tag of 8 digits or more")],
        fails: &[InvalidPath, NotFound, NoMatch, PreconditionFailed, Busy, WriteFailed], words: "change modify substitute rename update sed" },
    Entry { tool: "linux_fs_list", returns: "dict", gives: "{entries: [{path, type, size_bytes, mtime_iso}], total_entries, truncated, handle}; 500 entries at most",
        args: &[Arg("depth", "2", "0 to 10; 0 is the directory's own entries"), Arg("include_hidden", "False", ""), Arg("file_glob", "", "on file names")],
        fails: PATH, words: "walk recursive folder files ls" },
    Entry { tool: "linux_fs_move", returns: "dict", gives: "{ok, source, target}", args: &[],
        fails: &[InvalidPath, NotFound, AlreadyExists, Busy], words: "mv" },
    Entry { tool: "linux_fs_delete", returns: "dict", gives: "{ok, path}", args: &[Arg("recursive", "False", "")],
        fails: &[InvalidPath, NotFound, IsDirectory, Busy], words: "remove rm unlink erase" },
    Entry { tool: "linux_fs_mkdirs", returns: "dict", gives: "{ok, path}", args: &[Arg("exist_ok", "True", "")],
        fails: &[InvalidPath, AlreadyExists, NotADirectory], words: "mkdir folder make new" },
    Entry { tool: "linux_search_files", returns: "dict", gives: "{hits: [{path}], total_hits, truncated, handle, files_searched, skipped}",
        args: &[Arg("pattern", "", "a glob if it has * ? [ {, else part of the name in any case"), Arg("file_glob", "", ""), Arg("max_results", "200", "1 to 2000")],
        fails: PATH, words: "locate glob filename" },
    Entry { tool: "linux_search_content", returns: "dict", gives: "{hits: [{path, line, snippet}], total_hits, truncated, handle, files_searched, skipped}; one hit a line",
        args: &[Arg("file_glob", "", "such as *.py"), Arg("literal", "False", ""), Arg("ignore_case", "True", ""), Arg("context_lines", "3", "0 to 10; 0 makes snippet the line alone"), Arg("max_results", "100", "1 to 1000")],
        fails: &[InvalidPath, NotFound, BadPattern], words: "grep rg ripgrep find text pattern match occurrence todo" },
    Entry { tool: "linux_handle_read", returns: "dict", gives: "{data, encoding: utf-8|base64, offset, length, total_bytes, eof, stale, meta}",
        args: &[Arg("offset", "0", "bytes"), Arg("limit", "65536", "1 to 8388608 bytes")], fails: &[HandleExpired], words: "rest truncated more" },
    Entry { tool: "run_cmd", returns: "dict", gives: "{stdout, stderr, exit_code}; a failing command is no error",
        args: &[Arg("command", "", "a shell line; either this or argv"), Arg("argv", "", "words as they are"), Arg("cwd", "", "the workspace root without"), Arg("timeout", "", "seconds to wait; then it goes on as proc_id"), Arg("proc", "", "waits on for that proc_id"), Arg("input", "", "standard input")],
        fails: RUN, words: "shell execute program subprocess bash build test" },
    Entry { tool: "linux_proc_start", returns: "dict", gives: "{proc_id, pid}",
        args: &[Arg("command", "", "either this or argv"), Arg("cwd", "", "the workspace root without"), Arg("pty", "False", "")],
        fails: &[CommandDenied, IsolationRequired, InvalidPath, RateLimited], words: "background daemon server spawn launch interactive" },
    Entry { tool: "linux_proc_read", returns: "dict", gives: "{output, offset, next_offset, dropped_bytes, running, exit_code, signal}",
        args: &[Arg("offset", "", "where the last read ended without"), Arg("until", "", "a regular expression to wait for"), Arg("timeout", "", "seconds to wait")],
        fails: PROCESS, words: "stdout background wait" },
    Entry { tool: "linux_proc_send", returns: "dict", gives: "{ok, bytes}", args: &[], fails: PROCESS, words: "stdin type background" },
    Entry { tool: "linux_proc_stop", returns: "dict", gives: "{ok, exit_code, signal}", args: &[Arg("signal", "", "TERM, then KILL, without")], fails: PROCESS, words: "terminate kill background" },
    Entry { tool: "linux_proc_list", returns: "dict", gives: "{processes: [{proc_id, pid, command, running, started_iso}]}", args: &[], fails: &[], words: "background running jobs ps" },
    Entry { tool: "linux_proc_kill", returns: "dict", gives: "{ok, exit_code, signal}", args: &[], fails: &[NotFound, PermissionDenied, CommandDenied], words: "terminate" },
    Entry { tool: "linux_sys_snapshot", returns: "dict", gives: "{cpu_count, load: [1, 5, 15 minutes], mem_total_bytes, mem_available_bytes, disk: [{path, total_bytes, free_bytes}], uptime_s}",
        args: &[], fails: &[], words: "cpu ram free space machine system" },
    Entry { tool: "te_grep", returns: "str", gives: TE, args: &[Arg("path", "\".\"", ""), Arg("raw", "False", "")],
        fails: &[InvalidPath, NotFound, BadPattern], words: "find text regex rank definition" },
    Entry { tool: "te_cat", returns: "str", gives: TE, args: &[Arg("lines", "", "that many from the start; a preview without")], fails: READ, words: "read show print" },
    Entry { tool: "te_find", returns: "str", gives: TE, args: &[Arg("path", "\".\"", "")], fails: PATH, words: "locate filename" },
    Entry { tool: "te_ls", returns: "str", gives: TE, args: &[Arg("path", "\".\"", "")], fails: PATH, words: "folder entries" },
    Entry { tool: "te_head", returns: "str", gives: TE, args: &[Arg("lines", "10", "from 1")], fails: READ, words: "start top beginning" },
    Entry { tool: "te_tail", returns: "str", gives: TE, args: &[Arg("lines", "10", "from 1")], fails: READ, words: "end bottom log" },
    Entry { tool: "te_handle", returns: "str", gives: TE, args: &[Arg("chunk", "0", "from 0")], fails: &[HandleExpired], words: "rest more" },
    Entry { tool: "te_run", returns: "str", gives: TE, args: &[Arg("command", "", "either this or argv"), Arg("cwd", "", "the workspace root without"), Arg("timeout", "", "seconds")],
        fails: RUN, words: "shell execute program" },
    Entry { tool: "te_rag", returns: "str", gives: TE, args: &[], fails: RAG, words: "semantic search snippets" },
    Entry { tool: "te_explain", returns: "str", gives: TE, args: &[], fails: RAG, words: "definition documentation callers function class" },
    Entry { tool: "te_diff", returns: "str", gives: TE, args: &[Arg("b", "", "HEAD without")], fails: READ, words: "changes difference uncommitted" },
    Entry { tool: "te_git", returns: "str", gives: TE, args: &[Arg("args", "", "such as [\"log\", \"-5\"]")], fails: &[CommandDenied], words: "history blame status commit branch show" },
    Entry { tool: "repo_read", returns: "str", gives: TE, args: &[Arg("max_bytes", "65536", "1 to 8388608")], fails: READ, words: "open content" },
    Entry { tool: "repo_write_patch", returns: "str", gives: TE, args: &[], fails: &[InvalidPath, NoMatch, Busy], words: "edit change modify hunks" },
    Entry { tool: "run_pytest", returns: "str", gives: TE, args: &[Arg("args", "[]", "pytest's own words")], fails: &[CommandDenied, NotFound], words: "test tests unit python execute" },
    Entry { tool: "rag_search", returns: "dict", gives: SNIPPETS, args: SEARCH, fails: RAG, words: "semantic where implemented retrieval" },
    Entry { tool: "rag_query", returns: "dict", gives: SNIPPETS, args: SEARCH, fails: RAG, words: "" },
    Entry { tool: "rag_search_enriched", returns: "dict", gives: "as rag_search, with neighbours in each snippet; 8 at most, else with neighbours_total and a handle",
        args: &[Arg("scope", "", "repo, docs or both"), Arg("k", "", "at most mcp.rag.top_k"), Arg("budget_tokens", "", "at most mcp.rag.token_budget"), Arg("graph_depth", "1", "1 to 5")],
        fails: RAG, words: "graph context" },
    Entry { tool: "rag_where_used", returns: "dict", gives: "{symbol, sites: [{path, line, symbol, text, confidence}], total, truncated?, handle?}; 100 sites at most", args: &[Arg("depth", "1", "1 to 5")], fails: RAG, words: "references callers usages find" },
    Entry { tool: "rag_lineage", returns: "dict", gives: "{symbol, direction, nodes: [{symbol, src, depth, confidence}], total, truncated?, handle?}; 100 nodes at most", args: &[Arg("direction", "\"callers\"", "or callees"), Arg("depth", "2", "1 to 5")], fails: RAG, words: "graph dependencies impact" },
    Entry { tool: "inspect", returns: "dict", gives: "{symbol?, path, kind, src, signature, doc, text, callers, callees, tests, docs, truncated?, handle?}; 8 of each list at most, else with callers_total and so on", args: &[Arg("symbol", "", "either this or path")], fails: RAG, words: "definition function class explain" },
    Entry { tool: "rag_plan", returns: "dict", gives: "{query, confidence, steps: [{src, why, confidence}]}", args: &[], fails: RAG, words: "where start" },
    Entry { tool: "rag_stats", returns: "dict", gives: "{files, chunks, symbols, edges, languages, bytes, updated_iso, state}", args: &[], fails: &[], words: "languages count" },
    Entry { tool: "rag_bootload", returns: "dict", gives: "{plan, scope, notes, snippets, provenance, freshness}", args: &[], fails: RAG, words: "begin contract rules" },
    Entry { tool: "rlm_query", returns: "dict", gives: "{answer, budget_summary, …}", args: &[], fails: &[EgressDenied, BudgetExceeded, NoAnswer, ProviderFailed], words: "analyse long document model summarize" },
    Entry { tool: "get_metrics", returns: "dict", gives: "counts and latencies by tool, uptime_s, handles", args: &[], fails: &[], words: "statistics usage performance" },
    Entry { tool: "health", returns: "dict", gives: "{ok, version, confinement, profile, index}", args: &[], fails: &[], words: "status alive" },
];
