//! The embedder's side of a script's calls.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Answers what a script asks.
pub trait Host: Send + Sync {
    /// Carries out one call. Several run at the same time if the script awaits several.
    fn call(&self, call: HostCall) -> impl Future<Output = Result<Value, HostError>> + Send;

    /// Is told what the script prints, as it prints. The whole of it is in the outcome, too.
    fn printed(&self, _text: &str) {}
}

/// A call that a script makes.
#[derive(Debug)]
pub struct HostCall {
    /// The function's name, without the module.
    pub name: String,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub kwargs: Map<String, Value>,
    /// Fires when the block is over: a limit struck, or its caller went away.
    pub cancel: CancellationToken,
}

/// Built-in exceptions that a call may raise in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exception {
    /// `FileNotFoundError`
    FileNotFound,
    /// `FileExistsError`
    FileExists,
    /// `IsADirectoryError`
    IsADirectory,
    /// `NotADirectoryError`
    NotADirectory,
    /// `PermissionError`
    Permission,
    /// `TimeoutError`
    Timeout,
    /// `ValueError`
    Value,
    /// `TypeError`
    Type,
    /// `AttributeError`
    Attribute,
    /// `RuntimeError`
    Runtime,
}

/// Why a call has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostError {
    /// Raises an exception that the script can catch.
    Raise(Exception, String),
    /// Ends the block, with [`Ending::Stopped`](crate::Ending::Stopped); the script cannot catch it.
    Stop,
}

impl HostError {
    /// Raises this exception with this message.
    pub fn raise(exception: Exception, message: impl Into<String>) -> HostError {
        HostError::Raise(exception, message.into())
    }

    /// Raises `ValueError`.
    pub fn value(message: impl Into<String>) -> HostError {
        HostError::raise(Exception::Value, message)
    }

    /// Ends the block: the script has said all it had to say.
    pub fn stop() -> HostError {
        HostError::Stop
    }
}
