//! The host's side of a script's calls.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Answers the calls of a script.
pub trait ScriptHost: Send + Sync {
    /// Carries out one call. Calls run concurrently if the script awaits several.
    fn call(&self, call: ScriptCall)
    -> impl Future<Output = Result<Value, ScriptCallError>> + Send;

    /// Receives output as it is printed. All of it is in the outcome, too.
    fn printed(&self, _text: &str) {}
}

/// A call that a script makes.
#[derive(Debug)]
pub struct ScriptCall {
    /// The function's name, without the module.
    pub name: String,
    pub args: Vec<Value>,
    pub kwargs: Map<String, Value>,
    /// Cancelled when the block ends: a limit is reached, or its caller disconnects.
    pub cancel: CancellationToken,
}

/// Built-in exceptions that a call may raise in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exception {
    FileNotFound,
    FileExists,
    IsADirectory,
    NotADirectory,
    Permission,
    Timeout,
    Value,
    Type,
    Attribute,
    Runtime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptCallError {
    /// Raises an exception that the script can catch.
    Raise(Exception, String),
    /// Ends the block, with `Stopped`; the script cannot catch it.
    Stop,
}

impl Exception {
    /// The Python class.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Exception::FileNotFound => "FileNotFoundError",
            Exception::FileExists => "FileExistsError",
            Exception::IsADirectory => "IsADirectoryError",
            Exception::NotADirectory => "NotADirectoryError",
            Exception::Permission => "PermissionError",
            Exception::Timeout => "TimeoutError",
            Exception::Value => "ValueError",
            Exception::Type => "TypeError",
            Exception::Attribute => "AttributeError",
            Exception::Runtime => "RuntimeError",
        }
    }
}

impl ScriptCallError {
    pub fn raise(exception: Exception, message: impl Into<String>) -> ScriptCallError {
        ScriptCallError::Raise(exception, message.into())
    }

    pub fn value(message: impl Into<String>) -> ScriptCallError {
        ScriptCallError::raise(Exception::Value, message)
    }
}
