//! The index follows the files by itself.

use std::fs;
use std::time::{Duration, Instant};

use llmc_host::CancelToken;
use llmc_index::{IndexState, SearchScope};

use crate::work::Work;

/// Asks until the answer is there; a test that waits this long has failed. A scan is followed by a pause of ten times its
/// duration, which is seconds on a busy machine.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !there() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends the keeper also when the test fails, which would wait for it for ever.
pub(crate) struct EndOnDrop<'s>(pub(crate) &'s CancelToken);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[test]
fn changes_new_files_new_folders_and_ignored_ones() {
    let work = Work::new("//- src/a.rs\npub fn alpha_wolf() {}\n");
    let stop = CancelToken::default();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| work.index.keep_current(&work.roots, &stop));
        let end = EndOnDrop(&stop);
        until("built", || work.index.state() == IndexState::Ready);
        // The index, not the files: what is asked for has never been in the file that the index knows.
        let knows = |name: &str| {
            let found = work
                .index
                .where_used(&work.roots, name, 1, &CancelToken::default());
            found.is_ok()
        };
        until("first", || knows("alpha_wolf"));
        work.write("src/a.rs", "pub fn beta_carotene() {}\n");
        until("changed", || knows("beta_carotene"));
        work.write("src/b.rs", "pub fn gamma_ray() {}\n");
        until("new file", || knows("gamma_ray"));
        work.write("src/deep/er/c.rs", "pub fn delta_force() {}\n");
        until("new folder", || knows("delta_force"));
        work.write("src/deep/er/c.rs", "pub fn omega_point() {}\n");
        until("change in a new folder", || knows("omega_point"));
        fs::remove_file(work.path("src/b.rs")).unwrap();
        until("gone", || !knows("gamma_ray"));
        fs::rename(work.path("src/deep"), work.path("src/moved")).unwrap();
        until("moved", || {
            work.found("omega_point", SearchScope::Repo) == ["src/moved/er/c.rs#L1-L1"]
        });
        work.write(".gitignore", "src/moved/\n");
        until("ignored", || !knows("omega_point"));
        drop(end);
        keeper.join().unwrap();
    });
}
