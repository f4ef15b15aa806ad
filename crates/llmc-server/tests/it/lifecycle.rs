//! Running calls: progress, cancellation, and every way a connection ends.

use std::time::Duration;

use llmc_server::{ConnectionEnd, ConnectionLimits};
use serde_json::json;
use tokio::time::Instant;

use crate::{client::Client, handler::Event};

#[tokio::test]
async fn progress_comes_in_order_and_before_the_result() {
    for _ in 0..50 {
        let mut client = Client::start();
        let params = json!({"name": "progress", "_meta": {"progressToken": "t"}});
        client.request(json!(1), "tools/call", params).await;
        for step in 1..=3 {
            let message = client.answer().await;
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], "t");
            assert_eq!(message["params"]["progress"], f64::from(step));
            assert_eq!(message["params"]["total"], 3.0);
        }
        assert_eq!(
            client.answer().await["result"]["content"][0]["text"],
            "done"
        );
    }
}

#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let mut client = Client::start();
    client.call(1, "progress").await;
    assert_eq!(client.answer().await["id"], 1);
}

#[tokio::test]
async fn cancelling_stops_the_work_and_suppresses_the_answer() {
    let mut client = Client::initialized("2025-11-25").await;
    client.call(1, "wait").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"test"}}"#)
        .await;
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    client.is_alive().await;
    let (rest, ended) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(ended, ConnectionEnd::InputClosed);
}

#[tokio::test]
async fn one_call_can_be_cancelled_among_others() {
    let mut client = Client::start();
    client.call(1, "wait").await;
    client.call(2, "gate").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    client.probe.gate.add_permits(1);
    let answer = client.answer().await;
    assert_eq!(answer["id"], 2);
    assert_eq!(answer["result"]["content"][0]["text"], "opened");
}

#[tokio::test(start_paused = true)]
async fn requests_read_before_the_end_of_input_are_answered() {
    let mut client = Client::start();
    for id in 0..100 {
        client.call(id, "echo").await;
    }
    client.call(100, "gate").await;
    client.close_input().await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.probe.gate.add_permits(1);
    let began = Instant::now();
    let (answers, ended) = client.finish().await;
    assert_eq!(ended, ConnectionEnd::InputClosed);
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing to wait for");
    let mut ids: Vec<_> = answers.iter().map(|a| a["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..=100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn calls_that_outlast_the_end_of_input_are_cancelled_without_an_answer() {
    let mut client = Client::start();
    client.call(1, "wait").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    let began = Instant::now();
    client.close_input().await;
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    let (answers, ended) = client.finish().await;
    assert_eq!(ended, ConnectionEnd::InputClosed);
    assert!(answers.is_empty(), "{answers:?}");
    assert!(began.elapsed() >= ConnectionLimits::default().drain);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ignores_its_cancellation_does_not_keep_the_server() {
    let mut client = Client::start();
    client.call(1, "stubborn").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.close_input().await;
    let began = Instant::now();
    let ended = (&mut client.server).await.unwrap().unwrap();
    assert_eq!(ended, ConnectionEnd::InputClosed);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_does_not_block_the_servers_shutdown() {
    let mut client = Client::start();
    let payload = json!({"name": "echo", "arguments": {"p": "x".repeat(1 << 20)}});
    client.request(json!(1), "tools/call", payload).await;
    client.close_input().await;
    let began = Instant::now();
    let ended = (&mut client.server).await.unwrap().unwrap();
    assert_eq!(ended, ConnectionEnd::InputClosed);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn an_empty_input_ends_the_server() {
    let (answers, ended) = Client::start().finish().await;
    assert!(answers.is_empty());
    assert_eq!(ended, ConnectionEnd::InputClosed);
}

#[tokio::test]
async fn a_closed_output_ends_the_server_quietly() {
    let mut client = Client::initialized("2025-11-25").await;
    client.call(1, "wait").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.close_output();
    client.call(2, "echo").await;
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    assert_eq!(
        client.server.await.unwrap().unwrap(),
        ConnectionEnd::OutputClosed
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_cancels_at_once() {
    for ended in [ConnectionEnd::Signal, ConnectionEnd::ParentGone] {
        let mut client = Client::start();
        client.call(1, "wait").await;
        assert_eq!(client.events.recv().await, Some(Event::Started));
        let began = Instant::now();
        client.stop.take().unwrap().send(ended).unwrap();
        assert_eq!(client.events.recv().await, Some(Event::Cancelled));
        assert_eq!((&mut client.server).await.unwrap().unwrap(), ended);
        assert!(began.elapsed() <= ConnectionLimits::default().grace);
    }
}

#[tokio::test]
async fn a_panic_is_answered_and_the_server_goes_on() {
    let mut client = Client::start();
    client.call(1, "panic").await;
    let answer = client.answer().await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    client.is_alive().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_subscription_does_not_hold_up_the_end() {
    let mut client = Client::start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    client
        .request(json!(1), "subscriptions/listen", params)
        .await;
    let acknowledged = client.answer().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let began = Instant::now();
    let (rest, ended) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(ended, ConnectionEnd::InputClosed);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
