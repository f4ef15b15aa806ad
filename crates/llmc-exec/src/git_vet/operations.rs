//! Judges the state of an unfinished rebase, `am`, cherry-pick or revert.
//!
//! `--continue` obeys these files with the rights of its caller: `exec` lines are commands, the name of a strategy is that
//! of a program, options end up on command lines. So there is a fixed list of names, and each has a form.

use std::collections::HashMap;

use super::config_keys::is_strategies;
use super::config_text::{Entry, entries, parse};
use super::refs::{is_object_id, is_ref_name};
use super::{JudgedFile, MAX_REJECTIONS, Verdict, is_printable, lines_of, shortened};

/// Patches and messages may be large, but a stopped operation has a bounded size.
const MAX_FILE_BYTES: usize = 16 << 20;
const MAX_TOKEN_BYTES: usize = 256;

/// A directory in which git keeps an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationDir {
    RebaseMerge,
    /// Also that of `git am`.
    RebaseApply,
    Sequencer,
}

impl OperationDir {
    /// By its name in lower case.
    pub(super) fn from_name(name: &[u8]) -> Option<OperationDir> {
        match name {
            b"rebase-merge" => Some(OperationDir::RebaseMerge),
            b"rebase-apply" => Some(OperationDir::RebaseApply),
            b"sequencer" => Some(OperationDir::Sequencer),
            _ => None,
        }
    }
}

pub(super) fn vet_operation(
    file: &JudgedFile<'_>,
    dir: OperationDir,
    name: &[u8],
    new: &[u8],
    before: Option<&[u8]>,
) -> Verdict {
    let Some(form) = form_of(dir, name) else {
        return file.refused("the file", "not a file of an unfinished operation");
    };
    if new.len() > MAX_FILE_BYTES {
        return file.refused("the file", "larger than 16 MiB");
    }
    match form {
        Form::Free => Verdict::Harmless,
        Form::Todo => vet_todo(file, new, before.unwrap_or_default()),
        Form::Options => vet_options(file, new),
        form => {
            let text = new.strip_suffix(b"\n").unwrap_or(new);
            file.refused_unless(form.accepts(text), text, form.complaint())
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Messages, patches, notes.
    Free,
    /// Lines of a verb and its arguments.
    Todo,
    /// The configuration format, with options of the sequencer.
    Options,
    /// Nothing or a short word: the file's presence counts.
    Flag,
    Digits,
    /// One object's name, also shortened.
    Object,
    /// Lines of objects' names.
    Objects,
    /// Lines of refs and objects' names.
    Refs,
    /// Refs that are deleted at the end.
    RewrittenRefs,
    HeadName,
    Fixups,
    Author,
    Strategy,
    StrategyOptions,
    ApplyOptions,
    GpgSign,
    Trailers,
}

type FormRow = (&'static [&'static str], Form);

/// The files of git 2.30 to 2.55.
#[rustfmt::skip]
const REBASE_MERGE: &[FormRow] = &[
    (&["git-rebase-todo", "git-rebase-todo.backup", "done", "dropped"], Form::Todo),
    (&["message", "message-squash", "message-fixup", "patch"], Form::Free),
    (&["interactive", "verbose", "quiet", "signoff", "cdate_is_adate", "ignore_date", "allow_rerere_autoupdate"], Form::Flag),
    (&["drop_redundant_commits", "keep_redundant_commits", "reschedule-failed-exec", "no-reschedule-failed-exec"], Form::Flag),
    (&["msgnum", "end"], Form::Digits),
    (&["onto", "orig-head", "head", "amend", "stopped-sha", "squash-onto", "autostash"], Form::Object),
    (&["rewritten-list", "rewritten-pending"], Form::Objects),
    (&["update-refs"], Form::Refs),
    (&["refs-to-delete"], Form::RewrittenRefs),
    (&["head-name"], Form::HeadName),
    (&["current-fixups"], Form::Fixups),
    (&["author-script"], Form::Author),
    (&["strategy"], Form::Strategy),
    (&["strategy_opts"], Form::StrategyOptions),
    (&["gpg_sign_opt"], Form::GpgSign),
    (&["trailer"], Form::Trailers),
];

#[rustfmt::skip]
const REBASE_APPLY: &[FormRow] = &[
    (&["final-commit", "msg", "msg-clean", "info", "patch", "patch-merge-index"], Form::Free),
    (&["applying", "rebasing", "keep", "messageid", "quiet", "quoted-cr", "scissors", "sign", "threeway", "utf8"], Form::Flag),
    (&["dirtyindex", "rerere-autoupdate", "allow_rerere_autoupdate", "signoff", "verbose"], Form::Flag),
    (&["last", "next"], Form::Digits),
    (&["onto", "orig-head", "original-commit", "abort-safety", "autostash"], Form::Object),
    (&["rewritten"], Form::Objects),
    (&["head-name"], Form::HeadName),
    (&["author-script"], Form::Author),
    (&["apply-opt"], Form::ApplyOptions),
    (&["strategy"], Form::Strategy),
    (&["strategy_opts"], Form::StrategyOptions),
    (&["gpg_sign_opt"], Form::GpgSign),
];

const SEQUENCER: &[FormRow] = &[
    (&["todo"], Form::Todo),
    (&["opts"], Form::Options),
    (&["head", "abort-safety"], Form::Object),
];

/// Verbs of todo lists, in full and short. `exec` is missing: it runs a command.
#[rustfmt::skip]
const VERBS: [&str; 25] = [
    "pick", "p", "revert", "edit", "e", "reword", "r", "fixup", "f", "squash", "s", "break", "b", "label", "l", "reset", "t",
    "merge", "m", "update-ref", "u", "noop", "drop", "d", "",
];
const VERBS_THAT_RUN_COMMANDS: [&str; 2] = ["exec", "x"];

/// Options of merge strategies that stand alone.
#[rustfmt::skip]
const STRATEGY_OPTIONS: [&str; 13] = [
    "ours", "theirs", "patience", "histogram", "ignore-space-change", "ignore-all-space", "ignore-space-at-eol",
    "ignore-cr-at-eol", "renormalize", "no-renormalize", "find-renames", "no-renames", "subtree",
];
const DIFF_ALGORITHMS: [&str; 5] = ["default", "myers", "minimal", "patience", "histogram"];

/// Boolean options of `sequencer/opts`.
#[rustfmt::skip]
const SEQUENCER_FLAGS: [&str; 10] = [
    "no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "keep-redundant-commits", "signoff",
    "record-origin", "allow-ff", "allow-rerere-auto",
];
const CLEANUP_MODES: [&str; 5] = ["default", "verbatim", "whitespace", "strip", "scissors"];

/// Values of `--whitespace=` for `git apply`.
const WHITESPACE_ACTIONS: [&str; 6] = ["nowarn", "warn", "fix", "strip", "error", "error-all"];
const APPLY_FLAGS: [&str; 4] = [
    "--reject",
    "--ignore-whitespace",
    "--ignore-space-change",
    "--allow-empty",
];
/// Options of `git apply` with a path or pattern below the working tree.
const APPLY_PATHS: [&str; 3] = ["--directory=", "--exclude=", "--include="];

fn form_of(dir: OperationDir, name: &[u8]) -> Option<Form> {
    let table = match dir {
        OperationDir::RebaseMerge => REBASE_MERGE,
        OperationDir::RebaseApply => REBASE_APPLY,
        OperationDir::Sequencer => SEQUENCER,
    };
    // The mails of `git am`: 0001, 0002, and so on.
    if dir == OperationDir::RebaseApply && name.len() >= 4 && is_digits(name) {
        return Some(Form::Free);
    }
    table
        .iter()
        .find(|(names, _)| is_one_of(name, names))
        .map(|(_, form)| *form)
}

impl Form {
    fn accepts(self, text: &[u8]) -> bool {
        match self {
            Form::Free | Form::Todo | Form::Options => false,
            Form::Flag => is_token(text, b"-"),
            // Seen while it is being written.
            Form::Digits => text.is_empty() || is_digits(text),
            Form::Object => text.is_empty() || is_object(text),
            Form::Objects => {
                lines_of(text).all(|line| line.split(|b| *b == b' ').all(is_object))
                    || text.is_empty()
            }
            Form::Refs => {
                text.is_empty()
                    || lines_of(text).all(|line| is_object_id(line) || is_ref_name(line))
            }
            Form::RewrittenRefs => {
                let is_rewritten =
                    |line: &[u8]| line.starts_with(b"refs/rewritten/") && is_ref_name(line);
                text.is_empty() || lines_of(text).all(is_rewritten)
            }
            Form::HeadName => text == b"detached HEAD" || is_ref_name(text),
            Form::Fixups => lines_of(text).all(is_fixup),
            Form::Author => is_author_script(text),
            Form::Strategy => !text.contains(&b' ') && is_strategies(text),
            Form::StrategyOptions => words_of_command_line(text).is_some_and(|words| {
                let bare =
                    |word: &Vec<u8>| is_strategy_option(word.strip_prefix(b"--").unwrap_or(word));
                words.iter().all(bare)
            }),
            Form::ApplyOptions => {
                sq_words(text).is_some_and(|words| words.iter().all(|word| is_apply_option(word)))
            }
            Form::GpgSign => {
                let is_key = |key: &[u8]| !key.starts_with(b"-") && is_token(key, b"@._+!");
                text.is_empty()
                    || text == b"--no-gpg-sign"
                    || text.strip_prefix(b"-S").is_some_and(is_key)
            }
            Form::Trailers => {
                text.is_empty()
                    || lines_of(text).all(|line| is_printable(line) && !line.starts_with(b"-"))
            }
        }
    }

    fn complaint(self) -> &'static str {
        match self {
            Form::Strategy => "runs programs: not a strategy of git's own",
            Form::StrategyOptions => "not an option of git's own strategies",
            Form::ApplyOptions => "not an option that git am passes on",
            Form::Author => "not an author as git writes it",
            _ => "not in the form that git writes",
        }
    }
}

/// Each line is a comment or has a known verb. Lines that the host's list has already stay, whatever they say.
fn vet_todo(file: &JudgedFile<'_>, new: &[u8], before: &[u8]) -> Verdict {
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    for line in lines_of(before) {
        *known.entry(line).or_default() += 1;
    }
    let mut rejected = Vec::new();
    for line in lines_of(new) {
        if let Some(count) = known.get_mut(line).filter(|count| **count > 0) {
            *count -= 1;
        } else if let Err(reason) = vet_todo_line(line)
            && rejected.len() < MAX_REJECTIONS
        {
            rejected.push(file.rejection(shortened(line), reason));
        }
    }
    match rejected.is_empty() {
        true => Verdict::Harmless,
        false => Verdict::Refused(rejected),
    }
}

fn vet_todo_line(line: &[u8]) -> Result<(), &'static str> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
        return Err("has control characters");
    }
    let line = line.trim_ascii();
    if line.starts_with(b"#") {
        return Ok(());
    }
    let verb = line
        .split(|b| b" \t".contains(b))
        .next()
        .unwrap_or_default();
    if is_one_of(verb, &VERBS_THAT_RUN_COMMANDS) {
        return Err("runs programs");
    }
    match is_one_of(verb, &VERBS) {
        true => Ok(()),
        false => Err("not a verb of git's todo lists"),
    }
}

fn vet_options(file: &JudgedFile<'_>, new: &[u8]) -> Verdict {
    let lines = match parse(new) {
        Ok(lines) => lines,
        Err(reason) => return file.refused("the file", reason),
    };
    let rejected: Vec<_> = entries(&lines)
        .filter(|entry| !is_sequencer_option(entry))
        .take(MAX_REJECTIONS)
        .map(|entry| {
            file.rejection(
                entry.key.to_string(),
                "not an option of a cherry-pick or revert",
            )
        })
        .collect();
    match rejected.is_empty() {
        true => Verdict::Harmless,
        false => Verdict::Refused(rejected),
    }
}

fn is_sequencer_option(entry: &Entry) -> bool {
    let key = &entry.key;
    let Some(value) = entry
        .value
        .as_deref()
        .filter(|_| key.section == "options" && key.subsection.is_none())
    else {
        return false;
    };
    match key.name.as_str() {
        "mainline" => is_digits(value),
        "strategy" => Form::Strategy.accepts(value),
        "strategy-option" => is_strategy_option(value.strip_prefix(b"--").unwrap_or(value)),
        "gpg-sign" => !value.starts_with(b"-") && is_token(value, b"@._+!"),
        "default-msg-cleanup" => is_one_of(value, &CLEANUP_MODES),
        name => SEQUENCER_FLAGS.contains(&name) && is_one_of(value, &["true", "false"]),
    }
}

fn is_strategy_option(option: &[u8]) -> bool {
    let Some(at) = option.iter().position(|byte| *byte == b'=') else {
        return is_one_of(option, &STRATEGY_OPTIONS);
    };
    let (name, value) = (&option[..at], &option[at + 1..]);
    match name {
        b"diff-algorithm" => is_one_of(value, &DIFF_ALGORITHMS),
        b"find-renames" | b"rename-threshold" => {
            is_digits(value.strip_suffix(b"%").unwrap_or(value))
        }
        b"subtree" => is_printable(value) && is_inner_path(value),
        _ => false,
    }
}

fn is_apply_option(option: &[u8]) -> bool {
    let after = |prefix: &str| option.strip_prefix(prefix.as_bytes());
    let is_number = ["-C", "-p"].into_iter().filter_map(after).any(is_digits);
    let is_whitespace =
        after("--whitespace=").is_some_and(|action| is_one_of(action, &WHITESPACE_ACTIONS));
    let is_path = |path: &[u8]| is_printable(path) && is_inner_path(path);
    let has_path = APPLY_PATHS.into_iter().filter_map(after).any(is_path);
    is_number || is_whitespace || has_path || is_one_of(option, &APPLY_FLAGS)
}

/// Whether a path stays below where it begins.
fn is_inner_path(path: &[u8]) -> bool {
    !path.starts_with(b"/") && path.split(|byte| *byte == b'/').all(|part| part != b"..")
}

fn is_fixup(line: &[u8]) -> bool {
    let after = |verb: &[u8]| line.strip_prefix(verb);
    // Old versions left empty lines where a commit was skipped.
    line.is_empty()
        || after(b"fixup ")
            .or(after(b"squash "))
            .is_some_and(is_object)
}

/// `GIT_AUTHOR_NAME='...'`, then the address and the date, each in the quotes that git writes.
fn is_author_script(text: &[u8]) -> bool {
    let names: [&[u8]; 3] = [
        b"GIT_AUTHOR_NAME=",
        b"GIT_AUTHOR_EMAIL=",
        b"GIT_AUTHOR_DATE=",
    ];
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let is_line = |(line, name): (&&[u8], &&[u8])| {
        let words = line.strip_prefix(*name).and_then(sq_word);
        words.is_some_and(|(_, rest)| rest.is_empty())
    };
    lines.len() == names.len() && lines.iter().zip(&names).all(is_line)
}

/// Words in single quotes with spaces between them, as git writes lists of arguments.
fn sq_words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = text.trim_ascii_start();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (word, after) = sq_word(rest)?;
        words.push(word);
        rest = match after {
            [] => after,
            [b' ', after @ ..] => after,
            _ => return None,
        };
    }
    Some(words)
}

/// One word in single quotes, in which `'\''` and `'\!'` stand for what cannot be in them, and what follows it.
fn sq_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"'")?;
    let mut word = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == b'\'')?;
        word.extend_from_slice(&rest[..end]);
        rest = match &rest[end + 1..] {
            [b'\\', escaped @ (b'\'' | b'!'), b'\'', after @ ..] => {
                word.push(*escaped);
                after
            }
            after => return is_printable(&word).then_some((word, after)),
        };
    }
}

/// Words of a command line with single or double quotes; with escapes or other control characters than spaces, `None`.
fn words_of_command_line(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    for byte in text {
        match (byte, quote) {
            (b'\\', _) => return None,
            (byte, _) if byte.is_ascii_control() => return None,
            (byte, Some(open)) if *byte == open => quote = None,
            (b'"' | b'\'', None) => {
                quote = Some(*byte);
                word.get_or_insert_default();
            }
            (b' ', None) => words.extend(word.take()),
            (byte, _) => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn is_object(text: &[u8]) -> bool {
    (4..=64).contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit)
}

fn is_digits(text: &[u8]) -> bool {
    (1..=18).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

/// Letters, digits and these characters, or nothing.
fn is_token(text: &[u8], further: &[u8]) -> bool {
    text.len() <= MAX_TOKEN_BYTES
        && text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || further.contains(b))
}

fn is_one_of(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| word.as_bytes() == text)
}

#[cfg(test)]
mod git_tests;

#[cfg(test)]
mod tests {
    use super::super::test_support::{vet, vet_bytes};
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn files_of_operations_have_the_form_that_git_writes() {
        for (path, text) in [
            (
                "rebase-merge/git-rebase-todo",
                "pick 1234567 one\nf -C 1234567 # two\n\tx\n".trim_end_matches("\tx\n"),
            ),
            (
                "rebase-merge/git-rebase-todo",
                "# exec evil\n  # x\n\nlabel onto\nl a\nmerge -C 1234567 a # m\nt onto\nu refs/heads/x\nnoop\nb\n",
            ),
            ("sequencer/todo", "revert 1234567 one é\r\n"),
            (
                "rebase-merge/author-script",
                "GIT_AUTHOR_NAME='A O'\\''B'\\!''\nGIT_AUTHOR_EMAIL=''\nGIT_AUTHOR_DATE='@1 +0000'\n",
            ),
            ("rebase-merge/strategy", "ort\n"),
            (
                "rebase-merge/strategy_opts",
                "\"patience\" \"diff-algorithm=histogram\"\n",
            ),
            (
                "rebase-merge/strategy_opts",
                " --ours --find-renames=40% '--subtree=a b'",
            ),
            ("rebase-merge/strategy_opts", "\n"),
            ("rebase-merge/gpg_sign_opt", "-S"),
            ("rebase-merge/gpg_sign_opt", "-Sme@example.org\n"),
            ("rebase-merge/head-name", "detached HEAD\n"),
            ("rebase-merge/head-name", "refs/heads/a/b\n"),
            (
                "rebase-merge/update-refs",
                &format!("refs/heads/a\n{ID}\n{ID}\n"),
            ),
            ("rebase-merge/refs-to-delete", "refs/rewritten/onto\n"),
            (
                "rebase-merge/current-fixups",
                &format!("squash {ID}\nfixup {ID}"),
            ),
            ("rebase-merge/message", "any\x1b\0thing"),
            ("rebase-apply/0001", "From x\n"),
            ("rebase-apply/10000", "From x\n"),
            (
                "rebase-apply/apply-opt",
                " '-C1' '-p1' '--whitespace=fix' '--directory=x' '--exclude=a b'\\''c' '--reject'\n",
            ),
            ("rebase-apply/apply-opt", ""),
            (
                "sequencer/opts",
                "[options]\n\tsignoff = true\n\tgpg-sign = \n\tstrategy-option = find-renames=40\n\tmainline = 1\n",
            ),
            ("sequencer/abort-safety", ""),
            ("worktrees/w/rebase-merge/end", "3\n"),
            ("modules/a/b/sequencer/head", ID),
        ] {
            assert_eq!(vet(path, text, None), Verdict::Harmless, "{path} {text:?}");
        }
    }

    #[test]
    fn what_git_does_not_write_is_refused() {
        for (path, text) in [
            (
                "rebase-merge/git-rebase-todo",
                "pick 1234567 one\nexec evil\n",
            ),
            ("rebase-merge/git-rebase-todo", " \tx evil"),
            ("rebase-merge/git-rebase-todo", "exec\tevil"),
            ("rebase-merge/git-rebase-todo", "EXEC evil"),
            ("rebase-merge/git-rebase-todo", "pick 1\0exec evil"),
            ("rebase-merge/git-rebase-todo.backup", "x evil\n"),
            ("rebase-merge/done", "exec evil\n"),
            ("sequencer/todo", "run evil\n"),
            ("worktrees/w/sequencer/todo", "exec evil\n"),
            ("modules/a/rebase-merge/git-rebase-todo", "exec evil\n"),
            ("REBASE-MERGE/git-rebase-todo", "exec evil\n"),
            ("rebase-merge/GIT-REBASE-TODO", "pick 1234567\n"),
            (
                "rebase-merge/author-script",
                "GIT_AUTHOR_NAME='a';evil\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='c'\n",
            ),
            (
                "rebase-merge/author-script",
                "GIT_AUTHOR_NAME=$(evil)\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='c'\n",
            ),
            (
                "rebase-merge/author-script",
                "GIT_AUTHOR_NAME='a'\nGIT_AUTHOR_EMAIL='b'\n",
            ),
            (
                "rebase-merge/author-script",
                "GIT_AUTHOR_NAME='a'\nGIT_AUTHOR_EMAIL='b'\nGIT_AUTHOR_DATE='c'\nPATH='x'\n",
            ),
            ("rebase-merge/strategy", "evil"),
            ("rebase-merge/strategy", "ort evil"),
            ("rebase-merge/strategy_opts", "\"patience\" \"evil=x\""),
            ("rebase-merge/strategy_opts", "\"diff-algorithm=evil\""),
            ("rebase-merge/strategy_opts", "\"open"),
            ("rebase-merge/strategy_opts", "pat\\ience"),
            ("rebase-merge/gpg_sign_opt", "-S--program"),
            ("rebase-merge/gpg_sign_opt", "--exec=evil"),
            ("rebase-merge/head-name", "HEAD"),
            ("rebase-merge/refs-to-delete", "refs/heads/main\n"),
            ("rebase-merge/onto", "--upload-pack=x"),
            ("rebase-merge/end", "x"),
            ("rebase-merge/current-fixups", "exec evil"),
            ("rebase-merge/unknown", ""),
            ("rebase-apply/apply-opt", " '--unsafe-paths'\n"),
            ("rebase-apply/apply-opt", " '--directory=../x'\n"),
            ("rebase-apply/apply-opt", " --reject\n"),
            ("rebase-apply/unknown", ""),
            ("sequencer/opts", "[options]\n\tstrategy = evil\n"),
            ("sequencer/opts", "[options]\n\tstrategy-option = evil\n"),
            ("sequencer/opts", "[options \"x\"]\n\tedit = true\n"),
            ("sequencer/opts", "[core]\n\tpager = evil\n"),
            ("sequencer/opts", "[options]\n\tgpg-sign = --x\n"),
            ("sequencer/unknown", ""),
        ] {
            assert!(
                matches!(vet(path, text, None), Verdict::Refused(_)),
                "{path} {text:?}"
            );
        }
        let large = vec![b'x'; MAX_FILE_BYTES + 1];
        assert!(matches!(
            vet_bytes("rebase-merge/message", &large, None),
            Verdict::Refused(_)
        ));
    }

    #[test]
    fn commands_that_the_user_listed_stay() {
        let before = "pick 1234567 one\nexec make test\npick 1234568 two\nexec make test\n";
        let verdict = |new: &str| vet("rebase-merge/git-rebase-todo", new, Some(before));
        assert_eq!(
            verdict("exec make test\npick 1234568 two\n"),
            Verdict::Harmless
        );
        let Verdict::Refused(rejected) = verdict("exec make tests\n") else {
            panic!();
        };
        assert_eq!(
            (rejected[0].item.as_str(), rejected[0].reason),
            ("exec make tests", "runs programs")
        );
        let three = "exec make test\n".repeat(3);
        assert!(matches!(verdict(&three), Verdict::Refused(_)));
    }
}
