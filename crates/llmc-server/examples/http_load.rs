//! Load for HTTP servers, and the bare server to compare them with. What `bench/serve.py` measures with.
//!
//! ```text
//! http_load bare                                a bare axum handler; prints its URL, ends with its standard input
//! http_load closed URL SECONDS CONNECTIONS      each connection asks again when it is answered
//! http_load open URL SECONDS RPS CONNECTIONS    requests at fixed moments, whatever the answers do
//! http_load slow URL COUNT                      connections that never finish their request; prints a line when all
//!                                               are open, ends with its standard input
//! http_load leave URL COUNT AT_ONCE             connections that are closed while their request is worked on
//! ```
//!
//! Requests are taken from the environment: `TOKEN`, and `BODY`, which makes them POSTs. Results are one line of JSON.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// As long as an answer of `GET /health` is.
const BARE: &str = r#"{"ok":true,"version":"v0","confinement":"landlock=7,userns,mntns,pidns,seccomp","profile":"unrestricted","index":"none"}"#;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["bare"] => return bare().await,
        ["slow", url, count] => return slow(&Target::new(url)?, count.parse()?).await,
        ["closed", url, seconds, connections] => {
            closed(Target::new(url)?, seconds.parse()?, connections.parse()?).await?
        }
        ["open", url, seconds, rps, connections] => {
            let target = Target::new(url)?;
            open(target, seconds.parse()?, rps.parse()?, connections.parse()?).await?
        }
        ["leave", url, count, at_once] => {
            leave(Target::new(url)?, count.parse()?, at_once.parse()?).await?
        }
        _ => return Err("see the head of this file for how to call it".into()),
    };
    say(&result.to_string())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Where requests go, and the request itself.
#[derive(Clone)]
struct Target {
    address: String,
    request: Arc<[u8]>,
}

impl Target {
    fn new(url: &str) -> Result<Target> {
        let rest = url
            .strip_prefix("http://")
            .ok_or("the URL must be plain HTTP")?;
        let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
        let body = std::env::var("BODY").unwrap_or_default();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let token = std::env::var("TOKEN").unwrap_or_default();
        let request = format!(
            "{method} /{path} HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Target {
            address: address.to_owned(),
            request: request.into_bytes().into(),
        })
    }

    async fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    /// One request and its answer's status.
    async fn ask(&self, stream: &mut BufReader<TcpStream>) -> Result<u16> {
        stream.get_mut().write_all(&self.request).await?;
        let (mut status, mut length) = (0, 0);
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if status == 0 {
                status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
            } else if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Ok(status)
    }
}

/// What was measured.
#[derive(Default)]
struct Seen {
    micros: Vec<u64>,
    statuses: BTreeMap<u16, u64>,
    /// How many of each status in each second.
    seconds: BTreeMap<u64, BTreeMap<u16, u64>>,
}

impl Seen {
    fn add(&mut self, status: u16, took: Duration, second: u64) {
        self.micros
            .push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        *self.statuses.entry(status).or_default() += 1;
        *self
            .seconds
            .entry(second)
            .or_default()
            .entry(status)
            .or_default() += 1;
    }

    fn join(&mut self, other: Seen) {
        self.micros.extend(other.micros);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (second, statuses) in other.seconds {
            for (status, count) in statuses {
                *self
                    .seconds
                    .entry(second)
                    .or_default()
                    .entry(status)
                    .or_default() += count;
            }
        }
    }

    fn document(mut self, took: Duration) -> Value {
        self.micros.sort_unstable();
        let quantile = |share: f64| {
            let last = self.micros.len().saturating_sub(1);
            let at = ((self.micros.len() as f64 * share).ceil() as usize).saturating_sub(1);
            self.micros
                .get(at.min(last))
                .map(|micros| *micros as f64 / 1000.0)
        };
        json!({
            "requests": self.micros.len(),
            "rps": self.micros.len() as f64 / took.as_secs_f64(),
            "p50_ms": quantile(0.5), "p95_ms": quantile(0.95), "p99_ms": quantile(0.99),
            "statuses": self.statuses,
            "seconds": self.seconds,
        })
    }
}

async fn closed(target: Target, seconds: u64, connections: usize) -> Result<Value> {
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let target = target.clone();
            tokio::spawn(async move {
                let mut seen = Seen::default();
                let mut stream = target.connect().await?;
                while Instant::now() < until {
                    let asked = Instant::now();
                    let status = target.ask(&mut stream).await?;
                    seen.add(status, asked.elapsed(), (asked - started).as_secs());
                }
                Result::Ok(seen)
            })
        })
        .collect();
    collect(tasks, started).await
}

async fn open(target: Target, seconds: u64, rps: u64, connections: usize) -> Result<Value> {
    let started = Instant::now();
    let total = seconds * rps;
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (target, next) = (target.clone(), next.clone());
            tokio::spawn(async move {
                let mut seen = Seen::default();
                let mut stream = target.connect().await?;
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= total {
                        return Result::Ok(seen);
                    }
                    // Late answers count from when they were due, so a stalled server cannot hide behind a
                    // client that waits for it.
                    let due = started + Duration::from_nanos(turn * 1_000_000_000 / rps);
                    sleep_until(due).await;
                    let status = target.ask(&mut stream).await?;
                    seen.add(status, due.elapsed(), (due - started).as_secs());
                }
            })
        })
        .collect();
    collect(tasks, started).await
}

async fn collect(
    tasks: Vec<tokio::task::JoinHandle<Result<Seen>>>,
    started: Instant,
) -> Result<Value> {
    let mut all = Seen::default();
    for task in tasks {
        all.join(task.await??);
    }
    Ok(all.document(started.elapsed()))
}

async fn slow(target: &Target, count: usize) -> Result<()> {
    let head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = target.connect().await?;
        stream.get_mut().write_all(head).await?;
        streams.push(stream);
    }
    say("open")?;
    let drip = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            for stream in &mut streams {
                // One that the server has given up on is opened again: the attack goes on.
                if stream.get_mut().write_all(b"x").await.is_err()
                    && let Ok(mut again) = target.connect().await
                {
                    let _ = again.get_mut().write_all(head).await;
                    *stream = again;
                }
            }
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = drip => {}
        _ = read_stdin(&mut rest) => {}
    }
    Ok(())
}

async fn leave(target: Target, count: u64, at_once: usize) -> Result<Value> {
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let (target, next) = (target.clone(), next.clone());
            tokio::spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let mut stream = target.connect().await?;
                    // Nearly all go while the work goes on, a few before it has begun.
                    let patience = Duration::from_millis(next.load(Ordering::Relaxed) % 40);
                    let _ = timeout(patience, target.ask(&mut stream)).await;
                }
                Result::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(json!({"left": count}))
}

async fn bare() -> Result<()> {
    let headers = [("content-type", "application/json")];
    let app = Router::new().route(
        "/",
        get(async move || (headers, BARE)).post(async move || (headers, BARE)),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&format!("http://{}", listener.local_addr()?))?;
    let mut rest = Vec::new();
    tokio::select! {
        served = axum::serve(listener, app).into_future() => Ok(served?),
        _ = read_stdin(&mut rest) => Ok(()),
    }
}

async fn read_stdin(rest: &mut Vec<u8>) -> std::io::Result<usize> {
    tokio::io::stdin().read_to_end(rest).await
}
