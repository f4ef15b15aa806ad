use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use llmc_host::CancelToken;
use llmc_index::{Error, Index, IndexState, SearchScope};

use crate::work::Work;

const TWO: &str = "//- a.rs
pub fn alpha_wolf() -> u8 {
    1
}
//- b.rs
pub fn beta_carotene() -> u8 {
    2
}
";

#[test]
fn only_what_changed_is_read_again() {
    let work = Work::new(TWO);
    let first = work.update();
    assert_eq!((first.files, first.changed, first.removed), (2, 2, 0));
    let second = work.update();
    assert_eq!((second.files, second.changed, second.removed), (2, 0, 0));
    work.write("b.rs", "pub fn gamma_ray() -> u8 {\n    3\n}\n");
    let third = work.update();
    assert_eq!((third.changed, third.removed), (1, 0));
    assert_eq!(work.found("gamma_ray", SearchScope::Repo), ["b.rs#L1-L3"]);
    assert!(work.found("beta_carotene", SearchScope::Repo).is_empty());
}

#[test]
fn renamed_deleted_emptied_and_copied_files() {
    let work = Work::new(TWO);
    work.update();
    fs::rename(work.path("a.rs"), work.path("c.rs")).unwrap();
    work.update();
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["c.rs#L1-L3"]);
    fs::copy(work.path("c.rs"), work.path("d.rs")).unwrap();
    work.update();
    fs::remove_file(work.path("c.rs")).unwrap();
    work.update();
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["d.rs#L1-L3"]);
    work.write("d.rs", "");
    work.update();
    assert!(work.found("alpha_wolf", SearchScope::Repo).is_empty());
    fs::remove_file(work.path("b.rs")).unwrap();
    let last = work.update();
    assert_eq!(last.removed, 1);
    assert!(work.found("beta_carotene", SearchScope::Repo).is_empty());
}

#[test]
fn an_answer_follows_the_file_without_an_update() {
    let work = Work::new(TWO);
    work.update();
    let moved = format!(
        "// one\n// two\n\nuse x;\n\n{}",
        fs::read_to_string(work.path("a.rs")).unwrap()
    );
    work.write("a.rs", &moved);
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["a.rs#L6-L8"]);
    work.write("a.rs", "pub fn alpha_wolf_renamed() {}\n");
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["a.rs#L1-L1"]);
    fs::remove_file(work.path("a.rs")).unwrap();
    assert!(work.found("alpha_wolf", SearchScope::Repo).is_empty());
}

#[test]
fn single_files() {
    let work = Work::new(TWO);
    work.update();
    work.write("a.rs", "pub fn delta_force() {}\n");
    fs::remove_file(work.path("b.rs")).unwrap();
    let paths = ["a.rs", "b.rs", "unknown.rs"].map(str::to_owned);
    let done = work.index.update_files(&work.roots, &paths).unwrap();
    assert_eq!((done.changed, done.removed), (1, 1));
    assert_eq!(work.found("delta_force", SearchScope::Repo), ["a.rs#L1-L1"]);
}

#[test]
fn many_small_updates_are_tidied() {
    let work = Work::new(TWO);
    work.update();
    let pieces = || {
        let files = fs::read_dir(work.index_dir().join("text")).unwrap();
        let names = files.map(|file| file.unwrap().path());
        names
            .filter(|path| path.extension().is_some_and(|end| end == "idx"))
            .count()
    };
    let other = Index::at(&work.index_dir());
    for nth in 0..12 {
        work.write("a.rs", &format!("pub fn version_{nth}() {{}}\n"));
        // Now and then another process writes in between.
        let writer = if nth % 5 == 4 { &other } else { &work.index };
        let done = writer.update_files(&work.roots, &["a.rs".to_owned()]);
        assert_eq!(done.unwrap().changed, 1);
        let name = format!("version_{nth}");
        assert_eq!(work.found(&name, SearchScope::Repo), ["a.rs#L1-L1"]);
    }
    work.write("b.rs", "pub fn later() {}\n");
    let done = work.index.update_files(&work.roots, &["b.rs".to_owned()]);
    assert_eq!(done.unwrap().changed, 1);
    work.index.tidy().unwrap();
    assert!(pieces() < 4, "{}", pieces());
    assert_eq!(work.found("version_11", SearchScope::Repo), ["a.rs#L1-L1"]);
    assert_eq!(work.found("later", SearchScope::Repo), ["b.rs#L1-L1"]);
    let done = work.update();
    assert_eq!((done.changed, done.removed), (0, 0));
}

#[test]
fn strange_files_are_passed_over() {
    let work = Work::new(TWO);
    fs::write(work.path("binary.rs"), b"fn binary_blob() {}\0").unwrap();
    fs::write(
        work.path("latin.rs"),
        b"// caf\xe9\nfn latin_quarter() {}\n",
    )
    .unwrap();
    let sparse = fs::File::create(work.path("huge.rs")).unwrap();
    sparse.set_len(500 << 20).unwrap();
    work.write("bundle.js", &"function minified_one(){};".repeat(20_000));
    symlink("/etc/passwd", work.path("out.rs")).unwrap();
    symlink(".", work.path("loop")).unwrap();
    work.write("secret.rs", "fn no_permission() {}\n");
    fs::set_permissions(work.path("secret.rs"), fs::Permissions::from_mode(0o000)).unwrap();
    work.write(".gitignore", "ignored/\n");
    work.write("ignored/x.rs", "fn ignored_one() {}\n");
    work.update();
    let passed = work.index.stats().unwrap().passed;
    assert!(passed.contains(&("too large", 1)), "{passed:?}");
    assert!(passed.contains(&("minified", 1)), "{passed:?}");
    assert!(work.found("binary_blob", SearchScope::Repo).is_empty());
    assert!(work.found("ignored_one", SearchScope::Repo).is_empty());
    assert!(
        work.found("root nologin passwd", SearchScope::Repo)
            .is_empty()
    );
    let answer = work.index.search(
        &work.roots,
        &llmc_index::SearchRequest {
            query: "latin_quarter",
            scope: SearchScope::Repo,
            k: 1,
            budget: 100,
        },
        &CancelToken::default(),
    );
    assert!(answer.unwrap().snippets[0].text.contains("latin_quarter"));
}

#[test]
fn damage_of_any_part_ends_in_a_new_index() {
    for (part, text) in [
        (
            "catalog.db",
            "this is no database at all, but it is long enough to be looked at",
        ),
        ("text/meta.json", "{}"),
        ("text/meta.json", ""),
    ] {
        let work = Work::new(TWO);
        work.update();
        fs::write(work.index_dir().join(part), text).unwrap();
        let index = Index::at(&work.index_dir());
        let work = Work { index, ..work };
        assert_eq!(
            work.found("alpha_wolf", SearchScope::Repo),
            ["a.rs#L1-L3"],
            "{part}"
        );
        work.update();
        assert_eq!(work.index.state(), IndexState::Ready, "{part}");
        assert_eq!(
            work.found("alpha_wolf", SearchScope::Repo),
            ["a.rs#L1-L3"],
            "{part}"
        );
    }
    let work = Work::new(TWO);
    work.update();
    fs::remove_dir_all(work.index_dir().join("text")).unwrap();
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["a.rs#L1-L3"]);
    work.update();
    assert_eq!(work.index.state(), IndexState::Ready);
}

#[test]
fn every_cut_and_scrambled_part_is_survived() {
    let parts = |work: &Work| {
        let text = fs::read_dir(work.index_dir().join("text")).unwrap();
        let text = text.map(|file| file.unwrap().path());
        let mut files: Vec<_> = text.chain([work.index_dir().join("catalog.db")]).collect();
        files.sort_by_key(|path| (path.extension().map(ToOwned::to_owned), path.clone()));
        files
    };
    let model = Work::new(TWO);
    model.update();
    for nth in 0..parts(&model).len() {
        for damage in ["scrambled", "cut", "one bit flipped"] {
            let work = Work::new(TWO);
            work.update();
            let file = &parts(&work)[nth];
            let mut bad = fs::read(file).unwrap();
            let middle = bad.len() / 2;
            match damage {
                "scrambled" => bad.iter_mut().for_each(|byte| *byte ^= 0x5a),
                "cut" => bad.truncate(middle),
                _ => bad
                    .iter_mut()
                    .skip(middle)
                    .take(1)
                    .for_each(|byte| *byte ^= 4),
            }
            fs::write(file, bad).unwrap();
            let index = Index::at(&work.index_dir());
            let work = Work { index, ..work };
            // Whatever it finds is checked against the files.
            work.ask("alpha_wolf", SearchScope::Repo);
            work.update();
            assert_eq!(
                work.found("alpha_wolf", SearchScope::Repo),
                ["a.rs#L1-L3"],
                "{file:?} {damage}"
            );
        }
    }
}

#[test]
fn a_place_that_cannot_be_written_is_said_and_searched_live() {
    let work = Work::new(TWO);
    fs::write(work.index_dir(), "a file where the folder should be").unwrap();
    let failed = work.index.update(&work.roots, &CancelToken::default());
    assert!(matches!(failed, Err(Error::Unwritable(_))), "{failed:?}");
    let answer = work.ask("alpha_wolf", SearchScope::Repo);
    assert_eq!(answer.index, IndexState::None);
    assert_eq!(answer.snippets[0].src(), "a.rs#L1-L3");
}

#[test]
fn one_writer_at_a_time_and_readers_see_its_work() {
    let work = Work::new(TWO);
    work.update();
    let other = Index::at(&work.index_dir());
    assert_eq!(other.state(), IndexState::Ready);
    work.write("c.rs", "pub fn omega_point() {}\n");
    other.update(&work.roots, &CancelToken::default()).unwrap();
    assert_eq!(work.found("omega_point", SearchScope::Repo), ["c.rs#L1-L1"]);
    let lock = fs::File::options()
        .write(true)
        .open(work.index_dir().join("writer.lock"))
        .unwrap();
    lock.lock().unwrap();
    let busy = work.index.update(&work.roots, &CancelToken::default());
    assert!(matches!(busy, Err(Error::Busy)), "{busy:?}");
}

#[test]
fn a_stopped_update_keeps_its_steps_and_is_taken_up() {
    let work = Work::new(TWO);
    let stop = CancelToken::default();
    stop.cancel();
    assert!(work.index.update(&work.roots, &stop).is_err());
    assert_ne!(work.index.state(), IndexState::Ready);
    work.update();
    assert_eq!(work.index.state(), IndexState::Ready);
}

#[test]
fn an_index_of_another_version_is_built_again() {
    for version in [6, 1000] {
        let work = Work::new(TWO);
        work.update();
        let catalog = rusqlite::Connection::open(work.index_dir().join("catalog.db")).unwrap();
        catalog
            .pragma_update(None, "user_version", version)
            .unwrap();
        drop(catalog);
        let index = Index::at(&work.index_dir());
        let work = Work { index, ..work };
        let answer = work.ask("alpha_wolf", SearchScope::Repo);
        assert_eq!(answer.index, IndexState::None, "{version}");
        assert_eq!(answer.snippets[0].src(), "a.rs#L1-L3", "{version}");
        assert_eq!(work.update().changed, 2, "{version}");
        let answer = work.ask("alpha_wolf", SearchScope::Repo);
        assert_eq!(answer.index, IndexState::Ready, "{version}");
    }
}

#[test]
fn a_switched_branch_comes_out_right() {
    let work = Work::new(TWO);
    work.update();
    // What a checkout does: files gone, new, renamed and changed, all at once.
    fs::remove_file(work.path("a.rs")).unwrap();
    fs::rename(work.path("b.rs"), work.path("moved.rs")).unwrap();
    work.write("c/new.rs", "pub fn gamma_ray() {}\n");
    work.update();
    assert!(work.found("alpha_wolf", SearchScope::Repo).is_empty());
    assert_eq!(
        work.found("beta_carotene", SearchScope::Repo),
        ["moved.rs#L1-L3"]
    );
    assert_eq!(
        work.found("gamma_ray", SearchScope::Repo),
        ["c/new.rs#L1-L1"]
    );
    fs::remove_dir_all(work.path("c")).unwrap();
    fs::rename(work.path("moved.rs"), work.path("b.rs")).unwrap();
    work.write("a.rs", "pub fn alpha_wolf() -> u8 {\n    1\n}\n");
    work.update();
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo), ["a.rs#L1-L3"]);
    assert_eq!(
        work.found("beta_carotene", SearchScope::Repo),
        ["b.rs#L1-L3"]
    );
    assert!(work.found("gamma_ray", SearchScope::Repo).is_empty());
}

#[test]
fn a_check_keeps_a_writer_from_deleting_what_it_reads() {
    let work = Work::new(TWO);
    work.update();
    // As a writer does that looks which segments are not needed any more.
    let deleting = fs::File::open(work.index_dir().join("text/.tantivy-meta.lock")).unwrap();
    deleting.lock().unwrap();
    let (sender, checked) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(work.index.check().unwrap()).unwrap());
        let early = checked.recv_timeout(std::time::Duration::from_millis(300));
        assert!(early.is_err(), "checked without the lock: {early:?}");
        deleting.unlock().unwrap();
        assert!(checked.recv().unwrap().is_empty());
    });
}
