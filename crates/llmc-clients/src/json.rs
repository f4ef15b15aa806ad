//! Entries in JSON, with or without comments.
//!
//! The text is kept as a tree of every byte; an edit replaces or adds one branch of it.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

use crate::edit::EditError;
use crate::entry::ServerEntry;
use crate::plan::NameConflict;
use crate::servers::{CREDENTIAL_KEYS, ClientServer, URL_KEYS};

/// Comments and trailing commas, which editors allow in their settings, and nothing else beyond JSON.
const JSONC: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(crate) fn insert_entry(
    text: &str,
    servers: &str,
    typed: bool,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<String, EditError> {
    let root = parse(text)?;
    let container = match find_property(&top(&root)?, servers)? {
        Some(there) => object(&there, servers)?,
        None => top(&root)?.object_value_or_set(servers),
    };
    let there = find_property(&container, entry.name())?;
    let fresh = there.is_none();
    match there {
        None => {
            container.append(entry.name(), new_entry(typed, entry));
        }
        Some(there) => match there.object_value() {
            Some(fields) if is_ours(&fields, entry) => {
                if typed && fields.get("type").is_none() {
                    fields.insert(0, "type", "stdio".into());
                }
                set(&fields, "command", entry.command.as_str().into());
                set(&fields, "args", list(&entry.args));
            }
            _ if conflict == NameConflict::Replace => there.set_value(new_entry(typed, entry)),
            _ => return Err(EditError::NameTaken(command_of(&there))),
        },
    }
    let after = root.to_string();
    check_rest_unchanged(text, &after, servers, entry.name(), fresh)?;
    Ok(after)
}

/// The arguments of an entry that starts the same server.
pub(crate) fn args_of(text: &str, servers: &str, entry: &ServerEntry) -> Option<Vec<String>> {
    let root = parse(text).ok()?;
    let container = find_property(&top(&root).ok()?, servers).ok()??;
    let there = find_property(&object(&container, servers).ok()?, entry.name()).ok()??;
    let fields = there.object_value()?;
    let args = fields.to_serde_value().unwrap_or_default()["args"].take();
    is_ours(&fields, entry).then(|| serde_json::from_value(args).ok())?
}

pub(crate) fn remove_entry(
    text: &str,
    servers: &str,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<String, EditError> {
    let root = parse(text)?;
    let Some(there) = find_entry(&root, servers, entry.name())? else {
        return Ok(text.to_owned());
    };
    let ours = there
        .object_value()
        .is_some_and(|fields| is_ours(&fields, entry));
    if !ours && conflict == NameConflict::Refuse {
        return Err(EditError::NameTaken(command_of(&there)));
    }
    remove_named(text, servers, entry.name())
}

/// Removes the entry of this name, whatever it starts.
pub(crate) fn remove_named(text: &str, servers: &str, name: &str) -> Result<String, EditError> {
    let root = parse(text)?;
    let Some(there) = find_entry(&root, servers, name)? else {
        return Ok(text.to_owned());
    };
    there.remove();
    let after = root.to_string();
    check_rest_unchanged(text, &after, servers, name, false)?;
    Ok(after)
}

/// Every entry with what it starts; `None` when the text cannot be read.
pub(crate) fn started_servers(text: &str, servers: &str) -> Option<Vec<ClientServer>> {
    let root = parse(text).ok()?;
    let container = find_property(&root.object_value()?, servers).ok()??;
    let entries = container.object_value()?.properties().into_iter();
    let started = entries.filter_map(|property| {
        let value = property.value()?.to_serde_value()?;
        let args = value["args"].as_array().map(Vec::as_slice);
        let args = args.unwrap_or_default().iter().filter_map(Value::as_str);
        let env = value["env"].as_object().into_iter().flatten();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(ClientServer {
            entry: property.decoded_name()?,
            command: text("command"),
            args: args.map(str::to_owned).collect(),
            env: env
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            url: URL_KEYS.iter().find_map(|key| text(key)),
            has_credentials: CREDENTIAL_KEYS.iter().any(|key| !value[*key].is_null()),
            is_special: is_special(&value),
        })
    });
    Some(started.collect())
}

fn is_special(entry: &Value) -> bool {
    let is_off = entry["disabled"] == true || entry["enabled"] == false;
    let args = entry["args"].as_array().into_iter().flatten();
    let env = entry["env"].as_object().into_iter().flatten();
    let mut values = args.chain(env.map(|(_, value)| value));
    let is_read = |key: &str, is_kind: fn(&Value) -> bool| {
        let value = &entry[key];
        value.is_null() || is_kind(value)
    };
    is_off
        || !entry["cwd"].is_null()
        || !is_read("args", Value::is_array)
        || !is_read("env", Value::is_object)
        || values.any(|value| !value.is_string())
}

fn find_entry(
    root: &CstRootNode,
    servers: &str,
    name: &str,
) -> Result<Option<CstObjectProp>, EditError> {
    match find_property(&top(root)?, servers)? {
        Some(container) => find_property(&object(&container, servers)?, name),
        None => Ok(None),
    }
}

fn parse(text: &str) -> Result<CstRootNode, EditError> {
    CstRootNode::parse(text, &JSONC).map_err(|error| {
        let (line, column) = (error.line_display(), error.column_display());
        EditError::Broken(format!(
            "line {line}, column {column}: {}",
            lower_first(&error.kind().to_string())
        ))
    })
}

fn top(root: &CstRootNode) -> Result<CstObject, EditError> {
    // A text of comments alone has no value yet; anything but an object is not ours to replace.
    root.object_value_or_create()
        .ok_or_else(|| EditError::Unexpected("it does not hold an object".to_owned()))
}

/// The property of this name. Parsers differ in which of two duplicates they take, so duplicates are refused.
fn find_property(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, EditError> {
    let called = |property: &CstObjectProp| property.decoded_name().is_some_and(|own| own == name);
    let mut found = object.properties().into_iter().filter(called);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(EditError::Unexpected(format!("`{name}` occurs twice"))),
        (first, None) => Ok(first),
    }
}

fn object(property: &CstObjectProp, name: &str) -> Result<CstObject, EditError> {
    property
        .object_value()
        .ok_or_else(|| EditError::Unexpected(format!("`{name}` is not an object")))
}

fn new_entry(typed: bool, entry: &ServerEntry) -> CstInputValue {
    let mut fields = vec![
        ("command".to_owned(), entry.command.as_str().into()),
        ("args".to_owned(), list(&entry.args)),
    ];
    if typed {
        fields.insert(0, ("type".to_owned(), "stdio".into()));
    }
    CstInputValue::Object(fields)
}

fn list(args: &[String]) -> CstInputValue {
    CstInputValue::Array(args.iter().map(|arg| arg.as_str().into()).collect())
}

/// Sets a field unless it already has that value, so that an unchanged entry keeps its bytes.
fn set(fields: &CstObject, name: &str, value: CstInputValue) {
    let says = |there: &CstObjectProp| there.value().and_then(|value| value.to_serde_value());
    match fields.get(name) {
        Some(there) if says(&there) == Some(plain(&value)) => {}
        Some(there) => there.set_value(value),
        None => {
            fields.append(name, value);
        }
    }
}

fn plain(value: &CstInputValue) -> Value {
    match value {
        CstInputValue::String(text) => text.as_str().into(),
        CstInputValue::Array(items) => items.iter().map(plain).collect(),
        _ => Value::Null,
    }
}

fn is_ours(fields: &CstObject, entry: &ServerEntry) -> bool {
    let fields = fields.to_serde_value().unwrap_or_default();
    let args = fields["args"].as_array().map(Vec::as_slice);
    let args: Vec<&str> = args
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    entry.recognises(fields["command"].as_str(), &args)
}

/// What an entry starts, in a few words; never its environment, which may hold secrets.
fn command_of(property: &CstObjectProp) -> String {
    let value = property.value().and_then(|value| value.to_serde_value());
    let value = value.unwrap_or_default();
    match (&value["command"], &value["url"]) {
        (Value::String(command), _) => command.clone(),
        (_, Value::String(url)) => url.clone(),
        _ => "no command".to_owned(),
    }
}

/// Fails unless everything but the entry is the same, in the same order, and a new entry lost no comment.
fn check_rest_unchanged(
    before: &str,
    after: &str,
    servers: &str,
    name: &str,
    fresh: bool,
) -> Result<(), EditError> {
    let (before, after) = (parse(before)?, parse(after)?);
    let rest = |root: &CstRootNode| {
        let mut value = root
            .to_serde_value()
            .unwrap_or_else(|| serde_json::json!({}));
        if let Some(container) = value.get_mut(servers).and_then(Value::as_object_mut) {
            container.shift_remove(name);
            if container.is_empty() {
                value.as_object_mut()?.shift_remove(servers);
            }
        }
        Some(value.to_string())
    };
    let comments = |root: &CstRootNode| {
        let mut found = Vec::new();
        collect(&root.children(), &mut found);
        found
    };
    if rest(&before) == rest(&after) && (!fresh || comments(&before) == comments(&after)) {
        Ok(())
    } else {
        Err(EditError::WouldLoseContent)
    }
}

fn collect(nodes: &[CstNode], found: &mut Vec<String>) {
    for node in nodes {
        match node.as_comment() {
            Some(comment) => found.push(comment.raw_value()),
            None => collect(&node.children(), found),
        }
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}
