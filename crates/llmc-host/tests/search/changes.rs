//! Random files and random changes of them, as programs make them.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};

/// Another seed gives other numbers.
const SEED_ENV: &str = "LLMC_SEARCH_SEED";
/// Files that stay open for a later write.
const MAX_HELD_FILES: usize = 8;

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(salt: u64) -> Random {
        let seed = std::env::var(SEED_ENV).ok();
        let seed: u64 = seed.map_or(1, |text| text.parse().unwrap());
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    pub(crate) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

pub(crate) const WORDS: &[&str] = &[
    "alpha",
    "Beta",
    "gamma_ray",
    "DELTA",
    "needle",
    "stra\u{df}e",
    "\u{212a}elvin",
    "\u{17f}hort",
    "fn",
    "x",
    "return 0;",
    "foo(bar)",
    "\u{e9}clair",
    "\u{c9}CLAIR",
    "\u{65e5}\u{672c}",
    "aXb",
    "tab\there",
    "kick",
    "sick",
];
pub(crate) const DIRS: &[&str] = &[
    "",
    "src",
    "src/deep",
    "src/deep/er",
    "docs",
    ".hid",
    "skip",
    "a b",
];
const NAMES: &[&str] = &[
    "a.rs",
    "b.rs",
    "c.txt",
    "d",
    ".dot",
    "skipped.log",
    "e.md",
    "\u{e4}.rs",
    "main.c",
    "Makefile",
    "\u{65e5}\u{672c}\u{8a9e}.rs",
    "\u{645}\u{631}\u{62d}\u{628}\u{627}.txt",
    "\u{1f600} e\u{301}.rs",
];

/// Bytes of a file: text in several encodings, binary, long, empty.
pub(crate) fn content(random: &mut Random) -> Vec<u8> {
    let lines = match random.below(12) {
        0 => 0,
        1 => 9000,
        _ => random.below(12),
    };
    let mut text = String::new();
    for _ in 0..lines {
        for _ in 0..random.below(5) {
            text.push_str(random.pick(WORDS));
            text.push_str(random.pick(&[" ", "", "\t", ".", "_"]));
        }
        text.push_str(random.pick(&["\n", "\r\n", "\n"]));
    }
    match random.below(14) {
        0 => encoded(&text, u16::to_le_bytes, &[0xff, 0xfe]),
        1 => encoded(&text, u16::to_be_bytes, &[0xfe, 0xff]),
        2 => [b"\xef\xbb\xbf", text.as_bytes()].concat(),
        // Latin-1, and bytes that are no text at all.
        3 => text
            .chars()
            .map(|c| c as u32 as u8)
            .filter(|byte| *byte != 0)
            .collect(),
        4 => [text.as_bytes(), b"\xff\xfe\x80needle\xc3\n"].concat(),
        5 => [text.as_bytes(), b"\0needle\n"].concat(),
        6 => encoded(&format!("{text}\0"), u16::to_le_bytes, &[0xff, 0xfe]),
        7 => [b"\xff\xfe".as_slice(), b"n\0e\0e\0"].concat(),
        _ => text.into_bytes(),
    }
}

fn encoded(text: &str, bytes: impl Fn(u16) -> [u8; 2], bom: &[u8]) -> Vec<u8> {
    bom.iter()
        .copied()
        .chain(text.encode_utf16().flat_map(bytes))
        .collect()
}

pub(crate) fn some_path(root: &Path, random: &mut Random) -> PathBuf {
    root.join(random.pick(DIRS)).join(random.pick(NAMES))
}

/// Which changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Files get second names in watched folders only, and none is written through a descriptor that is kept.
    SecondNames,
    /// Files are written through descriptors that are kept, and get no second names.
    KeptFiles,
    /// Also those that the kernel does not report for the name that is watched.
    Unreported,
}

/// Changes files of a workspace.
pub(crate) struct Changer {
    root: PathBuf,
    changes: Changes,
    random: Random,
    /// Open files, which may have other names by now, or none.
    held: Vec<File>,
}

impl Changer {
    pub(crate) fn new(root: PathBuf, changes: Changes, random: Random) -> Changer {
        Changer {
            root,
            changes,
            random,
            held: Vec::new(),
        }
    }

    /// A folder that no watch sees: hidden, ignored or outside the workspace.
    fn unwatched(&mut self) -> PathBuf {
        let dir = match self.random.below(3) {
            0 => self.root.join(".hid"),
            1 => self.root.join("skip"),
            _ => self.root.parent().unwrap().join("outside"),
        };
        let _ = fs::create_dir_all(&dir);
        dir
    }

    /// One change. Whatever cannot be done is not done.
    fn change(&mut self) {
        let path = some_path(&self.root, &mut self.random);
        match self.random.below(27) {
            0..=8 => {
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = fs::write(&path, content(&mut self.random));
            }
            9 | 10 => {
                let _ = fs::remove_file(&path);
            }
            11 | 12 => {
                let _ = fs::rename(&path, some_path(&self.root, &mut self.random));
            }
            13 => {
                let [old, new] = [0; 2].map(|_| self.root.join(self.random.pick(DIRS)));
                let _ = fs::rename(old, new);
            }
            14 => {
                let _ = fs::remove_dir_all(self.root.join(self.random.pick(&DIRS[1..])));
            }
            15 => self.change_rules(),
            16 => self.write_same_length(&path),
            17..=19 => self.write_through_another_name(&path),
            20 => {
                let _ = std::os::unix::fs::symlink(self.random.pick(NAMES), &path);
            }
            21 => {
                if let Ok(mut file) = OpenOptions::new().append(true).open(&path) {
                    let _ = file.write_all(b"needle more\n");
                }
            }
            22 => {
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
            }
            23 => self.hold_or_write(&path),
            24 => {
                let length = self.random.below(40) as u64;
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    let _ = file.set_len(length);
                }
            }
            25 => self.move_in_or_out(),
            _ => {
                let odd = self.root.join("src").join(OsStr::from_bytes(b"odd\xff.rs"));
                let _ = fs::write(odd, content(&mut self.random));
            }
        }
    }

    fn change_rules(&mut self) {
        let names = [".gitignore", ".ignore", ".git/info/exclude"];
        let rules = self.root.join(self.random.pick(DIRS));
        let rules = rules.join(self.random.pick(&names));
        let texts = ["skip/\n*.log\n", "*.rs\n!a.rs\n", "", "/docs\n", "deep\n"];
        let text = self.random.pick(&texts);
        if self.changes == Changes::Unreported && self.random.one_in(3) {
            // Through a name that is not watched.
            let other = self.unwatched().join("rules");
            let _ = fs::remove_file(&other);
            let _ = fs::hard_link(rules, &other);
            let _ = fs::write(other, text);
            return;
        }
        let _ = fs::create_dir_all(rules.parent().unwrap());
        let _ = fs::write(rules, text);
    }

    /// The same length and the same time.
    fn write_same_length(&mut self, path: &Path) {
        if let Ok(mut file) = OpenOptions::new().write(true).open(path) {
            let found = file.metadata().unwrap();
            let text = "needle".repeat(found.len() as usize / 6 + 1);
            let _ = file.write_all(&text.as_bytes()[..found.len() as usize]);
            file.set_modified(found.modified().unwrap()).unwrap();
        }
    }

    /// Makes a second name of a file, or takes one that is there, and changes the file through it.
    fn write_through_another_name(&mut self, path: &Path) {
        let name = path.file_name().unwrap();
        let place = match self.changes {
            Changes::SecondNames => 0,
            Changes::KeptFiles => return,
            Changes::Unreported => self.random.below(3),
        };
        let other = match place {
            0 => path.with_file_name(self.random.pick(NAMES)),
            _ => self.unwatched().join(name),
        };
        let _ = fs::hard_link(path, &other);
        if self.random.one_in(2) {
            let _ = fs::write(&other, content(&mut self.random));
        }
        if self.random.one_in(2) {
            let _ = fs::remove_file(&other);
        }
    }

    /// Moves a folder, with what is in it, out of the workspace, or back.
    fn move_in_or_out(&mut self) {
        let outside = self.root.parent().unwrap().join("moved");
        let inside = self.root.join(self.random.pick(&DIRS[1..]));
        if fs::rename(&outside, &inside).is_err() {
            let _ = fs::rename(&inside, &outside);
        }
    }

    /// Opens a file, makes its name another one, or writes to one that was opened before.
    fn hold_or_write(&mut self, path: &Path) {
        if self.changes == Changes::SecondNames {
            return;
        }
        if self.held.len() < MAX_HELD_FILES
            && let Ok(file) = OpenOptions::new().write(true).open(path)
        {
            self.held.push(file);
            let other = path.with_file_name(self.random.pick(NAMES));
            // The file keeps what it was opened by, which then has no name.
            if self.changes == Changes::Unreported && fs::hard_link(path, other).is_ok() {
                let _ = fs::remove_file(path);
            }
        }
        if !self.held.is_empty() {
            let at = self.random.below(self.held.len());
            let bytes = content(&mut self.random);
            let file = &mut self.held[at];
            let _ = file.rewind();
            let _ = file.write_all(&bytes);
            if self.random.one_in(4) {
                self.held.remove(at);
            }
        }
    }

    /// Makes as many changes as it is told to, and says when they are done.
    pub(crate) fn work(mut self, orders: &Receiver<usize>, done: &Sender<()>) {
        while let Ok(count) = orders.recv() {
            (0..count).for_each(|_| self.change());
            let _ = done.send(());
        }
    }
}
