use std::time::{Duration, Instant};

use super::budget::ParseClock;
use super::definitions::parse;
use super::*;

mod more_languages;
mod scopes;
mod uses;

/// The definitions as `line kind name`, one a line.
fn found(path: &str, source: &str) -> Vec<String> {
    let language = Language::detect(path, source).expect("a known language");
    definitions(
        language,
        source,
        &mut ParseBudget::new(1 << 20, Duration::from_secs(20)),
    )
    .into_iter()
    .map(|found| format!("{} {:?} {}", found.line, found.kind, found.name))
    .collect()
}

#[track_caller]
fn check(path: &str, source: &str, expected: &[&str]) {
    assert_eq!(found(path, source), expected, "{path}");
}

#[test]
fn rust() {
    check(
        "src/pool.rs",
        "mod wire;
/// A pool.
#[derive(Debug)]
pub struct Pool<T> {
    idle: Vec<T>,
}
impl<T> Pool<T> {
    const SIZE: usize = 4;
    pub async fn take(
        &mut self,
    ) -> Option<T> {
        let idle = self.idle.pop();
        idle
    }
}
pub(crate) enum State { Open, Closed(u8) }
trait Source { type Item; fn next(&mut self); }
macro_rules! retry { () => {} }
static LIMIT: u8 = 1;
mod tests { fn inner() {} }
",
        &[
            "1 Declaration wire",
            "4 Struct Pool",
            "5 Field idle",
            "7 Impl Pool",
            "8 Constant SIZE",
            "9 Function take",
            "16 Enum State",
            "16 Variant Open",
            "16 Variant Closed",
            "17 Interface Source",
            "17 Type Item",
            "17 Function next",
            "18 Macro retry",
            "19 Variable LIMIT",
            "20 Module tests",
            "20 Function inner",
        ],
    );
}

#[test]
fn items_that_a_rust_macro_wraps() {
    check(
        "src/net.rs",
        "cfg_net! {
    /// Waits for a client.
    pub fn listen(at: &str) -> Socket {
        let port = parse(at);
        open! { port }
    }
    cfg_unix! {
        impl Socket { fn close(self) {} }
    }
}
impl Socket {
    cfg_io! {
        pub fn send(&self) {}
    }
}
table! { a => 1, fn, b => 2 }
fn after() {}
",
        &[
            "3 Function listen",
            "8 Impl Socket",
            "8 Function close",
            "11 Impl Socket",
            "13 Function send",
            "17 Function after",
        ],
    );
    let source = "cfg_net! { fn listen() { accept(1); } }\n";
    let found = analyze(Language::Rust, source, &mut ParseBudget::default()).expect("parsed");
    let uses: Vec<_> = found
        .references
        .iter()
        .map(|found| (found.name.as_str(), found.kind))
        .collect();
    assert_eq!(
        uses,
        [
            ("cfg_net", ReferenceKind::Call),
            ("accept", ReferenceKind::Call)
        ]
    );
}

#[test]
fn python() {
    check(
        "app/db.py",
        "TIMEOUT = 30

@cached
class Pool(Base):
    size: int = 4

    @property
    def idle(self):
        here = 1
        def inner():
            pass
        return here

async def connect(url):
    return 'def fake():'
",
        &[
            "1 Variable TIMEOUT",
            "4 Class Pool",
            "5 Variable size",
            "8 Function idle",
            "10 Function inner",
            "14 Function connect",
        ],
    );
}

#[test]
fn javascript() {
    check(
        "web/cart.js",
        "export const LIMIT = 3;
const total = (items) => { const local = 1; return local; };
class Cart { #items = []; static open = true; add(item) {} }
function* walk() {}
exports.save = async function () {};
const api = { load: () => 1, port: 80 };
",
        &[
            "1 Variable LIMIT",
            "2 Function total",
            "3 Class Cart",
            "3 Field #items",
            "3 Field open",
            "3 Function add",
            "4 Function walk",
            "5 Function save",
            "6 Variable api",
            "6 Function load",
        ],
    );
}

#[cfg(feature = "heavy-grammars")]
#[test]
fn typescript() {
    check(
        "web/cart.ts",
        "export interface Item { id: string; price(): number }
type Id = string;
enum Mode { Fast = 1 }
abstract class Cart<T> { private items: T[] = []; abstract sum(): number; }
declare function tax(n: number): number;
namespace Shop { export function open() {} }
",
        &[
            "1 Interface Item",
            "1 Field id",
            "1 Function price",
            "2 Type Id",
            "3 Enum Mode",
            "3 Variant Fast",
            "4 Class Cart",
            "4 Field items",
            "4 Function sum",
            "5 Declaration tax",
            "6 Module Shop",
            "6 Function open",
        ],
    );
    check(
        "web/view.tsx",
        "export const View = () => <div>{cart}</div>;\n",
        &["1 Function View"],
    );
}

#[test]
fn go_and_java() {
    check(
        "store.go",
        "package store
const Max = 3
type Store struct {
	items []string
}
type Reader interface { Read() error }
func (s *Store) Put(k string) { var local = 1; _ = local }
func New() *Store { return nil }
",
        &[
            "2 Constant Max",
            "3 Type Store",
            "4 Field items",
            "6 Type Reader",
            "6 Function Read",
            "7 Function Put",
            "8 Function New",
        ],
    );
    check(
        "Store.java",
        "public class Store<T> {
  private final int size = 1;
  @Override
  public void put(T item) { int local = 1; }
  Store() {}
}
enum Mode { FAST }
",
        &[
            "1 Class Store",
            "2 Field size",
            "4 Function put",
            "5 Function Store",
            "7 Enum Mode",
            "7 Variant FAST",
        ],
    );
}

#[test]
fn c() {
    check(
        "ring.c",
        "#define SIZE 16
typedef struct ring { int head; } ring_t;
static int
ring_push(struct ring *r, int v)
{
    int local = v;
    return local;
}
int ring_pop(struct ring *r);
static char *names[] = { 0 };
char **split(const char *s) { return 0; }
",
        &[
            "1 Macro SIZE",
            "2 Type ring_t",
            "2 Struct ring",
            "2 Field head",
            "4 Function ring_push",
            "9 Declaration ring_pop",
            "10 Variable names",
            "11 Function split",
        ],
    );
}

#[cfg(feature = "heavy-grammars")]
#[test]
fn heavy() {
    check(
        "ring.h",
        "namespace buf {
template <typename T> class Ring {
 public:
  ~Ring();
  void push(const T& v) { int x = 1; }
  int size_;
};
}
int buf::Ring<int>::pop() { return 0; }
",
        &[
            "1 Module buf",
            "2 Class Ring",
            "4 Declaration ~Ring",
            "5 Function push",
            "6 Field size_",
            "9 Function pop",
        ],
    );
    check(
        "Store.cs",
        "namespace Shop;
public class Store {
    private int size = 1;
    public string Name { get; set; }
    public async Task Put(int v) { var x = 1; }
}
",
        &[
            "1 Module Shop",
            "2 Class Store",
            "3 Field size",
            "4 Field Name",
            "5 Function Put",
        ],
    );
    check(
        "store.rb",
        "module Shop
  LIMIT = 3
  class Store < Base
    def put(item) = @items << item
    def self.open
      x = 1
    end
  end
end
",
        &[
            "1 Module Shop",
            "2 Constant LIMIT",
            "3 Class Store",
            "4 Function put",
            "5 Function open",
        ],
    );
    check(
        "store.php",
        "<html><?php
namespace Shop;
interface Openable { const A = 1; }
final class Store implements Openable {
    private int $size = 1;
    public function put($v): void {}
}
function helper() {}
",
        &[
            "2 Module Shop",
            "3 Interface Openable",
            "3 Constant A",
            "4 Class Store",
            "5 Field size",
            "6 Function put",
            "8 Function helper",
        ],
    );
}

#[test]
fn a_definition_begins_with_its_decorators_and_knows_its_body() {
    let source = "@app.route(
    '/x',
)
def show():
    pass
";
    let mut budget = ParseBudget::default();
    let found = definitions(Language::Python, source, &mut budget);
    let place = (
        found[0].first_line,
        found[0].line,
        found[0].end_line,
        found[0].body_line,
    );
    assert_eq!(place, (1, 4, 5, Some(5)));
}

#[test]
fn names_in_quoted_types() {
    let source = "def f(a: 'Pool', b: t.Optional[\"Conn\"]) -> 'list[Row]':\n    return 'Other'\n";
    let found = analyze(Language::Python, source, &mut ParseBudget::default()).expect("parsed");
    let names: Vec<&str> = found
        .references
        .iter()
        .map(|found| found.name.as_str())
        .collect();
    for name in ["Pool", "Conn", "Row"] {
        assert!(names.contains(&name), "{names:?}");
        let one = found.references.iter().find(|one| one.name == name);
        let start = one.expect("found").start;
        assert!(source[start..].starts_with(name), "{name}");
    }
    assert!(!names.contains(&"Other"), "{names:?}");
}

#[test]
fn what_qualifies_a_name() {
    let source = "fn a() { Pool :: open(); db.pool.take(); free() }";
    let mut budget = ParseBudget::default();
    let found = analyze(Language::Rust, source, &mut budget).expect("parsed");
    let of = |name: &str| {
        let reference = found
            .references
            .iter()
            .find(|found| found.name == name)
            .unwrap();
        reference.qualifier(source)
    };
    assert_eq!(of("open"), Some("Pool"));
    assert_eq!(of("take"), Some("pool"));
    assert_eq!(of("free"), None);
}

#[test]
fn bash_by_shebang() {
    check(
        "bin/deploy",
        "#!/usr/bin/env -S bash -e
ROOT=/srv
build() { local out=1; }
function publish { :; }
",
        &["2 Variable ROOT", "3 Function build", "4 Function publish"],
    );
}

#[test]
fn languages_by_name() {
    for (path, expected) in [
        ("a/b.RS", Some(Language::Rust)),
        ("x.C", Some(Language::Cpp)),
        ("x.h", Some(Language::C)),
        ("Rakefile", Some(Language::Ruby)),
        (".h", None),
        ("README", None),
        ("a.rs/notes", None),
        ("", None),
    ] {
        assert_eq!(Language::of_path(path), expected, "{path}");
    }
    for (line, expected) in [
        ("#!/bin/sh\n", Some(Language::Bash)),
        ("#!/usr/bin/python3.12 -u", Some(Language::Python)),
        ("#! /usr/bin/env FOO=1 node\n", Some(Language::JavaScript)),
        ("#!\n", None),
        ("#!/usr/bin/awk -f\n", None),
    ] {
        assert_eq!(Language::detect("run", line), expected, "{line}");
    }
}

#[test]
fn outline_keeps_the_shape_when_there_is_no_room() {
    let source = "pub struct Pool;

impl Pool {
    pub fn take(&self, wait: Duration) -> Option<Conn> {
        None
    }
}

fn helper() {}
";
    let whole = outline(Language::Rust, source, 10);
    assert_eq!(
        whole.lines,
        [
            "1  pub struct Pool",
            "3  impl Pool",
            "4    pub fn take(&self, wait: Duration) -> Option<Conn>",
            "9  fn helper()",
        ]
    );
    let small = outline(Language::Rust, source, 3);
    assert_eq!(small.lines.len(), 3);
    assert_eq!(small.lines[2], "9  fn helper()");
    assert_eq!(small.withheld, 1);
}

#[test]
fn used_up_effort_finds_nothing() {
    let mut budget = ParseBudget::new(10, Duration::from_secs(20));
    assert!(definitions(Language::Rust, "fn long_name() {}", &mut budget).is_empty());
    let mut budget = ParseBudget::new(1000, Duration::ZERO);
    assert!(definitions(Language::Rust, "fn a() {}", &mut budget).is_empty());
}

#[test]
fn a_parse_stops_at_its_deadline() {
    let nested = "(".repeat(300_000) + "{[<%`'\"";
    let start = Instant::now();
    for language in [
        Language::Rust,
        Language::Python,
        Language::JavaScript,
        Language::C,
    ] {
        let mut budget = ParseBudget::new(1 << 20, Duration::from_millis(50));
        definitions(language, &nested, &mut budget);
    }
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[test]
#[ignore = "a measurement"]
fn cost_of_parsing() {
    let source = include_str!("lib.rs").repeat(8);
    let budget = ParseBudget::new(1 << 30, Duration::from_secs(60));
    let grammar = Language::Rust.grammar().unwrap();
    let start = thread_cpu_time();
    let tree = parse(
        &grammar,
        &source,
        None,
        &ParseClock::start(budget.cpu_time()),
    );
    println!(
        "{} KB parsed in {:?}",
        source.len() / 1000,
        thread_cpu_time() - start
    );
    drop(tree);
    let start = thread_cpu_time();
    let found = definitions(Language::Rust, &source, &mut { budget });
    println!(
        "{} definitions in {:?}",
        found.len(),
        thread_cpu_time() - start
    );
}
