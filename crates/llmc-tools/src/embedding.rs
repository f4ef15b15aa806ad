//! The embedding provider that the configuration names.
//!
//! The operator decides where data goes: a provider and an address in the configuration. By default there is no provider:
//! the index ranks by the vectors in the executable. Files on the
//! denylist are never sent.

use std::time::{Duration, Instant};

use llmc_config::{Config, EmbeddingProvider};
use llmc_host::CancelToken;
use llmc_index::Embedder;
use llmc_model::{
    ApiKeys, EgressPolicy, EgressProfile, ModelClient, ModelName, RetryPolicy, system_lookup,
};

const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
const BATCH_TIMEOUT: Duration = Duration::from_secs(120);

/// The configured provider, if there is one.
pub(crate) fn embedder(config: &Config) -> Option<Embedder> {
    let embedding = &config.mcp.rag.embedding;
    let default_model = match embedding.provider {
        EmbeddingProvider::Builtin | EmbeddingProvider::None => return None,
        EmbeddingProvider::Ollama => "nomic-embed-text",
        EmbeddingProvider::Openai => "text-embedding-3-small",
    };
    let model = embedding.model.as_deref().unwrap_or(default_model);
    let name = format!("{}/{model}", embedding.provider.as_str());
    let base_url = embedding.base_url.clone();
    match name.parse::<ModelName>() {
        Ok(model) => Some(Embedder::new(name, move |texts, cancel| {
            embed(&model, base_url.as_deref(), texts, cancel)
        })),
        Err(error) => {
            tracing::warn!(error = %error, "mcp.rag.embedding: no vectors");
            None
        }
    }
}

fn embed(
    model: &ModelName,
    base_url: Option<&str>,
    texts: &[String],
    cancel: &CancelToken,
) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error + Send + Sync>> {
    cancel.check()?;
    let (timeout, max_attempts) = if texts.len() == 1 {
        (QUESTION_TIMEOUT, 1)
    } else {
        (BATCH_TIMEOUT, 3)
    };
    let deadline = Instant::now() + timeout;
    let client = ModelClient {
        keys: ApiKeys::from_environment(),
        retries: RetryPolicy {
            max_attempts,
            ..RetryPolicy::default()
        },
    };
    let policy = EgressPolicy {
        profile: EgressProfile::Unrestricted,
        allowed_models: None,
        allowed_hosts: Vec::new(),
    };
    // Its own runtime: the index calls from threads inside and outside the server's.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = async {
        let route = policy
            .admit(model, base_url, None, &system_lookup())
            .await?;
        client.embed(&route, texts, deadline).await
    };
    let vectors = runtime.block_on(async {
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or(Err(llmc_model::Error::TimedOut))
    });
    runtime.shutdown_background();
    Ok(vectors?)
}
