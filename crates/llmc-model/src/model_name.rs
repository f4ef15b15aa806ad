//! `provider/model`, parsed strictly, so that policy compares parts and never the start of a text.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The provider, and with it the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// Ollama, on this machine unless the operator says otherwise. Costs nothing.
    Ollama,
    /// OpenAI, or any server that speaks its chat completions.
    OpenAi,
    Anthropic,
}

impl Provider {
    pub const ALL: [Provider; 3] = [Provider::Ollama, Provider::OpenAi, Provider::Anthropic];

    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Ollama => "ollama",
            Provider::OpenAi => "openai",
            Provider::Anthropic => "anthropic",
        }
    }

    pub(crate) fn default_base_url(self) -> &'static str {
        match self {
            Provider::Ollama => "http://127.0.0.1:11434",
            Provider::OpenAi => "https://api.openai.com/v1",
            Provider::Anthropic => "https://api.anthropic.com",
        }
    }

    /// The environment variable with its API key.
    pub(crate) fn key_variable(self) -> Option<&'static str> {
        match self {
            Provider::Ollama => None,
            Provider::OpenAi => Some("OPENAI_API_KEY"),
            Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
        }
    }

    /// The provider of this name; `ollama_chat` is an older name of `ollama`.
    pub(crate) fn from_name(name: &str) -> Option<Provider> {
        let name = if name == "ollama_chat" {
            "ollama"
        } else {
            name
        };
        Provider::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const MAX_MODEL_BYTES: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    provider: Provider,
    model: String,
}

impl ModelName {
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// What the provider calls it.
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(text: &str) -> Result<ModelName, Error> {
        let bad = |why| Error::BadModel {
            model: text.chars().take(60).collect(),
            why,
        };
        let (provider, model) = text
            .split_once('/')
            .ok_or_else(|| bad("write provider/model"))?;
        let provider = Provider::from_name(provider)
            .ok_or_else(|| bad("the provider must be ollama, openai or anthropic"))?;
        if model.is_empty() || model.len() > MAX_MODEL_BYTES {
            return Err(bad("the model's name must have 1 to 128 characters"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._:@+-/".contains(c);
        if !model.chars().all(plain) {
            return Err(bad(
                "a model's name has letters, digits and . _ : @ + - / only",
            ));
        }
        if model.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad("a model's name has no empty, . or .. parts"));
        }
        Ok(ModelName {
            provider,
            model: model.to_owned(),
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_provider_and_a_plain_model() {
        for (text, provider, model) in [
            ("ollama/qwen3:8b", Provider::Ollama, "qwen3:8b"),
            ("ollama_chat/qwen3:8b", Provider::Ollama, "qwen3:8b"),
            (
                "ollama/hf.co/a/b:Q4_K_M",
                Provider::Ollama,
                "hf.co/a/b:Q4_K_M",
            ),
            ("openai/gpt-5", Provider::OpenAi, "gpt-5"),
            ("anthropic/claude-x", Provider::Anthropic, "claude-x"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!((name.provider(), name.model()), (provider, model), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("ollama/{}", "x".repeat(129));
        for text in [
            "",
            "/",
            "gpt-5",
            "ollama",
            "ollama/",
            "/x",
            "OLLAMA/x",
            " ollama/x",
            "ollama /x",
            "azure/x",
            "ollama/../openai/x",
            "ollama/./x",
            "ollama//x",
            "ollama/x/",
            "ollama/x y",
            "ollama/x\n",
            "ollama/x?y",
            "ollama/x#y",
            "ollama/%2e%2e/x",
            "ollama/\u{ff0e}\u{ff0e}/x",
            &long,
        ] {
            assert!(text.parse::<ModelName>().is_err(), "{text:?}");
        }
    }
}
