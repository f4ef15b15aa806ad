//! Runs one block of code in the interpreter.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use monty::{MontyRepl, ReplFunctionCall, ReplProgress, ReplResolveFutures, ReplStartError};
use monty_types::{
    ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult, PrintWriter,
};
use serde_json::{Map, Value};

use super::library::Library;
use super::module::{self, Callee};
use super::prepare::LineMap;
use super::printer::Printer;
use super::{Progress, prepare, script_error, values};
use crate::host::{Exception, PRINTED_AS};
use crate::limits::ScriptLimit;
use crate::names::ScriptNames;
use crate::outcome::{ScriptError, ScriptErrorKind, ScriptValue};
use crate::wire::{
    self, AbortReason, CallReply, MAX_HEAD_BYTES, WorkerLimits, WorkerReport, WorkerRequest,
};

type Step = Result<ReplProgress, Box<ReplStartError>>;

pub(super) struct BlockDriver<'a> {
    socket: &'a UnixStream,
    names: &'a ScriptNames,
    printer: Printer<'a>,
    progress: Progress,
    /// Calls to be awaited; they are sent when the script waits.
    unsent: VecDeque<WorkerReport>,
    /// Answers to calls that the script does not wait for yet.
    answers: BTreeMap<u32, CallReply>,
    /// Why the block is aborted.
    aborted: Option<AbortReason>,
}

impl<'a> BlockDriver<'a> {
    pub(super) fn new(
        socket: &'a UnixStream,
        names: &'a ScriptNames,
        limits: &WorkerLimits,
        progress: Progress,
    ) -> BlockDriver<'a> {
        BlockDriver {
            socket,
            names,
            printer: Printer::new(socket, limits.output_bytes),
            progress,
            unsent: VecDeque::new(),
            answers: BTreeMap::new(),
            aborted: None,
        }
    }

    /// Runs the block and reports how it ended.
    pub(super) fn run(
        mut self,
        mut repl: MontyRepl,
        code: &str,
    ) -> io::Result<(MontyRepl, Progress)> {
        let last = match prepare::prepare(code, self.names, self.progress.libraries) {
            Ok(prepared) => 'ran: {
                for library in prepared.libraries {
                    if self.progress.libraries & library.bit() != 0 {
                        continue;
                    }
                    let loaded;
                    (repl, loaded) = self.load(repl, library)?;
                    if let Some(failed) = loaded {
                        break 'ran failed;
                    }
                }
                let last;
                (repl, last) = self.steps(repl, &prepared.code, &prepared.lines)?;
                self.progress.blocks += 1;
                last
            }
            Err(error) => WorkerReport::Failed { error, cpu_us: 0 },
        };
        self.printer.flush()?;
        wire::send(self.socket, &last, &[])?;
        Ok((repl, self.progress))
    }

    /// Runs a library. The report is there if that failed, as it does without memory.
    fn load(
        &mut self,
        repl: MontyRepl,
        library: Library,
    ) -> io::Result<(MontyRepl, Option<WorkerReport>)> {
        let source = library.source();
        let (repl, report) = self.steps(repl, source, &LineMap::identity(source))?;
        self.progress.blocks += 1;
        match report {
            WorkerReport::Done { .. } => {
                self.progress.libraries |= library.bit();
                Ok((repl, None))
            }
            failed => Ok((repl, Some(failed))),
        }
    }

    fn steps(
        &mut self,
        repl: MontyRepl,
        code: &str,
        lines: &LineMap,
    ) -> io::Result<(MontyRepl, WorkerReport)> {
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
                Err(failed) => return Ok(self.failed(*failed, lines)),
                Ok(ReplProgress::FunctionCall(call)) => self.call(call)?,
                Ok(ReplProgress::ResolveFutures(waiting)) => self.wait(waiting)?,
                Ok(ReplProgress::OsCall(call)) => {
                    let answer = no_system_access(call.function_call.name());
                    call.resume(answer, self.print())
                }
                Ok(ReplProgress::NameLookup(lookup)) => {
                    let named = module::lookup(self.names, &lookup.name, lookup.object_id());
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
        let callee = module::callee(self.names, &call.function_name, call.object_id);
        let (name, awaited) = match callee {
            Callee::Sync(name) => (name, false),
            Callee::Async(name) => (name, true),
            Callee::Digest => {
                let digest = digest(&call.args);
                return Ok(call.resume(digest, self.print()));
            }
            Callee::NotInPart(part, name) => {
                let error = self.not_in_part(&part, &name);
                return Ok(call.resume(error, self.print()));
            }
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
        let message = match call_message(call.call_id, &name, &args, &kwargs) {
            Ok(message) => message,
            Err(why) => {
                let why = format!("{name}: cannot pass {why}");
                let error = MontyException::new(ExcType::TypeError, Some(why));
                return Ok(call.resume(error, self.print()));
            }
        };
        if awaited {
            self.unsent.push_back(message);
            return Ok(call.resume_pending(self.print()));
        }
        self.printer.flush()?;
        wire::send(self.socket, &message, &[])?;
        let reply = loop {
            match self.receive()? {
                Received::Answer(id, reply) if id == call.call_id => break Some(reply),
                Received::Answer(id, reply) => {
                    self.answers.insert(id, reply);
                }
                Received::Abort => break None,
            }
        };
        Ok(match reply.map(call_result) {
            Some(Some(result)) => call.resume(result, self.print()),
            Some(None) => {
                self.aborted = Some(AbortReason::Stopped);
                call.abort(abort_exception(), self.print())
            }
            None => call.abort(abort_exception(), self.print()),
        })
    }

    /// Waits for an answer when every task of the script does.
    fn wait(&mut self, waiting: ReplResolveFutures) -> io::Result<Step> {
        self.printer.flush()?;
        while let Some(message) = self.unsent.pop_front() {
            wire::send(self.socket, &message, &[])?;
        }
        let pending = waiting.pending_call_ids();
        while !pending.iter().any(|id| self.answers.contains_key(id)) {
            match self.receive()? {
                Received::Answer(id, reply) => {
                    self.answers.insert(id, reply);
                }
                Received::Abort => return Ok(waiting.abort(abort_exception(), self.print())),
            }
        }
        let mut results = Vec::new();
        for id in pending {
            let Some(reply) = self.answers.remove(id) else {
                continue;
            };
            match call_result(reply) {
                Some(result) => results.push((*id, result)),
                None => {
                    self.aborted = Some(AbortReason::Stopped);
                    return Ok(waiting.abort(abort_exception(), self.print()));
                }
            }
        }
        Ok(waiting.resume(results, self.print()))
    }

    /// The next request from the server while the script waits.
    fn receive(&mut self) -> io::Result<Received> {
        let (request, _) = wire::receive::<WorkerRequest>(self.socket)?;
        match request {
            WorkerRequest::Answer { id, reply } => Ok(Received::Answer(id, reply)),
            WorkerRequest::Abort(why) => {
                self.aborted = Some(why);
                Ok(Received::Abort)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn not_in_part(&self, part: &str, name: &str) -> MontyException {
        let module = self.names.module.as_deref().unwrap_or_default();
        let mut message = format!("{module}.{part} has no function '{name}'");
        let known = self.names.parts.iter().find(|known| known.name == part);
        if let Some(near) = known.and_then(|part| part.nearest(name)) {
            message.push_str(&format!("; did you mean {near}?"));
        }
        MontyException::new(ExcType::AttributeError, Some(message))
    }

    fn no_function(&self, name: &str) -> MontyException {
        let mut message = match &self.names.module {
            Some(module) => format!("{module} has no function '{name}'"),
            None => format!("there is no function '{name}'"),
        };
        if let Some(near) = self.names.nearest(name) {
            message.push_str(&format!("; did you mean {near}?"));
        } else if let Some(module) = &self.names.module
            && self
                .names
                .module_functions
                .iter()
                .any(|name| name == "search")
        {
            message.push_str(&format!("; {module}.search(\"words\") finds one"));
        }
        MontyException::new(ExcType::AttributeError, Some(message))
    }

    fn done(&self, value: &MontyObject, cpu_us: u64) -> WorkerReport {
        let mut json = values::to_json(value).unwrap_or_default();
        let printed_as = json
            .as_object_mut()
            .and_then(|fields| fields.remove(PRINTED_AS));
        let repr = match (value, printed_as) {
            (_, Some(Value::String(text))) => text,
            (MontyObject::None, _) => String::new(),
            (MontyObject::String(text), _) => text.clone(),
            (other, _) => other.py_repr(),
        };
        if repr.len() > self.printer.left() {
            let error = ScriptError::new(ScriptErrorKind::Limit(ScriptLimit::Output), "");
            return WorkerReport::Failed { error, cpu_us };
        }
        let value = ScriptValue { repr, json };
        WorkerReport::Done { value, cpu_us }
    }

    fn failed(&mut self, failed: ReplStartError, lines: &LineMap) -> (MontyRepl, WorkerReport) {
        let ReplStartError { repl, error } = failed;
        let cpu_us = micros(repl.tracker().elapsed());
        let mut error =
            script_error::from_exception(&error, self.names, self.progress.blocks, lines);
        let last = match self.aborted {
            Some(why) => {
                error.exception = String::new();
                error.hint = None;
                if let AbortReason::Limit(limit) = why {
                    error.kind = ScriptErrorKind::Limit(limit);
                }
                WorkerReport::Aborted { why, error, cpu_us }
            }
            None => WorkerReport::Failed { error, cpu_us },
        };
        (repl, last)
    }
}

enum Received {
    Answer(u32, CallReply),
    Abort,
}

/// A call as a message; the error names an argument without a JSON form, or their size.
fn call_message(
    id: u32,
    name: &str,
    args: &[MontyObject],
    kwargs: &[(MontyObject, MontyObject)],
) -> Result<WorkerReport, String> {
    let sizes = args.iter().chain(kwargs.iter().map(|(_, value)| value));
    let size: usize = sizes.map(MontyObject::deep_host_size).sum();
    // Escaped, a byte may become six, and the server refuses longer heads.
    if size > MAX_HEAD_BYTES / 2 {
        return Err(format!("{} MiB in one call", size >> 20));
    }
    let args: Result<Vec<Value>, String> = args.iter().map(values::to_json).collect();
    let named = kwargs
        .iter()
        .map(|(name, value)| Ok((name.to_string(), values::to_json(value)?)));
    Ok(WorkerReport::Call {
        id,
        name: name.to_owned(),
        args: args?,
        kwargs: named.collect::<Result<Map<String, Value>, String>>()?,
    })
}

/// The result of a call; `None` if the answer ends the block.
fn call_result(reply: CallReply) -> Option<ExtFunctionResult> {
    match reply {
        CallReply::Value(value) => Some(ExtFunctionResult::Return(values::from_json(value))),
        CallReply::Raise(exception, message) => {
            let error = MontyException::new(exception_type(exception), Some(message));
            Some(ExtFunctionResult::Error(error))
        }
        CallReply::Stop => None,
    }
}

fn exception_type(exception: Exception) -> ExcType {
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
        Exception::Os => ExcType::OSError,
    }
}

/// The error for code that uses a file, the environment or the clock.
fn no_system_access(what: &str) -> MontyException {
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

/// The hexadecimal digest of bytes.
fn digest(args: &[MontyObject]) -> ExtFunctionResult {
    use sha1::Digest;
    let hexadecimal = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let [MontyObject::String(name), MontyObject::Bytes(data)] = args else {
        let why = "Strings must be encoded before hashing".to_owned();
        return ExtFunctionResult::Error(MontyException::new(ExcType::TypeError, Some(why)));
    };
    ExtFunctionResult::Return(MontyObject::String(match name.as_str() {
        "sha1" => hexadecimal(&sha1::Sha1::digest(data)),
        "sha256" => hexadecimal(&sha2::Sha256::digest(data)),
        "sha512" => hexadecimal(&sha2::Sha512::digest(data)),
        _ => {
            let why = format!("unsupported hash type {name}");
            return ExtFunctionResult::Error(MontyException::new(ExcType::ValueError, Some(why)));
        }
    }))
}

/// Aborts a block; no handler of the script catches it.
fn abort_exception() -> MontyException {
    MontyException::new(ExcType::RuntimeError, Some("ended".to_owned()))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
