//! A host for scripts under test.

use std::sync::Mutex;
use std::time::Duration;

use llmc_sandbox::{
    Exception, ModulePart, ScriptCall, ScriptCallError, ScriptEnd, ScriptError, ScriptHost,
    ScriptLimits, ScriptNames, ScriptOutcome,
};
use serde_json::{Value, json};

/// Functions that scripts under test can call.
pub(crate) const FUNCTIONS: [&str; 7] = ["echo", "add", "fail", "meet", "hang", "big", "FINAL"];

#[derive(Default)]
pub(crate) struct Toys {
    /// Names of the calls that came.
    pub(crate) seen: Mutex<Vec<String>>,
    pub(crate) printed: Mutex<String>,
    met: tokio::sync::Notify,
    waiting: Mutex<u32>,
    /// Fires when a call hangs.
    pub(crate) hangs: tokio::sync::Notify,
}

impl ScriptHost for Toys {
    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptCallError> {
        self.seen.lock().unwrap().push(call.name.clone());
        match call.name.as_str() {
            "echo" => Ok(json!({"args": call.args, "kwargs": call.kwargs})),
            "add" => Ok(json!(
                call.args.iter().filter_map(Value::as_i64).sum::<i64>()
            )),
            "github.upper" => Ok(json!(call.args[0].as_str().unwrap().to_uppercase())),
            "fail" => Err(ScriptCallError::raise(
                Exception::FileNotFound,
                "NOT_FOUND: no such thing",
            )),
            // Returns when two calls are there at the same time.
            "meet" => {
                let met = self.met.notified();
                let both = {
                    let mut waiting = self.waiting.lock().unwrap();
                    *waiting += 1;
                    *waiting == 2
                };
                if both {
                    self.met.notify_waiters();
                } else {
                    met.await;
                }
                Ok(call.args.into_iter().next().unwrap_or_default())
            }
            "hang" => {
                self.hangs.notify_one();
                call.cancel.cancelled().await;
                Err(ScriptCallError::value("CANCELLED: over"))
            }
            "big" => Ok(json!(
                "x".repeat(usize::try_from(call.args[0].as_u64().unwrap()).unwrap())
            )),
            "FINAL" => Err(ScriptCallError::Stop),
            other => Err(ScriptCallError::value(format!("BAD_ARGS: {other}"))),
        }
    }

    fn printed(&self, text: &str) {
        self.printed.lock().unwrap().push_str(text);
    }
}

pub(crate) fn names() -> ScriptNames {
    ScriptNames {
        functions: FUNCTIONS.map(str::to_owned).to_vec(),
        module: Some("tools".to_owned()),
        module_functions: vec!["search".to_owned()],
        parts: vec![ModulePart {
            name: "github".to_owned(),
            functions: vec!["upper".to_owned()],
        }],
        meant: Vec::new(),
        values: vec![("seven".to_owned(), json!(7))],
        reserved: vec!["tools".to_owned()],
    }
}

/// Limits that a test does not wait long for.
pub(crate) fn limits() -> ScriptLimits {
    ScriptLimits {
        wall: Duration::from_secs(20),
        cpu: Duration::from_secs(20),
        memory_bytes: 64 << 20,
        output_bytes: 1 << 20,
        calls: 100,
        ..ScriptLimits::default()
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn trouble(outcome: &ScriptOutcome) -> &ScriptError {
    match &outcome.ending {
        ScriptEnd::Failed(trouble) => trouble,
        other => panic!("{other:?}\n{}", outcome.output),
    }
}
