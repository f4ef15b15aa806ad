//! Languages of configuration, markup and smaller communities.

use super::check;

#[test]
fn lua() {
    check(
        "src/pool.lua",
        "local M = {}
local limit = 4
function M.open(path)
  local handle = io.open(path)
  return handle
end
function M:close() end
local function retry(times) end
M.take = function(self) end
return { run = function() end, size = 4 }
",
        &[
            "1 Variable M",
            "2 Variable limit",
            "3 Function open",
            "7 Function close",
            "8 Function retry",
            "9 Function take",
            "10 Function run",
        ],
    );
}

#[test]
fn zig() {
    check(
        "src/pool.zig",
        "const std = @import(\"std\");
pub const Pool = struct {
    idle: usize,
    pub fn take(self: *Pool) ?usize {
        const idle = self.idle;
        return idle;
    }
};
const State = enum { open, closed };
const Failure = error{ Closed };
fn retry() void {}
",
        &[
            "1 Constant std",
            "2 Struct Pool",
            "3 Field idle",
            "4 Function take",
            "9 Enum State",
            "9 Field open",
            "9 Field closed",
            "10 Enum Failure",
            "11 Function retry",
        ],
    );
}

#[test]
fn protobuf() {
    check(
        "api/pool.proto",
        "syntax = \"proto3\";
message Pool {
  string name = 1;
  map<string, int32> sizes = 2;
  enum State { OPEN = 0; }
  oneof owner { User user = 3; }
}
service Pools {
  rpc Take(TakeRequest) returns (Pool);
}
",
        &[
            "2 Struct Pool",
            "3 Field name",
            "4 Field sizes",
            "5 Enum State",
            "5 Variant OPEN",
            "6 Field owner",
            "6 Field user",
            "8 Interface Pools",
            "9 Function Take",
        ],
    );
}

#[test]
fn hcl() {
    check(
        "infra/main.tf",
        "terraform {
  required_version = \">= 1.5\"
}
locals {
  region = \"eu-west-1\"
}
variable \"size\" {
  default = 4
}
resource \"aws_instance\" \"web\" {
  ami = local.region
  dynamic \"disk\" {
    for_each = []
  }
}
module \"network\" {
  source = \"./network\"
}
",
        &[
            "5 Variable region",
            "7 Variable size",
            "10 Struct web",
            "16 Module network",
        ],
    );
    check("prod.tfvars", "size = 8\n", &["1 Variable size"]);
}

#[test]
fn dockerfile() {
    let source = "ARG VERSION=12
FROM debian:${VERSION} AS build
ENV MODE=fast
RUN make
FROM scratch
COPY --from=build /app /app
";
    let expected = ["1 Variable VERSION", "2 Module build", "3 Variable MODE"];
    check("Dockerfile", source, &expected);
    check("docker/Dockerfile.dev", source, &expected);
    check("web.dockerfile", source, &expected);
}

#[test]
fn css() {
    check(
        "site.css",
        ":root {
  --accent: #c00;
  color: black;
}
.card > .title:hover, h2 { color: var(--accent); }
#menu { top: 0 }
@media print { nav { display: none } }
@keyframes spin { to { rotate: 1turn } }
",
        &[
            "1 Class root",
            "2 Variable --accent",
            "5 Class title",
            "6 Class menu",
            "7 Class nav",
            "8 Type spin",
        ],
    );
}

#[test]
fn html_with_scripts_and_styles() {
    check(
        "index.html",
        "<!doctype html>
<style>
.wide { width: 100% }
</style>
<main id=\"app\"><p class=x>text</p></main>
<script>
function start() { let local = 1; }
const stop = () => {};
</script>
",
        &[
            "3 Class wide",
            "5 Variable app",
            "7 Function start",
            "8 Function stop",
        ],
    );
}

#[cfg(feature = "heavy-grammars")]
#[test]
fn components_of_vue_and_svelte() {
    check(
        "Cart.vue",
        "<script setup lang=\"ts\">
interface Item { price: number }
function total(items: Item[]): number { return 0 }
</script>
<template><div id=\"cart\">{{ total(items) }}</div></template>
",
        &[
            "2 Interface Item",
            "2 Field price",
            "3 Function total",
            "5 Variable cart",
        ],
    );
    check(
        "Cart.svelte",
        "<script>
export let items = [];
function total() { return 0; }
</script>
{#if items.length}<b>{total()}</b>{/if}
",
        &["2 Variable items", "3 Function total"],
    );
}

#[cfg(feature = "more-grammars")]
mod with_more_grammars {
    use super::check;

    #[test]
    fn kotlin() {
        check(
            "Pool.kt",
            "interface Source { fun next(): Int }
enum class State { OPEN, CLOSED }
data class Pool(val size: Int) : Source {
    private val idle = mutableListOf<Int>()
    override fun next(): Int {
        val first = idle.first()
        return first
    }
    companion object Defaults { const val SIZE = 4 }
}
typealias Pools = List<Pool>
object Registry
fun open(): Pool = Pool(4)
",
            &[
                "1 Interface Source",
                "1 Function next",
                "2 Enum State",
                "2 Variant OPEN",
                "2 Variant CLOSED",
                "3 Class Pool",
                "4 Variable idle",
                "5 Function next",
                "9 Class Defaults",
                "9 Variable SIZE",
                "11 Type Pools",
                "12 Class Registry",
                "13 Function open",
            ],
        );
    }

    #[test]
    fn swift() {
        check(
            "Pool.swift",
            "protocol Source { func next() -> Int }
enum State { case open, closed }
struct Pool: Source {
    var idle: [Int] = []
    init(size: Int) {}
    func next() -> Int {
        let first = idle[0]
        return first
    }
}
extension Pool { func close() {} }
class Registry {}
typealias Pools = [Pool]
func open() -> Pool { Pool(size: 4) }
",
            &[
                "1 Interface Source",
                "1 Function next",
                "2 Enum State",
                "2 Variant open",
                "3 Struct Pool",
                "4 Variable idle",
                "5 Function init",
                "6 Function next",
                "11 Impl Pool",
                "11 Function close",
                "12 Class Registry",
                "13 Type Pools",
                "14 Function open",
            ],
        );
    }

    #[test]
    fn scala() {
        check(
            "Pool.scala",
            "trait Source { def next(): Int }
enum State { case Open, Closed }
class Pool(size: Int) extends Source {
  val idle = List(1)
  def next(): Int = {
    val first = idle.head
    first
  }
}
object Pool { type Pools = List[Pool] }
",
            &[
                "1 Interface Source",
                "1 Function next",
                "2 Enum State",
                "2 Variant Open",
                "2 Variant Closed",
                "3 Class Pool",
                "4 Variable idle",
                "5 Function next",
                "10 Class Pool",
                "10 Type Pools",
            ],
        );
    }

    #[test]
    fn elixir() {
        check(
            "lib/pool.ex",
            "defmodule Shop.Pool do
  @size 4
  def take(pool) when is_map(pool) do
    first = hd(pool.idle)
    first
  end
  defp idle?(pool), do: pool.idle != []
  defmacro retry(block) do
    block
  end
  def size, do: @size
end
",
            &[
                "1 Module Shop.Pool",
                "3 Function take",
                "7 Function idle?",
                "8 Macro retry",
                "11 Function size",
            ],
        );
    }

    #[test]
    fn sql() {
        check(
            "schema.sql",
            "CREATE TABLE shop.pool (
  id integer PRIMARY KEY,
  name text NOT NULL
);
CREATE VIEW open_pools AS SELECT id FROM shop.pool;
CREATE INDEX pool_by_name ON shop.pool (name);
CREATE FUNCTION take(pool integer) RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;
",
            &[
                "1 Struct pool",
                "2 Field id",
                "3 Field name",
                "5 Type open_pools",
                "6 Variable pool_by_name",
                "7 Function take",
            ],
        );
    }
}
