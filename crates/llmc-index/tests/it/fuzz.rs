//! Files change while questions are answered: no answer shows what was not in the file at those lines.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use llmc_host::CancelToken;
use llmc_index::{Error, Index, SearchRequest, SearchScope};

use crate::work::Work;

/// Questions asked at least, snippets that must have been seen, and questions asked at most.
const QUESTIONS: usize = 120;
const SHOWN: usize = 60;
const MAX_POLLS: usize = 20_000;
const PATHS: &[&str] = &["src/a.rs", "src/b.py", "src/deep/c.js", "docs/d.md", "e.go"];

/// A small generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Some functions in the language of the path, with lines before them that move everything.
fn content(path: &str, numbers: &mut Numbers) -> String {
    let mut text = "\n".repeat(numbers.below(6));
    for _ in 0..numbers.below(5) {
        let (name, value) = (numbers.below(8), numbers.below(1000));
        text.push_str(&match path.rsplit('.').next().unwrap() {
            "rs" => format!("/// Finds the widget.\nfn widget_{name}() -> u32 {{\n    helper({value})\n}}\n\n"),
            "py" => format!("def widget_{name}():\n    \"\"\"Finds the widget.\"\"\"\n    return helper({value})\n\n"),
            "js" => format!("function widget_{name}() {{\n  return helper({value});\n}}\n"),
            "md" => format!("## widget_{name}\n\nThe helper gives {value}.\n\n"),
            _ => format!("func widget_{name}() int {{\n\treturn helper({value})\n}}\n"),
        });
    }
    text
}

/// Every content each file ever had, in order; the last one may be about to be written.
#[derive(Default)]
struct History(Mutex<HashMap<String, Vec<String>>>);

impl History {
    fn add(&self, path: &str, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(path.to_owned())
            .or_default()
            .push(text.to_owned());
    }

    fn counts(&self) -> HashMap<String, usize> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|(path, texts)| (path.clone(), texts.len()))
            .collect()
    }

    /// Whether one of the contents since `from` has this text at these lines.
    fn shows(&self, path: &str, from: usize, first: u32, last: u32, text: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The one before may still have been in place while the next was noted.
        all[path]
            .iter()
            .skip(from.saturating_sub(2))
            .any(|content| {
                let lines: Vec<&str> = content.split('\n').collect();
                let range = first as usize - 1..(last as usize).min(lines.len());
                lines
                    .get(range)
                    .is_some_and(|lines| lines.join("\n") == text)
            })
    }
}

#[test]
fn answers_hold_while_files_change() {
    let work = Work::new("//- keep.rs\nfn kept() {}\n");
    let history = History::default();
    let mut numbers = Numbers(7);
    for path in PATHS {
        let text = content(path, &mut numbers);
        history.add(path, &text);
        work.write(path, &text);
    }
    work.update();
    let done = AtomicBool::new(false);
    let mut shown = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(11);
            while !done.load(Ordering::Relaxed) {
                let path = PATHS[numbers.below(PATHS.len())];
                let place = work.path(path);
                match numbers.below(6) {
                    0 => {
                        let _ = fs::remove_file(&place);
                    }
                    1 => {
                        let other = PATHS[numbers.below(PATHS.len())];
                        if let Ok(text) = fs::read_to_string(&place) {
                            history.add(other, &text);
                            let _ = fs::rename(&place, work.path(other));
                        }
                    }
                    2 => {
                        history.add(path, "");
                        let _ = fs::write(&place, "");
                    }
                    _ => {
                        let text = content(path, &mut numbers);
                        history.add(path, &text);
                        // As editors do: a new file takes the name.
                        let new = work.path("new.tmp");
                        fs::write(&new, &text).unwrap();
                        fs::rename(&new, &place).unwrap();
                    }
                }
            }
        });
        scope.spawn(|| {
            let writer = Index::at(&work.index_dir());
            while !done.load(Ordering::Relaxed) {
                match writer.update(&work.roots, &CancelToken::default()) {
                    Ok(_) | Err(Error::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for nth in 0..MAX_POLLS {
            if nth >= QUESTIONS && shown >= SHOWN {
                break;
            }
            let before = history.counts();
            let query = format!("widget_{} helper", nth % 8);
            let request = SearchRequest {
                query: &query,
                scope: SearchScope::Both,
                k: 6,
                budget: 400,
            };
            let answer = work
                .index
                .search(&work.roots, &request, &CancelToken::default());
            let answer = answer.unwrap_or_else(|error| {
                done.store(true, Ordering::Relaxed);
                panic!("{error}")
            });
            for snippet in &answer.snippets {
                let from = before.get(&snippet.path).copied().unwrap_or(0);
                let holds = snippet.path == "new.tmp"
                    || snippet.path == "keep.rs"
                    || history.shows(
                        &snippet.path,
                        from,
                        snippet.first,
                        snippet.last,
                        &snippet.text,
                    );
                if !holds {
                    done.store(true, Ordering::Relaxed);
                    panic!("{query}: {} never showed {:?}", snippet.src(), snippet.text);
                }
                shown += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(
        shown >= SHOWN,
        "{shown} snippets are too few to prove anything"
    );
    work.update();
    for path in PATHS.iter().filter(|path| work.path(path).exists()) {
        let text = fs::read_to_string(work.path(path)).unwrap();
        let Some(name) = text.split("widget_").nth(1).and_then(|rest| rest.get(..1)) else {
            continue;
        };
        let found = work.ask_for(&format!("widget_{name}"), SearchScope::Both, 50, 5000);
        assert!(
            found.snippets.iter().any(|one| one.path == *path),
            "{path} lost"
        );
    }
}
