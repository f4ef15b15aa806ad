//! Processes and script sessions stay on their server: what another one answers to a call that a proxy has misrouted.

use std::time::Instant;

use llmc_testdb::{TestCluster, TestDatabase};
use llmc_testkit::{HttpServer, TEST_TIMEOUT, TestWorkspace};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture;

/// Two servers on two machines, and the token of one principal.
struct Team {
    workspace: TestWorkspace,
    servers: Vec<HttpServer>,
    token: String,
}

impl Team {
    fn start(database: &TestDatabase) -> Team {
        let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
        let token = add_token(&workspace, "ann");
        let machines = ["one", "two"].into_iter();
        let servers = machines.map(|machine| serve(&workspace, machine)).collect();
        Team {
            workspace,
            servers,
            token,
        }
    }

    fn call(&self, server: usize, token: &str, name: &str, args: &Value) -> (u16, Value) {
        let body = json!({"session_id": "s", "name": name, "args": args});
        let reply = self.servers[server].post_as(token, "/tool", &body);
        let text = reply.text();
        let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
        (reply.status, value)
    }

    /// The data of a call that succeeds.
    fn data(&self, server: usize, name: &str, args: Value) -> Value {
        let (status, answer) = self.call(server, &self.token, name, &args);
        assert_eq!(status, 200, "{name}: {answer}");
        answer["data"].clone()
    }

    /// The message of a call that has to go to another server.
    fn misrouted(&self, server: usize, name: &str, args: Value) -> String {
        let (status, answer) = self.call(server, &self.token, name, &args);
        assert_eq!(
            (status, &answer["code"]),
            (503, &json!("UNAVAILABLE")),
            "{answer}"
        );
        assert!(answer["hint"].is_string(), "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    }

    fn script(&self, server: usize, code: &str) -> String {
        let args = json!({"code": code, "session": "s"});
        self.data(server, "execute_code", args).to_string()
    }
}

fn serve(workspace: &TestWorkspace, machine: &str) -> HttpServer {
    let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
    workspace.serve(["--set", volume.as_str()])
}

fn add_token(workspace: &TestWorkspace, name: &str) -> String {
    let added = workspace.llmc(["token", "add", name]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    added.stdout.trim().to_owned()
}

fn server_name(server: &HttpServer) -> String {
    let shown = server.get("/api/activity").ok();
    let servers = shown["servers"].as_array().unwrap();
    assert_eq!(
        servers.len(),
        1,
        "those of other machines are not asked: {shown}"
    );
    servers[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn another_server_names_the_one_that_has_a_process() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let team = Team::start(&cluster.database());
    let name = server_name(&team.servers[0]);
    let script = "while read -r line; do echo \"got $line\"; done";
    let started = team.data(0, "linux_proc_start", json!({"argv": ["sh", "-c", script]}));
    let id = started["proc_id"].as_str().unwrap();
    assert!(id.ends_with(&format!("@{name}")), "{id}");
    let send = json!({"proc_id": id, "input": "a\n"});
    for (tool, args) in [
        ("linux_proc_send", send.clone()),
        ("linux_proc_read", json!({"proc_id": id, "timeout": 1})),
        ("linux_proc_stop", json!({"proc_id": id})),
        ("run_cmd", json!({"proc": id})),
    ] {
        let message = team.misrouted(1, tool, args);
        assert!(
            message.starts_with(&format!("{id} is on server {name}, ")),
            "{message}"
        );
    }
    let listed = team.data(1, "linux_proc_list", json!({}));
    assert_eq!(listed["processes"], json!([]), "{listed}");
    // Its own server has done nothing of that.
    team.data(0, "linux_proc_send", send);
    let read = json!({"proc_id": id, "until": "got a", "timeout": 60});
    let read = team.data(0, "linux_proc_read", read);
    assert_eq!(
        (&read["output"], &read["running"]),
        (&json!("got a\n"), &json!(true))
    );
    // What a server says of another one's processes is what their ids say, so it tells nothing to other principals.
    let bob = add_token(&team.workspace, "bob");
    let absent = format!("p_00000000@{name}");
    let read = |server: usize, id: &str| {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let args = json!({"proc_id": id, "timeout": 1});
            let (status, answer) = team.call(server, &bob, "linux_proc_read", &args);
            if status != 401 {
                let message = answer["message"].as_str().unwrap();
                return (status, message.replace(id, "ID"));
            }
            assert!(
                Instant::now() < deadline,
                "the token is not known: {answer}"
            );
        }
    };
    assert_eq!(read(0, id), (404, "ID: no such process".to_owned()));
    for server in [0, 1] {
        assert_eq!(read(server, id), read(server, &absent));
    }
}

#[test]
fn another_server_names_the_one_that_has_a_script_session() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let mut team = Team::start(&cluster.database());
    let names = [0, 1].map(|n| server_name(&team.servers[n]));
    team.script(0, "x = 41");
    let code = json!({"code": "x", "session": "s"});
    let message = team.misrouted(1, "execute_code", code.clone());
    let expected = format!(
        "session s is on server {}, and this is server {}",
        names[0], names[1]
    );
    assert_eq!(message, expected);
    assert!(team.script(0, "x + 1").contains("42"));
    // Without a session a script runs anywhere, and so does another principal's session of that name.
    let alone = team.data(1, "execute_code", json!({"code": "1 + 1"}));
    assert!(alone.to_string().contains('2'), "{alone}");
    let bob = add_token(&team.workspace, "bob");
    let deadline = Instant::now() + TEST_TIMEOUT;
    let foreign = loop {
        let (status, answer) = team.call(1, &bob, "execute_code", &code);
        if status != 401 {
            break answer.to_string();
        }
        assert!(Instant::now() < deadline, "{answer}");
    };
    assert!(foreign.contains("NameError"), "{foreign}");
    // A server that is stopped lets others have the name.
    let mut stopped = team.servers.remove(0);
    stopped.process().signal(Signal::TERM);
    assert_eq!(stopped.wait().code, Some(0));
    assert!(team.script(0, "print('x' in globals())").contains("False"));
    // One that was killed cannot; other names are free.
    team.servers.push(serve(&team.workspace, "one"));
    let mut killed = team.servers.remove(0);
    killed.process().signal(Signal::KILL);
    assert_eq!(killed.wait().signal, Some(9));
    let message = team.misrouted(0, "execute_code", code);
    assert!(message.contains(&names[1]), "{message}");
    let other = json!({"code": "5", "session": "another"});
    assert!(
        team.data(0, "execute_code", other)
            .to_string()
            .contains('5')
    );
}
