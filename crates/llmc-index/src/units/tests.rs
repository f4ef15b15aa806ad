use super::*;

fn split(path: &str, text: &str) -> FileParts {
    split_within(path, text, MAX_PARSE_TIME)
}

/// The units as `first-last kind scope::symbol [names]`.
fn units_of(path: &str, text: &str) -> Vec<String> {
    let told = split(path, text).units.into_iter().map(|unit| {
        let names = unit.names.join(",");
        format!(
            "{}-{} {} {} [{names}]",
            unit.first,
            unit.last,
            unit.kind.as_str(),
            unit.qualified()
        )
    });
    told.collect()
}

#[test]
fn rust_units_take_their_comments_along() {
    let text = "use std::fs;

const LIMIT: u8 = 1;

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: u8,
}

impl Pool {
    /// Takes one.
    pub fn take(&self) -> u8 {
        fn inner() {}
        1
    }

    fn put(&self) {}
}
";
    assert_eq!(
        units_of("a.rs", text),
        [
            "1-3 text  [LIMIT]",
            "5-9 type Pool [idle]",
            "11-19 type Pool []",
            "12-16 function Pool::take [inner]",
            "18-18 function Pool::put []",
        ]
    );
}

#[test]
fn every_line_with_words_is_owned_once() {
    let text = include_str!("../units.rs");
    let found = split("units.rs", text);
    let lines = Lines::new(text);
    assert_eq!(lines.text(), text);
    let mut owned = vec![0; lines.len() as usize + 1];
    for unit in &found.units {
        assert!(
            unit.first <= unit.head && unit.head <= unit.last,
            "{unit:?}"
        );
        for (first, last) in &unit.own {
            for line in *first..=*last {
                owned[line as usize] += 1;
            }
        }
    }
    for line in 1..=lines.len() {
        let expected = i32::from(!lines.trimmed(line).is_empty());
        assert!(owned[line as usize] >= expected, "line {line}");
        assert!(owned[line as usize] <= 1, "line {line}");
    }
}

#[test]
fn python_methods_know_their_class() {
    let text = "\"\"\"Doc.\"\"\"

class Pool(Base):
    \"\"\"A pool.\"\"\"

    size = 4

    @property
    def idle(self):
        return 1

def go():
    pass
";
    assert_eq!(
        units_of("a.py", text),
        [
            "1-1 text  []",
            "3-10 type Pool [size]",
            "8-10 function Pool::idle []",
            "12-13 function go []",
        ]
    );
}

#[test]
fn markdown_by_heading_outside_of_code() {
    let text = "intro

# Title
text
```sh
# no heading
```
## Use
more

Other
=====
end
";
    assert_eq!(
        units_of("a.md", text),
        [
            "1-1 text  []",
            "3-7 section Title []",
            "8-9 section Title::Use []",
            "11-13 section Other []",
        ]
    );
}

#[test]
fn configuration_by_section_and_other_text_by_window() {
    let lines = |n: usize| (0..n).map(|i| format!("k{i} = 1\n")).collect::<String>();
    let toml = format!("[a]\n{}[b]\n{}", lines(14), lines(3));
    assert_eq!(
        units_of("x.toml", &toml),
        ["1-15 section a []", "16-19 section b []"]
    );
    let windows = units_of("x.unknown", &lines(100));
    assert_eq!(windows, ["1-60 text  []", "53-100 text  []"]);
}

#[test]
fn a_long_function_keeps_its_name_in_every_part() {
    let body: String = (0..200).map(|i| format!("    step{i}();\n")).collect();
    let found = units_of("a.rs", &format!("fn long() {{\n{body}}}\n"));
    assert!(found.len() > 2, "{found:?}");
    assert!(
        found.iter().all(|unit| unit.contains("function long")),
        "{found:?}"
    );
}

#[test]
fn strange_files_do_no_harm() {
    for text in [
        "",
        "\n",
        "\n\n\n",
        "fn",
        "\u{feff}fn a() {}",
        "fn a(){}fn b(){}",
        "\r\n\r\n",
    ] {
        for path in ["a.rs", "a.py", "a.md", "a.json", "a.ipynb", "Makefile", "a"] {
            let found = split(path, text);
            let lines = Lines::new(text);
            for unit in found.units {
                assert!(unit.last <= lines.len(), "{path} {text:?}");
            }
        }
    }
}

#[test]
fn a_grammar_without_end_falls_back_to_windows() {
    let nested = "(".repeat(40_000).replace("((((((((((", "((((((((((\n");
    let found = split("a.rs", &nested);
    // Whether it was parsed in time or not, its lines are there.
    assert!(!found.units.is_empty());
}

#[test]
fn short_macros_belong_to_the_lines_around_them() {
    let text = "#include <stdio.h>
#define PORT 6379
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Exchanges two values. */
#define SWAP(type, a, b) \\
    do { type c = a; a = b; b = c; } while (0)

int main(void) { return 0; }
";
    assert_eq!(
        units_of("a.c", text),
        [
            "1-3 text  [PORT,MIN]",
            "5-7 function SWAP []",
            "9-9 function main []",
        ]
    );
}

#[test]
fn overloads_belong_to_the_function_behind_them() {
    let text = "/** Doubles. */
export function twice(n: number): number;
export function twice(n: string): string;
export function twice(n: any) {
  return n + n;
}

declare function alone(n: number): void;
";
    assert_eq!(
        units_of("a.ts", text),
        ["1-6 function twice [twice,twice]", "8-8 text  [alone]"]
    );
}

#[test]
fn a_declaration_with_documentation_is_a_unit() {
    let text = "int ring_size(void);

/*
 * Takes the oldest value out.
 */
int ring_pop(int *value);

/*
 * How many there are.
 */
extern int ring_count;
";
    assert_eq!(
        units_of("ring.h", text),
        [
            "1-1 text  [ring_size]",
            "3-6 function ring_pop []",
            "8-11 text  [ring_count]",
        ]
    );
}

#[test]
fn functions_in_a_long_function_are_units() {
    let body: String = (0..160).map(|i| format!("  step{i}()\n")).collect();
    let inner = "  function inner(x) {\n    return x\n  }\n  const short = () => 1\n";
    let found = units_of("a.js", &format!("function outer() {{\n{inner}{body}}}\n"));
    assert!(
        found.contains(&"2-4 function outer::inner []".to_owned()),
        "{found:?}"
    );
    let others = found
        .iter()
        .filter(|unit| unit.contains("function outer ["));
    assert_eq!(others.count(), found.len() - 1, "{found:?}");
    let short = units_of("a.js", &format!("function outer() {{\n{inner}}}\n"));
    assert_eq!(short, ["1-6 function outer [inner,short]"]);
}
