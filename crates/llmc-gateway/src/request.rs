//! One request to an upstream, and how its answer reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result, quoted};
use crate::user::CallUser;

/// The error of a server that does not speak the revision of a request.
const UNSUPPORTED_REVISION: i64 = -32022;

/// The shortest time between two looks at a deadline.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Takes what an upstream says about a call that is under way.
pub type ProgressSink = Arc<dyn Fn(&str) + Send + Sync>;

/// A request on its way.
pub(crate) struct Request<'a> {
    pub(crate) id: u64,
    pub(crate) message: Value,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) progress: Option<ProgressSink>,
    /// Of the call that it is part of; requests that no call waits for have none.
    pub(crate) user: Option<Arc<CallUser>>,
    /// What that user had taken before it began.
    pub(crate) user_before: Duration,
    /// Further headers, where there are headers.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request<'_> {
    /// When a request that began then is out of time. What its user takes to answer is not the server's time.
    pub(crate) fn deadline(&self, began: Instant) -> Instant {
        let asked = self.user.as_ref().map(|user| user.time_taken());
        let asked = asked.unwrap_or_default().saturating_sub(self.user_before);
        began + self.timeout + asked
    }

    /// When to look at the deadline again, which moves while the user is asked.
    pub(crate) fn next_check(&self, began: Instant) -> Instant {
        self.deadline(began).max(Instant::now() + CHECK_INTERVAL)
    }
}

/// The result that a response carries, or the error.
pub(crate) fn answer(response: &mut Value) -> Result<Value> {
    if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
        let message = error["message"].as_str().unwrap_or("no reason given");
        let code = error["code"].as_i64().unwrap_or_default();
        if let (UNSUPPORTED_REVISION, Some(supported)) =
            (code, error["data"]["supported"].as_array())
        {
            let known = supported.iter().filter_map(Value::as_str).take(20);
            return Err(Error::OtherRevision {
                supported: known.map(quoted).collect(),
            });
        }
        return Err(Error::Refused {
            code,
            message: quoted(message),
        });
    }
    match response.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(Error::Protocol("an answer without a result".to_owned())),
    }
}

/// Progress in words: `3 of 10, copying`.
pub(crate) fn progress_words(params: &Value) -> String {
    let number = |key: &str| params[key].as_f64().map(|number| number.to_string());
    let mut words = match (number("progress"), number("total")) {
        (Some(done), Some(total)) => format!("{done} of {total}"),
        (Some(done), None) => done,
        (None, _) => String::new(),
    };
    let said = quoted(params["message"].as_str().unwrap_or_default());
    if !said.is_empty() {
        if !words.is_empty() {
            words.push_str(", ");
        }
        words.push_str(&said);
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_and_progress_are_read_leniently() {
        assert_eq!(
            answer(&mut json!({"id": 1, "result": {"a": 1}})),
            Ok(json!({"a": 1}))
        );
        let refused = Error::Refused {
            code: -32602,
            message: "bad b".to_owned(),
        };
        let error = json!({"code": -32602, "message": "bad\nb"});
        assert_eq!(answer(&mut json!({"id": 1, "error": error})), Err(refused));
        assert!(matches!(
            answer(&mut json!({"id": 1})),
            Err(Error::Protocol(_))
        ));
        let words = |params| progress_words(&params);
        assert_eq!(
            words(json!({"progress": 3, "total": 10, "message": "x"})),
            "3 of 10, x"
        );
        assert_eq!(words(json!({"progress": 0.5})), "0.5");
        assert_eq!(words(json!({"progress": "many"})), "");
    }
}
