//! Dollars and tokens: reserved before a call, settled after it, under one lock.
//!
//! A call that might not fit is refused before it is made, also among concurrent calls, retries and children. The
//! reservation is the most the call can cost: the input by `llmc-tokens`' count with a margin for other tokenizers, and
//! the longest answer allowed. The provider's own figures then replace it. A call whose answer never came keeps its
//! reservation, since the provider may bill it.
//!
//! A provider may report more than was reserved. The first report that goes over a cap ends the calls that are still
//! running, which count with their reservations; so a cap is overrun by one call at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::model_name::{ModelName, Provider};
use crate::price::Price;
use crate::wire::TokenUsage;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpendingCaps {
    pub usd: f64,
    /// Input and output together.
    pub tokens: u64,
}

/// What was spent on one model.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelSpending {
    pub model: String,
    /// Answered calls.
    pub calls: u64,
    /// Calls whose answer never came, booked at the most they can have cost.
    pub unconfirmed_calls: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// The part of `tokens_in` that the provider had in its cache.
    pub tokens_cached: u64,
    pub cost_usd: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpendingReport {
    pub total: ModelSpending,
    pub by_model: Vec<ModelSpending>,
}

#[derive(Debug, Default)]
struct LedgerState {
    held_nanos: u64,
    held_tokens: u64,
    spent_nanos: u64,
    spent_tokens: u64,
    by_model: BTreeMap<String, (ModelSpending, u64)>,
    refused: Option<String>,
    /// Whether a report went over a cap.
    overdrawn: bool,
}

/// The spending of one query, shared by all calls that it makes.
#[derive(Debug)]
pub struct Ledger {
    caps: SpendingCaps,
    state: Mutex<LedgerState>,
    overdrawn: Notify,
}

/// A call that may be made. Dropped unsettled, it counts as sent and unanswered.
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
    pub fn new(caps: SpendingCaps) -> Ledger {
        Ledger {
            caps,
            state: Mutex::default(),
            overdrawn: Notify::new(),
        }
    }

    /// Ends when a provider's report has gone over a cap: calls that still run are to be given up.
    pub async fn overdrawn(&self) {
        loop {
            let notified = self.overdrawn.notified();
            if self.state().overdrawn {
                return;
            }
            notified.await;
        }
    }

    /// The error for a call that was given up, or may not be made, because another went over a cap.
    pub fn overdrawn_error(&self) -> Error {
        let what = "another call of this query took more than its budget".to_owned();
        self.refuse(&what);
        Error::Budget {
            what,
            hint: "give a higher budget, or ask for less".to_owned(),
        }
    }

    /// Reserves a call with `input` tokens by our count and up to `max_output_tokens` in the answer.
    ///
    /// # Errors
    /// [`Error::Budget`]: `min_output_tokens` do not fit, or the model's price is unknown.
    pub fn reserve(
        &self,
        model: &ModelName,
        price: Option<Price>,
        input: u64,
        max_output_tokens: u64,
        min_output_tokens: u64,
    ) -> Result<Reservation<'_>> {
        let mut state = self.state();
        let Some(price) = price else {
            let what = format!("the price of {model} is unknown, so the dollar cap refuses it");
            state.refused.get_or_insert(what.clone());
            return Err(Error::Budget {
                what,
                hint: "the operator sets rlm.price_per_mtok_in and rlm.price_per_mtok_out"
                    .to_owned(),
            });
        };
        let input = with_margin(model.provider(), input);
        let used_nanos = state.spent_nanos.saturating_add(state.held_nanos);
        let used_tokens = state.spent_tokens.saturating_add(state.held_tokens);
        let free_nanos = self.cap_nanos().saturating_sub(used_nanos);
        let free_tokens = self.caps.tokens.saturating_sub(used_tokens);
        let by_tokens = free_tokens.saturating_sub(input);
        let for_input = price.nanos(input, 0, 0);
        let by_money = if price.output > 0.0 {
            (free_nanos.saturating_sub(for_input) as f64 / (price.output * 1000.0)) as u64
        } else {
            u64::MAX
        };
        let output = max_output_tokens.min(by_tokens).min(by_money);
        let nanos = price.nanos(input, 0, output);
        let over_dollars = nanos > free_nanos || by_money < min_output_tokens;
        if over_dollars || output < min_output_tokens {
            let what = if over_dollars {
                format!(
                    "the dollar cap of {:.2} is reached: {:.4} spent or reserved, the next call may take {:.4}",
                    self.caps.usd,
                    dollars(used_nanos),
                    dollars(price.nanos(input, 0, min_output_tokens)),
                )
            } else {
                format!(
                    "the cap of {} tokens is reached: {} spent or reserved, the next call may take {}",
                    self.caps.tokens,
                    used_tokens,
                    input + min_output_tokens,
                )
            };
            state.refused.get_or_insert(what.clone());
            let hint = if over_dollars {
                "give a higher budget_usd, or ask for less"
            } else {
                "the operator sets rlm.token_budget; or ask for less"
            };
            return Err(Error::Budget {
                what,
                hint: hint.to_owned(),
            });
        }
        state.held_nanos += nanos;
        state.held_tokens += input + output;
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

    /// Why a call was refused, if one was: from then on the query cannot have a complete answer.
    pub fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Records that a call was refused; the first reason stays.
    pub fn refuse(&self, what: &str) {
        self.state().refused.get_or_insert_with(|| what.to_owned());
    }

    /// Spending so far, without open reservations.
    pub fn report(&self) -> SpendingReport {
        let state = self.state();
        let mut report = SpendingReport::default();
        for (spent, nanos) in state.by_model.values() {
            let total = &mut report.total;
            total.calls += spent.calls;
            total.unconfirmed_calls += spent.unconfirmed_calls;
            total.tokens_in = total.tokens_in.saturating_add(spent.tokens_in);
            total.tokens_out = total.tokens_out.saturating_add(spent.tokens_out);
            total.tokens_cached = total.tokens_cached.saturating_add(spent.tokens_cached);
            let cost_usd = dollars(*nanos);
            report.by_model.push(ModelSpending {
                cost_usd,
                ..spent.clone()
            });
        }
        report.total.cost_usd = dollars(state.spent_nanos);
        report
    }

    fn cap_nanos(&self) -> u64 {
        (self.caps.usd * 1e9) as u64
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// The longest answer that the reservation covers, in tokens.
    pub fn output(&self) -> u64 {
        self.output
    }

    /// Books an answered call. Without the provider's figures the reservation counts.
    pub fn settle(mut self, usage: Option<TokenUsage>) {
        let usage = usage.unwrap_or_else(|| self.reserved());
        self.close(Some((usage, CallEnd::Answered)));
    }

    /// Cancels the reservation of a call that was not made or that the provider rejected.
    pub fn release(mut self) {
        self.close(None);
    }

    /// The most that the call can have taken, if the provider counts as we do.
    fn reserved(&self) -> TokenUsage {
        TokenUsage {
            input: self.input,
            output: self.output,
            cached: 0,
        }
    }

    fn close(&mut self, booked: Option<(TokenUsage, CallEnd)>) {
        self.open = false;
        let mut state = self.ledger.state();
        state.held_nanos -= self.nanos;
        state.held_tokens -= self.input + self.output;
        let Some((mut usage, mut end)) = booked else {
            return;
        };
        if state.overdrawn && usage.total() > self.reserved().total() {
            (usage, end) = (self.reserved(), CallEnd::Unconfirmed);
        }
        let nanos = self.price.nanos(usage.input, usage.cached, usage.output);
        state.spent_nanos = state.spent_nanos.saturating_add(nanos);
        state.spent_tokens = state.spent_tokens.saturating_add(usage.total());
        if !state.overdrawn
            && (state.spent_tokens > self.ledger.caps.tokens
                || state.spent_nanos > self.ledger.cap_nanos())
        {
            state.overdrawn = true;
            self.ledger.overdrawn.notify_waiters();
        }
        let name = self.model.to_string();
        let (spent, total) = state.by_model.entry(name.clone()).or_default();
        spent.model = name;
        match end {
            CallEnd::Answered => spent.calls += 1,
            CallEnd::Unconfirmed => spent.unconfirmed_calls += 1,
        }
        spent.tokens_in = spent.tokens_in.saturating_add(usage.input);
        spent.tokens_out = spent.tokens_out.saturating_add(usage.output);
        spent.tokens_cached = spent.tokens_cached.saturating_add(usage.cached);
        *total = total.saturating_add(nanos);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            let usage = self.reserved();
            self.close(Some((usage, CallEnd::Unconfirmed)));
        }
    }
}

enum CallEnd {
    Answered,
    Unconfirmed,
}

/// The count is exact for OpenAI's newer models; other tokenizers may need half as many tokens again.
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

    fn usage(input: u64, output: u64, cached: u64) -> Option<TokenUsage> {
        Some(TokenUsage {
            input,
            output,
            cached,
        })
    }

    #[test]
    fn what_is_reserved_cannot_be_reserved_again() {
        let ledger = Ledger::new(SpendingCaps {
            usd: 0.01,
            tokens: 1_000_000,
        });
        let first = ledger.reserve(&model(), PRICE, 100, 900, 10).unwrap();
        assert_eq!(first.output(), 900);
        // 0.009 dollars and a little are reserved: the next gets a shorter answer, the one after none.
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
        let ledger = Ledger::new(SpendingCaps {
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
        let ledger = Ledger::new(SpendingCaps {
            usd: 1.0,
            tokens: 1_000_000,
        });
        let reserve = || ledger.reserve(&model(), PRICE, 1_000, 100, 1).unwrap();
        reserve().settle(usage(1_000, 50, 400));
        reserve().release();
        drop(reserve());
        let all = ledger.report().total;
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
        let ledger = Ledger::new(SpendingCaps {
            usd: 100.0,
            tokens: 1_000_000,
        });
        let Err(Error::Budget { what, hint }) = ledger.reserve(&model(), None, 1, 1, 1) else {
            panic!("a call of unknown price was allowed");
        };
        assert!(what.contains("openai/x") && hint.contains("rlm.price_per_mtok_in"));
    }

    #[tokio::test]
    async fn a_provider_that_reports_too_much_overruns_a_cap_by_one_call() {
        let ledger = Ledger::new(SpendingCaps {
            usd: 1.0,
            tokens: 10_000,
        });
        let held: Vec<_> = (0..8)
            .map(|_| ledger.reserve(&model(), PRICE, 100, 500, 500).unwrap())
            .collect();
        for reservation in held {
            reservation.settle(usage(u64::MAX, u64::MAX, 0));
        }
        ledger.overdrawn().await;
        let all = ledger.report();
        assert_eq!((all.total.calls, all.total.unconfirmed_calls), (1, 7));
        assert!(ledger.reserve(&model(), PRICE, 1, 1, 1).is_err());
        // One report above its reservation, within the cap, ends nothing.
        let ledger = Ledger::new(SpendingCaps {
            usd: 1.0,
            tokens: 10_000,
        });
        let reserve = || ledger.reserve(&model(), PRICE, 100, 100, 100).unwrap();
        let (one, two, three) = (reserve(), reserve(), reserve());
        one.settle(usage(4_000, 1_000, 0));
        two.settle(usage(4_000, 1_500, 0));
        three.settle(usage(4_000, 1_000, 0));
        let spent = ledger.report().total;
        let reserved = 121 + 100;
        assert_eq!(spent.tokens_in + spent.tokens_out, 5_000 + 5_500 + reserved);
    }

    #[test]
    fn no_interleaving_spends_more_than_the_cap() {
        let ledger = Ledger::new(SpendingCaps {
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
        let all = ledger.report().total;
        assert!(all.cost_usd <= 0.05, "{}", all.cost_usd);
        assert!(all.tokens_in + all.tokens_out <= 60_000);
        assert!(all.calls > 0);
    }
}
