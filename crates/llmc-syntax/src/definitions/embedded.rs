//! Scripts and styles in HTML, Vue and Svelte files, read with their own grammars.

use tree_sitter::Node;

use super::{TreeWalk, parse};
use crate::budget::ParseClock;
use crate::language::Language;
use crate::references::{MAX_REFERENCES, ReferenceCollector};
use crate::table;

/// The nodes of a grammar that hold code in another language.
#[derive(Clone, Copy)]
pub(super) struct EmbeddedNodes {
    script: u16,
    style: u16,
    content: u16,
    script_language: Language,
}

impl EmbeddedNodes {
    pub(super) fn of(language: Language, grammar: &tree_sitter::Language) -> Option<Self> {
        Some(Self {
            script_language: language.of_embedded_scripts()?,
            script: grammar.id_for_node_kind("script_element", true),
            style: grammar.id_for_node_kind("style_element", true),
            content: grammar.id_for_node_kind("raw_text", true),
        })
    }
}

impl TreeWalk<'_> {
    /// Adds what a script or a style defines and uses, if the node is the content of one.
    pub(super) fn walk_embedded(
        &mut self,
        node: Node<'_>,
        kind: u16,
        depth: usize,
        clock: &ParseClock,
    ) {
        let Some(embedded) = self.embedded else {
            return;
        };
        if kind != embedded.content {
            return;
        }
        let language = match self.open.last().map(|element| element.kind) {
            Some(kind) if kind == embedded.script => embedded.script_language,
            Some(kind) if kind == embedded.style => Language::Css,
            _ => return,
        };
        let Some(grammar) = language.grammar() else {
            return;
        };
        let Some(tree) = parse(&grammar, self.source, Some(node.range()), clock) else {
            return;
        };
        let mut inner = TreeWalk {
            source: self.source,
            grammar: &grammar,
            table: table::of(language, &grammar),
            cursor: tree.walk(),
            open: Vec::new(),
            found: std::mem::take(&mut self.found),
            uses: self
                .uses
                .is_some()
                .then(|| ReferenceCollector::new(language, &grammar)),
            macros: None,
            wraps: 0,
            embedded: None,
        };
        inner.run_from(depth, clock);
        self.found = inner.found;
        if let (Some(uses), Some(inner)) = (&mut self.uses, inner.uses) {
            uses.found.extend(inner.found);
            uses.found.truncate(MAX_REFERENCES);
        }
    }
}
