//! Interpreters other than the machine's own: older and newer ones, and damaged ones.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use llmc_sandbox::{PythonBackend, ScriptEnd, WorkspaceAccess, look_for_python};
use tokio_util::sync::CancellationToken;

use super::settings;
use crate::fixture::{Toys, limits, names, runtime};

/// Paths of interpreters to try, with colons between them.
pub(super) const INTERPRETERS: &str = "LLMC_TEST_PYTHONS";

/// Everything that the program before the script relies on, in one script.
const EVERYTHING: &str = "import asyncio, json, os, pathlib, subprocess, tempfile, threading
first = add(1, 2), echo('é')['args'], tools.error_code(ValueError('NOT_FOUND: x'))
together = await asyncio.gather(tools.aio.add(1), tools.aio.add(2))
seen = []
thread = threading.Thread(target=lambda: seen.append(add(5)))
thread.start(); thread.join()
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, 'a').write_text('text')
    own = pathlib.Path(folder, 'a').read_text()
try:
    os.fork()
except OSError:
    forked = False
print(first, together, seen, own, forked)";

/// A workspace with a virtual environment of this interpreter.
fn workspace(interpreter: &Path) -> tempfile::TempDir {
    let dir = tempfile::Builder::new()
        .prefix("version-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let venv = dir.path().join("ws/.venv");
    std::fs::create_dir_all(venv.join("bin")).unwrap();
    std::fs::create_dir_all(dir.path().join("ws/.llmc")).unwrap();
    std::fs::write(venv.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    symlink(interpreter, venv.join("bin/python3")).unwrap();
    dir
}

/// What a script shows in the workspace, and how the interpreter is described.
fn shown(dir: &Path, code: &str) -> (String, String) {
    let python = PythonBackend::open(&settings(dir), WorkspaceAccess::Reads, 128 << 20).unwrap();
    let words = python.describe();
    let outcome = runtime().block_on(async {
        let (toys, cancel, names) = (Toys::default(), CancellationToken::new(), names());
        let limits = limits();
        python.run(code, &names, &limits, &toys, &cancel).await
    });
    match outcome.ending {
        ScriptEnd::Value(value) => (outcome.output + &value.repr, words),
        other => panic!("{words}: {other:?}\n{}", outcome.output),
    }
}

pub(super) fn every_version() {
    let listed = std::env::var(INTERPRETERS).unwrap();
    for interpreter in listed.split(':').filter(|path| !path.is_empty()) {
        let interpreter = std::fs::canonicalize(interpreter).unwrap();
        let dir = workspace(&interpreter);
        let (text, words) = shown(dir.path(), EVERYTHING);
        let wanted = "(3, ['é'], 'NOT_FOUND') [1, 2] [5] text False\n";
        assert_eq!(text, wanted, "{words}");
        assert!(
            words.contains(&interpreter.display().to_string()),
            "{words}"
        );
    }
}

/// A copy of the machine's Python whose standard library lacks a module.
fn without(module: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let real = std::fs::canonicalize("/usr/bin/python3").ok()?;
    let version = real.file_name()?.to_str()?.to_owned();
    let library = Path::new("/usr/lib").join(&version);
    if !library.join("os.py").is_file() {
        return None;
    }
    let dir = tempfile::Builder::new()
        .prefix("damaged-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let own = dir.path().join("lib").join(&version);
    std::fs::create_dir_all(&own).unwrap();
    std::fs::create_dir_all(dir.path().join("bin")).unwrap();
    for entry in std::fs::read_dir(&library).unwrap().flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(module) {
            symlink(entry.path(), own.join(name)).unwrap();
        }
    }
    let python = dir.path().join("bin/python3");
    std::fs::copy(&real, &python).unwrap();
    Some((dir, python))
}

pub(super) fn damaged() {
    // The program before the script needs json; ctypes is the script's own affair.
    let Some((_json, no_json)) = without("json") else {
        eprintln!("SKIPPED: /usr/bin/python3 has no library in /usr/lib");
        return;
    };
    let dir = workspace(&no_json);
    let (text, words) = shown(dir.path(), "1 + 1");
    assert_eq!(text, "2");
    assert!(words.contains("does not start as Python"), "{words}");
    let (_ctypes, no_ctypes) = without("ctypes").unwrap();
    let dir = workspace(&no_ctypes);
    let code = "try:\n  import ctypes\nexcept ImportError as e:\n  print(e)\nadd(1, 2)";
    let (text, words) = shown(dir.path(), code);
    assert_eq!(text, "No module named 'ctypes'\n3");
    assert!(words.contains(&no_ctypes.display().to_string()), "{words}");
}

/// A `python3` on the search path that leads nowhere, is a shim or is no program: the next one is taken, and alone it is told.
pub(super) fn no_interpreters() {
    let dir = tempfile::Builder::new()
        .prefix("shims-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let shim = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder.join("python3")
    };
    symlink("/nowhere/python3", shim("broken")).unwrap();
    std::fs::create_dir_all(dir.path().join("folder/python3")).unwrap();
    for (name, text) in [
        ("pyenv", "#!/bin/sh\nexec pyenv exec python3 \"$@\"\n"),
        ("text", "no program"),
    ] {
        let path = shim(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    std::fs::create_dir_all(dir.path().join("ws/.llmc")).unwrap();
    for name in ["broken", "folder", "pyenv", "text"] {
        let settings = llmc_exec::Settings {
            search_path: vec![dir.path().join(name)],
            ..settings(dir.path())
        };
        let python = PythonBackend::open(&settings, WorkspaceAccess::ThroughServer, 128 << 20);
        assert!(
            python.unwrap().describe().starts_with("Python 3."),
            "{name}"
        );
        assert_eq!(
            look_for_python(&dir.path().join("ws"), &settings.search_path),
            Ok(()),
            "{name}"
        );
    }
}
