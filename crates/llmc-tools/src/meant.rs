//! Which tool a name means that no tool here has.
//!
//! Models know the tools of other agents: a call of `edit_file` or `bash` has a clear meaning here too. Every surface that
//! refuses a name offers the tool that does the same and that its reader can call.

use std::borrow::Cow;

use llmc_config::Config;

use crate::call::nearest;
use crate::catalog;
use crate::cx::Surface;
use crate::reachable::{Reach, Route};
use crate::stubs;
use crate::tool::ToolDef;

/// Tools that do the same, the usual one first, and names under which other agents know them.
const MEANINGS: &[(&[&str], &[&str])] = &[
    (
        &["read_file", "te_cat", "linux_fs_read", "repo_read"],
        &[
            "read",
            "cat",
            "view",
            "view_file",
            "open",
            "open_file",
            "show",
            "show_file",
            "get_file",
            "fs_read",
            "file_read",
            "read_text_file",
            "read_files",
            "read_many_files",
            "read_multiple_files",
            "get_file_contents",
            "load_file",
            "file_content",
            "less",
            "more",
            "type",
            "text_editor_view",
            "download_file",
            "fetch_file",
            "notebook_read",
        ],
    ),
    (
        &["linux_fs_edit", "repo_write_patch"],
        &[
            "edit",
            "edit_file",
            "multi_edit",
            "multiedit",
            "str_replace",
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "text_editor",
            "replace",
            "replace_in_file",
            "search_replace",
            "search_and_replace",
            "apply_diff",
            "modify_file",
            "update_file",
            "change_file",
            "insert",
            "insert_content",
            "insert_text",
            "replace_text",
            "sed",
            "fs_edit",
            "file_edit",
            "edit_files",
            "editor",
            "notebook_edit",
            "replace_string_in_file",
        ],
    ),
    (
        &["linux_fs_write"],
        &[
            "write",
            "write_file",
            "create",
            "create_file",
            "write_to_file",
            "save",
            "save_file",
            "new_file",
            "fs_write",
            "file_write",
            "put_file",
            "add_file",
            "touch",
            "append_file",
            "append",
            "make_file",
            "overwrite_file",
            "create_new_file",
        ],
    ),
    (
        &["repo_write_patch", "linux_fs_edit"],
        &[
            "apply_patch",
            "patch",
            "apply_changes",
            "git_apply",
            "write_patch",
        ],
    ),
    (
        &["list_dir", "te_ls", "linux_fs_list"],
        &[
            "ls",
            "dir",
            "list",
            "list_directory",
            "list_files",
            "list_folder",
            "tree",
            "directory_tree",
            "read_directory",
            "read_dir",
            "readdir",
            "fs_list",
            "view_directory",
            "get_directory",
            "explore",
            "list_allowed_directories",
            "list_directory_with_sizes",
        ],
    ),
    (
        &["te_grep", "linux_search_content", "run_cmd"],
        &[
            "grep",
            "search",
            "rg",
            "ripgrep",
            "grep_search",
            "search_text",
            "search_in_files",
            "search_file_content",
            "find_in_files",
            "content_search",
            "text_search",
            "search_content",
            "find_text",
            "grep_code",
            "ag",
            "ack",
            "search_for_pattern",
            "regex_search",
            "search_files_content",
            "search_project",
        ],
    ),
    (
        &["te_find", "linux_search_files", "run_cmd"],
        &[
            "find",
            "glob",
            "find_file",
            "find_files",
            "file_search",
            "search_files",
            "glob_file_search",
            "locate",
            "find_path",
            "fd",
            "file_glob",
            "search_by_name",
            "find_by_name",
            "glob_search",
        ],
    ),
    (
        &["run_cmd", "te_run"],
        &[
            "bash",
            "shell",
            "sh",
            "zsh",
            "cmd",
            "terminal",
            "console",
            "exec",
            "execute",
            "run",
            "command",
            "system",
            "execute_command",
            "exec_command",
            "run_command",
            "run_terminal_cmd",
            "run_in_terminal",
            "run_shell",
            "run_shell_command",
            "shell_exec",
            "shell_command",
            "local_shell",
            "execute_bash",
            "bash_command",
            "bash_tool",
            "run_bash",
            "execute_shell",
            "execute_shell_command",
            "container_exec",
            "subprocess",
            "spawn",
            "powershell",
            "write_stdin",
            "run_process",
            "terminal_command",
            "unified_exec",
            "container.exec",
        ],
    ),
    (
        &["execute_code", "run_cmd"],
        &[
            "python",
            "code",
            "run_code",
            "execute_python",
            "run_python",
            "python_exec",
            "code_interpreter",
            "ipython",
            "repl",
            "jupyter",
            "eval",
            "script",
            "run_script",
            "execute_script",
            "code_execution",
            "js",
            "javascript",
        ],
    ),
    (
        &["rag_search", "te_rag", "te_grep"],
        &[
            "codebase_search",
            "semantic_search",
            "code_search",
            "search_code",
            "search_codebase",
            "retrieve",
            "rag",
            "codebase_retrieval",
            "embedding_search",
            "find_code",
            "ask_codebase",
            "context_search",
            "knowledge_search",
            "search_repository",
            "search_repo",
        ],
    ),
    (
        &["rag_where_used", "te_grep"],
        &[
            "find_references",
            "references",
            "find_usages",
            "usages",
            "where_used",
            "callers",
            "find_callers",
            "find_referencing_symbols",
            "get_references",
        ],
    ),
    (
        &["inspect", "te_explain", "rag_search"],
        &[
            "definition",
            "go_to_definition",
            "find_definition",
            "find_symbol",
            "get_symbol",
            "symbol",
            "explain",
            "explain_symbol",
            "get_definition",
            "get_symbols_overview",
            "hover",
            "document_symbols",
            "outline",
        ],
    ),
    (
        &["linux_fs_delete", "run_cmd"],
        &[
            "delete",
            "delete_file",
            "remove",
            "remove_file",
            "rm",
            "unlink",
            "delete_directory",
            "rmdir",
            "trash",
        ],
    ),
    (
        &["linux_fs_move", "run_cmd"],
        &[
            "move",
            "move_file",
            "mv",
            "rename",
            "rename_file",
            "move_path",
        ],
    ),
    (
        &["linux_fs_mkdirs", "run_cmd"],
        &[
            "mkdir",
            "make_dir",
            "make_directory",
            "create_dir",
            "create_directory",
            "create_folder",
            "new_folder",
        ],
    ),
    (
        &["stat", "run_cmd"],
        &[
            "file_info",
            "get_file_info",
            "file_stat",
            "metadata",
            "get_metadata",
            "exists",
            "file_exists",
            "path_exists",
        ],
    ),
    (
        &["te_head", "read_file"],
        &["head", "first_lines", "preview"],
    ),
    (
        &["te_tail", "read_file"],
        &["tail", "last_lines", "follow", "log"],
    ),
    (
        &["te_git", "run_cmd"],
        &[
            "git",
            "git_status",
            "git_diff",
            "git_log",
            "git_show",
            "git_blame",
            "git_commit",
            "git_add",
            "git_branch",
        ],
    ),
    (
        &["te_diff", "run_cmd"],
        &["diff", "compare", "compare_files", "file_diff"],
    ),
    (
        &["run_pytest", "run_cmd"],
        &[
            "test",
            "tests",
            "pytest",
            "run_test",
            "run_tests",
            "unit_test",
            "unittest",
        ],
    ),
    (
        &["linux_proc_start", "run_cmd"],
        &[
            "start_process",
            "background",
            "run_background",
            "start_server",
            "daemon",
            "start_command",
        ],
    ),
    (
        &["linux_proc_read", "run_cmd"],
        &[
            "bash_output",
            "read_output",
            "read_process_output",
            "process_output",
            "get_output",
            "get_terminal_output",
        ],
    ),
    (
        &["linux_proc_send", "run_cmd"],
        &[
            "send_input",
            "write_input",
            "stdin",
            "interact_with_process",
            "send_keys",
        ],
    ),
    (
        &["linux_proc_stop", "linux_proc_kill"],
        &[
            "kill",
            "kill_bash",
            "kill_shell",
            "kill_process",
            "terminate",
            "stop_process",
            "force_terminate",
            "kill_terminal",
        ],
    ),
    (
        &["linux_proc_list", "run_cmd"],
        &[
            "ps",
            "list_processes",
            "processes",
            "list_sessions",
            "top",
            "jobs",
        ],
    ),
    (
        &["linux_sys_snapshot", "run_cmd"],
        &[
            "system_info",
            "sysinfo",
            "get_system_info",
            "free",
            "df",
            "uptime",
            "disk_usage",
        ],
    ),
    (
        &["te_handle", "read_file"],
        &[
            "handle",
            "get_handle",
            "read_handle",
            "get_result",
            "fetch_handle",
            "resource",
            "read_resource",
            "page",
            "next_page",
        ],
    ),
    (
        &["rlm_query"],
        &[
            "analyze",
            "analyse",
            "summarize",
            "summarise",
            "ask",
            "query",
            "analyze_file",
            "summarize_file",
            "llm",
            "ask_model",
        ],
    ),
    (
        &["init", "health"],
        &[
            "help",
            "tools",
            "list_tools",
            "bootstrap",
            "start",
            "initialize",
            "instructions",
            "get_config",
            "onboarding",
            "status",
        ],
    ),
];

/// Shorter names are not guessed at.
const MIN_MEANT_CHARS: usize = 3;

/// What to say about a name that no tool has, where every tool can be called: `; did you mean te_grep?`, or nothing.
pub fn suggestion(name: &str) -> String {
    suggestion_for(name, &Reach::of(&Config::default(), Surface::Cli))
}

/// The same for a reader who can call only some of them.
pub(crate) fn suggestion_for(name: &str, reach: &Reach) -> String {
    match meant(name, reach) {
        Some((tool, Route::Direct)) => format!("; did you mean {}?", tool.name),
        Some((tool, Route::Script)) => {
            format!("; did you mean tools.{}(…) in execute_code?", tool.name)
        }
        None => String::new(),
    }
}

/// The tool that a caller probably meant, among those it can call.
fn meant(name: &str, reach: &Reach) -> Option<(&'static ToolDef, Route)> {
    let wanted = plain(name);
    let of_meaning = |(tools, names): &&(&[&str], &[&str])| {
        tools.first() == Some(&wanted.as_ref()) || names.contains(&wanted.as_ref())
    };
    let same = MEANINGS.iter().find(of_meaning).map(|(tools, _)| *tools);
    let reachable = |name: &&str| {
        let tool = catalog::find(name)?;
        Some((tool, reach.route(tool)?))
    };
    let candidates: Vec<_> = same
        .into_iter()
        .flatten()
        .filter(|other| **other != wanted)
        .filter_map(reachable)
        .collect();
    let direct = candidates.iter().find(|(_, route)| *route == Route::Direct);
    if let Some(found) = direct.or(candidates.first()) {
        return Some(*found);
    }
    let all: Vec<&'static ToolDef> = catalog::TOOLS
        .iter()
        .filter(|tool| reach.route(tool).is_some() && tool.name != wanted)
        .collect();
    // A letter or two resemble everything, and mean nothing.
    if wanted.len() < MIN_MEANT_CHARS {
        return None;
    }
    let spelt = nearest(&wanted, all.iter().map(|tool| tool.name)).map(str::to_owned);
    let by_words = || {
        let is_word = |word: &str| word.len() >= MIN_MEANT_CHARS && word.parse::<u64>().is_err();
        if !wanted.split('_').any(is_word) {
            return None;
        }
        let found = stubs::search(&all, &wanted.replace('_', " "));
        found.into_iter().next().map(|found| found.name)
    };
    let name = spelt.or_else(by_words)?;
    reachable(&name.as_str())
}

/// Names of other agents that a script may write, each with the function that does the same.
pub(crate) fn in_scripts(offered: &[&'static ToolDef]) -> Vec<(String, String)> {
    let is_offered = |name: &&&str| offered.iter().any(|tool| tool.name == **name);
    let mut all = Vec::new();
    for (tools, names) in MEANINGS {
        let Some(tool) = tools.iter().find(is_offered) else {
            continue;
        };
        let names = names.iter().filter(|name| !is_offered(name));
        all.extend(names.map(|name| ((*name).to_owned(), (*tool).to_owned())));
    }
    all
}

/// A name as the table has it: `mcp__llmc__Edit-File` is `edit_file`.
fn plain(name: &str) -> Cow<'_, str> {
    let name = name.rsplit("__").next().unwrap_or(name);
    let name = ["functions.", "tools.", "default_api."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let mut plain = String::new();
    let mut was_lower = false;
    for c in name.chars().take(64) {
        if c.is_ascii_uppercase() && was_lower {
            plain.push('_');
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        plain.push(match c {
            '-' | ' ' | '/' | ':' => '_',
            c => c.to_ascii_lowercase(),
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use llmc_config::Mode;

    use super::*;

    fn reach(mode: Mode) -> Reach {
        let mut config = Config::default();
        config.mcp.mode = mode;
        Reach::of(&config, Surface::Mcp)
    }

    #[test]
    fn every_meaning_is_a_tool_and_no_name_has_two() {
        let mut seen = std::collections::BTreeSet::new();
        for (tools, names) in MEANINGS {
            for tool in *tools {
                let found = catalog::find(tool).unwrap_or_else(|| panic!("{tool}"));
                assert_eq!(found.name, *tool);
            }
            for name in *names {
                assert!(seen.insert(*name), "{name} is there twice");
                assert!(
                    catalog::find(name).is_none(),
                    "{name} is a tool, not a name for one"
                );
            }
        }
    }

    #[test]
    fn names_of_other_agents_lead_to_the_tool_that_does_the_same() {
        for (name, classic, hybrid, code, te) in [
            (
                "edit_file",
                "linux_fs_edit",
                "linux_fs_edit",
                "tools.linux_fs_edit(…) in execute_code",
                "",
            ),
            (
                "EditFile",
                "linux_fs_edit",
                "linux_fs_edit",
                "tools.linux_fs_edit(…) in execute_code",
                "",
            ),
            (
                "bash",
                "run_cmd",
                "run_cmd",
                "tools.run_cmd(…) in execute_code",
                "",
            ),
            (
                "shell",
                "run_cmd",
                "run_cmd",
                "tools.run_cmd(…) in execute_code",
                "",
            ),
            (
                "execute_command",
                "run_cmd",
                "run_cmd",
                "tools.run_cmd(…) in execute_code",
                "",
            ),
            (
                "mcp__llmc__grep",
                "te_grep",
                "te_grep",
                "tools.te_grep(…) in execute_code",
                "te_grep",
            ),
            (
                "search",
                "te_grep",
                "te_grep",
                "tools.te_grep(…) in execute_code",
                "te_grep",
            ),
            ("view", "read_file", "read_file", "read_file", "te_cat"),
            ("cat", "read_file", "read_file", "read_file", "te_cat"),
            (
                "write_file",
                "linux_fs_write",
                "linux_fs_write",
                "tools.linux_fs_write(…) in execute_code",
                "",
            ),
            ("ls", "list_dir", "list_dir", "list_dir", "te_ls"),
            ("read_fil", "read_file", "read_file", "read_file", ""),
            // A tool that the mode does not list, and what it lists instead.
            (
                "read_file",
                "linux_fs_read",
                "read_file",
                "read_file",
                "te_cat",
            ),
        ] {
            let modes = [
                (Mode::Classic, classic),
                (Mode::Hybrid, hybrid),
                (Mode::CodeExecution, code),
                (Mode::Te, te),
            ];
            for (mode, wanted) in modes {
                let reach = reach(mode);
                let is_listed = catalog::find(name)
                    .is_some_and(|tool| reach.route(tool) == Some(Route::Direct));
                if is_listed {
                    continue;
                }
                let said = suggestion_for(name, &reach);
                if wanted.is_empty() {
                    // Nothing there does the same; whatever is said can be called.
                    assert_eq!(reach.unreachable(&said), [""; 0], "{mode} {name}: {said}");
                } else {
                    assert_eq!(said, format!("; did you mean {wanted}?"), "{mode} {name}");
                }
            }
        }
        for nonsense in [
            "xyzzy", "x", "b", "a_b", "1", "zz", "_", "", "x9", "q_7_z", "foobar",
        ] {
            for mode in Mode::ALL {
                assert_eq!(suggestion_for(nonsense, &reach(*mode)), "", "{nonsense}");
            }
            assert_eq!(suggestion(nonsense), "", "{nonsense}");
        }
        assert_eq!(suggestion("bash"), "; did you mean run_cmd?");
    }
}
