//! What the user allows the commands of one workspace beyond its configuration (`llmc allow`).
//!
//! It is recorded beside the trust in configurations, outside every workspace, and servers that run read it again when the
//! record has changed. Each kind acts like the setting of the same purpose in `mcp.exec`.

use std::path::PathBuf;

use toml_edit::{Array, Item, Table};

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowance {
    /// A folder or file that commands may write, as by `mcp.exec.extra_write`.
    Write(PathBuf),
    /// A file or folder that commands may read, as by `mcp.exec.extra_read`.
    Read(PathBuf),
    /// A socket of the host that commands may connect to, as by `mcp.exec.sockets`.
    Socket(PathBuf),
    /// A host that commands may reach.
    Host(String),
    /// A variable that commands inherit, as by `mcp.exec.env`.
    Env(String),
    /// A git directory that commands may use under guard.
    GitDir(PathBuf),
}

/// Everything that is allowed in one workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowances(pub Vec<Allowance>);

/// The kinds by their name in the record.
const KINDS: [&str; 6] = ["write", "read", "sockets", "hosts", "env", "git"];

impl Allowance {
    fn kind(&self) -> &'static str {
        match self {
            Self::Write(_) => "write",
            Self::Read(_) => "read",
            Self::Socket(_) => "sockets",
            Self::Host(_) => "hosts",
            Self::Env(_) => "env",
            Self::GitDir(_) => "git",
        }
    }

    fn of(kind: &str, text: &str) -> Option<Allowance> {
        let path = || PathBuf::from(text);
        Some(match kind {
            "write" => Self::Write(path()),
            "read" => Self::Read(path()),
            "sockets" => Self::Socket(path()),
            "hosts" => Self::Host(text.to_owned()),
            "env" => Self::Env(text.to_owned()),
            "git" => Self::GitDir(path()),
            _ => return None,
        })
    }

    /// `None` for a path that is not UTF-8, which the record cannot hold.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Write(path) | Self::Read(path) | Self::Socket(path) | Self::GitDir(path) => {
                path.to_str()
            }
            Self::Host(text) | Self::Env(text) => Some(text),
        }
    }
}

impl Allowances {
    /// As the record has them; entries of other forms are left out, which allows less.
    pub(crate) fn read(table: Option<&Item>) -> Allowances {
        let Some(table) = table.and_then(Item::as_table_like) else {
            return Allowances::default();
        };
        let found = KINDS.iter().flat_map(|kind| {
            let texts = table.get(kind).and_then(Item::as_array).into_iter();
            let texts = texts.flatten().filter_map(toml_edit::Value::as_str);
            texts.filter_map(|text| Allowance::of(kind, text))
        });
        Allowances(found.collect())
    }

    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        for kind in KINDS {
            let of_kind = self.0.iter().filter(|one| one.kind() == kind);
            let texts: Array = of_kind.filter_map(Allowance::text).collect();
            if !texts.is_empty() {
                table.insert(kind, Item::Value(texts.into()));
            }
        }
        table
    }
}
