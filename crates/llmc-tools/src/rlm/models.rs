//! Which models a query asks: the operator's, or the caller's where that is allowed, each admitted by the policy.

use std::time::Duration;

use llmc_config::{Config, RlmProfile};
use llmc_model::{
    EgressPolicy, EgressProfile, Error as ModelError, ModelName, Price, Provider, list_price,
    system_lookup,
};
use llmc_rlm::{Party, Tape};

use crate::error::{Error, Kind, Result};

/// Who leads a query, and who is asked about parts.
pub(super) struct Models {
    pub(super) lead: Party,
    pub(super) sub: Party,
}

impl Models {
    /// Those of a trace; nothing is sent to them.
    pub(super) fn recorded(tape: &Tape) -> Models {
        let party = |(model, price): &(ModelName, Option<Price>)| Party {
            model: model.clone(),
            price: *price,
            route: None,
        };
        Models {
            lead: party(&tape.lead),
            sub: party(&tape.sub),
        }
    }

    /// Those that the configuration names, or the caller where the operator lets it, or the operator at the shell; all
    /// of them admitted by the policy.
    pub(super) async fn admitted(
        config: &Config,
        asked: Option<&str>,
        chosen: Option<&str>,
    ) -> Result<Models> {
        let own = config.rlm.model.as_deref().map(named).transpose()?;
        let lead = match (asked, chosen) {
            (Some(asked), _) => overriding(config, asked)?,
            (None, Some(chosen)) => named(chosen)?,
            (None, None) => own.clone().ok_or_else(|| {
                Error::new(Kind::EgressDenied, "no model is configured")
                    .hint("the operator sets rlm.model, for example \"ollama/qwen3:8b\"")
            })?,
        };
        let configured = config.rlm.sub_model.as_deref().map(named).transpose()?;
        // Unless the operator chose another one for parts, whoever leads also reads them.
        let sub = match configured {
            Some(sub) if own.as_ref() != Some(&sub) => sub,
            _ => lead.clone(),
        };
        let policy = policy(config);
        Ok(Models {
            lead: party(config, &policy, own.as_ref(), lead).await?,
            sub: party(config, &policy, own.as_ref(), sub).await?,
        })
    }
}

fn named(text: &str) -> Result<ModelName> {
    text.parse().map_err(Error::from)
}

/// The caller's model, where the operator lets callers choose.
fn overriding(config: &Config, asked: &str) -> Result<ModelName> {
    let policy = &config.mcp.rlm;
    let refused = |why: &str| {
        Err(Error::new(Kind::EgressDenied, "model cannot be chosen by the caller").hint(why))
    };
    if policy.profile == RlmProfile::Restricted {
        return refused("leave model out; profile restricted keeps to the operator's rlm.model");
    }
    if !policy.allow_model_override {
        return refused(
            "leave model out, or ask the operator to set mcp.rlm.allow_model_override = true",
        );
    }
    named(asked)
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

async fn party(
    config: &Config,
    policy: &EgressPolicy,
    own: Option<&ModelName>,
    model: ModelName,
) -> Result<Party> {
    // An address belongs to the provider it was written for; another provider's key and text must not go there.
    let ours = own.is_none_or(|own| own.provider() == model.provider());
    let base_url = config.rlm.base_url.as_deref().filter(|_| ours);
    let price = price_of(config, own, &model);
    let route = policy
        .admit(&model, base_url, price, &system_lookup())
        .await?;
    Ok(Party {
        model,
        price,
        route: Some(route),
    })
}

/// The operator's price for its own model, and for those that nobody else has a price for.
fn price_of(config: &Config, own: Option<&ModelName>, model: &ModelName) -> Option<Price> {
    let known = list_price(model);
    let set = config
        .rlm
        .price_per_mtok_in
        .zip(config.rlm.price_per_mtok_out)
        .map(|(input, output)| Price::new(input, input, output));
    if model.provider() == Provider::Ollama {
        return known;
    }
    match known {
        Some(known) if own != Some(model) => Some(known),
        known => set.or(known),
    }
}

/// The error as callers know it.
pub(super) fn translated(error: ModelError, limit: Option<Duration>) -> Error {
    let message = error.to_string();
    match error {
        ModelError::BadModel { .. } => Error::new(Kind::EgressDenied, message)
            .hint("models are named provider/model, for example \"ollama/qwen3:8b\""),
        ModelError::Egress { hint, .. } => Error::new(Kind::EgressDenied, message).hint(hint),
        ModelError::Budget { hint, .. } => Error::new(Kind::BudgetExceeded, message).hint(hint),
        ModelError::Provider { provider, .. } => {
            Error::new(Kind::ProviderFailed, message).with("provider", provider.as_str())
        }
        ModelError::TimedOut => {
            let message = match limit {
                Some(limit) => format!("no answer within {} s", limit.as_secs()),
                None => message,
            };
            Error::new(Kind::TimedOut, message)
                .hint("give a larger timeout_s, or ask something narrower")
        }
    }
}
