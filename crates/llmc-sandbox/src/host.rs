//! The host's side of a script's calls.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use llmc_exec::SessionPlace;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Answers the calls of a script.
pub trait ScriptHost: Send + Sync {
    /// Carries out one call. Calls run concurrently if the script awaits several.
    fn call(&self, call: ScriptCall)
    -> impl Future<Output = Result<Value, ScriptCallError>> + Send;

    /// Carries out an operation of Python's own `open`, `os` or `subprocess` on the workspace.
    fn system(
        &self,
        call: SystemCall,
    ) -> impl Future<Output = Result<SystemReply, ScriptCallError>> + Send {
        async move {
            Err(ScriptCallError::raise(
                Exception::Permission,
                format!("{}: this host has no files", call.operation),
            ))
        }
    }

    /// Receives output as it is printed. All of it is in the outcome, too.
    fn printed(&self, _text: &str) {}
}

/// The session of commands that a script belongs to, whose `/tmp` its interpreter shares.
#[derive(Clone)]
pub struct CommandSession {
    /// Distinguishes it from others.
    pub name: String,
    /// Gives a place in it to one interpreter; none where runs of a session share nothing.
    pub place: Arc<dyn Fn() -> llmc_exec::Result<Option<SessionPlace>> + Send + Sync>,
}

impl fmt::Debug for CommandSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("CommandSession")
            .field(&self.name)
            .finish()
    }
}

/// A member of a document that a call returns: the text that the document prints as. Not one of its fields for the script.
pub const PRINTED_AS: &str = "_llmc_printed_as";

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

/// An operation on files or programs, with content that JSON has no form for.
#[derive(Debug)]
pub struct SystemCall {
    pub operation: String,
    pub args: Map<String, Value>,
    /// A file's content, or a program's input.
    pub content: Vec<u8>,
    /// Cancelled when the script no longer wants the answer, or has ended.
    pub cancel: CancellationToken,
}

/// The answer to a [`SystemCall`].
#[derive(Debug, Default)]
pub struct SystemReply {
    pub value: Value,
    /// Contents that go to the script as they are, such as the outputs of a program.
    pub contents: Vec<Vec<u8>>,
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
    Os,
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
            Exception::Os => "OSError",
        }
    }
}

impl From<Value> for SystemReply {
    fn from(value: Value) -> SystemReply {
        SystemReply {
            value,
            contents: Vec::new(),
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
