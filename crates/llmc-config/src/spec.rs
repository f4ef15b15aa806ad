//! What a declaration says about one setting, and the macro that makes structs and rows of declarations.
//!
//! A declaration reads like a struct field with a default:
//!
//! ```text
//! /// The port; 0 takes a free one.
//! port: u16 = int(0..=65_535, 8080),
//! ```
//!
//! The doc comment is the text of the reference page, the type is that of the field in [`Config`](crate::Config), and
//! the expression gives the accepted values, the default and further names. The expression is a [`SettingSpec`] of the
//! field's type, so a default of another type does not compile, and reading a field cannot fail: whatever no layer
//! sets has the declared default.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::choices::Choice;
use crate::config::{NamedToken, UpstreamConfig};
use crate::declarations::AgentBudget;
use crate::merge::{MergedSettings, SettingMap};
use crate::registry::{DefaultValue, SettingDef};
use crate::value::{MAX_INT, TextShape, Value, ValueKind};

/// Declares tables of settings: each `struct` becomes a configuration struct and a row of
/// [`TABLES`](crate::declarations::TABLES), in reading order.
///
/// A field with `=` is a setting, one without is a table that is declared as a struct of its own.
macro_rules! settings {
    ($(
        #[doc = $table_doc:literal]
        #[table($path:literal)]
        $vis:vis struct $name:ident {
            $( $(#[doc = $doc:literal])? $field:ident: $type:ty $(= $spec:expr)? ),+ $(,)?
        }
    )+) => {
        $(
            #[doc = concat!("Table `[", $path, "]`.", $table_doc)]
            #[derive(Debug, Clone, PartialEq)]
            $vis struct $name {
                $( $(#[doc = $doc])? $vis $field: $type, )+
            }

            impl crate::spec::ReadTable for $name {
                fn read(source: &crate::spec::TableSource<'_>) -> Self {
                    Self { $( $field: settings!(@read source, $path, $field: $type $(= $spec)?) ),+ }
                }
            }
        )+

        /// Every table with its settings, in reading order: what people change first comes first.
        pub(crate) static TABLES: std::sync::LazyLock<Vec<crate::registry::TableDef>> =
            std::sync::LazyLock::new(|| {
                let tables = [$(
                    crate::registry::TableDef {
                        path: $path,
                        doc: $table_doc.trim_ascii(),
                        settings: vec![$( $(
                            crate::spec::SettingSpec::<$type>::define(
                                $spec,
                                concat!($path, ".", stringify!($field)),
                                $doc.trim_ascii(),
                            ),
                        )? )+],
                    }
                ),+];
                // A table of tables has nothing of its own to show.
                tables.into_iter().filter(|table| !table.settings.is_empty()).collect()
            });
    };
    (@read $source:ident, $path:literal, $field:ident: $type:ty = $spec:expr) => {
        crate::spec::SettingSpec::<$type>::read($spec, $source, concat!($path, ".", stringify!($field)))
    };
    (@read $source:ident, $path:literal, $field:ident: $type:ty) => {
        crate::spec::ReadTable::read($source)
    };
}
pub(crate) use settings;

/// What is known about a setting whose field has type `T`.
pub(crate) struct SettingSpec<T> {
    kind: ValueKind,
    /// The field's value when no layer and no rule gives one.
    fallback: T,
    default: DefaultValue,
    short_env: Option<&'static str>,
    former_path: Option<&'static str>,
    secret: bool,
    is_security: bool,
}

/// Where a struct reads its fields: the map that holds its table's values, beside everything else.
pub(crate) struct TableSource<'a> {
    pub(crate) settings: &'a MergedSettings,
    pub(crate) values: &'a SettingMap,
}

/// A struct that stands for a table.
pub(crate) trait ReadTable {
    fn read(source: &TableSource<'_>) -> Self;
}

/// The type of a field.
pub(crate) trait FieldType: Sized {
    /// The value at a path, `None` when there is none.
    fn read(source: &TableSource<'_>, path: &str) -> Option<Self>;
}

/// `true` or `false`.
pub(crate) fn flag(default: bool) -> SettingSpec<bool> {
    SettingSpec::new(ValueKind::Bool, default, Value::Bool(default))
}

/// A whole number within bounds.
pub(crate) fn int<T: Copy + Into<u64>>(bounds: RangeInclusive<u64>, default: T) -> SettingSpec<T> {
    let (min, max) = bounds.into_inner();
    let kind = ValueKind::Int { min, max };
    SettingSpec::new(kind, default, Value::Int(default.into()))
}

/// Any whole number.
pub(crate) fn count(default: u64) -> SettingSpec<u64> {
    int(0..=MAX_INT, default)
}

/// A whole number for which zero would make no sense.
pub(crate) fn positive(default: u64) -> SettingSpec<u64> {
    int(1..=MAX_INT, default)
}

/// A time limit in seconds, at most a day.
pub(crate) fn seconds(default: u64) -> SettingSpec<u64> {
    int(1..=86_400, default)
}

/// A number that is not negative.
pub(crate) fn number(default: f64) -> SettingSpec<f64> {
    SettingSpec::new(ValueKind::Float, default, Value::Float(default))
}

/// Text of some shape.
pub(crate) fn text(shape: TextShape, default: &str) -> SettingSpec<String> {
    let value = Value::Text(default.to_owned());
    SettingSpec::new(ValueKind::Text(shape), default.to_owned(), value)
}

/// One of a few words.
pub(crate) fn choice<T: Choice>(default: T) -> SettingSpec<T> {
    let value = Value::Text(default.word().to_owned());
    let kind = ValueKind::OneOf {
        words: T::WORDS,
        canonical: |word| T::of_word(word).map(T::word),
    };
    SettingSpec::new(kind, default, value)
}

/// A list of text of some shape.
pub(crate) fn list(shape: TextShape, default: &[&str]) -> SettingSpec<Vec<String>> {
    let default: Vec<String> = default.iter().map(|text| (*text).to_owned()).collect();
    let value = Value::List(default.clone());
    SettingSpec::new(ValueKind::List(shape), default, value)
}

/// No value until a layer gives one; the default of `example` is shown as an example.
pub(crate) fn unset<T>(example: SettingSpec<T>) -> SettingSpec<Option<T>> {
    SettingSpec {
        kind: example.kind,
        fallback: None,
        default: DefaultValue::Unset {
            example: example.default.example().clone(),
        },
        short_env: example.short_env,
        former_path: example.former_path,
        secret: example.secret,
        is_security: example.is_security,
    }
}

/// A list of tables whose fields are settings of their own.
pub(crate) fn tables<T>() -> SettingSpec<Vec<T>> {
    SettingSpec::new(ValueKind::Tables, Vec::new(), Value::Empty("[]"))
}

/// Tables by name whose fields are settings of their own.
pub(crate) fn map<T>() -> SettingSpec<BTreeMap<String, T>> {
    SettingSpec::new(ValueKind::Map, BTreeMap::new(), Value::Empty("{}"))
}

impl<T> SettingSpec<T> {
    fn new(kind: ValueKind, fallback: T, default: Value) -> Self {
        Self {
            kind,
            fallback,
            default: DefaultValue::Fixed(default),
            short_env: None,
            former_path: None,
            secret: false,
            is_security: false,
        }
    }

    /// The default follows from other settings, as `says` describes; `check::apply_rules` computes it.
    pub(crate) fn rule(mut self, says: &'static str) -> Self {
        self.default = DefaultValue::Rule {
            example: self.default.example().clone(),
            says,
        };
        self
    }

    /// A second, shorter environment name.
    pub(crate) fn short_env(mut self, name: &'static str) -> Self {
        self.short_env = Some(name);
        self
    }

    /// The path the setting had in earlier versions, which is still read.
    pub(crate) fn formerly(mut self, path: &'static str) -> Self {
        self.former_path = Some(path);
        self
    }

    /// The value is masked wherever it is shown.
    pub(crate) fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// It decides over rights, addresses or costs: a workspace's file sets it only with the user's trust.
    pub(crate) fn security(mut self) -> Self {
        self.is_security = true;
        self
    }

    pub(crate) fn define(self, path: &'static str, doc: &'static str) -> SettingDef {
        SettingDef {
            path,
            doc,
            kind: self.kind,
            default: self.default,
            short_env: self.short_env,
            former_path: self.former_path,
            secret: self.secret,
            is_security: self.is_security,
        }
    }
}

impl<T: FieldType> SettingSpec<T> {
    pub(crate) fn read(self, source: &TableSource<'_>, path: &str) -> T {
        T::read(source, path).unwrap_or(self.fallback)
    }
}

macro_rules! field_types {
    ($($type:ty: $pattern:pat => $field:expr),+ $(,)?) => {$(
        impl FieldType for $type {
            fn read(source: &TableSource<'_>, path: &str) -> Option<Self> {
                match source.values.value(path)? {
                    $pattern => $field,
                    _ => None,
                }
            }
        }
    )+};
}

field_types! {
    bool: Value::Bool(value) => Some(*value),
    u64: Value::Int(value) => Some(*value),
    u32: Value::Int(value) => (*value).try_into().ok(),
    u16: Value::Int(value) => (*value).try_into().ok(),
    f64: Value::Float(value) => Some(*value),
    String: Value::Text(text) => Some(text.clone()),
    Vec<String>: Value::List(values) => Some(values.clone()),
}

impl<T: Choice> FieldType for T {
    fn read(source: &TableSource<'_>, path: &str) -> Option<Self> {
        String::read(source, path).and_then(|word| T::of_word(&word))
    }
}

impl<T: FieldType> FieldType for Option<T> {
    fn read(source: &TableSource<'_>, path: &str) -> Option<Self> {
        T::read(source, path).map(Some)
    }
}

impl FieldType for Vec<NamedToken> {
    /// Tables that are no tokens have been reported, and the load given up, before this runs.
    fn read(source: &TableSource<'_>, _path: &str) -> Option<Self> {
        let tokens = source.settings.token_entries().into_iter();
        Some(tokens.filter_map(|token| token.try_into().ok()).collect())
    }
}

impl FieldType for Vec<UpstreamConfig> {
    /// As for tokens: what is no upstream has been reported before.
    fn read(source: &TableSource<'_>, _path: &str) -> Option<Self> {
        let entries = source.settings.upstream_entries().into_iter();
        Some(entries.filter_map(|entry| entry.try_into().ok()).collect())
    }
}

impl FieldType for BTreeMap<String, AgentBudget> {
    fn read(source: &TableSource<'_>, _path: &str) -> Option<Self> {
        let agents = source.settings.agents.iter();
        let read = |values| AgentBudget::read(&TableSource { values, ..*source });
        Some(
            agents
                .map(|(id, values)| (id.clone(), read(values)))
                .collect(),
        )
    }
}
