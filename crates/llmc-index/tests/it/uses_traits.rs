//! Uses in Rust that types from outside, patterns, closures and macros lead to.

use crate::uses::check;

#[test]
fn a_type_s_own_method_comes_before_that_of_a_trait() {
    check(
        "//- src/build.rs
use crate::graph::Graph;
pub trait Build { fn add(&mut self); }
impl Build for Graph { fn add(&mut self) {} }
//- src/graph.rs
pub struct Graph;
impl Graph {
    pub fn new() -> Self { Graph }
    pub fn add(&mut self) {}
}
//- src/lib.rs
pub mod build;
pub mod graph;
fn go() {
    let mut one = graph::Graph::new();
    one.add();
}
",
        &[
            ("src/graph.rs#Graph::add", &["src/lib.rs:5"]),
            ("src/build.rs#Build::add", &["src/build.rs:3"]),
        ],
    );
}

#[test]
fn traits_in_scope_bring_methods_to_types_from_outside() {
    check(
        "//- src/lib.rs
pub trait Tools { fn pairs_up(&self); fn next(&self); }
impl<T: Iterator> Tools for T { fn pairs_up(&self) {} fn next(&self) {} }
//- src/other.rs
pub trait Far { fn pairs_up(&self); }
//- src/own.rs
pub struct Deck;
impl Deck { pub fn shuffle_all(&self) {} }
pub trait Mix { fn shuffle_all(&self); }
//- src/user.rs
use crate::Tools;
use crate::own::Mix;
fn go(x: Vec<u8>, deck: impl Unknown) {
    x.iter().pairs_up();
    run! { for y in x { y.pairs_up() } }
    x.next();
    deck.shuffle_all();
}
//- src/stranger.rs
fn go(x: Vec<u8>) { x.pairs_up(); }
",
        &[
            (
                "src/lib.rs#Tools::pairs_up",
                &["src/lib.rs:2", "src/user.rs:4", "src/user.rs:5"],
            ),
            ("src/other.rs#Far::pairs_up", &[]),
            // The standard library has such a method; a type of the workspace has such a method itself.
            ("src/lib.rs#Tools::next", &["src/lib.rs:2"]),
            ("src/own.rs#Mix::shuffle_all", &[]),
        ],
    );
}

#[test]
fn what_an_associated_type_is_bound_to_is_its_type() {
    check(
        "//- src/lib.rs
pub trait Steps { fn walk_on(&self); }
pub trait IntoSteps { type Iter: Steps; fn into_steps(&self) -> Self::Iter; }
pub struct Other;
impl Other { pub fn walk_on(&self) {} }
//- src/user.rs
use crate::IntoSteps;
fn go(x: Vec<u8>) { x.into_steps().walk_on(); }
",
        &[
            ("src/lib.rs#Steps::walk_on", &["src/user.rs:2"]),
            ("src/lib.rs#Other::walk_on", &[]),
        ],
    );
}

#[test]
fn patterns_name_the_fields_of_variants_and_tuples() {
    check(
        "//- src/lib.rs
pub struct Held;
impl Held { pub fn take(&self) {} }
pub struct Free;
impl Free { pub fn take(&self) {} }
pub enum Entry { Full(u8, Held), Open { slot: Free } }
pub struct Pair(Held, Free);
impl Entry {
    fn go(self) {
        use self::Entry::*;
        match self {
            Full(_, one) => one.take(),
            Entry::Open { slot } => slot.take(),
        }
    }
}
fn both(pair: Pair) {
    pair.1.take();
    let Pair(held, ..) = pair;
    held.take();
}
",
        &[
            ("src/lib.rs#Held::take", &["src/lib.rs:11", "src/lib.rs:19"]),
            ("src/lib.rs#Free::take", &["src/lib.rs:12", "src/lib.rs:17"]),
            (
                "src/lib.rs#Entry",
                &["src/lib.rs:12", "src/lib.rs:7", "src/lib.rs:9"],
            ),
        ],
    );
}

#[test]
fn closures_are_handed_the_elements_of_what_they_are_given_to() {
    check(
        "//- src/lib.rs
pub struct Port;
impl Port { pub fn open(&self) {} }
pub struct Door;
impl Door { pub fn open(&self) {} }
fn go(ports: Vec<Port>, door: Option<Door>) {
    ports.iter().for_each(|one| one.open());
    door.map(|one| one.open());
}
",
        &[
            ("src/lib.rs#Port::open", &["src/lib.rs:6"]),
            ("src/lib.rs#Door::open", &["src/lib.rs:7"]),
        ],
    );
}

#[test]
fn macros_are_known_in_the_whole_crate_and_variables_are_no_crates() {
    check(
        "//- Cargo.toml
[package]
name = \"one\"
//- src/lib.rs
#[macro_use]
mod macros;
mod user;
pub fn merge() {}
//- src/macros.rs
macro_rules! tell { () => {} }
//- src/user.rs
fn go() {
    let tell = 1;
    tell!();
}
//- tests/it.rs
fn go() {
    quick! { let a = left.merge(); }
    one::merge();
}
",
        &[
            ("src/macros.rs#tell", &["src/user.rs:3"]),
            ("src/lib.rs#merge", &["tests/it.rs:3"]),
        ],
    );
}

#[test]
fn an_associated_type_is_not_meant_without_self() {
    check(
        "//- src/lib.rs
pub struct Walk;
pub trait Walks { type Walk; }
pub struct Graph;
impl Walks for Graph { type Walk = Walk; }
",
        &[("src/lib.rs#Walk", &["src/lib.rs:4"])],
    );
}
