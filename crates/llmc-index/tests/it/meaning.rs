//! Questions in English that share no word with the code.

use llmc_index::SearchScope;

use crate::work::{QUESTION_FILES, Work};

#[test]
fn units_are_found_by_what_they_mean() {
    let mut work = Work::new(QUESTION_FILES);
    work.update();
    let question = "delete a folder with everything inside";
    let answer = work.ask(question, SearchScope::Repo);
    assert_eq!(answer.snippets[0].src(), "src/tree.rs#L1-L6");
    let reasons = &answer.snippets[0].reasons;
    let is_near = |(name, value, _): &(&str, f32, f32)| *name == "near" && *value != 0.0;
    assert!(reasons.iter().any(is_near), "{reasons:?}");
    // Without vectors there is no word in common.
    work.index = llmc_index::Index::at(&work.index_dir()).without_word_vectors();
    let found = work.found(question, SearchScope::Repo);
    assert!(
        !found.contains(&"src/tree.rs#L1-L6".to_owned()),
        "{found:?}"
    );
}

#[test]
fn scopes_hold_for_vectors_too() {
    let work = Work::new(&format!(
        "{QUESTION_FILES}//- docs/guide.md\n# Removing\n\nHow to remove a directory tree.\n"
    ));
    work.update();
    let question = "delete a folder with everything inside";
    let repo = work.found(question, SearchScope::Repo);
    assert!(repo.iter().all(|src| !src.starts_with("docs/")), "{repo:?}");
    let docs = work.found(question, SearchScope::Docs);
    assert_eq!(docs, ["docs/guide.md#L1-L3"]);
}
