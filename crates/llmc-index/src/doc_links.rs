//! Names in the documentation comments of JavaScript and TypeScript, which are no part of the syntax tree.

/// Marks of JSDoc behind which a name stands.
const LINKS: [&str; 3] = ["@link", "@linkcode", "@linkplain"];
/// Marks behind which a type in braces stands.
const TYPES: [&str; 6] = [
    "@param", "@return", "@returns", "@type", "@throws", "@extends",
];
/// Names in the comments of one file.
const MAX_LINKS: usize = 2000;

/// Where a name is linked (`{@link Pool}`, `@see Pool`) or named as a type (`@param {Pool}`): its start and its line.
pub(crate) fn named_in_comments(text: &str, name: &str) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    if !text.contains("/**") {
        return found;
    }
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let start = offset;
        offset += line.len();
        let trimmed = line.trim_start();
        if !(trimmed.starts_with('*') || trimmed.starts_with("/**")) || !line.contains('@') {
            continue;
        }
        let place = line
            .match_indices(name)
            .find(|(at, _)| is_link(line, *at, name.len()));
        if let Some((at, _)) = place {
            found.push((start + at, u32::try_from(number + 1).unwrap_or(u32::MAX)));
        }
        if found.len() >= MAX_LINKS {
            break;
        }
    }
    found
}

/// Whether the word at a place of a line is what a mark before it names.
fn is_link(line: &str, at: usize, length: usize) -> bool {
    let (before, after) = (&line[..at], &line[at + length..]);
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    if after.starts_with(in_word) || before.ends_with(in_word) || before.ends_with('.') {
        return false;
    }
    let before = before.trim_end();
    if before.ends_with("@see") {
        return true;
    }
    if let Some(before) = before.strip_suffix('{') {
        let before = before.trim_end();
        return TYPES.iter().any(|mark| before.ends_with(mark));
    }
    let linked = before.rsplit_once('{').map(|(_, mark)| mark.trim());
    linked.is_some_and(|mark| LINKS.contains(&mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_types_but_no_words() {
        let text = "/**
 * A Pool of things, see {@link Pool} and {@link Pools}.
 * @param {Pool} pool the Pool
 * @see Pool
 * {@linkcode  Pool#take | taking}
 * {@link other.Pool}
 */
// {@link Pool}
";
        let lines: Vec<u32> = named_in_comments(text, "Pool")
            .into_iter()
            .map(|(start, line)| {
                assert!(text[start..].starts_with("Pool"));
                line
            })
            .collect();
        assert_eq!(lines, [2, 3, 4, 5]);
    }
}
