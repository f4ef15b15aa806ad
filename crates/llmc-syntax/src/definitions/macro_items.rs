//! Items that a Rust macro only wraps: `cfg_net! { pub fn listen() {} }`.
//!
//! To the grammar the body of a macro is a list of tokens, so definitions in it would be missed. A body that parses as
//! plain items is read as such, in its place; any other stays a list of tokens.

use tree_sitter::{Node, Point, Range};

use super::{TreeWalk, parse};
use crate::budget::ParseClock;

/// How many wrapping macros may lie in one another.
const MAX_MACRO_NESTING: usize = 3;

impl TreeWalk<'_> {
    /// Adds the items that a macro call wraps; returns whether there were any.
    pub(super) fn walk_macro_items(
        &mut self,
        call: Node<'_>,
        depth: usize,
        clock: &ParseClock,
    ) -> bool {
        if self.wraps >= MAX_MACRO_NESTING {
            return false;
        }
        let Some(body) = body_of(call, self.source) else {
            return false;
        };
        let Some(tree) = parse(self.grammar, self.source, Some(body), clock) else {
            return false;
        };
        let before = self.found.len();
        let uses_before = self.uses.as_ref().map_or(0, |uses| uses.found.len());
        let mut inner = TreeWalk {
            source: self.source,
            grammar: self.grammar,
            table: self.table,
            cursor: tree.walk(),
            open: Vec::new(),
            found: std::mem::take(&mut self.found),
            uses: self.uses.take(),
            macros: self.macros,
            wraps: self.wraps + 1,
            embedded: None,
        };
        if let Some(uses) = &mut inner.uses {
            let name = call.child_by_field_name("macro");
            let field = self.grammar.field_id_for_name("macro");
            if let Some(name) = name {
                uses.enter(name, name.kind_id(), field, self.source);
                uses.leave();
            }
        }
        let done = inner.run_from(depth, clock);
        self.found = inner.found;
        self.uses = inner.uses;
        let any = done && self.found.len() > before;
        if !any {
            self.found.truncate(before);
            if let Some(uses) = &mut self.uses {
                uses.truncate(uses_before);
            }
        }
        any
    }
}

/// The range between the braces of a macro call.
fn body_of(call: Node<'_>, source: &str) -> Option<Range> {
    let last = u32::try_from(call.named_child_count().checked_sub(1)?).ok()?;
    let body = call.named_child(last)?;
    let text = source.get(body.byte_range())?;
    let braces = body.kind() == "token_tree" && text.starts_with('{') && text.ends_with('}');
    if !braces || text.len() < 3 {
        return None;
    }
    let (start, end) = (body.start_position(), body.end_position());
    Some(Range {
        start_byte: body.start_byte() + 1,
        end_byte: body.end_byte() - 1,
        start_point: Point::new(start.row, start.column + 1),
        end_point: Point::new(end.row, end.column.saturating_sub(1)),
    })
}
