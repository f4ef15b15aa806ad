//! Embeddings of Ollama, and of servers that speak OpenAI's protocol.

use serde_json::{Value, json};

use super::WireRequest;
use crate::error::{Error, Result};
use crate::model_name::{ModelName, Provider};

pub(crate) fn embedding_request(model: &ModelName, texts: &[String]) -> Result<WireRequest> {
    let path = match model.provider() {
        Provider::Ollama => "/api/embed",
        Provider::OpenAi => "/embeddings",
        Provider::Anthropic => {
            return Err(Error::provider(
                Provider::Anthropic,
                "has no embeddings; use ollama or openai",
                false,
            ));
        }
    };
    Ok(WireRequest {
        path,
        body: json!({"model": model.model(), "input": texts}),
        headers: &[],
    })
}

/// Reads `count` vectors in the order of their texts; the error says what is wrong with the answer.
pub(crate) fn read_vectors(
    provider: Provider,
    body: &[u8],
    count: usize,
) -> Result<Vec<Vec<f32>>, &'static str> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
    let vectors = match provider {
        Provider::Ollama => in_order(answer.get("embeddings")),
        Provider::OpenAi | Provider::Anthropic => by_index(answer.get("data")),
    };
    vectors
        .filter(|vectors| vectors.len() == count)
        .ok_or("the answer has not one vector for each text")
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
