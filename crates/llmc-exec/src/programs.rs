//! Allowed names and the files they stand for.
//!
//! Names on an operator's list are looked up once, at start, and never where commands can write: a file called `grep` in a
//! repository is not grep. What was found must still be the same file each time it is started.
//!
//! With `*` on the list every program is allowed, the workspace's own included, and a name is looked up for each call as
//! a shell would do it. The kernel boundary, not the list, then bounds what the program can do.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::settings::{Profile, Settings};
use super::word_split::clipped;
use crate::error::{Error, Result};

/// An allowed program.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name on the list, as the operator wrote it.
    pub name: String,
    /// The file that is started; may be a link, since some programs look at the name they are called by.
    pub path: PathBuf,
    fingerprint: FileFingerprint,
}

/// A name on the list that stands for nothing.
#[derive(Debug, Clone)]
pub struct Unresolved {
    /// The name on the list.
    pub name: String,
    /// Why it is not available.
    pub why: String,
}

/// Identifies a file and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileFingerprint {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
}

/// The entry of the list that allows every program.
const ANY_PROGRAM: &str = "*";

/// The list after the look-up.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Every program is allowed.
    pub(super) any: bool,
    pub(super) found: Vec<Program>,
    pub(super) unresolved: Vec<Unresolved>,
}

impl Programs {
    /// Looks every name up: found must be where commands cannot write.
    pub(super) fn look_up(names: &[String], settings: &Settings) -> Programs {
        let places = Places {
            path: &settings.search_path,
            writable: settings.writable().map(PathBuf::as_path).collect(),
            read_only: settings.read_only_system_dirs(),
        };
        let mut list = Programs {
            any: settings.profile == Profile::Unrestricted
                && names.iter().any(|name| name == ANY_PROGRAM),
            ..Programs::default()
        };
        for name in names.iter().filter(|name| *name != ANY_PROGRAM) {
            let known = |program: &Program| program.name == *name;
            if list.found.iter().any(known) {
                continue;
            }
            match look_up(name, &places) {
                Ok((path, fingerprint)) => list.found.push(Program {
                    name: name.clone(),
                    path,
                    fingerprint,
                }),
                Err(why) => list.unresolved.push(Unresolved {
                    name: name.clone(),
                    why,
                }),
            }
        }
        list
    }

    /// The program that a caller's `argv[0]` means.
    pub(super) fn get(&self, asked: &str) -> Result<&Program> {
        let by_path = asked.contains('/');
        // By another way to the same file, too: on most systems /bin is a link. But not by another name: there are
        // files that are many programs, and the name decides which.
        let path = Path::new(asked);
        let really = by_path.then(|| std::fs::canonicalize(path).ok()).flatten();
        let same_file = |program: &Program| {
            really.as_deref() == Some(&program.path)
                && path.file_name() == Some(OsStr::new(&program.name))
        };
        let hit = self.found.iter().find(|program| {
            if by_path {
                program.path.as_os_str() == OsStr::new(asked) || same_file(program)
            } else {
                program.name == asked
            }
        });
        if let Some(program) = hit {
            return Ok(program);
        }
        let missing = self.unresolved.iter().find(|other| other.name == asked);
        let (why, hint) = match missing {
            Some(missing) => (
                format!("allowed, but {}", missing.why),
                "the operator installs it or takes it off the list".to_owned(),
            ),
            None if by_path => (
                "a path is allowed only if it is an allowed program's own".to_owned(),
                format!("use a name: {}", self.names()),
            ),
            None => (
                "not on the list of allowed programs".to_owned(),
                format!("allowed: {}", self.names()),
            ),
        };
        Err(Error::CommandDenied {
            command: clipped(asked),
            why,
            hint,
        })
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self
            .found
            .iter()
            .map(|program| program.name.as_str())
            .collect();
        if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        }
    }
}

impl Program {
    /// This executable, for escape tests.
    ///
    /// The one program that may lie where commands can write: a server under development does. It is named by the kernel's
    /// link to the running file, so neither the place nor what has been put there since matters.
    pub(super) fn own() -> std::io::Result<Program> {
        let path = Program::own_path();
        Ok(Program {
            name: "llmc".to_owned(),
            fingerprint: fingerprint(&path)?,
            path,
        })
    }

    /// The kernel's name for this executable, in whichever mount namespace.
    pub(super) fn own_path() -> PathBuf {
        PathBuf::from("/proc/self/exe")
    }

    /// Fails if the file is no longer the one that was found at start.
    pub(super) fn check(&self) -> Result<()> {
        if fingerprint(&self.path).is_ok_and(|now| now == self.fingerprint) {
            return Ok(());
        }
        Err(Error::CommandDenied {
            command: self.name.clone(),
            why: "the program's file has changed since the server started".to_owned(),
            hint: "the operator restarts the server if the change is wanted".to_owned(),
        })
    }
}

/// Finds a program as a shell does: a name in the search path, a path from the working directory. What is no
/// executable file (the dangling link of a broken `.venv`) is passed over.
pub(super) fn find_program(asked: &str, cwd: &Path, search_path: &[PathBuf]) -> Result<Program> {
    let in_search_path = |name: &str| {
        let mut files = search_path.iter().map(|dir| dir.join(name));
        files.find(|file| is_executable(file))
    };
    let found = match asked {
        _ if asked.contains('\0') => None,
        "" | "." | ".." => None,
        _ if asked.contains('/') => Some(cwd.join(asked)).filter(|file| is_executable(file)),
        // Many systems have only the second.
        "python" => in_search_path("python").or_else(|| in_search_path("python3")),
        _ => in_search_path(asked),
    };
    let found = found.and_then(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        let fingerprint = fingerprint(&path).ok()?;
        Some(Program {
            name,
            path,
            fingerprint,
        })
    });
    found.ok_or_else(|| Error::CommandDenied {
        command: clipped(asked),
        why: if asked.contains('/') {
            "there is no executable file of that name".to_owned()
        } else {
            "there is no such program on the search path".to_owned()
        },
        hint: "install it, or give the path of an executable file".to_owned(),
    })
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
}

/// Where programs are looked for, and where they must not lie. All canonical.
struct Places<'a> {
    path: &'a [PathBuf],
    writable: Vec<&'a Path>,
    /// Not writable, though inside something that is.
    read_only: Vec<PathBuf>,
}

impl Places<'_> {
    fn can_be_written(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root))
            && !self.read_only.iter().any(|dir| path.starts_with(dir))
    }
}

fn look_up(name: &str, places: &Places<'_>) -> Result<(PathBuf, FileFingerprint), String> {
    let path = places.path;
    let files: Vec<PathBuf> = match name {
        "" | "." | ".." => return Err("it is no name".to_owned()),
        _ if name.starts_with('/') => vec![PathBuf::from(name)],
        _ if name.contains('/') => {
            return Err("a relative path depends on the working directory".to_owned());
        }
        // Many systems have only the second.
        "python" => ["python", "python3"]
            .iter()
            .flat_map(|name| path.iter().map(move |dir| dir.join(name)))
            .collect(),
        _ => path.iter().map(|dir| dir.join(name)).collect(),
    };
    let mut why = "there is no such program in the fixed search path".to_owned();
    for file in files {
        match vet(&file, places) {
            Ok(Some(fingerprint)) => return Ok((file, fingerprint)),
            Ok(None) => {}
            // A bad find is not passed over silently if nothing better follows.
            Err(reason) => why = format!("{} {reason}", file.display()),
        }
    }
    Err(why)
}

/// Whether this file may be an allowed program; `None` if there is no program there.
fn vet(file: &Path, places: &Places<'_>) -> Result<Option<FileFingerprint>, String> {
    let Ok(real) = std::fs::canonicalize(file) else {
        return Ok(None);
    };
    let Ok(status) = std::fs::metadata(&real) else {
        return Ok(None);
    };
    let mode = status.permissions().mode();
    if !status.is_file() || mode & 0o111 == 0 {
        return Ok(None);
    }
    if places.can_be_written(file) || places.can_be_written(&real) {
        return Err("lies where commands can write".to_owned());
    }
    if mode & 0o022 != 0 {
        return Err("can be written by its group or by everyone".to_owned());
    }
    for dir in [file.parent(), real.parent()].into_iter().flatten() {
        let open =
            std::fs::metadata(dir).is_ok_and(|dir| dir.permissions().mode() & 0o1002 == 0o002);
        if open {
            return Err("lies in a directory that everyone can write".to_owned());
        }
    }
    Ok(fingerprint(&real).ok())
}

fn fingerprint(path: &Path) -> std::io::Result<FileFingerprint> {
    let status = std::fs::metadata(path)?;
    Ok(FileFingerprint {
        dev: status.dev(),
        ino: status.ino(),
        size: status.size(),
        mtime: (status.mtime(), status.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let file = dir.join(name);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_name_means_the_file_found_at_start_and_nothing_else() {
        let bin = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (bin, root) = (bin.path(), root.path().to_owned());
        let tool = program(bin, "tool", 0o755);
        program(bin, "python3", 0o755);
        program(bin, "loose", 0o777);
        program(bin, "plain", 0o644);
        program(&root, "planted", 0o755);
        std::os::unix::fs::symlink(root.join("planted"), bin.join("link")).unwrap();
        let names = [
            "tool", "python", "loose", "plain", "planted", "link", "../tool", "gone",
        ];
        let settings = Settings {
            search_path: vec![root.clone(), bin.to_owned()],
            write_roots: vec![root],
            ..Settings::default()
        };
        let list = Programs::look_up(&names.map(str::to_owned), &settings);

        assert_eq!(list.get("tool").unwrap().path, tool);
        assert_eq!(list.get("python").unwrap().path, bin.join("python3"));
        assert!(list.get(tool.to_str().unwrap()).is_ok());
        for asked in [
            "loose",
            "plain",
            "planted",
            "link",
            "../tool",
            "gone",
            "other",
            "",
            "./tool",
            "python3",
            "/proc/self/root/bin/sh",
            "TOOL",
            "tool ",
            "tool\0",
        ] {
            let error = list.get(asked).unwrap_err();
            assert!(matches!(error, Error::CommandDenied { .. }), "{asked:?}");
        }
        let reason = |name: &str| list.get(name).unwrap_err().to_string();
        assert!(reason("loose").contains("everyone"), "{}", reason("loose"));
        assert!(
            reason("link").contains("commands can write"),
            "{}",
            reason("link")
        );
    }

    #[test]
    fn every_program_is_found_as_a_shell_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (broken, first, second) = (
            dir.path().join("broken"),
            dir.path().join("first"),
            dir.path().join("second"),
        );
        for dir in [&broken, &first, &second] {
            std::fs::create_dir(dir).unwrap();
        }
        std::os::unix::fs::symlink("/no/such/python", broken.join("tool")).unwrap();
        std::fs::create_dir(broken.join("other")).unwrap();
        program(&first, "tool", 0o755);
        program(&first, "plain", 0o644);
        program(&second, "tool", 0o755);
        program(&second, "plain", 0o755);
        program(&second, "other", 0o777);
        program(&second, "python3", 0o755);
        let path = [broken, first.clone(), second.clone()];
        let find = |asked: &str| find_program(asked, &first, &path).map(|program| program.path);
        let absolute = second.join("tool").display().to_string();
        for (asked, wanted) in [
            ("tool", first.join("tool")),
            ("plain", second.join("plain")),
            ("other", second.join("other")),
            ("python", second.join("python3")),
            ("./tool", first.join("./tool")),
            ("../second/tool", first.join("../second/tool")),
            (absolute.as_str(), second.join("tool")),
        ] {
            assert_eq!(find(asked).unwrap(), wanted, "{asked}");
        }
        for asked in [
            "", ".", "..", "gone", "./plain", "./gone", "/", "tool\0", "tool ",
        ] {
            let error = find(asked).unwrap_err();
            assert!(matches!(error, Error::CommandDenied { .. }), "{asked:?}");
        }
    }

    #[test]
    fn a_program_that_was_exchanged_is_not_started() {
        let bin = tempfile::tempdir().unwrap();
        program(bin.path(), "tool", 0o755);
        let settings = Settings {
            search_path: vec![bin.path().to_owned()],
            ..Settings::default()
        };
        let list = Programs::look_up(&["tool".to_owned()], &settings);
        let tool = list.get("tool").unwrap();
        assert!(tool.check().is_ok());
        std::fs::remove_file(&tool.path).unwrap();
        assert!(tool.check().is_err());
        program(bin.path(), "tool", 0o755);
        std::fs::write(&tool.path, "#!/bin/sh\nexit 1\n").unwrap();
        assert!(tool.check().is_err());
    }
}
