//! Model calls along a route, retried while another attempt can help and there is time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::model_name::Provider;
use crate::policy::Route;
use crate::transport::{Response, TransportError, post};
use crate::wire::{self, ChatReply, ChatRequest, WireRequest};

/// The providers' API keys, from the environment. `Debug` does not print them.
#[derive(Clone, Default)]
pub struct ApiKeys(Arc<Vec<(Provider, String)>>);

impl ApiKeys {
    pub fn from_environment() -> ApiKeys {
        ApiKeys::from(|name: &str| std::env::var(name).ok())
    }

    pub fn from(variable: impl Fn(&str) -> Option<String>) -> ApiKeys {
        let key = |provider: Provider| {
            let key = variable(provider.key_variable()?)?.trim().to_owned();
            (!key.is_empty()).then_some((provider, key))
        };
        ApiKeys(Arc::new(
            Provider::ALL.into_iter().filter_map(key).collect(),
        ))
    }

    fn of(&self, provider: Provider) -> Option<&str> {
        let found = self.0.iter().find(|(owner, _)| *owner == provider);
        found.map(|(_, key)| key.as_str())
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeys(***)")
    }
}

/// How often and when a failed call is sent again.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    pub max_attempts: u32,
    /// The first pause; each further one may be twice as long.
    pub first_pause: Duration,
    /// No pause is longer, unless the provider asks for it.
    pub max_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 5,
            first_pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(20),
        }
    }
}

/// Sends requests to providers.
#[derive(Debug, Clone, Default)]
pub struct ModelClient {
    pub keys: ApiKeys,
    pub retries: RetryPolicy,
}

/// How one attempt failed.
struct AttemptError {
    error: Error,
    retry: Retry,
    /// Whether the provider may bill the attempt.
    may_be_billed: bool,
}

enum Retry {
    Never,
    AfterBackoff,
    /// After the time that the provider asks for.
    After(Duration),
}

impl ModelClient {
    /// Sends a chat request, within the deadline and the ledger's caps.
    ///
    /// # Errors
    /// [`Error::Budget`] before anything is sent; [`Error::Provider`]; [`Error::TimedOut`].
    pub async fn chat(
        &self,
        route: &Route,
        request: &ChatRequest,
        ledger: &Ledger,
        deadline: Instant,
    ) -> Result<ChatReply> {
        let input = request.input_tokens();
        let (wanted, least) = (request.max_output_tokens, request.min_output_tokens);
        let mut attempt = 0;
        let mut kept = None;
        loop {
            attempt += 1;
            let reservation = match kept.take() {
                Some(reservation) => reservation,
                None => ledger.reserve(&route.model, route.price, input, wanted, least)?,
            };
            let output = reservation.output();
            let body = wire::chat_request(route, request, input, output);
            // A timeout drops the reservation unsettled: the provider may bill an answer that was not awaited.
            let attempt_chat = within(deadline, self.attempt_chat(route, &body));
            let answered = tokio::select! {
                biased;
                () = ledger.overdrawn() => return Err(ledger.overdrawn_error()),
                answered = attempt_chat => answered,
            };
            let failed = match answered? {
                Ok(reply) => {
                    reservation.settle(reply.usage);
                    return Ok(reply);
                }
                Err(failed) => failed,
            };
            if !failed.may_be_billed {
                kept = Some(reservation);
            }
            if let Err(error) = self.wait_for_retry(failed, attempt, deadline).await {
                if let Some(reservation) = kept {
                    reservation.release();
                }
                return Err(error);
            }
        }
    }

    /// Computes one vector for each text, in order. Embeddings are not booked in a ledger.
    ///
    /// # Errors
    /// The provider has no embeddings, fails, or answers with another number of vectors; [`Error::TimedOut`].
    pub async fn embed(
        &self,
        route: &Route,
        texts: &[String],
        deadline: Instant,
    ) -> Result<Vec<Vec<f32>>> {
        let provider = route.model.provider();
        let request = wire::embedding_request(&route.model, texts)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match within(deadline, self.send(route, &request)).await? {
                Ok(body) => {
                    let vectors = wire::read_vectors(provider, &body, texts.len());
                    return vectors.map_err(|why| Error::provider(provider, why, true));
                }
                Err(failed) => self.wait_for_retry(failed, attempt, deadline).await?,
            }
        }
    }

    async fn attempt_chat(
        &self,
        route: &Route,
        request: &WireRequest,
    ) -> Result<ChatReply, AttemptError> {
        let provider = route.model.provider();
        let body = self.send(route, request).await?;
        // An unreadable answer was paid for, and nothing says that the next one would be better.
        wire::read_chat_reply(provider, &body).map_err(|why| AttemptError {
            error: Error::provider(provider, why, true),
            retry: Retry::Never,
            may_be_billed: true,
        })
    }

    /// The body of an answer with status 200.
    async fn send(&self, route: &Route, request: &WireRequest) -> Result<Bytes, AttemptError> {
        let provider = route.model.provider();
        let mut headers: Vec<_> = request
            .headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        match self.keys.of(provider) {
            Some(_) if !route.endpoint.tls && !route.is_local() => {
                return Err(AttemptError {
                    error: Error::Egress {
                        what: format!(
                            "the key of {provider} would be sent unencrypted to {}",
                            route.endpoint.host
                        ),
                        hint: "use https, or unset the key's variable".to_owned(),
                    },
                    retry: Retry::Never,
                    may_be_billed: false,
                });
            }
            Some(key) => headers.push(wire::key_header(provider, key)),
            None => {}
        }
        let body = Bytes::from(request.body.to_string());
        let (what, may_be_billed) = match post(route, request.path, &headers, body).await {
            Ok(response) if response.status == 200 => return Ok(response.body),
            Ok(response) => return Err(refusal(provider, &response)),
            Err(TransportError::NotSent(what)) => (what, false),
            Err(TransportError::AnswerLost(what)) => (what, true),
        };
        Err(AttemptError {
            error: Error::provider(provider, what, true),
            retry: Retry::AfterBackoff,
            may_be_billed,
        })
    }

    /// Waits until the next attempt is due; gives the error back if there is to be none.
    async fn wait_for_retry(
        &self,
        failed: AttemptError,
        attempt: u32,
        deadline: Instant,
    ) -> Result<()> {
        let pause = match failed.retry {
            Retry::Never => return Err(failed.error),
            Retry::AfterBackoff => self.backoff(attempt),
            Retry::After(pause) => pause,
        };
        if attempt >= self.retries.max_attempts || pause >= time_until(deadline) {
            return Err(failed.error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// A random length up to the limit of this attempt, so that calls that failed together are not repeated together.
    fn backoff(&self, attempt: u32) -> Duration {
        let limit = self
            .retries
            .first_pause
            .saturating_mul(1 << attempt.min(16).saturating_sub(1))
            .min(self.retries.max_pause);
        let share = getrandom::u32().unwrap_or(u32::MAX / 2);
        limit.mul_f64(0.5 + 0.5 * f64::from(share) / f64::from(u32::MAX))
    }
}

async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(time_until(deadline), work).await;
    done.map_err(|_| Error::TimedOut)
}

fn time_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn refusal(provider: Provider, response: &Response) -> AttemptError {
    let status = response.status;
    let said =
        wire::error_message(&response.body).map_or(String::new(), |text| format!(": {text}"));
    let what = match status {
        300..=399 => format!("answered {status}, and redirects are not followed"),
        401 | 403 => match provider.key_variable() {
            Some(variable) => format!("refused the key ({status}); set {variable}{said}"),
            None => format!(
                "refused the request ({status}); no key is sent to it, so its address must be one that asks for none \
                 (rlm.base_url){said}"
            ),
        },
        404 => format!("knows no such model or path (404){said}"),
        _ => format!("answered {status}{said}"),
    };
    let retryable = matches!(status, 408 | 429 | 500..=599);
    AttemptError {
        error: Error::provider(provider, what, retryable),
        retry: match response.retry_after {
            _ if !retryable => Retry::Never,
            Some(pause) => Retry::After(pause),
            None => Retry::AfterBackoff,
        },
        may_be_billed: false,
    }
}
