//! Definitions of a source file, found on one walk over its syntax tree.

mod content_kinds;
mod embedded;
mod macro_items;
mod type_signatures;

use std::ops::ControlFlow;

use self::embedded::EmbeddedNodes;
use tree_sitter::{Node, ParseOptions, Parser, Range, Tree, TreeCursor};

use crate::budget::{ParseBudget, ParseClock};
use crate::language::Language;
use crate::names::{assignment, declares_function, name_of};
use crate::references::{Reference, ReferenceCollector};
use crate::scopes::{self, FileScopes};
use crate::service::{ParseFailure, ParseGoal, parse_within};
use crate::table::{self, DefinitionNode, DefinitionScope, NameLocation};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefinitionKind {
    Function,
    Class,
    Struct,
    Enum,
    Interface,
    Type,
    Module,
    Constant,
    Variable,
    Field,
    Variant,
    Macro,
    /// A block that adds to a type defined elsewhere.
    Impl,
    /// Announces a definition made elsewhere: a prototype, a module in another file.
    Declaration,
}

impl DefinitionKind {
    /// Whether this is the definition itself, not an addition or an announcement.
    pub fn defines(self) -> bool {
        !matches!(self, Self::Impl | Self::Declaration)
    }

    /// Whether it is a detail of something else, left out of an outline.
    pub fn is_member_data(self) -> bool {
        matches!(self, Self::Field | Self::Variant)
    }
}

/// A name that a source file defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name, without what qualifies it.
    pub name: String,
    pub kind: DefinitionKind,
    /// The line of the name, counted from 1. Attributes, modifiers and a return type may stand on lines before.
    pub line: u64,
    /// The first line of the definition, with the decorators or `export` that belong to it.
    pub first_line: u64,
    /// The last line of the definition.
    pub end_line: u64,
    /// The line its body begins on, if it has one.
    pub body_line: Option<u64>,
    /// The definition up to its body, on one line, clipped.
    pub signature: String,
    /// Where the name starts in the source, in bytes.
    pub name_start: usize,
    /// How many definitions it lies in.
    pub depth: usize,
}

/// Definitions kept of one file; a file with more holds data rather than code.
pub(crate) const MAX_DEFINITIONS: usize = 20_000;

/// The definitions in a source file, in their order.
///
/// Empty for a language without grammar in this build, when the budget is used up, and when the parser crashes.
pub fn definitions(language: Language, source: &str, budget: &mut ParseBudget) -> Vec<Definition> {
    find_definitions(language, source, budget).unwrap_or_default()
}

/// The definitions in a source file, in their order, as far as the budget allows.
///
/// # Errors
/// Why there are none.
pub fn find_definitions(
    language: Language,
    source: &str,
    budget: &mut ParseBudget,
) -> Result<Vec<Definition>, ParseFailure> {
    let found = parse_within(language, source, ParseGoal::Definitions, budget)?;
    Ok(found.definitions)
}

/// What a file defines and which names it uses, from one pass over its tree.
///
/// # Errors
/// Why the file is treated as plain text.
pub fn analyze(
    language: Language,
    source: &str,
    budget: &mut ParseBudget,
) -> Result<SyntaxAnalysis, ParseFailure> {
    parse_within(language, source, ParseGoal::References, budget)
}

/// The scopes of a source file; empty for languages whose names are not resolved.
///
/// # Errors
/// Why the file is treated as plain text.
pub fn find_scopes(
    language: Language,
    source: &str,
    budget: &mut ParseBudget,
) -> Result<FileScopes, ParseFailure> {
    let found = parse_within(language, source, ParseGoal::Scopes, budget)?;
    Ok(found.scopes)
}

/// What a parser finds in a source, as far as the goal asks for it.
#[derive(Debug, Clone, Default)]
pub struct SyntaxAnalysis {
    pub definitions: Vec<Definition>,
    pub references: Vec<Reference>,
    pub scopes: FileScopes,
}

/// Parses a source with its grammar, in this process.
pub(crate) fn walk_source(
    language: Language,
    source: &str,
    want: ParseGoal,
    clock: &ParseClock,
) -> Option<SyntaxAnalysis> {
    let grammar = language.grammar()?;
    let mut tree = parse(&grammar, source, None, clock)?;
    if let Language::TypeScript | Language::Tsx = language
        && let Some(better) = type_signatures::parse_again(&grammar, &tree, source, clock)
    {
        tree = better;
    }
    if want == ParseGoal::Scopes {
        return Some(SyntaxAnalysis {
            scopes: scopes::of_tree(language, tree.root_node(), source),
            ..SyntaxAnalysis::default()
        });
    }
    let mut walk = TreeWalk {
        source,
        grammar: &grammar,
        table: table::of(language, &grammar),
        cursor: tree.walk(),
        open: Vec::new(),
        found: Vec::new(),
        uses: (want == ParseGoal::References).then(|| ReferenceCollector::new(language, &grammar)),
        macros: (language == Language::Rust)
            .then(|| grammar.id_for_node_kind("macro_invocation", true)),
        wraps: 0,
        embedded: EmbeddedNodes::of(language, &grammar),
    };
    if !walk.run_from(0, clock) && want == ParseGoal::References {
        return None;
    }
    Some(SyntaxAnalysis {
        definitions: walk.found,
        references: walk.uses.map_or_else(Vec::new, |uses| uses.found),
        scopes: FileScopes::default(),
    })
}

/// Parses a source, or the part of it that is named.
pub(crate) fn parse(
    grammar: &tree_sitter::Language,
    source: &str,
    part: Option<Range>,
    clock: &ParseClock,
) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(grammar).ok()?;
    if let Some(part) = part {
        parser.set_included_ranges(&[part]).ok()?;
    }
    // Called every few microseconds, while reading the CPU clock takes a system call.
    let mut asked = 0_u32;
    let mut progress = |_: &_| {
        asked = asked.wrapping_add(1);
        if asked.is_multiple_of(32) && !clock.has_time() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    parser.parse_with_options(
        &mut |at, _| source.as_bytes().get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut progress)),
    )
}

/// An ancestor of the current node, with what it means for the nodes below.
#[derive(Clone, Copy, Default)]
struct OpenNode {
    local: bool,
    definition: bool,
    kind: u16,
    row: usize,
    start: usize,
}

struct TreeWalk<'t> {
    source: &'t str,
    grammar: &'t tree_sitter::Language,
    table: &'static table::NodeTable,
    cursor: TreeCursor<'t>,
    open: Vec<OpenNode>,
    found: Vec<Definition>,
    uses: Option<ReferenceCollector>,
    /// The node of a macro call, in the language whose macros wrap items.
    macros: Option<u16>,
    /// How many wrapping macros are around.
    wraps: usize,
    /// The nodes that hold code in other languages.
    embedded: Option<EmbeddedNodes>,
}

impl TreeWalk<'_> {
    /// Goes over all nodes without recursion, since a file can nest arbitrarily deep; returns whether it reached
    /// the end. What it finds lies in `depth` definitions already.
    fn run_from(&mut self, mut depth: usize, clock: &ParseClock) -> bool {
        let (mut local, mut steps) = (0_usize, 0_u32);
        loop {
            steps = steps.wrapping_add(1);
            if (steps.is_multiple_of(4096) && !clock.has_time())
                || self.found.len() >= MAX_DEFINITIONS
            {
                return false;
            }
            let node = self.cursor.node();
            let kind = node.kind_id();
            let mut is_definition = false;
            if let Some(entry) = self.table.entry(kind)
                && (entry.scope == DefinitionScope::Anywhere || local == 0)
                && let Some(definition) = self.definition(node, entry, depth, local)
            {
                if let Some(uses) = &mut self.uses {
                    uses.names_definition(definition.name_start);
                }
                self.found.push(definition);
                is_definition = true;
            }
            // A mark or a keyword: there is nothing to note and nothing below it.
            let is_skipped = node.child_count() == 0
                && self.uses.as_ref().is_none_or(|uses| uses.is_nothing(kind));
            if !is_skipped && let Some(uses) = &mut self.uses {
                uses.enter(node, kind, self.cursor.field_id(), self.source);
            }
            let macro_items = local == 0
                && self.macros == Some(kind)
                && self.walk_macro_items(node, depth, clock);
            self.walk_embedded(node, kind, depth, clock);
            if !is_skipped {
                if !macro_items && self.cursor.goto_first_child() {
                    let open = OpenNode {
                        local: self.table.is_local(kind),
                        definition: is_definition,
                        kind,
                        row: node.start_position().row,
                        start: node.start_byte(),
                    };
                    local += usize::from(open.local);
                    depth += usize::from(open.definition);
                    self.open.push(open);
                    continue;
                }
                if let Some(uses) = &mut self.uses {
                    uses.leave();
                }
            }
            while !self.cursor.goto_next_sibling() {
                if !self.cursor.goto_parent() {
                    return true;
                }
                if let Some(uses) = &mut self.uses {
                    uses.leave();
                }
                let closed = self.open.pop().unwrap_or_default();
                local -= usize::from(closed.local);
                depth -= usize::from(closed.definition);
            }
        }
    }

    fn definition(
        &self,
        node: Node<'_>,
        entry: &DefinitionNode,
        depth: usize,
        local: usize,
    ) -> Option<Definition> {
        let name = name_of(node, entry.name, self.source)?;
        // A macro body may be anything; what does not parse as an item is skipped.
        if self.wraps > 0 && node.has_error() {
            return None;
        }
        let mut kind = match entry.kind_by_content {
            true => content_kinds::of(node, self.source).unwrap_or(entry.kind),
            false => entry.kind,
        };
        let mut body = self.body_of(node);
        match entry.name {
            NameLocation::Bodied => {
                body?;
            }
            NameLocation::BodiedOrDeclared if body.is_none() => kind = DefinitionKind::Declaration,
            NameLocation::Declarator => {
                let declares = matches!(node.kind(), "declaration" | "field_declaration");
                if declares && (declares_function(node) || self.text(node).starts_with("extern ")) {
                    kind = DefinitionKind::Declaration;
                }
            }
            NameLocation::Assigned => {
                let (_, value) = assignment(node)?;
                match value.kind() {
                    "arrow_function"
                    | "function_expression"
                    | "generator_function"
                    | "function_definition" => {
                        kind = DefinitionKind::Function;
                        body = value.child_by_field_name("body");
                    }
                    "class" => {
                        kind = DefinitionKind::Class;
                        body = value.child_by_field_name("body");
                    }
                    _ if local > 0 => return None,
                    _ if matches!(node.kind(), "variable_declarator" | "assignment_statement") => {}
                    _ => return None,
                }
            }
            NameLocation::LocalValue if !self.is_local_value() => return None,
            _ => {}
        }
        let text = self.text(name);
        if text.is_empty() || text.contains('\n') {
            return None;
        }
        Some(Definition {
            name: text.to_owned(),
            kind,
            line: name.start_position().row as u64 + 1,
            first_line: self.first_row(node) as u64 + 1,
            end_line: last_row(node) as u64 + 1,
            body_line: body.map(|body| body.start_position().row as u64 + 1),
            signature: self.signature(node, name, body),
            name_start: name.start_byte(),
            depth,
        })
    }

    fn body_of<'n>(&self, node: Node<'n>) -> Option<Node<'n>> {
        let body = node.child_by_field_name("body");
        if body.is_some() || !self.table.has_bodies {
            return body;
        }
        let mut cursor = node.walk();
        node.named_children(&mut cursor)
            .find(|child| self.table.is_body(child.kind_id()))
    }

    /// Whether an HCL attribute here is a value by itself: at the top of a file, or in a `locals` block.
    fn is_local_value(&self) -> bool {
        match self.open.as_slice() {
            [_file, _body] => true,
            [_file, _body, block, _inner] => self.source[block.start..].starts_with("locals"),
            _ => false,
        }
    }

    fn text(&self, node: Node<'_>) -> &str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// The row where the node begins with what wraps it: decorators, `export`, template parameters.
    ///
    /// Asking a node for its parent would search for it from the root.
    fn first_row(&self, node: Node<'_>) -> usize {
        let wraps = |open: &&OpenNode| {
            let kind = self.grammar.node_kind_for_id(open.kind);
            kind.is_some_and(|kind| WRAPPERS.contains(&kind))
        };
        let outermost = self.open.iter().rev().take_while(wraps).last();
        outermost.map_or(node.start_position().row, |open| open.row)
    }

    /// From the start of the line, so with `export` or `pub`, to the body; without a body the line of the name.
    fn signature(&self, node: Node<'_>, name: Node<'_>, body: Option<Node<'_>>) -> String {
        let line_start = |at: usize| self.source[..at].rfind('\n').map_or(0, |nl| nl + 1);
        let text = match body {
            Some(body) => {
                let start = line_start(node.start_byte());
                let end = body.start_byte().max(name.end_byte());
                self.source.get(start..end)
            }
            None => {
                let start = line_start(name.start_byte());
                let rest = &self.source[name.end_byte()..];
                let end = name.end_byte() + rest.find('\n').unwrap_or(rest.len());
                self.source.get(start..end)
            }
        };
        one_line_signature(
            text.unwrap_or_default(),
            name.start_byte() - node.start_byte().min(name.start_byte()),
        )
    }
}

/// The row of the node's last character; a node may end at the start of the next line.
fn last_row(node: Node<'_>) -> usize {
    let (start, end) = (node.start_position(), node.end_position());
    if end.column == 0 && end.row > start.row {
        end.row - 1
    } else {
        end.row
    }
}

/// Nodes that hold one definition with its decorators or modifiers.
const WRAPPERS: &[&str] = &[
    "decorated_definition",
    "export_statement",
    "template_declaration",
    "ambient_declaration",
    "lexical_declaration",
    "variable_declaration",
    "type_declaration",
];

pub(crate) const MAX_SIGNATURE_CHARS: usize = 160;

/// White space joined, attribute lines before the name left out, what opens the body left out.
fn one_line_signature(text: &str, before_name: usize) -> String {
    let mut out = String::new();
    let mut attributes = before_name > 0;
    for line in text.lines() {
        let line = line.trim();
        attributes &= line.is_empty()
            || line.starts_with('@') && !line.contains(' ')
            || line.starts_with('[') && line.ends_with(']')
            || line.starts_with("#[");
        if attributes || line.is_empty() {
            continue;
        }
        for word in line.split_whitespace() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
        if out.len() > 4 * MAX_SIGNATURE_CHARS {
            break;
        }
    }
    let kept =
        out.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '{' | ';' | ':' | ','));
    let kept = kept.strip_suffix("=>").unwrap_or(kept).trim_end();
    match kept.char_indices().nth(MAX_SIGNATURE_CHARS) {
        Some((at, _)) => format!("{}…", &kept[..at]),
        None => kept.to_owned(),
    }
}
