//! Signing in to the dashboard with a one-time link instead of a token.
//!
//! `llmc dashboard` asks the server, over its control socket, for a ticket; the browser that opens the link gets a cookie
//! for it. A ticket counts once and for a short time; a cookie until the server ends or a while without requests. Browsers
//! send a cookie with requests of any page, so a request with one must come from the server's own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use llmc_observe::lock;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::HttpState;
use super::error::HttpError;
use super::rest::json;
use super::tokens::{Token, is_same};

pub(super) const TICKET_ROUTE: &str = "/dashboard";
pub(super) const SESSION_ROUTE: &str = "/api/session";

/// How long a link can be opened.
const TICKET_LIFETIME: Duration = Duration::from_secs(120);
/// How long a cookie counts without requests.
const SESSION_IDLE_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// More of either drop the oldest.
const MAX_TICKETS: usize = 16;
const MAX_SESSIONS: usize = 32;
const SECRET_BYTES: usize = 32;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Tickets and sessions of one server; only digests are kept.
#[derive(Debug)]
pub(super) struct Sessions {
    state: Mutex<SessionState>,
    /// What a signed-in page may do.
    token: Arc<Token>,
    /// Of this server alone: browsers send a cookie to every port of a host.
    cookie: Mutex<String>,
}

#[derive(Debug, Default)]
struct SessionState {
    tickets: Vec<Secret>,
    sessions: Vec<Secret>,
}

#[derive(Debug)]
struct Secret {
    digest: [u8; 32],
    /// When it was made, or used last.
    at: Instant,
}

impl Sessions {
    pub(super) fn new(token: Arc<Token>) -> Sessions {
        Sessions {
            state: Mutex::default(),
            token,
            cookie: Mutex::new("llmc_session".to_owned()),
        }
    }

    /// Names the cookie for the port that the server listens on.
    pub(super) fn listen_on(&self, url: &str) {
        let port = url.rsplit(':').next().unwrap_or_default();
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            *lock(&self.cookie) = format!("llmc_session_{port}");
        }
    }

    /// A new ticket; `None` if the system gives no random numbers.
    pub(super) fn ticket(&self) -> Option<String> {
        let secret = random()?;
        let mut state = lock(&self.state);
        state
            .tickets
            .retain(|ticket| ticket.at.elapsed() < TICKET_LIFETIME);
        keep(&mut state.tickets, &secret, MAX_TICKETS);
        Some(secret)
    }

    /// A session for a ticket, which counts no more.
    fn redeem(&self, ticket: &str) -> Option<String> {
        let mut state = lock(&self.state);
        state
            .tickets
            .retain(|ticket| ticket.at.elapsed() < TICKET_LIFETIME);
        let at = position(&state.tickets, ticket)?;
        state.tickets.remove(at);
        let secret = random()?;
        keep(&mut state.sessions, &secret, MAX_SESSIONS);
        Some(secret)
    }

    /// The rights of a request by its cookie; `None` without one that counts.
    ///
    /// A page of another origin, also one on another port of this host, cannot use it: its browser says where the request
    /// comes from.
    pub(super) fn find(&self, headers: &HeaderMap) -> Option<Arc<Token>> {
        let cookie = self.cookie_of(headers)?;
        let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
        if !matches!(site, None | Some(b"same-origin" | b"none")) {
            return None;
        }
        let mut state = lock(&self.state);
        let alive = |session: &Secret| session.at.elapsed() < SESSION_IDLE_LIFETIME;
        state.sessions.retain(alive);
        let at = position(&state.sessions, &cookie)?;
        state.sessions[at].at = Instant::now();
        Some(self.token.clone())
    }

    fn cookie_of(&self, headers: &HeaderMap) -> Option<String> {
        let name = lock(&self.cookie).clone();
        let mut cookies = headers.get_all(COOKIE).iter();
        let all = cookies.next()?.to_str().ok()?;
        if cookies.next().is_some() {
            return None;
        }
        let mut values = all.split(';').filter_map(|pair| {
            let (key, value) = pair.trim().split_once('=')?;
            (key == name).then_some(value)
        });
        let value = values.next()?;
        values.next().is_none().then(|| value.to_owned())
    }

    fn set_cookie(&self, session: &str) -> String {
        let name = lock(&self.cookie).clone();
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict")
    }
}

/// `GET /dashboard?ticket=…`: signs the browser in, once.
pub(super) async fn sign_in(
    State(state): State<Arc<HttpState>>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let ticket = uri.query().and_then(|query| query.strip_prefix("ticket="));
    let session = ticket.and_then(|ticket| state.sessions.redeem(ticket));
    let Some(session) = session else {
        let message = "this link was used already, or is too old";
        return Err(HttpError::new(StatusCode::GONE, "GONE", message)
            .hint("run `llmc dashboard` again for a new one"));
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    let cookie = HeaderValue::try_from(state.sessions.set_cookie(&session));
    let cookie = cookie.map_err(|_| HttpError::unparsable("no cookie can be made"))?;
    headers.insert(SET_COOKIE, cookie);
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// `GET /api/session`: how this browser can sign in; holds no data, so it is public.
pub(super) async fn show(State(state): State<Arc<HttpState>>, headers: HeaderMap) -> Response {
    json(&json!({
        "signed_in": state.sessions.find(&headers).is_some(),
        "takes_token": state.tokens.takes_token(),
    }))
}

fn keep(secrets: &mut Vec<Secret>, secret: &str, max: usize) {
    if secrets.len() >= max {
        secrets.sort_by_key(|secret| secret.at);
        secrets.remove(0);
    }
    secrets.push(Secret {
        digest: Sha256::digest(secret).into(),
        at: Instant::now(),
    });
}

fn position(secrets: &[Secret], presented: &str) -> Option<usize> {
    let presented: [u8; 32] = Sha256::digest(presented).into();
    let mut found = None;
    for (at, secret) in secrets.iter().enumerate() {
        if is_same(&secret.digest, &presented) {
            found = Some(at);
        }
    }
    found
}

fn random() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        let sessions = Sessions::new(Arc::new(Token::of_page()));
        sessions.listen_on("http://127.0.0.1:8123");
        sessions
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_ticket_counts_once() {
        let sessions = sessions();
        let ticket = sessions.ticket().unwrap();
        assert_eq!(sessions.redeem("wrong"), None);
        let session = sessions.redeem(&ticket).unwrap();
        assert_ne!(session, ticket);
        assert_eq!(sessions.redeem(&ticket), None, "a second time");
    }

    #[test]
    fn only_the_newest_tickets_count() {
        let sessions = sessions();
        let first = sessions.ticket().unwrap();
        for _ in 0..MAX_TICKETS {
            sessions.ticket().unwrap();
        }
        assert_eq!(sessions.redeem(&first), None);
    }

    #[test]
    fn a_cookie_counts_for_the_servers_own_page_only() {
        let sessions = sessions();
        let session = sessions.redeem(&sessions.ticket().unwrap()).unwrap();
        let cookie = format!("other=1; llmc_session_8123={session}");
        let cookie = cookie.as_str();
        for site in ["same-origin", "none"] {
            let headers = headers(&[("cookie", cookie), ("sec-fetch-site", site)]);
            assert!(sessions.find(&headers).is_some(), "{site}");
        }
        assert!(sessions.find(&headers(&[("cookie", cookie)])).is_some());
        // Another port of this host is the same site.
        for site in ["same-site", "cross-site", ""] {
            let headers = headers(&[("cookie", cookie), ("sec-fetch-site", site)]);
            assert!(sessions.find(&headers).is_none(), "{site}");
        }
        let other_port = cookie.replace("8123", "9000");
        let twice = format!("{cookie}; llmc_session_8123=x");
        for wrong in [other_port.as_str(), &twice, "llmc_session_8123=", "", "x"] {
            assert!(
                sessions.find(&headers(&[("cookie", wrong)])).is_none(),
                "{wrong}"
            );
        }
        assert!(
            sessions
                .find(&headers(&[("cookie", cookie), ("cookie", "a=b")]))
                .is_none()
        );
    }
}
