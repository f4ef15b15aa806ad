//! The live probes of `llmc doctor`: what they find must be so, and they must leave no trace.

use std::path::{Path, PathBuf};

use llmc_exec::{Confinement, Probe, ProbeResult, Protection, Runner, run_probes};

use crate::world::World;

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("probes_fail_where_the_level_promises_it", confined);
    add("probes_escape_without_confinement", free);
    add("trials_in_a_bare_workspace_leave_it_bare", bare);
    add("trials_need_a_place_outside_the_roots", everywhere);
}

/// Every probe but those of the home directory, of which these worlds have none; `home.rs` has the others.
fn tried(world: &World, runner: &Runner) -> Vec<Probe> {
    let before = listing(&world.base);
    let cwd = world.roots();
    let mut found = run_probes(runner, &cwd.open_dir(".").unwrap());
    let mut after = listing(&world.base);
    // The place where planted files are moved to may stay, empty.
    after.retain(|path| !path.ends_with(".llmc/quarantine") || before.contains(path));
    assert_eq!(after, before, "{found:?}");
    let of_root = usize::from(rustix::process::geteuid().is_root());
    assert_eq!(found.len(), 13 + of_root, "{found:?}");
    let is_of_others =
        |what: &str| what.contains("home directory") || what.contains("of another user");
    found.retain(|probe| !is_of_others(probe.what));
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
    for probe in tried(&world, &runner) {
        match &probe.result {
            ProbeResult::Held(layer) => assert!(!layer.is_empty(), "{probe:?}"),
            ProbeResult::Open(why) => assert!(!level.missing().is_empty(), "{probe:?}: {why}"),
            ProbeResult::Escaped | ProbeResult::Untried(_) => panic!("{probe:?} under {level}"),
        }
        // Full confinement leaves nothing open, and every layer is one that the level speaks of.
        if level.missing().is_empty() {
            let ProbeResult::Held(layer) = &probe.result else {
                panic!("{probe:?} under {level}")
            };
            assert!(level.to_string().contains(layer.as_str()), "{probe:?}");
        }
    }
}

fn free() {
    let world = World::new();
    for probe in tried(&world, &world.runner(Confinement::Off)) {
        assert!(matches!(probe.result, ProbeResult::Open(_)), "{probe:?}");
    }
    // With the network allowed, and only the network.
    let mut settings = world.settings(Confinement::Auto);
    settings.network = true;
    let runner = Runner::open(settings).unwrap();
    for probe in tried(&world, &runner) {
        let net = probe.what.contains("TCP") || probe.what.contains("UDP");
        match (&probe.result, net) {
            (ProbeResult::Open(why), true) => {
                assert_eq!(why, "allow_outbound_network is true", "{probe:?}");
            }
            (ProbeResult::Held(_), false) => {}
            (ProbeResult::Open(_), false) if !runner.level().missing().is_empty() => {}
            _ => panic!("{probe:?}"),
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
    for probe in found.iter().rev().take(2) {
        let held = ProbeResult::Held("taken away after the run".to_owned());
        assert_eq!(probe.result, held, "{probe:?}");
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
    for (probe, why) in [(0, "outside"), (1, "outside"), (4, "socket"), (8, "state")] {
        let ProbeResult::Untried(said) = &found[probe].result else {
            panic!("{:?}", found[probe])
        };
        assert!(said.contains(why), "{said}");
    }
}
