//! Units of source code, from its definitions.

use llmc_syntax::{Definition, DefinitionKind, Language};

use super::windows;
use super::{Lines, Symbol, Unit, UnitKind};

/// Shorter types and macros belong to the unit around them: a header of a C library has hundreds of macros of one line,
/// and each would come before the function that does the work.
const MIN_TYPE_LINES: u32 = 3;
/// Longer units are split into windows.
const MAX_UNIT_LINES: u32 = 150;
/// Signatures of one function that are looked at.
const MAX_OVERLOADS: usize = 64;

/// Every definition with its scope.
pub(super) fn symbols(definitions: &[Definition]) -> Vec<Symbol> {
    let mut around: Vec<&str> = Vec::new();
    let mut symbols = Vec::with_capacity(definitions.len());
    for found in definitions {
        around.truncate(found.depth);
        symbols.push(Symbol {
            name: found.name.clone(),
            scope: around.join("::"),
            kind: found.kind,
            first: line(found.first_line),
            line: line(found.line),
            last: line(found.end_line),
        });
        // A definition deeper than the stack has an unnamed one around it.
        while around.len() < found.depth {
            around.push("");
        }
        around.push(&found.name);
    }
    symbols
}

fn line(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The units of a file with these definitions.
pub(super) fn units(
    language: Language,
    definitions: &[Definition],
    symbols: &[Symbol],
    lines: &Lines<'_>,
) -> Vec<Unit> {
    let mut owner: Vec<usize> = vec![0; lines.len() as usize + 2];
    let mut units: Vec<Unit> = Vec::new();
    // The last line of the function around; definitions inside of it belong to it, unless it is so long that it is split.
    let (mut inside_until, mut inside_long_until) = (0, 0);
    for (place, (found, symbol)) in definitions.iter().zip(symbols).enumerate() {
        let Some(kind) = unit_kind(found.kind) else {
            continue;
        };
        let last = symbol.last.min(lines.len());
        let is_inside = |until: u32| symbol.line <= until && last <= until;
        if symbol.first > last || is_inside(inside_until) {
            continue;
        }
        let start = match found.kind {
            DefinitionKind::Function => first_overload(definitions, symbols, place),
            DefinitionKind::Declaration if is_overload(definitions, symbols, place) => continue,
            _ => symbol.first,
        };
        let first = with_comments(language, start, &owner, lines);
        let is_long = last - first >= MAX_UNIT_LINES;
        let may_be_short = match found.kind {
            DefinitionKind::Function => !is_inside(inside_long_until),
            // What says nothing about a function belongs to the lines around it.
            DefinitionKind::Declaration if first == start || !declares_function(lines, symbol) => {
                continue;
            }
            _ => false,
        };
        if !may_be_short && last - first + 1 < MIN_TYPE_LINES {
            continue;
        }
        if kind == UnitKind::Function {
            let until = match is_long {
                true => &mut inside_long_until,
                false => &mut inside_until,
            };
            *until = last;
        }
        units.push(Unit {
            kind,
            symbol: symbol.name.clone(),
            scope: symbol.scope.clone(),
            first,
            last,
            head: found.body_line.map_or(first, line).clamp(first, last),
            own: Vec::new(),
            names: Vec::new(),
        });
        for place in first..=last {
            owner[place as usize] = units.len();
        }
    }
    assign_lines(&owner, &mut units, lines);
    add_names(symbols, &owner, &mut units);
    split_long(units, lines)
}

/// The kind of unit; `None` for definitions that belong to the unit around them.
fn unit_kind(kind: DefinitionKind) -> Option<UnitKind> {
    use DefinitionKind as D;
    match kind {
        D::Function | D::Macro | D::Declaration => Some(UnitKind::Function),
        D::Class | D::Struct | D::Enum | D::Interface | D::Type | D::Impl => Some(UnitKind::Type),
        D::Module => Some(UnitKind::Module),
        D::Constant | D::Variable | D::Field | D::Variant => None,
    }
}

/// Whether two definitions are the same function, by name and scope.
fn same_function(a: &Symbol, b: &Symbol) -> bool {
    a.name == b.name && a.scope == b.scope
}

/// The first line of a function with the signatures right before it that overload it, as TypeScript has them.
fn first_overload(definitions: &[Definition], symbols: &[Symbol], place: usize) -> u32 {
    let before = (0..place).rev().take(MAX_OVERLOADS).take_while(|at| {
        definitions[*at].kind == DefinitionKind::Declaration
            && same_function(&symbols[*at], &symbols[place])
    });
    before
        .last()
        .map_or(symbols[place].first, |at| symbols[at].first)
}

/// Whether a signature belongs to the function behind it.
fn is_overload(definitions: &[Definition], symbols: &[Symbol], place: usize) -> bool {
    let mut behind = (place + 1..symbols.len())
        .take(MAX_OVERLOADS)
        .take_while(|at| same_function(&symbols[*at], &symbols[place]));
    behind.any(|at| definitions[at].kind == DefinitionKind::Function)
}

/// Whether a declaration is that of a function.
fn declares_function(lines: &Lines<'_>, symbol: &Symbol) -> bool {
    lines.range(symbol.line, symbol.last).contains('(')
}

/// The first line of a definition with the comments and attributes right above it.
fn with_comments(language: Language, first: u32, owner: &[usize], lines: &Lines<'_>) -> u32 {
    let around = owner[first as usize];
    let marks: &[&str] = match language {
        Language::Python | Language::Ruby | Language::Bash | Language::Elixir => &["#", "@"],
        Language::Dockerfile => &["#"],
        Language::Hcl => &["#", "//", "/*", "*"],
        Language::Lua | Language::Sql => &["--", "/*", "*"],
        Language::Html | Language::Vue | Language::Svelte => &["<!--"],
        Language::Php => &["//", "/*", "*", "#", "@"],
        Language::CSharp => &["//", "/*", "*", "["],
        _ => &["//", "/*", "*", "#[", "@"],
    };
    let mut start = first;
    while start > 1 {
        let above = start - 1;
        let text = lines.trimmed(above);
        // A shebang is not a comment of the definition.
        let belongs = owner[above as usize] == around
            && marks.iter().any(|mark| text.starts_with(mark))
            && !text.starts_with("#!");
        if !belongs {
            break;
        }
        start = above;
    }
    start
}

/// Assigns each unit its own lines, and makes windows of the rest.
fn assign_lines(owner: &[usize], units: &mut Vec<Unit>, lines: &Lines<'_>) {
    let mut at = 1;
    while at <= lines.len() {
        let who = owner[at as usize];
        let mut last = at;
        while last < lines.len() && owner[last as usize + 1] == who {
            last += 1;
        }
        match who.checked_sub(1).and_then(|place| units.get_mut(place)) {
            Some(unit) => unit.own.push((at, last)),
            None => units.extend(windows::of(lines, at, last)),
        }
        at = last + 1;
    }
    for unit in units {
        let Some((_, end)) = unit.own.first() else {
            continue;
        };
        // A head that reaches over the first method would show half of it.
        let whole = unit.own.len() == 1 && *end == unit.last;
        if unit.kind != UnitKind::Function {
            unit.head = if whole { unit.last } else { *end };
        }
    }
}

/// Adds the names of small definitions to the units that own their lines.
fn add_names(symbols: &[Symbol], owner: &[usize], units: &mut [Unit]) {
    let claimed: std::collections::HashSet<(u32, String)> = units
        .iter()
        .map(|unit| (unit.last, unit.symbol.clone()))
        .collect();
    // Windows come behind the units of definitions and are not in the table of owners.
    let mut windows: Vec<(u32, u32, usize)> = units
        .iter()
        .enumerate()
        .filter(|(_, unit)| unit.kind == UnitKind::Text)
        .map(|(place, unit)| (unit.first, unit.last, place))
        .collect();
    windows.sort_unstable();
    for symbol in symbols {
        if claimed.contains(&(symbol.last, symbol.name.clone())) {
            continue;
        }
        let place = match owner.get(symbol.line as usize).copied().unwrap_or(0) {
            0 => {
                let next = windows.partition_point(|(first, _, _)| *first <= symbol.line);
                let window = next.checked_sub(1).and_then(|at| windows.get(at));
                window.map(|(_, _, place)| *place)
            }
            owner => Some(owner - 1),
        };
        if let Some(unit) = place.and_then(|place| units.get_mut(place)) {
            unit.names.push(symbol.name.clone());
        }
    }
}

fn split_long(units: Vec<Unit>, lines: &Lines<'_>) -> Vec<Unit> {
    let mut all = Vec::with_capacity(units.len());
    for unit in units {
        let long = unit
            .own
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum::<u32>()
            > MAX_UNIT_LINES;
        // What a long function holds between the functions in it.
        let in_parts = unit.kind == UnitKind::Function && unit.own.len() > 1;
        if !long && !in_parts || unit.kind == UnitKind::Text {
            all.push(unit);
            continue;
        }
        for (first, last) in &unit.own {
            for window in windows::of(lines, *first, *last) {
                all.push(Unit {
                    kind: unit.kind,
                    symbol: unit.symbol.clone(),
                    scope: unit.scope.clone(),
                    names: if window.first == unit.first {
                        unit.names.clone()
                    } else {
                        Vec::new()
                    },
                    ..window
                });
            }
        }
    }
    all
}
