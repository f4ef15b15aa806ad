//! The fixture over the SDK's Streamable HTTP, every body checked as every line is.

use std::io::Write;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{Method, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use llmc_server::{
    ConnectionLimits,
    json::{MessageRefusal, inspect},
};
use rmcp::{
    model::ErrorCode,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::handler::Fixture;

/// Serves loopback until standard input ends; the URL is the only thing on standard output.
pub(crate) async fn serve() -> std::io::Result<()> {
    let fixture = Fixture::default();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*"]);
    let cancel = config.cancellation_token.clone();
    let service = StreamableHttpService::new(
        move || Ok(fixture.clone()),
        LocalSessionManager::default().into(),
        config,
    );
    let app = Router::new()
        .nest_service("/mcp", service)
        .layer(from_fn(check_body));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "http://{}/mcp", listener.local_addr()?)?;
    out.flush()?;
    let stop = async move {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
        cancel.cancel();
    };
    tokio::select! {
        result = axum::serve(listener, app).into_future() => result,
        () = stop => Ok(()),
    }
}

/// Refuses what the line transport would refuse.
async fn check_body(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let limit = ConnectionLimits::default().max_line;
    let Ok(bytes) = to_bytes(body, limit).await else {
        let message = format!("body longer than {limit} bytes");
        let refusal = MessageRefusal::anonymous(ErrorCode::PARSE_ERROR, message);
        return refused(StatusCode::PAYLOAD_TOO_LARGE, &refusal);
    };
    match inspect(&bytes) {
        Ok(_) => {
            let request = Request::from_parts(parts, Body::from(bytes));
            next.run(request).await
        }
        Err(refusal) => refused(StatusCode::BAD_REQUEST, &refusal),
    }
}

fn refused(status: StatusCode, refusal: &MessageRefusal) -> Response {
    let body = refusal.response().map(|body| body.to_string());
    let headers = [(CONTENT_TYPE, "application/json")];
    (status, headers, body.unwrap_or_default()).into_response()
}
