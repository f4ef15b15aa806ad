//! The ledger of an upstream: the same figures in every view.

use serde_json::{Value, json};

use super::{STUB, tool, with_stub};
use crate::code::{run, server};

/// Tokens of the stub's list, as `upstream list` counts them.
fn list_tokens(list: &str) -> u64 {
    let row = list.lines().find(|line| line.starts_with("stub")).unwrap();
    row.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn every_view_shows_the_same_ledger() {
    assert!(STUB.contains("\"rows\""));
    let workspace = with_stub(&[], &[]);
    let list = list_tokens(&workspace.llmc(["upstream", "list"]).stdout);
    // Two conversations; a script reads some 20,000 bytes in the model's place.
    for code in [
        "len(tools.stub.rows(800))",
        "print('no upstream is called')",
    ] {
        let mut client = server(&workspace, &[]);
        run(&mut client, code);
        assert_eq!(client.finish().code, Some(0));
    }
    // A call whose answer is cut, and the rest of it.
    let cut = tool(&workspace, "stub.lines", &json!({"count": 5000})).stdout;
    let handle = &cut[cut.rfind("res_").unwrap()..][..30];
    let fetched = tool(&workspace, "te_handle", &json!({"handle": handle}));
    assert_eq!(fetched.code, Some(0), "{}", fetched.stderr);

    let analysis = workspace.llmc(["te", "analyze", "--json"]).stdout;
    let analysis: Value = serde_json::from_str(&analysis).unwrap();
    let ledger = &analysis["upstreams"][0];
    assert_eq!(ledger["upstream"], "stub", "{analysis}");
    assert_eq!(ledger["list_tokens"], list, "{ledger}");
    assert_eq!(ledger["list_avoided"], 2 * list, "{ledger}");
    assert_eq!(ledger["calls"], 2, "{ledger}");
    let count = |key: &str| ledger["tokens"][key].as_u64().unwrap();
    assert!(count("served") > 500, "{ledger}");
    assert!(count("withheld") > 20_000, "{ledger}");
    assert!(count("fetched_back") > 500, "{ledger}");
    let in_scripts = ledger["read_by_scripts"].as_u64().unwrap();
    assert!((4_000..12_000).contains(&in_scripts), "{ledger}");

    let text = workspace.llmc(["te", "analyze"]).stdout;
    let row = text.lines().find(|line| line.starts_with("stub ")).unwrap();
    let avoided = (2 * list).to_string();
    assert!(row.split_whitespace().any(|cell| cell == avoided), "{text}");
    let terminal = workspace.llmc(["tui", "--summary"]).stdout;
    assert!(terminal.contains("of its list avoided"), "{terminal}");
    assert!(terminal.contains("read by scripts"), "{terminal}");

    let serving = workspace.serve([""; 0]);
    let savings = serving.get("/api/savings").ok();
    assert_eq!(&savings["upstreams"][0], ledger, "{savings}");
    let summary = serving.get("/api/summary?of=workspace").ok();
    assert_eq!(&summary["upstreams"][0], ledger, "{summary}");
    // Its own: no conversation so far.
    serving.tool("stub.shout", json!({"text": "a"})).ok();
    let metrics = serving.get("/metrics").text();
    for line in [
        "llmc_upstream_calls_total{upstream=\"stub\"} 1".to_owned(),
        format!("llmc_upstream_list_tokens{{upstream=\"stub\"}} {list}"),
        "llmc_upstream_tokens_total{upstream=\"stub\",direction=\"list_avoided\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
    let metrics = serving.tool("get_metrics", json!({})).ok();
    assert_eq!(metrics["data"]["upstreams"][0]["calls"], 1, "{metrics}");
}

#[test]
fn promoted_tools_are_not_avoided() {
    let plain = with_stub(&[], &[]);
    let promoted = with_stub(&[], &["--promote", "*"]);
    let list_of = |workspace: &llmc_testkit::TestWorkspace| {
        let serving = workspace.serve([""; 0]);
        let summary = serving.get("/api/summary").ok();
        summary["upstreams"][0]["list_tokens"].as_u64().unwrap()
    };
    assert!(list_of(&plain) > 500);
    assert_eq!(list_of(&promoted), 0);
}
