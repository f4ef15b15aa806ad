//! A workspace from one string, with an index of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use llmc_host::{CancelToken, PathRules, Roots};
use llmc_index::{Index, SearchAnswer, SearchRequest, SearchScope, UpdateReport};

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
