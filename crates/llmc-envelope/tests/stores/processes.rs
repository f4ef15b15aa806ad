//! Two processes on one file, and one that is killed. The test program starts itself again as the other process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use llmc_envelope::handles::{Draft, HandleId, HandleStore, Options};

use crate::noise;

const DIR: &str = "LLMC_TEST_STORE";
const COUNT: &str = "LLMC_TEST_COUNT";

fn open(dir: &Path) -> HandleStore {
    HandleStore::open(&dir.join("store"), Options::default()).unwrap()
}

fn start(test: &str, dir: &Path, count: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .env(DIR, dir)
        .env(COUNT, count.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test by itself: stores results and writes each id down once it is acknowledged.
#[test]
#[ignore = "the other process"]
fn other_process() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let count: usize = std::env::var(COUNT).unwrap().parse().unwrap();
    let store = open(dir);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(dir.join(format!("acked-{}", std::process::id())))
        .unwrap();
    for n in 0..count {
        let seed = u64::from(std::process::id()) << 20 | n as u64;
        let mut writer = store
            .writer(Draft::new("me", "te").with("seed", seed))
            .unwrap();
        writer.write_all(&noise(seed, 300_000)).unwrap();
        let id = writer.finish().unwrap();
        writeln!(log, "{id}").unwrap();
    }
}

fn acked(dir: &Path) -> Vec<HandleId> {
    fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_string_lossy().starts_with("acked-"))
        .flat_map(|e| {
            let text = fs::read_to_string(e.path()).unwrap();
            // The last line may be half written when its writer was killed.
            text.split_inclusive('\n')
                .filter_map(|l| l.strip_suffix('\n'))
                .map(|l| HandleId::parse(l).unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn check(store: &HandleStore, ids: &[HandleId]) {
    for id in ids {
        let seed = store.info("me", *id).unwrap().meta["seed"]
            .as_u64()
            .unwrap();
        let page = store.read("me", *id, 0, usize::MAX).unwrap();
        assert!(page.bytes == noise(seed, 300_000), "{id}");
    }
}

#[test]
fn several_processes_write_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    let mut others: Vec<_> = (0..3)
        .map(|_| start("processes::other_process", tmp.path(), 20))
        .collect();
    let store = open(tmp.path());
    for n in 0..20 {
        store
            .put(Draft::new("me", "te"), &noise(n, 50_000)[..])
            .unwrap();
    }
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    let ids = acked(tmp.path());
    assert_eq!(ids.len(), 60);
    check(&store, &ids);
    assert_eq!(store.usage().unwrap().count, 80);
}

#[test]
fn a_killed_process_loses_nothing_it_acknowledged() {
    let tmp = tempfile::tempdir().unwrap();
    let mut other = start("processes::other_process", tmp.path(), 1_000_000);
    while acked(tmp.path()).len() < 10 {
        assert!(other.try_wait().unwrap().is_none(), "ended early");
        std::thread::yield_now();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    let store = open(tmp.path());
    let ids = acked(tmp.path());
    check(&store, &ids);
    // A result that was finished but not yet written down may exist; half of one may not.
    for info in store.list("me").unwrap() {
        check(&store, &[info.id]);
    }
    assert!(store.list("me").unwrap().len() >= ids.len());
}
