//! The live trials of `llmc doctor`: what they find must be so, and they must leave no trace.

use std::path::{Path, PathBuf};

use llmc_exec::{Confinement, Protection, Runner, Trial, Verdict, trials};

use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("trials_hold_where_the_level_says_so", confined);
    add("trials_get_out_where_nothing_holds_them", free);
    add("trials_in_a_bare_workspace_leave_it_bare", bare);
    add("trials_need_a_place_outside_the_roots", everywhere);
}

fn tried(world: &World, runner: &Runner) -> Vec<Trial> {
    let before = listing(&world.base);
    let cwd = world.roots();
    let found = trials(runner, &cwd.open_dir(".").unwrap());
    let mut after = listing(&world.base);
    // The place where planted files are moved to may stay, empty.
    after.retain(|path| !path.ends_with(".llmc/quarantine") || before.contains(path));
    assert_eq!(after, before, "{found:?}");
    assert_eq!(found.len(), 11, "{found:?}");
    found
}

/// Every path below, with the size of files.
fn listing(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => next.push(entry.path()),
                false => {
                    let size = entry.metadata().unwrap().len();
                    found.push(entry.path().with_added_extension(size.to_string()));
                }
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn confined() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let level = *runner.level();
    for trial in tried(&world, &runner) {
        match &trial.verdict {
            Verdict::Held(layer) => assert!(!layer.is_empty(), "{trial:?}"),
            Verdict::Open(why) => assert!(!level.missing().is_empty(), "{trial:?}: {why}"),
            Verdict::Escaped | Verdict::Untried(_) => panic!("{trial:?} under {level}"),
        }
        // Full confinement leaves nothing open, and every layer is one that the level speaks of.
        if level.missing().is_empty() {
            let Verdict::Held(layer) = &trial.verdict else {
                panic!("{trial:?} under {level}")
            };
            assert!(level.to_string().contains(layer.as_str()), "{trial:?}");
        }
    }
}

fn free() {
    let world = World::new();
    for trial in tried(&world, &world.runner(Confinement::Off)) {
        assert!(matches!(trial.verdict, Verdict::Open(_)), "{trial:?}");
    }
    // With the network allowed, and only the network.
    let mut settings = world.settings(Confinement::Auto);
    settings.network = true;
    let runner = Runner::open(settings).unwrap();
    for trial in tried(&world, &runner) {
        let net = trial.what.contains("TCP") || trial.what.contains("UDP");
        match (&trial.verdict, net) {
            (Verdict::Open(why), true) => {
                assert_eq!(why, "allow_outbound_network is true", "{trial:?}");
            }
            (Verdict::Held(_), false) => {}
            (Verdict::Open(_), false) if !runner.level().missing().is_empty() => {}
            _ => panic!("{trial:?}"),
        }
    }
}

fn bare() {
    let world = World::new();
    for name in ["llmc.toml", ".git", "lib"] {
        let path = world.workspace.join(name);
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    let runner = world.runner(Confinement::Auto);
    let found = tried(&world, &runner);
    assert_ne!(runner.level().protected, Protection::None);
    for trial in found.iter().rev().take(2) {
        let held = Verdict::Held("taken away after the run".to_owned());
        assert_eq!(trial.verdict, held, "{trial:?}");
    }
}

fn everywhere() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.extra_write = vec!["/var/tmp".into(), world.base.clone()];
    settings
        .extra_write
        .extend(std::env::var_os("HOME").map(PathBuf::from));
    settings.extra_write.retain(|path| path.exists());
    settings.state_dir = None;
    let runner = Runner::open(settings).unwrap();
    let found = tried(&world, &runner);
    for (trial, why) in [(0, "outside"), (1, "outside"), (4, "socket"), (8, "state")] {
        let Verdict::Untried(said) = &found[trial].verdict else {
            panic!("{:?}", found[trial])
        };
        assert!(said.contains(why), "{said}");
    }
}
