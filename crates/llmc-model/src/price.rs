//! List prices of models, last compared with the providers' public price lists in 2026-10.
//!
//! A model that is not listed has no price, and the dollar cap then refuses it: zero would be a guess in the wrong
//! direction.

use crate::model_name::{ModelName, Provider};

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub input: f64,
    /// For input tokens found in the provider's cache.
    pub cached: f64,
    pub output: f64,
}

impl Price {
    /// Local models.
    pub const FREE: Price = Price::new(0.0, 0.0, 0.0);

    pub const fn new(input: f64, cached: f64, output: f64) -> Price {
        Price {
            input,
            cached,
            output,
        }
    }

    /// The cost in billionths of a dollar, rounded up.
    pub(crate) fn nanos(&self, input: u64, cached: u64, output: u64) -> u64 {
        let cached = cached.min(input);
        let fresh = input - cached;
        let dollars_e6 =
            fresh as f64 * self.input + cached as f64 * self.cached + output as f64 * self.output;
        // Dollars per million times tokens are millionths of a dollar.
        (dollars_e6 * 1000.0).ceil() as u64
    }
}

/// Name and dollars per million tokens: input, cached input, output.
const OPENAI: &[(&str, f64, f64, f64)] = &[
    ("gpt-5.5", 5.0, 0.5, 30.0),
    ("gpt-5.4", 2.5, 0.25, 15.0),
    ("gpt-5.4-mini", 0.75, 0.075, 4.5),
    ("gpt-5.4-nano", 0.2, 0.02, 1.25),
    ("gpt-5.2", 1.75, 0.175, 14.0),
    ("gpt-5.2-pro", 21.0, 21.0, 168.0),
    ("gpt-5.1", 1.25, 0.125, 10.0),
    ("gpt-5", 1.25, 0.125, 10.0),
    ("gpt-5-mini", 0.25, 0.025, 2.0),
    ("gpt-5-nano", 0.05, 0.005, 0.4),
    ("gpt-5-pro", 15.0, 15.0, 120.0),
    ("gpt-4.1", 2.0, 0.5, 8.0),
    ("gpt-4.1-mini", 0.4, 0.1, 1.6),
    ("gpt-4.1-nano", 0.1, 0.025, 0.4),
    ("gpt-4o", 2.5, 1.25, 10.0),
    ("gpt-4o-mini", 0.15, 0.075, 0.6),
    ("o3", 2.0, 0.5, 8.0),
    ("o4-mini", 1.1, 0.275, 4.4),
];
const ANTHROPIC: &[(&str, f64, f64, f64)] = &[
    ("claude-opus-5", 5.0, 0.5, 25.0),
    ("claude-opus-4-8", 5.0, 0.5, 25.0),
    ("claude-opus-4-7", 5.0, 0.5, 25.0),
    ("claude-opus-4-6", 5.0, 0.5, 25.0),
    ("claude-opus-4-5", 5.0, 0.5, 25.0),
    ("claude-opus-4-1", 15.0, 1.5, 75.0),
    ("claude-sonnet-5", 3.0, 0.3, 15.0),
    ("claude-sonnet-4-6", 3.0, 0.3, 15.0),
    ("claude-sonnet-4-5", 3.0, 0.3, 15.0),
    ("claude-sonnet-4", 3.0, 0.3, 15.0),
    ("claude-haiku-4-5", 1.0, 0.1, 5.0),
];

/// The price in the table; a name may carry the date of its release (`-2025-04-14`, `-20251001`).
pub fn list_price(model: &ModelName) -> Option<Price> {
    let table = match model.provider() {
        Provider::Ollama => return Some(Price::FREE),
        Provider::OpenAi => OPENAI,
        Provider::Anthropic => ANTHROPIC,
    };
    let dated = |name: &str| {
        let rest = model.model().strip_prefix(name)?.strip_prefix('-')?;
        let digits = rest.chars().filter(char::is_ascii_digit).count();
        let others = rest.chars().filter(|c| !c.is_ascii_digit() && *c != '-');
        (digits == 8 && others.count() == 0).then_some(())
    };
    table
        .iter()
        .find(|(name, ..)| *name == model.model() || dated(name).is_some())
        .map(|(_, input, cached, output)| Price::new(*input, *cached, *output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_for_that_model_and_its_dated_releases() {
        for (model, input) in [
            ("ollama/anything", Some(0.0)),
            ("openai/gpt-5", Some(1.25)),
            ("openai/gpt-5-mini", Some(0.25)),
            ("openai/gpt-5-mini-2025-08-07", Some(0.25)),
            ("openai/gpt-5-turbo", None),
            ("openai/gpt-50", None),
            ("anthropic/claude-haiku-4-5-20251001", Some(1.0)),
            ("anthropic/claude-haiku-4", None),
            ("anthropic/gpt-5", None),
        ] {
            let found = list_price(&model.parse().unwrap()).map(|price| price.input);
            assert_eq!(found, input, "{model}");
        }
    }

    #[test]
    fn money_is_rounded_up() {
        let price = Price::new(3.0, 0.3, 15.0);
        assert_eq!(price.nanos(1, 0, 0), 3_000);
        assert_eq!(price.nanos(10, 10, 0), 3_000);
        assert_eq!(price.nanos(0, 0, 2), 30_000);
        assert_eq!(Price::new(0.000_1, 0.0, 0.0).nanos(1, 0, 0), 1);
    }
}
