//! Uses of what several declarations make together, and through the configuration of TypeScript.

use crate::uses::check;

#[test]
fn global_declarations_of_one_name_are_one() {
    check(
        "//- src/a.ts
export const share = 1;
declare global {
  interface Stream { share(): Stream; }
}
//- src/b.ts
export const drop = 1;
declare global {
  interface Stream { drop(): void; }
  var Stream: { new (): Stream };
}
//- src/user.ts
import './a';
function go(one: Stream) {
  one.share().drop();
  return new Stream();
}
//- src/own.ts
export interface Stream { drop(): void; }
function go(one: Stream) { one.drop(); }
",
        &[
            (
                "src/a.ts#global::Stream",
                &["src/a.ts:3", "src/b.ts:4", "src/user.ts:2"],
            ),
            ("src/b.ts#Stream::drop", &["src/user.ts:3"]),
            ("src/own.ts#Stream", &["src/own.ts:2"]),
        ],
    );
}

#[test]
fn a_type_and_a_value_of_one_name_are_told_apart_by_their_places() {
    check(
        "//- src/a.ts
export interface Url { href: string }
export const Url = make();
//- src/b.ts
import { Url } from './a';
function go(x: Url): string { return x.href; }
new Url();
",
        &[
            ("src/a.ts:1#Url", &["src/b.ts:1", "src/b.ts:2"]),
            ("src/a.ts:2#Url", &["src/b.ts:1", "src/b.ts:3"]),
        ],
    );
}

#[test]
fn modules_by_the_paths_of_a_configuration() {
    check(
        "//- tsconfig.json
{ \"extends\": \"./tsconfig.base.json\" }
//- tsconfig.base.json
{
  // How the tests import.
  \"compilerOptions\": { \"paths\": { \"@internal/*\": [\"./src/*\"], }, },
}
//- src/utils/warn.ts
export default function warn() {}
//- app/tsconfig.json
{ \"compilerOptions\": { \"baseUrl\": \"code\" } }
//- app/code/shared/deep.ts
export function deep() {}
//- app/code/main.ts
import { deep } from 'shared/deep';
deep();
//- test/warn.spec.ts
import warn from '@internal/utils/warn';
warn();
",
        &[
            (
                "src/utils/warn.ts#warn",
                &["test/warn.spec.ts:1", "test/warn.spec.ts:2"],
            ),
            (
                "app/code/shared/deep.ts#deep",
                &["app/code/main.ts:1", "app/code/main.ts:2"],
            ),
        ],
    );
}

#[test]
fn a_package_whose_manifest_is_ignored_may_import_itself() {
    check(
        "//- lib/.gitignore
package.json
//- lib/package.json
{ \"name\": \"shapes\" }
//- lib/src/index.ts
export function square() {}
//- lib/test/a.ts
import { square } from 'shapes';
square();
",
        &[(
            "lib/src/index.ts#square",
            &["lib/test/a.ts:1", "lib/test/a.ts:2"],
        )],
    );
}

#[test]
fn functions_are_handed_the_elements_of_arrays_and_casts_keep_their_values() {
    check(
        "//- src/a.ts
export class Port { open() {} }
export class Door { open() {} }
export const make = { port: (() => new Port()) as (typeof Port)['create'] };
function go(ports: Port[], doors: Door[]) {
  ports.forEach((one) => one.open());
  doors.filter(one => one.open());
  make.port().open();
}
",
        &[
            ("src/a.ts#Port::open", &["src/a.ts:5", "src/a.ts:7"]),
            ("src/a.ts#Door::open", &["src/a.ts:6"]),
        ],
    );
}

#[test]
fn documentation_comments_name_what_is_in_scope() {
    check(
        "//- src/a.ts
export class Port {}
//- src/b.ts
import { Port } from './a';
/** Opens a {@link Port}. */
export function open(port: Port) {}
//- src/c.ts
class Port {}
/** Another {@link Port}. */
function close(port: Port) {}
",
        &[("src/a.ts#Port", &["src/b.ts:1", "src/b.ts:2", "src/b.ts:3"])],
    );
}

#[test]
fn python_lists_the_earlier_declarations_of_a_function() {
    check(
        "//- a.py
from typing import overload
class Bag:
    @overload
    def pop(self, key: int) -> int: ...
    def pop(self, key): return key
    @property
    def size(self): return 1
    @size.setter
    def size(self, value): ...
    def once(self): ...
",
        &[
            ("a.py#Bag::pop", &["a.py:4"]),
            ("a.py#Bag::size", &["a.py:7", "a.py:8"]),
            ("a.py#Bag::once", &[]),
        ],
    );
}
