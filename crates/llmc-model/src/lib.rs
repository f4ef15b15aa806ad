//! Asks language models, within a policy on where data may go and a ledger of what may be spent.
//!
//! This is the only crate that sends anything off the machine, and it sends only along a [`Route`]: an allowed model at
//! an endpoint that was checked and whose addresses were pinned. Nobody else can make one.
//!
//! - [`ModelName`], [`Provider`]: `provider/model`, parsed strictly
//! - [`Policy`], [`Profile`]: which models and hosts are allowed; [`Policy::admit`] makes a route
//! - [`Gateway`]: asks along a route, with retries inside a deadline
//! - [`Ledger`]: dollars and tokens, reserved before a call and settled after it
//! - [`Price`], [`price`]: what a model costs, by a dated table
//! - [`Embedder`]: vectors for texts, under the same policy
//!
//! Inside, `endpoint` reads addresses and pins them, `post` speaks HTTP, `wire` the three providers' languages.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod embed;
mod endpoint;
mod error;
mod gateway;
mod ledger;
mod name;
mod policy;
mod post;
pub mod price;
mod wire;

pub use embed::{Embedder, Embeddings};
pub use endpoint::{Endpoint, Lookup, system_lookup};
pub use error::{Error, Result};
pub use gateway::{Gateway, Keys, Patience};
pub use ledger::{Caps, Ledger, Reservation, Spent, Summary};
pub use name::{ModelName, Provider};
pub use policy::{Policy, Profile, Route};
pub use price::Price;
pub use wire::{Message, Reply, Request, Role, Usage};
