//! A scripted model: one loopback server that speaks the wire protocols of Ollama, OpenAI and Anthropic.
//!
//! A test passes a function from request to action and afterwards inspects every request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::process::TEST_TIMEOUT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `/api/chat`, `/api/embed`
    Ollama,
    /// `/chat/completions`, `/embeddings`
    OpenAi,
    /// `/v1/messages`
    Anthropic,
}

#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Position among all requests, from 0.
    pub number: usize,
    pub protocol: Protocol,
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub raw: String,
    pub body: Value,
}

impl ModelRequest {
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    pub fn system(&self) -> String {
        let first = &self.body["messages"][0];
        let system = if first["role"] == "system" {
            &first["content"]
        } else {
            &self.body["system"]
        };
        system.as_str().unwrap_or_default().to_owned()
    }

    /// The last user message.
    pub fn prompt(&self) -> &str {
        let messages = self.body["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str())
            .unwrap_or_default()
    }

    /// Number of assistant messages in the conversation.
    pub fn turns(&self) -> usize {
        let messages = self.body["messages"].as_array();
        messages.map_or(0, |messages| {
            let said = messages.iter().filter(|one| one["role"] == "assistant");
            said.count()
        })
    }

    /// Tokens of all messages and the system prompt.
    pub fn tokens(&self) -> usize {
        let messages = self.body["messages"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let texts = messages.iter().filter_map(|one| one["content"].as_str());
        let system = self.body["system"].as_str();
        texts.chain(system).map(llmc_tokens::count).sum()
    }
}

#[derive(Debug, Clone)]
pub enum ModelAction {
    /// Answers, with usage by the real tokenizer.
    Say(String),
    /// Answers with these figures for input, output and cached tokens.
    SayCounting(String, [u64; 3]),
    /// Answers without usage figures.
    SayUncounted(String),
    /// Answers with the stop reason of a reached token limit.
    Cut(String),
    /// Fails with this status and body.
    Status(u16, String),
    /// Fails with 429 and `Retry-After` in seconds.
    Busy(u64),
    /// Answers with something that is no JSON.
    Garbage,
    /// Announces more bytes than it sends, then closes the connection.
    Truncated,
    /// Closes the connection without an answer.
    Die,
    /// Redirects the client.
    Redirect(String),
    /// Sends nothing until the client closes the connection.
    Hang,
    /// Waits until so many requests wait together, then goes on.
    Together(usize, Box<ModelAction>),
    /// Answers with these vectors.
    Vectors(Vec<Vec<f32>>),
}

impl ModelAction {
    /// An answer with one block of code.
    pub fn code(code: &str) -> ModelAction {
        ModelAction::Say(format!("I look.\n```python\n{code}\n```\n"))
    }
}

type ModelScript = dyn Fn(&ModelRequest) -> ModelAction + Send + Sync;

#[derive(Default)]
struct ModelState {
    requests: Vec<ModelRequest>,
    together: usize,
    hung_up: usize,
}

struct ModelShared {
    script: Box<ModelScript>,
    state: Mutex<ModelState>,
    changed: Condvar,
    closing: AtomicBool,
}

/// The scripted model on a free port of loopback. Ends when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<ModelShared>,
}

impl std::fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelServer").field(&self.address).finish()
    }
}

impl ModelServer {
    /// Starts a server that takes the action this function returns for each request.
    pub fn start(
        script: impl Fn(&ModelRequest) -> ModelAction + Send + Sync + 'static,
    ) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ModelShared {
            script: Box::new(script),
            state: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.closing.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, stream) = (serving.clone(), stream.unwrap());
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        ModelServer { address, shared }
    }

    /// Starts a server that takes these actions one after the other and then fails.
    pub fn saying(plays: impl IntoIterator<Item = ModelAction>) -> ModelServer {
        let plays: Vec<ModelAction> = plays.into_iter().collect();
        ModelServer::start(move |request| {
            let play = plays.get(request.number).cloned();
            play.unwrap_or_else(|| {
                ModelAction::Status(400, "{\"error\":\"the script is over\"}".into())
            })
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address for a protocol.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Waits for this number of requests.
    pub fn wait_for(&self, count: usize) {
        self.shared.wait(|state| state.requests.len() >= count);
    }

    /// Waits until this number of hanging clients have closed their connections.
    pub fn wait_for_hang_ups(&self, count: usize) {
        self.shared.wait(|state| state.hung_up >= count);
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl ModelShared {
    fn wait(&self, done: impl Fn(&ModelState) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        let mut state = self.state.lock().unwrap();
        while !done(&state) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the scripted model timed out");
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some(mut request) = read(&stream) else {
            return;
        };
        {
            let mut state = self.state.lock().unwrap();
            request.number = state.requests.len();
            state.requests.push(request.clone());
        }
        self.changed.notify_all();
        let play = (self.script)(&request);
        self.perform(play, &request, &mut stream);
    }

    fn perform(&self, play: ModelAction, request: &ModelRequest, stream: &mut TcpStream) {
        let counted = |text: &str| [request.tokens() as u64, llmc_tokens::count(text) as u64, 0];
        let answer = match play {
            ModelAction::Say(text) => {
                let usage = counted(&text);
                render_reply(request, &text, Some(usage), false)
            }
            ModelAction::SayCounting(text, usage) => {
                render_reply(request, &text, Some(usage), false)
            }
            ModelAction::SayUncounted(text) => render_reply(request, &text, None, false),
            ModelAction::Cut(text) => {
                let usage = counted(&text);
                render_reply(request, &text, Some(usage), true)
            }
            ModelAction::Vectors(vectors) => render_vectors(request, &vectors),
            ModelAction::Garbage => {
                return send(stream, 200, "", "{\"message\": {\"content\": \"half");
            }
            ModelAction::Status(status, body) => return send(stream, status, "", &body),
            ModelAction::Busy(seconds) => {
                let header = format!("Retry-After: {seconds}\r\n");
                return send(
                    stream,
                    429,
                    &header,
                    "{\"error\":{\"message\":\"slow down\"}}",
                );
            }
            ModelAction::Redirect(to) => {
                return send(stream, 307, &format!("Location: {to}\r\n"), "");
            }
            ModelAction::Truncated => {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n{\"message\":";
                let _ = stream.write_all(head.as_bytes());
                return;
            }
            ModelAction::Die => return,
            ModelAction::Hang => {
                let mut rest = Vec::new();
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                let _ = stream.read_to_end(&mut rest);
                self.state.lock().unwrap().hung_up += 1;
                return self.changed.notify_all();
            }
            ModelAction::Together(count, play) => {
                self.state.lock().unwrap().together += 1;
                self.changed.notify_all();
                self.wait(|state| state.together >= count);
                return self.perform(*play, request, stream);
            }
        };
        send(stream, 200, "", &answer.to_string());
    }
}

fn render_reply(request: &ModelRequest, text: &str, usage: Option<[u64; 3]>, cut: bool) -> Value {
    match request.protocol {
        Protocol::Ollama => {
            let mut body = json!({
                "model": request.model(),
                "message": {"role": "assistant", "content": text},
                "done": true,
                "done_reason": if cut { "length" } else { "stop" },
            });
            if let Some([input, output, _]) = usage {
                body["prompt_eval_count"] = input.into();
                body["eval_count"] = output.into();
            }
            body
        }
        Protocol::OpenAi => {
            let mut body = json!({
                "object": "chat.completion",
                "model": request.model(),
                "choices": [{
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": if cut { "length" } else { "stop" },
                }],
            });
            if let Some([input, output, cached]) = usage {
                body["usage"] = json!({
                    "prompt_tokens": input,
                    "completion_tokens": output,
                    "total_tokens": input + output,
                    "prompt_tokens_details": {"cached_tokens": cached},
                });
            }
            body
        }
        Protocol::Anthropic => {
            let mut body = json!({
                "type": "message",
                "role": "assistant",
                "model": request.model(),
                "content": [{"type": "text", "text": text}],
                "stop_reason": if cut { "max_tokens" } else { "end_turn" },
            });
            if let Some([input, output, cached]) = usage {
                body["usage"] = json!({
                    "input_tokens": input.saturating_sub(cached),
                    "output_tokens": output,
                    "cache_read_input_tokens": cached,
                    "cache_creation_input_tokens": 0,
                });
            }
            body
        }
    }
}

/// Vectors in each protocol's form; OpenAI's in no particular order, as it may.
fn render_vectors(request: &ModelRequest, vectors: &[Vec<f32>]) -> Value {
    match request.protocol {
        Protocol::OpenAi => {
            let rows = vectors.iter().enumerate().rev();
            let rows: Vec<Value> = rows
                .map(|(index, vector)| json!({"index": index, "embedding": vector}))
                .collect();
            json!({"data": rows})
        }
        _ => json!({"embeddings": vectors}),
    }
}

fn read(stream: &TcpStream) -> Option<ModelRequest> {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut raw = vec![0; length];
    reader.read_exact(&mut raw).ok()?;
    let raw = String::from_utf8(raw).unwrap();
    let protocol = match path.as_str() {
        path if path.ends_with("/api/chat") || path.ends_with("/api/embed") => Protocol::Ollama,
        path if path.ends_with("/v1/messages") => Protocol::Anthropic,
        path if path.ends_with("/chat/completions") || path.ends_with("/embeddings") => {
            Protocol::OpenAi
        }
        path => panic!("no provider has the path {path}"),
    };
    Some(ModelRequest {
        number: 0,
        protocol,
        path,
        headers,
        body: serde_json::from_str(&raw).unwrap(),
        raw,
    })
}

fn send(stream: &mut TcpStream, status: u16, headers: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // The client may have disconnected already.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body.as_bytes());
}
