//! All tools. Adding one is its file plus two lines here.

mod execute_code;
mod get_metrics;
pub(crate) mod health;
mod history;
mod init;
mod inspect;
mod linux_fs_delete;
mod linux_fs_edit;
mod linux_fs_list;
mod linux_fs_mkdirs;
mod linux_fs_move;
mod linux_fs_read;
mod linux_fs_write;
pub(crate) mod linux_handle_read;
mod linux_proc_kill;
mod linux_proc_list;
mod linux_proc_read;
mod linux_proc_send;
mod linux_proc_start;
mod linux_proc_stop;
mod linux_search_content;
mod linux_search_files;
mod linux_sys_snapshot;
mod list_dir;
mod look;
mod outline;
mod rag_bootload;
mod rag_lineage;
mod rag_plan;
mod rag_query;
mod rag_search;
mod rag_search_enriched;
mod rag_stats;
mod rag_where_used;
mod read_file;
mod repo_read;
mod repo_write_patch;
pub(crate) mod rlm_query;
mod run_cmd;
mod run_compare;
mod run_preview;
mod run_pytest;
mod run_tests;
mod stat;
mod te_cat;
mod te_diff;
mod te_explain;
mod te_find;
mod te_git;
mod te_grep;
pub(crate) mod te_handle;
mod te_head;
mod te_ls;
mod te_rag;
mod te_run;
mod te_tail;
pub(crate) mod undo;

mod args;
mod converted;
mod pages;
mod relations;
mod several;
mod target;

use crate::tool::ToolDef;

pub(crate) use args::bounded_by;
pub(crate) use linux_fs_list::below;
pub(crate) use target::{LineSpan, lines_of, split_lines};
pub(crate) use te_diff::files_below;

/// Every tool, in the order clients see.
pub static TOOLS: &[ToolDef] = &[
    ToolDef::of::<read_file::ReadFile>(),
    ToolDef::of::<list_dir::ListDir>(),
    ToolDef::of::<stat::Stat>(),
    ToolDef::of::<linux_fs_read::LinuxFsRead>(),
    ToolDef::of::<linux_fs_write::LinuxFsWrite>(),
    ToolDef::of::<linux_fs_edit::LinuxFsEdit>(),
    ToolDef::of::<linux_fs_list::LinuxFsList>(),
    ToolDef::of::<linux_fs_move::LinuxFsMove>(),
    ToolDef::of::<linux_fs_delete::LinuxFsDelete>(),
    ToolDef::of::<linux_fs_mkdirs::LinuxFsMkdirs>(),
    ToolDef::of::<linux_search_files::LinuxSearchFiles>(),
    ToolDef::of::<linux_search_content::LinuxSearchContent>(),
    ToolDef::of::<linux_handle_read::LinuxHandleRead>(),
    ToolDef::of::<run_cmd::RunCmd>(),
    ToolDef::of::<run_preview::RunPreview>(),
    ToolDef::of::<run_compare::RunCompare>(),
    ToolDef::of::<run_tests::RunTests>(),
    ToolDef::of::<linux_proc_start::LinuxProcStart>(),
    ToolDef::of::<linux_proc_read::LinuxProcRead>(),
    ToolDef::of::<linux_proc_send::LinuxProcSend>(),
    ToolDef::of::<linux_proc_stop::LinuxProcStop>(),
    ToolDef::of::<linux_proc_list::LinuxProcList>(),
    ToolDef::of::<linux_proc_kill::LinuxProcKill>(),
    ToolDef::of::<linux_sys_snapshot::LinuxSysSnapshot>(),
    ToolDef::of::<te_grep::TeGrep>(),
    ToolDef::of::<te_cat::TeCat>(),
    ToolDef::of::<te_find::TeFind>(),
    ToolDef::of::<te_ls::TeLs>(),
    ToolDef::of::<te_head::TeHead>(),
    ToolDef::of::<te_tail::TeTail>(),
    ToolDef::of::<te_handle::TeHandle>(),
    ToolDef::of::<te_run::TeRun>(),
    ToolDef::of::<te_rag::TeRag>(),
    ToolDef::of::<te_explain::TeExplain>(),
    ToolDef::of::<te_diff::TeDiff>(),
    ToolDef::of::<te_git::TeGit>(),
    ToolDef::of::<repo_read::RepoRead>(),
    ToolDef::of::<repo_write_patch::RepoWritePatch>(),
    ToolDef::of::<run_pytest::RunPytest>(),
    ToolDef::of::<history::HistoryTool>(),
    ToolDef::of::<undo::UndoTool>(),
    ToolDef::of::<rag_search::RagSearch>(),
    ToolDef::of::<rag_query::RagQuery>(),
    ToolDef::of::<rag_search_enriched::RagSearchEnriched>(),
    ToolDef::of::<rag_where_used::RagWhereUsed>(),
    ToolDef::of::<rag_lineage::RagLineage>(),
    ToolDef::of::<inspect::Inspect>(),
    ToolDef::of::<look::Look>(),
    ToolDef::of::<outline::Outline>(),
    ToolDef::of::<rag_plan::RagPlan>(),
    ToolDef::of::<rag_stats::RagStats>(),
    ToolDef::of::<rag_bootload::RagBootload>(),
    ToolDef::of::<execute_code::ExecuteCode>(),
    ToolDef::of::<rlm_query::RlmQuery>(),
    ToolDef::of::<get_metrics::GetMetrics>(),
    ToolDef::of::<health::Health>(),
    ToolDef::of::<init::Init>(),
];

/// The tool of that name or alias.
pub fn find(name: &str) -> Option<&'static ToolDef> {
    TOOLS
        .iter()
        .find(|tool| tool.name == name || tool.aliases.contains(&name))
}
