//! The arguments of a script's call, taken one by one and checked.

use llmc_sandbox::{Exception, ScriptCall, ScriptCallError};
use serde_json::Value;

pub(crate) struct CallArguments {
    usage: &'static str,
    call: ScriptCall,
    positions: usize,
}

impl CallArguments {
    pub(crate) fn new(call: ScriptCall, usage: &'static str) -> CallArguments {
        CallArguments {
            usage,
            call,
            positions: 0,
        }
    }

    /// The next argument, by position or by name; `None` when it was left out or is `None`.
    pub(crate) fn value(&mut self, name: &'static str) -> Result<Option<Value>, ScriptCallError> {
        let at = self.positions;
        self.positions += 1;
        let positional = self.call.args.get_mut(at).map(Value::take);
        let named = self.call.kwargs.shift_remove(name);
        match (positional, named) {
            (Some(_), Some(_)) => Err(self.type_error(&format!("{name} is given twice"))),
            (positional, named) => Ok(positional.or(named).filter(|value| !value.is_null())),
        }
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<String, ScriptCallError> {
        match self.value(name)? {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.type_error(&format!("{name} must be a string"))),
        }
    }

    pub(crate) fn int(&mut self, name: &'static str) -> Result<Option<i64>, ScriptCallError> {
        match self.value(name)? {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.type_error(&format!("{name} must be a whole number"))),
            },
        }
    }

    /// A count within bounds; above them it is lowered.
    pub(crate) fn count(
        &mut self,
        name: &'static str,
        default: usize,
        max: usize,
    ) -> Result<usize, ScriptCallError> {
        match self.int(name)? {
            None => Ok(default),
            Some(number) => match usize::try_from(number) {
                Ok(number) => Ok(number.min(max)),
                Err(_) => Err(self.type_error(&format!("{name} must not be negative"))),
            },
        }
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, ScriptCallError> {
        match self.value(name)? {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(self.type_error(&format!("{name} must be True or False"))),
        }
    }

    /// Fails if an argument is left over.
    pub(crate) fn finish(self) -> Result<(), ScriptCallError> {
        if self.call.args.len() > self.positions {
            return Err(self.type_error("too many arguments"));
        }
        match self.call.kwargs.keys().next() {
            Some(name) => Err(self.type_error(&format!("no argument {name}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn type_error(&self, what: &str) -> ScriptCallError {
        ScriptCallError::raise(Exception::Type, format!("{what}; usage: {}", self.usage))
    }
}
