//! Asking: one question along one route, retried while that can help and there is time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::ledger::{Ledger, Reservation};
use crate::name::Provider;
use crate::policy::Route;
use crate::post::{Failed, Response, post};
use crate::wire::{self, Reply, Request};

/// The providers' keys. They come from the environment, go into one header, and print as nothing.
#[derive(Clone, Default)]
pub struct Keys(Arc<Vec<(Provider, String)>>);

impl Keys {
    /// Those that are set in this process's environment.
    pub fn from_environment() -> Keys {
        Keys::from(|name: &str| std::env::var(name).ok())
    }

    /// From a lookup of variables.
    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Keys {
        let key = |provider: Provider| {
            let key = variable(provider.key_variable()?)?.trim().to_owned();
            (!key.is_empty()).then_some((provider, key))
        };
        Keys(Arc::new(
            Provider::ALL.into_iter().filter_map(key).collect(),
        ))
    }

    fn of(&self, provider: Provider) -> Option<&str> {
        let found = self.0.iter().find(|(whose, _)| *whose == provider);
        found.map(|(_, key)| key.as_str())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(***)")
    }
}

/// How failures are met.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Attempts in all.
    pub attempts: u32,
    /// The first pause; each further one may be twice as long.
    pub first_pause: Duration,
    /// No pause is longer, unless the provider asks for it.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            attempts: 5,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(20),
        }
    }
}

/// Asks providers.
#[derive(Debug, Clone, Default)]
pub struct Gateway {
    /// The keys.
    pub keys: Keys,
    /// How failures are met.
    pub patience: Patience,
}

/// How one attempt failed.
enum Failure {
    /// Not worth trying again.
    Refused(Error),
    /// Worth trying again, perhaps after this long.
    Again(Error, Option<Duration>),
}

impl Gateway {
    /// Asks, within the deadline and the ledger's caps.
    ///
    /// # Errors
    /// [`Error::Budget`] before anything is sent; [`Error::Provider`]; [`Error::TimedOut`].
    pub async fn ask(
        &self,
        route: &Route,
        request: &Request,
        ledger: &Ledger,
        deadline: Instant,
    ) -> Result<Reply> {
        let input = request.tokens();
        let mut attempt = 0;
        let mut held: Option<Reservation<'_>> = None;
        loop {
            attempt += 1;
            let reservation = match held.take() {
                Some(reservation) => reservation,
                None => ledger.reserve(
                    route.model(),
                    route.price(),
                    input,
                    request.wanted,
                    request.least,
                )?,
            };
            let output = reservation.output();
            let outgoing = wire::outgoing(route.model(), &route.endpoint, request, input, output);
            let limit = deadline.saturating_duration_since(Instant::now());
            let tried = tokio::time::timeout(limit, self.attempt(route, &outgoing)).await;
            let (error, pause) = match tried {
                // The reservation goes unsettled: the provider may bill what nobody waited for.
                Err(_) => return Err(Error::TimedOut),
                Ok(Ok(reply)) => {
                    reservation.settle(reply.usage);
                    return Ok(reply);
                }
                Ok(Err((Failure::Refused(error), sent))) => {
                    keep_or_release(reservation, sent);
                    return Err(error);
                }
                Ok(Err((Failure::Again(error, pause), sent))) => {
                    match sent {
                        Sent::Lost => drop(reservation),
                        Sent::Nothing => held = Some(reservation),
                    }
                    (error, pause)
                }
            };
            let pause = pause.unwrap_or_else(|| self.pause(attempt));
            let left = deadline.saturating_duration_since(Instant::now());
            if attempt >= self.patience.attempts || pause >= left {
                if let Some(reservation) = held {
                    reservation.release();
                }
                return Err(error);
            }
            let waiting = held.take();
            tokio::time::sleep(pause).await;
            held = waiting;
        }
    }

    /// Sends a body along a route and reads JSON, with the same retries; for calls that are not chats.
    pub(crate) async fn fetch(
        &self,
        route: &Route,
        path: &'static str,
        body: Value,
        deadline: Instant,
    ) -> Result<Bytes> {
        let outgoing = wire::Outgoing {
            path,
            body,
            headers: &[],
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let limit = deadline.saturating_duration_since(Instant::now());
            let sent = tokio::time::timeout(limit, self.send(route, &outgoing)).await;
            let (error, pause) = match sent {
                Err(_) => return Err(Error::TimedOut),
                Ok(Ok(body)) => return Ok(body),
                Ok(Err((Failure::Again(error, pause), _))) => (error, pause),
                Ok(Err((Failure::Refused(error), _))) => return Err(error),
            };
            let pause = pause.unwrap_or_else(|| self.pause(attempt));
            let left = deadline.saturating_duration_since(Instant::now());
            if attempt >= self.patience.attempts || pause >= left {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        route: &Route,
        outgoing: &wire::Outgoing,
    ) -> Result<Reply, (Failure, Sent)> {
        let provider = route.model().provider();
        let body = self.send(route, outgoing).await?;
        // Something answered and was paid for; whether it does better next time nobody knows.
        wire::reply(provider, &body).map_err(|why| {
            let error = Error::provider(provider, why, true);
            (Failure::Refused(error), Sent::Lost)
        })
    }

    /// The body of an answer with status 200.
    async fn send(
        &self,
        route: &Route,
        outgoing: &wire::Outgoing,
    ) -> Result<Bytes, (Failure, Sent)> {
        let provider = route.model().provider();
        let mut headers: Vec<_> = outgoing
            .headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        match self.keys.of(provider) {
            Some(_) if !route.endpoint.tls && !route.is_local() => {
                let error = Error::Egress {
                    what: format!(
                        "the key of {provider} would travel in the clear to {}",
                        route.endpoint.host
                    ),
                    hint: "use https, or unset the key's variable".to_owned(),
                };
                return Err((Failure::Refused(error), Sent::Nothing));
            }
            Some(key) => headers.push(wire::key_header(provider, key)),
            None => {}
        }
        let body = Bytes::from(outgoing.body.to_string());
        match post(route, outgoing.path, &headers, body).await {
            Ok(response) if response.status == 200 => Ok(response.body),
            Ok(response) => Err((refusal(provider, &response), Sent::Nothing)),
            Err(Failed::Unsent(why)) => Err((
                Failure::Again(Error::provider(provider, why, true), None),
                Sent::Nothing,
            )),
            Err(Failed::Lost(why)) => Err((
                Failure::Again(Error::provider(provider, why, true), None),
                Sent::Lost,
            )),
        }
    }

    /// Any length up to the limit of this attempt, so that many who failed together do not return together.
    fn pause(&self, attempt: u32) -> Duration {
        let limit = self
            .patience
            .first_pause
            .saturating_mul(1 << attempt.min(16).saturating_sub(1))
            .min(self.patience.longest_pause);
        let share = getrandom::u32().unwrap_or(u32::MAX / 2);
        limit.mul_f64(0.5 + 0.5 * f64::from(share) / f64::from(u32::MAX))
    }
}

/// Whether a failed attempt may have cost something.
enum Sent {
    Nothing,
    Lost,
}

fn keep_or_release(reservation: Reservation<'_>, sent: Sent) {
    match sent {
        Sent::Nothing => reservation.release(),
        Sent::Lost => drop(reservation),
    }
}

fn refusal(provider: Provider, response: &Response) -> Failure {
    let status = response.status;
    let said = wire::complaint(&response.body).map_or(String::new(), |text| format!(": {text}"));
    let variable = provider.key_variable().unwrap_or("its key");
    let what = match status {
        300..=399 => format!("answered {status}, and redirects are not followed"),
        401 | 403 => format!("refused the key ({status}); set {variable}{said}"),
        404 => format!("knows no such model or path (404){said}"),
        _ => format!("answered {status}{said}"),
    };
    let again = matches!(status, 408 | 429 | 500..=599);
    let error = Error::provider(provider, what, again);
    if again {
        Failure::Again(error, response.retry_after)
    } else {
        Failure::Refused(error)
    }
}
