//! Calls to chat and embedding models, under an egress policy and a spending ledger.
//!
//! The crate owns every byte that leaves the machine for a model: names, endpoints, prices, budgets, the providers'
//! protocols. It must not know what a request is about: no files, no tools, no scripts, no configuration keys beyond
//! the hints in its errors.
//!
//! The three types to know:
//! - [`Route`]: an allowed model at a checked endpoint whose addresses are pinned. Only [`EgressPolicy::admit`] makes
//!   one, and nothing is sent without one.
//! - [`Ledger`]: dollars and tokens, reserved before a call and settled after it.
//! - [`ModelClient`]: sends a [`ChatRequest`] or texts to embed along a route, with retries inside a deadline.
//!
//! Parts: `model_name` parses `provider/model`, `endpoint` parses base URLs, `policy` admits routes, `price` is the
//! dated price table, `ledger` reserves, `client` retries, `transport` speaks HTTP, `wire` the providers' JSON. `named_server`
//! posts to other servers that the operator has named.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod client;
mod endpoint;
mod error;
mod ledger;
mod model_name;
mod named_server;
mod policy;
mod price;
mod transport;
mod wire;

pub use client::{ApiKeys, ModelClient, RetryPolicy};
pub use endpoint::{HostLookup, system_lookup};
pub use error::{Error, Result};
pub use ledger::{Ledger, ModelSpending, Reservation, SpendingCaps, SpendingReport};
pub use model_name::{ModelName, Provider};
pub use named_server::{BodySink, NamedServer, ReplyHead};
pub use policy::{EgressPolicy, EgressProfile, Route};
pub use price::{Price, list_price};
pub use wire::{ChatMessage, ChatReply, ChatRequest, ChatRole, TokenUsage};
