//! Uses through base classes, and uses of the name that mean something else.

use llmc_host::CancelToken;
use llmc_index::{LineageDirection, SymbolUses};

use crate::work::Work;

fn uses(fixture: &str, symbol: &str) -> SymbolUses {
    let work = Work::new(fixture);
    work.update();
    work.index
        .where_used(&work.roots, symbol, 1, &CancelToken::default())
        .unwrap()
}

/// The uses as `path:line confidence through`, in order.
fn sites(found: &SymbolUses) -> Vec<String> {
    let mut sites: Vec<String> = found
        .sites
        .iter()
        .map(|site| {
            let through = site.through.as_deref().unwrap_or("");
            let line = format!("{}:{} {:.2}", site.path, site.line, site.confidence);
            format!("{line} {through}").trim_end().to_owned()
        })
        .collect();
    sites.sort();
    sites
}

/// Where the uses went that are not listed, as `symbol path:line uses`.
fn elsewhere(found: &SymbolUses) -> Vec<String> {
    let definitions = found.elsewhere.definitions.iter();
    definitions
        .map(|one| format!("{} {} {}", one.symbol, one.at, one.uses))
        .collect()
}

const PARAMETERS: &str = "//- core.py
class Parameter:
    def hint(self): ...
    def show(self):
        return self.hint()
class Option(Parameter):
    def hint(self):
        return super().hint()
class Argument(Parameter): ...
class Other:
    def hint(self): ...
def one(parameter: Parameter): parameter.hint()
def two(argument: Argument): argument.hint()
def three(option: Option): option.hint()
def four(other: Other): other.hint()
def five(option): Parameter.hint(option)
def six(hint): hint()
";

#[test]
fn python_overrides_are_reached_through_the_base_class() {
    let found = uses(PARAMETERS, "Option.hint");
    assert_eq!(
        sites(&found),
        [
            "core.py:11 0.40 Parameter::hint",
            "core.py:13 0.95",
            "core.py:4 0.40 Parameter::hint",
        ]
    );
    // `super()`, an argument and an explicit class are known to be the base's own; the parameter is a local name.
    assert_eq!(
        elsewhere(&found),
        ["Parameter::hint core.py:2 3", "Other::hint core.py:10 1"]
    );
    assert_eq!(found.elsewhere.total, 5);
}

#[test]
fn uses_of_an_override_are_named_for_the_base() {
    let found = uses(PARAMETERS, "Parameter.hint");
    let expected = [
        "core.py:11",
        "core.py:12",
        "core.py:15",
        "core.py:4",
        "core.py:7",
    ];
    let expected: Vec<String> = expected.iter().map(|at| format!("{at} 0.95")).collect();
    assert_eq!(sites(&found), expected);
    assert_eq!(
        elsewhere(&found),
        ["Other::hint core.py:10 1", "Option::hint core.py:6 1"]
    );
    assert_eq!(found.elsewhere.total, 3);
}

#[test]
fn a_lineage_marks_callers_through_the_base_class() {
    let work = Work::new(PARAMETERS);
    work.update();
    let callers = LineageDirection::Callers;
    let stop = CancelToken::default();
    let found = work
        .index
        .lineage(&work.roots, "Option.hint", callers, 1, &stop)
        .unwrap();
    let nodes = found.nodes.iter();
    let nodes: Vec<(&str, Option<&str>)> = nodes
        .map(|node| (node.symbol.as_str(), node.through.as_deref()))
        .collect();
    assert_eq!(
        nodes,
        [
            ("three", None),
            ("Parameter::show", Some("Parameter::hint")),
            ("one", Some("Parameter::hint")),
        ]
    );
    assert_eq!(found.elsewhere.total, 5);
}

#[test]
fn rust_implementations_are_reached_through_the_trait() {
    let found = uses(
        "//- Cargo.toml
[package]
name = \"shop\"
//- src/lib.rs
pub trait Dated { fn year(&self) -> i32; }
pub struct Day;
impl Dated for Day { fn year(&self) -> i32 { 1 } }
pub struct Week;
impl Dated for Week { fn year(&self) -> i32 { 2 } }
pub fn any(dated: &dyn Dated) { dated.year(); }
pub fn day(day: &Day) { day.year(); }
pub fn week(week: &Week) { week.year(); }
",
        "Day::year",
    );
    assert_eq!(
        sites(&found),
        ["src/lib.rs:6 0.40 Dated::year", "src/lib.rs:7 0.95"]
    );
    assert_eq!(elsewhere(&found), ["Week::year src/lib.rs:5 1"]);
}

#[test]
fn scripts_reach_overrides_through_interfaces_and_types_of_the_language() {
    let fixture = "//- a.ts
export class Cache implements Map<string, string> {
  get(key: string) { return key }
}
export class Pool { get(key: string) { return key } }
const known: Map<string, string> = new Map()
known.get('a')
new Cache().get('b')
new Pool().get('c')
";
    let found = uses(fixture, "Cache::get");
    assert_eq!(sites(&found), ["a.ts:6 0.60 Map::get", "a.ts:7 0.95"]);
    assert_eq!(elsewhere(&found), ["Pool::get a.ts:4 1"]);
    let found = uses(fixture, "Pool::get");
    assert_eq!(sites(&found), ["a.ts:8 0.95"]);
    assert_eq!(found.elsewhere.total, 2);
}

#[test]
fn a_path_and_a_name_mean_the_function_of_that_file() {
    let fixture = "//- Cargo.toml
[package]
name = \"shop\"
//- src/lib.rs
pub struct Day { time: u32 }
pub fn format() {}
impl Day {
    pub fn format(&self) { format(); }
    pub fn time(&self) -> u32 { self.time }
}
pub fn all(day: &Day) { day.format(); }
pub fn now(day: &Day) -> u32 { day.time() }
";
    let found = uses(fixture, "src/lib.rs#format");
    assert_eq!(sites(&found), ["src/lib.rs:4 0.95"]);
    assert_eq!(elsewhere(&found), ["Day::format src/lib.rs:4 1"]);
    // A field has the name of a method: the line tells them apart.
    let found = uses(fixture, "Day::time");
    assert_eq!(sites(&found), ["src/lib.rs:8 0.95"]);
    assert_eq!(elsewhere(&found), ["Day::time src/lib.rs:1 1"]);
    let found = uses(fixture, "src/lib.rs:1#Day::time");
    assert_eq!(sites(&found), ["src/lib.rs:5 0.95"]);
}
