//! Answers and keys in, rows and requests out.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::*;
use crate::watch::{ServerAddress, WatchTarget};

/// An entry as the server sends it, with more in it as a test needs.
pub(crate) fn entry(number: u64, more: Value) -> Value {
    let mut entry = json!({
        "id": format!("h{number}"), "time": format!("1970-01-01T01:00:{number:02}Z"), "agent": "ann", "session": "s1",
        "tool": "write_file", "args": "path=a.txt", "source": "call", "shared": false, "undoes": [], "undone_by": null,
        "head": null, "not_kept": 0, "undone": 0,
        "files": [{"path": "a.txt", "action": "changed", "from": null, "kept": true}],
    });
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    let actions = ["created", "changed", "deleted", "moved"];
    for action in actions {
        let files = entry["files"].as_array().unwrap();
        let count = files.iter().filter(|file| file["action"] == action).count();
        entry["counts"][action] = count.into();
    }
    entry
}

fn answer(request: HistoryRequest, document: &Value) -> HistoryUpdate {
    HistoryUpdate {
        answer: reader::parse(&request, &document.to_string()),
        request,
    }
}

/// Answers everything that is asked from these entries, newest first, `page` at a time; returns what was asked.
pub(crate) fn serve(changes: &mut Changes, entries: &[Value], page: usize) -> Vec<HistoryRequest> {
    let mut asked = Vec::new();
    while let Some(request) = changes.take_wanted() {
        let document = match &request {
            HistoryRequest::Show(id) => entries
                .iter()
                .find(|entry| entry["id"] == **id)
                .cloned()
                .unwrap(),
            HistoryRequest::Newest | HistoryRequest::Before(_) => {
                let first = match &request {
                    HistoryRequest::Before(id) => {
                        1 + entries
                            .iter()
                            .position(|entry| entry["id"] == **id)
                            .unwrap()
                    }
                    _ => 0,
                };
                let shown: Vec<_> = entries.iter().skip(first).take(page).collect();
                let more = first + page < entries.len();
                let next = more.then(|| shown.last().unwrap()["id"].clone());
                json!({"entries": shown, "next": next})
            }
        };
        changes.apply(answer(request.clone(), &document));
        asked.push(request);
    }
    asked
}

fn press(changes: &mut Changes, keys: &str) {
    for key in keys.chars() {
        let key = if key == '\n' {
            Key::Enter
        } else {
            Key::Char(key)
        };
        assert!(!changes.key(key), "stays open");
    }
}

fn selected(changes: &Changes) -> (&str, Option<&str>) {
    let (entry, path) = changes.selected().unwrap();
    (entry.id.as_str(), path)
}

fn shown(changes: &Changes) -> Vec<String> {
    let line = |row: &ChangeRow| match row {
        ChangeRow::Heading(heading) => format!("# {heading}"),
        ChangeRow::Entry { at, .. } => changes.entries[*at].id.clone(),
    };
    changes.rows.iter().map(line).collect()
}

fn three() -> Vec<Value> {
    vec![
        entry(
            3,
            json!({"source": "outside", "tool": "", "session": "", "agent": ""}),
        ),
        entry(
            2,
            json!({"session": "s2", "files": [{"path": "b.txt", "action": "moved", "from": "a.txt"}]}),
        ),
        entry(
            1,
            json!({"files": [
                {"path": "a.txt", "action": "created"}, {"path": "c.txt", "action": "created"},
            ]}),
        ),
    ]
}

#[test]
fn the_newest_entry_is_shown_until_another_is_chosen() {
    let mut changes = Changes::new();
    let show = |id: &str| HistoryRequest::Show(id.to_owned());
    let asked = serve(&mut changes, &three(), 10);
    assert_eq!(asked, [HistoryRequest::Newest, show("h3")]);
    changes.refresh();
    let mut more = vec![entry(4, json!({}))];
    more.extend(three());
    let asked = serve(&mut changes, &more, 10);
    assert_eq!(
        asked,
        [HistoryRequest::Newest, show("h4")],
        "the top follows"
    );
    press(&mut changes, "jj");
    assert_eq!(
        serve(&mut changes, &more, 10),
        [show("h2")],
        "only where the cursor stays"
    );
    more.insert(0, entry(5, json!({})));
    changes.refresh();
    assert_eq!(serve(&mut changes, &more, 10), [HistoryRequest::Newest]);
    assert_eq!(selected(&changes).0, "h2");
    more[3]["undone_by"] = "h5".into();
    changes.refresh();
    let asked = serve(&mut changes, &more, 10);
    assert_eq!(
        asked,
        [HistoryRequest::Newest, show("h2")],
        "it was undone meanwhile"
    );
}

#[test]
fn entries_are_grouped_by_file_and_by_session() {
    let mut changes = Changes::new();
    serve(&mut changes, &three(), 10);
    assert_eq!(shown(&changes), ["h3", "h2", "h1"]);
    press(&mut changes, "b");
    assert_eq!(
        shown(&changes),
        [
            "# a.txt", "h3", "h2", "h1", "# b.txt", "h2", "# c.txt", "h1"
        ],
        "what was moved is in both places"
    );
    assert_eq!(selected(&changes), ("h3", Some("a.txt")), "never a heading");
    press(&mut changes, "G");
    assert_eq!(selected(&changes), ("h1", Some("c.txt")));
    press(&mut changes, "k");
    assert_eq!(selected(&changes), ("h2", Some("b.txt")));
    press(&mut changes, "b");
    assert_eq!(
        shown(&changes),
        [
            "# outside of calls",
            "h3",
            "# session s2 of ann",
            "h2",
            "# session s1 of ann",
            "h1"
        ]
    );
    assert_eq!(selected(&changes), ("h2", None), "the same entry");
    press(&mut changes, "bg");
    assert_eq!(shown(&changes), ["h3", "h2", "h1"]);
    assert!(changes.key(Key::Esc));
}

#[test]
fn older_entries_come_when_the_end_is_reached() {
    let entries: Vec<_> = (1..=25)
        .rev()
        .map(|number| entry(number, json!({})))
        .collect();
    let mut changes = Changes::new();
    serve(&mut changes, &entries, 10);
    assert_eq!(changes.entries.len(), 10);
    press(&mut changes, "G");
    serve(&mut changes, &entries, 10);
    assert_eq!(changes.entries.len(), 20);
    changes.refresh();
    serve(&mut changes, &entries, 10);
    assert_eq!(changes.entries.len(), 20, "a refresh keeps them");
    press(&mut changes, "GGGG");
    serve(&mut changes, &entries, 10);
    press(&mut changes, "G");
    assert_eq!(
        serve(&mut changes, &entries, 10).len(),
        1,
        "only the entry: there are no more"
    );
    assert_eq!(changes.entries.len(), 25);
    assert_eq!(selected(&changes).0, "h1");
    let later: Vec<_> = (91..=99)
        .rev()
        .map(|number| entry(number, json!({})))
        .collect();
    changes.refresh();
    serve(&mut changes, &later, 5);
    assert_eq!(
        changes.entries.len(),
        5,
        "no gap between the new and the old"
    );
}

const DIFF: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@ fn\n one\n--- two\n+++ 2\n+\tthree\x1b[2J\n\\ No newline at end of file\n";

#[test]
fn a_diff_is_made_of_its_hunks() {
    let change = json!({
        "path": "a.txt", "action": "changed", "from": null, "before": {"kind": "file", "mode": "0644", "size": 8},
        "after": {"kind": "link", "mode": "0755", "size": 9}, "diff": DIFF, "note": null,
    });
    let other = json!({
        "path": "b", "action": "created", "before": {"kind": "absent", "mode": null, "size": null},
        "after": {"kind": "file", "mode": "0644", "size": 1}, "diff": "", "note": "binary, 1 B",
    });
    let detail = entry(
        1,
        json!({
            "shared": true, "not_kept": 2, "head": {"before": "aaa", "after": "bbb"}, "changes": [change, other],
            "files": [{"path": "a.txt", "action": "changed"}, {"path": "b", "action": "created"}],
        }),
    );
    let mut changes = Changes::new();
    serve(&mut changes, &[detail], 10);
    let lines: Vec<_> = changes.diff().unwrap().into_iter().cloned().collect();
    let texts: Vec<_> = lines
        .iter()
        .map(|line| (line.kind, line.text.as_str()))
        .collect();
    use LineKind::*;
    assert_eq!(
        texts,
        [
            (Note, "1970-01-01T01:00:01Z · agent ann · session s1"),
            (Note, "path=a.txt"),
            (Note, "HEAD moved: aaa → bbb"),
            (
                Warning,
                "another writer was active meanwhile: some changes may be its (shared)"
            ),
            (
                Warning,
                "2 files not kept (ignored, protected or too large): undo cannot restore them"
            ),
            (File, "changed a.txt, file → link, mode 0644 → 0755"),
            (Hunk, "@@ -1,2 +1,3 @@ fn"),
            (Same, " one"),
            (Removed, "--- two"),
            (Added, "+++ 2"),
            (Added, "+    three\\x1b[2J"),
            (Note, "\\ No newline at end of file"),
            (File, "created b"),
            (Warning, "  binary, 1 B"),
        ]
    );
    press(&mut changes, "bG");
    let own: Vec<_> = changes.diff().unwrap();
    assert_eq!(own.last().unwrap().text, "  binary, 1 B");
    assert!(
        own.iter().all(|line| !line.text.contains("three")),
        "of this file alone"
    );
}

#[test]
fn long_diffs_are_bounded_and_scroll_to_their_end() {
    let diff = format!("@@ -0,0 +1,9000 @@\n{}", "+line\n".repeat(9000));
    let change = json!({"path": "a.txt", "action": "created", "diff": diff});
    let mut changes = Changes::new();
    serve(&mut changes, &[entry(1, json!({"changes": [change]}))], 10);
    let lines = changes.diff().unwrap();
    assert!(lines.len() < 5010);
    assert!(lines.last().unwrap().text.contains("llmc history show h1"));
    press(&mut changes, "\nG");
    assert!(changes.whole);
    assert_eq!(
        usize::from(changes.scroll) + 1,
        changes.diff().unwrap().len()
    );
    assert!(!changes.key(Key::Esc), "back to the list first");
    assert!(!changes.whole);
}

#[test]
fn failures_are_said_and_pass() {
    let mut changes = Changes::new();
    let failed = |request| HistoryUpdate {
        request,
        answer: Err("no history here".to_owned()),
    };
    let request = changes.take_wanted().unwrap();
    changes.apply(failed(request));
    assert_eq!(changes.failure.as_deref(), Some("no history here"));
    assert_eq!(changes.take_wanted(), None, "not asked again and again");
    changes.refresh();
    serve(&mut changes, &three(), 10);
    assert_eq!(changes.failure, None);
    for document in ["[]", "{}", r#"{"entries":[{"id":1}]}"#] {
        assert!(
            reader::parse(&HistoryRequest::Newest, document).is_err(),
            "{document}"
        );
    }
}

#[test]
fn a_server_is_asked_on_the_routes_of_the_history() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let entries = three();
    let server = std::thread::spawn(move || {
        let documents = [
            json!({"entries": entries, "next": null}),
            entries[0].clone(),
        ];
        documents.map(|document| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let body = document.to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
            let head = String::from_utf8(head).unwrap();
            head.lines().next().unwrap().to_owned()
        })
    });
    let target = WatchTarget::Server {
        address: ServerAddress::Tcp(address),
        token: Some("t".to_owned()),
    };
    let folder = tempfile::tempdir().unwrap();
    let loaded = llmc_config::load(&llmc_config::ConfigInputs {
        cwd: folder.path().to_owned(),
        ..Default::default()
    });
    let mut runner = crate::rerun::RepeatRunner::new(loaded.unwrap());
    let mut reader = HistoryReader::new();
    let mut changes = Changes::new();
    while changes.text.is_none() {
        if let Some(request) = changes.take_wanted() {
            assert!(reader.is_idle());
            reader.ask(request, &target, &mut runner);
        }
        let update = reader.wait();
        changes.apply(update);
        assert_eq!(changes.failure, None);
    }
    assert_eq!(
        server.join().unwrap(),
        [
            "GET /api/history?limit=100 HTTP/1.1",
            "GET /api/history/h3 HTTP/1.1"
        ]
    );
    assert_eq!(selected(&changes).0, "h3");
}
