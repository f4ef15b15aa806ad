//! Code in a model's reply: the content of closed fences, and nothing else.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CodeBlocks {
    pub(crate) code: Vec<String>,
    /// Whether the last fence is not closed: the reply was cut, and half a block must not run.
    pub(crate) unclosed: bool,
    /// The number of blocks in other languages.
    pub(crate) other_languages: usize,
}

/// Info strings of fences whose code is run.
const RUN_LANGUAGES: [&str; 5] = ["", "python", "py", "python3", "repl"];

pub(crate) fn find_code_blocks(answer: &str) -> CodeBlocks {
    let mut found = CodeBlocks::default();
    // The fence that is open: its character, its length, and the code so far if it is to run.
    let mut open: Option<(char, usize, Option<String>)> = None;
    for line in answer.lines() {
        let trimmed = line.trim();
        match &mut open {
            None => {
                if let Some((mark, length)) = fence(trimmed) {
                    let info = trimmed[length..].trim();
                    // A fence of backticks has none in its info, or it is code in a sentence.
                    if mark == '`' && info.contains('`') {
                        continue;
                    }
                    let word = info.split([' ', '{', ',']).next().unwrap_or_default();
                    let runs = RUN_LANGUAGES.contains(&word.to_ascii_lowercase().as_str());
                    open = Some((mark, length, runs.then(String::new)));
                }
            }
            Some((mark, length, code)) => {
                let closes = fence(trimmed).is_some_and(|(other, longer)| {
                    other == *mark && longer >= *length && longer == trimmed.len()
                });
                if closes {
                    match code.take() {
                        Some(code) if !code.trim().is_empty() => found.code.push(code),
                        Some(_) => {}
                        None => found.other_languages += 1,
                    }
                    open = None;
                } else if let Some(code) = code {
                    code.push_str(line);
                    code.push('\n');
                }
            }
        }
    }
    found.unclosed = open.is_some();
    found
}

/// The mark and length of a fence that a line begins with.
fn fence(line: &str) -> Option<(char, usize)> {
    let mark = line.chars().next().filter(|c| *c == '`' || *c == '~')?;
    let length = line.chars().take_while(|c| *c == mark).count();
    (length >= 3).then_some((mark, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(answer: &str) -> Vec<String> {
        find_code_blocks(answer).code
    }

    #[test]
    fn only_closed_fences_are_code() {
        assert_eq!(
            code("So:\n```python\na = 1\n```\nthen\n```\nb\n```"),
            ["a = 1\n", "b\n"]
        );
        assert_eq!(code("~~~py\nx\n~~~"), ["x\n"]);
        assert_eq!(
            code("````python\nprint('''```''')\n```\n````"),
            ["print('''```''')\n```\n"]
        );
        assert_eq!(code("  ```repl\n  x\n  ```"), ["  x\n"]);
        assert!(code("FINAL(42)").is_empty());
        assert!(code("use ```FINAL(42)``` now").is_empty());
        assert!(code("```python\n```").is_empty());
        let other = find_code_blocks("```json\n{}\n```");
        assert_eq!((other.code.len(), other.other_languages), (0, 1));
    }

    #[test]
    fn half_a_block_is_not_code() {
        let cut = find_code_blocks("```python\na = 1\n```\n```python\nfor x in");
        assert_eq!(cut.code, ["a = 1\n"]);
        assert!(cut.unclosed);
    }
}
