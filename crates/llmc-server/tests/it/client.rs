//! The other end of a connection in memory.

use llmc_server::{ConnectionEnd, ConnectionLimits, ServeError, serve};
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, SimplexStream,
        WriteHalf, simplex,
    },
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::handler::{Event, Probe};

/// A client of a server with the [`Probe`] handler.
pub(crate) struct Client {
    input: Option<WriteHalf<SimplexStream>>,
    output: Lines<BufReader<DuplexStream>>,
    pub(crate) server: JoinHandle<Result<ConnectionEnd, ServeError>>,
    pub(crate) stop: Option<oneshot::Sender<ConnectionEnd>>,
    pub(crate) probe: Probe,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
}

impl Client {
    pub(crate) fn start() -> Self {
        Self::with_options(ConnectionLimits::default())
    }

    pub(crate) fn with_options(options: ConnectionLimits) -> Self {
        let (probe, events) = Probe::new();
        let (server_input, input): (ReadHalf<SimplexStream>, _) = simplex(1 << 16);
        let (output, server_output) = tokio::io::duplex(1 << 16);
        let (stop, stopped) = oneshot::channel();
        let stop_signal = async move {
            match stopped.await {
                Ok(ended) => ended,
                Err(_) => std::future::pending().await,
            }
        };
        let server = tokio::spawn(serve(
            probe.clone(),
            server_input,
            server_output,
            stop_signal,
            options,
        ));
        Self {
            input: Some(input),
            output: BufReader::new(output).lines(),
            server,
            stop: Some(stop),
            probe,
            events,
        }
    }

    /// A client that has shaken hands at the given revision.
    pub(crate) async fn initialized(version: &str) -> Self {
        let mut client = Self::start();
        client
            .request(
                json!("init"),
                "initialize",
                json!({
                    "protocolVersion": version,
                    "capabilities": {},
                    "clientInfo": {"name": "test", "version": "0"},
                }),
            )
            .await;
        let answer = client.answer().await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        client
            .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        client
    }

    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("input is open");
        input.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn line(&mut self, line: &str) {
        self.bytes(line.as_bytes()).await;
        self.bytes(b"\n").await;
    }

    pub(crate) async fn request(&mut self, id: Value, method: &str, params: Value) {
        self.line(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
    }

    pub(crate) async fn call(&mut self, id: u64, tool: &str) {
        self.request(
            json!(id),
            "tools/call",
            json!({"name": tool, "arguments": {}}),
        )
        .await;
    }

    /// The next message from the server, whatever it is.
    pub(crate) async fn answer(&mut self) -> Value {
        let line = self.output.next_line().await.unwrap().expect("an answer");
        serde_json::from_str(&line).unwrap()
    }

    /// Asserts that the server still answers, and has nothing else to say.
    pub(crate) async fn is_alive(&mut self) {
        self.call(424_242, "echo").await;
        let answer = self.answer().await;
        assert_eq!(answer["id"], 424_242, "unexpected {answer}");
        assert_eq!(answer["result"]["content"][0]["text"], "{}");
    }

    /// The input for a task of its own, so that a write which has to wait does not keep the test.
    pub(crate) fn take_input(&mut self) -> WriteHalf<SimplexStream> {
        self.input.take().expect("input is open")
    }

    pub(crate) fn give_input(&mut self, input: WriteHalf<SimplexStream>) {
        self.input = Some(input);
    }

    pub(crate) async fn close_input(&mut self) {
        let mut input = self.input.take().expect("input is open");
        input.shutdown().await.unwrap();
    }

    /// Closes the input, and returns what the server still says and why it ended.
    pub(crate) async fn finish(mut self) -> (Vec<Value>, ConnectionEnd) {
        if self.input.is_some() {
            self.close_input().await;
        }
        let mut rest = Vec::new();
        while let Some(line) = self.output.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (rest, self.server.await.unwrap().unwrap())
    }

    /// Closes the output while the input stays open.
    pub(crate) fn close_output(&mut self) {
        let (closed, _) = tokio::io::duplex(1);
        self.output = BufReader::new(closed).lines();
    }
}
