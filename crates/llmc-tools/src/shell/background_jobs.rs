//! Shell lines that start jobs in the background, which end with the line.

/// The note in the answer to such a line.
pub(super) const ENDED_WITH_COMMAND: &str = "what & started has ended with the command; a program that is run alone with a short timeout goes on, \
     and the answer names it";

/// Whether a line leaves a job in the background: a single `&` outside quotes, and no `wait` for it.
pub(super) fn leaves_job(line: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    let mut chars = line.chars().peekable();
    let mut has_job = false;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('"') | None, '\\') => {
                chars.next();
            }
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '&') if chars.peek() == Some(&'&') => {
                chars.next();
            }
            // `2>&1` and `&> file` redirect.
            (None, '&') if !matches!(before, '>' | '<') && chars.peek() != Some(&'>') => {
                has_job = true;
            }
            _ => {}
        }
        before = c;
    }
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
    has_job && !words.any(|word| word == "wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_ampersand_outside_quotes_is_a_job() {
        for (line, leaves) in [
            ("python3 -m http.server 8000 &", true),
            ("server & sleep 1; curl localhost", true),
            ("nohup server >log 2>&1 &", true),
            ("make && make test", false),
            ("make 2>&1 | tail", false),
            ("make &> log", false),
            ("echo 'a & b' \"c & d\" e\\&f", false),
            ("a & b & wait", false),
            ("sleep 9 & wait $!", false),
            ("", false),
        ] {
            assert_eq!(leaves_job(line), leaves, "{line}");
        }
    }
}
