//! The transport on the real standard streams: this test binary starts itself as a server.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use llmc_server::{ConnectionLimits, serve_stdio};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::handler::Probe;

/// Far beyond any limit tested here: a hang fails, a slow machine does not.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);

const SERVER: [&str; 5] = [
    "--ignored",
    "--exact",
    "process::server",
    "--nocapture",
    "--test-threads=1",
];

/// Set for the process that is to be the server.
const IS_SERVER: &str = "LLMC_TEST_IS_SERVER";

#[test]
#[ignore = "not a test: the server that the tests below start"]
fn server() {
    if std::env::var_os(IS_SERVER).is_none() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = runtime.block_on(serve_stdio(Probe::new().0, ConnectionLimits::default()));
    runtime.shutdown_background();
    // Before the test harness can say anything on standard output.
    std::process::exit(if ended.is_ok() { 0 } else { 1 });
}

/// The client's ends of a server's pipes.
struct Pipes {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Pipes {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .env(IS_SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            input: child.stdin.take(),
            output: Some(output),
            child,
        }
    }

    fn server() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(SERVER);
        Self::start(command)
    }

    async fn call(&mut self, id: u64, tool: &str) {
        let params = json!({"name": tool, "arguments": {}});
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let input = self.input.as_mut().expect("input is open");
        input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next answer, or nothing at the end of output. The test harness writes ahead of the first.
    async fn answer(&mut self) -> Option<Value> {
        let output = self.output.as_mut().expect("output is open");
        loop {
            let line = timeout(SERVER_TIMEOUT, output.next_line()).await;
            match line.expect("an answer in time").unwrap() {
                Some(line) => {
                    if let Some(start) = line.find('{') {
                        return Some(serde_json::from_str(&line[start..]).unwrap());
                    }
                }
                None => return None,
            }
        }
    }

    async fn exit_code(&mut self) -> Option<i32> {
        let status = timeout(SERVER_TIMEOUT, self.child.wait()).await;
        status.expect("an end in time").unwrap().code()
    }

    fn kill(&self, signal: Signal) {
        let pid = self.child.id().unwrap().try_into().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

#[tokio::test]
async fn the_end_of_input_ends_the_process_at_once_when_nothing_runs() {
    let mut server = Pipes::server();
    server.call(1, "echo").await;
    server.input = None;
    assert_eq!(server.answer().await.unwrap()["id"], 1);
    assert_eq!(server.answer().await, None);
    assert_eq!(server.exit_code().await, Some(0));
}

#[tokio::test]
async fn the_end_of_input_ends_the_process_within_two_seconds_whatever_runs() {
    for tool in ["wait", "stubborn"] {
        let mut server = Pipes::server();
        server.call(1, tool).await;
        server.call(2, "echo").await;
        assert_eq!(server.answer().await.unwrap()["id"], 2);
        server.input = None;
        let began = Instant::now();
        assert_eq!(server.exit_code().await, Some(0));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "{tool} took {took:?}");
    }
}

#[tokio::test]
async fn the_end_of_input_ends_the_process_within_two_seconds_though_output_is_stuck() {
    let mut server = Pipes::server();
    let mut input = server.input.take().unwrap();
    let params = json!({"name": "echo", "arguments": {"p": "x".repeat(1 << 20)}});
    let line = json!({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params});
    for id in 0_u32.. {
        let line = line
            .to_string()
            .replace("\"id\":0", &format!("\"id\":{id}"))
            + "\n";
        let written = input.write_all(line.as_bytes());
        if timeout(Duration::from_secs(1), written).await.is_err() {
            assert!(id >= 32, "stalled after {id}");
            break;
        }
        assert!(id < 200, "never stalled");
    }
    drop(input);
    let began = Instant::now();
    assert_eq!(server.exit_code().await, Some(0));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_closed_output_ends_the_process_quietly() {
    let mut server = Pipes::server();
    server.call(1, "echo").await;
    assert_eq!(server.answer().await.unwrap()["id"], 1);
    server.output = None;
    server.call(2, "echo").await;
    assert_eq!(server.exit_code().await, Some(0));
}

#[tokio::test]
async fn signals_end_the_process_cleanly() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Pipes::server();
        server.call(1, "wait").await;
        server.call(2, "echo").await;
        assert_eq!(server.answer().await.unwrap()["id"], 2);
        server.kill(signal);
        assert_eq!(server.answer().await.unwrap()["id"], 1, "the call is told");
        assert_eq!(server.exit_code().await, Some(0));
    }
}

#[tokio::test]
async fn the_end_of_the_parent_ends_the_process_with_open_input() {
    let mut command = Command::new("sh");
    // `<&3` keeps our pipe; a background job would read /dev/null. The shell must not exec the server itself.
    command
        .args(["-c", r#"exec 3<&0; "$@" <&3 & wait"#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(SERVER);
    let mut shell = Pipes::start(command);
    shell.call(1, "echo").await;
    assert_eq!(shell.answer().await.unwrap()["id"], 1);
    shell.kill(Signal::KILL);
    // Both held the output; it ends when the server has ended.
    assert_eq!(shell.answer().await, None);
    assert!(shell.input.is_some());
}
