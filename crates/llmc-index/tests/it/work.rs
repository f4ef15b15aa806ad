//! A workspace from one string, with an index of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use llmc_host::{CancelToken, PathRules, Roots};
use llmc_index::{Index, SearchAnswer, SearchRequest, SearchScope, UpdateReport};

/// Small functions for questions in words of their own.
pub(crate) const QUESTION_FILES: &str = "//- src/tree.rs
pub fn rmtree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(path)
}
//- src/sort.rs
pub fn quicksort(items: &mut [u32]) {
    if let Some((pivot, rest)) = items.split_first_mut() {
        rest.iter_mut().for_each(|item| std::mem::swap(item, pivot));
    }
}
//- src/session.rs
pub fn keep_cookies(response: &Response, jar: &mut Jar) {
    for cookie in response.headers(\"set-cookie\") {
        jar.store(cookie);
    }
}

pub fn follow_redirect(request: &Request, response: &Response) -> Request {
    Request::get(response.headers(\"location\")).with_jar(request.jar())
}
//- src/render.rs
pub fn render(page: &Page) -> String {
    page.to_string()
}

pub fn describe_environment(version: &str, platform: &str) -> String {
    format!(\"version {version}, platform {platform}, reproduce the expected behavior\")
}
//- src/colors.rs
pub fn terminal_colors(page: &Page) -> Vec<Color> {
    let colors = page.colors_when_terminal_has(256);
    colors.iter().map(Color::nearest).collect()
}
";

pub(crate) struct Work {
    pub(crate) base: tempfile::TempDir,
    pub(crate) roots: Roots,
    pub(crate) index: Index,
}

impl Work {
    /// Makes the files of a fixture: each begins with a line `//- path`.
    pub(crate) fn new(fixture: &str) -> Work {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("w");
        fs::create_dir(&root).unwrap();
        let rules = Arc::new(PathRules::new(None, Vec::new()));
        let roots = Roots::open(&root, std::slice::from_ref(&root), rules).unwrap();
        let index = Index::at(&base.path().join("index"));
        let work = Work { base, roots, index };
        let mut file: Option<(String, String)> = None;
        for line in fixture.split_inclusive('\n') {
            if let Some(path) = line.strip_prefix("//- ") {
                if let Some((path, text)) = file.take() {
                    work.write(&path, &text);
                }
                file = Some((path.trim().to_owned(), String::new()));
            } else if let Some((_, text)) = &mut file {
                text.push_str(line);
            }
        }
        if let Some((path, text)) = file {
            work.write(&path, &text);
        }
        work
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.base.path().join("w").join(path)
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.base.path().join("index")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn update(&self) -> UpdateReport {
        self.index
            .update(&self.roots, &CancelToken::default())
            .unwrap()
    }

    pub(crate) fn ask(&self, query: &str, scope: SearchScope) -> SearchAnswer {
        self.ask_for(query, scope, 5, 2000)
    }

    pub(crate) fn ask_for(
        &self,
        query: &str,
        scope: SearchScope,
        k: usize,
        budget: usize,
    ) -> SearchAnswer {
        let request = SearchRequest {
            query,
            scope,
            k,
            budget,
        };
        let answer = self
            .index
            .search(&self.roots, &request, &CancelToken::default())
            .unwrap();
        self.check(&answer, budget);
        answer
    }

    /// Every text is what the file has at those lines, and all of them fit the budget.
    pub(crate) fn check(&self, answer: &SearchAnswer, budget: usize) {
        let mut tokens = 0;
        for snippet in &answer.snippets {
            let text = fs::read_to_string(self.path(&snippet.path)).unwrap();
            let lines: Vec<&str> = text
                .split_inclusive('\n')
                .skip(snippet.first as usize - 1)
                .take((snippet.last - snippet.first + 1) as usize)
                .collect();
            let lines = lines.concat();
            assert_eq!(
                snippet.text,
                lines.strip_suffix('\n').unwrap_or(&lines),
                "{}",
                snippet.src()
            );
            assert!((0.0..=1.0).contains(&snippet.score), "{snippet:?}");
            tokens += llmc_tokens::count(&snippet.text);
        }
        assert!(tokens <= budget, "{tokens} of {budget}");
        let scores: Vec<f32> = answer.snippets.iter().map(|one| one.score).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    }

    /// The sources of an answer's snippets.
    pub(crate) fn found(&self, query: &str, scope: SearchScope) -> Vec<String> {
        let answer = self.ask(query, scope);
        answer
            .snippets
            .iter()
            .map(|snippet| snippet.src())
            .collect()
    }
}
