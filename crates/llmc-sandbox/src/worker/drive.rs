//! One block of code, from its first line to the word on how it ended.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use monty::{MontyRepl, ReplFunctionCall, ReplProgress, ReplResolveFutures, ReplStartError};
use monty_types::{
    ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult, PrintWriter,
};
use serde_json::{Map, Value};

use super::objects::{self, Callee};
use super::printer::Printer;
use super::{hints, source, trouble, values};
use crate::host::Exception;
use crate::limits::Limit;
use crate::names::Names;
use crate::outcome::{Shown, Trouble, TroubleKind};
use crate::wire::{self, Bounds, HEAD_LIMIT, Reply, Said, Told, Why};

/// What a step of the interpreter leads to.
type Step = Result<ReplProgress, Box<ReplStartError>>;

pub(super) struct Drive<'a> {
    socket: &'a UnixStream,
    names: &'a Names,
    printer: Printer<'a>,
    block: u64,
    /// Calls to be awaited that the server does not know of yet: it is told when the script waits.
    unsent: VecDeque<Said>,
    /// Answers to calls that the script does not wait for at the moment.
    answers: BTreeMap<u32, Reply>,
    /// Why the block is being ended.
    ending: Option<Why>,
}

impl<'a> Drive<'a> {
    pub(super) fn new(
        socket: &'a UnixStream,
        names: &'a Names,
        bounds: &Bounds,
        block: u64,
    ) -> Drive<'a> {
        Drive {
            socket,
            names,
            printer: Printer::new(socket, bounds.output_bytes),
            block,
            unsent: VecDeque::new(),
            answers: BTreeMap::new(),
            ending: None,
        }
    }

    /// Runs the block and says how it ended.
    pub(super) fn run(mut self, repl: MontyRepl, code: &str) -> io::Result<MontyRepl> {
        let (repl, last) = match source::prepare(code, self.names) {
            Ok(code) => self.steps(repl, &code)?,
            Err(trouble) => (repl, Said::Failed { trouble, cpu_us: 0 }),
        };
        self.printer.flush()?;
        wire::send(self.socket, &last, &[])?;
        Ok(repl)
    }

    fn steps(&mut self, repl: MontyRepl, code: &str) -> io::Result<(MontyRepl, Said)> {
        let values = self.names.values.iter();
        let values = values.map(|(name, value)| (name.clone(), values::from_json(value.clone())));
        let mut step = repl.feed_start(code, values.collect(), self.print());
        loop {
            step = match step {
                Ok(ReplProgress::Complete { repl, value }) => {
                    let cpu_us = micros(repl.tracker().elapsed());
                    let last = self.done(&value, cpu_us);
                    return Ok((repl, last));
                }
                Err(failed) => return Ok(self.failed(*failed)),
                Ok(ReplProgress::FunctionCall(call)) => self.call(call)?,
                Ok(ReplProgress::ResolveFutures(waiting)) => self.wait(waiting)?,
                Ok(ReplProgress::OsCall(call)) => {
                    let answer = no_world(call.function_call.name());
                    call.resume(answer, self.print())
                }
                Ok(ReplProgress::NameLookup(lookup)) => {
                    let named = objects::named(self.names, &lookup.name, lookup.object_id());
                    let answer = named.map_or(NameLookupResult::Undefined, NameLookupResult::Value);
                    lookup.resume(answer, self.print())
                }
            };
        }
    }

    fn print(&mut self) -> PrintWriter<'_> {
        PrintWriter::Callback(&mut self.printer)
    }

    fn call(&mut self, mut call: ReplFunctionCall) -> io::Result<Step> {
        let callee = objects::callee(self.names, &call.function_name, call.object_id);
        let (name, awaited) = match callee {
            Callee::Sync(name) => (name, false),
            Callee::Async(name) => (name, true),
            Callee::ErrorCode => {
                let code = error_code(call.args.first());
                return Ok(call.resume(code, self.print()));
            }
            Callee::Unknown(name) if call.object_id.is_none() => {
                return Ok(call.resume(ExtFunctionResult::NotFound(name), self.print()));
            }
            Callee::Unknown(name) => {
                let error = self.no_function(&name);
                return Ok(call.resume(error, self.print()));
            }
        };
        let args = std::mem::take(&mut call.args);
        let kwargs = std::mem::take(&mut call.kwargs);
        let asked = match asked(call.call_id, &name, &args, &kwargs) {
            Ok(asked) => asked,
            Err(why) => {
                let why = format!("{name}: cannot pass {why}");
                let error = MontyException::new(ExcType::TypeError, Some(why));
                return Ok(call.resume(error, self.print()));
            }
        };
        if awaited {
            self.unsent.push_back(asked);
            return Ok(call.resume_pending(self.print()));
        }
        self.printer.flush()?;
        wire::send(self.socket, &asked, &[])?;
        let reply = loop {
            match self.hear()? {
                Heard::Answer(id, reply) if id == call.call_id => break Some(reply),
                Heard::Answer(id, reply) => {
                    self.answers.insert(id, reply);
                }
                Heard::Ended => break None,
            }
        };
        Ok(match reply.map(result) {
            Some(Some(result)) => call.resume(result, self.print()),
            Some(None) => {
                self.ending = Some(Why::Stopped);
                call.abort(ended(), self.print())
            }
            None => call.abort(ended(), self.print()),
        })
    }

    /// Every task waits for an answer.
    fn wait(&mut self, waiting: ReplResolveFutures) -> io::Result<Step> {
        self.printer.flush()?;
        while let Some(asked) = self.unsent.pop_front() {
            wire::send(self.socket, &asked, &[])?;
        }
        let pending = waiting.pending_call_ids();
        while !pending.iter().any(|id| self.answers.contains_key(id)) {
            match self.hear()? {
                Heard::Answer(id, reply) => {
                    self.answers.insert(id, reply);
                }
                Heard::Ended => return Ok(waiting.abort(ended(), self.print())),
            }
        }
        let mut results = Vec::new();
        for id in pending {
            let Some(reply) = self.answers.remove(id) else {
                continue;
            };
            match result(reply) {
                Some(result) => results.push((*id, result)),
                None => {
                    self.ending = Some(Why::Stopped);
                    return Ok(waiting.abort(ended(), self.print()));
                }
            }
        }
        Ok(waiting.resume(results, self.print()))
    }

    /// What the server says while the script waits.
    fn hear(&mut self) -> io::Result<Heard> {
        let (told, _) = wire::receive::<Told>(self.socket)?;
        match told {
            Told::Answer { id, reply } => Ok(Heard::Answer(id, reply)),
            Told::Abort(why) => {
                self.ending = Some(why);
                Ok(Heard::Ended)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn no_function(&self, name: &str) -> MontyException {
        let all = self
            .names
            .functions
            .iter()
            .chain(&self.names.module_functions);
        let mut message = match &self.names.module {
            Some(module) => format!("{module} has no function '{name}'"),
            None => format!("there is no function '{name}'"),
        };
        if let Some(near) = hints::nearest(name, all.map(String::as_str)) {
            message.push_str(&format!("; did you mean {near}?"));
        }
        MontyException::new(ExcType::AttributeError, Some(message))
    }

    fn done(&self, value: &MontyObject, cpu_us: u64) -> Said {
        let repr = match value {
            MontyObject::None => String::new(),
            MontyObject::String(text) => text.clone(),
            other => other.py_repr(),
        };
        if repr.len() > self.printer.left() {
            let trouble = Trouble::new(TroubleKind::Limit(Limit::Output), "");
            return Said::Failed { trouble, cpu_us };
        }
        let json = values::to_json(value).unwrap_or_default();
        let shown = Shown { repr, json };
        Said::Done { shown, cpu_us }
    }

    fn failed(&mut self, failed: ReplStartError) -> (MontyRepl, Said) {
        let ReplStartError { repl, error } = failed;
        let cpu_us = micros(repl.tracker().elapsed());
        let mut trouble = trouble::of(&error, self.names, self.block);
        let last = match self.ending {
            Some(why) => {
                trouble.exception = String::new();
                trouble.hint = None;
                if let Why::Limit(limit) = why {
                    trouble.kind = TroubleKind::Limit(limit);
                }
                Said::Aborted {
                    why,
                    trouble,
                    cpu_us,
                }
            }
            None => Said::Failed { trouble, cpu_us },
        };
        (repl, last)
    }
}

enum Heard {
    Answer(u32, Reply),
    Ended,
}

/// A call as a message, if its arguments have a plain form of bearable size.
fn asked(
    id: u32,
    name: &str,
    args: &[MontyObject],
    kwargs: &[(MontyObject, MontyObject)],
) -> Result<Said, String> {
    let sizes = args.iter().chain(kwargs.iter().map(|(_, value)| value));
    let size: usize = sizes.map(MontyObject::deep_host_size).sum();
    // Escaped, a byte may become six; the server looks at the length before anything else.
    if size > HEAD_LIMIT / 2 {
        return Err(format!("{} MiB in one call", size >> 20));
    }
    let args: Result<Vec<Value>, String> = args.iter().map(values::to_json).collect();
    let named = kwargs
        .iter()
        .map(|(name, value)| Ok((name.to_string(), values::to_json(value)?)));
    let asked = Said::Call {
        id,
        name: name.to_owned(),
        args: args?,
        kwargs: named.collect::<Result<Map<String, Value>, String>>()?,
    };
    Ok(asked)
}

/// What an answer makes of a call; nothing if it ends the block.
fn result(reply: Reply) -> Option<ExtFunctionResult> {
    match reply {
        Reply::Value(value) => Some(ExtFunctionResult::Return(values::from_json(value))),
        Reply::Raise(exception, message) => {
            let error = MontyException::new(class(exception), Some(message));
            Some(ExtFunctionResult::Error(error))
        }
        Reply::Stop => None,
    }
}

fn class(exception: Exception) -> ExcType {
    match exception {
        Exception::FileNotFound => ExcType::FileNotFoundError,
        Exception::FileExists => ExcType::FileExistsError,
        Exception::IsADirectory => ExcType::IsADirectoryError,
        Exception::NotADirectory => ExcType::NotADirectoryError,
        Exception::Permission => ExcType::PermissionError,
        Exception::Timeout => ExcType::TimeoutError,
        Exception::Value => ExcType::ValueError,
        Exception::Type => ExcType::TypeError,
        Exception::Attribute => ExcType::AttributeError,
        Exception::Runtime => ExcType::RuntimeError,
    }
}

/// The answer to whatever wants a file, a variable of the environment or the time.
fn no_world(what: &str) -> MontyException {
    let why = format!("{what}: there are no files, no environment and no clock here; call a tool");
    MontyException::new(ExcType::PermissionError, Some(why))
}

/// The code that a message begins with: `NOT_FOUND: no such file`.
fn error_code(exception: Option<&MontyObject>) -> MontyObject {
    let message = match exception {
        Some(MontyObject::Exception { arg: Some(arg), .. }) => arg,
        Some(MontyObject::String(text)) => text,
        _ => return MontyObject::None,
    };
    let is_code =
        |code: &str| !code.is_empty() && code.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    match message.split_once(": ") {
        Some((code, _)) if is_code(code) => MontyObject::String(code.to_owned()),
        _ => MontyObject::None,
    }
}

/// What ends a block from outside; no handler of the script catches it.
fn ended() -> MontyException {
    MontyException::new(ExcType::RuntimeError, Some("ended".to_owned()))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
