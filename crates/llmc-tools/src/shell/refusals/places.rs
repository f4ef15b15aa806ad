//! Files, folders and sockets that the boundary shows otherwise, or not for writing.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use llmc_exec::{BoundaryFacts, HiddenFact, PlaceRule};
use llmc_host::is_protected_name;
use rustix::process::geteuid;

use super::cause::{Cause, Refusal};
use super::errno::Errno;
use super::host::{is_socket, may_connect, may_open_for_writing, may_read, may_write, real_path};
use super::paths::candidates;
use super::{MAX_COMMAND_BYTES, Search, clipped};

/// Places of the machine in whose stead commands have their own.
const SHARED_DIRS: [&str; 3] = ["/tmp", "/dev/shm", "/run"];
/// Git's small files have one line.
const MAX_POINTER_BYTES: u64 = 4096;
/// Commands that print their words and open nothing.
const PRINTING: [&str; 3] = ["echo ", "printf ", "git commit"];
/// Words of a command that sets the mode of files, how a mode in letters asks for a set-id bit, and how such bits are shown.
const MODE_WORDS: [&str; 3] = ["chmod", "install", "mode"];
const SET_ID_SUFFIX: &str = "+s";
const SHOWN_SET_ID: [&str; 2] = ["rws", "r-s"];

impl Search<'_> {
    /// A place that the user may write and commands may not, named in the line, in those before it, or in the command.
    pub(super) fn read_only(&self, line: &str, before: &[&str]) -> Option<Refusal> {
        let in_line = |line: &&str| {
            candidates(line)
                .into_iter()
                .find_map(|name| self.read_only_name(name))
        };
        if let Some(found) = in_line(&line) {
            return Some(found);
        }
        if let Some(found) = self.other_tree(line) {
            return Some(found);
        }
        // A line that names a place which commands may write tells of another fault.
        if self.names_writable(line) || self.prints(Errno::ReadOnly) {
            return None;
        }
        let before = before.iter().find_map(in_line);
        before.or_else(|| {
            let mut words = self.words.iter();
            words.find_map(|word| self.read_only_name(word))
        })
    }

    /// A private directory of another working tree, in the repository that they share.
    fn other_tree(&self, line: &str) -> Option<Refusal> {
        let places = candidates(line)
            .into_iter()
            .flat_map(|name| self.base.places(name));
        let mut private = places.filter_map(|place| {
            let mut dirs = place.ancestors();
            let is_private =
                |dir: &&Path| dir.parent().is_some_and(|dir| dir.ends_with("worktrees"));
            dirs.find(is_private).map(Path::to_owned)
        });
        private.find_map(|private| {
            let tree = tree_of(&private)?;
            let allow = format!("--write {}", self.base.shell_word(&tree));
            let (private, tree) = (self.base.shown(&private), self.base.shown(&tree));
            let subject = format!("{private} (of the working tree {tree})");
            let refusal = Refusal::new(Cause::ReadOnlyPlace, subject);
            Some(refusal.allowed_by(allow))
        })
    }

    /// A folder that could not be made though the one above it is there: Node's error for that is "no such file". Its package
    /// manager makes those above as well.
    pub(super) fn missing_folder(&self, line: &str) -> Option<Refusal> {
        if !line.contains("mkdir '") {
            return None;
        }
        let is_npm = line.starts_with("npm ");
        let names = candidates(line).into_iter();
        let mut places = names.flat_map(|name| self.base.places(name));
        places.find_map(|path| {
            let missing = path.ancestors().take_while(|dir| !dir.exists());
            let first = missing.last().filter(|first| is_npm || *first == path)?;
            self.read_only_place(first)
        })
    }

    fn names_writable(&self, line: &str) -> bool {
        let is_writable = |path: PathBuf| {
            let real = real_path(&path);
            real.exists() && self.facts.rule(&real) == PlaceRule::Writable
        };
        candidates(line)
            .into_iter()
            .filter(|name| !name.contains(' '))
            .flat_map(|name| self.base.places(name))
            .any(is_writable)
    }

    fn read_only_name(&self, name: &str) -> Option<Refusal> {
        let mut places = self.base.places(name).into_iter();
        places.find_map(|path| self.read_only_place(&path))
    }

    fn read_only_place(&self, path: &Path) -> Option<Refusal> {
        let real = real_path(path);
        if !may_write(&real) {
            return None;
        }
        if let Some(hidden) = self.hidden_at(&real) {
            return Some(match hidden.is_settings {
                true => Refusal::new(Cause::UserSettings, self.base.shown(&real)),
                false => self.hidden_refusal(&real, hidden),
            });
        }
        if self.is_protected(&real) {
            return Some(Refusal::new(Cause::Protected, self.named(path, &real)));
        }
        if self.facts.rule(&real) != PlaceRule::ReadOnly {
            return None;
        }
        if self.is_settings(&real) {
            return Some(Refusal::new(Cause::UserSettings, self.named(path, &real)));
        }
        Some(self.read_only_refusal(path, &real))
    }

    fn read_only_refusal(&self, path: &Path, real: &Path) -> Refusal {
        let home = self.base.home.as_deref();
        // A folder that is to hold many things, unless that is the whole home directory.
        let allowed = match (real.exists(), real.parent()) {
            (false, Some(dir)) if Some(dir) != home => dir,
            _ => real,
        };
        let allow = format!("--write {}", self.base.shell_word(allowed));
        Refusal::new(Cause::ReadOnlyPlace, self.named(path, real)).allowed_by(allow)
    }

    /// A path, and where it leads if a link on the way leads elsewhere.
    fn named(&self, path: &Path, real: &Path) -> String {
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|status| status.is_symlink());
        let given =
            real_path(path.parent().unwrap_or(path)).join(path.file_name().unwrap_or_default());
        let workspace = self.ended.cwd;
        let leads_out = path.starts_with(workspace)
            && !real.starts_with(workspace)
            && !path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        match is_link || leads_out {
            true if given != real || leads_out => {
                let shown = path.strip_prefix(workspace).unwrap_or(path);
                format!("{} (a link to {})", shown.display(), self.base.shown(real))
            }
            _ => self.base.shown(real),
        }
    }

    /// Where no mounts are, Landlock refuses with the error of file permissions.
    pub(super) fn refused_by_landlock(&self, line: &str) -> Option<Refusal> {
        let mut places = candidates(line)
            .into_iter()
            .flat_map(|name| self.base.places(name));
        places.find_map(|path| {
            let real = real_path(&path);
            match self.facts.rule(&real) {
                PlaceRule::Unreadable if may_read(&real) => {
                    Some(Refusal::new(Cause::Unreadable, self.base.shown(&real)))
                }
                PlaceRule::ReadOnly if !self.facts.level.mountns && may_open_for_writing(&real) => {
                    Some(self.read_only_refusal(&path, &real))
                }
                _ => None,
            }
        })
    }

    /// The hidden place that a path is or lies in.
    fn hidden_at(&self, real: &Path) -> Option<&HiddenFact> {
        let mut hidden = self.hidden.iter();
        hidden.find(|place| real.starts_with(&place.path))
    }

    /// Whether a place that holds credentials or settings is, or would be, here or below: the file need not be there yet.
    fn is_settings(&self, real: &Path) -> bool {
        let Some(home) = &self.base.home else {
            return false;
        };
        let mut patterns = self.facts.settings.hidden.iter();
        let inside = |pattern: &&String| {
            let place = pattern.strip_prefix("~/").map(|name| home.join(name));
            place.is_some_and(|place| {
                real.starts_with(&place)
                    || (place.starts_with(real) && real != home.as_path() && !real.exists())
            })
        };
        patterns.any(|pattern| inside(&pattern))
    }

    /// A protected name of the server, in a place that commands may write.
    fn is_protected(&self, real: &Path) -> bool {
        if self.facts.rule(real) != PlaceRule::Writable {
            return false;
        }
        let is_name = real
            .file_name()
            .is_some_and(|name| name != ".git" && is_protected_name(name.as_encoded_bytes()));
        let mut files = self.facts.settings.protected.iter();
        is_name || files.any(|file| file == real)
    }

    /// A credential that is there, and hidden.
    pub(super) fn hidden_place(&self, line: &str) -> Option<Refusal> {
        let mut places = candidates(line)
            .into_iter()
            .flat_map(|name| self.base.places(name));
        places.find_map(|path| {
            let real = real_path(&path);
            let hidden = self.hidden_at(&real).filter(|hidden| !hidden.is_settings)?;
            may_read(&real).then(|| self.hidden_refusal(&real, hidden))
        })
    }

    pub(super) fn hidden_refusal(&self, real: &Path, hidden: &HiddenFact) -> Refusal {
        let allow = format!("--read {}", self.base.shell_word(&hidden.path));
        Refusal::new(Cause::Hidden, self.base.shown(real)).allowed_by(allow)
    }

    /// A socket of a program outside the session, to which the user may connect.
    pub(super) fn host_socket(&self, line: &str, before: &[&str]) -> Option<Refusal> {
        if !self.facts.level.mountns && self.facts.level.landlock.is_none() {
            return None;
        }
        let lines = std::iter::once(line).chain(before.iter().copied());
        let mut places = lines
            .flat_map(candidates)
            .flat_map(|name| self.base.places(name));
        places.find_map(|path| {
            if !is_socket(&path) {
                return None;
            }
            let real = real_path(&path);
            let is_refused = may_connect(&real) && self.facts.is_host_socket(&real);
            is_refused.then(|| self.socket_refusal(&real))
        })
    }

    pub(super) fn socket_refusal(&self, real: &Path) -> Refusal {
        let allow = format!("--socket {}", self.base.shell_word(real));
        Refusal::new(Cause::HostSocket, self.base.shown(real)).allowed_by(allow)
    }

    /// Something in a folder of which commands have their own: the user's `/tmp`, a device.
    pub(super) fn own_dir(&self, line: &str) -> Option<Refusal> {
        let mut names = candidates(line)
            .into_iter()
            .filter(|name| name.starts_with('/'));
        names.find_map(|name| {
            let real = real_path(Path::new(name));
            let status = real.symlink_metadata().ok()?;
            if self.facts.rule(&real) != PlaceRule::Own
                || real.parent().is_none()
                || !may_read(&real)
            {
                return None;
            }
            let kind = status.file_type();
            let shown = self.base.shown(&real);
            if kind.is_char_device() || kind.is_block_device() {
                return Some(Refusal::new(Cause::Device, shown));
            }
            let is_shared = SHARED_DIRS
                .iter()
                .any(|dir| real.starts_with(dir) && real != Path::new(dir));
            let allow = format!("--read {}", self.base.shell_word(&real));
            is_shared.then(|| Refusal::new(Cause::OwnTmp, shown).allowed_by(allow))
        })
    }

    /// A protected name or a git directory, which is a mount and so cannot be moved, replaced or removed.
    pub(super) fn mount_point(&self, line: &str) -> Option<Refusal> {
        if !self.facts.level.mountns {
            return None;
        }
        let names = candidates(line).into_iter();
        let in_line = names.flat_map(|name| self.base.places(name));
        let mut places = in_line.chain(self.places_in_command());
        places.find_map(|path| {
            let real = real_path(&path);
            if real.file_name().is_some_and(|name| name == ".git") && real.exists() {
                return Some(Refusal::new(Cause::GitMount, ""));
            }
            let is_refused = real.exists() && self.is_protected(&real);
            is_refused.then(|| Refusal::new(Cause::Protected, self.base.shown(&real)))
        })
    }

    /// A move or a hard link between places that are one file system in the user's shell.
    pub(super) fn cross_device(&self, line: &str) -> Option<Refusal> {
        if !self.facts.level.mountns {
            return None;
        }
        let names = candidates(line).into_iter();
        let in_line = names.flat_map(|name| self.base.places(name));
        let places: Vec<PathBuf> = in_line
            .chain(self.places_in_command())
            .map(|path| real_path(&path))
            .collect();
        let is_git = |path: &PathBuf| {
            path.components().any(|part| part.as_os_str() == ".git") && path.exists()
        };
        if places.iter().any(is_git) || self.words.iter().any(|word| word == "git") {
            return Some(Refusal::new(Cause::GitMount, ""));
        }
        let here = self.ended.cwd.metadata().ok()?.dev();
        let moved = places.iter().find(|path| {
            let status = path.symlink_metadata();
            status.is_ok_and(|status| status.dev() == here && !status.is_dir())
                && self.facts.rule(path) != PlaceRule::Writable
        })?;
        Some(Refusal::new(Cause::Mounts, self.base.shown(moved)))
    }

    /// The user's own file in a place that commands may write, which only a set-id bit can make refused.
    pub(super) fn set_id_bits(&self, line: &str) -> Option<Refusal> {
        if !self.facts.level.seccomp {
            return None;
        }
        let is_octal = |word: &str| {
            let digits = word.trim_start_matches("0o").trim_start_matches('0');
            let sets_mode = MODE_WORDS
                .iter()
                .any(|sign| self.ended.command.contains(sign));
            sets_mode
                && digits.len() == 4
                && digits.starts_with(['2', '4', '6'])
                && digits.bytes().all(|b| (b'0'..b'8').contains(&b))
        };
        let is_set = |word: &String| word.ends_with(SET_ID_SUFFIX) || is_octal(word);
        if !self.words.iter().any(is_set) && !SHOWN_SET_ID.iter().any(|bits| line.contains(bits)) {
            return None;
        }
        let names = candidates(line).into_iter();
        let places: Vec<PathBuf> = names.flat_map(|name| self.base.places(name)).collect();
        let is_own = |path: &&PathBuf| {
            path.metadata()
                .is_ok_and(|status| status.uid() == geteuid().as_raw())
        };
        if let Some(found) = places.iter().find(is_own) {
            let is_refused = self.facts.rule(&real_path(found)) != PlaceRule::ReadOnly;
            let refusal = || Refusal::new(Cause::SetIdBits, self.base.shown(found));
            return is_refused.then(refusal);
        }
        // What was being made may be gone again, or in the session's `/tmp`.
        let is_foreign = places.iter().any(|path| path.exists());
        let mut names = candidates(line).into_iter();
        let name = names.find(|name| !is_foreign && !name.contains(' '))?;
        Some(Refusal::new(Cause::SetIdBits, name))
    }

    /// A full `/tmp` of the session, where the machine's has room.
    pub(super) fn full_tmp(&self, line: &str) -> Option<Refusal> {
        const ROOM_BYTES: u64 = 64 << 20;
        let in_line = candidates(line).into_iter().map(str::to_owned);
        let mut names = in_line.chain(self.words.iter().cloned());
        let dir = names.find_map(|name| {
            let mut dirs = ["/tmp", "/dev/shm"].into_iter();
            dirs.find(|dir| Path::new(&name).starts_with(dir))
        })?;
        let has_room = rustix::fs::statvfs(dir)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > ROOM_BYTES);
        let is_own = self.facts.rule(Path::new(dir)) == PlaceRule::Own;
        let bytes = self.facts.settings.limits.tmp_bytes;
        let subject = format!("{dir}, which holds at most {} MiB,", bytes >> 20);
        (is_own && has_room).then(|| Refusal::new(Cause::TmpFull, subject))
    }
}

/// Whether a command may name a hidden place, by its text alone.
pub(super) fn may_name_hidden(command: &str, facts: &BoundaryFacts<'_>) -> bool {
    let is_out_of_sight = facts.level.mountns || facts.level.landlock.is_some();
    let mut places = facts.settings.hidden.iter();
    let command = clipped(command, MAX_COMMAND_BYTES);
    is_out_of_sight
        && places.any(|place| {
            let name = place.trim_start_matches("~/").trim_end_matches('*');
            command.contains(name)
        })
}

/// Hidden places that the command itself names: it may have found nothing there and said nothing about it.
pub(super) fn named_hidden(search: &Search<'_>) -> Vec<Refusal> {
    let command = search.ended.command.trim_start();
    if PRINTING.iter().any(|start| command.starts_with(start)) && !command.contains('>') {
        return Vec::new();
    }
    let mut found = Vec::new();
    let is_path = |word: &&String| word.contains('/') && may_name_hidden(word, &search.facts);
    for word in search.words.iter().filter(is_path) {
        for path in search.base.places(word) {
            let real = real_path(&path);
            let is_there = may_read(&real);
            // What a command seems to have made in a hidden folder is nowhere.
            if let Some(hidden) = search.hidden_at(&real)
                && (is_there || (search.has_succeeded() && !real.exists()))
            {
                found.push(match hidden.is_settings {
                    false => search.hidden_refusal(&real, hidden),
                    true if hidden.has_secrets => {
                        Refusal::new(Cause::Redacted, search.base.shown(&real))
                    }
                    true => continue,
                });
            }
        }
    }
    found
}

/// The working tree whose private directory this is, as git has written it there.
fn tree_of(private: &Path) -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a small file of git's, from which only a path is shown"
    )]
    let file = std::fs::File::open(private.join("gitdir")).ok()?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_POINTER_BYTES), &mut text)
        .ok()?;
    let tree = Path::new(text.trim_end()).parent()?;
    tree.is_absolute().then(|| tree.to_owned())
}
