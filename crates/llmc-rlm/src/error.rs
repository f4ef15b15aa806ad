//! Why a query has no answer.

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A model could not be asked.
    #[error(transparent)]
    Model(#[from] llmc_model::Error),
    /// The turns are used up and nothing was called final.
    #[error("{0}")]
    NoAnswer(String),
    /// The caller went away.
    #[error("cancelled")]
    Cancelled,
    /// No interpreter could be started.
    #[error("no interpreter: {0}")]
    Sandbox(String),
    /// A trace that cannot be replayed here.
    #[error("the trace cannot be replayed: {0}")]
    Trace(String),
}

impl Error {
    /// One word for it, as `rlm_query` reports it.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Model(error) => error.code(),
            Error::NoAnswer(_) => "no_answer",
            Error::Cancelled => "cancelled",
            Error::Sandbox(_) => "internal_error",
            Error::Trace(_) => "invalid_args",
        }
    }
}
