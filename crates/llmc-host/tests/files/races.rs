//! Concurrent writers, and directories that are swapped for links while calls run.

use super::*;

thread_local! {
    static RACE: std::cell::RefCell<Option<(Workspace, PathBuf)>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn many_writers_lose_nothing() {
    let f = Fixture::new();
    f.write("shared", "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let f = &f;
            scope.spawn(move || {
                for turn in 0..8 {
                    loop {
                        match f.append("shared", &format!("{thread}-{turn}\n")) {
                            Ok(_) => break,
                            Err(Error::Busy { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let mut lines: Vec<String> = fs::read_to_string(f.path("shared"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 16 * 8);
    f.assert_no_litter();
}

/// A directory and a link to the outside change places while files are reached through the name.
fn under_swap_race(operations: usize, operation: impl Fn(usize) + Sync) -> Fixture {
    let f = Fixture::new();
    fs::create_dir(f.path("d")).unwrap();
    fs::write(f.path("d/canary"), "inside").unwrap();
    symlink("../outside", f.path("swap")).unwrap();
    let done = AtomicBool::new(false);
    let exchange = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let cwd = rustix::fs::CWD;
        let _ = rustix::fs::renameat_with(cwd, f.path("d"), cwd, f.path("swap"), flags);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange();
            }
        });
        RACE.with(|cell| *cell.borrow_mut() = Some((f.ws.clone(), f.path(""))));
        for turn in 0..operations {
            operation(turn);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        fs::read_to_string(f.path("../outside/canary")).unwrap(),
        "canary"
    );
    f
}

fn racing<T>(run: impl FnOnce(&Workspace, &Path) -> T) -> T {
    RACE.with(|cell| {
        let cell = cell.borrow();
        let (ws, path) = cell.as_ref().unwrap();
        run(ws, path)
    })
}

#[test]
fn swapping_a_directory_for_a_link_never_leads_outside() {
    let (leaks, reads) = (
        AtomicBool::new(false),
        std::sync::atomic::AtomicUsize::new(0),
    );
    let f = under_swap_race(200_000, |turn| {
        racing(|ws, _| match turn % 20 {
            0 => drop(ws.write(
                "d/new",
                b"x",
                WriteMode::Rewrite,
                None,
                "t",
                &CancelToken::default(),
            )),
            1 => drop(ws.delete(
                "d/canary",
                DeleteScope::Recursive,
                "t",
                &CancelToken::default(),
            )),
            2 => drop(ws.write(
                "d/canary",
                b"inside",
                WriteMode::Rewrite,
                None,
                "t",
                &CancelToken::default(),
            )),
            3 => drop(ws.make_dirs("d/sub", ExistingDir::Accept)),
            _ => match ws
                .roots
                .read_lines("d/canary", 0, 5, &CancelToken::default())
            {
                Ok(slice) if slice.text == "canary" => leaks.store(true, Ordering::Relaxed),
                Ok(_) => drop(reads.fetch_add(1, Ordering::Relaxed)),
                Err(_) => {}
            },
        });
    });
    assert!(!leaks.load(Ordering::Relaxed));
    assert!(
        reads.load(Ordering::Relaxed) > 1_000,
        "the race must let honest reads through too"
    );
    let outside: Vec<_> = fs::read_dir(f.path("../outside"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(outside, ["canary"]);
}

#[test]
fn the_same_race_leaks_from_a_naive_check_then_open() {
    let leaks = std::sync::atomic::AtomicUsize::new(0);
    under_swap_race(200_000, |_| {
        if leaks.load(Ordering::Relaxed) > 0 {
            return;
        }
        racing(|_, root| {
            let path = root.join("d/canary");
            if path
                .canonicalize()
                .is_ok_and(|resolved| resolved.starts_with(root))
                && fs::read_to_string(&path).is_ok_and(|text| text == "canary")
            {
                leaks.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    assert!(
        leaks.load(Ordering::Relaxed) > 0,
        "a harness that catches nothing proves nothing"
    );
}
