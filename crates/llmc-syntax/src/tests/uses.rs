//! Uses of names.

use super::*;

/// The references as `line kind name`, without mere mentions.
fn used(path: &str, source: &str) -> Vec<String> {
    let language = Language::detect(path, source).expect("a known language");
    let mut budget = ParseBudget::new(1 << 20, Duration::from_secs(20));
    let found = analyze(language, source, &mut budget).expect("parsed");
    let uses = found
        .references
        .iter()
        .filter(|found| found.kind != ReferenceKind::Mention)
        .map(|found| format!("{} {:?} {}", found.line, found.kind, found.name));
    uses.collect()
}

#[test]
fn uses_of_names() {
    for (path, source, expected) in [
        (
            "a.rs",
            "use std::fs::File;
impl Read for Pool { fn go(&self) { self.inner.take(); Pool::open(x); log!(\"open()\"); Conf { a: 1 }; } }
",
            &[
                "1 Import std",
                "1 Import fs",
                "1 Import File",
                "2 Inherit Read",
                "2 Call take",
                "2 Call open",
                "2 Call log",
                "2 Call Conf",
            ] as &[_],
        ),
        (
            "a.py",
            "from app.db import connect as c
class Pool(Base):
    @cached
    def go(self, other):
        # connect()
        return connect(self.url).close(other)
",
            &[
                "1 Import app",
                "1 Import db",
                "1 Import connect",
                "2 Inherit Base",
                "3 Call cached",
                "6 Call connect",
                "6 Call close",
            ],
        ),
        (
            "a.js",
            "import { load } from './x';
class A extends Base { go() { load(1); this.api.save(); new Cart(); } }
",
            &[
                "1 Import load",
                "2 Inherit Base",
                "2 Call load",
                "2 Call save",
                "2 Call Cart",
            ],
        ),
        (
            "a.go",
            "package a
func Go() { store.Put(1); helper(); _ = Conf{A: 1} }
",
            &["2 Call Put", "2 Call helper", "2 Call Conf"],
        ),
        (
            "A.java",
            "import a.b.Store;
class A extends Base implements Run { void go() { store.put(1); help(); new Store(); } }
",
            &[
                "1 Import Store",
                "2 Inherit Base",
                "2 Inherit Run",
                "2 Call put",
                "2 Call help",
                "2 Call Store",
            ],
        ),
        ("a.c", "int go(void) { return push(ring->head, 1); }\n", &["1 Call push"]),
        ("a.sh", "build() { make_all x; }\nbuild\n", &["1 Call make_all", "2 Call build"]),
    ] {
        assert_eq!(used(path, source), expected, "{path}");
    }
    #[cfg(feature = "heavy-grammars")]
    for (path, source, expected) in [
        (
            "a.rb",
            "class A < Base\n  def go = Store.open(help(1))\nend\n",
            &["1 Inherit Base", "2 Call open", "2 Call help"] as &[_],
        ),
        (
            "a.php",
            "<?php class A extends Base { function go() { help(1); $this->put(2); new Store(); } }\n",
            &[
                "1 Inherit Base",
                "1 Call help",
                "1 Call put",
                "1 Call Store",
            ],
        ),
        (
            "a.cs",
            "using A.B; class C : Base { void Go() { Help(1); store.Put(2); new Store(); } }\n",
            &[
                "1 Inherit Base",
                "1 Call Help",
                "1 Call Put",
                "1 Call Store",
            ],
        ),
        (
            "a.cpp",
            "class A : public Base { void go() { help(1); store->put(2); ns::make<int>(3); } };\n",
            &["1 Inherit Base", "1 Call help", "1 Call put", "1 Call make"],
        ),
        (
            "a.ts",
            "import { load } from './x';\nclass A implements Run { go() { load<number>(1); } }\n",
            &["1 Import load", "2 Inherit Run", "2 Call load"],
        ),
    ] {
        assert_eq!(used(path, source), expected, "{path}");
    }
}
