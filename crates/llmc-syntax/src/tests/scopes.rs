//! Scopes and what they bind.

use super::*;
use crate::{BindingKind, find_scopes};

/// The bindings as `kind name chain`, and the receivers as `chain . name`.
fn told(path: &str, source: &str) -> (Vec<String>, Vec<String>) {
    let language = Language::detect(path, source).expect("a known language");
    let mut budget = ParseBudget::new(1 << 20, Duration::from_secs(20));
    let found = find_scopes(language, source, &mut budget).expect("parsed");
    let bindings = found
        .bindings
        .iter()
        .map(|one| format!("{:?} {} {}", one.kind, one.name, one.chain));
    let receivers = found.receivers.iter().map(|one| {
        let name = source[one.start..].split(|c: char| !c.is_alphanumeric() && c != '_');
        format!("{} . {}", one.chain, name.into_iter().next().unwrap_or(""))
    });
    (bindings.collect(), receivers.collect())
}

#[test]
fn bindings_of_python() {
    let (bindings, receivers) = told(
        "a.py",
        "from .db import connect as c
class Pool(Base):
    def go(self, job: Optional[\"Job\"] = None, *rest) -> list[Conn]:
        self.last = await job.run(1)
        for one in rest: one.stop(now=1)
",
    );
    assert_eq!(
        bindings,
        [
            "Import c .db|connect",
            "Class Pool Base",
            "Function go <list,~Conn>",
            "Parameter self self",
            "Parameter job <Optional,~Job>",
            "Parameter rest ?",
            "Field last job.run()^",
            "Variable one rest[]",
        ]
    );
    assert_eq!(
        receivers,
        ["self . last", "job . run", "one . stop", " . now"]
    );
}

#[test]
fn bindings_of_rust() {
    let (bindings, receivers) = told(
        "a.rs",
        "use crate::net::{self, Conn as Wire, wire::*};
mod deep;
impl<T: Dial> Pool<T> {
    fn go(&self, job: &mut Vec<Job>) -> Result<Self> { let one = Wire::open(job)?; log!(one.name()); }
}
",
    );
    assert_eq!(
        bindings,
        [
            "Import net crate.net|",
            "Import Wire crate.net|Conn",
            "ImportAll * crate.net.wire",
            "Import deep mod.deep|",
            "Impl Pool ",
            "Variable T <Dial>",
            "Function go <Result,~Self>",
            "Parameter self <Self>",
            "Variable job <Vec,~Job>",
            "Variable one Wire.open()^",
        ]
    );
    assert_eq!(receivers, ["crate . net", "Wire . open", "one . name"]);
}

#[cfg(feature = "heavy-grammars")]
#[test]
fn bindings_of_typescript() {
    let (bindings, receivers) = told(
        "a.ts",
        "import load, { Conn as Wire } from './net'
export { Wire as Cable }
export class Pool<T extends Job> extends Base implements Dial {
  private last?: Map<string, Wire>
  get first(): Wire { return this.last!.get('a') }
  go({ one }: Opts) { return (await one).stop() ?? new Wire() }
}
",
    );
    assert_eq!(
        bindings,
        [
            "Import load ./net|default",
            "Import Wire ./net|Conn",
            "Export Cable |Wire",
            "Class Pool Base,Dial",
            "Variable T <Job>",
            "Field last <Map,~string,~Wire>",
            "Property first <Wire>",
            "Function go {Wire()|one^.stop()}",
            "Variable one <Opts>.one",
            "Parameter @0 <Opts>",
        ]
    );
    assert_eq!(receivers, ["this . last", "this.last . get", "one^ . stop"]);
}

#[cfg(feature = "heavy-grammars")]
#[test]
fn signatures_that_start_with_a_type_parameter_do_not_end_a_file() {
    let source = "interface Make extends Base {
  // one
  <T>(value: T): T
  // two
  <T>(name: string, value: T): Box<T>
}
export function after<T>(value: T) {
    return value as Make
}
";
    let (bindings, _) = told("a.ts", source);
    assert_eq!(
        bindings,
        [
            "Class Make Base",
            "Function () <T>",
            "Variable T ?",
            "Variable value <T>",
            "Parameter @0 <T>",
            "Function () <Box,~T>",
            "Variable T ?",
            "Variable name <string>",
            "Parameter @0 <string>",
            "Variable value <T>",
            "Parameter @1 <T>",
            "Function after <Make>",
            "Variable T ?",
            "Variable value <T>",
            "Parameter @0 <T>",
        ]
    );
}

#[test]
fn a_deep_source_ends() {
    let source = format!("x = {}1{}\n", "(".repeat(5000), ")".repeat(5000));
    let mut budget = ParseBudget::new(1 << 20, Duration::from_secs(20));
    let found = find_scopes(Language::Python, &source, &mut budget).expect("parsed");
    assert_eq!(found.bindings.len(), 1);
    assert_eq!(found.bindings[0].kind, BindingKind::Variable);
}

#[test]
fn fields_of_variants_and_parameters_of_closures_in_rust() {
    let (bindings, receivers) = told(
        "a.rs",
        "enum Entry { Held(u8, Pool), Open { at: Slot } }
fn go(x: Entry, all: Vec<Pool>) {
    use self::Entry::*;
    match x { Held(_, one) => one.go(), Open { at: two } => two.go() }
    x.0.stop();
    all.iter().map(|three| three.go());
}
",
    );
    for expected in [
        "Field Held#1 <Pool>",
        "Field Open#at <Slot>",
        "Variable one Held#1",
        "Variable two Open#at",
        "Variable three all.iter()[]",
        "ImportAll * ::self.Entry",
    ] {
        assert!(
            bindings.iter().any(|one| one == expected),
            "{expected}: {bindings:?}"
        );
    }
    for expected in ["::self . Entry", "x.0 . stop"] {
        assert!(
            receivers.iter().any(|one| one == expected),
            "{expected}: {receivers:?}"
        );
    }
}

#[test]
fn places_of_types_and_global_names_in_typescript() {
    let source = "declare global { interface Url {} }
function go(x: Url, all: Url[]) { all.map((one) => one.go()); return new Url(); }
";
    let (bindings, _) = told("a.ts", source);
    for expected in ["Class global ", "Class Url ", "Variable one all[]"] {
        assert!(
            bindings.iter().any(|one| one == expected),
            "{expected}: {bindings:?}"
        );
    }
    let mut budget = ParseBudget::new(1 << 20, Duration::from_secs(20));
    let found = find_scopes(Language::TypeScript, source, &mut budget).expect("parsed");
    let types: Vec<usize> = source
        .match_indices("Url")
        .map(|(at, _)| at)
        .filter(|at| found.type_names.contains(at))
        .collect();
    // Neither the name that is declared nor the value.
    assert_eq!(types.len(), 2);
}
