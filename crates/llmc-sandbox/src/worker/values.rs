//! Python values as JSON, and back.

use monty_types::{MontyObject, MontyType};
use num_bigint::BigInt;
use serde_json::{Map, Number, Value};

/// The JSON parser on the other side has a limit as well.
const MAX_VALUE_DEPTH: usize = 60;

pub(super) fn to_json(object: &MontyObject) -> Result<Value, String> {
    json(object, MAX_VALUE_DEPTH)
}

fn json(object: &MontyObject, depth: usize) -> Result<Value, String> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(format!(
            "a value nested more than {MAX_VALUE_DEPTH} levels deep"
        ));
    };
    let list = |items: &[MontyObject]| {
        let items = items.iter().map(|item| json(item, below));
        Ok(Value::Array(items.collect::<Result<_, String>>()?))
    };
    match object {
        MontyObject::None => Ok(Value::Null),
        MontyObject::Bool(value) => Ok(Value::Bool(*value)),
        MontyObject::Int(value) => Ok((*value).into()),
        MontyObject::BigInt(value) => match u64::try_from(value) {
            Ok(value) => Ok(value.into()),
            Err(_) => Err("an integer of more than 64 bits; pass str(n)".to_owned()),
        },
        MontyObject::Float(value) => Number::from_f64(*value)
            .map(Value::Number)
            .ok_or_else(|| format!("{value}, which JSON does not know")),
        MontyObject::String(value) | MontyObject::Path(value) => Ok(value.as_str().into()),
        MontyObject::List(items)
        | MontyObject::Tuple(items)
        | MontyObject::Set(items)
        | MontyObject::FrozenSet(items) => list(items),
        MontyObject::NamedTuple {
            field_names,
            values,
            ..
        } => {
            let pairs = field_names.iter().zip(values);
            let pairs = pairs.map(|(name, value)| Ok((name.clone(), json(value, below)?)));
            Ok(Value::Object(pairs.collect::<Result<_, String>>()?))
        }
        MontyObject::Dict(pairs) => Ok(Value::Object(fields(pairs, below)?)),
        MontyObject::ClassInstance(instance) => Ok(Value::Object(fields(&instance.attrs, below)?)),
        MontyObject::Date(_)
        | MontyObject::DateTime(_)
        | MontyObject::Time(_)
        | MontyObject::TimeDelta(_)
        | MontyObject::TimeZone(_) => Err(format!(
            "{}; pass str(value) or value.isoformat()",
            object.py_repr()
        )),
        MontyObject::Bytes(_) => Err("bytes; pass value.decode()".to_owned()),
        other => Err(format!("{}, which is no plain value", describe(other))),
    }
}

fn fields<'a>(
    pairs: impl IntoIterator<Item = &'a (MontyObject, MontyObject)>,
    below: usize,
) -> Result<Map<String, Value>, String> {
    let mut map = Map::new();
    for (key, value) in pairs {
        let key = match key {
            MontyObject::String(key) => key.clone(),
            MontyObject::Int(_) | MontyObject::Bool(_) | MontyObject::None => key.to_string(),
            other => return Err(format!("a dict with a {} as key", describe(other))),
        };
        map.insert(key, json(value, below)?);
    }
    Ok(map)
}

/// A description for messages.
fn describe(object: &MontyObject) -> String {
    match object {
        MontyObject::Function { name, .. } => format!("the function {name}"),
        MontyObject::Type(MontyType::Instance(class)) => format!("the class {}", class.name),
        MontyObject::Exception { exc_type, .. } => format!("a {exc_type}"),
        MontyObject::Cycle(..) => "a value that contains itself".to_owned(),
        MontyObject::Tuple(_) => "tuple".to_owned(),
        other => {
            let mut shown = other.py_repr();
            if let Some((end, _)) = shown.char_indices().nth(60) {
                shown.truncate(end);
                shown.push('…');
            }
            shown
        }
    }
}

pub(super) fn from_json(value: Value) -> MontyObject {
    match value {
        Value::Null => MontyObject::None,
        Value::Bool(value) => MontyObject::Bool(value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => MontyObject::Int(value),
            (None, Some(value), _) => MontyObject::BigInt(BigInt::from(value)),
            (None, None, value) => MontyObject::Float(value.unwrap_or(f64::NAN)),
        },
        Value::String(value) => MontyObject::String(value),
        Value::Array(items) => MontyObject::List(items.into_iter().map(from_json).collect()),
        Value::Object(fields) => {
            let pair = |(key, value)| (MontyObject::String(key), from_json(value));
            MontyObject::dict(fields.into_iter().map(pair).collect::<Vec<_>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_values_survive_the_way_there_and_back() {
        let value = json!({"a": [1, -2, 1.5, true, null, "x"], "big": u64::MAX, "o": {}});
        assert_eq!(to_json(&from_json(value.clone())).unwrap(), value);
    }

    #[test]
    fn what_has_no_plain_form_says_so() {
        let mut deep = MontyObject::Int(1);
        for _ in 0..100 {
            deep = MontyObject::List(vec![deep]);
        }
        for (object, said) in [
            (deep, "levels deep"),
            (MontyObject::Float(f64::NAN), "NaN"),
            (MontyObject::Bytes(vec![1]), "decode"),
            (MontyObject::Ellipsis, "no plain value"),
        ] {
            let error = to_json(&object).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
