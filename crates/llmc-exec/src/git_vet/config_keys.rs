//! The list of harmless settings, and which of their values are harmless.
//!
//! A setting is on the list if git runs no program and reads no other place because of it, with any value that its kind
//! allows. A key is added only after reading where git uses it.

use std::path::Path;

use super::addresses::{PathBase, is_address, is_allowed_path, resolved};
use super::config_text::{ConfigKey, Entry};
use super::refs::is_ref_name;
use super::{Holder, is_printable};

/// Longest name, address of a person or short text.
const MAX_TEXT_BYTES: usize = 256;
/// Longest value made of words: an enumerated value, a filter, a format.
const MAX_WORDS_BYTES: usize = 128;

/// Where a configuration lies, for values that are paths.
#[derive(Debug)]
pub(super) struct ConfigPlace<'a> {
    pub(super) base: PathBase<'a>,
    pub(super) holder: Holder,
    pub(super) own_dir: &'a Path,
}

/// Whether a setting is harmless with its value; if not, why.
pub(super) fn vet_entry(entry: &Entry, place: &ConfigPlace<'_>) -> Result<(), &'static str> {
    let Some(kind) = kind_of(&entry.key, place.holder) else {
        return Err(reason_for(&entry.key));
    };
    match kind.accepts(entry.value.as_deref(), place) {
        true => Ok(()),
        false => Err(kind.complaint()),
    }
}

/// Whether a setting is on the list, with whatever value.
pub(super) fn is_listed(key: &ConfigKey, holder: Holder) -> bool {
    kind_of(key, holder).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    /// Git's booleans, and a number where git takes one in their place.
    Bool,
    /// Explicitly false: true, or a program, is not harmless.
    False,
    Number,
    /// One of git's own words, or a list of them.
    Words,
    /// A word or boolean in git's colours.
    Color,
    /// A boolean or one of these.
    BoolOr(&'static [&'static str]),
    /// A key by which refs are sorted.
    Sort,
    /// A filter of objects for a partial clone.
    ObjectFilter,
    /// Names of merge strategies that are git's own.
    Strategies,
    /// A time such as `2.weeks.ago`.
    Time,
    /// A name, an e-mail address, or other short printable text.
    Text,
    /// The same, of any length and with line breaks.
    LongText,
    /// The name of a branch or remote.
    Name,
    /// A remote's name, `.`, or an address.
    Remote,
    RefName,
    Refspec,
    Address,
    /// A directory, relative to the one the configuration lies in.
    WorkTree,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subsection {
    /// `section.key`
    Without,
    /// `section.name.key`
    With,
    Either,
}
use Subsection::{Either, With, Without};
use ValueKind::{
    Address, Bool, BoolOr, Color, False, LongText, Name, Number, ObjectFilter, RefName, Refspec,
    Remote, Sort, Strategies, Text, Time, Words, WorkTree,
};

type Row = (&'static str, Subsection, &'static [&'static str], ValueKind);

/// Stands for every key of a section.
const ANY_KEY: &[&str] = &["*"];

/// The harmless settings. Section and keys are compared in any case.
#[rustfmt::skip]
const HARMLESS: &[Row] = &[
    ("user", Without, &["name", "email"], Text),
    ("user", Without, &["useConfigOnly"], Bool),
    ("author", Without, &["name", "email"], Text),
    ("committer", Without, &["name", "email"], Text),

    ("branch", With, &["remote", "pushRemote"], Remote),
    ("branch", With, &["merge"], RefName),
    ("branch", With, &["rebase"], BoolOr(&["merges", "interactive", "i", "m"])),
    ("branch", With, &["description"], LongText),
    // What GitHub's and an editor's programs note there.
    ("branch", With, &["gh-merge-base", "vscode-merge-base", "github-pr-owner-number"], Text),
    ("branch", Without, &["autoSetupMerge"], BoolOr(&["always", "inherit", "simple"])),
    ("branch", Without, &["autoSetupRebase"], Words),
    ("branch", Without, &["sort"], Sort),

    ("remote", With, &["url", "pushurl"], Address),
    ("remote", With, &["fetch", "push"], Refspec),
    ("remote", With, &["tagOpt"], BoolOr(&["--tags", "--no-tags"])),
    ("remote", With, &["prune", "pruneTags", "skipDefaultUpdate", "skipFetchAll", "promisor"], Bool),
    ("remote", With, &["mirror"], BoolOr(&["fetch", "push"])),
    ("remote", With, &["partialCloneFilter"], ObjectFilter),
    ("remote", With, &["followRemoteHEAD"], Words),
    ("remote", With, &["gh-resolved"], Name),
    ("remote", Without, &["pushDefault"], Name),

    ("submodule", With, &["url"], Address),
    ("submodule", With, &["active", "shallow"], Bool),
    ("submodule", With, &["branch"], Name),
    ("submodule", With, &["ignore"], Words),
    ("submodule", With, &["fetchRecurseSubmodules"], BoolOr(&["on-demand"])),
    ("submodule", Without, &["active"], Text),
    ("submodule", Without, &["recurse", "propagateBranches"], Bool),
    ("submodule", Without, &["fetchJobs"], Number),

    ("core", Without, &["autocrlf"], BoolOr(&["input"])),
    ("core", Without, &["safecrlf"], BoolOr(&["warn"])),
    ("core", Without, &["eol", "checkStat"], Words),
    ("core", Without, &["filemode", "ignorecase", "bare", "symlinks", "precomposeUnicode", "longpaths", "trustctime"], Bool),
    ("core", Without, &["sparseCheckout", "sparseCheckoutCone", "preloadIndex", "commitGraph", "multiPackIndex"], Bool),
    ("core", Without, &["quotePath", "splitIndex"], Bool),
    ("core", Without, &["whitespace"], Words),
    ("core", Without, &["logAllRefUpdates"], BoolOr(&["always"])),
    ("core", Without, &["untrackedCache"], BoolOr(&["keep"])),
    ("core", Without, &["sharedRepository"], BoolOr(&["umask", "group", "all", "world", "everybody"])),
    ("core", Without, &["abbrev"], BoolOr(&["auto"])),
    ("core", Without, &["repositoryFormatVersion", "compression", "looseCompression", "bigFileThreshold"], Number),
    // Git before 2.36 runs any value but the empty one as a program; `false` does nothing.
    ("core", Without, &["fsmonitor"], False),

    ("extensions", Without, &["worktreeConfig", "preciousObjects", "relativeWorktrees", "noop"], Bool),
    ("extensions", Without, &["objectFormat", "compatObjectFormat", "refStorage"], Words),
    ("extensions", Without, &["partialClone"], Name),

    ("merge", Without, &["ff"], BoolOr(&["only"])),
    ("merge", Without, &["conflictStyle"], Words),
    ("merge", Without, &["renames"], BoolOr(&["copies", "copy"])),
    ("merge", Without, &["directoryRenames"], BoolOr(&["conflict"])),
    ("merge", Without, &["renameLimit", "verbosity"], Number),
    ("merge", Without, &["renormalize", "autoStash", "log", "branchdesc", "defaultToUpstream"], Bool),
    ("merge", Without, &["stat"], BoolOr(&["compact"])),
    ("pull", Without, &["rebase"], BoolOr(&["merges", "interactive", "i", "m"])),
    ("pull", Without, &["ff"], BoolOr(&["only"])),
    ("pull", Without, &["twohead", "octopus"], Strategies),
    ("push", Without, &["default"], Words),
    ("push", Without, &["autoSetupRemote", "followTags", "useForceIfIncludes", "negotiate", "useBitmaps"], Bool),
    ("push", Without, &["recurseSubmodules"], BoolOr(&["check", "on-demand", "only"])),
    ("push", Without, &["gpgSign"], False),
    ("rebase", Without, &["autoStash", "autoSquash", "updateRefs", "abbreviateCommands", "rescheduleFailedExec"], Bool),
    ("rebase", Without, &["forkPoint", "stat"], Bool),
    ("rebase", Without, &["rebaseMerges"], BoolOr(&["rebase-cousins", "no-rebase-cousins"])),
    ("rebase", Without, &["missingCommitsCheck", "backend"], Words),
    ("rebase", Without, &["maxLabelLength"], Number),
    ("fetch", Without, &["prune", "pruneTags", "all", "fsckObjects", "showForcedUpdates", "writeCommitGraph"], Bool),
    ("fetch", Without, &["recurseSubmodules"], BoolOr(&["on-demand"])),
    ("fetch", Without, &["unpackLimit", "parallel"], Number),
    ("fetch", Without, &["output", "negotiationAlgorithm"], Words),
    ("transfer", Without, &["fsckObjects"], Bool),
    ("protocol", Without, &["version"], Number),
    ("rerere", Without, &["enabled", "autoUpdate"], Bool),
    ("status", Without, &["relativePaths", "short", "branch", "aheadBehind", "displayCommentPrefix", "showStash"], Bool),
    ("status", Without, &["renameLimit"], Number),
    ("status", Without, &["renames"], BoolOr(&["copies", "copy"])),
    ("status", Without, &["showUntrackedFiles"], BoolOr(&["no", "normal", "all"])),
    ("status", Without, &["submoduleSummary"], Bool),
    ("log", Without, &["abbrevCommit", "follow", "showRoot", "mailmap"], Bool),
    ("log", Without, &["decorate"], BoolOr(&["short", "full", "auto"])),
    ("log", Without, &["initialDecorationSet", "date", "diffMerges"], Words),
    ("log", Without, &["graphColors"], Color),
    // Signatures are checked by a program.
    ("log", Without, &["showSignature"], False),
    ("color", Either, ANY_KEY, Color),
    ("column", Either, ANY_KEY, Words),
    // A pager is a program; none is not.
    ("pager", Either, ANY_KEY, False),
    ("blame", Without, &["showRoot", "showEmail", "blankBoundary", "markUnblamableLines", "markIgnoredLines"], Bool),
    ("blame", Without, &["coloring", "date"], Words),
    ("i18n", Without, &["commitEncoding", "logOutputEncoding"], Words),
    ("gui", Without, &["encoding"], Words),
    ("versionsort", Without, &["suffix"], Text),
    ("difftool", Without, &["prompt", "trustExitCode"], Bool),
    ("mergetool", Without, &["prompt", "keepBackup", "keepTemporaries", "writeToTemp", "hideResolved"], Bool),
    ("credential", Either, &["useHttpPath"], Bool),
    ("credential", With, &["username"], Text),
    ("advice", Without, ANY_KEY, Bool),
    ("index", Without, &["recordEndOfIndexEntries", "recordOffsetTable", "sparse", "skipHash"], Bool),
    ("index", Without, &["threads"], Bool),
    ("index", Without, &["version"], Number),
    ("feature", Without, &["experimental", "manyFiles"], Bool),
    ("pack", Without, &["useBitmaps", "useSparse", "writeReverseIndex", "readReverseIndex", "writeBitmapHashCache"], Bool),
    ("pack", Without, &["writeBitmapLookupTable", "useBitmapBoundaryTraversal"], Bool),
    ("pack", Without, &["allowPackReuse"], BoolOr(&["single", "multi"])),
    ("pack", Without, &["compression", "depth", "window", "windowMemory", "threads", "indexVersion"], Number),
    ("pack", Without, &["packSizeLimit", "deltaCacheSize", "deltaCacheLimit"], Number),
    ("gc", Without, &["auto", "autoPackLimit", "bigPackThreshold", "aggressiveDepth", "aggressiveWindow"], Number),
    ("gc", Without, &["maxCruftSize"], Number),
    ("gc", Without, &["autoDetach", "writeCommitGraph", "cruftPacks"], Bool),
    ("gc", Without, &["packRefs"], BoolOr(&["notbare"])),
    ("gc", Without, &["pruneExpire", "rerereResolved", "rerereUnresolved", "worktreePruneExpire", "logExpiry"], Time),
    ("gc", Either, &["reflogExpire", "reflogExpireUnreachable"], Time),
    ("maintenance", Without, &["auto", "autoDetach"], Bool),
    ("maintenance", Without, &["strategy"], Words),
    ("maintenance", With, &["enabled"], Bool),
    ("commit", Without, &["verbose", "status"], Bool),
    ("commit", Without, &["cleanup"], Words),
    ("commit", Without, &["gpgSign"], False),
    ("tag", Without, &["sort"], Sort),
    ("tag", Without, &["gpgSign"], False),
    ("init", Without, &["defaultBranch"], Name),
    ("diff", Without, &["algorithm", "ignoreSubmodules", "submodule", "wsErrorHighlight"], Words),
    ("diff", Without, &["colorMoved", "colorMovedWS"], Words),
    ("diff", Without, &["renames"], BoolOr(&["copies", "copy"])),
    ("diff", Without, &["renameLimit", "context", "interHunkContext", "statGraphWidth"], Number),
    ("diff", Without, &["mnemonicPrefix", "noPrefix", "indentHeuristic", "relative"], Bool),
    ("grep", Without, &["lineNumber", "column", "extendedRegexp", "fullName"], Bool),
    ("grep", Without, &["patternType"], Words),
    ("grep", Without, &["threads"], Number),
    ("checkout", Without, &["defaultRemote"], Name),
    ("checkout", Without, &["guess"], Bool),
    ("checkout", Without, &["workers", "thresholdForParallelism"], Number),
    ("clean", Without, &["requireForce"], Bool),
    ("stash", Without, &["showPatch", "showStat", "showIncludeUntracked"], Bool),
    ("worktree", Without, &["guessRemote", "useRelativePaths"], Bool),
    ("apply", Without, &["whitespace", "ignoreWhitespace"], Words),
    ("am", Without, &["keepcr", "threeWay"], Bool),
    ("notes", Without, &["displayRef", "rewriteRef"], RefName),
    ("notes", Without, &["rewriteMode", "mergeStrategy"], Words),
    ("notes", With, &["mergeStrategy"], Words),
    ("receive", Without, &["denyCurrentBranch"], BoolOr(&["ignore", "warn", "refuse", "updateInstead"])),
    ("receive", Without, &["denyNonFastForwards", "denyDeletes", "advertiseAtomic", "autogc", "fsckObjects"], Bool),
    ("uploadpack", Without, &["allowFilter", "allowAnySHA1InWant", "allowReachableSHA1InWant", "allowTipSHA1InWant"], Bool),
    ("lfs", Without, &["repositoryFormatVersion"], Number),
    ("lfs", With, &["locksverify"], Bool),
    ("gitflow", With, &["master", "develop", "feature", "bugfix", "release", "hotfix", "support", "versiontag"], Text),
    ("oh-my-zsh", Without, &["hide-status", "hide-dirty", "hide-info"], Bool),
];

/// Sections and settings that make git run programs, to say so. `*` stands for every key.
#[rustfmt::skip]
const PROGRAMS: &[(&str, Subsection, &[&str])] = &[
    ("alias", Either, ANY_KEY),
    ("filter", Either, ANY_KEY),
    ("core", Without, &["hooksPath", "sshCommand", "editor", "pager", "askPass", "gitProxy", "alternateRefsCommand", "fsmonitor"]),
    ("diff", Either, &["external", "command", "textconv", "tool", "guitool"]),
    ("merge", Either, &["driver", "tool", "guitool"]),
    ("mergetool", Either, ANY_KEY),
    ("difftool", Either, ANY_KEY),
    ("pager", Either, ANY_KEY),
    ("credential", Either, ANY_KEY),
    ("gpg", Either, ANY_KEY),
    ("sequence", Either, &["editor"]),
    ("interactive", Either, &["diffFilter"]),
    ("branch", With, &["mergeOptions"]),
    ("submodule", With, &["update"]),
    ("remote", With, &["uploadpack", "receivepack", "vcs"]),
    ("browser", Either, ANY_KEY),
    ("web", Either, ANY_KEY),
    ("man", Either, ANY_KEY),
    ("help", Either, ANY_KEY),
    ("instaweb", Either, ANY_KEY),
    ("gui", Either, ANY_KEY),
    ("guitool", Either, ANY_KEY),
    ("trailer", Either, ANY_KEY),
    ("hook", Either, ANY_KEY),
    ("sendemail", Either, ANY_KEY),
    ("imap", Either, ANY_KEY),
    ("uploadpack", Either, &["packObjectsHook"]),
    ("uploadpackfilter", Either, ANY_KEY),
    ("gc", Either, &["recentObjectsHook"]),
    ("receive", Either, &["procReceiveRefs"]),
];

/// Strategies that are part of git; any other name is that of a program, `git-merge-name`.
const STRATEGIES: [&str; 6] = ["ort", "recursive", "resolve", "octopus", "ours", "subtree"];

/// Whether these are names of git's own merge strategies.
pub(super) fn is_strategies(value: &[u8]) -> bool {
    let is_own = |name: &[u8]| STRATEGIES.iter().any(|own| own.as_bytes() == name);
    value.split(|byte| *byte == b' ').all(is_own)
}

fn kind_of(key: &ConfigKey, holder: Holder) -> Option<ValueKind> {
    if holder == Holder::Module && is_in(key, "core", Without, &["worktree"]) {
        return Some(WorkTree);
    }
    if key
        .subsection
        .as_deref()
        .is_some_and(|sub| is_unsafe_subsection(&key.section, sub))
    {
        return None;
    }
    HARMLESS
        .iter()
        .find(|(section, sub, keys, _)| is_in(key, section, *sub, keys))
        .map(|(.., kind)| *kind)
}

/// Names that reach a command line as they are (`git fetch --all` passes those of remotes), or that lead out of `modules`.
fn is_unsafe_subsection(section: &str, sub: &[u8]) -> bool {
    let has_dots = sub.split(|byte| *byte == b'/').any(|part| part == b"..");
    sub.starts_with(b"-") || (section == "submodule" && has_dots)
}

fn is_in(key: &ConfigKey, section: &str, sub: Subsection, keys: &[&str]) -> bool {
    let has_sub = match sub {
        Without => key.subsection.is_none(),
        With => key.subsection.is_some(),
        Either => true,
    };
    has_sub
        && key.section == section
        && (keys == ANY_KEY || keys.iter().any(|name| name.eq_ignore_ascii_case(&key.name)))
}

fn reason_for(key: &ConfigKey) -> &'static str {
    if matches!(key.section.as_str(), "include" | "includeif") {
        return "includes another file";
    }
    if is_in(key, "core", Without, &["worktree"]) {
        return "moves a directory";
    }
    if is_in(key, "core", Without, &["attributesFile", "excludesFile"]) {
        return "reads another file";
    }
    if key.section == "url" {
        return "changes addresses";
    }
    let runs = |(section, sub, keys): &(&str, Subsection, &[&str])| is_in(key, section, *sub, keys);
    match PROGRAMS.iter().any(runs) {
        true => "runs programs",
        false => "not on the list of harmless settings",
    }
}

impl ValueKind {
    fn accepts(self, value: Option<&[u8]>, place: &ConfigPlace<'_>) -> bool {
        let Some(value) = value else {
            return matches!(self, Bool | BoolOr(_) | Color);
        };
        match self {
            Bool => is_bool(value),
            False => value.is_empty() || value.eq_ignore_ascii_case(b"false"),
            BoolOr(words) => {
                is_bool(value)
                    || words
                        .iter()
                        .any(|word| word.as_bytes().eq_ignore_ascii_case(value))
            }
            Number => is_number(value),
            Words => {
                is_made_of(value, b"-_., ") && value.first().is_some_and(u8::is_ascii_alphanumeric)
            }
            Color => value.is_empty() || is_made_of(value, b"#-, "),
            // `signature` sorts by what a program says about a tag.
            Sort => is_made_of(value, b"-:*._") && !contains(value, b"signature"),
            ObjectFilter => is_made_of(value, b":=+%._/-"),
            Strategies => is_strategies(value),
            Time => is_made_of(value, b"-.:+ "),
            Text => value.len() <= MAX_TEXT_BYTES && is_printable(value),
            LongText => !value
                .iter()
                .any(|b| b.is_ascii_control() && !b"\n\t".contains(b)),
            Name => is_name(value),
            Remote => value == b"." || is_name(value) || is_address(value, &place.base),
            RefName => is_ref_pattern(value) && value.starts_with(b"refs/"),
            Refspec => is_refspec(value),
            Address => is_address(value, &place.base),
            WorkTree => {
                let dir = resolved(value, Some(place.own_dir));
                let allowed = PathBase {
                    relative_to: Some(place.own_dir),
                    allowed: place.base.allowed,
                };
                // A git directory as working tree would make its files tracked ones.
                is_allowed_path(value, &allowed) && dir.is_some_and(|dir| !has_git_dir(&dir))
            }
        }
    }

    fn complaint(self) -> &'static str {
        match self {
            Address | Remote => "the address is not https, ssh or a path in the workspace",
            WorkTree => "moves a directory",
            False => "runs programs",
            _ => "the value is not one of the harmless ones",
        }
    }
}

fn is_bool(value: &[u8]) -> bool {
    let words: [&[u8]; 7] = [b"", b"true", b"yes", b"on", b"false", b"no", b"off"];
    words.iter().any(|word| word.eq_ignore_ascii_case(value)) || is_number(value)
}

fn is_number(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"-").unwrap_or(value);
    let digits = match value {
        [digits @ .., b'k' | b'K' | b'm' | b'M' | b'g' | b'G'] => digits,
        digits => digits,
    };
    (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

/// Letters, digits and these characters.
fn is_made_of(value: &[u8], further: &[u8]) -> bool {
    (1..=MAX_WORDS_BYTES).contains(&value.len())
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || further.contains(b))
}

/// A branch's or remote's name, which git takes neither for an option nor for a path that leads upwards.
fn is_name(value: &[u8]) -> bool {
    let is_part = |part: &[u8]| !part.is_empty() && part != b"..";
    value.len() <= MAX_TEXT_BYTES
        && !value.starts_with(b"-")
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(b) || !b.is_ascii())
        && value.split(|byte| *byte == b'/').all(is_part)
}

/// The name of a ref in which stars may stand.
fn is_ref_pattern(value: &[u8]) -> bool {
    let plain: Vec<u8> = value
        .iter()
        .map(|b| if *b == b'*' { b'x' } else { *b })
        .collect();
    is_ref_name(&plain) || is_ref_name(&[b"refs/", plain.as_slice()].concat())
}

fn is_refspec(value: &[u8]) -> bool {
    let value = match value {
        [b'+' | b'^', rest @ ..] => rest,
        _ => value,
    };
    let is_side = |side: &[u8]| {
        side.is_empty() || side == b"@" || (!side.starts_with(b"-") && is_ref_pattern(side))
    };
    !value.is_empty()
        && value.split(|byte| *byte == b':').count() <= 2
        && value.split(|byte| *byte == b':').all(is_side)
}

fn has_git_dir(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len())
        .any(|window| window.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::test_support::vet;

    /// A configuration with one setting, given as `section.name.key=value`.
    fn text_of(setting: &str) -> String {
        let (key, value) = setting
            .split_once('=')
            .map_or((setting, None), |(key, value)| (key, Some(value)));
        let (section, name) = key.rsplit_once('.').unwrap();
        let header = match section.split_once('.') {
            Some((section, sub)) => format!("[{section} \"{sub}\"]"),
            None => format!("[{section}]"),
        };
        match value {
            Some(value) => format!("{header}\n\t{name} = \"{value}\"\n"),
            None => format!("{header}\n\t{name}\n"),
        }
    }

    #[test]
    fn harmless_settings_are_taken() {
        for setting in [
            "user.name=A O'B",
            "user.email=a@b.c",
            "author.name=x",
            "user.useconfigonly=true",
            "branch.main.remote=origin",
            "branch.main.remote=.",
            "branch.main.remote=https://github.com/a/b.git",
            "branch.main.merge=refs/heads/a/b",
            "branch.main.rebase=merges",
            "branch.x.rebase",
            "branch.x.pushRemote=fork",
            "branch.x.description=line\\nline é",
            "branch.autosetupmerge=always",
            "branch.sort=-committerdate",
            "remote.origin.url=git@github.com:a/b.git",
            "remote.origin.url=../other",
            "remote.o.pushurl=/w/x.git",
            "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
            "remote.o.fetch=^refs/heads/x",
            "remote.o.push=HEAD",
            "remote.o.push=:",
            "remote.o.fetch=refs/tags/*:refs/tags/*",
            "remote.o.tagOpt=--no-tags",
            "remote.o.prune=true",
            "remote.o.promisor=true",
            "remote.o.partialclonefilter=blob:none",
            "remote.o.mirror=fetch",
            "remote.o.gh-resolved=base",
            "remote.pushDefault=origin",
            "submodule.lib/a.url=https://h/x",
            "submodule.a.active=true",
            "submodule.active=.",
            "submodule.a.branch=.",
            "core.autocrlf=input",
            "core.bare=false",
            "core.fileMode=TRUE",
            "core.fsmonitor=false",
            "core.sharedRepository=0660",
            "core.repositoryformatversion=1",
            "core.logallrefupdates=always",
            "core.sparseCheckout=true",
            "extensions.worktreeConfig=true",
            "extensions.refStorage=reftable",
            "extensions.partialClone=origin",
            "merge.conflictStyle=zdiff3",
            "merge.ff=only",
            "pull.rebase=true",
            "pull.ff=only",
            "pull.twohead=ort",
            "push.default=simple",
            "push.autoSetupRemote=true",
            "rebase.autoStash=true",
            "fetch.parallel=4",
            "rerere.enabled=1",
            "status.showUntrackedFiles=no",
            "log.date=iso-strict",
            "color.ui=auto",
            "color.diff.new=bold #00ff00",
            "color.ui",
            "advice.detachedHead=false",
            "gc.auto=0",
            "gc.pruneExpire=2.weeks.ago",
            "gc.refs/heads/x.reflogExpire=90 days",
            "maintenance.auto=false",
            "maintenance.strategy=incremental",
            "commit.gpgSign=false",
            "commit.verbose=2",
            "tag.sort=-version:refname",
            "init.defaultBranch=main",
            "diff.algorithm=histogram",
            "diff.colorMoved=zebra",
            "diff.wsErrorHighlight=old,new",
            "grep.patternType=perl",
            "notes.rewriteRef=refs/notes/*",
            "receive.denyCurrentBranch=updateInstead",
            "uploadpack.allowFilter=true",
            "lfs.repositoryformatversion=0",
            "lfs.https://e.org/r.git/info/lfs.locksverify=true",
            "branch.x.gh-merge-base=main",
            "branch.x.vscode-merge-base=origin/main",
            "branch.x.github-pr-owner-number=owner#repo#12",
            "transfer.fsckObjects=true",
            "protocol.version=2",
            "column.ui=auto column",
            "pager.log=false",
            "blame.coloring=repeatedLines",
            "i18n.commitEncoding=latin1",
            "versionsort.suffix=-rc",
            "mergetool.keepBackup=false",
            "gitflow.branch.develop=develop",
            "gitflow.prefix.feature=feature/",
            "core.whitespace=trailing-space,-indent-with-non-tab",
        ] {
            let text = text_of(setting);
            assert_eq!(vet("config", &text, None), Verdict::Harmless, "{setting}");
        }
    }

    #[test]
    fn everything_else_is_rejected_with_a_reason() {
        let other = "not on the list of harmless settings";
        let address = "the address is not https, ssh or a path in the workspace";
        let value = "the value is not one of the harmless ones";
        for (setting, reason) in [
            ("alias.st=grep -O./evil.sh", "runs programs"),
            ("alias.st.command=!x", "runs programs"),
            ("include.path=../x", "includes another file"),
            ("includeIf.gitdir:/w.path=x", "includes another file"),
            ("filter.x.clean=evil", "runs programs"),
            ("diff.x.textconv=evil", "runs programs"),
            ("diff.external=evil", "runs programs"),
            ("merge.x.driver=evil", "runs programs"),
            ("core.hooksPath=/w/hooks", "runs programs"),
            ("core.fsmonitor=true", "runs programs"),
            ("core.fsmonitor", "runs programs"),
            ("core.fsmonitor=no", "runs programs"),
            ("core.pager=less", "runs programs"),
            ("core.worktree=/w/x", "moves a directory"),
            ("core.attributesFile=/w/x", "reads another file"),
            // The judgement of a list of steps knows one.
            ("core.commentChar=x", other),
            ("pager.log=less", "runs programs"),
            ("core.protectHFS=false", other),
            ("credential.helper=!evil", "runs programs"),
            ("gpg.program=evil", "runs programs"),
            ("commit.gpgSign=true", "runs programs"),
            ("commit.gpgSign", "runs programs"),
            ("log.showSignature=true", "runs programs"),
            ("branch.x.mergeOptions=--strategy=evil", "runs programs"),
            ("submodule.x.update=!evil", "runs programs"),
            ("remote.o.uploadpack=evil", "runs programs"),
            ("remote.o.vcs=evil", "runs programs"),
            ("remote.o.proxy=x", other),
            ("remote.o.url=ext::sh -c evil", address),
            ("remote.o.url=/etc", address),
            ("remote.o.url", address),
            ("submodule.x.url=/etc/x", address),
            ("submodule.../../x.url=/w/x", other),
            ("remote.--upload-pack.url=/w/x", other),
            ("branch.x.remote=../../x", address),
            ("branch.x.remote=-x", address),
            ("branch.x.merge=--upload-pack=x", value),
            ("remote.o.fetch=--upload-pack=x", value),
            ("remote.o.fetch=a:b:c", value),
            ("remote.o.tagOpt=--upload-pack=x", value),
            ("url.ext::x.insteadOf=https://", "changes addresses"),
            ("pull.twohead=evil", value),
            ("tag.sort=signature:grade", value),
            ("user.name=a\\nb", value),
            ("extensions.refStorage=reftable:///etc", value),
            ("http.proxy=x", other),
            ("safe.directory=*", other),
            ("protocol.ext.allow=always", other),
            ("receive.denyCurrentBranch=evil", value),
            ("sequence.editor=x", "runs programs"),
            ("trailer.x.cmd=evil", "runs programs"),
            ("notes.rewriteRef=x", value),
            ("unknown.key=true", other),
        ] {
            let Verdict::Refused(rejected) = vet("config", &text_of(setting), None) else {
                panic!("{setting}");
            };
            assert_eq!(rejected[0].reason, reason, "{setting}");
        }
    }

    #[test]
    fn a_submodules_working_tree_is_where_git_puts_it() {
        let text = |dir: &str| format!("[core]\n\tworktree = {dir}\n");
        for (path, dir, is_taken) in [
            ("modules/sub/config", "../../../sub", true),
            ("modules/a/b/config", "../../../../a/b", true),
            ("modules/sub/config", "../../../../../etc", false),
            ("modules/sub/config", "/etc", false),
            ("modules/sub/config", "../../hooks", false),
            ("config", "../sub", false),
            ("worktrees/w/config.worktree", "/w/sub", false),
        ] {
            let verdict = vet(path, &text(dir), None);
            assert_eq!(verdict == Verdict::Harmless, is_taken, "{path} {dir}");
        }
    }

    #[test]
    fn relative_addresses_count_only_where_their_base_is_known() {
        let text = "[remote \"o\"]\n\turl = ../other\n";
        assert_eq!(vet("config", text, None), Verdict::Harmless);
        for path in ["modules/a/config", "worktrees/w/config.worktree"] {
            assert!(
                matches!(vet(path, text, None), Verdict::Refused(_)),
                "{path}"
            );
        }
    }
}
