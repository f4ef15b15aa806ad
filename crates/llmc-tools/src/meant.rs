//! Which tool a name means that no tool here has.
//!
//! Models know the tools of other agents: a call of `edit_file` or `bash` has a clear meaning here too. Every surface that
//! refuses a name offers the tool that does the same and that its reader can call.

mod names;

use std::borrow::Cow;

use llmc_config::Config;

use self::names::MEANINGS;
use crate::call::nearest;
use crate::catalog;
use crate::cx::Surface;
use crate::reachable::{Reach, Route};
use crate::stubs;
use crate::tool::ToolDef;

/// Shorter names are not guessed at.
const MIN_MEANT_CHARS: usize = 3;

/// What to say about a name that no tool has, where every tool can be called: `; did you mean te_grep?`, or nothing.
pub fn suggestion(name: &str) -> String {
    suggestion_for(name, &Reach::of(&Config::default(), Surface::Cli))
}

/// The same for a reader who can call only some of them.
pub(crate) fn suggestion_for(name: &str, reach: &Reach) -> String {
    match meant(name, reach) {
        Meaning::Tool(tool, Route::Direct) => format!("; did you mean {}?", tool.name),
        Meaning::Tool(tool, Route::Script) => {
            format!("; did you mean tools.{}(…) in execute_code?", tool.name)
        }
        Meaning::OutOfReach => "; no tool that can be called here does that".to_owned(),
        Meaning::Unknown => String::new(),
    }
}

/// What a name means.
enum Meaning {
    /// The tool that a caller probably meant, among those it can call.
    Tool(&'static ToolDef, Route),
    /// It is known, and nothing that can be called does it.
    OutOfReach,
    Unknown,
}

fn meant(name: &str, reach: &Reach) -> Meaning {
    let wanted = plain(name);
    let of_meaning = |is_same: &dyn Fn(&str) -> bool| {
        MEANINGS.iter().find(|(tools, names)| {
            let mut all = tools.iter().take(1).chain(*names);
            all.any(|name| is_same(name))
        })
    };
    let run_together = wanted.replace('_', "");
    let same = of_meaning(&|name| name == wanted)
        .or_else(|| of_meaning(&|name| name.replace('_', "") == run_together))
        .map(|(tools, _)| *tools);
    let reachable = |name: &&str| {
        let tool = catalog::find(name)?;
        Some((tool, reach.route(tool)?))
    };
    // A tool's own name, written in another way.
    if wanted != name
        && let Some(found) = reachable(&wanted.as_ref())
    {
        return Meaning::Tool(found.0, found.1);
    }
    let candidates: Vec<_> = same
        .into_iter()
        .flatten()
        .filter(|other| **other != wanted)
        .filter_map(reachable)
        .collect();
    let direct = candidates.iter().find(|(_, route)| *route == Route::Direct);
    if let Some((tool, route)) = direct.or(candidates.first()) {
        return Meaning::Tool(tool, *route);
    }
    if same.is_some() {
        return Meaning::OutOfReach;
    }
    let all: Vec<&'static ToolDef> = catalog::TOOLS
        .iter()
        .filter(|tool| reach.route(tool).is_some() && tool.name != wanted)
        .collect();
    // A letter or two resemble everything, and mean nothing.
    if wanted.len() < MIN_MEANT_CHARS {
        return Meaning::Unknown;
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
    let found = spelt.or_else(by_words);
    match found.and_then(|name| reachable(&name.as_str())) {
        Some((tool, route)) => Meaning::Tool(tool, route),
        None => Meaning::Unknown,
    }
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
            '-' | ' ' | '/' | ':' | '.' => '_',
            c => c.to_ascii_lowercase(),
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use llmc_config::Mode;

    use super::*;

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
                "run_cmd",
                "tools.te_grep(…) in execute_code",
                "te_grep",
            ),
            (
                "search",
                "te_grep",
                "run_cmd",
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
                let reach = Reach::of_mode(mode);
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
                assert_eq!(
                    suggestion_for(nonsense, &Reach::of_mode(*mode)),
                    "",
                    "{nonsense}"
                );
            }
            assert_eq!(suggestion(nonsense), "", "{nonsense}");
        }
        assert_eq!(suggestion("bash"), "; did you mean run_cmd?");
        // A name of a tool here, written in another way.
        for (name, wanted) in [
            ("te-grep", "te_grep"),
            ("TeGrep", "te_grep"),
            ("ReadFile", "read_file"),
            ("readfile", "read_file"),
            ("linux.fs.edit", "linux_fs_edit"),
        ] {
            let said = suggestion_for(name, &Reach::of_mode(Mode::Classic));
            assert_eq!(said, format!("; did you mean {wanted}?"), "{name}");
        }
        // What it means is known, and not offered.
        for name in ["edit_file", "create_file", "delete_file", "bash", "python"] {
            let said = suggestion_for(name, &Reach::of_mode(Mode::Te));
            assert_eq!(
                said, "; no tool that can be called here does that",
                "{name}"
            );
        }
    }
}
