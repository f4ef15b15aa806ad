//! One history of three servers: what one changed, another lists, shows and takes back.

use std::time::{Duration, Instant};

use llmc_testdb::TestCluster;
use llmc_testkit::{HttpReply, HttpServer, TEST_TIMEOUT, TestWorkspace};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture;
use crate::history::entries;

const ANN: &str = "ann-token-0123456789";
const BOB: &str = "bob-token-0123456789";

fn serve(workspace: &TestWorkspace, machine: &str) -> HttpServer {
    let token = |name: &str, token: &str| {
        let digest = llmc_host::sha256_hex(token.as_bytes());
        format!("{{name=\"{name}\", sha256=\"{digest}\"}}")
    };
    let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
    let tokens = format!(
        "mcp.auth.tokens=[{}, {}]",
        token("ann", ANN),
        token("bob", BOB)
    );
    workspace.serve(["--mode", "classic", "--set", &volume, "--set", &tokens])
}

/// Servers on three machines.
fn team(url: &str) -> (TestWorkspace, [HttpServer; 3]) {
    let workspace = fixture().with_env("LLMC_MCP__STORE__URL", url);
    let servers = ["one", "two", "three"].map(|machine| serve(&workspace, machine));
    (workspace, servers)
}

fn call(server: &HttpServer, token: &str, name: &str, args: Value) -> HttpReply {
    let body = json!({"session_id": "s", "name": name, "args": args});
    server.post_as(token, "/tool", &body)
}

fn undo(server: &HttpServer, entry: &Value) -> Value {
    server.tool("undo", json!({"entry": entry})).ok()["data"].clone()
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

/// The newest entry, as this server sees it.
fn newest(server: &HttpServer) -> Value {
    server.get("/api/history").ok()["entries"][0].clone()
}

/// Asks until the answer is as wanted.
fn until<T>(mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        match ask() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_change_made_on_one_server_is_shown_undone_and_redone_on_others() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, [one, two, three]) = team(&cluster.database().url());
    one.tool("linux_fs_write", write("short.txt", "changed\n"))
        .ok();
    let entry = newest(&two);
    assert_eq!(entry["tool"], "linux_fs_write", "{entry}");
    assert_eq!(newest(&three), entry);
    let id = entry["id"].as_str().unwrap();
    let shown = two.get(&format!("/api/history/{id}")).ok();
    let diff = shown["changes"][0]["diff"].as_str().unwrap();
    assert!(
        diff.contains("-short") && diff.contains("+changed"),
        "{diff}"
    );
    // In a shell it is the same history.
    let listed = entries(&workspace);
    assert_eq!((listed.len(), &listed[0]["entry"]), (1, &entry["id"]));

    let undone = undo(&two, &entry["id"]);
    assert_eq!(undone["restored"], json!(["short.txt"]), "{undone}");
    assert_eq!(workspace.read("short.txt"), "short\n");
    undo(&three, &undone["entry"]);
    assert_eq!(workspace.read("short.txt"), "changed\n");
    let told = three.tool("undo", json!({"entry": undone["entry"]}));
    assert_eq!(told.status, 409, "{}", told.text());

    // No server takes what another recorded for a change from outside.
    for server in [&one, &two, &three] {
        server.tool("run_cmd", json!({"command": "true"})).ok();
    }
    assert_eq!(entries(&workspace).len(), 3);
}

#[test]
fn what_a_command_did_on_one_server_another_takes_back() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, [one, two, three]) = team(&cluster.database().url());
    let long = workspace.read("long.txt");
    let command = "rm long.txt; mkdir d; head -c 3000000 /dev/urandom > d/large; echo more >> short.txt; chmod 700 short.txt";
    one.tool("run_cmd", json!({"command": command})).ok();
    let entry = newest(&two);
    assert_eq!(entry["tool"], "run_cmd", "{entry}");
    let large = std::fs::read(workspace.path("d/large")).unwrap();
    let undone = undo(&two, &entry["id"]);
    assert_eq!(undone["conflicts"], json!([]), "{undone}");
    assert_eq!(workspace.read("long.txt"), long);
    assert_eq!(workspace.read("short.txt"), "short\n");
    assert!(!workspace.path("d").exists());
    // Contents of several chunks come back as well.
    undo(&three, &undone["entry"]);
    assert!(std::fs::read(workspace.path("d/large")).unwrap() == large);
    assert!(!workspace.path("long.txt").exists());
    let checked = workspace.llmc(["doctor", "--json"]);
    let found: Value = serde_json::from_str(&checked.stdout).unwrap();
    let history = found["state"]["history"].as_str().unwrap();
    assert!(history.starts_with("3 entries, "), "{history}");
}

#[test]
fn entries_belong_to_their_token_and_tenant_on_every_server() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, [one, two, _]) = team(&cluster.database().url());
    call(&one, ANN, "linux_fs_write", write("short.txt", "ann\n")).ok();
    let id = newest(&two)["id"].clone();
    let mine = call(&two, ANN, "history", json!({})).ok();
    assert_eq!(mine["data"]["entries"][0]["entry"], id, "{mine}");
    let theirs = call(&two, BOB, "history", json!({})).ok();
    assert_eq!(theirs["data"]["entries"], json!([]), "{theirs}");
    for name in ["history", "undo"] {
        call(&two, BOB, name, json!({"entry": id})).refused(404, "NOT_FOUND");
    }
    let foreign = workspace.with_env("LLMC_MCP__STORE__TENANT", "other");
    assert_eq!(entries(&foreign), [Value::Null; 0]);
}

/// The undo has restored files and cannot record it when its server is killed.
#[test]
fn an_undo_whose_server_was_killed_is_finished_by_another() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let (workspace, [mut one, two, _three]) = team(&database.url());
    let command = "for n in $(seq 200); do echo $n > new$n; done; echo more >> short.txt";
    two.tool("run_cmd", json!({"command": command})).ok();
    let id = newest(&two)["id"].clone();
    // Longer than a statement may take: what the killed server has sent ends without a commit.
    cluster.sql(
        &database.name,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'; \
         CREATE TRIGGER wait BEFORE INSERT ON llmc.history_entries FOR EACH ROW WHEN (NEW.source = 2) \
         EXECUTE FUNCTION wait()",
    );
    let plans = || cluster.sql(&database.name, "SELECT count(*) FROM llmc.history_plans");
    std::thread::scope(|scope| {
        let body = json!({"session_id": "s", "name": "undo", "args": {"entry": id}});
        let mut stream = one.connect();
        let request = llmc_testkit::request(
            "POST",
            "/tool",
            &[
                ("X-LLMC-Token", one.token.as_str()),
                ("Content-Type", "application/json"),
            ],
            body.to_string().as_bytes(),
        );
        std::io::Write::write_all(&mut stream, &request).unwrap();
        let asked = scope.spawn(move || {
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
        });
        until(|| match plans().as_str() {
            "1" => Ok(()),
            plans => Err(format!("{plans} plans")),
        });
        one.process().signal(Signal::KILL);
        assert_eq!(one.wait().signal, Some(9));
        asked.join().unwrap();
    });
    assert_eq!(plans(), "1", "the undo has not ended");
    cluster.sql(
        &database.name,
        "DROP TRIGGER wait ON llmc.history_entries; \
         UPDATE llmc.leases SET expires_at = expires_at - interval '1 minute'; \
         UPDATE llmc.history_plans SET seen_at = seen_at - interval '1 minute'",
    );
    let entry = until(|| match newest(&two) {
        entry if entry["source"] == "undo" => Ok(entry),
        entry => Err(entry.to_string()),
    });
    assert_eq!(entry["undoes"], json!([id]), "{entry}");
    assert_eq!(workspace.read("short.txt"), "short\n");
    assert!((1..=200).all(|n| !workspace.path(format!("new{n}")).exists()));
    assert_eq!(plans(), "0");
}

#[test]
fn a_history_that_is_away_is_said_and_comes_back() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let (workspace, [one, two, _]) = team(&cluster.database().url());
    one.tool("linux_fs_write", write("short.txt", "before\n"))
        .ok();
    let before = newest(&one)["id"].clone();
    cluster.stop("QUIT");
    // Reading it says why it cannot, a change by a file tool is refused, and a command runs on and says what is missing.
    let refused = two.tool("history", json!({}));
    let refused = refused.refused(503, "UNAVAILABLE");
    assert!(refused.to_string().contains("database"), "{refused}");
    one.tool("linux_fs_write", write("short.txt", "away\n"))
        .refused(503, "UNAVAILABLE");
    let ran = one
        .tool("run_cmd", json!({"command": "echo away > made.txt"}))
        .ok();
    assert!(ran.to_string().contains("not_undoable"), "{ran}");
    assert_eq!(workspace.read("made.txt"), "away\n");
    cluster.run();
    // What was recorded is there, and what was not is found by the next command, as a change from outside.
    until(|| {
        let ran = two.tool("run_cmd", json!({"command": "true"})).ok();
        match ran.to_string().contains("not_undoable") {
            true => Err(ran.to_string()),
            false => Ok(()),
        }
    });
    let outside = newest(&two);
    assert_eq!(outside["source"], "outside", "{outside}");
    let listed = one.get("/api/history").ok();
    let ids: Vec<&Value> = (listed["entries"].as_array().unwrap().iter())
        .map(|entry| &entry["id"])
        .collect();
    assert_eq!(ids, [&outside["id"], &before], "{listed}");
    undo(&one, &outside["id"]);
    assert!(!workspace.path("made.txt").exists());
    undo(&two, &before);
    assert_eq!(workspace.read("short.txt"), "short\n");
}
