//! What decides over the agent stays out of its reach, whatever links, moves and mounts are used to get there.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmc_host::lease::LeaseTable;
use llmc_host::{
    CancelToken, DeleteScope, Error, ExistingDir, ExistingTarget, PathRules, Roots, Workspace,
    WriteMode, WriteState,
};

/// A workspace whose rules are made when the server starts, after the files are there.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(fixture.path(".llmc")).unwrap();
        fixture
    }

    fn path(&self, rel: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("w").join(rel)
    }

    fn make(&self, rel: &str, text: &str) {
        fs::create_dir_all(self.path(rel).parent().unwrap()).unwrap();
        fs::write(self.path(rel), text).unwrap();
    }

    fn link(&self, target: &str, rel: &str) {
        symlink(target, self.path(rel)).unwrap();
    }

    fn rules(&self) -> PathRules {
        PathRules::new(Some(self.path(".llmc")), vec![self.path("llmc.toml")])
            .with_roots(&[self.path("")])
    }

    fn start(&self) -> Started {
        Started::new(&self.path(""), &[".".into()], self.rules(), ".llmc")
    }
}

struct Started(Workspace);

impl Started {
    fn new(workspace: &Path, roots: &[PathBuf], rules: PathRules, state: &str) -> Started {
        let state = WriteState::open(&workspace.join(state), Duration::from_secs(30)).unwrap();
        let roots = Roots::open(workspace, roots, Arc::new(rules)).unwrap();
        Started(Workspace::new(Arc::new(roots), Some(Arc::new(state))))
    }

    fn write(&self, requested: &str) -> Result<(), Error> {
        let mode = WriteMode::Rewrite;
        let written = self
            .0
            .write(requested, b"new", mode, None, "t", &CancelToken::default());
        written.map(drop)
    }

    fn rename(&self, source: &str, target: &str) -> Result<(), Error> {
        let moved = self.0.move_path(
            source,
            target,
            ExistingTarget::Refuse,
            "t",
            &CancelToken::default(),
        );
        moved.map(drop)
    }

    fn delete(&self, requested: &str) -> Result<(), Error> {
        let gone = self.0.delete(
            requested,
            DeleteScope::Recursive,
            "t",
            &CancelToken::default(),
        );
        gone.map(drop)
    }

    fn assert_out_of_reach(&self, paths: &[&str]) {
        for path in paths {
            assert_protected(self.write(path), path);
            assert_protected(self.delete(path), path);
            assert_protected(self.rename(path, "taken"), path);
            assert_protected(self.rename("plain.txt", path), path);
        }
    }
}

#[track_caller]
fn assert_protected(result: Result<(), Error>, what: &str) {
    assert!(
        matches!(result, Err(Error::Protected { .. })),
        "{what}: {result:?}"
    );
}

#[test]
fn a_configuration_that_is_a_link_is_protected_by_each_of_its_names() {
    let f = Fixture::new();
    f.make("conf/my.toml", "old");
    f.make("plain.txt", "x");
    f.link("my.toml", "conf/step.toml");
    f.link("conf/step.toml", "llmc.toml");
    f.link("conf", "c");
    f.link("llmc.toml", "other");
    let ws = f.start();
    ws.assert_out_of_reach(&[
        "llmc.toml",
        "./conf/../llmc.toml",
        "conf/step.toml",
        "conf/my.toml",
        "c/my.toml",
        "c/step.toml",
    ]);
    assert_protected(ws.write("other"), "a link to the name");
    assert_protected(ws.rename("conf", "elsewhere"), "the folder of the file");
    assert_protected(ws.delete("conf"), "the folder of the file");
    assert_eq!(fs::read_to_string(f.path("llmc.toml")).unwrap(), "old");
    ws.delete("other").unwrap();
    ws.delete("c").unwrap();
    ws.write("conf/other.toml").unwrap();
}

#[test]
fn a_nested_configuration_that_is_a_link_is_refused_by_its_name() {
    let f = Fixture::new();
    f.make("sub/real.toml", "old");
    f.make("plain.txt", "x");
    f.link("real.toml", "sub/llmc.toml");
    f.link("sub/llmc.toml", "round");
    let ws = f.start();
    ws.assert_out_of_reach(&["sub/llmc.toml"]);
    assert_protected(ws.write("round"), "through a link to the link");
    assert_eq!(fs::read_to_string(f.path("sub/real.toml")).unwrap(), "old");
}

const GIT_PARTS: [&str; 9] = [
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "hooks",
    "hooks/pre-commit",
    "info/attributes",
    "modules/x/config",
    "worktrees/x/gitdir",
];

fn assert_git_dir_is_out_of_reach(ws: &Started, dir: &str) {
    for part in GIT_PARTS {
        ws.assert_out_of_reach(&[&format!("{dir}/{part}")]);
    }
    ws.write(&format!("{dir}/info/exclude")).unwrap();
}

#[test]
fn a_git_directory_behind_a_link_is_protected_by_both_names() {
    let f = Fixture::new();
    f.make("real/config", "old");
    f.make("real/info/exclude", "old");
    f.make("plain.txt", "x");
    f.link("real", ".git");
    f.link(".git", "round");
    let ws = f.start();
    for dir in [".git", "real", "round"] {
        assert_git_dir_is_out_of_reach(&ws, dir);
    }
    ws.assert_out_of_reach(&[".git", "real"]);
    assert_eq!(fs::read_to_string(f.path("real/config")).unwrap(), "old");
}

#[test]
fn a_git_directory_named_by_a_file_is_protected_with_the_one_it_shares() {
    let f = Fixture::new();
    f.make("main/worktrees/one/commondir", "../..\n");
    f.make("main/worktrees/one/info/exclude", "old");
    f.make("main/info/exclude", "old");
    f.make(".git", "gitdir: main/worktrees/one\n");
    f.make("plain.txt", "x");
    let ws = f.start();
    for dir in ["main", "main/worktrees/one"] {
        assert_git_dir_is_out_of_reach(&ws, dir);
    }
    ws.assert_out_of_reach(&[".git", "main"]);
}

#[test]
fn a_git_directory_that_is_still_missing_is_not_the_agents_to_make() {
    let f = Fixture::new();
    f.make("plain.txt", "x");
    fs::create_dir_all(f.path("later")).unwrap();
    f.link("later/git", ".git");
    let ws = f.start();
    ws.assert_out_of_reach(&["later/git", "later/git/config", ".git/config"]);
}

#[test]
fn a_directory_does_not_carry_protected_names_out_of_their_place_or_into_it() {
    let f = Fixture::new();
    f.make(".git/modules/x/config", "old");
    f.make(".git/empty/file", "x");
    f.make("prepared/x/hooks/post-checkout", "x");
    f.make("bare/file", "x");
    f.make("project/deep/nested/.git/config", "x");
    f.make("ordinary/config", "x");
    f.link("prepared/x", "shortcut");
    let ws = f.start();
    for (source, target) in [
        (".git/modules", "plain"),
        (".git/modules/x", "plain"),
        ("prepared", ".git/modules/y"),
        ("prepared/x", ".git/modules/x2"),
        // Nothing protected in it yet, but it can be filled after the look.
        ("bare", ".git/modules/z"),
        (".git/empty", "plain"),
        ("shortcut", ".git/modules/z"),
    ] {
        assert_protected(ws.rename(source, target), source);
    }
    match ws.rename("project", "renamed") {
        Err(Error::Protected { what, .. }) => {
            assert_eq!(what, "the repository's .git at project/deep/nested/.git");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        fs::read_to_string(f.path(".git/modules/x/config")).unwrap(),
        "old"
    );
    ws.rename("ordinary", "moved").unwrap();
    ws.rename("moved/config", ".git/notes").unwrap();
}

#[test]
fn the_state_directory_stays_when_a_folder_above_it_goes() {
    let f = Fixture::new();
    fs::create_dir_all(f.path("data/volume/state")).unwrap();
    let rules = PathRules::new(Some(f.path("data/volume/state")), Vec::new());
    let ws = Started::new(&f.path(""), &[".".into()], rules, "data/volume/state");
    for path in ["data", "data/volume", "data/volume/state"] {
        assert_protected(ws.rename(path, "elsewhere"), path);
        assert_protected(ws.delete(path), path);
    }
    ws.write("data/volume/file").unwrap();
}

#[test]
fn a_root_of_the_other_set_is_neither_moved_nor_deleted() {
    let f = Fixture::new();
    fs::create_dir_all(f.path("a/theirs/x")).unwrap();
    f.link("a/theirs", "spelled");
    let all = [f.path(""), f.path("spelled")];
    let rules = PathRules::new(Some(f.path(".llmc")), Vec::new()).with_roots(&all);
    let ws = Started::new(&f.path(""), &[".".into()], rules, ".llmc");
    for path in ["a", "a/theirs", "spelled"] {
        assert_protected(ws.rename(path, "elsewhere"), path);
        assert_protected(ws.delete(path), path);
    }
    ws.delete("a/theirs/x").unwrap();
}

#[test]
fn deleting_a_folder_waits_for_leases_inside_it() {
    let f = Fixture::new();
    f.make("d/deep/file", "x");
    let ws = f.start();
    let other = LeaseTable::open(&f.path(".llmc"), Duration::from_secs(30)).unwrap();
    let lease = other
        .acquire(&[f.path("d/deep/file")], "agent-2", "file")
        .unwrap();
    for result in [ws.delete("d"), ws.rename("d", "e")] {
        match result {
            Err(Error::Busy { path, holder, .. }) => {
                assert_eq!((&*path, &*holder), ("d/deep/file", "agent-2"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(f.path("d/deep/file").exists());
    drop(lease);
    ws.rename("d", "e").unwrap();
    ws.delete("e").unwrap();
}

#[test]
fn directories_are_not_made_in_the_kernel_nor_as_a_repository() {
    let f = Fixture::new();
    fs::create_dir_all(f.path("there/.git")).unwrap();
    let ws = f.start();
    for path in [
        ".git",
        ".GIT",
        ".git/info",
        "new/.git/objects/x",
        "there/.git/hooks",
        "there/.git/modules/x/hooks/y",
        "new/llmc.toml/x",
    ] {
        let made = ws.0.make_dirs(path, ExistingDir::Accept).map(drop);
        assert_protected(made, path);
    }
    assert!(
        !f.path("new").exists(),
        "nothing is made before the refusal"
    );
    ws.0.make_dirs("there/.git/info", ExistingDir::Refuse)
        .unwrap();
    let disk = Started::new(&f.path(""), &["/".into()], f.rules(), ".llmc");
    for path in ["/sys/fs/cgroup/llmc-test", "/proc/llmc-test", "/sys/x/y"] {
        let made = disk.0.make_dirs(path, ExistingDir::Accept);
        assert!(
            matches!(made, Err(Error::SpecialFile { .. })),
            "{path}: {made:?}"
        );
        assert!(!Path::new(path).exists());
    }
}

#[test]
fn what_gits_configuration_includes_is_protected_like_it() {
    let f = Fixture::new();
    f.make(".git/HEAD", "ref: refs/heads/main\n");
    f.make(
        ".git/config",
        "[include]\n\tpath = ../conf/shared\n\tpath = ../later\n",
    );
    f.make("conf/shared", "[include]\n\tpath = more\n");
    f.make("conf/more", "[core]\n");
    f.make("plain.txt", "x");
    let ws = f.start();
    ws.assert_out_of_reach(&["conf/shared", "conf/more"]);
    assert_protected(ws.write("later"), "one that does not exist");
    assert_protected(ws.rename("plain.txt", "later"), "one that does not exist");
    assert_protected(ws.rename("conf", "away"), "its folder");
    ws.write("conf/other").unwrap();
}

#[test]
fn no_tool_makes_a_bare_repository_or_changes_what_one_runs() {
    // Whatever comes last completes it.
    let parts = ["HEAD", "objects/x", "refs/heads/x"];
    for last in 0..parts.len() {
        let f = Fixture::new();
        f.make("plain.txt", "x");
        f.make("dir/x", "x");
        let ws = f.start();
        f.make("bare/config", "x");
        for (at, part) in parts.iter().enumerate() {
            if at != last {
                f.make(&format!("bare/{part}"), "x");
            }
        }
        let last = parts[last];
        let name = format!("bare/{}", last.split('/').next().unwrap());
        assert_protected(ws.write(&format!("bare/{last}")), last);
        assert_protected(ws.rename("plain.txt", &name), last);
        assert_protected(ws.rename("dir", &name), last);
        if name != "bare/HEAD" {
            let made = ws.0.make_dirs(&name, ExistingDir::Accept).map(drop);
            assert_protected(made, last);
        }
        assert!(!f.path(&name).exists());
    }
    // Another directory may have the objects.
    let f = Fixture::new();
    let ws = f.start();
    f.make("other/HEAD", "x");
    assert_protected(ws.write("other/commondir"), "commondir");

    for name in [
        "HEAD",
        "config",
        "hooks/post-checkout",
        "refs/heads/main",
        "objects/ab/x",
    ] {
        f.make(&format!("bare.git/{name}"), "old");
    }
    f.make("plain.txt", "x");
    ws.assert_out_of_reach(&[
        "bare.git/config",
        "bare.git/hooks",
        "bare.git/hooks/post-checkout",
    ]);
    for name in [
        "commondir",
        "config.worktree",
        "modules/a/config",
        "info/attributes",
    ] {
        let path = format!("bare.git/{name}");
        assert_protected(ws.write(&path), &path);
    }
    ws.write("bare.git/refs/heads/topic").unwrap();
    ws.write("bare.git/description").unwrap();
    // Such names are ordinary ones elsewhere.
    for path in [
        "src/config/x",
        "src/hooks/x",
        "src/HEAD",
        "src/refs/x",
        "info/attributes",
    ] {
        f.make(path, "x");
        ws.write(path).unwrap();
    }
    ws.delete("bare.git").unwrap();
}

#[test]
fn a_file_keeps_its_attributes_on_the_way_to_another_file_system() {
    let f = Fixture::new();
    let Ok(away) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(away.path()) == device(&f.path("")) {
        return;
    }
    f.make("tool", "content");
    fs::set_permissions(f.path("tool"), fs::Permissions::from_mode(0o750)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let marked = rustix::fs::setxattr(f.path("tool"), "user.note", b"kept", flags).is_ok();
    let own = std::os::unix::fs::chown(f.path("tool"), Some(12), Some(34)).is_ok();
    let roots = [".".into(), away.path().to_owned()];
    let ws = Started::new(&f.path(""), &roots, f.rules(), ".llmc");
    let target = away.path().join("tool");
    ws.rename("tool", target.to_str().unwrap()).unwrap();
    assert!(!f.path("tool").exists());
    assert_eq!(fs::read_to_string(&target).unwrap(), "content");
    let meta = fs::metadata(&target).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o750);
    if own {
        assert_eq!((meta.uid(), meta.gid()), (12, 34));
    }
    let mut value = [0; 16];
    match rustix::fs::getxattr(&target, "user.note", &mut value[..]) {
        Ok(len) => assert_eq!(&value[..len], b"kept"),
        // Not every file system keeps them.
        Err(error) => assert!(
            !marked || error == rustix::io::Errno::OPNOTSUPP || error == rustix::io::Errno::NODATA
        ),
    }
}
