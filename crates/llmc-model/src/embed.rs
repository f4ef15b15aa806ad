//! Vectors for texts, from the same providers under the same policy.

use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::name::Provider;
use crate::policy::Route;

/// Something that turns texts into vectors.
pub trait Embedder: Send + Sync {
    /// One vector for each text, in order.
    fn embed(
        &self,
        texts: &[String],
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Vec<f32>>>> + Send;
}

/// Embeddings of Ollama, or of a server that speaks OpenAI's.
#[derive(Debug, Clone)]
pub struct Embeddings {
    gateway: Gateway,
    route: Route,
}

impl Embeddings {
    /// Along this route.
    ///
    /// # Errors
    /// The provider has no embeddings.
    pub fn new(gateway: Gateway, route: Route) -> Result<Embeddings> {
        if route.model().provider() == Provider::Anthropic {
            return Err(Error::provider(
                Provider::Anthropic,
                "has no embeddings; use ollama or openai",
                false,
            ));
        }
        Ok(Embeddings { gateway, route })
    }
}

impl Embedder for Embeddings {
    async fn embed(&self, texts: &[String], deadline: Instant) -> Result<Vec<Vec<f32>>> {
        let provider = self.route.model().provider();
        let path = match provider {
            Provider::Ollama => "/api/embed",
            Provider::OpenAi | Provider::Anthropic => "/embeddings",
        };
        let body = json!({"model": self.route.model().model(), "input": texts});
        let answer = self
            .gateway
            .fetch(&self.route, path, body, deadline)
            .await?;
        let bad = |what| Error::provider(provider, what, true);
        let answer: Value =
            serde_json::from_slice(&answer).map_err(|_| bad("the answer is not JSON"))?;
        let vectors = match provider {
            Provider::Ollama => in_order(answer.get("embeddings")),
            Provider::OpenAi | Provider::Anthropic => by_index(answer.get("data")),
        };
        vectors
            .filter(|vectors| vectors.len() == texts.len())
            .ok_or_else(|| bad("the answer has not one vector for each text"))
    }
}

fn in_order(list: Option<&Value>) -> Option<Vec<Vec<f32>>> {
    list?.as_array()?.iter().map(vector).collect()
}

fn by_index(list: Option<&Value>) -> Option<Vec<Vec<f32>>> {
    let mut rows: Vec<(u64, Vec<f32>)> = list?
        .as_array()?
        .iter()
        .map(|row| Some((row.get("index")?.as_u64()?, vector(row.get("embedding")?)?)))
        .collect::<Option<_>>()?;
    rows.sort_by_key(|(index, _)| *index);
    Some(rows.into_iter().map(|(_, vector)| vector).collect())
}

fn vector(value: &Value) -> Option<Vec<f32>> {
    let numbers = value.as_array()?.iter();
    numbers
        .map(|number| number.as_f64().map(|number| number as f32))
        .collect()
}
