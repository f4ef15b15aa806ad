//! What can go wrong between a question and a model's answer.

use crate::name::Provider;

/// Shorthand used all over the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A question that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a model's name.
    #[error("{model:?} is not a model: {why}")]
    BadModel {
        /// What was given, clipped.
        model: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The policy forbids the model or its endpoint.
    #[error("{what}")]
    Egress {
        /// What is forbidden.
        what: String,
        /// What the operator can do.
        hint: String,
    },
    /// The cap on dollars or tokens forbids the call.
    #[error("{what}")]
    Budget {
        /// Which cap, and what the call would take.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The provider refused, failed, or could not be understood.
    #[error("{provider}: {what}")]
    Provider {
        /// Which one.
        provider: Provider,
        /// What happened, in our words and the provider's.
        what: String,
        /// Whether the same call may succeed later.
        retryable: bool,
    },
    /// The time limit of the whole query struck.
    #[error("the time limit struck while a model was asked")]
    TimedOut,
}

impl Error {
    pub(crate) fn provider(provider: Provider, what: impl Into<String>, retryable: bool) -> Error {
        Error::Provider {
            provider,
            what: what.into(),
            retryable,
        }
    }

    /// One word for it, as `rlm_query` reports it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::BadModel { .. } => "invalid_args",
            Error::Egress { .. } => "egress_denied",
            Error::Budget { .. } => "budget_exceeded",
            Error::Provider { .. } => "provider_error",
            Error::TimedOut => "timeout",
        }
    }
}
