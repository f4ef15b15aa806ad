//! Dollars and tokens: reserved before a call, settled after it, under one lock.
//!
//! A call that might not fit is refused before it is made, whoever makes it: the leading model, a child, a retry, one of
//! many at a time. What is reserved is the most the call can cost: what is sent by our own count with a margin for other
//! tokenizers, and all that the model may answer. The provider's own figures then take the reservation's place. A call
//! whose answer never came keeps its reservation, since the provider may well bill it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::name::{ModelName, Provider};
use crate::price::Price;
use crate::wire::Usage;

/// What may be spent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Caps {
    /// Dollars.
    pub usd: f64,
    /// Tokens, sent and received.
    pub tokens: u64,
}

/// What was spent on one model.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spent {
    /// The model.
    pub model: String,
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that were sent and whose answer never came; counted at the most they can have cost.
    pub unconfirmed_calls: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Tokens sent that the provider had in its cache.
    pub tokens_cached: u64,
    /// Dollars.
    pub cost_usd: f64,
}

/// What was spent in all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Sums over all models.
    pub total: Spent,
    /// Each model.
    pub by_model: Vec<Spent>,
}

#[derive(Debug, Default)]
struct Books {
    held_nanos: u64,
    held_tokens: u64,
    spent_nanos: u64,
    spent_tokens: u64,
    by_model: BTreeMap<String, (Spent, u64)>,
    refused: Option<String>,
}

/// The books of one query, shared by everything that it starts.
#[derive(Debug)]
pub struct Ledger {
    caps: Caps,
    books: Mutex<Books>,
}

/// A call that may be made. Dropped without a word, it counts as made and unanswered.
#[derive(Debug)]
pub struct Reservation<'a> {
    ledger: &'a Ledger,
    model: ModelName,
    price: Price,
    input: u64,
    output: u64,
    nanos: u64,
    open: bool,
}

impl Ledger {
    /// Empty books under these caps.
    pub fn new(caps: Caps) -> Ledger {
        Ledger {
            caps,
            books: Mutex::default(),
        }
    }

    /// Reserves a call that sends `input` tokens by our count and wants `wanted` back, at least `least` of them.
    ///
    /// # Errors
    /// [`Error::Budget`]: not even the least fits, or nobody knows what the model costs.
    pub fn reserve(
        &self,
        model: &ModelName,
        price: Option<Price>,
        input: u64,
        wanted: u64,
        least: u64,
    ) -> Result<Reservation<'_>> {
        let mut books = self.books();
        let Some(price) = price else {
            let what = format!("nobody knows what {model} costs, so the dollar cap refuses it");
            books.refused.get_or_insert(what.clone());
            return Err(Error::Budget {
                what,
                hint: "the operator sets rlm.price_per_mtok_in and rlm.price_per_mtok_out"
                    .to_owned(),
            });
        };
        let input = with_margin(model.provider(), input);
        let cap_nanos = (self.caps.usd * 1e9) as u64;
        let free_nanos = cap_nanos.saturating_sub(books.spent_nanos + books.held_nanos);
        let free_tokens = self
            .caps
            .tokens
            .saturating_sub(books.spent_tokens + books.held_tokens);
        let by_tokens = free_tokens.saturating_sub(input);
        let for_input = price.nanos(input, 0, 0);
        let by_money = if price.output > 0.0 {
            (free_nanos.saturating_sub(for_input) as f64 / (price.output * 1000.0)) as u64
        } else {
            u64::MAX
        };
        let output = wanted.min(by_tokens).min(by_money);
        let nanos = price.nanos(input, 0, output);
        let too_dear = nanos > free_nanos || by_money < least;
        if too_dear || output < least {
            let what = if too_dear {
                format!(
                    "the dollar cap of {:.2} is reached: {:.4} spent or promised, the next call may take {:.4}",
                    self.caps.usd,
                    dollars(books.spent_nanos + books.held_nanos),
                    dollars(price.nanos(input, 0, least)),
                )
            } else {
                format!(
                    "the cap of {} tokens is reached: {} spent or promised, the next call may take {}",
                    self.caps.tokens,
                    books.spent_tokens + books.held_tokens,
                    input + least,
                )
            };
            books.refused.get_or_insert(what.clone());
            let hint = if too_dear {
                "give a higher budget_usd, or ask for less"
            } else {
                "the operator sets rlm.token_budget; or ask for less"
            };
            return Err(Error::Budget {
                what,
                hint: hint.to_owned(),
            });
        }
        books.held_nanos += nanos;
        books.held_tokens += input + output;
        Ok(Reservation {
            ledger: self,
            model: model.clone(),
            price,
            input,
            output,
            nanos,
            open: true,
        })
    }

    /// Why a call was refused, if one was: from then on the query can give no whole answer.
    pub fn refused(&self) -> Option<String> {
        self.books().refused.clone()
    }

    /// Refuses every further call; the first reason given is the one that is told.
    pub fn refuse(&self, what: &str) {
        self.books().refused.get_or_insert_with(|| what.to_owned());
    }

    /// What was spent so far; open reservations are not in it.
    pub fn summary(&self) -> Summary {
        let books = self.books();
        let mut summary = Summary::default();
        for (spent, nanos) in books.by_model.values() {
            let total = &mut summary.total;
            total.calls += spent.calls;
            total.unconfirmed_calls += spent.unconfirmed_calls;
            total.tokens_in += spent.tokens_in;
            total.tokens_out += spent.tokens_out;
            total.tokens_cached += spent.tokens_cached;
            let cost_usd = dollars(*nanos);
            summary.by_model.push(Spent {
                cost_usd,
                ..spent.clone()
            });
        }
        summary.total.cost_usd = dollars(books.spent_nanos);
        summary
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// The most tokens the model may answer.
    pub fn output(&self) -> u64 {
        self.output
    }

    /// The call was answered, and this is what it took. Without the provider's figures the reservation stands.
    pub fn settle(mut self, usage: Option<Usage>) {
        let usage = usage.unwrap_or(Usage {
            input: self.input,
            output: self.output,
            cached: 0,
        });
        self.close(Some((usage, Outcome::Answered)));
    }

    /// The call was not made, or the provider said that it did nothing.
    pub fn release(mut self) {
        self.close(None);
    }

    fn close(&mut self, took: Option<(Usage, Outcome)>) {
        self.open = false;
        let mut books = self.ledger.books();
        books.held_nanos -= self.nanos;
        books.held_tokens -= self.input + self.output;
        let Some((usage, outcome)) = took else {
            return;
        };
        let nanos = self.price.nanos(usage.input, usage.cached, usage.output);
        books.spent_nanos += nanos;
        books.spent_tokens += usage.input + usage.output;
        let name = self.model.to_string();
        let (spent, total) = books.by_model.entry(name.clone()).or_default();
        spent.model = name;
        match outcome {
            Outcome::Answered => spent.calls += 1,
            Outcome::Lost => spent.unconfirmed_calls += 1,
        }
        spent.tokens_in += usage.input;
        spent.tokens_out += usage.output;
        spent.tokens_cached += usage.cached;
        *total += nanos;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            let usage = Usage {
                input: self.input,
                output: self.output,
                cached: 0,
            };
            self.close(Some((usage, Outcome::Lost)));
        }
    }
}

enum Outcome {
    Answered,
    Lost,
}

/// Our count is exact for OpenAI's newer models; other tokenizers may need half as many tokens again.
fn with_margin(provider: Provider, tokens: u64) -> u64 {
    match provider {
        Provider::OpenAi => tokens + tokens / 20 + 16,
        Provider::Ollama | Provider::Anthropic => tokens + tokens / 2 + 16,
    }
}

fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Option<Price> = Some(Price::new(1.0, 0.1, 10.0));

    fn model() -> ModelName {
        "openai/x".parse().unwrap()
    }

    fn usage(input: u64, output: u64, cached: u64) -> Option<Usage> {
        Some(Usage {
            input,
            output,
            cached,
        })
    }

    #[test]
    fn what_is_promised_cannot_be_promised_again() {
        let ledger = Ledger::new(Caps {
            usd: 0.01,
            tokens: 1_000_000,
        });
        let first = ledger.reserve(&model(), PRICE, 100, 900, 10).unwrap();
        assert_eq!(first.output(), 900);
        // 0.009 dollars and a little are promised: the next gets a shorter answer, the one after none.
        let second = ledger.reserve(&model(), PRICE, 100, 900, 10).unwrap();
        assert!(second.output() < 90, "{}", second.output());
        let third = ledger.reserve(&model(), PRICE, 100, 900, 10);
        assert!(matches!(third, Err(Error::Budget { .. })));
        assert!(ledger.refused().is_some());
        first.settle(usage(100, 10, 0));
        assert!(ledger.reserve(&model(), PRICE, 100, 300, 300).is_ok());
    }

    #[test]
    fn tokens_are_capped_even_when_they_are_free() {
        let ledger = Ledger::new(Caps {
            usd: 1.0,
            tokens: 1_000,
        });
        let name: ModelName = "ollama/x".parse().unwrap();
        let free = Some(Price::FREE);
        let held = ledger.reserve(&name, free, 400, 300, 300).unwrap();
        assert!(ledger.reserve(&name, free, 10, 300, 300).is_err());
        held.settle(usage(400, 20, 0));
        assert!(ledger.reserve(&name, free, 10, 300, 300).is_ok());
    }

    #[test]
    fn books_tell_answered_from_lost_and_charge_both() {
        let ledger = Ledger::new(Caps {
            usd: 1.0,
            tokens: 1_000_000,
        });
        let reserve = || ledger.reserve(&model(), PRICE, 1_000, 100, 1).unwrap();
        reserve().settle(usage(1_000, 50, 400));
        reserve().release();
        drop(reserve());
        let all = ledger.summary().total;
        assert_eq!((all.calls, all.unconfirmed_calls), (1, 1));
        assert_eq!(
            (all.tokens_in, all.tokens_out, all.tokens_cached),
            (2_066, 150, 400)
        );
        let expect = (600.0 + 40.0 + 500.0 + 1_066.0 + 1_000.0) / 1e6;
        assert!((all.cost_usd - expect).abs() < 1e-9, "{}", all.cost_usd);
    }

    #[test]
    fn a_model_without_a_price_is_refused_by_name_of_the_key() {
        let ledger = Ledger::new(Caps {
            usd: 100.0,
            tokens: 1_000_000,
        });
        let Err(Error::Budget { what, hint }) = ledger.reserve(&model(), None, 1, 1, 1) else {
            panic!("a call of unknown price was allowed");
        };
        assert!(what.contains("openai/x") && hint.contains("rlm.price_per_mtok_in"));
    }

    #[test]
    fn no_interleaving_spends_more_than_the_cap() {
        let ledger = Ledger::new(Caps {
            usd: 0.05,
            tokens: 60_000,
        });
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for turn in 0..200 {
                        if let Ok(held) = ledger.reserve(&model(), PRICE, 50, 400, 20) {
                            let output = held.output();
                            match turn % 3 {
                                0 => held.settle(usage(50, output, 0)),
                                1 => held.release(),
                                _ => drop(held),
                            }
                        }
                    }
                });
            }
        });
        let all = ledger.summary().total;
        assert!(all.cost_usd <= 0.05, "{}", all.cost_usd);
        assert!(all.tokens_in + all.tokens_out <= 60_000);
        assert!(all.calls > 0);
    }
}
