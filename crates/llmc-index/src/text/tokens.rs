//! Splits what is indexed, which are lists of terms already, into its terms.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// Splits at blanks.
#[derive(Clone, Default)]
pub(super) struct BlankTokenizer;

pub(super) struct BlankStream<'a> {
    rest: &'a str,
    token: Token,
}

impl Tokenizer for BlankTokenizer {
    type TokenStream<'a> = BlankStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> BlankStream<'a> {
        BlankStream {
            rest: text,
            token: Token::default(),
        }
    }
}

impl TokenStream for BlankStream<'_> {
    fn advance(&mut self) -> bool {
        while !self.rest.is_empty() {
            let end = memchr::memchr(b' ', self.rest.as_bytes()).unwrap_or(self.rest.len());
            let (term, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            if !term.is_empty() {
                self.token.text.clear();
                self.token.text.push_str(term);
                self.token.position = self.token.position.wrapping_add(1);
                return true;
            }
        }
        false
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_what_stands_between_blanks() {
        for (text, expected) in [
            ("", &[] as &[&str]),
            ("  ", &[]),
            ("pars header ", &["pars", "header"]),
            (" größe  漢字", &["größe", "漢字"]),
        ] {
            let mut tokenizer = BlankTokenizer;
            let mut stream = tokenizer.token_stream(text);
            let mut found = Vec::new();
            stream.process(&mut |token| found.push(token.text.clone()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
