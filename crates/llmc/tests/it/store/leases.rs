//! Leases that hold on every server: two servers, one workspace, one database.

use std::time::Instant;

use llmc_testdb::TestCluster;
use llmc_testkit::{McpClient, TEST_TIMEOUT, TestWorkspace};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::fixture;

fn server(workspace: &TestWorkspace, url: &str, machine: &str, lease_s: u32) -> McpClient {
    let settings = [
        format!("mcp.docker.data_volume=\"../{machine}\""),
        format!("mcp.store.url=\"{url}\""),
        format!("mcp.locks.lease_s={lease_s}"),
    ];
    let flags = settings.iter().flat_map(|setting| ["--set", setting]);
    let mut client = workspace.mcp(["--mode", "classic"].into_iter().chain(flags));
    client.initialize("2025-11-25");
    client
}

fn append(content: &str) -> Value {
    json!({"path": "shared.txt", "content": content, "mode": "append"})
}

/// Repeats a change until no other server has the file.
fn append_in_turn(client: &mut McpClient, content: &str) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let (failed, text) = client.call_tool("linux_fs_write", append(content));
        if !failed {
            return;
        }
        assert!(text.starts_with("RESOURCE_BUSY"), "{text}");
        assert!(Instant::now() < deadline, "{text}");
    }
}

/// Makes the database keep every lease, as if its holder were killed before it could give it back.
fn refuse_deletions(cluster: &TestCluster, database: &str) {
    cluster.sql(
        database,
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''kept''; END'; \
         CREATE TRIGGER keep BEFORE DELETE ON llmc.leases FOR EACH ROW EXECUTE FUNCTION keep()",
    );
}

#[test]
fn servers_that_change_one_file_lose_no_change() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, url) = (fixture(), cluster.database().url());
    std::thread::scope(|scope| {
        for machine in ["one", "other"] {
            let (workspace, url) = (&workspace, &url);
            scope.spawn(move || {
                let mut client = server(workspace, url, machine, 30);
                for n in 0..15 {
                    append_in_turn(&mut client, &format!("{machine} {n}\n"));
                }
            });
        }
    });
    let text = workspace.read("shared.txt");
    for machine in ["one", "other"] {
        let own: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(machine))
            .collect();
        let made: Vec<String> = (0..15).map(|n| format!("{machine} {n}")).collect();
        assert_eq!(own, made);
    }
}

#[test]
fn a_killed_server_keeps_its_lease_until_its_time_is_over() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, database) = (fixture(), cluster.database());
    let url = database.url();
    let mut killed = server(&workspace, &url, "one", 3);
    killed.text("linux_fs_write", append("first\n"));
    refuse_deletions(cluster, &database.name);
    killed.text("linux_fs_write", append("second\n"));
    kill_process(killed.process().pid(), Signal::KILL).unwrap();
    assert_eq!(killed.wait().signal, Some(9));
    cluster.sql(&database.name, "DROP TRIGGER keep ON llmc.leases");
    let mut next = server(&workspace, &url, "other", 30);
    let refused = next.error("linux_fs_write", append("too early\n"));
    assert_eq!(refused["meta"]["error_code"], "RESOURCE_BUSY", "{refused}");
    append_in_turn(&mut next, "third\n");
    assert_eq!(workspace.read("shared.txt"), "first\nsecond\nthird\n");
}

/// What could not be given back while the database was away does not lock the server itself out.
#[test]
fn a_server_takes_its_own_abandoned_lease_at_once() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let (workspace, database) = (fixture(), cluster.database());
    let mut client = server(&workspace, &database.url(), "one", 3600);
    client.text("linux_fs_write", append("first\n"));
    refuse_deletions(cluster, &database.name);
    client.text("linux_fs_write", append("second\n"));
    let kept = cluster.sql(&database.name, "SELECT count(*) FROM llmc.leases");
    assert_eq!(kept, "1");
    client.text("linux_fs_write", append("third\n"));
    assert_eq!(workspace.read("shared.txt"), "first\nsecond\nthird\n");
}
