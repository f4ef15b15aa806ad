//! The MCP project's conformance suite against this crate's client: connects to the server that the suite has started, and
//! uses all that it offers. `scripts/conformance --client` runs it.
//!
//! The suite gives the address as the last argument, and in its environment the name of the scenario, the revision of the
//! protocol, and for some scenarios the calls to make.

#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use llmc_gateway::{
    AskUser, Error, HttpLaunch, Launch, PinnedTools, Result, Upstream, UpstreamAnswer,
    UpstreamCall, UpstreamRequest, UserReply,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// Scenarios whose server answers nothing but its list of tools.
const LIST_ONLY: [&str; 1] = ["json-schema-ref-no-deref"];

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args()
        .next_back()
        .filter(|url| url.starts_with("http"))
    else {
        eprintln!("usage: conformance_client URL");
        return ExitCode::from(2);
    };
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match run(url, &dir.path().join("pins.json")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: String, pin_file: &Path) -> Result<()> {
    let variable = |name: &str| std::env::var(format!("MCP_CONFORMANCE_{name}")).ok();
    // The record of a server says in which way it is greeted.
    let expected = PinnedTools {
        revision: variable("PROTOCOL_VERSION"),
        ..PinnedTools::default()
    };
    expected.store(pin_file)?;
    let launch = HttpLaunch {
        url,
        headers: Vec::new(),
        token_file: None,
    };
    let client = Client {
        upstream: Upstream::new(Launch::Http(launch), Duration::MAX, PathBuf::from(pin_file)),
        cancel: CancellationToken::new(),
    };
    let listed = client.upstream.list(&client.cancel).await?;
    listed.store(pin_file)?;
    // That there is a user is announced by the call that starts a connection.
    client.upstream.stop().await;
    if variable("SCENARIO").is_some_and(|name| LIST_ONLY.contains(&name.as_str())) {
        return Ok(());
    }
    let context = variable("CONTEXT").and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let calls = context
        .as_ref()
        .and_then(|context| context["toolCalls"].as_array());
    match calls {
        Some(calls) => {
            for call in calls {
                let name = call["name"].as_str().unwrap_or_default();
                let args = call["arguments"].as_object().cloned().unwrap_or_default();
                client.call(&listed, name, &args).await?;
            }
        }
        None => {
            for tool in &listed.tools {
                let args = sample_args(&tool.input_schema, &listed);
                client.call(&listed, &tool.name, &args).await?;
            }
        }
    }
    if listed.has_resources {
        for resource in entries(client.request(UpstreamRequest::Resources).await?) {
            let uri = resource["uri"].as_str().unwrap_or_default();
            client
                .request(UpstreamRequest::ReadResource { uri })
                .await?;
        }
    }
    if listed.has_prompts {
        for prompt in entries(client.request(UpstreamRequest::Prompts).await?) {
            let name = prompt["name"].as_str().unwrap_or_default();
            let args = &Map::new();
            client
                .request(UpstreamRequest::Prompt { name, args })
                .await?;
        }
    }
    Ok(())
}

struct Client {
    upstream: Upstream,
    cancel: CancellationToken,
}

impl Client {
    async fn call(
        &self,
        listed: &PinnedTools,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<UpstreamAnswer> {
        let tool = listed.find(name);
        let hash = &tool.ok_or_else(|| Error::Gone(name.to_owned()))?.hash;
        self.request(UpstreamRequest::Tool { name, hash, args })
            .await
    }

    /// A call whose user agrees to everything and fills in nothing.
    async fn request(&self, request: UpstreamRequest<'_>) -> Result<UpstreamAnswer> {
        let call = UpstreamCall {
            request,
            timeout: Duration::from_secs(20),
            since: Instant::now(),
            cancel: &self.cancel,
            progress: None,
            ask_user: Some(AskUser::new(|_| async { UserReply::Accepted(Map::new()) })),
        };
        self.upstream.call(call).await
    }
}

fn entries(answer: UpstreamAnswer) -> Vec<Value> {
    match answer.structured {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// A value for each argument. A scenario about schemas wants one back that it has listed.
fn sample_args(schema: &Map<String, Value>, listed: &PinnedTools) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let sample = |(name, property): (&String, &Value)| {
        let value = match property["type"].as_str() {
            Some("object") if name == "schema" => listed.tools[0].input_schema.clone().into(),
            Some("object") => json!({}),
            Some("array") => json!([]),
            Some("number" | "integer") => json!(2),
            Some("boolean") => json!(true),
            _ => json!("x"),
        };
        (name.clone(), value)
    };
    properties.into_iter().flatten().map(sample).collect()
}
