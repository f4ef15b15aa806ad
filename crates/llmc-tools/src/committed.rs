//! What a commit has, read without running anything that the repository could name.
//!
//! git is started as a fixed program, confined like any command, with plumbing that knows no filters, drivers, hooks or
//! pagers and with no configuration but the repository's own. What comes back is bytes; comparing is done here.

use std::collections::HashMap;

use llmc_exec::{ExecRequest, GitAccess, Program, Runner, Stream};
use llmc_host::{CancelToken, OpenDir, OpenFile, RepositoryStamp};
use sha1::Digest;

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// A list of more bytes than this is not read.
const LIST_LIMIT: u64 = 64 << 20;
/// git's name of a commit, with its line end.
const MAX_ID_BYTES: u64 = 200;
/// What git says where there is no repository.
const NO_REPOSITORY: &str = "not a git repository";
/// Objects asked for in one run.
const BATCH: usize = 500;
/// Bytes asked for in one run.
const BATCH_BYTES: u64 = 16 << 20;
/// Read at a time for a hash.
const BLOCK: usize = 1 << 20;

/// Options before git's command: nothing of the repository's is started, whatever its configuration says.
const OPTIONS: &[&str] = &[
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.bareRepository=explicit",
    // Ownership matters to git because of what configuration can start; here it can start nothing.
    "-c",
    "safe.directory=*",
];

/// Only the repository's own configuration, no network, no locks, nothing in another language.
const ENV: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
];

/// The repositories that git could find from a directory, all of them inside the roots.
pub(crate) struct CheckedRepository<'a> {
    cx: &'a Cx,
    dir: &'a OpenDir,
    stamp: RepositoryStamp,
}

impl<'a> CheckedRepository<'a> {
    /// Checks before git runs.
    ///
    /// # Errors
    /// Something in the repository would lead git outside the roots.
    pub(crate) fn of(cx: &'a Cx, dir: &'a OpenDir, stop: &CancelToken) -> Result<Self> {
        let stamp = cx.files().roots.check_repositories(dir, stop)?;
        Ok(CheckedRepository { cx, dir, stamp })
    }

    /// Checks after git ran, before anything it printed is used.
    ///
    /// # Errors
    /// What was checked may not be what git read.
    pub(crate) fn refuse_changed(&self, stop: &CancelToken) -> Result<()> {
        if self.cx.files().roots.check_repositories(self.dir, stop)? == self.stamp {
            return Ok(());
        }
        let message = "the repository's object directories changed while git read them";
        Err(Error::new(ErrorKind::Busy, message).hint("try again"))
    }
}

/// How deep a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The directory's own entries.
    Here,
    /// Everything below.
    All,
}

/// One name in a commit.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    /// git's name of the content.
    pub(crate) id: String,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) kind: CommittedKind,
}

/// What a name in a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommittedKind {
    File,
    Executable,
    Link,
    /// Another repository.
    Submodule,
    Directory,
}

impl Committed {
    /// Whether it is a plain file.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, CommittedKind::File | CommittedKind::Executable)
    }
}

/// A commit of the repository that a directory belongs to.
pub(crate) struct CommitTree<'a> {
    runner: &'a Runner,
    git: Program,
    dir: &'a OpenDir,
    cx: &'a Cx,
    repository: CheckedRepository<'a>,
    /// What git calls the commit.
    revision: String,
}

impl<'a> CommitTree<'a> {
    /// The commit that a revision names in the repository that `dir` belongs to.
    ///
    /// # Errors
    /// There is no such repository or commit.
    pub(crate) fn at(
        cx: &'a Cx,
        dir: &'a OpenDir,
        revision: &str,
        stop: &CancelToken,
    ) -> Result<CommitTree<'a>> {
        let mut tree = CommitTree::head(cx, dir, stop)?;
        let unknown = || {
            let shown: String = revision.chars().take(80).collect();
            Error::new(
                ErrorKind::NotFound,
                format!("{shown:?} names no commit here"),
            )
        };
        let is_plain = |c: char| !c.is_control() && c != '\0';
        if revision.is_empty() || revision.starts_with('-') || !revision.chars().all(is_plain) {
            return Err(unknown());
        }
        let name = format!("{revision}^{{commit}}");
        let words = ["rev-parse", "--verify", "--quiet", name.as_str()];
        let (code, stdout, stderr) = tree.git(&words, MAX_ID_BYTES, stop)?;
        if String::from_utf8_lossy(&stderr).contains(NO_REPOSITORY) {
            return Err(tree.no_repository());
        }
        let id = String::from_utf8_lossy(&stdout).trim().to_owned();
        let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if code != Some(0) || !is_id {
            return Err(unknown());
        }
        tree.revision = id;
        Ok(tree)
    }

    /// What git calls the commit.
    pub(crate) fn revision(&self) -> &str {
        &self.revision
    }

    /// The last commit.
    pub(crate) fn head(cx: &'a Cx, dir: &'a OpenDir, stop: &CancelToken) -> Result<CommitTree<'a>> {
        let repository = CheckedRepository::of(cx, dir, stop)?;
        let runner = cx.app().commands()?;
        let git = runner.find("git").map_err(|_| {
            Error::new(
                ErrorKind::NotFound,
                "there is no git in the fixed search path",
            )
            .hint("give b, the path to compare with, or install git")
        })?;
        Ok(CommitTree {
            runner,
            git,
            dir,
            cx,
            repository,
            revision: "HEAD".to_owned(),
        })
    }

    /// What the directory had; `None` before the first commit.
    pub(crate) fn list(
        &self,
        reach: Reach,
        stop: &CancelToken,
    ) -> Result<Option<HashMap<Vec<u8>, Committed>>> {
        let mut words = vec!["ls-tree", "-z", "-l"];
        if reach == Reach::All {
            words.push("-r");
        }
        words.push(&self.revision);
        let (code, stdout, stderr) = self.git(&words, LIST_LIMIT, stop)?;
        if code == Some(0) {
            let entries = stdout.split(|byte| *byte == 0).filter_map(entry);
            return Ok(Some(entries.collect()));
        }
        let stderr = String::from_utf8_lossy(&stderr);
        if stderr.contains(NO_REPOSITORY) {
            return Err(self.no_repository());
        }
        if stderr.contains("Not a valid object name HEAD") {
            return Ok(None);
        }
        Err(unreadable(code))
    }

    fn no_repository(&self) -> Error {
        let dir = self.dir.path.requested();
        Error::new(
            ErrorKind::NotFound,
            format!("{dir} is in no git repository"),
        )
        .hint("give b, the path to compare with")
    }

    /// The contents, by git's names for them.
    pub(crate) fn contents(
        &self,
        wanted: &[&Committed],
        stop: &CancelToken,
    ) -> Result<HashMap<String, Vec<u8>>> {
        let mut found = HashMap::with_capacity(wanted.len());
        let mut batch: Vec<&Committed> = Vec::new();
        let mut bytes = 0;
        for entry in wanted {
            if batch.iter().any(|other| other.id == entry.id) || found.contains_key(&entry.id) {
                continue;
            }
            if batch.len() == BATCH || (bytes + entry.size > BATCH_BYTES && !batch.is_empty()) {
                self.fetch(&std::mem::take(&mut batch), &mut found, stop)?;
                bytes = 0;
            }
            bytes += entry.size;
            batch.push(entry);
        }
        if !batch.is_empty() {
            self.fetch(&batch, &mut found, stop)?;
        }
        Ok(found)
    }

    /// One run for many objects: asked for by name and without a path they come back bare, one behind the other, and
    /// their sizes tell them apart.
    fn fetch(
        &self,
        batch: &[&Committed],
        found: &mut HashMap<String, Vec<u8>>,
        stop: &CancelToken,
    ) -> Result<()> {
        let mut words = vec!["show", "--no-textconv", "--no-ext-diff"];
        words.extend(batch.iter().map(|entry| entry.id.as_str()));
        let expected: u64 = batch.iter().map(|entry| entry.size).sum();
        let (code, stdout, _) = self.git(&words, expected + 1, stop)?;
        if code != Some(0) || stdout.len() as u64 != expected {
            return Err(unreadable(code));
        }
        let mut rest = stdout.as_slice();
        for entry in batch {
            let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
            let (content, behind) = rest.split_at(size.min(rest.len()));
            found.insert(entry.id.clone(), content.to_vec());
            rest = behind;
        }
        Ok(())
    }

    fn git(
        &self,
        words: &[&str],
        limit: u64,
        stop: &CancelToken,
    ) -> Result<(Option<i32>, Vec<u8>, Vec<u8>)> {
        let argv: Vec<String> = ["git"]
            .iter()
            .chain(OPTIONS)
            .chain(words)
            .map(|word| (*word).to_owned())
            .collect();
        let env: Vec<(String, String)> = ENV
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let spec = ExecRequest {
            argv: &argv,
            program: Some(&self.git),
            cwd: self.dir,
            timeout: self.cx.app().config().mcp.exec.wait(),
            env: &env,
            max_output: limit,
            owner: self.cx.caller().run_owner(),
            git: GitAccess::ReadOnly,
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut collect = |stream, bytes: &[u8]| match stream {
            Stream::Stdout => stdout.extend_from_slice(bytes),
            Stream::Stderr => stderr.extend_from_slice(bytes),
        };
        let report = self.runner.run(&spec, &mut collect, stop)?;
        stop.check()?;
        self.repository.refuse_changed(stop)?;
        if report.timed_out {
            return Err(Error::new(ErrorKind::TimedOut, "git took too long")
                .hint("narrow the call: a file or a smaller directory"));
        }
        if report.output_capped {
            return Err(Error::new(ErrorKind::TooLarge, "HEAD has too much to list")
                .hint("narrow the call: a file or a smaller directory"));
        }
        Ok((report.status.exit_code(), stdout, stderr))
    }
}

/// git's words may tell of places outside the roots, so they are not passed on.
fn unreadable(code: Option<i32>) -> Error {
    let how = code.map_or_else(|| "ended".to_owned(), |code| format!("exit {code}"));
    Error::new(ErrorKind::Internal, format!("git cannot read HEAD here ({how})")).hint(
        "the repository is damaged, or a partial clone without these objects; give b to compare two paths",
    )
}

/// `100644 blob <id> <size>\t<name>`.
fn entry(line: &[u8]) -> Option<(Vec<u8>, Committed)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let words = std::str::from_utf8(&line[..tab]).ok()?;
    let mut words = words.split_ascii_whitespace();
    let (mode, _kind, id) = (words.next()?, words.next()?, words.next()?);
    let committed = Committed {
        id: id.to_owned(),
        size: words.next()?.parse().unwrap_or(0),
        kind: match mode {
            "100755" => CommittedKind::Executable,
            "120000" => CommittedKind::Link,
            "160000" => CommittedKind::Submodule,
            "040000" => CommittedKind::Directory,
            _ => CommittedKind::File,
        },
    };
    Some((line[tab + 1..].to_vec(), committed))
}

/// Whether a file has the content that git knows by that name.
pub(crate) fn is_same(file: &OpenFile, committed: &Committed, stop: &CancelToken) -> Result<bool> {
    if file.size() != committed.size {
        return Ok(false);
    }
    let name = match committed.id.len() {
        64 => blob_name::<sha2::Sha256>(file, stop)?,
        _ => blob_name::<sha1::Sha1>(file, stop)?,
    };
    Ok(name == committed.id)
}

/// What git would call a file's bytes.
fn blob_name<D: Digest>(file: &OpenFile, stop: &CancelToken) -> Result<String> {
    use std::fmt::Write;
    let mut hash = D::new();
    hash.update(format!("blob {}\0", file.size()));
    let mut offset = 0;
    loop {
        stop.check()?;
        let block = file.read_range(offset, BLOCK)?;
        if block.is_empty() {
            break;
        }
        offset += block.len() as u64;
        hash.update(&block);
    }
    Ok(hash
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}
