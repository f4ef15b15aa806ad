//! Calls to a scripted model server in the three providers' protocols, with every kind of failure.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use llmc_model::{
    ApiKeys, ChatMessage, ChatReply, ChatRequest, ChatRole, EgressPolicy, EgressProfile, Error,
    HostLookup, Ledger, ModelClient, Price, RetryPolicy, Route, SpendingCaps, TokenUsage,
    system_lookup,
};
use llmc_testkit::{ModelAction, ModelServer};

const PRICE: Price = Price::new(1.0, 0.5, 10.0);

fn policy(profile: EgressProfile) -> EgressPolicy {
    EgressPolicy {
        profile,
        allowed_models: Some(vec![
            "ollama/".into(),
            "openai/".into(),
            "anthropic/".into(),
        ]),
        allowed_hosts: Vec::new(),
    }
}

async fn route(server: &ModelServer, model: &str) -> Route {
    policy(EgressProfile::Restricted)
        .admit(
            &model.parse().unwrap(),
            Some(&server.url()),
            Some(PRICE),
            &system_lookup(),
        )
        .await
        .unwrap()
}

fn client() -> ModelClient {
    ModelClient {
        keys: ApiKeys::from(|name| (name != "X").then(|| format!("key-of-{name}"))),
        retries: RetryPolicy {
            max_attempts: 4,
            first_pause: Duration::from_millis(1),
            max_pause: Duration::from_millis(4),
        },
    }
}

fn request() -> ChatRequest {
    ChatRequest {
        system: "Be brief.".into(),
        messages: vec![ChatMessage {
            role: ChatRole::User,
            text: "How many?".into(),
        }],
        max_output_tokens: 100,
        min_output_tokens: 10,
    }
}

fn ledger() -> Ledger {
    Ledger::new(SpendingCaps {
        usd: 1.0,
        tokens: 100_000,
    })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn ask(server: &ModelServer, model: &str, ledger: &Ledger) -> Result<ChatReply, Error> {
    let route = route(server, model).await;
    client().chat(&route, &request(), ledger, soon()).await
}

#[tokio::test]
async fn each_provider_is_asked_in_its_own_language() {
    let server = ModelServer::start(|_| ModelAction::SayCounting("Three.".into(), [40, 2, 30]));
    let books = ledger();
    for (model, path, cached) in [
        ("ollama/m", "/api/chat", 0),
        ("openai/m", "/chat/completions", 30),
        ("anthropic/m", "/v1/messages", 30),
    ] {
        let reply = ask(&server, model, &books).await.unwrap();
        assert_eq!(reply.text, "Three.");
        assert!(!reply.truncated);
        let usage = TokenUsage {
            input: 40,
            output: 2,
            cached,
        };
        assert_eq!(reply.usage, Some(usage), "{model}");
        let asked = server.requests().pop().unwrap();
        assert_eq!(asked.path, path);
        assert_eq!(asked.model(), "m");
        assert_eq!(asked.system(), "Be brief.");
        assert_eq!(asked.prompt(), "How many?");
    }
    let asked = server.requests();
    assert_eq!(asked[0].body["stream"], false);
    assert_eq!(asked[0].body["options"]["num_predict"], 100);
    assert_eq!(asked[0].body["options"]["num_ctx"], 8192);
    assert_eq!(asked[1].body["max_tokens"], 100);
    assert_eq!(asked[2].body["max_tokens"], 100);
    assert_eq!(asked[2].headers["anthropic-version"], "2023-06-01");
    // Each key goes to its own provider and nowhere else.
    assert!(!asked[0].raw.contains("key-of") && !asked[0].headers.contains_key("authorization"));
    assert_eq!(
        asked[1].headers["authorization"],
        "Bearer key-of-OPENAI_API_KEY"
    );
    assert_eq!(asked[2].headers["x-api-key"], "key-of-ANTHROPIC_API_KEY");
    assert!(!asked[2].headers.contains_key("authorization"));
    let spent = books.report();
    assert_eq!(spent.by_model.len(), 3);
    assert_eq!((spent.total.calls, spent.total.tokens_in), (3, 120));
}

#[tokio::test]
async fn answers_that_were_cut_say_so_and_missing_usage_counts_as_reserved() {
    for model in ["ollama/m", "openai/m", "anthropic/m"] {
        let server = ModelServer::saying([
            ModelAction::Cut("Thr".into()),
            ModelAction::SayUncounted("Three.".into()),
        ]);
        assert!(
            ask(&server, model, &ledger()).await.unwrap().truncated,
            "{model}"
        );
        let books = ledger();
        assert_eq!(ask(&server, model, &books).await.unwrap().usage, None);
        assert_eq!(books.report().total.tokens_out, 100, "{model}");
    }
}

#[tokio::test]
async fn busy_and_broken_providers_are_asked_again() {
    let server = ModelServer::saying([
        ModelAction::Busy(0),
        ModelAction::Status(503, String::new()),
        ModelAction::Status(529, "{}".into()),
        ModelAction::Say("Three.".into()),
    ]);
    let books = ledger();
    let reply = ask(&server, "openai/m", &books).await.unwrap();
    assert_eq!(reply.text, "Three.");
    assert_eq!(server.requests().len(), 4);
    // What the provider refused costs nothing.
    let total = books.report().total;
    assert_eq!((total.calls, total.unconfirmed_calls), (1, 0));
}

#[tokio::test]
async fn retries_end_after_so_many_and_before_the_deadline() {
    let server =
        ModelServer::start(|_| ModelAction::Status(500, "{\"error\":\"out of order\"}".into()));
    let failed = ask(&server, "ollama/m", &ledger()).await.unwrap_err();
    assert_eq!(server.requests().len(), 4);
    assert!(failed.to_string().contains("500: out of order"), "{failed}");
    // Asked to wait longer than there is time, it does not even begin to.
    let server = ModelServer::start(|_| ModelAction::Busy(3600));
    let failed = ask(&server, "openai/m", &ledger()).await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
    assert!(matches!(
        failed,
        Error::Provider {
            retryable: true,
            ..
        }
    ));
}

#[tokio::test]
async fn refusals_are_final() {
    for (status, word) in [
        (400, "400"),
        (401, "OPENAI_API_KEY"),
        (404, "no such model"),
    ] {
        let server = ModelServer::start(move |_| ModelAction::Status(status, "{}".into()));
        let failed = ask(&server, "openai/m", &ledger()).await.unwrap_err();
        assert_eq!(server.requests().len(), 1);
        assert!(failed.to_string().contains(word), "{failed}");
        assert!(!failed.to_string().contains("key-of"), "{failed}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_paid_for_and_asked_for_again() {
    for lost in [ModelAction::Die, ModelAction::Truncated] {
        let server =
            ModelServer::saying([lost, ModelAction::SayCounting("Three.".into(), [20, 2, 0])]);
        let books = ledger();
        assert_eq!(
            ask(&server, "openai/m", &books).await.unwrap().text,
            "Three."
        );
        let total = books.report().total;
        assert_eq!((total.calls, total.unconfirmed_calls), (1, 1));
        assert_eq!(total.tokens_out, 102);
    }
}

#[tokio::test]
async fn an_unreadable_answer_is_an_error_and_is_billed() {
    for play in [
        ModelAction::Garbage,
        ModelAction::Status(200, "[]".into()),
        ModelAction::Status(200, "{\"choices\":[]}".into()),
    ] {
        let server = ModelServer::saying([play]);
        let books = ledger();
        let failed = ask(&server, "openai/m", &books).await.unwrap_err();
        assert!(matches!(failed, Error::Provider { .. }), "{failed}");
        assert_eq!(books.report().total.unconfirmed_calls, 1);
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = ModelServer::start(|_| ModelAction::Say("stolen".into()));
    let to = format!("{}/api/chat", elsewhere.url());
    let server = ModelServer::start(move |_| ModelAction::Redirect(to.clone()));
    let failed = ask(&server, "ollama/m", &ledger()).await.unwrap_err();
    assert!(failed.to_string().contains("redirects"), "{failed}");
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_silent_provider_times_out() {
    let server = ModelServer::start(|_| ModelAction::Hang);
    let route = route(&server, "ollama/m").await;
    let books = ledger();
    let deadline = Instant::now() + Duration::from_millis(100);
    let failed = client().chat(&route, &request(), &books, deadline).await;
    assert_eq!(failed, Err(Error::TimedOut));
    server.wait_for_hang_ups(1);
    assert_eq!(books.report().total.unconfirmed_calls, 1);
}

#[tokio::test]
async fn whoever_stops_waiting_hangs_up() {
    let server = ModelServer::start(|_| ModelAction::Hang);
    let route = route(&server, "ollama/m").await;
    let task = tokio::spawn(async move {
        let books = ledger();
        let _ = client().chat(&route, &request(), &books, soon()).await;
    });
    let waiting = tokio::task::spawn_blocking(move || {
        server.wait_for(1);
        server
    });
    let server = waiting.await.unwrap();
    task.abort();
    tokio::task::spawn_blocking(move || server.wait_for_hang_ups(1))
        .await
        .unwrap();
}

#[tokio::test]
async fn nothing_is_sent_that_the_ledger_does_not_cover() {
    let server = ModelServer::start(|_| ModelAction::Say("Three.".into()));
    let books = Ledger::new(SpendingCaps {
        usd: 0.000_01,
        tokens: 100_000,
    });
    let failed = ask(&server, "openai/m", &books).await.unwrap_err();
    assert!(matches!(failed, Error::Budget { .. }), "{failed}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_dead_provider_is_an_error() {
    let url = ModelServer::start(|_| ModelAction::Die).url();
    let route = policy(EgressProfile::Restricted)
        .admit(
            &"ollama/m".parse().unwrap(),
            Some(&url),
            Some(PRICE),
            &system_lookup(),
        )
        .await
        .unwrap();
    // The listener of a dropped server may take one more connection; an unbound port refuses for certain.
    let books = ledger();
    let failed = client().chat(&route, &request(), &books, soon()).await;
    assert!(matches!(
        failed,
        Err(Error::Provider {
            retryable: true,
            ..
        })
    ));
}

#[tokio::test]
async fn a_key_never_travels_in_the_clear() {
    let lookup: HostLookup = Arc::new(|_, port| Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))]));
    let route = policy(EgressProfile::Unrestricted)
        .admit(
            &"openai/m".parse().unwrap(),
            Some("http://models.example"),
            Some(PRICE),
            &lookup,
        )
        .await
        .unwrap();
    let failed = client().chat(&route, &request(), &ledger(), soon()).await;
    assert!(matches!(failed, Err(Error::Egress { .. })), "{failed:?}");
}

#[tokio::test]
async fn a_changed_dns_answer_has_no_effect() {
    let server = ModelServer::start(|_| ModelAction::Say("Three.".into()));
    let (port, asked) = (server.address().port(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let lookup: HostLookup = Arc::new(move |_, port| {
        let host = match count.fetch_add(1, Ordering::Relaxed) {
            0 => [127, 0, 0, 1],
            _ => [192, 0, 2, 1],
        };
        Ok(vec![SocketAddr::from((host, port))])
    });
    let url = format!("http://localhost:{port}");
    let model = "ollama/m".parse().unwrap();
    let local = policy(EgressProfile::Restricted);
    let route = local
        .admit(&model, Some(&url), Some(PRICE), &lookup)
        .await
        .unwrap();
    for _ in 0..3 {
        let reply = client().chat(&route, &request(), &ledger(), soon()).await;
        assert_eq!(reply.unwrap().text, "Three.");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let again = local.admit(&model, Some(&url), Some(PRICE), &lookup).await;
    assert!(matches!(again, Err(Error::Egress { .. })));
}

#[tokio::test]
async fn texts_become_vectors_in_order() {
    let vectors = vec![vec![1.0, 2.0], vec![3.0, 4.0]];
    let texts = ["a".to_owned(), "b".to_owned()];
    for (model, path) in [("ollama/e", "/api/embed"), ("openai/e", "/embeddings")] {
        let played = vectors.clone();
        let server = ModelServer::start(move |_| ModelAction::Vectors(played.clone()));
        let route = route(&server, model).await;
        let client = client();
        assert_eq!(client.embed(&route, &texts, soon()).await.unwrap(), vectors);
        assert_eq!(server.requests()[0].path, path);
        let too_many = client.embed(&route, &texts[..1], soon()).await;
        assert!(too_many.is_err(), "{too_many:?}");
    }
    let server = ModelServer::start(|_| ModelAction::Die);
    let route = route(&server, "anthropic/e").await;
    assert!(client().embed(&route, &texts, soon()).await.is_err());
    assert_eq!(server.requests().len(), 0);
}
