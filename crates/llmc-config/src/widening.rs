//! When a value is less strict than another, key by key.
//!
//! A workspace's `llmc.toml` comes with the repository. It may make the server stricter, but a value that is less strict
//! than what would hold without it needs the user's trust. Each declaration names the direction with a [`Widening`];
//! where a key has no order, every change counts.

use crate::value::Value;

/// Which values of a setting are less strict than a given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Widening {
    /// None: the setting decides nothing about rights, addresses or costs.
    Never,
    /// Every other value.
    IfChanged,
    /// Those that come later in this list, strictest first; words that are not in it cannot be compared.
    IfLater(&'static [&'static str]),
    /// Those that are not in this list.
    IfOther(&'static [&'static str]),
    /// A larger number.
    IfLarger,
    /// A smaller number.
    IfSmaller,
    /// A list with further entries; `*` stands for all of them, and so does no list at all.
    IfAdded,
    /// A list without some of the entries.
    IfRemoved,
    /// A list of folders that do not lie inside one of the given ones.
    IfOutside,
}

/// Whether a folder lies inside one of a list of folders, all as written in the configuration.
pub(crate) type LiesInside<'a> = &'a dyn Fn(&str, &[String]) -> bool;

impl Widening {
    /// Whether `value` is less strict than `lower`, which would hold without it.
    pub(crate) fn is_less_strict(
        self,
        value: &Value,
        lower: Option<&Value>,
        lies_inside: LiesInside<'_>,
    ) -> bool {
        if lower == Some(value) {
            return false;
        }
        match (self, value, lower) {
            (Self::Never, ..) => false,
            (Self::IfLater(order), value, Some(lower)) => {
                let rank = |value: &Value| order.iter().position(|word| *word == word_of(value));
                match (rank(value), rank(lower)) {
                    (Some(value), Some(lower)) => value > lower,
                    (ranked, _) => ranked.is_none(),
                }
            }
            (Self::IfOther(strict), value, _) => !strict.contains(&word_of(value)),
            (Self::IfLarger, Value::Int(value), Some(Value::Int(lower))) => value > lower,
            (Self::IfLarger, Value::Float(value), Some(Value::Float(lower))) => value > lower,
            (Self::IfSmaller, Value::Int(value), Some(Value::Int(lower))) => value < lower,
            (Self::IfAdded, Value::List(_), None) => false,
            (Self::IfAdded, Value::List(value), Some(Value::List(lower))) => {
                let all = lower.iter().any(|entry| entry == "*");
                !all && value.iter().any(|entry| !lower.contains(entry))
            }
            (Self::IfRemoved, Value::List(value), Some(Value::List(lower))) => {
                lower.iter().any(|entry| !value.contains(entry))
            }
            (Self::IfOutside, Value::List(value), Some(Value::List(lower))) => {
                value.iter().any(|folder| !lies_inside(folder, lower))
            }
            _ => true,
        }
    }

    /// What needs trust, for the reference page.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Never => "–".to_owned(),
            Self::IfChanged => "any change".to_owned(),
            Self::IfLater(order) => {
                let words: Vec<String> = order.iter().map(|word| format!("`{word}`")).collect();
                match words.split_last() {
                    Some((only, [])) => format!("other than {only}"),
                    Some((last, [before])) => format!("{last} over {before}"),
                    _ => format!("later in {}", words.join(", ")),
                }
            }
            Self::IfOther(strict) => {
                let words: Vec<String> = strict.iter().map(|word| format!("`{word}`")).collect();
                format!("other than {}", words.join(" and "))
            }
            Self::IfLarger => "more".to_owned(),
            Self::IfSmaller => "less".to_owned(),
            Self::IfAdded => "further entries".to_owned(),
            Self::IfRemoved => "fewer entries".to_owned(),
            Self::IfOutside => "folders outside".to_owned(),
        }
    }
}

fn word_of(value: &Value) -> &str {
    match value {
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Text(word) => word,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_a_strict_and_a_less_strict_side() {
        let list = |entries: &[&str]| Value::List(entries.iter().map(|e| (*e).into()).collect());
        let text = |word: &str| Value::Text(word.to_owned());
        let order = Widening::IfLater(&["full", "auto", "off"]);
        let provider = Widening::IfLater(&["none"]);
        let local = Widening::IfOther(&["none", "builtin"]);
        let cases = [
            (order, text("full"), Some(text("auto")), false),
            (order, text("auto"), Some(text("full")), true),
            (order, text("off"), Some(text("auto")), true),
            (provider, text("none"), Some(text("openai")), false),
            (provider, text("ollama"), Some(text("openai")), true),
            (provider, text("ollama"), Some(text("none")), true),
            (provider, text("ollama"), None, true),
            (local, text("builtin"), Some(text("none")), false),
            (local, text("none"), Some(text("openai")), false),
            (local, text("ollama"), Some(text("builtin")), true),
            (local, text("ollama"), None, true),
            (Widening::Never, text("x"), None, false),
            (Widening::IfChanged, text("x"), Some(text("x")), false),
            (Widening::IfChanged, text("x"), Some(text("y")), true),
            (Widening::IfChanged, text("x"), None, true),
            (
                Widening::IfLarger,
                Value::Int(2),
                Some(Value::Int(3)),
                false,
            ),
            (Widening::IfLarger, Value::Int(4), Some(Value::Int(3)), true),
            (
                Widening::IfLarger,
                Value::Float(0.5),
                Some(Value::Float(1.0)),
                false,
            ),
            (
                Widening::IfSmaller,
                Value::Int(4),
                Some(Value::Int(3)),
                false,
            ),
            (
                Widening::IfSmaller,
                Value::Int(2),
                Some(Value::Int(3)),
                true,
            ),
            (Widening::IfAdded, list(&[]), Some(list(&["a"])), false),
            (
                Widening::IfAdded,
                list(&["a", "b"]),
                Some(list(&["a"])),
                true,
            ),
            (Widening::IfAdded, list(&["a"]), Some(list(&["*"])), false),
            (Widening::IfAdded, list(&["*"]), Some(list(&["a"])), true),
            (Widening::IfAdded, list(&["a"]), None, false),
            (
                Widening::IfRemoved,
                list(&["a", "b"]),
                Some(list(&["a"])),
                false,
            ),
            (Widening::IfRemoved, list(&["b"]), Some(list(&["a"])), true),
            (Widening::IfRemoved, list(&["b"]), None, true),
            (
                Widening::IfOutside,
                list(&["./src"]),
                Some(list(&["."])),
                false,
            ),
            (Widening::IfOutside, list(&["/"]), Some(list(&["."])), true),
            (
                Widening::IfOutside,
                list(&[".", "/"]),
                Some(list(&["."])),
                true,
            ),
            (Widening::IfOutside, list(&[]), Some(list(&["."])), false),
        ];
        let inside = |folder: &str, _: &[String]| folder.starts_with('.');
        for (widening, value, lower, expected) in cases {
            let found = widening.is_less_strict(&value, lower.as_ref(), &inside);
            assert_eq!(found, expected, "{widening:?} {value:?} {lower:?}");
        }
    }
}
