//! The dashboard's data: calls of every server of the workspace, what runs now and how it is stopped, who sees what, and the
//! one-time link.

use std::time::{Duration, Instant};

use llmc_testkit::{HttpReply, HttpServer, McpClient, TestProcess, TestWorkspace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{classic, workspace};

const FIXTURE: &str = "\
//- a.txt
one
//- .env
PLAINVALUE of ann
";
const ANN: &str = "ann-token-0123456789";
const BOB: &str = "bob-token-0123456789";
const EVE: &str = "eve-token-0123456789";
const LIMIT: Duration = Duration::from_secs(30);

/// Asks until the answer is as wanted.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn get(server: &HttpServer, token: &str, path: &str) -> HttpReply {
    server.send("GET", path, &[("X-LLMC-Token", token)], b"")
}

/// The recorded calls that a token sees, once there are so many.
fn calls(server: &HttpServer, token: &str, query: &str, count: usize) -> Vec<Value> {
    until(&format!("{count} calls for {query:?}"), || {
        let page = get(server, token, &format!("/api/calls?limit=200&{query}")).ok();
        let calls = page["calls"].as_array().unwrap().clone();
        (calls.len() == count).then_some(calls)
    })
}

fn detail(server: &HttpServer, call: &Value) -> Value {
    server.get(&format!("/api/calls/{}", call["id"])).ok()
}

fn called(client: &mut McpClient, name: &str, args: Value) {
    client.call_tool(name, args);
}

#[test]
fn calls_of_all_servers_are_seen_also_after_restarts() {
    let workspace = workspace(FIXTURE);
    let mut stdio: Vec<McpClient> = (0..3).map(|_| classic(&workspace)).collect();
    let server = workspace.serve(["--mode", "classic"]);
    for client in &mut stdio {
        called(client, "read_file", json!({"path": "a.txt"}));
    }
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    let write = json!({"path": "b.txt", "content": "needle in the argument\n"});
    let written = stdio[0].call_tool("linux_fs_write", write);
    called(&mut stdio[1], "read_file", json!({"path": "missing.txt"}));

    let all = calls(&server, &server.token, "", 6);
    let servers: std::collections::BTreeSet<&str> = all
        .iter()
        .map(|call| call["server"].as_str().unwrap())
        .collect();
    assert_eq!(servers.len(), 4, "{all:?}");
    let read = calls(&server, &server.token, "tool=read_file", 5);
    // A program that calls over REST has no name.
    let read = read.iter().map(|call| detail(&server, call));
    let read = read.filter(|call| call["error_code"].is_null());
    let read = { read }.find(|call| call["client"].is_string()).unwrap();
    assert_eq!(
        read["contents"]["answer"].as_str().unwrap().lines().next(),
        Some("one")
    );
    let args: Value = serde_json::from_str(read["contents"]["args"].as_str().unwrap()).unwrap();
    assert_eq!(args, json!({"path": "a.txt"}));
    let client = read["client"].as_str().unwrap();
    assert!(
        client.contains(read["agent"].as_str().unwrap()) && client.contains(' '),
        "{read}"
    );
    assert!(read["tokens_served"].as_u64().unwrap() > 0 && read["duration_ms"].as_f64().is_some());

    // What it changed is an entry that can be undone.
    let wrote = calls(&server, &server.token, "query=NEEDLE%20in", 1);
    let wrote = detail(&server, &wrote[0]);
    let entry = wrote["entry"].as_str();
    let entry = entry.unwrap_or_else(|| {
        let history = server.get("/api/history").ok();
        panic!("{written:?}: {history}")
    });
    let shown = server.get(&format!("/api/history/{entry}")).ok();
    assert_eq!(shown["changes"][0]["path"], "b.txt");
    assert_eq!(
        calls(&server, &server.token, "failed=true", 1)[0]["error_code"],
        "NOT_FOUND"
    );
    let one = wrote["server"].as_str().unwrap();
    calls(&server, &server.token, &format!("server={one}"), 2);
    calls(&server, &server.token, "query=nowhere%20at%20all", 0);

    // Pages.
    let page = server.get("/api/calls?limit=4").ok();
    let next = page["next"].as_i64().unwrap();
    let rest = server
        .get(&format!("/api/calls?limit=4&cursor={next}"))
        .ok();
    assert_eq!(
        (rest["calls"].as_array().unwrap().len(), &rest["next"]),
        (2, &Value::Null)
    );
    let newest = all[0]["id"].as_i64().unwrap();
    calls(&server, &server.token, &format!("after={newest}"), 0);

    // The summary of the workspace has all of them; the server's own has its one.
    let totals = |path: &str| server.get(path).ok()["totals"]["calls"].clone();
    assert_eq!(totals("/api/summary?of=workspace"), 6);
    assert_eq!(totals("/api/summary"), 1);
    server
        .get("/api/summary?of=nobody")
        .refused(422, "BAD_ARGS");

    for client in stdio {
        client.finish();
    }
    drop(server);
    let again = workspace.serve(["--mode", "classic"]);
    let after = calls(&again, &again.token, "", 6);
    let same = after.iter().find(|call| call["id"] == read["id"]).unwrap();
    assert_eq!(detail(&again, same)["contents"], read["contents"]);
    let savings = again.get("/api/savings").ok();
    assert_eq!(savings["days"].as_array().unwrap().len(), 1, "{savings}");
    assert_eq!(savings["days"][0]["calls"], 6, "{savings}");
    let tools = savings["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"read_file") && names.contains(&"linux_fs_write"),
        "{names:?}"
    );
}

fn serve_named(workspace: &TestWorkspace) -> HttpServer {
    let token = |name: &str, token: &str, more: &str| {
        let digest = llmc_host::sha256_hex(token.as_bytes());
        format!("{{name=\"{name}\", sha256=\"{digest}\"{more}}}")
    };
    let tokens = format!(
        "mcp.auth.tokens=[{}, {}, {}]",
        token("ann", ANN, ""),
        token("bob", BOB, ""),
        token("eve", EVE, ", read_only=true"),
    );
    workspace.serve(["--set", &tokens])
}

fn call_as(server: &HttpServer, token: &str, name: &str, args: Value) -> Value {
    let body = json!({"session_id": "s", "name": name, "args": args});
    server.post_as(token, "/tool", &body).ok()
}

#[test]
fn a_named_token_sees_and_stops_its_own_only() {
    let workspace = workspace(FIXTURE);
    let mut stdio = classic(&workspace);
    let server = serve_named(&workspace);
    called(&mut stdio, "read_file", json!({"path": "a.txt"}));
    let secret = json!({"command": "echo words of ann"});
    call_as(&server, ANN, "run_cmd", secret);
    let started = json!({"argv": ["sh", "-c", "echo output of ann; sleep 600"]});
    let process = call_as(&server, ANN, "linux_proc_start", started);
    let process = process["data"]["proc_id"].as_str().unwrap().to_owned();
    call_as(
        &server,
        BOB,
        "run_cmd",
        json!({"command": "echo words of bob"}),
    );

    let main = server.token.clone();
    let all = calls(&server, &main, "", 4);
    let anns = calls(&server, ANN, "", 2);
    calls(&server, BOB, "", 1);
    calls(&server, BOB, "query=words%20of%20ann", 0);
    for call in &all {
        let path = format!("/api/calls/{}", call["id"]);
        let is_own = |token: &str| get(&server, token, &path).status == 200;
        let owner = call["principal"].as_str().unwrap();
        assert_eq!(is_own(ANN), owner == "ann", "{call}");
        assert_eq!(is_own(BOB), owner == "bob", "{call}");
    }
    assert!(anns.iter().all(|call| call["principal"] == "ann"));
    let savings = get(&server, BOB, "/api/savings").ok();
    assert_eq!(savings["days"][0]["calls"], 1, "{savings}");
    let summary = get(&server, BOB, "/api/summary?of=workspace").ok();
    assert_eq!(summary["totals"]["calls"], 1, "{summary}");

    // What runs: others' processes do not exist, nor do other servers.
    let activity = |token: &str| get(&server, token, "/api/activity").ok();
    let own = activity(ANN)["servers"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        activity(ANN)["servers"][0]["processes"][0]["id"],
        process.as_str()
    );
    let bobs = activity(BOB);
    assert_eq!(bobs["servers"].as_array().unwrap().len(), 1, "{bobs}");
    assert_eq!(bobs["servers"][0]["processes"], json!([]), "{bobs}");
    assert_eq!(bobs["sessions"].as_array().unwrap().len(), 1, "{bobs}");
    let mains = activity(&main);
    assert_eq!(mains["servers"].as_array().unwrap().len(), 2, "{mains}");
    let others = mains["servers"][1]["id"].as_str().unwrap();

    let output = format!("/api/activity/{own}/{process}/output");
    let stop = format!("/api/activity/{own}/{process}/stop");
    until("the output", || {
        let page = get(&server, ANN, &output).ok();
        page["text"]
            .as_str()
            .unwrap()
            .contains("output of ann")
            .then_some(())
    });
    get(&server, BOB, &output).refused(404, "NOT_FOUND");
    server
        .post_as(BOB, &stop, &json!({}))
        .refused(404, "NOT_FOUND");
    server
        .post_as(EVE, &stop, &json!({}))
        .refused(403, "FORBIDDEN");
    let elsewhere = format!("/api/activity/{others}/c1/output");
    get(&server, BOB, &elsewhere).refused(404, "NOT_FOUND");
    for path in [&output, "/api/activity", "/api/calls", "/api/savings"] {
        server
            .send("GET", path, &[], b"")
            .refused(401, "AUTH_FAILED");
    }
    let stopped = server.post_as(ANN, &stop, &json!({})).ok();
    assert_eq!(stopped["ok"], true, "{stopped}");
    assert_eq!(
        activity(ANN)["servers"][0]["processes"][0]["running"],
        false
    );
    stdio.finish();
}

#[test]
fn what_other_servers_run_is_seen_and_stopped() {
    let workspace = workspace(FIXTURE);
    let mut agent = classic(&workspace);
    let server = workspace.serve(["--mode", "classic"]);
    let started = json!({"argv": ["sh", "-c", "echo first; sleep 600"]});
    let process = agent.json("linux_proc_start", started);
    let process = process["proc_id"].as_str().unwrap();
    let command = json!({"command": "echo working; sleep 600", "timeout": 600});
    let waiting = agent.send_call("run_cmd", command);

    let (id, call) = until("the running call", || {
        let activity = server.get("/api/activity").ok();
        let servers = activity["servers"].as_array().unwrap();
        let other = servers.iter().find(|server| server["kind"] == "stdio")?;
        let call = other["calls"].as_array()?.first()?.clone();
        (call["has_output"] == true).then(|| (other["id"].as_str().unwrap().to_owned(), call))
    });
    assert_eq!(call["tool"], "run_cmd", "{call}");
    assert!(
        call["args"].as_str().unwrap().contains("echo working"),
        "{call}"
    );
    let on = |target: &str, what: &str| format!("/api/activity/{id}/{target}/{what}");
    let target = format!("c{}", call["id"]);
    for (target, text) in [(target.as_str(), "working\n"), (process, "first\n")] {
        let page = until("the output", || {
            let page = server.get(&on(target, "output")).ok();
            (page["text"] == text).then_some(page)
        });
        assert_eq!(page["running"], true, "{page}");
        let next = page["next"].as_u64().unwrap();
        let more = server
            .get(&format!("{}?offset={next}", on(target, "output")))
            .ok();
        assert_eq!(more["text"], "", "nothing is shown twice");
    }
    server.post(&on(&target, "stop"), &json!({})).ok();
    let (is_error, text) = agent.tool_answer(waiting);
    assert!(is_error && text.to_lowercase().contains("cancel"), "{text}");
    server.post(&on(process, "stop"), &json!({})).ok();
    let listed = agent.json("linux_proc_list", json!({}));
    assert_eq!(listed["processes"][0]["running"], false, "{listed}");
    server.get(&on(&target, "output")).refused(404, "NOT_FOUND");
    server
        .post(&on("p_nothing1", "stop"), &json!({}))
        .refused(404, "NOT_FOUND");
    server
        .post("/api/activity/9-a/c1/stop", &json!({}))
        .refused(404, "NOT_FOUND");
    server
        .post("/api/activity/..%2Fx/c1/stop", &json!({}))
        .refused(422, "BAD_ARGS");

    // A server that was killed is not listed any more.
    agent.process().signal(Signal::KILL);
    until("one server", || {
        let activity = server.get("/api/activity").ok();
        (activity["servers"].as_array().unwrap().len() == 1).then_some(())
    });
    let sockets = workspace.path(".llmc/servers").read_dir().unwrap().count();
    assert_eq!(sockets, 1, "its socket is removed");
}

/// The bytes of the telemetry with its log.
fn telemetry(workspace: &TestWorkspace) -> String {
    let read = |name: &str| std::fs::read(workspace.path(name)).unwrap_or_default();
    let bytes = [
        read(".llmc/te_telemetry.db"),
        read(".llmc/te_telemetry.db-wal"),
    ]
    .concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn contents_are_kept_only_where_they_may_be() {
    let work = |client: &mut McpClient| {
        let write = json!({"path": "b.txt", "content": "MARKER one", "mode": "overwrite"});
        called(client, "linux_fs_write", write);
        called(client, "read_file", json!({"path": "b.txt"}));
        called(client, "read_file", json!({"path": ".env"}));
        let leak = json!({"command": "cat .env; echo password=hunter2hunter2"});
        called(client, "run_cmd", leak);
    };
    let on = workspace(FIXTURE);
    let mut client = classic(&on);
    work(&mut client);
    client.finish();
    let kept = telemetry(&on);
    assert!(kept.contains("MARKER one"), "contents are kept by default");
    assert!(
        !kept.contains("PLAINVALUE"),
        "a denylisted file's content is not"
    );
    assert!(!kept.contains("hunter2hunter2"), "nor is a secret");
    use std::os::unix::fs::PermissionsExt;
    let mode = on
        .path(".llmc/te_telemetry.db")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let off = workspace(FIXTURE);
    let mut client = off.mcp([
        "--mode",
        "classic",
        "--set",
        "mcp.observability.keep_contents=false",
    ]);
    client.initialize("2025-11-25");
    work(&mut client);
    client.finish();
    assert!(
        telemetry(&off).contains("linux_fs_write"),
        "the call is recorded"
    );
    assert!(!telemetry(&off).contains("MARKER"), "its contents are not");
    let server = off.serve(["--set", "mcp.observability.keep_contents=false"]);
    let call = &calls(&server, &server.token, "tool=linux_fs_write", 1)[0];
    let shown = detail(&server, call);
    assert_eq!(
        (&shown["contents"], &shown["keeps_contents"]),
        (&Value::Null, &json!(false))
    );
}

#[test]
fn commands_reach_neither_telemetry_nor_sockets() {
    let workspace = workspace(FIXTURE);
    let mut agent = classic(&workspace);
    called(&mut agent, "read_file", json!({"path": "a.txt"}));
    until("the telemetry", || {
        workspace
            .path(".llmc/te_telemetry.db")
            .exists()
            .then_some(())
    });
    let sockets = workspace.path(".llmc/servers");
    assert_eq!(sockets.read_dir().unwrap().count(), 1);
    let health = agent.json("health", json!({}));
    if !health["confinement"].as_str().unwrap().contains("mntns") {
        return llmc_testkit::skip("mount namespaces, which hide the state directory");
    }
    let look = json!({"command": "ls -R .llmc; cat .llmc/te_telemetry.db"});
    let (_, seen) = agent.call_tool("run_cmd", look);
    assert!(
        !seen.contains(".sock") && !seen.contains("CREATE TABLE"),
        "{seen}"
    );
    agent.finish();
}

/// A server for the dashboard alone, as a process of this test.
fn dashboard(workspace: &TestWorkspace) -> HttpServer {
    let mut command = workspace.command();
    command.args(["dashboard", "--serve"]);
    HttpServer::new(TestProcess::start(command))
}

/// The link that `llmc dashboard` prints.
fn link(workspace: &TestWorkspace) -> String {
    let output = workspace.llmc(["dashboard", "--no-open"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let link = output.stdout.lines().last().unwrap().trim().to_owned();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    link
}

/// The path of a link, and the cookie that opening it sets.
fn sign_in(server: &HttpServer, link: &str) -> (String, String) {
    let path = link[link.find("/dashboard?ticket=").unwrap()..].to_owned();
    let reply = server.send("GET", &path, &[], b"");
    assert_eq!(reply.status, 303, "{}", reply.text());
    assert_eq!(reply.header("location"), Some("/"));
    let cookie = reply.header("set-cookie").unwrap();
    assert!(
        cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"),
        "{cookie}"
    );
    (path, cookie.split(';').next().unwrap().to_owned())
}

#[test]
fn a_link_signs_a_browser_in_once() {
    let workspace = workspace(FIXTURE);
    let mut agent = classic(&workspace);
    called(&mut agent, "read_file", json!({"path": "a.txt"}));
    let server = dashboard(&workspace);
    let link = link(&workspace);
    assert!(
        link.starts_with(&server.url),
        "the running one is used: {link}"
    );
    let (path, cookie) = sign_in(&server, &link);
    server.send("GET", &path, &[], b"").refused(410, "GONE");
    server
        .send("GET", "/dashboard?ticket=guess", &[], b"")
        .refused(410, "GONE");
    server
        .send("GET", "/dashboard", &[], b"")
        .refused(410, "GONE");

    let with = |more: &[(&str, &str)], path: &str| {
        let headers = [&[("Cookie", cookie.as_str())], more].concat();
        server.send("GET", path, &headers, b"")
    };
    until("the call of the stdio server", || {
        let calls = with(&[], "/api/calls").ok();
        (calls["calls"].as_array().unwrap().len() == 1).then_some(())
    });
    assert_eq!(with(&[], "/api/session").ok()["signed_in"], true);
    let session = server.send("GET", "/api/session", &[], b"").ok();
    assert_eq!(session, json!({"signed_in": false, "takes_token": false}));
    // Pages elsewhere cannot use the cookie, not even one on another port of this machine.
    let other = [
        ("Origin", "http://127.0.0.1:9"),
        ("Sec-Fetch-Site", "same-site"),
    ];
    for attack in [
        &other[..1],
        &other[1..],
        &[("Sec-Fetch-Site", "cross-site")],
    ] {
        let status = with(attack, "/api/calls").status;
        assert!([401, 403].contains(&status), "{attack:?}: {status}");
    }
    let evil = [("Host", "evil.example"), ("Cookie", cookie.as_str())];
    let request = "GET /api/calls HTTP/1.1\r\n".to_owned()
        + &evil
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .concat()
        + "Connection: close\r\n\r\n";
    server.raw(request.as_bytes()).refused(403, "FORBIDDEN");
    server
        .send("GET", "/api/calls", &[], b"")
        .refused(401, "AUTH_FAILED");
    let wrong = [("Cookie", "llmc_session=guess"), ("X-LLMC-Token", "")];
    server
        .send("GET", "/api/calls", &wrong, b"")
        .refused(401, "AUTH_FAILED");
    // It serves the page, and offers agents nothing.
    assert_eq!(server.send("GET", "/", &[], b"").status, 200);
    for route in ["/tool", "/mcp", "/invoke_agent", "/rag/bootload"] {
        let headers = [
            ("Cookie", cookie.as_str()),
            ("Content-Type", "application/json"),
        ];
        server
            .send("POST", route, &headers, b"{}")
            .refused(404, "NOT_FOUND");
    }
    agent.finish();
}

#[test]
fn a_link_of_a_full_server_is_preferred_and_works_there_too() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "classic"]);
    let link = link(&workspace);
    assert!(link.starts_with(&server.url), "{link}");
    let (_, cookie) = sign_in(&server, &link);
    let headers = [("Cookie", cookie.as_str())];
    server.send("GET", "/api/summary", &headers, b"").ok();
}

#[test]
fn the_dashboards_server_is_started_in_the_background() {
    let workspace = workspace(FIXTURE);
    let first = link(&workspace);
    let second = link(&workspace);
    let address = |link: &str| link.split("/dashboard").next().unwrap().to_owned();
    assert_eq!(address(&first), address(&second), "one server for both");
    assert_ne!(first, second);
    let sockets = workspace.path(".llmc/servers").read_dir().unwrap();
    let names: Vec<String> = sockets
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let pid: i32 = names[0].split('-').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    until("its end", || {
        let left = workspace.path(".llmc/servers").read_dir().unwrap().count();
        (left == 0).then_some(())
    });
}
