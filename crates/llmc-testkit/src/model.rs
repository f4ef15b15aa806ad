//! A scripted model: one loopback server that speaks the wire protocols of Ollama, OpenAI and Anthropic.
//!
//! A test gives it a function from what was asked to what it should do, and afterwards looks at everything it was sent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::process::PATIENCE;

/// Whose language a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `/api/chat`, `/api/embed`
    Ollama,
    /// `/chat/completions`, `/embeddings`
    OpenAi,
    /// `/v1/messages`
    Anthropic,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How many came before it.
    pub number: usize,
    /// Its language.
    pub protocol: Protocol,
    /// Its path.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body as sent.
    pub raw: String,
    /// Its body as JSON.
    pub body: Value,
}

impl Asked {
    /// The model it asks for.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// What the model is told about its task.
    pub fn system(&self) -> String {
        let first = &self.body["messages"][0];
        let system = if first["role"] == "system" {
            &first["content"]
        } else {
            &self.body["system"]
        };
        system.as_str().unwrap_or_default().to_owned()
    }

    /// The last thing the user says.
    pub fn prompt(&self) -> &str {
        let messages = self.body["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str())
            .unwrap_or_default()
    }

    /// How often the model has spoken in this conversation.
    pub fn turns(&self) -> usize {
        let messages = self.body["messages"].as_array();
        messages.map_or(0, |messages| {
            let said = messages.iter().filter(|one| one["role"] == "assistant");
            said.count()
        })
    }

    /// Tokens of everything it says to the model.
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

/// What the scripted model does.
#[derive(Debug, Clone)]
pub enum Play {
    /// Answers, with usage by the real tokenizer.
    Say(String),
    /// Answers, and says it took so many tokens in, out, and cached.
    SayCounting(String, [u64; 3]),
    /// Answers without a word about usage.
    SayUncounted(String),
    /// Answers, and says that it ran into the limit of tokens.
    Cut(String),
    /// Fails with this status and body.
    Status(u16, String),
    /// Fails with 429 and asks to wait so many seconds.
    Busy(u64),
    /// Answers with something that is no JSON.
    Garbage,
    /// Promises more bytes than it sends, and hangs up.
    Truncated,
    /// Hangs up without an answer.
    Die,
    /// Sends the client elsewhere.
    Redirect(String),
    /// Says nothing until the client hangs up.
    Hang,
    /// Waits until so many requests wait together, then goes on.
    Together(usize, Box<Play>),
    /// Answers with these vectors.
    Vectors(Vec<Vec<f32>>),
}

impl Play {
    /// An answer with one block of code.
    pub fn code(code: &str) -> Play {
        Play::Say(format!("I look.\n```python\n{code}\n```\n"))
    }
}

type Script = dyn Fn(&Asked) -> Play + Send + Sync;

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    together: usize,
    hung_up: usize,
}

struct Shared {
    script: Box<Script>,
    state: Mutex<State>,
    news: Condvar,
    closing: AtomicBool,
}

/// The scripted model on a free port of loopback. Ends when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelServer").field(&self.address).finish()
    }
}

impl ModelServer {
    /// Starts one that plays by this script.
    pub fn start(script: impl Fn(&Asked) -> Play + Send + Sync + 'static) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            state: Mutex::default(),
            news: Condvar::new(),
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

    /// Starts one that says these things, one after the other, and then fails.
    pub fn saying(plays: impl IntoIterator<Item = Play>) -> ModelServer {
        let plays: Vec<Play> = plays.into_iter().collect();
        ModelServer::start(move |asked| {
            let play = plays.get(asked.number).cloned();
            play.unwrap_or_else(|| Play::Status(400, "{\"error\":\"the script is over\"}".into()))
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address for a protocol.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything it was sent.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().unwrap().asked.clone()
    }

    /// Waits until it was asked so often.
    pub fn wait_for(&self, count: usize) {
        self.shared.wait(|state| state.asked.len() >= count);
    }

    /// Waits until so many clients that it left hanging have hung up.
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

impl Shared {
    fn wait(&self, done: impl Fn(&State) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap();
        while !done(&state) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the scripted model waited in vain");
            state = self.news.wait_timeout(state, left).unwrap().0;
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some(mut asked) = read(&stream) else {
            return;
        };
        {
            let mut state = self.state.lock().unwrap();
            asked.number = state.asked.len();
            state.asked.push(asked.clone());
        }
        self.news.notify_all();
        let play = (self.script)(&asked);
        self.perform(play, &asked, &mut stream);
    }

    fn perform(&self, play: Play, asked: &Asked, stream: &mut TcpStream) {
        let counted = |text: &str| [asked.tokens() as u64, llmc_tokens::count(text) as u64, 0];
        let answer = match play {
            Play::Say(text) => {
                let usage = counted(&text);
                spoken(asked, &text, Some(usage), false)
            }
            Play::SayCounting(text, usage) => spoken(asked, &text, Some(usage), false),
            Play::SayUncounted(text) => spoken(asked, &text, None, false),
            Play::Cut(text) => {
                let usage = counted(&text);
                spoken(asked, &text, Some(usage), true)
            }
            Play::Vectors(vectors) => embedded(asked, &vectors),
            Play::Garbage => return send(stream, 200, "", "{\"message\": {\"content\": \"half"),
            Play::Status(status, body) => return send(stream, status, "", &body),
            Play::Busy(seconds) => {
                let header = format!("Retry-After: {seconds}\r\n");
                return send(
                    stream,
                    429,
                    &header,
                    "{\"error\":{\"message\":\"slow down\"}}",
                );
            }
            Play::Redirect(to) => return send(stream, 307, &format!("Location: {to}\r\n"), ""),
            Play::Truncated => {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n{\"message\":";
                let _ = stream.write_all(head.as_bytes());
                return;
            }
            Play::Die => return,
            Play::Hang => {
                let mut rest = Vec::new();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let _ = stream.read_to_end(&mut rest);
                self.state.lock().unwrap().hung_up += 1;
                return self.news.notify_all();
            }
            Play::Together(count, play) => {
                self.state.lock().unwrap().together += 1;
                self.news.notify_all();
                self.wait(|state| state.together >= count);
                return self.perform(*play, asked, stream);
            }
        };
        send(stream, 200, "", &answer.to_string());
    }
}

fn spoken(asked: &Asked, text: &str, usage: Option<[u64; 3]>, cut: bool) -> Value {
    match asked.protocol {
        Protocol::Ollama => {
            let mut body = json!({
                "model": asked.model(),
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
                "model": asked.model(),
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
                "model": asked.model(),
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
fn embedded(asked: &Asked, vectors: &[Vec<f32>]) -> Value {
    match asked.protocol {
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

fn read(stream: &TcpStream) -> Option<Asked> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
    Some(Asked {
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
    // The client may be gone already, which is its right.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body.as_bytes());
}
