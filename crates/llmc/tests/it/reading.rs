//! Reading less: several places in one call, definitions with their callers, outlines, answers a little over their budget.

use llmc_testkit::TestWorkspace;
use serde_json::json;

use crate::{classic, workspace};

const SHOP: &str = "\
//- shop/price.py
def total(items):
    return sum(item.price for item in items)


class Cart:
    def add(self, item):
        self.items.append(item)

    def pay(self):
        return total(self.items)
//- shop/report.py
from shop.price import total

def lines(items):
    yield f'sum {total(items)}'
//- notes.txt
one
two
three
four
";

#[test]
fn several_files_ranges_and_definitions_come_in_one_answer() {
    let workspace = workspace(SHOP);
    let mut client = classic(&workspace);
    let path = "notes.txt:1-1,3-4,shop/price.py::Cart.add,total,missing.py";
    let text = client.text("read_file", json!({"path": path}));
    let expected = [
        "== notes.txt:1-1 (lines 1-1 of 4, sha ",
        "one\n\n== notes.txt:3-4 (lines 3-4 of 4, sha ",
        "three\nfour\n\n== shop/price.py::Cart.add (lines 6-7 of 10, sha ",
        "    def add(self, item):\n        self.items.append(item)\n\n== shop/price.py::total (lines 1-2 of 10, sha ",
        "== missing.py: ",
    ];
    let mut rest = text.as_str();
    for part in expected {
        let (_, after) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("{part:?} in {text}"));
        rest = after;
    }
    let cat = client.text("te_cat", json!({"path": "notes.txt:1-1,3-4"}));
    assert!(
        cat.contains("== notes.txt:3-4 ") && cat.contains("three\nfour\n"),
        "{cat}"
    );
    // A file of that very name wins.
    workspace.write("a,b", "both\n");
    assert!(
        client
            .text("read_file", json!({"path": "a,b"}))
            .starts_with("both\n")
    );
    let (failed, text) = client.call_tool("read_file", json!({"path": "nope,neither"}));
    assert!(failed && text.contains("NOT_FOUND"), "{text}");
    let (failed, text) = client.call_tool(
        "read_file",
        json!({"path": "notes.txt,a,b", "max_lines": 3}),
    );
    assert!(failed && text.contains("name lines in the path"), "{text}");
}

fn long_source(workspace: &TestWorkspace) -> usize {
    let body: String = (0..900)
        .map(|n| format!("    value_{n} = compute({n}, 'text {n}')\n"))
        .collect();
    workspace.write(
        "long.py",
        format!("def long():\n{body}\n\ndef short():\n    pass\n"),
    );
    901
}

#[test]
fn what_a_call_names_is_given_whole() {
    let workspace = workspace("//- a.txt\none\n");
    let lines = long_source(&workspace);
    let mut client = classic(&workspace);
    for path in ["long.py::long".to_owned(), format!("long.py:1-{lines}")] {
        for tool in ["read_file", "te_cat"] {
            let text = client.text(tool, json!({"path": path}));
            assert!(
                text.contains("value_450 = ") && text.contains("value_899 = "),
                "{tool} {path}"
            );
        }
    }
    // A budget of the caller's own.
    let args = json!({"command": "cat long.py | sed 's/x/y/'", "max_tokens": 20_000});
    assert!(client.text("run_cmd", args).contains("value_450 = "));
    let args = json!({"command": "cat long.py | sed 's/x/y/'", "max_tokens": "300"});
    let text = client.text("run_cmd", args);
    assert!(
        !text.contains("value_450 = ") && llmc_tokens::count(&text) < 400,
        "{text}"
    );
}

#[test]
fn little_more_than_the_budget_is_not_cut() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let lines =
        |count: usize| format!("for n in range({count}):\n    print('line', n, 'of the output')");
    let whole = client.text("execute_code", json!({"code": lines(330)}));
    let tokens = llmc_tokens::count(&whole);
    assert!((2_050..2_500).contains(&tokens), "{tokens}");
    assert!(
        whole.contains("line 165 of") && !whole.contains("left out"),
        "{tokens}"
    );
    let cut = client.text("execute_code", json!({"code": lines(600)}));
    assert!(cut.contains("left out") && llmc_tokens::count(&cut) <= 2_000);
}

#[test]
fn look_shows_whole_definitions_with_their_callers() {
    let workspace = workspace(SHOP);
    let mut client = classic(&workspace);
    let text = client.text("look", json!({"query": "total"}));
    assert!(
        text.contains("== shop/price.py::total L1-L2 ==\ndef total(items):\n    return sum("),
        "{text}"
    );
    assert!(text.contains("used in:\n"), "{text}");
    assert!(
        text.contains("  shop/price.py:10: return total(self.items)\n"),
        "{text}"
    );
    assert!(
        text.contains("  shop/report.py:4: yield f'sum {total(items)}'\n"),
        "{text}"
    );
    let words = client.text(
        "look",
        json!({"query": "add an item to the cart", "budget": 1000}),
    );
    assert!(words.contains("self.items.append(item)"), "{words}");
    let (failed, text) = client.call_tool("look", json!({"query": "zzyzx_nothing"}));
    assert!(failed && text.contains("NOT_FOUND"), "{text}");
    let outline = client.text("outline", json!({"path": "shop/price.py"}));
    assert!(
        outline.contains("total") && outline.contains("pay"),
        "{outline}"
    );
}
