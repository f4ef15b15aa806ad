//! The module through which a script finds the host's functions.

use monty_types::{DictPairs, MontyClassInstance, MontyClassType, MontyObject, MontyUuid};

use crate::names::Names;

/// The module's identity, and that of the part of it whose functions are awaited.
const MODULE: MontyUuid = MontyUuid::from_u128(0x11);
const AWAITED: MontyUuid = MontyUuid::from_u128(0x12);
/// The attribute that holds that part.
const AIO: &str = "aio";
/// Told by the worker itself: the code at the beginning of an exception's message.
pub(super) const ERROR_CODE: &str = "error_code";

/// What a name in front of a call's parentheses means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function of the host; the script waits.
    Sync(String),
    /// A function of the host, to be awaited.
    Async(String),
    /// [`ERROR_CODE`]
    ErrorCode,
    /// Nothing.
    Unknown(String),
}

/// The module, as a script sees it.
pub(super) fn module(name: &str) -> MontyObject {
    let aio = instance(AIO, AWAITED, DictPairs::from(Vec::new()));
    let attrs = vec![(MontyObject::String(AIO.to_owned()), aio)];
    instance(name, MODULE, DictPairs::from(attrs))
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

/// What a script calls. A function that was taken from the module and kept has its place in its name.
pub(super) fn callee(names: &Names, name: &str, on: Option<MontyUuid>) -> Callee {
    let (awaited, name) = match (on, name.strip_prefix("aio.")) {
        (Some(AWAITED), _) => (true, name),
        (None, Some(name)) => (true, name),
        _ => (false, name),
    };
    match (has(names, name), name) {
        (true, _) if awaited => Callee::Async(name.to_owned()),
        (true, _) => Callee::Sync(name.to_owned()),
        (false, ERROR_CODE) if on.is_some() || names.module.is_some() => Callee::ErrorCode,
        (false, _) => Callee::Unknown(name.to_owned()),
    }
}

/// What a name without parentheses stands for, if for anything.
pub(super) fn named(names: &Names, name: &str, on: Option<MontyUuid>) -> Option<MontyObject> {
    let function = |name: String| MontyObject::Function {
        name,
        docstring: None,
    };
    match on {
        Some(AWAITED) => has(names, name).then(|| function(format!("aio.{name}"))),
        Some(_) => (has(names, name) || name == ERROR_CODE).then(|| function(name.to_owned())),
        None if names.module.as_deref() == Some(name) => Some(module(name)),
        None => names
            .functions
            .iter()
            .any(|function| function == name)
            .then(|| function(name.to_owned())),
    }
}

fn has(names: &Names, name: &str) -> bool {
    let mut all = names.functions.iter().chain(&names.module_functions);
    all.any(|function| function == name)
}
