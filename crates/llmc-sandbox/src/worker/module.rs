//! The module with the host's functions, as a script sees it.

use monty_types::{DictPairs, MontyClassInstance, MontyClassType, MontyObject, MontyUuid};

use super::library::DIGEST;
use crate::names::{ModulePart, ScriptNames};

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
    /// A function that a part of the module does not have; the part's name, and the function's.
    NotInPart(String, String),
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
    if let Some((part, is_aio)) = part_of(names, on) {
        let full = format!("{}.{name}", part.name);
        return match (part.functions.iter().any(|known| known == name), is_aio) {
            (true, false) => Callee::Sync(full),
            (true, true) => Callee::Async(full),
            (false, _) => Callee::NotInPart(part.name.clone(), name.to_owned()),
        };
    }
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
    if let Some((part, is_aio)) = part_of(names, on) {
        let known = part.functions.iter().any(|function| function == name);
        let prefix = if is_aio { "aio." } else { "" };
        return known.then(|| function(format!("{prefix}{}.{name}", part.name)));
    }
    if let Some(MODULE_ID | AIO_ID) = on
        && names.parts.iter().any(|part| part.name == name)
    {
        let id = part_id(name, on == Some(AIO_ID));
        return Some(instance(name, id, DictPairs::from(Vec::new())));
    }
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
    let in_part = |(part, function): (&str, &str)| {
        let mut parts = names.parts.iter().filter(|known| known.name == part);
        parts.any(|part| part.functions.iter().any(|known| known == function))
    };
    all.any(|function| function == name) || name.split_once('.').is_some_and(in_part)
}

/// The part that an object is, and whether its functions are awaited.
fn part_of(names: &ScriptNames, on: Option<MontyUuid>) -> Option<(&ModulePart, bool)> {
    let on = on.filter(|on| *on != MODULE_ID && *on != AIO_ID)?;
    names.parts.iter().find_map(|part| {
        let mut kinds = [false, true].into_iter();
        let is_aio = kinds.find(|is_aio| part_id(&part.name, *is_aio) == on)?;
        Some((part, is_aio))
    })
}

/// The identity of a part. It follows from the name, since sessions keep objects while configurations change.
fn part_id(name: &str, is_aio: bool) -> MontyUuid {
    // FNV-1a: no two names of one configuration are likely to share it, and nothing depends on that but a lookup.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    MontyUuid::from_u128((if is_aio { 0x14 } else { 0x13 }) << 64 | u128::from(hash))
}
