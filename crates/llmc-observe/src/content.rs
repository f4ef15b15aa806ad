//! What of a call's texts is kept: the start of each, without what the denylist names.

use std::fmt;
use std::sync::Arc;

/// Bytes of each text that go to telemetry, which keeps fewer: what follows helps to recognise a secret.
const MAX_SENT_BYTES: usize = 20 << 10;
/// Stands for a line that names a file of the denylist.
const LEFT_OUT_LINE: &str = "(not kept: this line names a file of mcp.tools.denylist_globs)";
/// Stands for both texts when the arguments name one.
const LEFT_OUT: &str = "(not kept: the arguments name a file of mcp.tools.denylist_globs)";

/// What a call was given and what it answered. Kept only in telemetry, and only where the configuration says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallContent {
    pub args: ContentText,
    pub answer: ContentText,
}

/// The start of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentText {
    pub text: String,
    /// Whether there is more of it.
    pub is_cut: bool,
}

impl ContentText {
    pub(crate) fn start_of(text: &str) -> ContentText {
        let end = text.floor_char_boundary(MAX_SENT_BYTES);
        ContentText {
            text: text[..end].to_owned(),
            is_cut: end < text.len(),
        }
    }

    fn stub(text: &str) -> ContentText {
        ContentText {
            text: text.to_owned(),
            is_cut: false,
        }
    }
}

type IsSecretName = dyn Fn(&str) -> bool + Send + Sync;

/// Tells whether a file of this name holds secrets; the denylist of the configuration.
#[derive(Clone, Default)]
pub struct SecretNames(Option<Arc<IsSecretName>>);

impl SecretNames {
    pub fn new(is_secret: impl Fn(&str) -> bool + Send + Sync + 'static) -> SecretNames {
        SecretNames(Some(Arc::new(is_secret)))
    }

    fn are_in(&self, text: &str) -> bool {
        let Some(is_secret) = &self.0 else {
            return false;
        };
        let ends_word = |c: char| c.is_whitespace() || "\"'`:,;=()[]{}|<>&\\".contains(c);
        text.split(ends_word)
            .any(|word| !word.is_empty() && is_secret(word))
    }

    /// The content without what the denylist names: nothing of a call whose arguments name such a file, no line of an
    /// answer that does.
    pub(crate) fn hide_in(&self, content: CallContent) -> CallContent {
        // In JSON a line ends with a letter after the backslash, which would belong to the next word.
        let args = (content.args.text.replace("\\n", " ")).replace("\\t", " ");
        if self.are_in(&args) {
            return CallContent {
                args: ContentText::stub(LEFT_OUT),
                answer: ContentText::stub(LEFT_OUT),
            };
        }
        if !self.are_in(&content.answer.text) {
            return content;
        }
        let lines = content
            .answer
            .text
            .lines()
            .map(|line| match self.are_in(line) {
                true => LEFT_OUT_LINE,
                false => line,
            });
        CallContent {
            answer: ContentText {
                text: lines.collect::<Vec<_>>().join("\n"),
                ..content.answer
            },
            ..content
        }
    }
}

impl fmt::Debug for SecretNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretNames")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(args: &str, answer: &str) -> (String, String) {
        let names = SecretNames::new(|word| word.rsplit('/').next() == Some(".env"));
        let content = names.hide_in(CallContent {
            args: ContentText::start_of(args),
            answer: ContentText::start_of(answer),
        });
        (content.args.text, content.answer.text)
    }

    #[test]
    fn what_the_denylist_names_is_not_kept() {
        for args in [
            r#"{"path":"a/.env"}"#,
            r#"{"command":"cat .env | wc"}"#,
            r#"{"code":"x = 1\nopen('.env')"}"#,
            r#"{"argv":["cat","./.env"]}"#,
        ] {
            let (args, answer) = hidden(args, "PLAIN");
            assert!(args == LEFT_OUT && answer == LEFT_OUT, "{args} {answer}");
        }
        let (args, answer) = hidden(
            r#"{"command":"grep -r K ."}"#,
            "a.rs:1: K\n.env:K of ann\nb",
        );
        assert_eq!(args, r#"{"command":"grep -r K ."}"#);
        assert_eq!(answer, format!("a.rs:1: K\n{LEFT_OUT_LINE}\nb"));
        let kept = hidden(r#"{"path":"env"}"#, "envelope\n");
        assert_eq!(kept.1, "envelope\n");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "é".repeat(MAX_SENT_BYTES);
        let start = ContentText::start_of(&text);
        assert!(start.is_cut && start.text.len() <= MAX_SENT_BYTES);
        assert!(text.starts_with(&start.text));
        assert!(!ContentText::start_of("short").is_cut);
    }
}
