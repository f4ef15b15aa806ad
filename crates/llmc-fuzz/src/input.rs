//! Takes choices and text off the bytes of an input.

use std::borrow::Cow;

/// The bytes of an input that are not used yet.
pub struct FuzzInput<'a> {
    rest: &'a [u8],
}

impl<'a> FuzzInput<'a> {
    pub fn new(bytes: &'a [u8]) -> FuzzInput<'a> {
        FuzzInput { rest: bytes }
    }

    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    /// One of several, by the next byte.
    ///
    /// # Panics
    /// When there are none.
    pub fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[usize::from(self.byte()) % choices.len()]
    }

    /// What comes before the next NUL, or all that is left, as text.
    pub fn text(&mut self) -> Cow<'a, str> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let (part, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        String::from_utf8_lossy(part)
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}
