//! Why a model call has no answer.

use crate::model_name::Provider;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{model:?} is not a model: {why}")]
    BadModel {
        /// As given, clipped.
        model: String,
        why: &'static str,
    },
    /// The policy forbids the model or its endpoint.
    #[error("{what}")]
    Egress { what: String, hint: String },
    /// The cap on dollars or tokens forbids the call.
    #[error("{what}")]
    Budget { what: String, hint: String },
    /// The provider refused, failed, or sent something that cannot be parsed.
    #[error("{provider}: {what}")]
    Provider {
        provider: Provider,
        what: String,
        /// Whether the same call may succeed later.
        retryable: bool,
    },
    /// The time limit of the whole query passed.
    #[error("the time limit passed during a model call")]
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

    /// The code that `rlm_query` reports.
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
