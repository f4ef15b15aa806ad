//! Which folder is the workspace, which file is read, where paths lead.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Workspace, load_trusted, loaded};
use crate::{ConfigInputs, load};

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap()
}

#[test]
fn the_root_is_the_nearest_repository() {
    let workspace = Workspace::new("[mcp]\nmode = \"te\"");
    let deep = workspace.path().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let loaded = load(&ConfigInputs {
        cwd: deep.clone(),
        ..ConfigInputs::default()
    })
    .unwrap();
    assert_eq!(loaded.root, real(workspace.path()));
    assert_eq!(loaded.file, Some(real(workspace.path()).join("llmc.toml")));

    fs::write(workspace.path().join("a/.git"), "gitdir: elsewhere").unwrap();
    let loaded = load(&ConfigInputs {
        cwd: deep.clone(),
        ..ConfigInputs::default()
    })
    .unwrap();
    assert_eq!(
        (loaded.root, loaded.file),
        (real(&workspace.path().join("a")), None)
    );

    let root_flag = Some(PathBuf::from("../.."));
    let loaded = load(&ConfigInputs {
        cwd: deep,
        root_flag,
        ..ConfigInputs::default()
    })
    .unwrap();
    assert_eq!(loaded.root, real(workspace.path()));
}

#[test]
fn without_a_repository_the_current_folder_is_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&ConfigInputs {
        cwd: dir.path().to_owned(),
        ..ConfigInputs::default()
    })
    .unwrap();
    assert_eq!(loaded.root, real(dir.path()));
}

#[test]
fn the_file_named_first_is_read() {
    let here = Workspace::new("[mcp]\nmode = \"te\"");
    let there = Workspace::new("[mcp]\nmode = \"classic\"");
    let there_path = there.path().to_str().unwrap();
    let other = there.path().join("other.toml");
    fs::write(&other, "[mcp]\nmode = \"hybrid\"").unwrap();
    let mode = |inputs: &ConfigInputs| load(inputs).unwrap().config.mcp.mode.as_str();

    let mut inputs = here.inputs(&[], &[]);
    assert_eq!(mode(&inputs), "te");
    inputs
        .env
        .insert("LLMC_ROOT".to_owned(), there_path.to_owned());
    assert_eq!(mode(&inputs), "classic");
    assert_eq!(
        load(&inputs).unwrap().root,
        real(there.path()),
        "LLMC_ROOT is the workspace too"
    );
    inputs.root_flag = Some(here.path().to_owned());
    assert_eq!(mode(&inputs), "classic");
    assert_eq!(
        load(&inputs).unwrap().root,
        real(here.path()),
        "but --root wins"
    );
    inputs
        .env
        .insert("LLMC_CONFIG".to_owned(), other.to_str().unwrap().to_owned());
    assert_eq!(mode(&inputs), "hybrid");
    inputs.config_flag = Some(PathBuf::from("llmc.toml"));
    assert_eq!(mode(&inputs), "te");
}

#[test]
fn a_named_file_or_folder_has_to_exist() {
    let workspace = Workspace::new("");
    let message = |inputs: &ConfigInputs| load(inputs).unwrap_err().to_string();

    let mut inputs = workspace.inputs(&[("LLMC_ROOT", workspace.path().to_str().unwrap())], &[]);
    assert!(load(&inputs).is_ok());
    inputs.config_flag = Some(PathBuf::from("x.toml"));
    assert_eq!(
        message(&inputs),
        "--config: x.toml: No such file or directory (os error 2)"
    );
    let inputs = workspace.inputs(&[("LLMC_CONFIG", "x.toml")], &[]);
    assert_eq!(
        message(&inputs),
        "LLMC_CONFIG: x.toml: No such file or directory (os error 2)"
    );
    assert!(
        load(&workspace.inputs(&[("LLMC_CONFIG", "")], &[])).is_ok(),
        "empty is not set"
    );

    let mut inputs = workspace.inputs(&[], &[]);
    inputs.root_flag = Some(PathBuf::from("nowhere"));
    assert!(
        message(&inputs).starts_with("--root: "),
        "{}",
        message(&inputs)
    );
    fs::write(workspace.path().join("file"), "").unwrap();
    inputs.root_flag = Some(PathBuf::from("file"));
    assert!(
        message(&inputs).ends_with("not a directory"),
        "{}",
        message(&inputs)
    );
}

#[test]
fn a_file_that_cannot_be_read_is_no_absent_file() {
    let workspace = Workspace::new("");
    let file = workspace.path().join("llmc.toml");
    let message = || load(&workspace.inputs(&[], &[])).unwrap_err().to_string();

    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    assert!(message().starts_with("llmc.toml: "), "{}", message());
    fs::remove_file(&file).unwrap();
    fs::write(&file, b"[mcp]\nmode = \"\xff\"").unwrap();
    assert!(message().starts_with("llmc.toml: "), "{}", message());
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(message().starts_with("llmc.toml: "), "{}", message());
}

#[test]
fn paths_start_at_the_root_or_at_home() {
    let workspace =
        Workspace::new("[mcp.tools]\nallowed_roots = [\".\", \"~/src\", \"/etc\", \"./sub\"]");
    let loaded = load_trusted(&workspace.inputs(&[("HOME", "/home/ann")], &[])).unwrap();
    let root = loaded.root.clone();
    let expect = [
        root.clone(),
        "/home/ann/src".into(),
        "/etc".into(),
        root.join("sub"),
    ];
    assert_eq!(loaded.roots(), expect);
    assert_eq!(loaded.linux_roots(), expect);
    assert_eq!(loaded.csv_path(), root.join("artifacts/token_audit.csv"));
    assert_eq!(loaded.state_dir(), root.join(".git/llmc"));
}

#[test]
fn roots_default_to_the_workspace_and_may_differ_for_linux_tools() {
    let plain = loaded("", &[], &[]);
    assert_eq!(plain.roots(), std::slice::from_ref(&plain.root));
    let own = loaded("", &[], &["mcp.linux_ops.roots.allowed_roots=['/srv']"]);
    assert_eq!(
        (own.roots(), own.linux_roots()),
        (vec![own.root.clone()], vec!["/srv".into()])
    );
    let none = loaded("", &[], &["mcp.tools.allowed_roots=[]"]);
    assert!(none.roots().is_empty());
    assert_eq!(
        none.warnings,
        ["mcp.tools.allowed_roots is empty: every path is refused"]
    );
}

#[test]
fn state_moves_to_the_data_volume() {
    let loaded = loaded(
        "",
        &[("LLMC_MCP__DOCKER__DATA_VOLUME", "~/state"), ("HOME", "/h")],
        &[],
    );
    assert_eq!(loaded.state_dir(), Path::new("/h/state"));
}

#[test]
fn a_file_that_is_none_is_an_error_at_once() {
    let workspace = Workspace::new("");
    let other = Workspace::new("");
    let file = workspace.path().join("llmc.toml");
    let home = workspace.path().join("home");
    let own = home.join(".config/llmc/config.toml");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let env = [("HOME", home.to_str().unwrap())];
    type Make = fn(&Path);
    let make: [(&str, Make); 4] = [
        ("a device", |path| {
            std::os::unix::fs::symlink("/dev/zero", path).unwrap()
        }),
        ("a FIFO", |path| {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap()
        }),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("larger than 1 MiB", |path| {
            fs::write(path, vec![b'#'; 2 << 20]).unwrap()
        }),
    ];
    for (what, make) in make {
        for path in [&file, &own] {
            make(path);
            let started = std::time::Instant::now();
            let error = load(&workspace.inputs(&env, &[])).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert!(started.elapsed().as_secs() < 1, "{what}");
            let mut named = other.inputs(&[], &[]);
            named.config_flag = Some(path.clone());
            let error = load(&named).unwrap_err().to_string();
            assert!(error.starts_with("--config: "), "{error}");
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
    assert!(load(&workspace.inputs(&env, &[])).is_ok());
}
