//! Clients that ask for more than they take.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use llmc_server::{ConnectionEnd, ConnectionLimits};
use serde_json::json;
use tokio::{
    io::{AsyncWriteExt, SimplexStream, WriteHalf},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{client::Client, handler::Event};

/// The buffers of the pipes in memory and of the reader, generously.
const PIPES: usize = 512 << 10;

/// With the clock paused, this is over as soon as nothing moves any more.
const LONG: Duration = Duration::from_secs(60);

/// Writes lines until all are taken, and counts the bytes that were.
fn flood(
    mut input: WriteHalf<SimplexStream>,
    lines: Vec<String>,
) -> (
    Arc<AtomicUsize>,
    JoinHandle<Option<WriteHalf<SimplexStream>>>,
) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let task = tokio::spawn(async move {
        for line in lines {
            for part in line.as_bytes().chunks(4096) {
                input.write_all(part).await.ok()?;
                count.fetch_add(part.len(), Ordering::Relaxed);
            }
        }
        Some(input)
    });
    (taken, task)
}

fn echo(id: u64, bytes: usize) -> String {
    let params = json!({"name": "echo", "arguments": {"p": "x".repeat(bytes)}});
    let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    format!("{line}\n")
}

#[tokio::test(start_paused = true)]
async fn input_waits_while_a_client_does_not_read() {
    let options = ConnectionLimits {
        max_queued: 1 << 20,
        max_calls: 4,
        ..ConnectionLimits::default()
    };
    let mut client = Client::with_options(options.clone());
    let lines: Vec<String> = (0..400).map(|id| echo(id, 64 << 10)).collect();
    let one = lines[399].len();
    let (taken, writing) = flood(client.take_input(), lines);
    sleep(LONG).await;
    let stalled = taken.load(Ordering::Relaxed);
    // Echoes are as long as what they repeat, so what was taken is what is queued.
    let limit = options.max_queued + (options.max_calls + 2) * one + PIPES;
    assert!(stalled > options.max_queued, "{stalled}");
    assert!(stalled < limit, "{stalled} of {limit}");
    sleep(LONG).await;
    assert_eq!(taken.load(Ordering::Relaxed), stalled, "and stays there");
    // Once it reads, everything is answered.
    let mut ids = BTreeSet::new();
    for _ in 0..400 {
        ids.insert(client.answer().await["id"].as_u64().unwrap());
    }
    assert_eq!(ids, (0..400).collect());
    client.give_input(writing.await.unwrap().unwrap());
    client.is_alive().await;
    assert_eq!(client.finish().await, (vec![], ConnectionEnd::InputClosed));
}

#[tokio::test(start_paused = true)]
async fn junk_waits_while_a_client_does_not_read() {
    let options = ConnectionLimits {
        max_queued: 64 << 10,
        ..ConnectionLimits::default()
    };
    let mut client = Client::with_options(options);
    let (taken, writing) = flood(client.take_input(), vec!["junk\n".to_owned(); 1_000_000]);
    sleep(LONG).await;
    let stalled = taken.load(Ordering::Relaxed);
    assert!(stalled < PIPES, "{stalled}");
    client.close_output();
    let ended = timeout(LONG, &mut client.server).await.unwrap();
    assert_eq!(ended.unwrap().unwrap(), ConnectionEnd::OutputClosed);
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_run_at_once() {
    let mut client = Client::with_options(ConnectionLimits {
        max_calls: 3,
        ..ConnectionLimits::default()
    });
    for id in 0..3 {
        client.call(id, "gate").await;
        assert_eq!(client.events.recv().await, Some(Event::Started));
    }
    // What wants no answer is taken all the same, and a cancelled call makes room.
    client
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    client.call(3, "gate").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.call(4, "echo").await;
    assert!(timeout(LONG, client.answer()).await.is_err(), "it waits");
    client.probe.gate.add_permits(1);
    let mut ids = BTreeSet::new();
    for _ in 0..4 {
        ids.insert(client.answer().await["id"].as_u64().unwrap());
    }
    assert_eq!(ids, BTreeSet::from([0, 2, 3, 4]));
}

#[tokio::test(start_paused = true)]
async fn control_messages_do_not_wait_for_calls() {
    let mut client = Client::with_options(ConnectionLimits {
        max_calls: 2,
        ..ConnectionLimits::default()
    });
    for id in 0..2 {
        client.call(id, "gate").await;
        assert_eq!(client.events.recv().await, Some(Event::Started));
    }
    for id in 2..20 {
        client.call(id, "echo").await;
    }
    client.request(json!("p"), "ping", json!({})).await;
    let pong = json!({"jsonrpc": "2.0", "id": "p", "result": {}});
    assert_eq!(client.answer().await, pong);
    client.call(3, "echo").await;
    let refusal = client.answer().await;
    assert_eq!(refusal["error"]["code"], -32600, "its id waits: {refusal}");
    // A waiting call is cancelled as well as one in work.
    for id in [0, 7] {
        let params = json!({"requestId": id});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        client.line(&cancel.to_string()).await;
    }
    assert_eq!(client.events.recv().await, Some(Event::Cancelled));
    let mut ids = BTreeSet::new();
    for _ in 0..17 {
        ids.insert(client.answer().await["id"].as_u64().unwrap());
    }
    let expected = (2..20).filter(|id| *id != 7).collect();
    assert_eq!(ids, expected, "in the room that the cancelled call left");
    client.probe.gate.add_permits(1);
    assert_eq!(client.answer().await["id"], 1);
    assert_eq!(client.finish().await, (vec![], ConnectionEnd::InputClosed));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_requests_wait() {
    let mut client = Client::with_options(ConnectionLimits {
        max_calls: 1,
        max_waiting: 2,
        ..ConnectionLimits::default()
    });
    client.call(0, "gate").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    for id in 1..4 {
        client.call(id, "echo").await;
    }
    let refusal = client.answer().await;
    assert_eq!(refusal["id"], 3);
    assert_eq!(refusal["error"]["code"], -32000, "{refusal}");
    let message = "2 requests are waiting: try again when some are answered";
    assert_eq!(refusal["error"]["message"], message);
    client.probe.gate.add_permits(1);
    for id in 0..3 {
        assert_eq!(client.answer().await["id"], id);
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_much_text_waits() {
    let mut client = Client::with_options(ConnectionLimits {
        max_call_bytes: 100 << 10,
        ..ConnectionLimits::default()
    });
    client.call(0, "gate").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.bytes(echo(1, 200 << 10).as_bytes()).await;
    client.bytes(echo(2, 10 << 10).as_bytes()).await;
    let refusal = client.answer().await;
    assert_eq!(refusal["id"], 2, "one alone may be larger, but not two");
    assert_eq!(refusal["error"]["code"], -32000, "{refusal}");
    client.probe.gate.add_permits(1);
    assert_eq!(client.answer().await["id"], 0);
    assert_eq!(client.answer().await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_counts_until_it_has_stopped() {
    let mut client = Client::with_options(ConnectionLimits {
        max_calls: 1,
        ..ConnectionLimits::default()
    });
    client.call(1, "stubborn").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    client.call(2, "echo").await;
    assert!(timeout(LONG, client.answer()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn only_so_much_request_text_is_in_work_at_once() {
    let mut client = Client::with_options(ConnectionLimits {
        max_call_bytes: 100 << 10,
        ..ConnectionLimits::default()
    });
    client.call(1, "gate").await;
    assert_eq!(client.events.recv().await, Some(Event::Started));
    client.bytes(echo(2, 50 << 10).as_bytes()).await;
    assert_eq!(client.answer().await["id"], 2, "there is room for this");
    client.bytes(echo(3, 110 << 10).as_bytes()).await;
    assert!(
        timeout(LONG, client.answer()).await.is_err(),
        "not for this"
    );
    client.probe.gate.add_permits(1);
    assert_eq!(client.answer().await["id"], 1);
    assert_eq!(client.answer().await["id"], 3, "alone it may be larger");
}

#[tokio::test]
async fn subscriptions_are_counted() {
    let mut client = Client::start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    for id in 0..17 {
        let method = "subscriptions/listen";
        client.request(json!(id), method, params.clone()).await;
        let answer = client.answer().await;
        assert_eq!(
            answer["error"]["code"] == -32600,
            id == 16,
            "{id}: {answer}"
        );
    }
}
