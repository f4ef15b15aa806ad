//! Recursive analysis, against a scripted model: `contract` what is asked and answered, `policy` what may be read and
//! where it may go, `session` what code can do, `spending` what it may cost, `shell` the command line.

mod contract;
mod policy;
mod session;
mod shell;
mod spending;

use llmc_testkit::{McpClient, ModelAction, ModelRequest, ModelServer, TestWorkspace};
use serde_json::{Value, json};

use crate::workspace;

/// A text with one needle, far too long for a test's plain call.
fn haystack() -> String {
    let mut text = String::new();
    for line in 0..3_000 {
        if line == 1_234 {
            text.push_str("the needle is 4711\n");
        }
        text.push_str(&format!("line {line} of hay, nothing to see\n"));
    }
    text
}

/// A workspace whose models are played by `server`; `more` is further configuration.
fn with_models(server: &ModelServer, more: &str) -> TestWorkspace {
    let workspace = workspace("");
    workspace.write(
        "llmc.toml",
        format!(
            "[mcp]\nmode = \"classic\"\n[rlm]\nmodel = \"ollama/lead\"\nsub_model = \"ollama/part\"\n\
             base_url = \"{}\"\ndirect_tokens = 0\n{more}",
            server.url()
        ),
    );
    workspace.write("hay.txt", haystack());
    workspace
}

fn client(workspace: &TestWorkspace) -> McpClient {
    let mut client = workspace.mcp::<&str>([]);
    client.initialize("2025-11-25");
    client
}

/// Asks about the haystack.
fn ask(workspace: &TestWorkspace) -> Value {
    client(workspace).json(
        "rlm_query",
        json!({"task": "Where is the needle?", "path": "hay.txt"}),
    )
}

/// Asks about the haystack in vain; the error document.
fn fail(workspace: &TestWorkspace, more: Value) -> Value {
    let mut args = json!({"task": "Where is the needle?", "path": "hay.txt"});
    args.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    client(workspace).error("rlm_query", args)
}

fn code_of(error: &Value) -> &str {
    error["meta"]["error_code"].as_str().unwrap()
}

/// A leading model that runs these blocks, one a turn; parts are answered with `part`.
fn leading(
    blocks: &[&str],
    part: impl Fn(&ModelRequest) -> ModelAction + Send + Sync + 'static,
) -> ModelServer {
    let blocks: Vec<String> = blocks.iter().map(|block| (*block).to_owned()).collect();
    ModelServer::start(move |asked| {
        if asked.model() != "lead" {
            return part(asked);
        }
        match blocks.get(asked.turns()) {
            Some(block) => ModelAction::code(block),
            None => ModelAction::Say("I do not know what else to do.".to_owned()),
        }
    })
}

/// A leading model that runs these blocks and calls no other model.
fn alone(blocks: &[&str]) -> ModelServer {
    leading(blocks, |_| ModelAction::Status(400, "{}".to_owned()))
}
