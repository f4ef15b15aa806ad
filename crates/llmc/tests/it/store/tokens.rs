//! Tokens of the database: made and revoked in a shell, accepted by every server.

use std::time::{Duration, Instant};

use llmc_testdb::{TestCluster, TestDatabase};
use llmc_testkit::{HttpServer, TEST_TIMEOUT, TestWorkspace};
use serde_json::{Value, json};

use super::fixture;

fn team(database: &TestDatabase) -> TestWorkspace {
    fixture().with_env("LLMC_MCP__STORE__URL", &database.url())
}

fn serve(workspace: &TestWorkspace, machine: &str, grace_s: u64) -> HttpServer {
    let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
    let grace = format!("mcp.store.token_grace_s={grace_s}");
    workspace.serve(["--set", &volume, "--set", &grace])
}

fn add(workspace: &TestWorkspace, words: &[&str]) -> String {
    let added = workspace.llmc(["token", "add"].iter().chain(words));
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    added.stdout.trim().to_owned()
}

fn call(server: &HttpServer, token: &str, name: &str, args: Value) -> u16 {
    let body = json!({"session_id": "test", "name": name, "args": args});
    server.post_as(token, "/tool", &body).status
}

fn read(server: &HttpServer, token: &str) -> u16 {
    call(server, token, "read_file", json!({"path": "short.txt"}))
}

/// Waits until a request is answered like this; how long that took.
fn wait_for(server: &HttpServer, token: &str, status: u16) -> Duration {
    let started = Instant::now();
    while read(server, token) != status {
        assert!(started.elapsed() < TEST_TIMEOUT, "never {status}");
    }
    started.elapsed()
}

#[test]
fn a_token_counts_on_every_server_until_it_is_revoked() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let workspace = team(&database);
    let early = add(&workspace, &["early"]);
    let servers = [serve(&workspace, "one", 60), serve(&workspace, "other", 60)];
    let late = add(&workspace, &["late"]);
    assert!(late.starts_with("llmc_") && late.len() == 69, "{late}");
    for server in &servers {
        assert_eq!(read(server, &early), 200);
        let took = wait_for(server, &late, 200);
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(read(server, "llmc_0000"), 401);
    }
    let stored = cluster.sql(&database.name, "SELECT * FROM llmc.tokens");
    assert!(!stored.contains(&early[5..]), "only digests are stored");
    let revoked = workspace.llmc(["token", "revoke", "early"]);
    assert_eq!(revoked.code, Some(0), "{}", revoked.stderr);
    for server in &servers {
        let took = wait_for(server, &early, 401);
        // A second, and what a busy machine adds to it.
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(read(server, &late), 200);
    }
    // Another tenant's server does not know it.
    let foreign = workspace.serve([
        "--set",
        "mcp.docker.data_volume=\"../foreign\"",
        "--set",
        "mcp.store.tenant=\"others\"",
    ]);
    assert_eq!(read(&foreign, &late), 401);
}

#[test]
fn a_token_has_rights_a_rate_and_an_end() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let workspace = team(&database);
    let reader = add(&workspace, &["reader", "--read-only"]);
    let few = add(&workspace, &["few", "--tools", "stat,linux.fs_read"]);
    let slow = add(&workspace, &["slow", "--rate", "1"]);
    let ending = add(&workspace, &["ending", "--expires", "1d"]);
    let server = workspace.serve(["--set", "mcp.limits.rate_limit_burst=3"]);
    let write = json!({"path": "new.txt", "content": "x"});
    assert_eq!(read(&server, &reader), 200);
    assert_eq!(call(&server, &reader, "linux_fs_write", write.clone()), 403);
    assert_eq!(
        call(&server, &few, "stat", json!({"path": "short.txt"})),
        200
    );
    let start = json!({"path": "short.txt"});
    assert_eq!(call(&server, &few, "linux_fs_read", start), 200);
    assert_eq!(read(&server, &few), 403);
    let answers: Vec<u16> = (0..20).map(|_| read(&server, &slow)).collect();
    assert_eq!(answers[..3], [200, 200, 200]);
    assert!(
        answers.contains(&429),
        "its rate is not limited: {answers:?}"
    );
    assert_eq!(read(&server, &ending), 200);
    // A day later by the clock of the database.
    let sql = "UPDATE llmc.tokens SET expires_ms = expires_ms - 86400000 WHERE name = 'ending'";
    cluster.sql(&database.name, sql);
    wait_for(&server, &ending, 401);

    let listed = workspace.llmc(["token", "list"]).stdout;
    for line in [
        "ending                    all rights, all tools, expired 20",
        "few                       all rights, stat,linux.fs_read, never expires\n",
        "reader                    read only, all tools, never expires\n",
        "slow                      all rights, all tools, never expires, 1/s\n",
    ] {
        assert!(listed.contains(line), "{line:?} in\n{listed}");
    }
    let listed: Value =
        serde_json::from_str(&workspace.llmc(["token", "list", "--json"]).stdout).unwrap();
    assert_eq!(listed[0]["name"], "ending");
    assert_eq!(listed[0]["expired"], true);
    assert!(!listed.to_string().contains("llmc_"), "{listed}");
}

#[test]
fn a_server_that_has_lost_the_database_refuses_its_tokens_after_a_while() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let workspace = team(&database);
    let token = add(&workspace, &["ann"]);
    let (strict, lenient) = (
        serve(&workspace, "one", 3),
        serve(&workspace, "other", 3600),
    );
    for server in [&strict, &lenient] {
        assert_eq!(read(server, &token), 200);
    }
    cluster.stop("QUIT");
    assert_eq!(read(&strict, &token), 200, "not at once");
    let took = wait_for(&strict, &token, 401);
    assert!(took > Duration::from_secs(1), "{took:?}");
    assert_eq!(read(&lenient, &token), 200);
    assert_eq!(
        strict.get("/api/summary").status,
        200,
        "the main token counts"
    );
    cluster.run();
    wait_for(&strict, &token, 200);
}

#[test]
fn what_is_wrong_with_a_token_is_told() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let workspace = team(&cluster.database());
    add(&workspace, &["ann"]);
    for (words, code, told) in [
        (&["add", "ann"][..], 6, "there is a token ann already"),
        (&["add", "local"], 2, "is the main token's"),
        (&["add", "a b"], 2, "letters, digits"),
        (
            &["add", "x'; DROP TABLE llmc.tokens; --"],
            2,
            "letters, digits",
        ),
        (&["add", "bob", "--expires", "0d"], 2, "such as 90d"),
        (&["add", "bob", "--expires", "soon"], 2, "such as 90d"),
        (&["add", "bob", "--rate", "0"], 2, "rate"),
        (
            &["add", "bob", "--tools", "no_such_tool"],
            2,
            "there is no tool",
        ),
        (&["revoke", "bob"], 3, "there is no token bob"),
    ] {
        let failed = workspace.llmc(["token"].iter().chain(words));
        assert_eq!(failed.code, Some(code), "{words:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{words:?}: {}", failed.stderr);
    }
    let alone = fixture().llmc(["token", "list"]);
    assert_eq!(alone.code, Some(2));
    assert!(
        alone.stderr.contains("mcp.store.url is not set"),
        "{}",
        alone.stderr
    );
}
