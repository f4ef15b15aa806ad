//! Who sees and undoes what, over HTTP and in a shell.

use llmc_testkit::{HttpServer, TestWorkspace};
use serde_json::{Value, json};

use crate::history::entries;
use crate::{classic, workspace};

const FIXTURE: &str = "\
//- a.txt
one
//- b.txt
bee
";
const ANN: &str = "ann-token-0123456789";
const BOB: &str = "bob-token-0123456789";
const EVE: &str = "eve-token-0123456789";

fn serve(workspace: &TestWorkspace) -> HttpServer {
    let token = |name: &str, token: &str, more: &str| {
        let digest = llmc_host::sha256_hex(token.as_bytes());
        format!("{{name=\"{name}\", sha256=\"{digest}\"{more}}}")
    };
    let tokens = format!(
        "mcp.auth.tokens=[{}, {}, {}]",
        token("ann", ANN, ""),
        token("bob", BOB, ""),
        token("eve", EVE, ", tools=[\"read_file\"]"),
    );
    workspace.serve(["--set", &tokens])
}

fn call(server: &HttpServer, token: &str, name: &str, args: Value) -> llmc_testkit::HttpReply {
    let body = json!({"session_id": "s", "name": name, "args": args});
    server.post_as(token, "/tool", &body)
}

fn listed(server: &HttpServer, token: &str, path: &str) -> Value {
    server
        .send("GET", path, &[("X-LLMC-Token", token)], b"")
        .ok()
}

#[test]
fn a_named_token_sees_and_undoes_its_own_entries() {
    let workspace = workspace(FIXTURE);
    let server = serve(&workspace);
    let write = |path: &str| json!({"path": path, "content": "secret of ann\n"});
    call(&server, ANN, "linux_fs_write", write("a.txt")).ok();
    call(
        &server,
        BOB,
        "run_cmd",
        json!({"command": "echo bob > b.txt"}),
    )
    .ok();
    let main = server.token.clone();
    let all = listed(&server, &main, "/api/history");
    let ids: Vec<&str> = (all["entries"].as_array().unwrap().iter())
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 2, "{all}");
    let (bobs, anns) = (ids[0], ids[1]);
    for (token, own, other) in [(ANN, anns, bobs), (BOB, bobs, anns)] {
        let seen = listed(&server, token, "/api/history");
        assert_eq!(seen["entries"].as_array().unwrap().len(), 1, "{seen}");
        assert_eq!(seen["entries"][0]["id"], own, "{seen}");
        let seen = call(&server, token, "history", json!({})).ok();
        assert_eq!(
            seen["data"]["entries"].as_array().unwrap().len(),
            1,
            "{seen}"
        );
        // Another's entry does not exist, by any way.
        let foreign = json!({"entry": other});
        call(&server, token, "history", foreign.clone()).refused(404, "NOT_FOUND");
        call(&server, token, "undo", foreign.clone()).refused(404, "NOT_FOUND");
        let path = format!("/api/history/{other}");
        let headers = [("X-LLMC-Token", token)];
        server
            .send("GET", &path, &headers, b"")
            .refused(404, "NOT_FOUND");
    }
    // A session's name gives no right to another's entries: both have the same.
    let undone = call(&server, BOB, "undo", json!({"session": "s"})).ok();
    assert_eq!(undone["data"]["restored"], json!(["b.txt"]), "{undone}");
    assert_eq!(workspace.read("a.txt"), "secret of ann\n");
    assert_eq!(workspace.read("b.txt"), "bee\n");
    let detail = listed(&server, ANN, &format!("/api/history/{anns}"));
    assert!(
        detail["changes"][0]["diff"]
            .as_str()
            .unwrap()
            .contains("+secret of ann"),
        "{detail}"
    );
    // The main token may do all of it.
    call(&server, &main, "undo", json!({"entry": anns})).ok();
    assert_eq!(workspace.read("a.txt"), "one\n");
}

#[test]
fn a_token_without_the_tool_reads_no_history() {
    let workspace = workspace(FIXTURE);
    let server = serve(&workspace);
    let path = "/api/history";
    server
        .send("GET", path, &[("X-LLMC-Token", EVE)], b"")
        .refused(403, "FORBIDDEN");
    server
        .send("GET", path, &[], b"")
        .refused(401, "AUTH_FAILED");
    server.get("/api/history/nonsense").refused(422, "BAD_ARGS");
    server.get("/api/history/h7").refused(404, "NOT_FOUND");
    server.get("/api/history?limit=-1").refused(422, "BAD_ARGS");
}

#[test]
fn entries_come_in_pages() {
    let workspace = workspace(FIXTURE);
    let server = serve(&workspace);
    for n in 0..5 {
        let args = json!({"path": "a.txt", "content": n.to_string()});
        call(&server, ANN, "linux_fs_write", args).ok();
    }
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let page = listed(&server, ANN, &format!("/api/history?limit=2{before}"));
        for entry in page["entries"].as_array().unwrap() {
            seen.push(entry["id"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        before = format!("&before={next}");
        assert!(seen.len() <= 5, "{seen:?}");
    }
    assert_eq!(seen, ["h5", "h4", "h3", "h2", "h1"]);
}

#[test]
fn the_shell_lists_shows_and_undoes() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let said = workspace.llmc(["history"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "no changes recorded\n")
    );
    client.text("run_cmd", json!({"command": "echo two >> a.txt; rm b.txt"}));
    let said = workspace.llmc(["history"]);
    assert!(said.stdout.starts_with("h1 "), "{}", said.stdout);
    assert!(said.stdout.contains("run_cmd(echo two"), "{}", said.stdout);
    assert!(
        said.stdout.contains("1 changed, 1 deleted"),
        "{}",
        said.stdout
    );
    let said = workspace.llmc(["history", "show", "h1"]);
    assert!(
        said.stdout.contains("deleted b.txt") && said.stdout.contains("+two"),
        "{}",
        said.stdout
    );
    let said = workspace.llmc(["undo", "--dry-run"]);
    assert!(said.stdout.contains("would undo h1"), "{}", said.stdout);
    assert_eq!(workspace.read("a.txt"), "one\ntwo\n");
    workspace.write("a.txt", "newer\n");
    let said = workspace.llmc(["undo", "h1", "--atomic"]);
    assert_eq!(said.code, Some(6), "{}", said.stderr);
    assert!(said.stderr.contains("CONFLICT a.txt"), "{}", said.stderr);
    let said = workspace.llmc(["undo"]);
    assert_eq!(said.code, Some(6), "{}", said.stdout);
    assert!(said.stdout.contains("CONFLICT a.txt"), "{}", said.stdout);
    assert_eq!(workspace.read("b.txt"), "bee\n");
    assert_eq!(workspace.read("a.txt"), "newer\n");
    for (args, code) in [
        (&["undo", "h77"][..], 3),
        (&["undo", "x"], 2),
        (&["history", "show", "h77"], 3),
        (&["undo", "h1", "--to", "1h"], 2),
    ] {
        let said = workspace.llmc(args);
        assert_eq!(
            said.code,
            Some(code),
            "{args:?}: {}{}",
            said.stdout,
            said.stderr
        );
    }
}

#[test]
fn a_call_from_the_shell_is_recorded_without_a_server() {
    let workspace = workspace(FIXTURE);
    for (args, path) in [
        (
            &[
                "tool",
                "linux_fs_write",
                "--path",
                "a.txt",
                "--content",
                "x",
            ][..],
            "a.txt",
        ),
        (&["tool", "run_cmd", "--command", "echo x > b.txt"], "b.txt"),
    ] {
        let before = workspace.read(path);
        let said = workspace.llmc(args);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        let list = entries(&workspace);
        assert_eq!(list[0]["tool"], args[1], "{list:?}");
        let said = workspace.llmc(["undo"]);
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        assert_eq!(workspace.read(path), before);
    }
}

#[test]
fn doctor_says_what_is_kept() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    let said = workspace.llmc(["doctor"]);
    let row = said.stdout.lines().find(|line| line.starts_with("history"));
    assert!(
        row.is_some_and(|row| row.contains("1 entries")),
        "{}",
        said.stdout
    );
}

#[test]
fn an_entry_is_shown_and_undone_as_the_dashboard_does() {
    let workspace = workspace(FIXTURE);
    let server = serve(&workspace);
    let command = "printf 'one\\ntwo\\n' > a.txt; rm b.txt; mv a.txt c.txt; printf '\\0\\1' > blob";
    call(&server, ANN, "run_cmd", json!({"command": command})).ok();
    let list = listed(&server, ANN, "/api/history?session=s");
    let id = list["entries"][0]["id"].as_str().unwrap().to_owned();
    let files = list["entries"][0]["files"].as_array().unwrap();
    assert!(
        files
            .iter()
            .any(|file| file["path"] == "b.txt" && file["action"] == "deleted"),
        "{list}"
    );
    let of = |query: &str| {
        listed(&server, ANN, &format!("/api/history?{query}"))["entries"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (
            of("path=b.txt"),
            of("path=b%2Etxt"),
            of("path=none"),
            of("session=none")
        ),
        (1, 1, 0, 0)
    );
    let detail = listed(&server, ANN, &format!("/api/history/{id}"));
    let change = |path: &str| {
        let changes = detail["changes"].as_array().unwrap();
        let found = changes.iter().find(|change| change["path"] == path);
        found
            .unwrap_or_else(|| panic!("{path} in {detail}"))
            .clone()
    };
    assert!(
        change("b.txt")["diff"]
            .as_str()
            .unwrap()
            .contains("\n-bee\n"),
        "{detail}"
    );
    assert_eq!(change("b.txt")["after"]["kind"], "absent");
    assert!(
        change("blob")["note"]
            .as_str()
            .unwrap()
            .starts_with("Binary files"),
        "{detail}"
    );
    assert_eq!(change("blob")["diff"], "");
    // The look changes nothing; another's token may not even look.
    let path = format!("/api/history/{id}/undo");
    let look = server.post_as(ANN, &path, &json!({"dry_run": true})).ok();
    assert!(!look["restored"].as_array().unwrap().is_empty(), "{look}");
    assert_eq!(look["entry"], Value::Null);
    assert!(!workspace.path("b.txt").exists());
    server
        .post_as(BOB, &path, &json!({"dry_run": true}))
        .refused(404, "NOT_FOUND");
    server
        .post_as(EVE, &path, &json!({"dry_run": true}))
        .refused(403, "FORBIDDEN");
    for body in [
        json!({"paths": ["none"]}),
        json!({"paths": []}),
        json!({"force": true}),
        json!([]),
    ] {
        server.post_as(ANN, &path, &body).refused(422, "BAD_ARGS");
    }
    // One path; then a conflict that keeps everything as it is.
    let done = server
        .post_as(ANN, &path, &json!({"paths": ["b.txt"], "atomic": true}))
        .ok();
    assert_eq!(done["restored"], json!(["b.txt"]), "{done}");
    assert_eq!(workspace.read("b.txt"), "bee\n");
    let seen = listed(&server, ANN, &format!("/api/history/{id}"));
    assert_eq!(
        (&seen["undone_by"], &seen["undone"]),
        (&done["entry"], &json!(1)),
        "{seen}"
    );
    workspace.write("blob", "newer");
    let look = server
        .post_as(ANN, &path, &json!({"dry_run": true, "atomic": true}))
        .ok();
    assert_eq!(look["conflicts"][0]["path"], "blob", "{look}");
    server
        .post_as(ANN, &path, &json!({"atomic": true}))
        .refused(409, "CONFLICT");
    assert_eq!(workspace.read("blob"), "newer");
    assert!(workspace.path("c.txt").exists());
}
