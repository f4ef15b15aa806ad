//! Searches that use trigrams answer what a scan of all files answers, whatever changes in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_host::search::{
    Case, ContentFilter, ContentMatches, ContentOptions, ContentPattern, NameMatches, NamePattern,
    PatternSyntax, read_indexable, search_content, search_content_filtered, search_content_watched,
    search_files, search_files_watched,
};
use llmc_host::walk::{
    self, FileGlob, FileVisitor, VisitOutcome, WalkFile, WalkOptions, WatchedTree,
};
use llmc_host::{CancelToken, OpenDir, PathRules, Roots};
use llmc_trigrams::{
    FileIdentity, PathHash, SETTLE_TIME, TrigramExtractor, TrigramIndex, TrigramWriter, WalkExtent,
};
use tempfile::TempDir;

use crate::changes::{Changer, Changes, DIRS, Random, WORDS, content, some_path};

/// Queries of each random test; the environment variable asks for more.
const QUERIES: usize = 400;
const QUERIES_ENV: &str = "LLMC_SEARCH_QUERIES";
/// What these tests take for settled, to wait less: still much longer than a tick of the kernel's clock.
const TEST_SETTLE_TIME: Duration = Duration::from_millis(100);

fn queries() -> usize {
    let asked = std::env::var(QUERIES_ENV).ok();
    asked.map_or(QUERIES, |text| text.parse().unwrap())
}

fn pattern(random: &mut Random) -> (String, PatternSyntax) {
    let word = random.pick(WORDS).to_owned();
    let other = random.pick(WORDS).to_owned();
    let part: String = {
        let letters: Vec<char> = word.chars().collect();
        let start = random.below(letters.len());
        letters[start..].iter().take(1 + random.below(5)).collect()
    };
    if random.one_in(3) {
        let literal = random.pick(&[word.as_str(), part.as_str(), "absent words", "e"]);
        return (literal.to_owned(), PatternSyntax::Literal);
    }
    let (word, other) = (regex_escaped(&word), regex_escaped(&other));
    let pattern = match random.below(17) {
        0 => format!("{word}|{other}"),
        1 => format!("{word}.*{other}"),
        2 => format!("^{word}"),
        3 => format!("{word}$"),
        4 => format!(r"\b{word}\w*"),
        5 => format!("(?:{word}|{other})+"),
        6 => format!(r"{word}\s+{other}"),
        7 => format!("(?i){word}"),
        8 => format!("{word}?{other}"),
        9 => "[a-c]{2,4}[dl]".to_owned(),
        10 => regex_escaped(&part),
        11 => format!(r"{word}\r?$"),
        12 => format!("(?i:{word})[ _.]{other}"),
        13 => format!(r"(?-u:\xff|\xe9)|{word}"),
        14 => format!("[{}]{{3}}", regex_escaped(&part).replace(' ', "a")),
        15 => format!("{word}.?{other}|{}", regex_escaped(&part)),
        // Costly: files with long lines may be left out.
        _ => format!("(?:{word}){{0,40}}{other}"),
    };
    (pattern, PatternSyntax::Regex)
}

fn regex_escaped(text: &str) -> String {
    let special = |c: char| "()[]{}.*+?|^$\\".contains(c);
    let escaped = text
        .chars()
        .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]));
    escaped.collect()
}

/// A workspace with an index of its contents.
struct Indexed {
    base: TempDir,
    roots: Roots,
}

impl Indexed {
    fn new(random: &mut Random) -> Indexed {
        let base = TempDir::new().unwrap();
        let root = base.path().join("w");
        fs::create_dir(&root).unwrap();
        for _ in 0..60 {
            let path = some_path(&root, random);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content(random)).unwrap();
        }
        fs::write(root.join(".gitignore"), "skip/\n").unwrap();
        let rules = Arc::new(PathRules::new(None, Vec::new()));
        let roots = Roots::open(&root, std::slice::from_ref(&root), rules).unwrap();
        Indexed { base, roots }
    }

    fn root(&self) -> PathBuf {
        self.base.path().join("w")
    }

    /// Adds the files that are at rest.
    fn update(&self) {
        let writer = TrigramWriter::open(&self.base.path().join("trigrams")).unwrap();
        let dir = self.roots.open_dir(".").unwrap();
        let options = WalkOptions {
            threads: 1,
            ..dir.walk_options(&self.roots).unwrap()
        };
        let known = writer.existing();
        let writer = Arc::new(Mutex::new(Some(writer)));
        let visitor = Adder {
            writer: Arc::clone(&writer),
            known: Arc::new(known),
            extractor: TrigramExtractor::default(),
        };
        let mut visitor = Some(visitor);
        let cancel = CancelToken::default();
        walk::walk(&dir.fd, &options, &cancel, || visitor.take().unwrap()).unwrap();
        let writer = writer.lock().unwrap().take().unwrap();
        writer.finish(WalkExtent::Whole).unwrap();
    }

    fn index(&self) -> Arc<TrigramIndex> {
        Arc::new(TrigramIndex::open(&self.base.path().join("trigrams")).unwrap())
    }

    fn watch(&self) -> WatchedTree {
        let dir = self.roots.open_dir(".").unwrap();
        WatchedTree::build(&self.roots, &dir, &CancelToken::default()).unwrap()
    }
}

/// Adds files to an index as an update does.
struct Adder {
    writer: Arc<Mutex<Option<TrigramWriter>>>,
    known: Arc<TrigramIndex>,
    extractor: TrigramExtractor,
}

impl FileVisitor for Adder {
    fn visit(&mut self, file: &WalkFile<'_>) -> VisitOutcome {
        let Ok((fd, stat)) = file.open() else {
            return VisitOutcome::Unreadable;
        };
        let path = PathHash::of(file.path());
        let identity = FileIdentity::of(&stat);
        let mut writer = self.writer.lock().unwrap();
        let writer = writer.as_mut().unwrap();
        if self.known.find(path, identity.fingerprint()).is_some() {
            writer.see(path);
            return VisitOutcome::Done;
        }
        let now = SystemTime::now() + SETTLE_TIME - TEST_SETTLE_TIME;
        let now = now.duration_since(UNIX_EPOCH).unwrap();
        let mut buffer = Vec::new();
        if identity.is_settled(i64::try_from(now.as_nanos()).unwrap())
            && let Some(read) = read_indexable(&fd, &stat, &mut buffer)
        {
            let trigrams = self.extractor.of(&read.text);
            let fingerprint = identity.fingerprint();
            writer.add(path, fingerprint, read.kind, trigrams).unwrap();
        }
        VisitOutcome::Done
    }
}

/// Answers that were compared: those of a tree and those of a walk.
#[derive(Default)]
struct Answered {
    watched: usize,
    walked: usize,
}

impl Answered {
    fn total(&self) -> usize {
        self.watched + self.walked
    }
}

/// What is asked, and where.
struct Question {
    start: &'static str,
    glob: Option<&'static str>,
    asked: Asked,
}

enum Asked {
    Names(&'static str, usize),
    Content(String, PatternSyntax, Case, ContentOptions),
}

/// What a search answers, and whether a tree did.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Names(NameMatches),
    Content(ContentMatches),
}

impl Question {
    fn random(random: &mut Random) -> Question {
        let start = match random.below(2) {
            0 => ".",
            _ => random.pick(DIRS),
        };
        let glob = match random.below(6) {
            0 => Some(random.pick(&["*.rs", "src/*.rs", ".*", "**/*.txt", "*.log"])),
            _ => None,
        };
        let asked = if random.one_in(5) {
            let part = random.pick(&["a", ".rs", "*.rs", "deep", "src/deep", "*", "m"]);
            Asked::Names(part, [1, 3, 1000][random.below(3)])
        } else {
            let (text, syntax) = pattern(random);
            let case = [Case::Ignore, Case::Sensitive][random.below(2)];
            let options = ContentOptions {
                context_lines: random.below(3),
                max_hits: [3, 50, 10_000][random.below(3)],
                ..ContentOptions::default()
            };
            Asked::Content(text, syntax, case, options)
        };
        Question {
            start: if start.is_empty() { "." } else { start },
            glob,
            asked,
        }
    }

    fn walk(&self, work: &Indexed) -> Option<(OpenDir, WalkOptions)> {
        let dir = work.roots.open_dir(self.start).ok()?;
        let walk = WalkOptions {
            file_glob: self.glob.map(|glob| FileGlob::new(glob).unwrap()),
            ..dir.walk_options(&work.roots).ok()?
        };
        Some((dir, walk))
    }

    /// The answer with an index, and whether the tree gave it. `None` if the question cannot be asked.
    fn ask(
        &self,
        work: &Indexed,
        index: &Arc<TrigramIndex>,
        tree: Option<&WatchedTree>,
    ) -> Option<(Answer, bool)> {
        let (dir, walk) = self.walk(work)?;
        let cancel = CancelToken::default();
        match &self.asked {
            Asked::Names(part, max) => {
                let pattern = NamePattern::new(part).unwrap();
                let found = search_files_watched(tree?, &pattern, &walk, *max, &cancel)?;
                Some((Answer::Names(found), true))
            }
            Asked::Content(text, syntax, case, options) => {
                let pattern = ContentPattern::new(text, *syntax, *case).ok()?;
                let filter = ContentFilter::new(Arc::clone(index), &pattern, &dir.fd).unwrap();
                let filter = filter.map(Arc::new);
                let by_tree = tree.and_then(|tree| {
                    let filter = filter.as_ref();
                    search_content_watched(&dir.fd, tree, &pattern, &walk, options, filter, &cancel)
                        .unwrap()
                });
                let is_by_tree = by_tree.is_some();
                let found = match by_tree {
                    Some(found) => found,
                    None => {
                        let filter = &filter?;
                        search_content_filtered(&dir.fd, &pattern, &walk, options, filter, &cancel)
                            .unwrap()
                    }
                };
                Some((Answer::Content(found), is_by_tree))
            }
        }
    }

    /// The answer of a scan.
    fn scan(&self, work: &Indexed) -> Answer {
        let (dir, walk) = self.walk(work).unwrap();
        let cancel = CancelToken::default();
        match &self.asked {
            Asked::Names(part, max) => {
                let pattern = NamePattern::new(part).unwrap();
                let found = search_files(&dir.fd, &pattern, &walk, *max, &cancel);
                Answer::Names(found.unwrap())
            }
            Asked::Content(text, syntax, case, options) => {
                let pattern = ContentPattern::new(text, *syntax, *case).unwrap();
                let found = search_content(&dir.fd, &pattern, &walk, options, &cancel);
                Answer::Content(found.unwrap())
            }
        }
    }

    /// Asks both ways.
    fn compare(
        &self,
        work: &Indexed,
        index: &Arc<TrigramIndex>,
        tree: Option<&WatchedTree>,
        answered: &mut Answered,
    ) {
        let Some((found, is_by_tree)) = self.ask(work, index, tree) else {
            return;
        };
        let scanned = self.scan(work);
        answered.watched += usize::from(is_by_tree);
        answered.walked += usize::from(!is_by_tree);
        let (start, glob) = (self.start, self.glob);
        match &self.asked {
            Asked::Names(part, _) => {
                assert_eq!(found, scanned, "names {part} in {start} with {glob:?}");
            }
            Asked::Content(text, syntax, case, _) => assert_eq!(
                found, scanned,
                "{text} {syntax:?} {case:?} in {start} with {glob:?}"
            ),
        }
    }
}

/// Waits until files that were just written count as settled.
fn let_files_settle(root: &Path) {
    fs::write(root.join("clock"), "").unwrap();
    let written = fs::metadata(root.join("clock"))
        .unwrap()
        .modified()
        .unwrap();
    while SystemTime::now() < written + TEST_SETTLE_TIME + Duration::from_millis(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a search has a watched tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Walked,
    Watched,
}

/// Asks random questions of one workspace after the other.
fn ask(salt: u64, names: Names) -> Answered {
    let mut random = Random::new(salt);
    let mut answered = Answered::default();
    while answered.total() < queries() {
        let work = Indexed::new(&mut random);
        let kinds = [
            Changes::SecondNames,
            Changes::KeptFiles,
            Changes::Unreported,
        ];
        let changes = kinds[random.below(3)];
        let changer = Changer::new(work.root(), changes, Random::new(random.next()));
        let rounds = (queries() - answered.total()).clamp(20, 500);
        let (order, orders) = channel();
        let (report, done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || changer.work(&orders, &report));
            let change = (order, done, changes);
            ask_while_files_change(&work, names, rounds, &change, &mut random, &mut answered);
        });
    }
    answered
}

/// Orders changes, and asks after them; sometimes also while they are made, when any answer may be right.
fn ask_while_files_change(
    work: &Indexed,
    names: Names,
    rounds: usize,
    (order, done, changes): &(Sender<usize>, Receiver<()>, Changes),
    random: &mut Random,
    answered: &mut Answered,
) {
    let_files_settle(&work.root());
    work.update();
    let mut index = work.index();
    assert!(index.documents() > 10);
    let mut tree = (names == Names::Watched).then(|| work.watch());
    for round in 0..rounds {
        order.send(random.below(3)).unwrap();
        let is_updated = round % 50 == 49;
        if !random.one_in(4) {
            done.recv().unwrap();
        } else if is_updated {
            work.update();
            done.recv().unwrap();
        } else {
            Question::random(random).ask(work, &index, tree.as_ref());
            done.recv().unwrap();
        }
        if is_updated {
            if random.one_in(2) {
                let_files_settle(&work.root());
            }
            work.update();
        }
        // What a search has open may be older than what an update has written.
        if random.one_in(10) {
            index = work.index();
        }
        if tree.as_ref().is_some_and(WatchedTree::is_lost) && random.one_in(3) {
            tree = Some(work.watch());
        }
        if let Some(tree) = &tree
            && (*changes == Changes::Unreported || random.one_in(20))
        {
            let found = tree.verify(&index, Duration::ZERO, &CancelToken::default());
            // A second name that came and went changes the status of a file.
            let is_reported = *changes == Changes::KeptFiles;
            assert!(!is_reported || found.unreported.is_empty(), "{found:?}");
        }
        Question::random(random).compare(work, &index, tree.as_ref(), answered);
    }
}

#[test]
fn searches_by_status_answer_what_a_scan_answers() {
    let answered = ask(11, Names::Walked);
    assert!(answered.walked > queries() / 2);
}

#[test]
fn searches_of_watched_files_answer_what_a_scan_answers() {
    let answered = ask(12, Names::Watched);
    assert!(answered.watched > queries() / 4, "{}", answered.watched);
}

/// How many lines hold a text, by the tree.
fn hits_by_tree(work: &Indexed, tree: &WatchedTree, text: &str) -> u64 {
    let dir = work.roots.open_dir(".").unwrap();
    let walk = dir.walk_options(&work.roots).unwrap();
    let pattern = ContentPattern::new(text, PatternSyntax::Literal, Case::Sensitive).unwrap();
    let filter = ContentFilter::new(work.index(), &pattern, &dir.fd).unwrap();
    let filter = Arc::new(filter.unwrap());
    let options = ContentOptions::default();
    let cancel = CancelToken::default();
    let filter = Some(&filter);
    let found =
        search_content_watched(&dir.fd, tree, &pattern, &walk, &options, filter, &cancel).unwrap();
    found.unwrap().total_hits
}

/// A workspace with one file that the index and the tree know.
fn known_file(salt: u64) -> (Indexed, PathBuf, WatchedTree) {
    let work = Indexed::new(&mut Random::new(salt));
    let file = work.root().join("src/known.rs");
    fs::write(&file, "before\n").unwrap();
    let_files_settle(&work.root());
    work.update();
    let tree = work.watch();
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 0);
    (work, file, tree)
}

#[test]
fn a_change_through_another_watched_name_is_seen() {
    let (work, file, tree) = known_file(13);
    let other = work.root().join("src/other.rs");
    for round in 0..4 {
        // The second name is there when it is first looked at, or gone already.
        fs::hard_link(&file, &other).unwrap();
        if round % 2 == 0 {
            assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 0, "{round}");
        }
        fs::write(&other, "now unheard of\n").unwrap();
        if round < 2 {
            assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 2, "{round}");
        }
        fs::remove_file(&other).unwrap();
        assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1, "{round}");
        fs::write(&file, "before\n").unwrap();
        let_files_settle(&work.root());
        work.update();
        assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 0, "{round}");
    }
}

#[test]
fn a_change_without_an_event_is_seen_once_files_are_verified() {
    let (work, file, tree) = known_file(14);
    let verify = || {
        let cancel = CancelToken::default();
        tree.verify(&work.index(), Duration::ZERO, &cancel)
            .unreported
    };
    assert!(verify().is_empty());
    let outside = work.base.path().join("other");
    fs::hard_link(&file, &outside).unwrap();
    fs::write(&outside, "now unheard of\n").unwrap();
    // What this test is about: the kernel reports nothing for the watched name.
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 0);
    assert_eq!(verify(), [b"src/known.rs"]);
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1);
    // From now on its status is compared by every search, also when it has one name and is indexed.
    fs::remove_file(&outside).unwrap();
    fs::write(&file, "before\n").unwrap();
    let_files_settle(&work.root());
    work.update();
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 0);
    fs::hard_link(&file, &outside).unwrap();
    fs::write(&outside, "now unheard of\n").unwrap();
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1);
    assert!(verify().is_empty());
}

#[test]
fn a_tree_whose_events_overflow_answers_no_more() {
    let (work, file, tree) = known_file(15);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // Two files by turns, since the same event twice counts as one.
    let other = work.root().join("src/main.c");
    fs::write(&other, "").unwrap();
    for _ in 0..limit / 2 + 1 {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::write(&file, "now unheard of\n").unwrap();
    let question = Question {
        start: ".",
        glob: None,
        asked: Asked::Content(
            "unheard of".to_owned(),
            PatternSyntax::Literal,
            Case::Sensitive,
            ContentOptions::default(),
        ),
    };
    let (found, is_by_tree) = question.ask(&work, &work.index(), Some(&tree)).unwrap();
    assert!(!is_by_tree && tree.is_lost());
    assert_eq!(found, question.scan(&work));
}

#[test]
fn a_tree_stays_when_the_attributes_of_the_workspace_are_set() {
    let (work, file, tree) = known_file(17);
    let rights = fs::metadata(work.root()).unwrap().permissions();
    fs::set_permissions(work.root(), rights).unwrap();
    fs::write(&file, "now unheard of\n").unwrap();
    assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1);
    assert!(!tree.is_lost());
}

#[test]
fn what_is_known_follows_the_segments_of_the_index() {
    let (work, file, tree) = known_file(16);
    // Each round adds a segment; at twelve the small ones are merged.
    for round in 0..30 {
        let text = format!("round {round} unheard of\n");
        fs::write(&file, text).unwrap();
        assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1);
        let_files_settle(&work.root());
        work.update();
        assert_eq!(hits_by_tree(&work, &tree, "unheard of"), 1);
        assert_eq!(hits_by_tree(&work, &tree, &format!("round {round} ")), 1);
        assert_eq!(
            hits_by_tree(&work, &tree, &format!("round {} ", round + 1)),
            0
        );
    }
}
