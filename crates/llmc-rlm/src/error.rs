//! Why a query has no answer.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Model(#[from] llmc_model::Error),
    /// The turns are used up without a call of `FINAL`, or a reply is unusable.
    #[error("{0}")]
    NoAnswer(String),
    #[error("cancelled")]
    Cancelled,
    /// The text does not fit into one call, and its code has nothing to run in.
    #[error(
        "the text is too long for one plain call, and there is no Python that code about it could run in: {0}"
    )]
    NoPython(String),
    #[error("the trace cannot be replayed: {0}")]
    Trace(String),
    #[error("the trace cannot be replayed: line {line}: {source}")]
    TraceLine {
        line: usize,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The code that `rlm_query` reports.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Model(error) => error.code(),
            Error::NoAnswer(_) => "no_answer",
            Error::Cancelled => "cancelled",
            Error::NoPython(_) => "isolation_required",
            Error::Trace(_) | Error::TraceLine { .. } => "invalid_args",
        }
    }
}
