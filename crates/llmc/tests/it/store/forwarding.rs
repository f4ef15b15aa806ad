//! Processes and script sessions of one server, used through the others: three servers, one conversation.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use llmc_testdb::{TestCluster, TestDatabase};
use llmc_testkit::{HttpReply, HttpServer, TEST_TIMEOUT, TestWorkspace, read_reply, request};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture;
use crate::http::open_session;

/// Servers on three machines, the token of one principal, and its conversation.
struct Team {
    workspace: TestWorkspace,
    servers: Vec<HttpServer>,
    token: String,
    session: String,
}

impl Team {
    fn start(database: &TestDatabase, flags: &[&str]) -> Team {
        let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
        let token = add_token(&workspace, "ann");
        let servers: Vec<HttpServer> = (["one", "two", "three"].iter())
            .map(|machine| serve(&workspace, machine, flags))
            .collect();
        let session = open_session(&servers[0], &token, "2025-11-25");
        Team {
            workspace,
            servers,
            token,
            session,
        }
    }

    fn send(&self, server: usize, message: &Value) -> HttpReply {
        read_reply(&mut self.begin(server, message))
    }

    /// Sends a message; its answer is read from the connection.
    fn begin(&self, server: usize, message: &Value) -> BufReader<TcpStream> {
        let headers = [
            ("X-LLMC-Token", self.token.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Session-Id", self.session.as_str()),
        ];
        let body = message.to_string();
        let mut stream = self.servers[server].connect();
        let bytes = request("POST", "/mcp", &headers, body.as_bytes());
        stream.write_all(&bytes).unwrap();
        BufReader::new(stream)
    }

    /// Whether a call through this server failed, and its text.
    fn call(&self, server: usize, name: &str, args: Value) -> (bool, String) {
        let call = json!({
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": name, "arguments": args},
        });
        let answer = self.send(server, &call).ok();
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{name}: {answer}"));
        (result["isError"] == true, text.to_owned())
    }

    fn text(&self, server: usize, name: &str, args: Value) -> String {
        let (failed, text) = self.call(server, name, args);
        assert!(!failed, "{name}: {text}");
        text
    }

    fn json(&self, server: usize, name: &str, args: Value) -> Value {
        let text = self.text(server, name, args);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{name}: {text}"))
    }

    fn error(&self, server: usize, name: &str, args: Value) -> String {
        let (failed, text) = self.call(server, name, args);
        assert!(failed, "{name}: {text}");
        text
    }

    /// Starts a process that repeats its input line by line, on this server.
    fn start_echo(&self, server: usize) -> String {
        let script = "while read -r line; do echo \"got $line\"; done; echo over";
        let argv = json!({"argv": ["sh", "-c", script]});
        let started = self.json(server, "linux_proc_start", argv);
        let id = started["proc_id"].as_str().unwrap().to_owned();
        assert!(id.starts_with("p_") && id.contains('@'), "{id}");
        id
    }

    fn kill(&mut self, server: usize) -> String {
        let name = server_name(&self.servers[server]);
        let mut killed = self.servers.remove(server);
        killed.process().signal(Signal::KILL);
        assert_eq!(killed.wait().signal, Some(9));
        name
    }
}

fn serve(workspace: &TestWorkspace, machine: &str, flags: &[&str]) -> HttpServer {
    let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
    let own = ["--mode", "classic", "--set", volume.as_str()];
    workspace.serve(own.iter().chain(flags))
}

fn add_token(workspace: &TestWorkspace, name: &str) -> String {
    let added = workspace.llmc(["token", "add", name]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    added.stdout.trim().to_owned()
}

fn server_name(server: &HttpServer) -> String {
    let shown = server.get("/api/activity").ok();
    shown["servers"][0]["id"].as_str().unwrap().to_owned()
}

fn rows(cluster: &TestCluster, database: &TestDatabase, table: &str) -> String {
    cluster.sql(
        &database.name,
        &format!("SELECT count(*) FROM llmc.{table}"),
    )
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
    }
}

#[test]
fn a_process_is_used_through_every_server() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let audit = "mcp.observability.csv_token_audit_enabled=true";
    let team = Team::start(&database, &["--set", audit]);
    let id = team.start_echo(0);
    assert!(id.ends_with(&server_name(&team.servers[0])), "{id}");
    // Sent through one, read through another.
    let sent = team.json(1, "linux_proc_send", json!({"proc_id": id, "input": "a\n"}));
    assert_eq!(sent, json!({"ok": true, "bytes": 2}));
    let read = json!({"proc_id": id, "until": "got a", "timeout": 60});
    let read = team.json(2, "linux_proc_read", read);
    assert_eq!(read["output"], "got a\n");
    assert_eq!(read["running"], true);
    // Every server lists it, once.
    for server in 0..3 {
        let listed = team.json(server, "linux_proc_list", json!({}));
        assert_eq!(listed["processes"][0]["proc_id"], id.as_str(), "{listed}");
        assert_eq!(listed["processes"].as_array().unwrap().len(), 1);
        assert_eq!(listed.get("silent_servers"), None, "{listed}");
    }
    let stopped = team.json(1, "linux_proc_stop", json!({"proc_id": id}));
    assert_eq!(stopped["ok"], true, "{stopped}");
    // What the other server refuses arrives as it is.
    let unread = team.error(2, "linux_proc_send", json!({"proc_id": id, "input": "b"}));
    assert!(unread.starts_with("NOT_FOUND: "), "{unread}");
    assert!(unread.contains("the process has ended"), "{unread}");
    let bad = json!({"proc_id": id, "until": "("});
    let bad = team.error(2, "linux_proc_read", bad);
    assert!(bad.starts_with("BAD_ARGS: until: "), "{bad}");
    // A call is audited and recorded once, by the server that the client asked.
    let sql = "SELECT string_agg(tool || ' ' || status, ', ' ORDER BY time_ms) FROM llmc.audit";
    assert_eq!(
        cluster.sql(&database.name, sql),
        "linux_proc_start ok, linux_proc_send ok, linux_proc_read ok, linux_proc_list ok, \
         linux_proc_list ok, linux_proc_list ok, linux_proc_stop ok, linux_proc_send NOT_FOUND, \
         linux_proc_read BAD_ARGS"
    );
    eventually("every call is recorded", || {
        rows(cluster, &database, "calls") == "9"
    });
    eventually("answered calls are removed", || {
        rows(cluster, &database, "forwarded_calls") == "0"
    });
}

#[test]
fn a_command_that_goes_on_is_waited_for_and_signalled_through_another_server() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let run = json!({"command": "echo begun; sleep 600", "timeout": 0.2});
    let begun = team.text(0, "run_cmd", run);
    let at = begun.find("p_").unwrap_or_else(|| panic!("{begun}"));
    let id = begun[at..].split([';', ' ', ',', '"']).next().unwrap();
    assert!(id.contains('@'), "{begun}");
    let ended = team.text(1, "run_cmd", json!({"proc": id, "timeout": 0.2}));
    assert!(ended.contains("still running as"), "{ended}");
    let echo = team.start_echo(0);
    let listed = team.json(2, "linux_proc_list", json!({}));
    let listed = listed["processes"].as_array().unwrap();
    let echo = listed.iter().find(|one| one["proc_id"] == echo.as_str());
    let killed = team.json(1, "linux_proc_kill", json!({"pid": echo.unwrap()["pid"]}));
    assert_eq!(killed["ok"], true, "{killed}");
    assert_eq!(killed["signal"], 15, "{killed}");
}

#[test]
fn a_process_belongs_to_its_principal_on_every_server() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let id = team.start_echo(0);
    let (_, server) = id.split_once('@').unwrap();
    let absent = format!("p_00000000@{server}");
    let bob = add_token(&team.workspace, "bob");
    let read = |server: &HttpServer, token: &str, session: &str, id: &str| {
        let args = json!({"proc_id": id, "timeout": 1});
        let body = json!({"session_id": session, "name": "linux_proc_read", "args": args});
        server.post_as(token, "/tool", &body)
    };
    eventually("the token is known", || {
        read(&team.servers[1], &bob, "s", &absent).status != 401
    });
    // Another principal, also in the same session, learns as little as about a process that is not there.
    for session in ["s", team.session.as_str()] {
        let there = read(&team.servers[1], &bob, session, &id).refused(404, "NOT_FOUND");
        let absent = read(&team.servers[1], &bob, session, &absent).refused(404, "NOT_FOUND");
        let text = |reply: &Value| reply["message"].as_str().unwrap().replace(|c| c != ':', "");
        assert_eq!(text(&there), text(&absent));
        assert!(!there.to_string().contains("read -r"), "{there}");
    }
    // Another session of the same principal neither.
    read(&team.servers[1], &team.token, "s", &id).refused(404, "NOT_FOUND");
    // To another tenant the server itself does not exist.
    let foreign = serve(
        &team.workspace,
        "foreign",
        &["--set", "mcp.store.tenant=\"others\""],
    );
    let refused = read(&foreign, &foreign.token, &team.session, &id).refused(503, "UNAVAILABLE");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("is gone"), "{message}");
    let listed = foreign.tool("linux_proc_list", json!({})).ok();
    assert_eq!(listed["data"]["processes"], json!([]), "{listed}");
    let shown = foreign.get("/api/activity").ok();
    assert_eq!(shown["servers"].as_array().unwrap().len(), 1, "{shown}");
}

#[test]
fn a_script_session_is_the_same_on_every_server() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let mut team = Team::start(&database, &[]);
    let code = |code: &str| json!({"code": code, "session": "s"});
    let first = team.text(1, "execute_code", code("x = [1]\nx"));
    assert_eq!(first, "[1]\n# LLMC: session s is new");
    for (server, shown) in [(0, "[1, 2]"), (1, "[1, 2, 3]"), (2, "[1, 2, 3, 4]")] {
        let text = team.text(server, "execute_code", code("x.append(len(x) + 1)\nx"));
        assert_eq!(text, shown);
    }
    // What fails there reads as it would here.
    let failed = team.error(0, "execute_code", code("print('before')\n1 / 0"));
    assert!(failed.starts_with("before\nerror: "), "{failed}");
    assert!(failed.contains("ZeroDivisionError"), "{failed}");
    // Another principal's session of that name is another.
    let bob = add_token(&team.workspace, "bob");
    let body = json!({"session_id": "s", "name": "execute_code", "args": code("x")});
    eventually("the token is known", || {
        team.servers[0].post_as(&bob, "/tool", &body).status != 401
    });
    let foreign = team.servers[0].post_as(&bob, "/tool", &body).text();
    assert!(foreign.contains("NameError"), "{foreign}");
    // A killed server takes the variables with it, and the next server says so.
    let name = team.kill(1);
    let mut text = String::new();
    eventually("another server takes the session over", || {
        let (failed, answer) = team.call(0, "execute_code", code("'x' in globals()"));
        text = answer;
        assert!(!failed || text.contains(&name), "{text}");
        !failed
    });
    assert!(text.starts_with("False"), "{text}");
    let lost = format!("session s was lost: server {name} is gone; its variables are gone");
    assert!(text.contains(&lost), "{text}");
    team.text(0, "execute_code", code("y = 5"));
    assert_eq!(team.text(1, "execute_code", code("y")), "5");
}

#[test]
fn a_process_of_a_killed_server_is_unavailable() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let mut team = Team::start(&database, &[]);
    let id = team.start_echo(2);
    let name = team.kill(2);
    let read = json!({"proc_id": id, "timeout": 1});
    let refused = team.error(0, "linux_proc_read", read.clone());
    assert!(refused.starts_with("UNAVAILABLE: "), "{refused}");
    assert!(refused.contains(&format!("server {name}")), "{refused}");
    assert!(refused.contains("\nhint: "), "{refused}");
    // The next one need not wait.
    let refused = team.error(1, "linux_proc_read", read);
    assert!(refused.contains("has not been heard of for") || refused.contains("is gone"));
    // One that ends by itself is gone at once.
    let id = team.start_echo(1);
    let mut ended = team.servers.remove(1);
    ended.process().signal(Signal::TERM);
    assert_eq!(ended.wait().code, Some(0));
    let refused = team.error(0, "linux_proc_stop", json!({"proc_id": id}));
    assert!(refused.contains("is gone"), "{refused}");
    let shown = team.servers[0].get("/api/activity").ok();
    assert_eq!(shown["servers"].as_array().unwrap().len(), 1, "{shown}");
}

#[test]
fn a_cancelled_call_ends_on_the_server_that_carries_it_out() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let code = |code: &str| json!({"code": code, "session": "s"});
    team.text(0, "execute_code", code("x = 1"));
    let endless = "open('begun', 'w').write('x')\ntools.run_cmd(command='sleep 600', timeout=600)";
    let call = json!({
        "jsonrpc": "2.0", "id": 41, "method": "tools/call",
        "params": {"name": "execute_code", "arguments": code(endless)},
    });
    // The second server is asked, the first one works, and the third one is told.
    let mut asked = team.begin(1, &call);
    eventually("the script runs", || team.workspace.path("begun").exists());
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 41},
    });
    assert_eq!(team.send(2, &cancel).status, 202);
    assert_eq!(read_reply(&mut asked).status, 202);
    // The session is free again, which it is not while its script runs.
    let text = team.text(2, "execute_code", code("1 + 1"));
    assert!(text.starts_with('2'), "{text}");
    assert!(text.contains("session s was lost: "), "{text}");
    eventually("no rows are left", || {
        rows(cluster, &database, "forwarded_calls") == "0"
    });
}

#[test]
fn a_call_ends_with_its_connection_and_with_its_session() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let code = |code: &str| json!({"code": code, "session": "s"});
    team.text(0, "execute_code", code("x = 1"));
    let endless = |file: &str| {
        let code = code(&format!(
            "open('{file}', 'w').write('x')\ntools.run_cmd(command='sleep 600', timeout=600)"
        ));
        json!({
            "jsonrpc": "2.0", "id": 43, "method": "tools/call",
            "params": {"name": "execute_code", "arguments": code},
        })
    };
    let asked = team.begin(1, &endless("one"));
    eventually("the script runs", || team.workspace.path("one").exists());
    drop(asked);
    let text = team.text(2, "execute_code", code("1 + 1"));
    assert!(text.contains("session s was lost: "), "{text}");
    let mut asked = team.begin(1, &endless("two"));
    eventually("the script runs", || team.workspace.path("two").exists());
    let headers = [
        ("X-LLMC-Token", team.token.as_str()),
        ("Mcp-Session-Id", team.session.as_str()),
    ];
    let ended = team.servers[2].send("DELETE", "/mcp", &headers, b"");
    assert_eq!(ended.status, 204);
    assert_eq!(read_reply(&mut asked).status, 202);
    // The session is over on every server.
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for server in 0..3 {
        eventually("the session is refused", || {
            team.send(server, &ping).status == 404
        });
    }
}

#[test]
fn a_call_whose_answer_cannot_arrive_is_unavailable() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &["--set", "mcp.store.token_grace_s=600"]);
    let id = team.start_echo(0);
    let call = json!({
        "jsonrpc": "2.0", "id": 44, "method": "tools/call",
        "params": {"name": "linux_proc_read", "arguments": {
            "proc_id": id, "until": "never", "timeout": 600,
        }},
    });
    let mut asked = team.begin(1, &call);
    eventually("the call has been sent", || {
        rows(&cluster, &database, "forwarded_calls") == "1"
    });
    cluster.stop("QUIT");
    let answer = read_reply(&mut asked).ok();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(&format!("UNAVAILABLE: {id}: ")), "{text}");
    assert!(text.contains("may have been carried out"), "{text}");
    // Its own process is still there for the first server.
    let own = json!({"proc_id": id, "input": "a\n"});
    team.text(0, "linux_proc_send", own);
    let session = json!({"code": "1", "session": "s"});
    let refused = team.error(0, "execute_code", session);
    assert!(
        refused.starts_with("UNAVAILABLE: which server"),
        "{refused}"
    );
    assert!(
        team.text(0, "execute_code", json!({"code": "1 + 1"}))
            .starts_with('2')
    );
}

#[test]
fn an_answer_arrives_although_the_database_was_away_meanwhile() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let id = team.start_echo(0);
    let read = json!({"proc_id": id, "until": "got b", "timeout": 60});
    let call = json!({
        "jsonrpc": "2.0", "id": 42, "method": "tools/call",
        "params": {"name": "linux_proc_read", "arguments": read},
    });
    let mut asked = team.begin(1, &call);
    eventually("the call has been sent", || {
        rows(&cluster, &database, "forwarded_calls") == "1"
    });
    // Its commit did not wait for the disk.
    cluster.sql(&database.name, "CHECKPOINT");
    cluster.stop("QUIT");
    // The process prints while nothing can be told.
    let send = json!({"proc_id": id, "input": "b\n"});
    team.text(0, "linux_proc_send", send.clone());
    let refused = team.error(2, "linux_proc_send", send);
    assert!(refused.starts_with("UNAVAILABLE: "), "{refused}");
    // A list has what this server knows, and says what is missing.
    let listed = team.json(0, "linux_proc_list", json!({}));
    assert_eq!(listed["processes"][0]["proc_id"], id.as_str(), "{listed}");
    let silent = listed["silent_servers"][0].as_str().unwrap();
    assert!(silent.starts_with("all others: the database"), "{silent}");
    cluster.run();
    let answer = read_reply(&mut asked).ok();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("got b"), "{text}");
    eventually("the other servers can be asked again", || {
        !team
            .call(2, "linux_proc_read", json!({"proc_id": id, "timeout": 1}))
            .0
    });
}

#[test]
fn calls_are_passed_on_while_the_database_accepts_no_further_connection() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let id = team.start_echo(0);
    // Each server keeps the connections that it has, except the one on which it hears from others.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE usename = '{}' AND (query LIKE 'LISTEN%' OR query = 'SELECT')";
    cluster.sql(
        "postgres",
        &format!("ALTER ROLE {} CONNECTION LIMIT 0", database.role),
    );
    let ended = cluster.sql("postgres", &end.replace("{}", &database.role));
    assert_eq!(ended, "3");
    let send = json!({"proc_id": id, "input": "a\n"});
    team.json(1, "linux_proc_send", send);
    let read = json!({"proc_id": id, "until": "got a", "timeout": 60});
    assert_eq!(team.json(2, "linux_proc_read", read)["output"], "got a\n");
}

#[test]
fn one_dashboard_shows_the_servers_and_what_they_are_doing() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let team = Team::start(&database, &[]);
    let id = team.start_echo(2);
    let names: Vec<String> = team.servers.iter().map(server_name).collect();
    let mut shown = Value::Null;
    eventually("every server is listed", || {
        shown = team.servers[0].get("/api/activity").ok();
        shown["servers"].as_array().unwrap().len() == 3
    });
    for name in &names {
        let servers = shown["servers"].as_array().unwrap();
        let server = servers.iter().find(|one| one["id"] == name.as_str());
        let server = server.unwrap_or_else(|| panic!("{name} in {shown}"));
        let running = server["processes"].as_array().unwrap().len();
        assert_eq!(running, usize::from(*name == names[2]), "{server}");
        assert_eq!(server["machine"].is_string(), *name != names[0], "{server}");
    }
    // A named token sees its own processes there, and no others.
    let bob = add_token(&team.workspace, "bob");
    let processes = |token: &str| {
        let headers = [("X-LLMC-Token", token)];
        let shown = team.servers[0].send("GET", "/api/activity", &headers, b"");
        let shown = (shown.status == 200).then(|| shown.ok())?;
        let servers = shown["servers"].as_array().unwrap().iter();
        let listed = servers.map(|server| server["processes"].as_array().unwrap().len());
        Some(listed.sum::<usize>())
    };
    eventually("the token is known", || processes(&bob).is_some());
    assert_eq!(processes(&bob), Some(0));
    assert_eq!(processes(&team.token), Some(1));
    let target = format!("/api/activity/{}/{id}", names[2]);
    let foreign = [("X-LLMC-Token", bob.as_str())];
    let refused = team.servers[0].send("GET", &format!("{target}/output"), &foreign, b"");
    refused.refused(404, "NOT_FOUND");
    team.json(1, "linux_proc_send", json!({"proc_id": id, "input": "c\n"}));
    eventually("what it prints is shown", || {
        let output = team.servers[0].get(&format!("{target}/output")).ok();
        output["text"] == "got c\n"
    });
    let stopped = team.servers[0].post(&format!("{target}/stop"), &json!({}));
    assert_eq!(stopped.ok()["ok"], true);
    let metrics = team.servers[1].get("/metrics").text();
    let info = format!("llmc_server_info{{server=\"{}\"", names[1]);
    assert!(metrics.contains(&info), "{metrics}");
}
