//! Where data may go: which models, at which hosts, and the one way to get a route there.
//!
//! Allowed models are compared part by part: an entry's provider must be the model's provider, and only the name after
//! the slash is a prefix. A host is checked as it is written and again as it resolves; the addresses found then are the
//! only ones a route connects to, so a name server that changes its mind later changes nothing.

use std::net::SocketAddr;

use crate::endpoint::{Endpoint, Lookup, is_loopback};
use crate::error::{Error, Result};
use crate::name::{ModelName, Provider};
use crate::price::Price;

/// How far data may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// To this machine and the operator's listed hosts; only listed models.
    Restricted,
    /// Wherever the operator's model lives.
    Unrestricted,
}

/// The operator's rules.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How far.
    pub profile: Profile,
    /// `provider/start-of-name` entries; `None` allows every model, an empty list none.
    pub allowed_models: Option<Vec<String>>,
    /// Hosts beside loopback that `restricted` may reach: `host` or `host:port`.
    pub allowed_hosts: Vec<String>,
}

/// A model that may be asked, at addresses that may be reached. Only [`Policy::admit`] makes one.
#[derive(Debug, Clone)]
pub struct Route {
    pub(crate) model: ModelName,
    pub(crate) endpoint: Endpoint,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) price: Option<Price>,
}

impl Route {
    /// The model it leads to.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// What that costs, if it is known.
    pub fn price(&self) -> Option<Price> {
        self.price
    }

    /// Whether every byte stays on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.addresses.iter().all(|at| is_loopback(at.ip()))
    }
}

impl Policy {
    /// Whether the list of models has this one.
    ///
    /// # Errors
    /// [`Error::Egress`], with what the operator can do about it.
    pub fn allows(&self, model: &ModelName) -> Result<()> {
        let listed = match &self.allowed_models {
            None => self.profile == Profile::Unrestricted,
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

    /// Checks a model and where it answers, and pins the addresses. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Egress`] when either is not allowed, [`Error::Provider`] when the host has no address.
    pub async fn admit(
        &self,
        model: &ModelName,
        base_url: Option<&str>,
        price: Option<Price>,
        lookup: &Lookup,
    ) -> Result<Route> {
        self.allows(model)?;
        let address = base_url.unwrap_or(model.provider().usual_address());
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
        // A name that cannot be this machine is refused before a name server hears of it.
        let literal: Option<std::net::IpAddr> = endpoint.host.parse().ok();
        let may_be_here = literal.is_some_and(is_loopback) || endpoint.host == "localhost";
        if self.profile == Profile::Restricted && !listed && !may_be_here {
            return Err(refused(format!("host {} is not allowed", endpoint.host)));
        }
        let addresses = find(lookup, &endpoint, model.provider()).await?;
        if self.profile == Profile::Restricted
            && !listed
            && !addresses.iter().all(|at| is_loopback(at.ip()))
        {
            return Err(refused(format!(
                "host {} does not lead to this machine",
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

/// Whether an entry of the list covers a model.
fn covers(entry: &str, model: &ModelName) -> bool {
    let Some((provider, start)) = entry.split_once('/') else {
        return false;
    };
    Provider::of(provider) == Some(model.provider()) && model.model().starts_with(start)
}

async fn find(lookup: &Lookup, endpoint: &Endpoint, provider: Provider) -> Result<Vec<SocketAddr>> {
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

    fn policy(profile: Profile, models: Option<&[&str]>, hosts: &[&str]) -> Policy {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Policy {
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
        use Profile::{Restricted, Unrestricted};
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
            let found = policy(profile, entries, &[]).allows(&name(model)).is_ok();
            assert_eq!(found, allowed, "{entries:?} {model}");
        }
    }

    /// A name server that answers with these addresses and counts.
    fn server(addresses: &'static [&'static str]) -> (Lookup, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let lookup: Lookup = Arc::new(move |_, port| {
            count.fetch_add(1, Ordering::Relaxed);
            let at = |text: &&str| SocketAddr::new(text.parse().unwrap(), port);
            Ok(addresses.iter().map(at).collect())
        });
        (lookup, asked)
    }

    #[tokio::test]
    async fn restricted_reaches_this_machine_and_listed_hosts_only() {
        let local = policy(Profile::Restricted, Some(&["ollama/"]), &["gpu.lan"]);
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
        let local = policy(Profile::Restricted, Some(&[]), &[]);
        let route = local.admit(&name("ollama/a"), None, None, &lookup).await;
        assert!(matches!(route, Err(Error::Egress { .. })));
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
