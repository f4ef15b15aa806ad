//! Tests of the whole: record, list, undo.

mod bad_input;
mod engine;
mod git;
mod kill;
mod listing;
mod one_database;
mod record;
mod sequences;
mod servers;
mod undo;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmc_host::{Access, CancelToken, FinalLink, PathRules, Roots, Workspace, WriteState};

use crate::entry::{ChangeAuthor, EntryId, HistoryViewer};
use crate::history::{History, HistorySettings};
use crate::recording::Recorded;
use crate::undo::{UndoReport, UndoRequest, UndoTarget};

/// A workspace with a history.
struct TestHistory {
    _dir: Option<tempfile::TempDir>,
    root: PathBuf,
    files: Workspace,
    history: History,
}

/// What is at a path, for comparing trees.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Dir(u32),
}

type Tree = BTreeMap<Vec<u8>, Node>;

fn author(session: &str) -> ChangeAuthor {
    ChangeAuthor {
        principal: "local".to_owned(),
        agent: "tester".to_owned(),
        session: session.to_owned(),
        tool: "run_cmd".to_owned(),
        args_short: "true".to_owned(),
    }
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl TestHistory {
    fn new() -> TestHistory {
        TestHistory::with(&[], HistorySettings::default())
    }

    /// A workspace with these files, all of them known.
    fn with(files: &[(&str, &str)], settings: HistorySettings) -> TestHistory {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (path, content) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let mut test = TestHistory::open(&root, settings);
        test.history.build().unwrap();
        test._dir = Some(dir);
        test
    }

    /// One more server on a workspace.
    fn open(root: &Path, settings: HistorySettings) -> TestHistory {
        let state = root.join(".llmc");
        let rules = PathRules::new(Some(state.clone()), Vec::new())
            .with_denylist(&["**/.env".to_owned()], false)
            .unwrap();
        let roots = Roots::open(root, &[PathBuf::from(".")], Arc::new(rules)).unwrap();
        let writes = WriteState::open(&state, Duration::from_secs(30)).unwrap();
        let files = Workspace::new(Arc::new(roots), Some(Arc::new(writes)));
        let history = engine::open(&state, files.clone(), settings);
        TestHistory {
            _dir: None,
            root: root.to_owned(),
            files,
            history,
        }
    }

    /// From now on this server counts as ended, as if it had been killed.
    fn end_as_if_killed(&self) {
        engine::end_as_if_killed(self);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// Records what `work` does as a command does it.
    fn command(&self, work: impl FnOnce()) -> Option<Recorded> {
        let recording = self.history.begin_all(author("s"));
        work();
        recording.finish().unwrap()
    }

    fn command_id(&self, work: impl FnOnce()) -> EntryId {
        let recorded = self.command(work).expect("something changed");
        recorded.id.expect("recorded")
    }

    /// Records what `work` does as a file tool does it, which names its paths.
    fn tool(&self, paths: &[&str], work: impl FnOnce()) -> Option<Recorded> {
        let recording = self.history.begin(author("s"));
        for path in paths {
            let rooted = self
                .files
                .roots
                .resolve(path, FinalLink::NoFollow, Access::Write)
                .unwrap();
            recording.before_write(&rooted);
        }
        work();
        recording.finish().unwrap()
    }

    fn request(&self, target: UndoTarget) -> UndoRequest {
        UndoRequest {
            target,
            paths: Vec::new(),
            dry_run: false,
            atomic: false,
            force_shared: Vec::new(),
            viewer: HistoryViewer::All,
            author: author("undo"),
            cancel: CancelToken::default(),
        }
    }

    fn undo(&self, id: EntryId) -> UndoReport {
        self.history
            .undo(&self.request(UndoTarget::Entry(id)))
            .unwrap()
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        add_dir(&self.root, b"", &mut tree);
        tree
    }

    /// Waits until every stamp taken from now on is relied on: a file that changed just now may change again without a new
    /// time.
    fn let_stamps_age(&self) {
        let changed_ns = crate::snapshot::now_ns();
        while crate::snapshot::now_ns() - changed_ns <= 2 * crate::snapshot::RACY_NS {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn conflicts(report: &UndoReport) -> Vec<String> {
        let paths = report.conflicts.iter();
        paths
            .map(|conflict| llmc_host::names::escape(&conflict.path))
            .collect()
    }
}

fn add_dir(root: &Path, below: &[u8], tree: &mut Tree) {
    for entry in std::fs::read_dir(root.join(OsStr::from_bytes(below))).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if matches!(name.as_bytes(), b".llmc" | b".git") {
            continue;
        }
        let mut path = below.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let found = entry.path().symlink_metadata().unwrap();
        let mode = found.permissions().mode() & 0o7777;
        let node = if found.is_dir() {
            add_dir(root, &path, tree);
            Node::Dir(mode)
        } else if found.is_symlink() {
            Node::Link(
                entry
                    .path()
                    .read_link()
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            )
        } else {
            Node::File(mode, std::fs::read(entry.path()).unwrap())
        };
        tree.insert(path, node);
    }
}
