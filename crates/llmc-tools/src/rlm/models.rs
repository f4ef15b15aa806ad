//! The models of a query: the operator's, or the caller's where that is allowed, each admitted by the policy.

use std::time::Duration;

use llmc_config::{Config, RlmProfile};
use llmc_model::{
    EgressPolicy, EgressProfile, Error as ModelError, ModelName, Price, Provider, list_price,
    system_lookup,
};
use llmc_rlm::{QueryModel, RecordedTrace};

use crate::error::{Error, ErrorKind, Result};

pub(super) struct QueryModels {
    /// Leads the query.
    pub(super) lead: QueryModel,
    /// Answers questions about parts.
    pub(super) sub: QueryModel,
}

impl QueryModels {
    /// The models of a trace; nothing is sent to them.
    pub(super) fn recorded(trace: &RecordedTrace) -> QueryModels {
        let model = |(name, price): &(ModelName, Option<Price>)| QueryModel {
            name: name.clone(),
            price: *price,
            route: None,
        };
        QueryModels {
            lead: model(&trace.lead),
            sub: model(&trace.sub),
        }
    }

    /// The models that the caller asks for where the operator allows it, or that the command line or the configuration
    /// names; all of them admitted by the policy.
    pub(super) async fn admitted(
        config: &Config,
        asked: Option<&str>,
        chosen: Option<&str>,
    ) -> Result<QueryModels> {
        let own = config.rlm.model.as_deref().map(parse_name).transpose()?;
        let lead = match (asked, chosen) {
            (Some(asked), _) => callers_choice(config, asked)?,
            (None, Some(chosen)) => parse_name(chosen)?,
            (None, None) => own.clone().ok_or_else(|| {
                Error::new(ErrorKind::EgressDenied, "no model is configured")
                    .hint("the operator sets rlm.model, for example \"ollama/qwen3:8b\"")
            })?,
        };
        let configured = config
            .rlm
            .sub_model
            .as_deref()
            .map(parse_name)
            .transpose()?;
        // Unless the operator chose another model for parts, the leading model answers about them.
        let sub = match configured {
            Some(sub) if own.as_ref() != Some(&sub) => sub,
            _ => lead.clone(),
        };
        let policy = policy(config);
        Ok(QueryModels {
            lead: admit(config, &policy, own.as_ref(), lead).await?,
            sub: admit(config, &policy, own.as_ref(), sub).await?,
        })
    }
}

fn parse_name(text: &str) -> Result<ModelName> {
    text.parse().map_err(Error::from)
}

/// The caller's model, where the operator lets callers choose.
fn callers_choice(config: &Config, asked: &str) -> Result<ModelName> {
    let policy = &config.mcp.rlm;
    let refused = |why: &str| {
        Err(Error::new(
            ErrorKind::EgressDenied,
            "model cannot be chosen by the caller",
        )
        .hint(why))
    };
    if policy.profile == RlmProfile::Restricted {
        return refused("leave model out; profile restricted keeps to the operator's rlm.model");
    }
    if !policy.allow_model_override {
        return refused(
            "leave model out, or ask the operator to set mcp.rlm.allow_model_override = true",
        );
    }
    parse_name(asked)
}

fn policy(config: &Config) -> EgressPolicy {
    let policy = &config.mcp.rlm;
    EgressPolicy {
        profile: match policy.profile {
            RlmProfile::Restricted => EgressProfile::Restricted,
            RlmProfile::Unrestricted => EgressProfile::Unrestricted,
        },
        allowed_models: policy.allowed_model_prefixes.clone(),
        allowed_hosts: policy.allowed_hosts.clone(),
    }
}

async fn admit(
    config: &Config,
    policy: &EgressPolicy,
    own: Option<&ModelName>,
    model: ModelName,
) -> Result<QueryModel> {
    // An address belongs to the provider it was configured for; another provider's key and text must not go there.
    let same_provider = own.is_none_or(|own| own.provider() == model.provider());
    let base_url = config.rlm.base_url.as_deref().filter(|_| same_provider);
    let price = price_of(config, own, &model);
    let route = policy
        .admit(&model, base_url, price, &system_lookup())
        .await?;
    Ok(QueryModel {
        name: model,
        price,
        route: Some(route),
    })
}

/// The operator's price for `rlm.model` and for models without a list price.
fn price_of(config: &Config, own: Option<&ModelName>, model: &ModelName) -> Option<Price> {
    let listed = list_price(model);
    let set = config
        .rlm
        .price_per_mtok_in
        .zip(config.rlm.price_per_mtok_out)
        .map(|(input, output)| Price::new(input, input, output));
    if model.provider() == Provider::Ollama {
        return listed;
    }
    match listed {
        Some(price) if own != Some(model) => Some(price),
        listed => set.or(listed),
    }
}

pub(super) fn translate_error(error: ModelError, limit: Option<Duration>) -> Error {
    let message = error.to_string();
    match error {
        ModelError::BadModel { .. } => Error::new(ErrorKind::EgressDenied, message)
            .hint("models are named provider/model, for example \"ollama/qwen3:8b\""),
        ModelError::Egress { hint, .. } => Error::new(ErrorKind::EgressDenied, message).hint(hint),
        ModelError::Budget { hint, .. } => {
            Error::new(ErrorKind::BudgetExceeded, message).hint(hint)
        }
        ModelError::Provider {
            provider,
            retryable,
            ..
        } => Error::new(ErrorKind::ProviderFailed, message)
            .with("provider", provider.as_str())
            .retry(retryable),
        ModelError::TimedOut => {
            let message = match limit {
                Some(limit) => format!("no answer within {} s", limit.as_secs()),
                None => message,
            };
            Error::new(ErrorKind::TimedOut, message)
                .hint("give a larger timeout_s, or ask something narrower")
        }
    }
}

/// Why an entry of `mcp.rlm.allowed_model_prefixes` allows no model; `None` if it allows some.
pub fn useless_model_prefix(prefix: &str) -> Option<String> {
    if EgressPolicy::can_match(prefix) {
        return None;
    }
    let providers = Provider::ALL.map(|provider| format!("{provider}/"));
    let advice = match providers.contains(&format!("{prefix}/")) {
        true => format!("write {prefix}/"),
        false => format!("models begin with {}", providers.join(", ")),
    };
    Some(format!(
        "mcp.rlm.allowed_model_prefixes: {prefix:?} can match no model; {advice}"
    ))
}
