//! `match` as a chain of conditions.

use ruff_python_ast::{Expr, Pattern, Singleton, StmtMatch};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::Rewriter;

impl Rewriter<'_> {
    /// `match x:` becomes `if (t := (x),):`, and each case an `if` or `elif` below it.
    pub(super) fn match_statement(&mut self, matched: &StmtMatch) -> bool {
        let subject = self.temporary();
        let mut conditions = Vec::new();
        for case in &matched.cases {
            let Some(mut condition) = self.condition(&case.pattern, &subject) else {
                return false;
            };
            if let Some(guard) = &case.guard {
                condition = format!("{condition} and ({})", self.source(&**guard));
            }
            conditions.push(condition);
        }
        let Some(first) = matched.cases.first() else {
            return false;
        };
        let Some(colon) = self.last_colon(matched.subject.end(), first.start()) else {
            return false;
        };
        let source = self
            .source(TextRange::new(
                matched.start() + TextSize::of("match"),
                colon,
            ))
            .trim();
        self.replace(
            TextRange::new(matched.start(), colon),
            format!("if (({subject} := ({source})),)"),
        );
        for (at, (case, condition)) in matched.cases.iter().zip(conditions).enumerate() {
            let Some(body) = case.body.first() else {
                return false;
            };
            let head_end = case
                .guard
                .as_ref()
                .map_or(case.pattern.end(), |guard| guard.end());
            let Some(colon) = self.last_colon(head_end, body.start()) else {
                return false;
            };
            let word = if at == 0 { "if" } else { "elif" };
            self.replace(
                TextRange::new(case.start(), colon),
                format!("{word} {condition}"),
            );
            for stmt in &case.body {
                ruff_python_ast::visitor::Visitor::visit_stmt(self, stmt);
            }
        }
        true
    }

    /// The colon that ends a head: only closing brackets and space are before it.
    fn last_colon(&self, from: TextSize, to: TextSize) -> Option<TextSize> {
        self.find(from, to, ":")
    }

    /// A condition that is true if `value` matches; it binds the names of the pattern.
    fn condition(&mut self, pattern: &Pattern, value: &str) -> Option<String> {
        Some(match pattern {
            Pattern::MatchValue(wanted) => format!("{value} == ({})", self.source(&*wanted.value)),
            Pattern::MatchSingleton(wanted) => {
                let name = match wanted.value {
                    Singleton::None => "None",
                    Singleton::True => "True",
                    Singleton::False => "False",
                };
                format!("{value} is {name}")
            }
            Pattern::MatchAs(named) => {
                let inner = match &named.pattern {
                    Some(inner) => Some(self.condition(inner, value)?),
                    None => None,
                };
                let bind = named
                    .name
                    .as_ref()
                    .map(|name| format!("(({name} := {value}),)"));
                match (inner, bind) {
                    (Some(inner), Some(bind)) => format!("({inner}) and {bind}"),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => "True".to_owned(),
                }
            }
            Pattern::MatchOr(either) => {
                let mut parts = Vec::new();
                for pattern in &either.patterns {
                    parts.push(format!("({})", self.condition(pattern, value)?));
                }
                format!("({})", parts.join(" or "))
            }
            Pattern::MatchSequence(items) => {
                let star = items
                    .patterns
                    .iter()
                    .position(|item| matches!(item, Pattern::MatchStar(_)));
                let fixed = items.patterns.len() - usize::from(star.is_some());
                let compare = if star.is_some() { ">=" } else { "==" };
                let mut parts = vec![format!(
                    "isinstance({value}, (list, tuple)) and len({value}) {compare} {fixed}"
                )];
                for (at, item) in items.patterns.iter().enumerate() {
                    let after = items.patterns.len() - 1 - at;
                    let part = match (item, star) {
                        (Pattern::MatchStar(rest), _) => {
                            if let Some(name) = &rest.name {
                                let end = if after == 0 {
                                    String::new()
                                } else {
                                    format!("-{after}")
                                };
                                parts.push(format!("(({name} := list({value}[{at}:{end}])),)"));
                            }
                            continue;
                        }
                        (_, Some(star)) if at > star => format!("{value}[-{}]", after + 1),
                        _ => format!("{value}[{at}]"),
                    };
                    parts.push(self.condition(item, &part)?);
                }
                parts.join(" and ")
            }
            Pattern::MatchMapping(map) if map.rest.is_none() => {
                let mut parts = vec![format!("isinstance({value}, dict)")];
                for (key, pattern) in map.keys.iter().zip(&map.patterns) {
                    let key = self.source(key);
                    parts.push(format!("({key}) in {value}"));
                    parts.push(self.condition(pattern, &format!("{value}[{key}]"))?);
                }
                parts.join(" and ")
            }
            Pattern::MatchClass(class) => {
                let name = self.source(&*class.cls);
                let mut parts = vec![format!("isinstance({value}, {name})")];
                match class.arguments.patterns.as_slice() {
                    [] => {}
                    // `str(name)` binds the value itself.
                    [only] if is_plain_type(&class.cls) => parts.push(self.condition(only, value)?),
                    _ => return None,
                }
                for keyword in &class.arguments.keywords {
                    parts.push(
                        self.condition(&keyword.pattern, &format!("{value}.{}", keyword.attr))?,
                    );
                }
                parts.join(" and ")
            }
            Pattern::MatchMapping(_) | Pattern::MatchStar(_) => return None,
        })
    }
}

fn is_plain_type(class: &Expr) -> bool {
    let types = [
        "str", "int", "float", "bool", "list", "dict", "tuple", "set", "bytes",
    ];
    matches!(class, Expr::Name(name) if types.contains(&name.id.as_str()))
}
