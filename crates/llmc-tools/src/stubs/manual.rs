//! What a program that calls a tool has to know beyond the schema: defaults, limits, what comes back, what goes wrong.
//!
//! None of this is in the schemas, because a model pays for those in every conversation. Here only `tools.help` and the stub file carry it.

use crate::error::ErrorKind::{self, *};

/// One tool, for people and models who write programs.
pub(super) struct ManualEntry {
    pub(super) tool: &'static str,
    /// The Python type of what a script gets.
    pub(super) returns: &'static str,
    /// What is in it.
    pub(super) gives: &'static str,
    /// Arguments with a default (a Python literal) or limits worth telling.
    pub(super) args: &'static [ManualArg],
    /// What goes wrong beside bad arguments and the time limit.
    pub(super) fails: &'static [ErrorKind],
    /// Further words it is looked for by.
    pub(super) words: &'static str,
}

/// One argument: its name, its default as a Python literal or nothing, its limits or nothing.
pub(super) struct ManualArg(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// The entry of a tool without one.
pub(super) static PLAIN: ManualEntry = ManualEntry {
    tool: "",
    returns: "dict | str",
    gives: "",
    args: &[],
    fails: &[],
    words: "",
};

/// The entry of a tool.
pub(super) fn of(tool: &str) -> Option<&'static ManualEntry> {
    ENTRIES.iter().find(|entry| entry.tool == tool)
}

const PATH: &[ErrorKind] = &[InvalidPath, NotFound, PermissionDenied];
const READ: &[ErrorKind] = &[InvalidPath, NotFound, IsDirectory, TooLarge];
const WRITE: &[ErrorKind] = &[InvalidPath, NotFound, PreconditionFailed, Busy, WriteFailed];
const RUN: &[ErrorKind] = &[CommandDenied, IsolationRequired, InvalidPath];
const PROCESS: &[ErrorKind] = &[NotFound];
const RAG: &[ErrorKind] = &[NotFound, Busy];
const TE: &str =
    "text; where something was cut or nothing found, below a header line of JSON with the totals";
const SNIPPETS: &str = "{snippets: [{text, src: \"path#L10-L20\", score, symbol?, kind?}], freshness, index, truncated?, note?}";
const SEARCH: &[ManualArg] = &[
    ManualArg("scope", "", "repo, docs or both"),
    ManualArg("k", "", "at most mcp.rag.top_k"),
    ManualArg("budget_tokens", "", "at most mcp.rag.token_budget"),
];

/// Every tool that a script can call.
#[rustfmt::skip] // One row a tool, to be read as the table it is.
static ENTRIES: &[ManualEntry] = &[
    ManualEntry { tool: "read_file", returns: "str", gives: "the text, whole unless a slice is asked for, without a tag line",
        args: &[ManualArg("offset_lines", "0", "lines to skip"), ManualArg("max_lines", "", "1 to 100000; the whole file without")],
        fails: READ, words: "open load cat content" },
    ManualEntry { tool: "list_dir", returns: "list[str]", gives: "names; those of directories end in /",
        args: &[ManualArg("include_hidden", "False", "")], fails: PATH, words: "ls folder entries files" },
    ManualEntry { tool: "stat", returns: "dict", gives: "{size, mtime (Unix seconds), mode: \"0644\", type: file|dir|symlink|other}",
        args: &[], fails: PATH, words: "exists info metadata modified permission" },
    ManualEntry { tool: "linux_fs_read", returns: "dict", gives: "{content, handle, meta: {path, total_lines, truncated, sha256}}; sha256 is the tag for expected_sha256",
        args: &[ManualArg("offset_lines", "0", "lines to skip"), ManualArg("max_lines", "200", "1 to 2000")], fails: READ, words: "open load content hash" },
    ManualEntry { tool: "linux_fs_write", returns: "dict", gives: "{bytes_written, new_sha256}",
        args: &[ManualArg("mode", "\"rewrite\"", ""), ManualArg("expected_sha256", "", "full hash, or a tag of 8 digits or more")],
        fails: WRITE, words: "save store overwrite new output" },
    ManualEntry { tool: "linux_fs_edit", returns: "dict", gives: "{replacements, bytes_written, new_sha256}",
        args: &[ManualArg("expected_replacements", "1", "1 to 1000000; must be the true count"), ManualArg("expected_sha256", "", "full hash, or a tag of 8 digits or more")],
        fails: &[InvalidPath, NotFound, NoMatch, PreconditionFailed, Busy, WriteFailed], words: "change modify substitute rename update sed" },
    ManualEntry { tool: "linux_fs_list", returns: "dict", gives: "{entries: [{path, type, size_bytes, mtime_iso}], total_entries, truncated, handle}; 500 entries at most",
        args: &[ManualArg("depth", "2", "0 to 10; 0 is the directory's own entries"), ManualArg("include_hidden", "False", ""), ManualArg("file_glob", "", "on file names")],
        fails: PATH, words: "walk recursive folder files ls" },
    ManualEntry { tool: "linux_fs_move", returns: "dict", gives: "{ok, source, target}", args: &[],
        fails: &[InvalidPath, NotFound, AlreadyExists, Busy], words: "mv" },
    ManualEntry { tool: "linux_fs_delete", returns: "dict", gives: "{ok, path}", args: &[ManualArg("recursive", "False", "")],
        fails: &[InvalidPath, NotFound, IsDirectory, Busy], words: "remove rm unlink erase" },
    ManualEntry { tool: "linux_fs_mkdirs", returns: "dict", gives: "{ok, path}", args: &[ManualArg("exist_ok", "True", "")],
        fails: &[InvalidPath, AlreadyExists, NotADirectory], words: "mkdir folder make new" },
    ManualEntry { tool: "linux_search_files", returns: "dict", gives: "{hits: [{path}], total_hits, truncated, handle, files_searched, skipped}",
        args: &[ManualArg("pattern", "", "a glob if it has * ? [ {, else part of the name in any case"), ManualArg("file_glob", "", ""), ManualArg("max_results", "200", "1 to 2000")],
        fails: PATH, words: "locate glob filename" },
    ManualEntry { tool: "linux_search_content", returns: "dict", gives: "{hits: [{path, line, snippet}], total_hits, truncated, handle, files_searched, skipped}; one hit a line",
        args: &[ManualArg("file_glob", "", "such as *.py"), ManualArg("literal", "False", ""), ManualArg("ignore_case", "True", ""), ManualArg("context_lines", "3", "0 to 10; 0 makes snippet the line alone"), ManualArg("max_results", "100", "1 to 1000")],
        fails: &[InvalidPath, NotFound, BadPattern], words: "grep rg ripgrep find text pattern match occurrence todo" },
    ManualEntry { tool: "linux_handle_read", returns: "dict", gives: "{data, encoding: utf-8|base64, offset, length, total_bytes, eof, stale, meta}",
        args: &[ManualArg("offset", "0", "bytes"), ManualArg("limit", "65536", "1 to 8388608 bytes")], fails: &[HandleExpired], words: "rest truncated more" },
    ManualEntry { tool: "run_cmd", returns: "dict", gives: "{stdout, stderr, exit_code}, and proc_id if it runs on; a failing command is no error",
        args: &[ManualArg("command", "", "a shell line; either this or argv"), ManualArg("argv", "", "words as they are"), ManualArg("cwd", "", "the workspace root without"), ManualArg("timeout", "", "seconds to wait; then it goes on as proc_id"), ManualArg("proc", "", "waits on for that proc_id"), ManualArg("input", "", "standard input")],
        fails: RUN, words: "shell execute program subprocess bash build test" },
    ManualEntry { tool: "linux_proc_start", returns: "dict", gives: "{proc_id, pid}",
        args: &[ManualArg("command", "", "either this or argv"), ManualArg("cwd", "", "the workspace root without"), ManualArg("pty", "False", "")],
        fails: &[CommandDenied, IsolationRequired, InvalidPath, RateLimited], words: "background daemon server spawn launch interactive" },
    ManualEntry { tool: "linux_proc_read", returns: "dict", gives: "{output, offset, next_offset, dropped_bytes, running, exit_code, signal}",
        args: &[ManualArg("offset", "", "where the last read ended without"), ManualArg("until", "", "a regular expression to wait for"), ManualArg("timeout", "", "seconds to wait")],
        fails: PROCESS, words: "stdout background wait" },
    ManualEntry { tool: "linux_proc_send", returns: "dict", gives: "{ok, bytes}", args: &[], fails: PROCESS, words: "stdin type background" },
    ManualEntry { tool: "linux_proc_stop", returns: "dict", gives: "{ok, exit_code, signal}", args: &[ManualArg("signal", "", "TERM, then KILL, without")], fails: PROCESS, words: "terminate kill background" },
    ManualEntry { tool: "linux_proc_list", returns: "dict", gives: "{processes: [{proc_id, pid, command, running, started_iso}]}", args: &[], fails: &[], words: "background running jobs ps" },
    ManualEntry { tool: "linux_proc_kill", returns: "dict", gives: "{ok, exit_code, signal}", args: &[], fails: &[NotFound, PermissionDenied, CommandDenied], words: "terminate" },
    ManualEntry { tool: "linux_sys_snapshot", returns: "dict", gives: "{cpu_count, load: [1, 5, 15 minutes], mem_total_bytes, mem_available_bytes, disk: [{path, total_bytes, free_bytes}], uptime_s}",
        args: &[], fails: &[], words: "cpu ram free space machine system" },
    ManualEntry { tool: "te_grep", returns: "str", gives: TE, args: &[ManualArg("path", "\".\"", ""), ManualArg("raw", "False", "")],
        fails: &[InvalidPath, NotFound, BadPattern], words: "find text regex rank definition" },
    ManualEntry { tool: "te_cat", returns: "str", gives: TE, args: &[ManualArg("lines", "", "that many from the start; a preview without")], fails: READ, words: "read show print" },
    ManualEntry { tool: "te_find", returns: "str", gives: TE, args: &[ManualArg("path", "\".\"", "")], fails: PATH, words: "locate filename" },
    ManualEntry { tool: "te_ls", returns: "str", gives: TE, args: &[ManualArg("path", "\".\"", "")], fails: PATH, words: "folder entries" },
    ManualEntry { tool: "te_head", returns: "str", gives: TE, args: &[ManualArg("lines", "10", "from 1")], fails: READ, words: "start top beginning" },
    ManualEntry { tool: "te_tail", returns: "str", gives: TE, args: &[ManualArg("lines", "10", "from 1")], fails: READ, words: "end bottom log" },
    ManualEntry { tool: "te_handle", returns: "str", gives: TE, args: &[ManualArg("chunk", "0", "from 0")], fails: &[HandleExpired], words: "rest more" },
    ManualEntry { tool: "te_run", returns: "str", gives: TE, args: &[ManualArg("command", "", "either this or argv"), ManualArg("cwd", "", "the workspace root without"), ManualArg("timeout", "", "seconds")],
        fails: RUN, words: "shell execute program" },
    ManualEntry { tool: "te_rag", returns: "str", gives: TE, args: &[], fails: RAG, words: "semantic search snippets" },
    ManualEntry { tool: "te_explain", returns: "str", gives: TE, args: &[], fails: RAG, words: "definition documentation callers function class" },
    ManualEntry { tool: "te_diff", returns: "str", gives: TE, args: &[ManualArg("b", "", "HEAD without")], fails: READ, words: "changes difference uncommitted" },
    ManualEntry { tool: "te_git", returns: "str", gives: TE, args: &[ManualArg("args", "", "such as [\"log\", \"-5\"]")], fails: &[CommandDenied], words: "history blame status commit branch show" },
    ManualEntry { tool: "repo_read", returns: "str", gives: TE, args: &[ManualArg("max_bytes", "65536", "1 to 8388608")], fails: READ, words: "open content" },
    ManualEntry { tool: "repo_write_patch", returns: "str", gives: "one line a file: created, modified, deleted or renamed to, and its path", args: &[], fails: &[InvalidPath, NoMatch, Busy], words: "edit change modify hunks" },
    ManualEntry { tool: "run_pytest", returns: "str", gives: TE, args: &[ManualArg("args", "[]", "pytest's own words")], fails: &[CommandDenied, NotFound], words: "test tests unit python execute" },
    ManualEntry { tool: "rag_search", returns: "dict", gives: SNIPPETS, args: SEARCH, fails: RAG, words: "semantic where implemented retrieval" },
    ManualEntry { tool: "rag_query", returns: "dict", gives: SNIPPETS, args: SEARCH, fails: RAG, words: "" },
    ManualEntry { tool: "rag_search_enriched", returns: "dict", gives: "as rag_search, with neighbours in each snippet; 8 at most, else with neighbours_total and a handle",
        args: &[ManualArg("scope", "", "repo, docs or both"), ManualArg("k", "", "at most mcp.rag.top_k"), ManualArg("budget_tokens", "", "at most mcp.rag.token_budget"), ManualArg("graph_depth", "1", "1 to 5")],
        fails: RAG, words: "graph context" },
    ManualEntry { tool: "rag_where_used", returns: "dict", gives: "{symbol, sites: [{path, line, symbol, text, confidence}], total, truncated?, handle?}; 100 sites at most", args: &[ManualArg("depth", "1", "1 to 5")], fails: RAG, words: "references callers usages find" },
    ManualEntry { tool: "rag_lineage", returns: "dict", gives: "{symbol, direction, nodes: [{symbol, src, depth, confidence}], total, truncated?, handle?}; 100 nodes at most", args: &[ManualArg("direction", "\"callers\"", "or callees"), ManualArg("depth", "2", "1 to 5")], fails: RAG, words: "graph dependencies impact" },
    ManualEntry { tool: "inspect", returns: "dict", gives: "{symbol?, path, kind, src, signature, doc, text, callers, callees, tests, docs, truncated?, handle?}; 8 of each list at most, else with callers_total and so on", args: &[ManualArg("symbol", "", "either this or path")], fails: RAG, words: "definition function class explain" },
    ManualEntry { tool: "rag_plan", returns: "dict", gives: "{query, confidence, steps: [{src, why, confidence}]}", args: &[], fails: RAG, words: "where start" },
    ManualEntry { tool: "rag_stats", returns: "dict", gives: "{files, chunks, symbols, edges, languages, bytes, updated_iso, state}", args: &[], fails: &[], words: "languages count" },
    ManualEntry { tool: "rag_bootload", returns: "dict", gives: "{plan, scope, notes, snippets, provenance, freshness}", args: &[], fails: RAG, words: "begin contract rules" },
    ManualEntry { tool: "rlm_query", returns: "dict", gives: "{answer, budget_summary, …}", args: &[], fails: &[EgressDenied, BudgetExceeded, NoAnswer, ProviderFailed], words: "analyse long document model summarize" },
    ManualEntry { tool: "get_metrics", returns: "dict", gives: "counts and latencies by tool, uptime_s, handles", args: &[], fails: &[], words: "statistics usage performance" },
    ManualEntry { tool: "health", returns: "dict", gives: "{ok, version, confinement, profile, index}", args: &[], fails: &[], words: "status alive" },
];
