use llmc_tokens::count;
use proptest::prelude::*;

use super::*;

fn paths(list: &[&str]) -> Vec<FoundPath> {
    list.iter()
        .map(|path| FoundPath {
            path: (*path).to_owned(),
            ..FoundPath::default()
        })
        .collect()
}

#[test]
fn the_nearest_name_first() {
    let mut found = FoundPaths {
        paths: paths(&[
            "a/b/c/store.rs",
            "lib/datastore.rs",
            "src/store/mod.rs",
            "store.rs",
            "store_old.rs",
            "vendor/store.rs",
            "web/store",
            "x/stores_b.rs",
            "x/stores_a.rs",
        ]),
        total: 9,
        pattern: "store".into(),
        ..FoundPaths::default()
    };
    found.paths[7].modified = Some(20);
    found.paths[8].modified = Some(10);
    let answer = condense_find(&found, 1000);
    assert_eq!(
        answer.body.lines().collect::<Vec<_>>(),
        [
            "web/store",
            "store.rs",
            "a/b/c/store.rs",
            "store_old.rs",
            "x/stores_b.rs",
            "x/stores_a.rs",
            "lib/datastore.rs",
            "src/store/mod.rs",
            "vendor/store.rs",
        ]
    );
    assert_eq!((answer.shown, answer.truncated), (9, false));
}

#[test]
fn what_does_not_fit_is_counted_by_directory() {
    let list: Vec<_> = (0..900)
        .map(|n| format!("crates/part{}/src/deep/module_{n:03}.rs", n % 9))
        .collect();
    let list: Vec<_> = list.iter().map(String::as_str).collect();
    let found = FoundPaths {
        paths: paths(&list),
        total: 1000,
        files_searched: 5000,
        skipped: vec![(3, "ignored")],
        pattern: "*.rs".into(),
    };
    let answer = condense_find(&found, 420);
    assert!(answer.truncated && answer.shown > 5);
    let more: u64 = answer
        .body
        .lines()
        .filter_map(|line| {
            line.split_once(" (")?
                .1
                .strip_suffix(" more)")?
                .parse::<u64>()
                .ok()
        })
        .sum();
    assert_eq!(answer.shown + more + 100, 1000, "{}", answer.body);
    assert!(
        answer.body.contains("crates/part3/src/ (100 more)"),
        "{}",
        answer.body
    );
    assert_eq!(
        answer.breadcrumbs[1],
        "5000 files searched, 3 skipped: 3 ignored"
    );
    assert_eq!(answer.hot_zone.as_deref(), Some("crates/"));
}

#[test]
fn what_directories_do_not_need_is_for_paths() {
    let list: Vec<_> = (0..400).map(|n| format!("many/file_{n:03}.txt")).collect();
    let list: Vec<_> = list.iter().map(String::as_str).collect();
    let found = FoundPaths {
        paths: paths(&list),
        total: 400,
        pattern: "*".into(),
        ..FoundPaths::default()
    };
    let answer = condense_find(&found, 500);
    let tokens = count(&answer.body);
    assert!(
        (500 - REMARK_TOKENS - 20..=500).contains(&tokens),
        "{tokens}: {}",
        answer.body
    );
    assert_eq!(answer.body.lines().count() as u64, answer.shown);
}

#[test]
fn nothing_found() {
    let found = FoundPaths {
        files_searched: 12,
        ..FoundPaths::default()
    };
    assert_eq!(
        condense_find(&found, 500).breadcrumbs,
        ["0 files found; 12 searched"]
    );
}

fn entry(name: &str, kind: ListedKind, size: u64) -> ListedEntry {
    ListedEntry {
        name: name.into(),
        kind,
        size: Some(size),
        modified: None,
    }
}

#[test]
fn a_small_directory_is_listed() {
    let entries = [
        entry("zed", ListedKind::Directory, 4096),
        entry("a.rs", ListedKind::File, 12_345),
        entry("link", ListedKind::Link, 7),
        entry("b.rs", ListedKind::File, 80),
    ];
    let answer = condense_ls(&entries, 4, 2, 500);
    assert_eq!(answer.body, "zed/\na.rs  12K\nb.rs  80\nlink@\n");
    assert_eq!(answer.breadcrumbs, ["2 hidden"]);
    assert_eq!(answer.totals.files, Some(4));
}

#[test]
fn a_large_directory_is_counted() {
    let mut entries: Vec<_> = (0..2000)
        .map(|n| entry(&format!("part{n:04}.rs"), ListedKind::File, n))
        .collect();
    entries.extend((0..30).map(|n| entry(&format!("dir{n}"), ListedKind::Directory, 0)));
    entries.push(entry("README.md", ListedKind::File, 900));
    entries[1500].modified = Some(99);
    let answer = condense_ls(&entries, 2031, 0, 400);
    assert!(
        answer.body.contains("dir7/\n") && answer.body.contains("README.md  900\n"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("part1500.rs"), "{}", answer.body);
    let more = 2031 - answer.shown;
    assert!(
        answer.breadcrumbs[0].starts_with(&format!("{more} more: ")),
        "{:?}",
        answer.breadcrumbs
    );
    assert!(
        answer.breadcrumbs[0].ends_with(" .rs"),
        "{:?}",
        answer.breadcrumbs
    );
}

#[test]
fn sizes_are_short() {
    for (bytes, expected) in [
        (0, "0"),
        (999, "999"),
        (1000, "1.0K"),
        (12_345, "12K"),
        (1_048_576, "1.0M"),
        (1_023_999, "1.0M"),
        (u64::MAX, "16E"),
    ] {
        assert_eq!(short_size(bytes), expected, "{bytes}");
    }
}

proptest! {
    #[test]
    fn accounts_for_everything_within_the_budget(
        list in prop::collection::vec(("\\PC{0,20}|[a-b]/[a-b]/[a-c]{1,3}\\.rs", prop::option::of(any::<i64>())), 0..80),
        more in 0..500_u64,
        pattern in "\\PC{0,6}|\\*\\.rs",
        budget in 150..1500_usize,
    ) {
        let paths: Vec<_> = list
            .iter()
            .map(|(path, modified)| FoundPath { path: path.clone(), size: None, modified: *modified })
            .collect();
        let total = paths.len() as u64 + more;
        let found = FoundPaths { paths, total, pattern, skipped: vec![(more, "binary")], files_searched: total };
        let answer = condense_find(&found, budget);
        prop_assert!(count(&answer.body) <= budget);
        prop_assert_eq!(answer.truncated, answer.shown < total);
        prop_assert_eq!(answer.totals.files, Some(total));

        let entries: Vec<_> = list
            .iter()
            .map(|(name, modified)| ListedEntry {
                name: name.clone(),
                kind: if name.len() % 3 == 0 { ListedKind::Directory } else { ListedKind::File },
                size: modified.map(i64::unsigned_abs),
                modified: *modified,
            })
            .collect();
        let answer = condense_ls(&entries, total, more, budget);
        prop_assert!(count(&answer.body) <= budget);
        prop_assert_eq!(answer.truncated, answer.shown < total);
        if answer.truncated {
            let start = format!("{} more", total - answer.shown);
            prop_assert!(answer.breadcrumbs[0].starts_with(&start));
        }
    }
}
