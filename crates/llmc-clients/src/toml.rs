//! Entries in TOML.

use serde_json::{Map, Value as Plain};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use crate::edit::EditError;
use crate::entry::ServerEntry;
use crate::plan::NameConflict;
use crate::servers::{CREDENTIAL_KEYS, ClientServer, URL_KEYS};

pub(crate) fn insert_entry(
    text: &str,
    servers: &str,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let container = document.entry(servers).or_insert_with(|| {
        // Write only the tables below it, not an empty header.
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let inline = container.is_inline_table();
    let container = tables(container, servers)?;
    match container.get_mut(entry.name()) {
        None => {
            container.insert(entry.name(), new_entry(entry, inline));
        }
        Some(there) => match there.as_table_like_mut() {
            Some(fields) if is_ours(fields, entry) => {
                set(fields, "command", entry.command.as_str().into());
                set(fields, "args", Value::Array(list(&entry.args)));
            }
            _ if conflict == NameConflict::Replace => *there = new_entry(entry, inline),
            _ => return Err(EditError::NameTaken(command_of(there))),
        },
    }
    let after = document.to_string();
    check_rest_unchanged(text, &after, servers, entry.name())?;
    Ok(after)
}

/// The arguments of an entry that starts the same server.
pub(crate) fn args_of(text: &str, servers: &str, entry: &ServerEntry) -> Option<Vec<String>> {
    let document = parse(text).ok()?;
    let there = document.get(servers)?.get(entry.name())?;
    let fields = there.as_table_like()?;
    let args = fields.get("args")?.as_array()?;
    let args = args.iter().map(|arg| arg.as_str().map(str::to_owned));
    is_ours(fields, entry).then(|| args.collect())?
}

pub(crate) fn remove_entry(
    text: &str,
    servers: &str,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let Some(container) = document.get_mut(servers) else {
        return Ok(text.to_owned());
    };
    let Some(there) = tables(container, servers)?.get(entry.name()) else {
        return Ok(text.to_owned());
    };
    let ours = there
        .as_table_like()
        .is_some_and(|fields| is_ours(fields, entry));
    if !ours && conflict == NameConflict::Refuse {
        return Err(EditError::NameTaken(command_of(there)));
    }
    remove_named(text, servers, entry.name())
}

/// Removes the entry of this name, whatever it starts.
pub(crate) fn remove_named(text: &str, servers: &str, name: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let Some(container) = document.get_mut(servers) else {
        return Ok(text.to_owned());
    };
    tables(container, servers)?.remove(name);
    let after = document.to_string();
    check_rest_unchanged(text, &after, servers, name)?;
    Ok(after)
}

/// Every entry with what it starts; `None` when the text cannot be read.
pub(crate) fn started_servers(text: &str, servers: &str) -> Option<Vec<ClientServer>> {
    let document = parse(text).ok()?;
    let entries = document.get(servers)?.as_table_like()?.iter();
    let started = entries.filter_map(|(name, item)| {
        let fields = item.as_table_like()?;
        let args = fields.get("args").and_then(Item::as_array);
        let env = fields.get("env").and_then(Item::as_table_like);
        let flag = |key: &str| fields.get(key).and_then(Item::as_bool);
        let is_special = flag("disabled") == Some(true)
            || flag("enabled") == Some(false)
            || fields.contains_key("cwd")
            || args.is_some() != fields.contains_key("args")
            || env.is_some() != fields.contains_key("env")
            || args.into_iter().flatten().any(|value| !value.is_str())
            || env.is_some_and(|env| env.iter().any(|(_, value)| !value.is_str()));
        let args = args.into_iter().flatten().filter_map(Value::as_str);
        let env = env.into_iter().flat_map(|env| env.iter());
        let text = |key: &str| Some(fields.get(key)?.as_str()?.to_owned());
        Some(ClientServer {
            entry: name.to_owned(),
            command: text("command"),
            args: args.map(str::to_owned).collect(),
            env: env
                .filter_map(|(name, value)| Some((name.to_owned(), value.as_str()?.to_owned())))
                .collect(),
            url: URL_KEYS.iter().find_map(|key| text(key)),
            has_credentials: CREDENTIAL_KEYS.iter().any(|key| fields.contains_key(key)),
            is_special,
        })
    });
    Some(started.collect())
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse::<DocumentMut>().map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        EditError::Broken(format!("line {line}: {}", error.message().trim()))
    })
}

fn tables<'a>(item: &'a mut Item, servers: &str) -> Result<&'a mut dyn TableLike, EditError> {
    item.as_table_like_mut()
        .ok_or_else(|| EditError::Unexpected(format!("`{servers}` is not a table")))
}

fn new_entry(entry: &ServerEntry, inline: bool) -> Item {
    if inline {
        let mut fields = InlineTable::new();
        fields.insert("command", entry.command.as_str().into());
        fields.insert("args", Value::Array(list(&entry.args)));
        return value(fields);
    }
    let mut fields = Table::new();
    fields.insert("command", value(entry.command.as_str()));
    fields.insert("args", value(list(&entry.args)));
    Item::Table(fields)
}

fn list(args: &[String]) -> Array {
    args.iter().map(String::as_str).collect()
}

/// Sets a field unless it already has that value; a comment beside the value stays.
fn set(fields: &mut dyn TableLike, name: &str, new: Value) {
    match fields.get_mut(name) {
        Some(Item::Value(old)) if simple(old) == simple(&new) => {}
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        _ => {
            fields.insert(name, Item::Value(new));
        }
    }
}

fn is_ours(fields: &dyn TableLike, entry: &ServerEntry) -> bool {
    let args = fields.get("args").and_then(Item::as_array);
    let args: Vec<&str> = args
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    entry.recognises(fields.get("command").and_then(Item::as_str), &args)
}

fn command_of(item: &Item) -> String {
    let field = |name: &str| item.get(name).and_then(Item::as_str);
    field("command")
        .or_else(|| field("url"))
        .unwrap_or("no command")
        .to_owned()
}

/// Fails unless everything but the entry is the same, in the same order.
fn check_rest_unchanged(
    before: &str,
    after: &str,
    servers: &str,
    name: &str,
) -> Result<(), EditError> {
    let rest = |text: &str| -> Result<String, EditError> {
        let mut all = table(parse(text)?.as_table());
        if let Some(Plain::Object(container)) = all.get_mut(servers) {
            container.shift_remove(name);
            if container.is_empty() {
                all.shift_remove(servers);
            }
        }
        Ok(Plain::Object(all).to_string())
    };
    if rest(before)? == rest(after)? {
        Ok(())
    } else {
        Err(EditError::WouldLoseContent)
    }
}

fn table(fields: &dyn TableLike) -> Map<String, Plain> {
    let fields = fields.iter();
    fields
        .map(|(key, item)| (key.to_owned(), plain(item)))
        .collect()
}

fn plain(item: &Item) -> Plain {
    match item {
        Item::None => Plain::Null,
        Item::Value(value) => simple(value),
        Item::Table(fields) => Plain::Object(table(fields)),
        Item::ArrayOfTables(tables) => tables
            .iter()
            .map(|fields| Plain::Object(table(fields)))
            .collect(),
    }
}

fn simple(value: &Value) -> Plain {
    match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Array(items) => items.iter().map(simple).collect(),
        Value::InlineTable(fields) => Plain::Object(table(fields)),
        // Numbers, dates and booleans as written, which an edit elsewhere does not change.
        other => other.to_string().trim().into(),
    }
}
