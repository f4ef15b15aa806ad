//! Which uses are resolved: those with a confidence of at least 0.5.

use llmc_host::CancelToken;

use crate::work::Work;

/// The resolved uses of a symbol as `path:line`, in order.
fn sure(work: &Work, symbol: &str) -> Vec<String> {
    let found = work
        .index
        .where_used(&work.roots, symbol, 1, &CancelToken::default())
        .unwrap();
    let mut sites: Vec<String> = found
        .sites
        .iter()
        .filter(|site| site.confidence >= 0.5)
        .map(|site| format!("{}:{}", site.path, site.line))
        .collect();
    sites.sort();
    sites
}

/// Asserts the resolved uses of each symbol of a fixture.
pub(crate) fn check(fixture: &str, expected: &[(&str, &[&str])]) {
    let work = Work::new(fixture);
    work.update();
    for (symbol, sites) in expected {
        assert_eq!(sure(&work, symbol), *sites, "{symbol}");
    }
}

#[test]
fn python_imports_under_another_name_and_through_packages() {
    check(
        "//- shop/__init__.py
from .store import open_store as opened
from .store import close_store
__all__ = [\"close_store\"]
//- shop/store.py
def open_store(): ...
def close_store(): ...
//- other/store.py
def open_store(): ...
//- app.py
import shop
from shop import close_store
import other.store as store
close_store()
shop.close_store()
store.open_store()
shop.store.open_store()
",
        &[
            (
                "shop/store.py#close_store",
                &[
                    "app.py:2",
                    "app.py:4",
                    "app.py:5",
                    "shop/__init__.py:2",
                    "shop/__init__.py:3",
                ],
            ),
            (
                "shop/store.py#open_store",
                &["app.py:7", "shop/__init__.py:1"],
            ),
            ("other/store.py#open_store", &["app.py:6"]),
        ],
    );
}

#[test]
fn python_stars_bring_what_a_module_has() {
    check(
        "//- a.py
def load(): ...
//- b.py
from a import *
//- c.py
from b import load
load()
",
        &[("a.py#load", &["c.py:1", "c.py:2"])],
    );
}

#[test]
fn python_locals_shadow_what_is_outside() {
    check(
        "//- a.py
def load(): ...

def one(load):
    load()

def two():
    load = 1
    return load

def three():
    return [load for load in range(3)]

def four():
    f(load=1)
    return lambda load: load

def five():
    return load()
",
        &[("a.py#load", &["a.py:18"])],
    );
}

#[test]
fn python_receivers_have_the_class_of_their_value() {
    check(
        "//- pool.py
class Base:
    def close(self): ...

class Pool(Base):
    def take(self):
        return self.give()
    def give(self) -> \"Pool\":
        return self
    @property
    def first(self) -> \"Pool\": ...

class Queue:
    def take(self): ...
    def close(self): ...

def make() -> Pool: ...
//- app.py
from __future__ import annotations
from typing import TYPE_CHECKING
from pool import Pool, Queue, make
if TYPE_CHECKING:
    import pool

class Server:
    def __init__(self, queue: Queue):
        self.pool = Pool()
        self.queue = queue

    def run(self, pools: list[pool.Pool], one: \"pool.Pool | None\"):
        self.pool.take()
        self.queue.take()
        make().give().take()
        for each in pools:
            each.take()
        with make() as made:
            made.take()
        one.take()
        self.pool.first.take()
        self.pool.close()
        self.queue.close()

def guess(pool):
    pool.take()
    if isinstance(pool, Queue):
        pool.take()
",
        &[
            (
                "pool.py#Pool::take",
                &[
                    "app.py:13",
                    "app.py:15",
                    "app.py:17",
                    "app.py:19",
                    "app.py:20",
                    "app.py:21",
                ],
            ),
            ("pool.py#Base::close", &["app.py:22"]),
            ("pool.py#Queue::close", &["app.py:23"]),
            ("pool.py#Pool::give", &["app.py:15", "pool.py:6"]),
        ],
    );
}

#[test]
fn a_receiver_of_unknown_type_is_a_guess() {
    let work = Work::new(
        "//- pool.py
class Pool:
    def take(self): ...
//- app.py
def run(thing):
    thing.take()
",
    );
    work.update();
    let found = work
        .index
        .where_used(&work.roots, "Pool::take", 1, &CancelToken::default())
        .unwrap();
    assert_eq!(found.total, 1, "{found:?}");
    assert!(found.sites[0].confidence < 0.5, "{found:?}");
}

#[test]
fn scripts_import_through_barrels_namespaces_and_defaults() {
    check(
        "//- src/index.ts
export * from './pool'
export { open as connect } from './net'
//- src/pool.ts
export class Pool { take(): Pool { return this } }
export default function make(): Pool { return new Pool() }
//- src/net.ts
export function open() {}
//- src/app.ts
import { Pool, connect } from './index'
import * as net from './net.js'
import build from './pool'
import type { Pool as Other } from './other'
const pool = new Pool()
net.open()
connect()
build().take()
let it: Other
function local(open: () => void) { open() }
//- src/other.ts
export interface Pool { take(): void }
",
        &[
            (
                "src/pool.ts#Pool",
                &[
                    "src/app.ts:1",
                    "src/app.ts:5",
                    "src/pool.ts:1",
                    "src/pool.ts:2",
                ],
            ),
            ("src/pool.ts#Pool::take", &["src/app.ts:8"]),
            (
                "src/net.ts#open",
                &[
                    "src/app.ts:1",
                    "src/app.ts:6",
                    "src/app.ts:7",
                    "src/index.ts:2",
                ],
            ),
            ("src/other.ts#Pool", &["src/app.ts:4", "src/app.ts:9"]),
        ],
    );
}

#[test]
fn scripts_know_fields_overrides_and_what_collections_hold() {
    check(
        "//- a.ts
export interface Shape { area(): number }
export class Square implements Shape {
  area() { return 1 }
  get(key: string) { return key }
}
class Holder {
  private shapes: Map<string, Square> = new Map()
  constructor(private readonly first: Square) {}
  run({ last }: { last: Square }) {
    this.first.area()
    this.shapes.get('a')
    this.shapes.get('a')!.get('b')
    for (const one of this.shapes.values()) one.area()
    const area = 1
    return { area: area }
  }
}
function use(shape: Shape) { shape.area() }
",
        &[
            (
                "a.ts#Square::area",
                &["a.ts:1", "a.ts:10", "a.ts:13", "a.ts:18"],
            ),
            ("a.ts#Square::get", &["a.ts:12"]),
        ],
    );
}

#[test]
fn rust_paths_receivers_and_impl_blocks() {
    check(
        "//- Cargo.toml
[package]
name = \"shop\"
//- src/lib.rs
mod net;
mod pool;
pub use pool::Pool;
//- src/pool.rs
use crate::net::{dial, Conn as Wire};
pub struct Pool { idle: Vec<Wire> }
impl Pool {
    pub fn new() -> Self { Pool { idle: Vec::new() } }
    pub fn take(&mut self) -> Option<Wire> {
        self.refill();
        self.idle.pop()
    }
    fn refill(&mut self) { dial(); }
}
impl Drop for Pool {
    fn drop(&mut self) { Self::new().refill(); }
}
//- src/net.rs
pub struct Conn;
impl Conn {
    pub fn close(&self) {}
}
pub fn dial() {}
pub trait Send { fn send(&self); }
impl Send for Conn { fn send(&self) { self.close(); } }
pub fn all(sender: &dyn Send, conns: &[Conn]) {
    sender.send();
    for conn in conns { conn.send(); }
    let dial = 1;
    assert_eq!(dial, 1);
}
//- tests/pool.rs
use shop::Pool;
#[test]
fn takes() {
    let mut pool = Pool::new();
    assert!(pool.take().is_none());
    pool.take().unwrap().close();
}
",
        &[
            (
                "src/pool.rs#Pool",
                &[
                    "src/lib.rs:3",
                    "src/pool.rs:11",
                    "src/pool.rs:3",
                    "src/pool.rs:4",
                    "tests/pool.rs:1",
                    "tests/pool.rs:4",
                ],
            ),
            (
                "src/pool.rs#Pool::take",
                &["tests/pool.rs:5", "tests/pool.rs:6"],
            ),
            (
                "src/pool.rs#Pool::refill",
                &["src/pool.rs:12", "src/pool.rs:6"],
            ),
            ("src/net.rs#dial", &["src/pool.rs:1", "src/pool.rs:9"]),
            (
                "src/net.rs#Conn::close",
                &["src/net.rs:7", "tests/pool.rs:6"],
            ),
            (
                "src/net.rs#Send::send",
                &["src/net.rs:10", "src/net.rs:7", "src/net.rs:9"],
            ),
        ],
    );
}

#[test]
fn callees_are_resolved_like_callers() {
    let work = Work::new(
        "//- a.py
class Pool:
    def take(self): ...
class Queue:
    def take(self): ...
def run(queue: Queue):
    queue.take()
",
    );
    work.update();
    let found = work
        .index
        .lineage(
            &work.roots,
            "run",
            llmc_index::LineageDirection::Callees,
            1,
            &CancelToken::default(),
        )
        .unwrap();
    let names: Vec<&str> = found
        .nodes
        .iter()
        .map(|node| node.symbol.as_str())
        .collect();
    assert_eq!(names, ["Queue::take"], "{found:?}");
}

#[test]
fn uses_under_the_other_name_of_an_import_are_found() {
    check(
        "//- src/pool.ts
export function take() {}
export function give() {}
//- src/index.ts
export { take as _take } from './pool'
//- src/app.ts
import { give as put } from './pool'
import { _take } from './index'
put()
_take()
function local(put: () => void) { put() }
",
        &[
            (
                "src/pool.ts#take",
                &["src/app.ts:2", "src/app.ts:4", "src/index.ts:1"],
            ),
            ("src/pool.ts#give", &["src/app.ts:1", "src/app.ts:3"]),
        ],
    );
    check(
        "//- a.py
def load(): ...
//- b.py
from a import load as read
read()
//- c.py
from b import read
read()
def local(read): read()
",
        &[("a.py#load", &["b.py:1", "b.py:2", "c.py:1", "c.py:2"])],
    );
    check(
        "//- Cargo.toml
[package]
name = \"shop\"
//- src/lib.rs
mod net;
pub use net::dial as call;
pub fn all() { call(); }
//- src/net.rs
pub fn dial() {}
",
        &[("src/net.rs#dial", &["src/lib.rs:2", "src/lib.rs:3"])],
    );
}

#[test]
fn scripts_know_what_call_signatures_return() {
    check(
        "//- a.ts
export class Box { open() {} }
export interface Factory {
  // Boxes of one value
  <T>(value: T): Box
  <T>(value: T, name: string): Box

  named: (name: string) => Box
}
declare const make: Factory
make(1).open()
make.named('a').open()
",
        &[("a.ts#Box::open", &["a.ts:10", "a.ts:11"])],
    );
}

#[test]
fn rust_types_under_another_name_traits_and_closures() {
    check(
        "//- Cargo.toml
[package]
name = \"shop\"
//- src/lib.rs
pub type Mapped<T> = Found<T>;
pub enum Found<T> { One(T), None }
impl<T> Mapped<T> {
    pub fn only(self) -> T { todo!() }
}
pub trait Dated { fn year(&self) -> i32; }
pub struct Day;
impl Dated for Day { fn year(&self) -> i32 { 1 } }
impl Day { fn new(n: u8) -> Day { Day } fn find() -> Mapped<Day> { Found::None } }
pub fn run(day: Day) {
    Day::find().only();
    day.year();
    let make = |n| Day::new(n);
    make(1).year();
}
",
        &[
            ("Mapped::only", &["src/lib.rs:11"]),
            (
                "Dated::year",
                &["src/lib.rs:12", "src/lib.rs:14", "src/lib.rs:8"],
            ),
        ],
    );
}

#[test]
fn python_objects_that_can_be_called() {
    check(
        "//- a.py
class Client:
    def get(self): ...
class Factory(Protocol):
    def __call__(self, url: str) -> Client: ...
    def name(self): ...
def test(make: Factory):
    client = make(\"a\")
    client.get()
    Factory().name()
",
        &[("Client.get", &["a.py:8"]), ("Factory.name", &["a.py:9"])],
    );
}
