//! Which models may be called at which hosts.
//!
//! Allowed models are compared part by part: an entry's provider must be the model's provider, and only the name after
//! the slash is a prefix. A host is checked as it is written and again as it resolves; the addresses found then are the
//! only ones a route connects to, so a later change in DNS has no effect.

use std::net::SocketAddr;

use crate::endpoint::{Endpoint, HostLookup, is_loopback};
use crate::error::{Error, Result};
use crate::model_name::{ModelName, Provider};
use crate::price::Price;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressProfile {
    /// To this machine and the operator's listed hosts; only listed models.
    Restricted,
    /// To any host.
    Unrestricted,
}

/// The operator's rules.
#[derive(Debug, Clone)]
pub struct EgressPolicy {
    pub profile: EgressProfile,
    /// `provider/start-of-name` entries; `None` allows every model, an empty list none.
    pub allowed_models: Option<Vec<String>>,
    /// Hosts beside loopback that `restricted` may reach: `host` or `host:port`.
    pub allowed_hosts: Vec<String>,
}

/// A model that may be asked, at addresses that may be reached. Only [`EgressPolicy::admit`] makes one.
#[derive(Debug, Clone)]
pub struct Route {
    pub(crate) model: ModelName,
    pub(crate) endpoint: Endpoint,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) price: Option<Price>,
}

impl Route {
    /// Whether every byte stays on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.addresses.iter().all(|at| is_loopback(at.ip()))
    }
}

impl EgressPolicy {
    /// Whether there can be a model that this entry of a list of models allows.
    pub fn can_match(entry: &str) -> bool {
        let provider = entry.split_once('/').map(|(provider, _)| provider);
        provider.and_then(Provider::from_name).is_some()
    }

    fn check_model(&self, model: &ModelName) -> Result<()> {
        let listed = match &self.allowed_models {
            None => self.profile == EgressProfile::Unrestricted,
            Some(entries) => entries.iter().any(|entry| covers(entry, model)),
        };
        if listed {
            return Ok(());
        }
        Err(Error::Egress {
            what: format!("model {model} is not among mcp.rlm.allowed_model_prefixes"),
            hint: match &self.allowed_models {
                Some(entries) if !entries.is_empty() => {
                    format!(
                        "allowed: {}; the operator can add to the list",
                        entries.join(", ")
                    )
                }
                _ => "the list is empty, which allows none; the operator can add to it".to_owned(),
            },
        })
    }

    /// Checks a model and its endpoint, and pins the addresses. Nothing is sent to the provider.
    ///
    /// # Errors
    /// [`Error::Egress`] when either is not allowed, [`Error::Provider`] when the host has no address.
    pub async fn admit(
        &self,
        model: &ModelName,
        base_url: Option<&str>,
        price: Option<Price>,
        lookup: &HostLookup,
    ) -> Result<Route> {
        self.check_model(model)?;
        let address = base_url.unwrap_or(model.provider().default_base_url());
        let endpoint: Endpoint = address.parse().map_err(|why| Error::Egress {
            what: format!("the provider's address {why}"),
            hint: "the operator sets it as base_url".to_owned(),
        })?;
        let listed = self
            .allowed_hosts
            .iter()
            .any(|entry| endpoint.is_listed_as(entry));
        let refused = |what: String| Error::Egress {
            what,
            hint: "profile restricted reaches loopback and mcp.rlm.allowed_hosts only".to_owned(),
        };
        // A name that cannot be this machine is refused before it is looked up.
        let literal: Option<std::net::IpAddr> = endpoint.host.parse().ok();
        let may_be_local = literal.is_some_and(is_loopback) || endpoint.host == "localhost";
        if self.profile == EgressProfile::Restricted && !listed && !may_be_local {
            return Err(refused(format!("host {} is not allowed", endpoint.host)));
        }
        let addresses = resolve(lookup, &endpoint, model.provider()).await?;
        if self.profile == EgressProfile::Restricted
            && !listed
            && !addresses.iter().all(|at| is_loopback(at.ip()))
        {
            return Err(refused(format!(
                "host {} does not resolve to this machine",
                endpoint.host
            )));
        }
        Ok(Route {
            model: model.clone(),
            endpoint,
            addresses,
            price,
        })
    }
}

fn covers(entry: &str, model: &ModelName) -> bool {
    let Some((provider, start)) = entry.split_once('/') else {
        return false;
    };
    Provider::from_name(provider) == Some(model.provider()) && model.model().starts_with(start)
}

async fn resolve(
    lookup: &HostLookup,
    endpoint: &Endpoint,
    provider: Provider,
) -> Result<Vec<SocketAddr>> {
    let (lookup, host, port) = (lookup.clone(), endpoint.host.clone(), endpoint.port);
    let found = tokio::task::spawn_blocking(move || lookup(&host, port)).await;
    match found {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        _ => Err(Error::provider(
            provider,
            format!("host {} has no address", endpoint.host),
            true,
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn policy(profile: EgressProfile, models: Option<&[&str]>, hosts: &[&str]) -> EgressPolicy {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        EgressPolicy {
            profile,
            allowed_models: models.map(texts),
            allowed_hosts: texts(hosts),
        }
    }

    fn name(text: &str) -> ModelName {
        text.parse().unwrap()
    }

    #[test]
    fn models_are_compared_part_by_part() {
        use EgressProfile::{Restricted, Unrestricted};
        for (profile, entries, model, allowed) in [
            (Restricted, Some(&["ollama/"][..]), "ollama/a", true),
            (Restricted, Some(&["ollama_chat/"]), "ollama/a", true),
            (Restricted, Some(&["ollama/"]), "ollama_chat/a", true),
            (Restricted, Some(&["ollama/"]), "openai/a", false),
            (Restricted, Some(&["ollama/qwen"]), "ollama/qwen3:8b", true),
            (Restricted, Some(&["ollama/qwen"]), "ollama/llama", false),
            (Restricted, Some(&["o"]), "openai/a", false),
            (Restricted, Some(&["ollama"]), "ollama/a", false),
            (Restricted, Some(&["", "/"]), "ollama/a", false),
            (Restricted, Some(&[]), "ollama/a", false),
            (Restricted, None, "ollama/a", false),
            (Unrestricted, None, "openai/a", true),
            (Unrestricted, Some(&[]), "openai/a", false),
        ] {
            let found = policy(profile, entries, &[])
                .check_model(&name(model))
                .is_ok();
            assert_eq!(found, allowed, "{entries:?} {model}");
        }
    }

    /// A name server that answers with these addresses and counts.
    fn server(addresses: &'static [&'static str]) -> (HostLookup, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let lookup: HostLookup = Arc::new(move |_, port| {
            count.fetch_add(1, Ordering::Relaxed);
            let at = |text: &&str| SocketAddr::new(text.parse().unwrap(), port);
            Ok(addresses.iter().map(at).collect())
        });
        (lookup, asked)
    }

    #[tokio::test]
    async fn restricted_reaches_this_machine_and_listed_hosts_only() {
        let local = policy(EgressProfile::Restricted, Some(&["ollama/"]), &["gpu.lan"]);
        for (url, addresses, allowed, asked) in [
            ("http://127.0.0.1:1", &["127.0.0.1"][..], true, 1),
            ("http://localhost:1", &["127.0.0.1", "::1"], true, 1),
            ("http://localhost:1", &["127.0.0.1", "10.0.0.1"], false, 1),
            ("http://gpu.lan:1", &["10.0.0.9"], true, 1),
            ("http://example.com", &["127.0.0.1"], false, 0),
            ("http://localhost.example.com", &["127.0.0.1"], false, 0),
            ("http://10.0.0.1", &["10.0.0.1"], false, 0),
            ("http://0.0.0.0", &["0.0.0.0"], false, 0),
            ("http://169.254.169.254", &["169.254.169.254"], false, 0),
        ] {
            let (lookup, count) = server(addresses);
            let route = local
                .admit(&name("ollama/a"), Some(url), None, &lookup)
                .await;
            assert_eq!(route.is_ok(), allowed, "{url}");
            assert_eq!(count.load(Ordering::Relaxed), asked, "{url}: lookups");
            if !allowed {
                assert!(matches!(route, Err(Error::Egress { .. })), "{url}");
            }
        }
    }

    #[tokio::test]
    async fn a_forbidden_model_is_not_even_looked_up() {
        let (lookup, count) = server(&["127.0.0.1"]);
        let local = policy(EgressProfile::Restricted, Some(&[]), &[]);
        let route = local.admit(&name("ollama/a"), None, None, &lookup).await;
        assert!(matches!(route, Err(Error::Egress { .. })));
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
