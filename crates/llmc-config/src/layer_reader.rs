//! One layer from a TOML tree: finds the key for every value, checks the value against it, remembers where it stood.

use std::ops::Range;

use toml_edit::{Item, TableLike};

use crate::error::ConfigProblem;
use crate::merge::{Layer, Setting, SettingSource, TableSlot, quoted};
use crate::registry::{find, is_table, nearest};
use crate::value::ValueKind;

/// Where a tree was written.
#[derive(Debug, Clone)]
pub(crate) enum LayerOrigin<'a> {
    /// In a file: its text, its name in messages, and whose it is.
    File {
        text: &'a str,
        label: &'a str,
        role: FileRole,
    },
    /// In one environment variable or flag.
    Fixed(SettingSource),
}

/// Which layer a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// `llmc.toml`, or the file named in its place.
    Workspace,
    /// The user's own, for all workspaces.
    User,
}

/// A place in the tree: the path in the declarations, the path as people know it, and the table values go to.
#[derive(Debug, Clone)]
pub(crate) struct KeyPath {
    pub(crate) path: String,
    pub(crate) shown: String,
    pub(crate) slot: TableSlot,
}

/// Collects a layer and what is wrong with it.
#[derive(Debug)]
pub(crate) struct LayerReader<'a> {
    origin: LayerOrigin<'a>,
    pub(crate) layer: Layer,
    pub(crate) problems: Vec<ConfigProblem>,
}

impl KeyPath {
    pub(crate) fn root(name: &str) -> Self {
        Self {
            path: name.to_owned(),
            shown: quoted(name),
            slot: TableSlot::Top,
        }
    }

    /// The place one level down; it may not exist.
    pub(crate) fn child(&self, name: &str) -> Self {
        // Quoted, a name with a dot in it cannot pass for two levels.
        let name_in_path = quoted(name);
        let shown = format!("{}.{name_in_path}", self.shown);
        match find(&self.path) {
            Some(key) if matches!(key.kind, ValueKind::Map) => Self {
                path: format!("{}.*", self.path),
                shown,
                slot: TableSlot::Agent(name.to_owned()),
            },
            _ => Self {
                path: format!("{}.{name_in_path}", self.path),
                shown,
                slot: self.slot.clone(),
            },
        }
    }

    fn element(&self, list: &'static str, index: usize) -> Self {
        Self {
            path: format!("{}[]", self.path),
            shown: format!("{}[{index}]", self.shown),
            slot: TableSlot::Row(list, index),
        }
    }
}

impl<'a> LayerReader<'a> {
    pub(crate) fn new(origin: LayerOrigin<'a>) -> Self {
        Self {
            origin,
            layer: Layer::default(),
            problems: Vec::new(),
        }
    }

    /// Reads whatever stands at a place: a value, or a table with all that is in it.
    pub(crate) fn read(&mut self, at: &KeyPath, item: &Item, span: Option<Range<usize>>) {
        match find(&at.path) {
            Some(key) => match key.kind {
                ValueKind::Tables => self.tables(at, key.path, item, span),
                ValueKind::Map => self.table(at, item, span),
                kind => match kind.accept(item) {
                    Ok(value) => {
                        let source = self.source(span.clone());
                        let setting = Setting {
                            value: Some(value),
                            source,
                        };
                        if let Some(first) = self.layer.put(&at.slot, key.path, setting) {
                            let first = self.describe(&first.source);
                            let message =
                                format!("sets {}, as {first} does already; set one", key.path);
                            self.problem(&at.shown, message, span);
                        }
                    }
                    Err(message) => self.problem(&at.shown, message, span),
                },
            },
            None if is_table(&at.path) => self.table(at, item, span),
            None => self.unknown(at, item, span),
        }
    }

    /// Reports an unknown key, or each key of an unknown table, with the nearest known one.
    pub(crate) fn unknown(&mut self, at: &KeyPath, item: &Item, span: Option<Range<usize>>) {
        match item.as_table_like() {
            Some(table) if !table.is_empty() => {
                for (name, child) in table.iter() {
                    self.unknown(&at.child(name), child, key_span(table, name));
                }
            }
            _ => {
                let message = format!("unknown key; did you mean {}?", nearest(&at.path));
                self.problem(&at.shown, message, span);
            }
        }
    }

    pub(crate) fn problem(
        &mut self,
        key: &str,
        message: impl Into<String>,
        span: Option<Range<usize>>,
    ) {
        let place = self.describe(&self.source(span));
        self.problems.push(ConfigProblem::new(place, key, message));
    }

    fn table(&mut self, at: &KeyPath, item: &Item, span: Option<Range<usize>>) {
        let Some(table) = item.as_table_like() else {
            let message = format!("expected a table, found {}", item.type_name());
            return self.problem(&at.shown, message, span);
        };
        for (name, child) in table.iter() {
            self.read(&at.child(name), child, key_span(table, name));
        }
    }

    fn tables(
        &mut self,
        at: &KeyPath,
        list: &'static str,
        item: &Item,
        span: Option<Range<usize>>,
    ) {
        self.layer.lists.insert(list, Vec::new());
        if let Some(tables) = item.as_array_of_tables() {
            for (index, table) in tables.iter().enumerate() {
                self.element(at, list, index, table);
            }
        } else if let Some(array) = item.as_array() {
            for (index, value) in array.iter().enumerate() {
                match value.as_inline_table() {
                    Some(table) => self.element(at, list, index, table),
                    None => {
                        let message = format!("expected a table, found {}", value.type_name());
                        self.problem(&at.element(list, index).shown, message, value.span());
                    }
                }
            }
        } else {
            let message = format!("expected an array of tables, found {}", item.type_name());
            self.problem(&at.shown, message, span);
        }
    }

    fn element(&mut self, at: &KeyPath, list: &'static str, index: usize, table: &dyn TableLike) {
        let element = at.element(list, index);
        self.layer.row(list, index);
        for (name, child) in table.iter() {
            self.read(&element.child(name), child, key_span(table, name));
        }
    }

    fn describe(&self, source: &SettingSource) -> String {
        let label = match &self.origin {
            LayerOrigin::File { label, .. } => label,
            LayerOrigin::Fixed(_) => "",
        };
        source.describe(label)
    }

    fn source(&self, span: Option<Range<usize>>) -> SettingSource {
        match &self.origin {
            LayerOrigin::Fixed(source) => source.clone(),
            LayerOrigin::File { text, label, role } => {
                let line = line_of(text, span.map_or(0, |span| span.start));
                match role {
                    FileRole::Workspace => SettingSource::File { line },
                    FileRole::User => SettingSource::UserFile {
                        label: (*label).to_owned(),
                        line,
                    },
                }
            }
        }
    }
}

/// The line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn key_span(table: &dyn TableLike, name: &str) -> Option<Range<usize>> {
    table.key(name).and_then(toml_edit::Key::span)
}
