//! Adds and removes one `[[mcp.upstream]]` in the text of a configuration file; everything else stays as it is.

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use crate::upstream::{UpstreamConfig, UpstreamLaunch};

/// The text with this upstream added, or in the place of the one of that name.
///
/// # Errors
/// The text is no TOML, or has something else where the list would be.
pub fn with_upstream(text: &str, upstream: &UpstreamConfig) -> Result<String, String> {
    let mut document = parsed(text)?;
    removed(&mut document, &upstream.name)?;
    let mcp = document.entry("mcp").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let mcp = mcp
        .as_table_like_mut()
        .ok_or_else(|| "mcp is no table".to_owned())?;
    match mcp.get_mut("upstream") {
        Some(Item::ArrayOfTables(tables)) => tables.push(table(upstream)),
        Some(Item::Value(Value::Array(array))) => array.push(inline_table(upstream)),
        Some(_) => return Err("mcp.upstream is no list of tables".to_owned()),
        None => {
            let mut tables = ArrayOfTables::new();
            tables.push(table(upstream));
            mcp.insert("upstream", Item::ArrayOfTables(tables));
        }
    }
    Ok(document.to_string())
}

/// The text without the upstream of this name; nothing if it has none.
///
/// # Errors
/// The text is no TOML, or has something else where the list would be.
pub fn without_upstream(text: &str, name: &str) -> Result<Option<String>, String> {
    let mut document = parsed(text)?;
    Ok(removed(&mut document, name)?.then(|| document.to_string()))
}

fn parsed(text: &str) -> Result<DocumentMut, String> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| error.message().replace('\n', ", "))
}

fn removed(document: &mut DocumentMut, name: &str) -> Result<bool, String> {
    let Some(mcp) = document.get_mut("mcp").and_then(Item::as_table_like_mut) else {
        return Ok(false);
    };
    let has_name = |value: Option<&str>| value == Some(name);
    let (before, after) = match mcp.get_mut("upstream") {
        None => return Ok(false),
        Some(Item::ArrayOfTables(tables)) => {
            let before = tables.len();
            tables.retain(|table| !has_name(table.get("name").and_then(Item::as_str)));
            (before, tables.len())
        }
        Some(Item::Value(Value::Array(array))) => {
            let before = array.len();
            array.retain(|value| {
                let table = value.as_inline_table();
                !has_name(table.and_then(|table| table.get("name")?.as_str()))
            });
            (before, array.len())
        }
        Some(_) => return Err("mcp.upstream is no list of tables".to_owned()),
    };
    if after == 0 {
        mcp.remove("upstream");
    }
    Ok(after < before)
}

/// The keys that differ from their defaults, in reading order.
fn fields(upstream: &UpstreamConfig) -> Vec<(&'static str, Value)> {
    let list =
        |values: &[String]| Value::Array(values.iter().map(String::as_str).collect::<Array>());
    let mut fields = vec![("name", Value::from(upstream.name.as_str()))];
    let mut lists = Vec::new();
    match &upstream.launch {
        UpstreamLaunch::Command(command) => {
            fields.push(("command", command.command.as_str().into()));
            lists.extend([("args", &command.args), ("env", &command.env)]);
            if let Some(cwd) = &command.cwd {
                fields.push(("cwd", cwd.as_str().into()));
            }
            if !command.confine {
                fields.push(("confine", false.into()));
            }
            if let Some(network) = command.network {
                fields.push(("network", network.into()));
            }
            lists.push(("extra_write", &command.extra_write));
        }
        UpstreamLaunch::Http(http) => {
            fields.push(("url", http.url.as_str().into()));
            lists.push(("headers_env", &http.headers_env));
            if let Some(file) = &http.token_file {
                fields.push(("token_file", file.as_str().into()));
            }
        }
    }
    lists.push(("promoted", &upstream.promoted));
    let given = lists.into_iter().filter(|(_, values)| !values.is_empty());
    fields.extend(given.map(|(key, values)| (key, list(values))));
    if upstream.tools != ["*"] {
        fields.push(("tools", list(&upstream.tools)));
    }
    if upstream.idle_s != 300 {
        fields.push((
            "idle_s",
            i64::try_from(upstream.idle_s).unwrap_or(i64::MAX).into(),
        ));
    }
    fields
}

fn table(upstream: &UpstreamConfig) -> Table {
    let mut table = Table::new();
    for (key, value) in fields(upstream) {
        table.insert(key, Item::Value(value));
    }
    table
}

fn inline_table(upstream: &UpstreamConfig) -> InlineTable {
    let mut table = InlineTable::new();
    for (key, value) in fields(upstream) {
        table.insert(key, value);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::UpstreamCommand;

    fn upstream(name: &str, args: &[&str]) -> UpstreamConfig {
        UpstreamConfig {
            name: name.to_owned(),
            launch: UpstreamLaunch::Command(UpstreamCommand {
                command: "npx".to_owned(),
                args: args.iter().map(|&arg| arg.to_owned()).collect(),
                env: vec!["TOKEN".to_owned()],
                cwd: None,
                confine: true,
                network: Some(true),
                extra_write: Vec::new(),
            }),
            tools: vec!["*".to_owned()],
            promoted: Vec::new(),
            idle_s: 300,
        }
    }

    #[test]
    fn one_entry_is_added_replaced_and_removed_and_the_rest_stays() {
        let before = "# mine\n[mcp]\nmode = \"te\" # small\n\n[other]\nx = 1\n";
        let added = with_upstream(before, &upstream("git", &["a"])).unwrap();
        for kept in [
            "# mine\n[mcp]\nmode = \"te\" # small\n",
            "\n[other]\nx = 1\n",
        ] {
            assert!(added.contains(kept), "{added}");
        }
        assert!(
            added.contains(
                "[[mcp.upstream]]\nname = \"git\"\ncommand = \"npx\"\nnetwork = true\nargs = [\"a\"]\nenv = [\"TOKEN\"]\n"
            ),
            "{added}"
        );
        let again = with_upstream(&added, &upstream("git", &["b"])).unwrap();
        assert!(
            again.contains("args = [\"b\"]") && !again.contains("[\"a\"]"),
            "{again}"
        );
        let both = with_upstream(&again, &upstream("time", &[])).unwrap();
        assert_eq!(both.matches("[[mcp.upstream]]").count(), 2, "{both}");
        let one = without_upstream(&both, "git").unwrap().unwrap();
        assert!(
            one.contains("\"time\"") && !one.contains("\"git\""),
            "{one}"
        );
        assert_eq!(without_upstream(&one, "git").unwrap(), None);
        let none = without_upstream(&one, "time").unwrap().unwrap();
        assert!(
            none.contains("# small") && !none.contains("upstream"),
            "{none}"
        );
    }

    #[test]
    fn a_list_on_one_line_stays_one_and_other_things_are_refused() {
        let line = "mcp.upstream = [{ name = \"a\", command = \"x\" }]\n";
        let added = with_upstream(line, &upstream("b", &[])).unwrap();
        assert_eq!(added.lines().count(), 1, "{added}");
        assert!(added.contains("name = \"b\""), "{added}");
        with_upstream("mcp = 3", &upstream("b", &[])).unwrap_err();
        with_upstream("mcp.upstream = 3", &upstream("b", &[])).unwrap_err();
        with_upstream("not toml", &upstream("b", &[])).unwrap_err();
        assert!(
            with_upstream("", &upstream("b", &[]))
                .unwrap()
                .starts_with("[[mcp.upstream]]")
        );
    }
}
