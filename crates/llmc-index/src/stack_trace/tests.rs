//! Texts as the tools print them, from other machines and through libraries.

use super::*;

/// What a repository holds, and the places in it that a trace means, innermost first.
fn check(files: &[&str], trace: &str, expected: &[(&str, u32)]) {
    let named = |name: &str| {
        let files = files.iter().filter(|path| file_name(path) == name);
        Ok(files.map(|path| (*path).to_owned()).collect())
    };
    let found = locate(&places(trace), named).unwrap();
    let found: Vec<(&str, u32)> = found
        .iter()
        .map(|located| (located.path.as_str(), located.line))
        .collect();
    assert_eq!(found, expected, "{trace}");
}

#[test]
fn python_raises_in_the_last_frame() {
    check(
        &["shop/web.py", "shop/db/pool.py", "shop/queue.py"],
        r#"Traceback (most recent call last):
  File "/srv/app/.venv/lib/python3.12/site-packages/flask/app.py", line 880, in full_dispatch_request
    rv = self.dispatch_request()
         ^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/app/shop/web.py", line 31, in checkout
    conn = pool.take(wait=2)
           ^^^^^^^^^^^^^^^^^
  File "/srv/app/shop/db/pool.py", line 57, in take
    return self._idle[key].pop()
           ~~~~~~~~~~^^^^^
  File "/usr/lib/python3.12/queue.py", line 171, in get
    raise Empty
KeyError: 'eu-west'
"#,
        &[("shop/db/pool.py", 57), ("shop/web.py", 31)],
    );
}

#[test]
fn of_chained_exceptions_the_last_one_counts() {
    check(
        &["a.py", "b.py", "c.py"],
        r#"Traceback (most recent call last):
  File "a.py", line 3, in load
    return json.loads(text)
ValueError: no value

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "c.py", line 30, in main
    run()
  File "b.py", line 20, in run
    raise Broken(path) from error
b.Broken: conf.json
"#,
        &[("b.py", 20), ("c.py", 30), ("a.py", 3)],
    );
}

#[test]
fn pytest_ends_where_it_was_raised() {
    check(
        &["tests/test_pool.py", "shop/pool.py"],
        "______ test_take ______\ntests/test_pool.py:12: in test_take\n    pool.take()\nshop/pool.py:40: in take\n    return self.find(key)\nshop/pool.py:57: KeyError\n",
        &[
            ("shop/pool.py", 57),
            ("shop/pool.py", 40),
            ("tests/test_pool.py", 12),
        ],
    );
    // What a checker lists stands in the order of the files.
    check(
        &["a.py", "b.py"],
        "a.py:3:1: E501 line too long\nb.py:9: error: Incompatible types in assignment\n",
        &[("a.py", 3), ("b.py", 9)],
    );
}

#[test]
fn rust_begins_inside() {
    check(
        &["src/main.rs", "src/pool.rs", "src/error.rs"],
        "thread 'main' panicked at src/pool.rs:16:9:
index out of bounds: the len is 0 but the index is 0
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/4a4ef493e3a1488c6e321570238084b38948f6db/library/std/src/panicking.rs:697:5
   1: core::panicking::panic_fmt
             at /rustc/4a4ef493e3a1488c6e321570238084b38948f6db/library/core/src/panicking.rs:75:14
   2: anyhow::error::call
             at /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/anyhow-1.0.98/src/error.rs:83:36
   3: shop::pool::Pool::take
             at ./src/pool.rs:16:9
   4: shop::main
             at /home/ci/build/shop/src/main.rs:3:5
",
        &[("src/pool.rs", 16), ("src/main.rs", 3)],
    );
}

#[test]
fn java_by_package() {
    check(
        &[
            "app/src/main/java/com/shop/Cart.java",
            "app/src/main/java/com/shop/web/Cart.java",
            "app/src/main/java/com/shop/ArrayList.java",
            "app/src/main/java/com/shop/Main.java",
        ],
        "Exception in thread \"main\" java.lang.IndexOutOfBoundsException: Index 3 out of bounds for length 3
\tat java.base/java.util.ArrayList.get(ArrayList.java:427)
\tat com.shop.Cart$Line.<init>(Cart.java:44)
\tat com.shop.web.Cart.lambda$show$0(Cart.java:9)
\tat app//com.shop.Main.main(Main.java:12)
",
        &[
            ("app/src/main/java/com/shop/Cart.java", 44),
            ("app/src/main/java/com/shop/web/Cart.java", 9),
            ("app/src/main/java/com/shop/Main.java", 12),
        ],
    );
    check(
        &["core/cart/Cart.kt", "core/web/Filter.kt"],
        "at org.other.Filter.run(Filter.kt:3)\nat com.shop.cart.CartKt.add(Cart.kt:8)",
        &[("core/cart/Cart.kt", 8)],
    );
}

#[test]
fn javascript_go_and_others() {
    check(
        &["src/cart.ts", "src/server.mjs", "lib/index.js"],
        "TypeError: Cannot read properties of undefined (reading 'price')
    at Object.parse (/app/node_modules/body-parser/lib/index.js:8:3)
    at total (/app/src/cart.ts:21:17)
    at async file:///app/src/server.mjs:40:5
    at node:internal/process/task_queues:105:5
",
        &[("src/cart.ts", 21), ("src/server.mjs", 40)],
    );
    check(
        &["cmd/main.go", "internal/pool/pool.go", "panic.go"],
        "panic: runtime error: index out of range [3] with length 3

goroutine 1 [running]:
panic({0x48f0a0?, 0xc000012345?})
\t/usr/local/go/src/runtime/panic.go:785 +0x132
github.com/acme/shop/internal/pool.(*Pool).Take(...)
\t/home/ci/shop/internal/pool/pool.go:33
main.main()
\t/home/ci/shop/cmd/main.go:11 +0x1d
exit status 2
",
        &[("internal/pool/pool.go", 33), ("cmd/main.go", 11)],
    );
    check(
        &[
            "Shop/Cart.cs",
            "src/Cart.php",
            "src/index.php",
            "core/heap.c",
        ],
        "   at Shop.Cart.Add(Item item) in C:\\build\\Shop\\Cart.cs:line 44\n\
         PHP Fatal error:  Uncaught LogicException: no in /var/www/src/Cart.php:12\n\
         #0 /var/www/src/index.php(30): Cart->add()\n\
         #1  0x0000555 in sift (h=0x7ff) at core/heap.c:88\n",
        &[
            ("Shop/Cart.cs", 44),
            ("src/Cart.php", 12),
            ("src/index.php", 30),
            ("core/heap.c", 88),
        ],
    );
    check(
        &["app/cart.rb", "app/run.rb"],
        "app/cart.rb:7:in 'Cart#add': boom (RuntimeError)\n\tfrom app/run.rb:2:in '<main>'\n",
        &[("app/cart.rb", 7), ("app/run.rb", 2)],
    );
}

#[test]
fn what_names_no_place_of_the_workspace() {
    check(&["a.rs"], "at 12:30 the v1.2 came", &[]);
    check(&["a.rs"], "", &[]);
    check(&["pool.take"], "    return pool.take(2)", &[]);
    check(
        &["src/cart.ts"],
        "src/cart.ts(30,5): error TS2304: Cannot find name 'x'.",
        &[("src/cart.ts", 30)],
    );
    check(&["x/mod.rs", "y/mod.rs"], "src/z/mod.rs:3", &[]);
    check(&["pool.rs"], "pool.rs:99999999999", &[]);
    // A name is little, but better than nothing.
    check(
        &["service/pool.py"],
        "File \"/app/pool.py\", line 3",
        &[("service/pool.py", 3)],
    );
    let endless = "at /x/y.rs:1\n".repeat(100_000);
    assert_eq!(places(&endless).len(), 1);
}
