//! Hints about Python that this interpreter does not implement.

use super::library;
use crate::names::ScriptNames;

/// A part of the interpreter's message, and what to write instead.
const CONSTRUCTS: &[(&str, &str)] = &[
    (
        "yield",
        "generators run only if they end, print nothing and are not sent values; build a list and return it",
    ),
    (
        "class inheritance",
        "raise ValueError or RuntimeError instead of a class of your own; write one class without bases, or functions and dicts",
    ),
    (
        "method decorators",
        "only property, staticmethod and classmethod are known; write a plain method, or a function outside of the class",
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
    (
        "is not yet supported in this context",
        "make a list of the results first: [f(x) for x in xs]",
    ),
    ("gather()", "pass only awaitables to gather"),
];

/// A part of the message of an exception that comes from a gap of the interpreter, and what to write instead.
const GAPS: &[(&str, &str)] = &[
    (
        "not supported between instances",
        "own classes have no order: sort and compare by a key, sorted(xs, key=lambda x: x.field)",
    ),
    (
        "object is not callable",
        "__call__ is not supported: call a method by its name",
    ),
    (
        "does not support item assignment",
        "__setitem__ is not supported: write a method set(key, value)",
    ),
    (
        "is not subscriptable",
        "__getitem__ is not supported here: write a method get(key)",
    ),
    (
        "context manager protocol",
        "call the two steps yourself, with try and finally",
    ),
    (
        "unsupported operand type",
        "write a function or method for it; convert bool with int(x)",
    ),
    (
        "invalid unpacking target",
        "unpack into plain names first, then assign",
    ),
    (
        "to bytes",
        "make bytes with text.encode() or bytes.fromhex(...)",
    ),
    ("takes no keyword arguments", "leave the keyword out"),
    ("unexpected keyword argument", "leave the keyword out"),
    (
        "takes exactly one argument",
        "call it once for each argument",
    ),
    (
        "can only be called with zero or one string",
        "give the exception one string",
    ),
    ("is not an iterator", "use iter(xs) first"),
    (
        "do not take turns",
        "each task runs to its end when it is awaited; leave sleep(0) out if the order does not matter",
    ),
    ("no such group", "m.groups() lists the groups"),
];

/// Modules, and what to do without them.
const MODULES_INSTEAD: &[(&str, &str)] = &[
    ("ast", "find definitions with re, or inspect(path)"),
    ("tokenize", "split the source with re"),
    ("difflib", "run diff by run_cmd"),
    ("tomllib", "read the lines with re"),
    ("enum", "use constants, or a dict"),
    ("logging", "use print"),
    ("argparse", "assign the values"),
    ("unittest", "call the functions and compare"),
    ("threading", "use asyncio.gather with tools.aio"),
    ("concurrent", "use asyncio.gather with tools.aio"),
    ("random", "choose fixed values"),
    (
        "time",
        "leave the clock out; a command's `date` tells the time",
    ),
    ("sqlite3", "use dicts and lists"),
    ("xml", "find elements with re"),
    ("decimal", "count in whole cents"),
    ("fractions", "use floats, or pairs of integers"),
];

/// What to write in place of a construct.
pub(super) fn construct(message: &str) -> String {
    let found = CONSTRUCTS.iter().find(|(word, _)| message.contains(word));
    let hint = found.map_or("write it in plainer Python", |(_, hint)| hint);
    hint.to_owned()
}

/// The hint about an exception of a call that was awaited with others.
pub(super) fn gathered(traceback: &str) -> Option<String> {
    let hint = "inside of gather no exception of a call can be caught: give gather return_exceptions=True, or await one call after the other";
    traceback.contains("gather(").then(|| hint.to_owned())
}

/// The hint about an uncaught exception.
pub(super) fn exception(class: &str, message: &str, names: &ScriptNames) -> Option<String> {
    let quoted = |nth: usize| message.split('\'').nth(nth);
    match class {
        "ModuleNotFoundError" => Some(no_module(quoted(1).unwrap_or_default(), names)),
        "ImportError" => Some(no_member(message)),
        "AttributeError" if message.starts_with("module '") => Some(no_member(message)),
        "NameError" | "AttributeError" => {
            let name = message.rsplit('\'').nth(1)?;
            match names.nearest(name) {
                Some(near) => Some(format!("did you mean {near}?")),
                None if class == "NameError" => missing_function(name),
                None => Some(format!(
                    "the embedded interpreter knows no {name} of this type; work with its other methods or with plain values"
                )),
            }
        }
        "TypeError" | "RuntimeError" | "IndexError" | "SyntaxError" => {
            let found = GAPS.iter().find(|(word, _)| message.contains(word));
            found.map(|(_, hint)| (*hint).to_owned())
        }
        _ => None,
    }
}

fn no_module(module: &str, names: &ScriptNames) -> String {
    let first = module.split('.').next().unwrap_or_default();
    let instead = MODULES_INSTEAD.iter().find(|(name, _)| *name == first);
    let there = library::module_names(names).join(", ");
    let tools = match &names.module {
        Some(module) => format!("; files, commands and search are functions of {module}"),
        None => String::new(),
    };
    match instead {
        Some((_, instead)) => format!("without {first}: {instead}; there are {there}{tools}"),
        None => format!("there are {there}{tools}"),
    }
}

/// A module or class without this member.
fn no_member(message: &str) -> String {
    let mut quoted = message.split('\'').skip(1).step_by(2);
    let (first, second) = (
        quoted.next().unwrap_or_default(),
        quoted.next().unwrap_or_default(),
    );
    let (module, name) = if message.starts_with("cannot import") {
        (second, first)
    } else {
        (first, second)
    };
    match (module, name) {
        ("dataclasses", "field") => {
            "the embedded dataclasses has no field; write __init__ yourself where a default is a list or dict".to_owned()
        }
        ("contextlib", "contextmanager") => "write a class with __enter__ and __exit__".to_owned(),
        ("functools", "cmp_to_key") => "sort by a key: key=lambda x: (len(x), x)".to_owned(),
        _ => format!("the embedded {module} has no {name}; write out the few lines that it stands for"),
    }
}

fn missing_function(name: &str) -> Option<String> {
    let instead = match name {
        "exec" | "eval" | "compile" => {
            "the embedded interpreter runs no text as code; write the code out"
        }
        "vars" | "dir" | "globals" | "locals" => {
            "name the attributes that you need, or keep them in a dict"
        }
        "input" => "a script has no input; assign the value",
        "super" => "call Base.method(self, ...)",
        "delattr" => "assign None",
        "memoryview" | "bytearray" => "use bytes, or a list of ints",
        _ => return None,
    };
    Some(instead.to_owned())
}
