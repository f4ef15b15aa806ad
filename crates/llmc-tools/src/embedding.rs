//! The provider of vectors that the configuration names.
//!
//! Where data goes is the operator's word here: a provider and an address in the configuration, none by default. Files
//! on the denylist are never sent.

use std::time::{Duration, Instant};

use llmc_config::{Config, EmbeddingProvider};
use llmc_host::CancelToken;
use llmc_index::Embedder;
use llmc_model::{
    Embedder as _, Embeddings, Gateway, Keys, ModelName, Patience, Policy, Profile, system_lookup,
};

/// How long a question waits for its vector, and how long many texts may take.
const QUESTION: Duration = Duration::from_secs(5);
const TEXTS: Duration = Duration::from_secs(120);

/// The configured provider; nothing where there is none.
pub(crate) fn embedder(config: &Config) -> Option<Box<dyn Embedder>> {
    let embedding = &config.mcp.rag.embedding;
    let usual = match embedding.provider {
        EmbeddingProvider::None => return None,
        EmbeddingProvider::Ollama => "nomic-embed-text",
        EmbeddingProvider::Openai => "text-embedding-3-small",
    };
    let model = embedding.model.as_deref().unwrap_or(usual);
    let name = format!("{}/{model}", embedding.provider.as_str());
    match name.parse() {
        Ok(model) => Some(Box::new(Provided {
            name,
            model,
            base_url: embedding.base_url.clone(),
        })),
        Err(error) => {
            tracing::warn!(error = %error, "mcp.rag.embedding: no vectors");
            None
        }
    }
}

#[derive(Debug)]
struct Provided {
    name: String,
    model: ModelName,
    base_url: Option<String>,
}

impl Embedder for Provided {
    fn model(&self) -> &str {
        &self.name
    }

    fn embed(&self, texts: &[String], stop: &CancelToken) -> Result<Vec<Vec<f32>>, String> {
        stop.check().map_err(|error| error.to_string())?;
        let (time, attempts) = if texts.len() == 1 {
            (QUESTION, 1)
        } else {
            (TEXTS, 3)
        };
        let deadline = Instant::now() + time;
        let gateway = Gateway {
            keys: Keys::from_environment(),
            patience: Patience {
                attempts,
                ..Patience::default()
            },
        };
        let policy = Policy {
            profile: Profile::Unrestricted,
            allowed_models: None,
            allowed_hosts: Vec::new(),
        };
        // Called from threads of many kinds, none of which waits for anything else meanwhile.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let work = async {
            let url = self.base_url.as_deref();
            let route = policy
                .admit(&self.model, url, None, &system_lookup())
                .await?;
            let provider = Embeddings::new(gateway, route)?;
            provider.embed(texts, deadline).await
        };
        let done = runtime.block_on(async {
            tokio::time::timeout(time, work)
                .await
                .unwrap_or(Err(llmc_model::Error::TimedOut))
        });
        runtime.shutdown_background();
        done.map_err(|error| error.to_string())
    }
}
