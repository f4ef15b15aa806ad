use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What a text is, to a Python parser: the kinds of its top-level statements, or nothing when it is no Python.
fn statements(text: &str) -> Option<Vec<String>> {
    let mut parser = tree_sitter::Parser::new();
    parser
        .set_language(&tree_sitter_python::LANGUAGE.into())
        .unwrap();
    let tree = parser.parse(text, None)?;
    let root = tree.root_node();
    if root.has_error() {
        return None;
    }
    let mut cursor = root.walk();
    Some(
        root.children(&mut cursor)
            .map(|node| node.kind().to_owned())
            .collect(),
    )
}

/// The statements inside the only function of a text.
fn body(text: &str) -> Vec<String> {
    let mut parser = tree_sitter::Parser::new();
    parser
        .set_language(&tree_sitter_python::LANGUAGE.into())
        .unwrap();
    let tree = parser.parse(text, None).unwrap();
    let function = tree.root_node().child(0).unwrap();
    let block = function.child_by_field_name("body").unwrap();
    let mut cursor = block.walk();
    block
        .children(&mut cursor)
        .map(|node| {
            let inner = node.child(0).map_or("", |inner| inner.kind());
            format!("{}/{inner}", node.kind())
        })
        .collect()
}

fn tools() -> Vec<&'static ToolDef> {
    scriptable(&Config::default())
}

#[test]
fn every_tool_is_a_function_that_parses() {
    let text = module(&tools());
    let kinds = statements(&text).expect("stubs are Python");
    let functions = kinds.iter().filter(|kind| *kind == "function_definition");
    assert_eq!(functions.count(), tools().len() + 3, "{kinds:?}");
    for tool in tools() {
        assert!(
            text.contains(&format!("\ndef {}(", tool.name)),
            "{}",
            tool.name
        );
        assert!(
            text.contains(&format!("async def {}(self", tool.name)),
            "{}",
            tool.name
        );
    }
    for absent in ["def init(", "def execute_code("] {
        assert!(!text.contains(absent));
    }
}

#[test]
fn a_stub_reads_like_python() {
    let tool = crate::catalog::find("linux_fs_write").unwrap();
    assert_eq!(
        stub(tool).unwrap(),
        "def linux_fs_write(path: str, content: str, mode: Literal[\"rewrite\", \"append\"] = \"rewrite\", \
         expected_sha256: str | None = None) -> dict[str, Any]:\n    \
         \"\"\"Create, rewrite or append to a file.\n\n    \
         Returns {bytes_written, new_sha256}\"\"\"\n    ...\n"
    );
}

#[test]
fn help_tells_arguments_results_and_errors() {
    let tool = crate::catalog::find("linux_search_content").unwrap();
    let page = help(tool);
    for part in [
        "linux_search_content(root: str, pattern: str, file_glob: str | None = None, literal: bool = False",
        "Search file contents; regex unless literal.",
        "  root: str, required\n",
        "  context_lines: int = 3 (0 to 10; 0 makes snippet the line alone)\n",
        "Returns {hits: [{path, line, snippet}]",
        "Raises ValueError (BAD_ARGS), PermissionError (INVALID_PATH), FileNotFoundError (NOT_FOUND), TimeoutError (TIMEOUT)",
        "tools.aio.linux_search_content(",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let te = help(crate::catalog::find("te_grep").unwrap());
    assert!(te.contains("PermissionError (path_denied)"), "{te}");
}

#[test]
fn every_tool_says_what_it_returns() {
    for tool in tools() {
        let shape = tool.shape();
        assert!(!shape.fields.is_empty(), "{} returns nothing", tool.name);
        assert_ne!(shape.python_type, "Any", "{}", tool.name);
        let known = tool.arguments();
        assert!(known.keys().eq(tool.argument_names()), "{}", tool.name);
    }
}

#[test]
fn positional_arguments_mean_what_the_stub_says() {
    // Calls take them in the schema's order, stubs show those that are required first.
    for tool in tools() {
        let required = tool.schema().get("required").and_then(Value::as_array);
        let required = required.map_or(0, Vec::len);
        let properties = tool.schema()["properties"].as_object().unwrap();
        let stub = Stub::of(tool).unwrap();
        let shown: Vec<&str> = stub.parameters.iter().map(|one| one.name).collect();
        let order: Vec<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(shown, order, "{}: required arguments come first", tool.name);
        assert!(stub.parameters[..required].iter().all(|one| one.required));
    }
}

#[test]
fn what_is_switched_off_has_no_stub() {
    let mut config = Config::default();
    config.mcp.tools.enable_run_cmd = false;
    let names: Vec<&str> = scriptable(&config).iter().map(|tool| tool.name).collect();
    for name in [
        "run_cmd",
        "te_run",
        "run_pytest",
        "linux_proc_start",
        "linux_proc_send",
    ] {
        assert!(!names.contains(&name), "{name}");
    }
    assert!(names.contains(&"read_file"));
}

/// Texts that try to get out of where they are put.
const HOSTILE: &[&str] = &[
    "\"\"\"\nimport os\nos.system('id')\n\"\"\"",
    "\\\"\"\"\nimport os #",
    "x): ...\nimport os\ndef y(",
    "a\\",
    "a\"",
    "\\\"\\\"\\\"",
    "'''\n__import__('os')\n'''",
    "a\r\nimport os",
    "a\u{2028}import os",
    "\u{0}",
    "\\N{LATIN SMALL LETTER A}\\x41\\u0041\\",
    "\u{202e}\u{feff}",
    "name: str = __import__('os').system('id')",
    "{}{0}%s",
    "class",
    "__class__",
    "日本",
    "\"]\nimport os\nx = Literal[\"",
];

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(HOSTILE).prop_map(str::to_owned),
        "[a-z_]{1,12}",
        "\\PC{0,40}",
        any::<String>(),
        "[\"'\\\\\n\r(){}:=#, ]{0,30}",
    ]
}

/// A schema as a hostile server of tools might have written it.
fn schema() -> impl Strategy<Value = Map<String, Value>> {
    let property = (
        hostile(),
        hostile(),
        prop::collection::vec(hostile(), 0..4),
        0..6usize,
    );
    prop::collection::vec((hostile(), property), 0..5).prop_map(|properties| {
        let mut map = Map::new();
        let required: Vec<Value> = properties.iter().step_by(2).map(|(name, _)| name.clone().into()).collect();
        for (name, (words, kind, values, pick)) in properties {
            let kind = ["string", "integer", "array", "boolean", kind.as_str(), "object"][pick];
            let mut property = json!({"type": kind, "description": words, "items": {"type": "string", "enum": values}});
            if pick == 0 {
                property["enum"] = values.into();
            }
            map.insert(name, property);
        }
        let Value::Object(schema) = json!({"type": "object", "properties": map, "required": required}) else {
            unreachable!("an object was written")
        };
        schema
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_gets_out_of_a_stub(name in hostile(), words in hostile(), schema in schema()) {
        let Some(stub) = Stub::from(&name, &words, &schema, schema["properties"].as_object().unwrap()) else {
            return Ok(());
        };
        let text = stub.function();
        let kinds = statements(&text);
        prop_assert_eq!(kinds, Some(vec!["function_definition".to_owned()]), "{}", text);
        prop_assert_eq!(body(&text), ["expression_statement/string", "expression_statement/ellipsis"], "{}", text);
    }

    #[test]
    fn a_literal_is_one_string(text in hostile()) {
        let literal = quoted::literal(&text);
        prop_assert_eq!(statements(&literal), Some(vec!["expression_statement".to_owned()]), "{}", literal);
        prop_assert!(!literal.contains('\n'));
    }
}

/// The same asked of Python itself, where there is one.
#[test]
fn python_itself_takes_the_stubs_for_data() {
    let hostile: Vec<String> = HOSTILE
        .iter()
        .filter_map(|words| {
            let Value::Object(schema) = json!({
                "properties": {*words: {"type": "string"}, "plain": {"enum": [words]}},
            }) else {
                return None;
            };
            Some(Stub::from("tool", words, &schema, schema["properties"].as_object()?)?.function())
        })
        .collect();
    assert_eq!(hostile.len(), HOSTILE.len());
    let text = format!("{}\n{}", module(&tools()), hostile.join("\n"));
    let program = "import ast, sys\n\
        tree = ast.parse(sys.stdin.buffer.read().decode())\n\
        allowed = (ast.FunctionDef, ast.ClassDef, ast.ImportFrom, ast.AnnAssign, ast.Expr)\n\
        assert all(isinstance(n, allowed) for n in tree.body)\n\
        assert not any(isinstance(n, (ast.Call, ast.Import, ast.Lambda)) for n in ast.walk(tree))\n";
    let Ok(mut child) = std::process::Command::new("python3")
        .args(["-I", "-c", program])
        .stdin(std::process::Stdio::piped())
        .spawn()
    else {
        return;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
