//! What a script's own `open`, `os` and `subprocess` do to the workspace.
//!
//! Each operation is a call of the tool that does the same: it has that tool's name in the audit, its rights, its time limit
//! and its guards on paths. Only the work differs, since contents are bytes here and Python's functions promise a little
//! else (`os.replace` overwrites, `os.mkdir` makes one directory).

use std::sync::{Arc, Mutex, PoisonError};

use llmc_exec::ExitStatus;
use llmc_host::walk::{Hidden, ListDetail, ListOptions, list};
use llmc_host::{
    Access, CancelToken, DeleteScope, ExistingDir, ExistingTarget, ExpectedHash, FinalLink,
    NewAttributes, WriteMode,
};
use llmc_sandbox::{Exception, ScriptCallError, SystemCall, SystemReply};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::host::Tools;
use crate::approval;
use crate::call::Call;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::recording::{self, clipped};
use crate::render::Document;
use crate::seal::seal;
use crate::shell::{CommandWords, RawOutput, RawRequest, run_raw};

/// Permission bits, and times in nanoseconds, as `os.chmod` and `os.utime` set them.
#[derive(Debug, Deserialize)]
struct Attributes {
    path: String,
    mode: Option<u32>,
    times: Option<(i64, i64)>,
}

#[derive(Debug, Deserialize)]
struct Write {
    path: String,
    append: bool,
    expected: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delete {
    path: String,
    what: Deleted,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Deleted {
    File,
    EmptyDir,
    Tree,
}

#[derive(Debug, Deserialize)]
struct Move {
    source: String,
    target: String,
}

#[derive(Debug, Deserialize)]
struct OnePath {
    path: String,
}

#[derive(Debug, Deserialize)]
struct Run {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    /// Whether the content is its input; else it has none.
    input: bool,
    merged: bool,
}

/// The largest file that a script is given a copy of, as the largest that it writes.
const MAX_READ_BYTES: usize = 128 << 20;

/// What an operation did: the effect in a few words, and what the script gets.
struct Done {
    effect: Option<String>,
    reply: SystemReply,
}

impl Done {
    fn effect(effect: String) -> Done {
        Done {
            effect: Some(effect),
            reply: SystemReply::default(),
        }
    }

    fn reply(reply: SystemReply) -> Done {
        Done {
            effect: None,
            reply,
        }
    }
}

/// Carries out one operation.
pub(super) async fn system(
    tools: &Tools<'_>,
    call: SystemCall,
) -> Result<SystemReply, ScriptCallError> {
    let SystemCall {
        operation,
        args,
        content,
        cancel,
    } = call;
    let (tool, shown): (_, &[&str]) = match operation.as_str() {
        "read" => ("read_file", &["path"]),
        "list" => ("list_dir", &["path"]),
        "check" | "write" | "attributes" => ("linux_fs_write", &["path"]),
        "delete" => ("linux_fs_delete", &["path"]),
        "move" => ("linux_fs_move", &["source", "target"]),
        "mkdir" => ("linux_fs_mkdirs", &["path"]),
        "run" => ("run_cmd", &["command", "argv", "cwd"]),
        // Only a process that lies asks for anything else.
        _ => return Err(ScriptCallError::value("BAD_ARGS: no such operation")),
    };
    let shown = args
        .iter()
        .filter(|(name, _)| shown.contains(&name.as_str()));
    let call = Call {
        name: tool.to_owned(),
        args: shown
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        caller: tools.caller().clone(),
        cancel,
        progress: None,
        correlation_id: Some(tools.cx().correlation_id().to_owned()),
        ask_user: None,
        slot: None,
    };
    let app = tools.cx().app();
    // Nothing has happened yet, so nothing is recorded; a refusal is, below.
    if operation == "check" && app.admit(app.find_tool(tool), &call).is_ok() {
        let cx = tools.cx();
        let checked = cx.blocking({
            let args = args.clone();
            move |cx, _| check(cx, args)
        });
        if checked.await.is_ok() {
            return Ok(SystemReply::default());
        }
    }
    if operation != "check" {
        let approved = approval::require(tools.cx(), tool, &call.args).await;
        approved.map_err(|error| raised(tools, &error))?;
    }
    let done: Arc<Mutex<Option<Done>>> = Arc::default();
    let kept = done.clone();
    let outcome = app
        .call_with(call, tools.cx().recording(), move |_, cx, _| {
            Box::pin(async move {
                cx.blocking(move |cx, cancel| {
                    let result = carry_out(cx, cancel, &operation, args, content)?;
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                    seal(cx, cancel, &Document::new(json!({"ok": true})))
                })
                .await
            })
        })
        .await;
    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (outcome.result, done) {
        (Ok(_), Some(Done { effect, reply })) => {
            if let Some(effect) = effect {
                tools.note_effect(effect);
            }
            Ok(reply)
        }
        (Err(error), _) => Err(raised(tools, &error)),
        (Ok(_), None) => Err(ScriptCallError::value("INTERNAL: no result")),
    }
}

fn carry_out(
    cx: &Cx,
    cancel: &CancelToken,
    operation: &str,
    args: Map<String, Value>,
    content: Vec<u8>,
) -> Result<Done> {
    if !matches!(operation, "check" | "read" | "list") {
        recording::prepare(cx);
    }
    match operation {
        "read" => read(cx, cancel, args),
        "list" => list_dir(cx, cancel, args),
        "check" => {
            check(cx, args)?;
            Ok(Done::reply(SystemReply::default()))
        }
        "write" => write(cx, cancel, args, &content),
        "delete" => delete(cx, cancel, args),
        "move" => rename(cx, cancel, args),
        "mkdir" => {
            let OnePath { path } = parse(args)?;
            let path = cx.linux().make_dirs(&path, ExistingDir::Refuse)?;
            let shown = cx.linux().roots.display_path(&path);
            Ok(Done::effect(format!("made {shown}")))
        }
        "attributes" => attributes(cx, cancel, args),
        _ => run(cx, cancel, args, content),
    }
}

/// Whether the path may be written at all.
fn check(cx: &Cx, args: Map<String, Value>) -> Result<()> {
    let OnePath { path } = parse(args)?;
    let roots = &cx.linux().roots;
    roots.resolve(&path, FinalLink::Follow, Access::Write)?;
    Ok(())
}

/// The content of a file, for a process that may not read it.
fn read(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>) -> Result<Done> {
    let OnePath { path } = parse(args)?;
    let content = cx.linux().roots.open_file(&path)?;
    let content = content.read_all(MAX_READ_BYTES, cancel)?;
    Ok(Done::reply(SystemReply {
        value: Value::Null,
        contents: vec![content],
    }))
}

/// Names and kinds of a directory's entries, for a process that may not list it. Names that JSON cannot hold are left out.
fn list_dir(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>) -> Result<Done> {
    let OnePath { path } = parse(args)?;
    let roots = &cx.linux().roots;
    let dir = roots.open_dir(&path)?;
    let options = ListOptions {
        depth: 0,
        hidden: Hidden::Include,
        file_glob: None,
        max_entries: usize::MAX,
        guard: Some(dir.guard(roots)),
        detail: ListDetail::Name,
    };
    let found = list(&dir.fd, &options, cancel)?;
    cancel.check()?;
    let entries = found.entries.iter().filter_map(|entry| {
        let name = std::str::from_utf8(&entry.path).ok()?;
        Some(json!([name, entry.kind.as_str()]))
    });
    Ok(Done::reply(SystemReply::from(entries.collect::<Value>())))
}

fn write(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>, content: &[u8]) -> Result<Done> {
    let Write {
        path,
        append,
        expected,
    } = parse(args)?;
    let expected = expected.as_deref().map(ExpectedHash::parse).transpose()?;
    let mode = match append {
        true => WriteMode::AppendBytes,
        false => WriteMode::Rewrite,
    };
    let files = cx.linux();
    let written = files.write(&path, content, mode, expected.as_ref(), &cx.owner(), cancel)?;
    let shown = files.roots.display_path(&written.path);
    Ok(Done::effect(format!("wrote {shown}")))
}

fn delete(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>) -> Result<Done> {
    let Delete { path, what } = parse(args)?;
    let scope = match what {
        Deleted::File => DeleteScope::FileOnly,
        Deleted::EmptyDir => DeleteScope::EmptyDir,
        Deleted::Tree => DeleteScope::Recursive,
    };
    let path = cx.linux().delete(&path, scope, &cx.owner(), cancel)?;
    let shown = cx.linux().roots.display_path(&path);
    Ok(Done::effect(format!("deleted {shown}")))
}

fn rename(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>) -> Result<Done> {
    let Move { source, target } = parse(args)?;
    let files = cx.linux();
    let replace = ExistingTarget::Replace;
    let (from, to) = files.move_path(&source, &target, replace, &cx.owner(), cancel)?;
    let roots = &files.roots;
    let (from, to) = (roots.display_path(&from), roots.display_path(&to));
    Ok(Done::effect(format!("moved {from} to {to}")))
}

fn attributes(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>) -> Result<Done> {
    let Attributes { path, mode, times } = parse(args)?;
    let new = NewAttributes {
        mode,
        times_ns: times,
    };
    let path = cx.linux().set_attributes(&path, new, &cx.owner(), cancel)?;
    let shown = cx.linux().roots.display_path(&path);
    Ok(Done {
        effect: mode.map(|mode| format!("changed the mode of {shown} to {mode:o}")),
        reply: SystemReply::default(),
    })
}

fn run(cx: &Cx, cancel: &CancelToken, args: Map<String, Value>, content: Vec<u8>) -> Result<Done> {
    let run: Run = parse(args)?;
    let words = CommandWords::new(cx, run.command, run.argv)?;
    let effect = format!("ran {}", clipped(&words.text));
    let request = RawRequest {
        words,
        cwd: run.cwd,
        input: run.input.then_some(content),
        merged: run.merged,
    };
    let RawOutput { status, contents } = run_raw(cx, request, cancel)?;
    let (code, stopped) = match status {
        ExitStatus::Exited(code) => (code, false),
        ExitStatus::Signaled(signal) => (-signal, false),
        ExitStatus::Stopped => (-9, true),
    };
    Ok(Done {
        effect: Some(effect),
        reply: SystemReply {
            value: json!({"code": code, "stopped": stopped}),
            contents: contents.into(),
        },
    })
}

fn parse<T: DeserializeOwned>(args: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(args)).map_err(|error| Error::bad_args(error.to_string()))
}

/// A refusal as the exception that Python's own function would raise.
fn raised(tools: &Tools<'_>, error: &Error) -> ScriptCallError {
    let exception = match error.kind {
        ErrorKind::NotFound => Exception::FileNotFound,
        ErrorKind::AlreadyExists => Exception::FileExists,
        ErrorKind::NotADirectory => Exception::NotADirectory,
        ErrorKind::IsDirectory => Exception::IsADirectory,
        ErrorKind::TimedOut => Exception::Timeout,
        kind if kind.exception() == "PermissionError" => Exception::Permission,
        _ => Exception::Os,
    };
    let message = tools.message(error, Family::Linux);
    ScriptCallError::raise(exception, message)
}
