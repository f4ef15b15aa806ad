//! Every language gives units with what is around them, a signature and a comment.

use llmc_host::CancelToken;
use llmc_index::SearchScope;

use crate::work::Work;

/// A file, the name of a function in it with what is around it, part of its signature, and its source with comment.
const LANGUAGES: &[(&str, &str, &str, &str, &str)] = &[
    (
        "pool.rs",
        "Pool::take_idle",
        "pub fn take_idle(&self, wait: u64) -> Conn",
        "pool.rs#L4-L7",
        "pub struct Pool;

impl Pool {
    /// Takes what waits.
    pub fn take_idle(&self, wait: u64) -> Conn {
        open(wait)
    }
}
",
    ),
    (
        "pool.py",
        "Pool::take_idle",
        "def take_idle(self, wait)",
        "pool.py#L2-L5",
        "class Pool:
    @cached
    def take_idle(self, wait):
        \"\"\"Takes what waits.\"\"\"
        return open(wait)
",
    ),
    (
        "pool.js",
        "Pool::takeIdle",
        "takeIdle(wait)",
        "pool.js#L2-L5",
        "export class Pool {
  // Takes what waits.
  takeIdle(wait) {
    return open(wait);
  }
}
",
    ),
    (
        "pool.ts",
        "Pool::takeIdle",
        "takeIdle(wait: number): Conn",
        "pool.ts#L2-L5",
        "export class Pool<T> {
  /** Takes what waits. */
  takeIdle(wait: number): Conn {
    return open(wait);
  }
}
",
    ),
    (
        "pool.tsx",
        "PoolView",
        "export function PoolView(props: Props)",
        "pool.tsx#L1-L4",
        "// Takes what waits.
export function PoolView(props: Props) {
  return <Pool wait={props.wait} />;
}
",
    ),
    (
        "pool.go",
        "TakeIdle",
        "func (p *Pool) TakeIdle(wait int) Conn",
        "pool.go#L5-L8",
        "package pool

type Pool struct{}

// Takes what waits.
func (p *Pool) TakeIdle(wait int) Conn {
	return open(wait)
}
",
    ),
    (
        "Pool.java",
        "Pool::takeIdle",
        "public Conn takeIdle(int wait)",
        "Pool.java#L2-L5",
        "public class Pool {
    /** Takes what waits. */
    public Conn takeIdle(int wait) {
        return open(wait);
    }
}
",
    ),
    (
        "pool.c",
        "take_idle",
        "struct conn *take_idle(int wait)",
        "pool.c#L3-L6",
        "#include \"pool.h\"

/* Takes what waits. */
struct conn *take_idle(int wait) {
    return open_one(wait);
}
",
    ),
    (
        "pool.cpp",
        "net::Pool::take_idle",
        "Conn take_idle(int wait)",
        "pool.cpp#L3-L6",
        "namespace net {
class Pool {
    // Takes what waits.
    Conn take_idle(int wait) {
        return open_one(wait);
    }
};
}
",
    ),
    (
        "Pool.cs",
        "Shop::Pool::TakeIdle",
        "public Conn TakeIdle(int wait)",
        "Pool.cs#L3-L6",
        "namespace Shop {
public class Pool {
    /// Takes what waits.
    public Conn TakeIdle(int wait) {
        return Open(wait);
    }
}
}
",
    ),
    (
        "pool.rb",
        "Net::Pool::take_idle",
        "def take_idle(wait)",
        "pool.rb#L3-L6",
        "module Net
  class Pool
    # Takes what waits.
    def take_idle(wait)
      open_one(wait)
    end
  end
end
",
    ),
    (
        "pool.php",
        "Pool::takeIdle",
        "public function takeIdle(int $wait)",
        "pool.php#L3-L6",
        "<?php
class Pool {
    // Takes what waits.
    public function takeIdle(int $wait) {
        return open_one($wait);
    }
}
",
    ),
    (
        "pool.sh",
        "take_idle",
        "take_idle()",
        "pool.sh#L3-L6",
        "set -e

# Takes what waits.
take_idle() {
    open_one \"$1\"
}
",
    ),
];

#[test]
fn units_have_path_signature_and_comment() {
    for (path, symbol, signature, src, text) in LANGUAGES {
        let work = Work::new(&format!("//- {path}\n{text}"));
        work.update();
        let found = work
            .index
            .inspect(&work.roots, symbol, 1000, &CancelToken::default())
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(found.symbol.as_deref(), Some(*symbol), "{path}");
        assert!(
            found.signature.contains(signature),
            "{path}: {:?}",
            found.signature
        );
        assert_eq!(found.doc.trim(), "Takes what waits.", "{path}");
        assert_eq!(found.src, *src, "{path}");
        let callees: Vec<&str> = found.text.lines().collect();
        assert!(callees.len() > 2, "{path}: {callees:?}");
        // What is found by its name is the same unit, comment included.
        let name = symbol.rsplit("::").next().unwrap();
        assert_eq!(work.found(name, SearchScope::Repo)[0], *src, "{path}");
    }
}

#[test]
fn notebooks_and_configuration_by_structure() {
    let notebook = r##"{
 "cells": [
  {
   "cell_type": "markdown",
   "source": ["# Wolves\n", "Where they live."]
  },
  {
   "cell_type": "code",
   "source": ["def count_wolves(area):\n", "    return area * 2\n"]
  }
 ]
}
"##;
    let config: String = ["server", "database"]
        .iter()
        .map(|part| {
            let keys: String = (0..14).map(|n| format!("{part}_key_{n} = 1\n")).collect();
            format!("[{part}]\n{keys}")
        })
        .collect();
    let work = Work::new(&format!(
        "//- wolves.ipynb\n{notebook}//- app.toml\n{config}"
    ));
    work.update();
    let cell = work.found("count_wolves area", SearchScope::Repo);
    assert_eq!(cell[0], "wolves.ipynb#L7-L12", "{cell:?}");
    let section = work.found("database_key_3", SearchScope::Repo);
    assert_eq!(section[0], "app.toml#L16-L30", "{section:?}");
}
