//! The module with the host's functions, as a script sees it.

use monty_types::{DictPairs, MontyClassInstance, MontyClassType, MontyObject, MontyUuid};

use super::library::DIGEST;
use crate::names::ScriptNames;

/// Identities of the module and of its part whose functions are awaited.
const MODULE_ID: MontyUuid = MontyUuid::from_u128(0x11);
const AIO_ID: MontyUuid = MontyUuid::from_u128(0x12);
/// The name of that part.
const AIO: &str = "aio";
/// Answered by the worker itself: the code at the beginning of an exception's message.
pub(super) const ERROR_CODE: &str = "error_code";

/// The function that a call means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// Of the host; the script waits.
    Sync(String),
    /// Of the host, to be awaited.
    Async(String),
    ErrorCode,
    /// Answered by the worker, for libraries.
    Digest,
    Unknown(String),
}

pub(super) fn module(name: &str) -> MontyObject {
    let aio = instance(AIO, AIO_ID, DictPairs::from(Vec::new()));
    let attrs = vec![(MontyObject::String(AIO.to_owned()), aio)];
    instance(name, MODULE_ID, DictPairs::from(attrs))
}

fn instance(name: &str, id: MontyUuid, attrs: DictPairs) -> MontyObject {
    MontyObject::ClassInstance(Box::new(MontyClassInstance {
        class_type: MontyClassType {
            name: name.to_owned(),
            id,
            host_defined: true,
            is_dataclass: false,
            attrs: DictPairs::from(Vec::new()),
        },
        instance_id: id,
        attrs,
    }))
}

/// Resolves a call. A function taken from `aio` and stored in a variable has `aio.` in its name.
pub(super) fn callee(names: &ScriptNames, name: &str, on: Option<MontyUuid>) -> Callee {
    let (awaited, name) = match (on, name.strip_prefix("aio.")) {
        (Some(AIO_ID), _) => (true, name),
        (None, Some(name)) => (true, name),
        _ => (false, name),
    };
    match (has_function(names, name), name) {
        (true, _) if awaited => Callee::Async(name.to_owned()),
        (true, _) => Callee::Sync(name.to_owned()),
        (false, DIGEST) => Callee::Digest,
        (false, ERROR_CODE) if on.is_some() || names.module.is_some() => Callee::ErrorCode,
        (false, _) => Callee::Unknown(name.to_owned()),
    }
}

/// The object that a name means, if it means one.
pub(super) fn lookup(
    names: &ScriptNames,
    name: &str,
    on: Option<MontyUuid>,
) -> Option<MontyObject> {
    let function = |name: String| MontyObject::Function {
        name,
        docstring: None,
    };
    match on {
        Some(AIO_ID) => has_function(names, name).then(|| function(format!("aio.{name}"))),
        Some(_) => {
            (has_function(names, name) || name == ERROR_CODE).then(|| function(name.to_owned()))
        }
        None if names.module.as_deref() == Some(name) => Some(module(name)),
        None => names
            .functions
            .iter()
            .any(|function| function == name || name == DIGEST)
            .then(|| function(name.to_owned())),
    }
}

fn has_function(names: &ScriptNames, name: &str) -> bool {
    let mut all = names.functions.iter().chain(&names.module_functions);
    all.any(|function| function == name)
}
