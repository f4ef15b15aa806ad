//! Hints about Python that this interpreter does not implement.

use crate::names::ScriptNames;

/// Modules that a script can import.
const MODULES: &str = "asyncio, base64, collections, dataclasses, datetime, functools, itertools, json, math, re, typing";

/// A part of the interpreter's message, and what to write instead.
const CONSTRUCTS: &[(&str, &str)] = &[
    ("yield", "build a list and return it"),
    (
        "class inheritance",
        "write one class without bases, or plain functions and dicts",
    ),
    (
        "method decorators",
        "write a plain method, or a function outside of the class",
    ),
    (
        "class bodies",
        "keep methods and simple `name = value` lines in the class, the rest outside",
    ),
    ("class variable", "use `name = value` in the class"),
    ("'del'", "use d.pop(key) or list.pop(i), or assign None"),
    ("pattern matching", "use if and elif"),
    (
        "async for",
        "use a plain for over a list of awaited results",
    ),
    ("async with", "call and await without a context manager"),
    ("async comprehensions", "use await asyncio.gather(...)"),
    ("exception groups", "use try and except"),
    ("Wildcard imports", "import the names one by one"),
    (
        "type aliases",
        "leave the alias out; annotations are not needed",
    ),
    ("**kwargs", "merge the dicts first: f(**{**a, **b})"),
    ("template strings", "use an f-string"),
    ("complex", "use floats"),
    ("starred", "write the items out, or join lists with +"),
    (":=", "assign on a line of its own"),
    ("matrix multiplication", "write the loops out"),
    ("future feature", "leave the import out"),
    (
        "external function",
        "call it in a comprehension or a loop: [f(x) for x in xs]",
    ),
];

/// What to write in place of a construct.
pub(super) fn construct(message: &str) -> String {
    let found = CONSTRUCTS.iter().find(|(word, _)| message.contains(word));
    let hint = found.map_or("write it in plainer Python", |(_, hint)| hint);
    hint.to_owned()
}

/// The hint about an uncaught exception.
pub(super) fn exception(class: &str, message: &str, names: &ScriptNames) -> Option<String> {
    let module = names.module.as_deref();
    match class {
        "ModuleNotFoundError" | "ImportError" => Some(match module {
            Some(module) => {
                format!("there are {MODULES}; files, commands and search are functions of {module}")
            }
            None => format!("there are {MODULES}"),
        }),
        "NameError" | "AttributeError" => {
            let name = message.rsplit('\'').nth(1)?;
            let all = names.functions.iter().chain(&names.module_functions);
            nearest(name, all.map(String::as_str)).map(|near| format!("did you mean {near}?"))
        }
        "TypeError" if message.contains("for %: 'str'") => Some("use an f-string".to_owned()),
        _ => None,
    }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(64).collect();
    known
        .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
