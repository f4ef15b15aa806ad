//! The page at `/` and what it loads. The files hold no data, so they are public; what they show is requested with a token.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type, content.
pub(super) static ASSETS: [(&str, &str, &str); 18] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("dashboard/index.html"),
    ),
    (
        "/style.css",
        "text/css; charset=utf-8",
        include_str!("dashboard/style.css"),
    ),
    (
        "/favicon.svg",
        "image/svg+xml",
        include_str!("dashboard/favicon.svg"),
    ),
    ("/app.js", SCRIPT, include_str!("dashboard/app.js")),
    ("/agents.js", SCRIPT, include_str!("dashboard/agents.js")),
    ("/api.js", SCRIPT, include_str!("dashboard/api.js")),
    ("/calls.js", SCRIPT, include_str!("dashboard/calls.js")),
    ("/changes.js", SCRIPT, include_str!("dashboard/changes.js")),
    ("/charts.js", SCRIPT, include_str!("dashboard/charts.js")),
    ("/diff.js", SCRIPT, include_str!("dashboard/diff.js")),
    ("/dom.js", SCRIPT, include_str!("dashboard/dom.js")),
    ("/live.js", SCRIPT, include_str!("dashboard/live.js")),
    ("/results.js", SCRIPT, include_str!("dashboard/results.js")),
    ("/running.js", SCRIPT, include_str!("dashboard/running.js")),
    ("/savings.js", SCRIPT, include_str!("dashboard/savings.js")),
    ("/search.js", SCRIPT, include_str!("dashboard/search.js")),
    ("/server.js", SCRIPT, include_str!("dashboard/server.js")),
    ("/undo.js", SCRIPT, include_str!("dashboard/undo.js")),
];

/// Only the server's own files, no inline code, no text parsed as markup, no requests elsewhere.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

pub(super) fn is_asset(route: &str) -> bool {
    ASSETS.iter().any(|(path, _, _)| *path == route)
}

pub(super) fn answer(kind: &'static str, content: &'static str) -> Response {
    let mut response = Response::new(Body::from(content));
    let headers: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows each occurrence of `before`, up to `end`.
    fn each<'a>(text: &'a str, before: &str, end: char) -> Vec<&'a str> {
        let rest = text.split(before).skip(1);
        rest.filter_map(|rest| rest.split(end).next()).collect()
    }

    #[test]
    fn everything_the_page_loads_is_served() {
        let mut loaded = 0;
        for (_, _, content) in ASSETS {
            for before in [
                "from \"",
                "src=\"",
                "<link rel=\"icon\" href=\"",
                "<link rel=\"stylesheet\" href=\"",
            ] {
                for path in each(content, before, '"') {
                    assert!(is_asset(path), "{path}");
                    loaded += 1;
                }
            }
        }
        assert!(loaded > ASSETS.len());
    }

    #[test]
    fn nothing_becomes_markup_or_comes_from_elsewhere() {
        for (path, _, content) in ASSETS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
            ] {
                assert!(!content.contains(word), "{word} in {path}");
            }
            for word in [
                " style=",
                " onclick=",
                " onload=",
                "<style",
                "@import",
                "url(",
            ] {
                assert!(!content.contains(word), "{word} in {path}");
            }
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("://"), "{path}");
        }
    }
}
