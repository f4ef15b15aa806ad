//! Scripts for `sed -n` that only print.

/// Whether a script holds nothing but `p`, `=` and `q` behind addresses.
///
/// # Errors
/// What else there is.
pub(super) fn prints_only(script: &str) -> Result<(), String> {
    let mut rest = script.trim_start_matches(blank);
    if rest.is_empty() {
        return Err("the script is empty".to_owned());
    }
    while !rest.is_empty() {
        rest = command(rest).ok_or_else(|| {
            "only scripts that print are allowed: N,Mp  /re/p  /re/,$p  N=  Nq, joined by ;"
                .to_owned()
        })?;
    }
    Ok(())
}

/// Takes one command with what separates it from the next.
fn command(text: &str) -> Option<&str> {
    let mut rest = text;
    if let Some(after) = address(rest) {
        rest = after.trim_start_matches(' ');
        if let Some(after) = rest.strip_prefix(',') {
            let after = after.trim_start_matches(' ');
            rest = match after.strip_prefix(['+', '~']) {
                Some(number) => digits(number)?,
                None => address(after)?,
            };
        }
    }
    rest = rest.trim_start_matches(' ');
    rest = rest.strip_prefix('!').unwrap_or(rest);
    rest = rest.trim_start_matches(' ').strip_prefix(['p', '=', 'q'])?;
    let after = rest.trim_start_matches(' ');
    match after.chars().next() {
        None => Some(""),
        Some(';' | '\n') => Some(after[1..].trim_start_matches(blank)),
        Some(_) => None,
    }
}

/// Takes `12`, `1~2`, `$` or `/re/` (perhaps with `I`).
fn address(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    if let Some(regex) = text.strip_prefix('/') {
        let mut escaped = false;
        for (at, c) in regex.char_indices() {
            match c {
                '\n' => return None,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '/' => {
                    let rest = &regex[at + 1..];
                    return Some(rest.strip_prefix('I').unwrap_or(rest));
                }
                _ => {}
            }
        }
        return None;
    }
    let rest = digits(text)?;
    match rest.strip_prefix('~') {
        Some(step) => digits(step),
        None => Some(rest),
    }
}

fn digits(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len() && text.len() - rest.len() <= 12).then_some(rest)
}

fn blank(c: char) -> bool {
    matches!(c, ' ' | '\n' | ';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_passes_and_nothing_else_does() {
        for script in [
            "p",
            "1p",
            "1,5p",
            "$p",
            "1,$p",
            "/a/p",
            "/a\\/b/,/c/p",
            "/x/Ip",
            "2~3p",
            "5,+3p",
            "5,~4p",
            "1p;3p",
            "1p\n3=",
            "10q",
            "1!p",
            "1 , 5 p",
            "/[w]/p; 4q ;",
            "$=",
        ] {
            assert_eq!(prints_only(script), Ok(()), "{script:?}");
        }
        for script in [
            "",
            ";",
            "e",
            "1e",
            "1e id",
            "e id",
            "w x",
            "1w x",
            "r x",
            "R x",
            "W x",
            "s/a/b/",
            "s/a/b/e",
            "s/a/b/w x",
            "1p;e",
            "1p\ne id",
            "1pe",
            "p e",
            "/a/e",
            "/a/pw x",
            "/a",
            "1,p",
            "1,5",
            "a x",
            "i x",
            "c x",
            "d",
            "y/a/b/",
            "{p}",
            "\\xaxe",
            "\\cacp",
            "/a\n/p",
            "q5",
            "p}",
            "1,5!!p",
            "v",
            "F",
            "l",
            "D",
            "# x",
            ":a",
            "b",
            "t",
            "//e//p",
            "1p;w /etc/x",
            "/a/I,e",
            "99999999999999p",
        ] {
            assert!(prints_only(script).is_err(), "{script:?}");
        }
    }
}
