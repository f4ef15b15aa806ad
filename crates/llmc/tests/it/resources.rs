//! Resources and pages of handles.

use llmc_testkit::McpClient;
use serde_json::json;

use crate::{classic, huge, workspace};

/// All bytes behind a handle, page by page.
pub(crate) fn pages(client: &mut McpClient, handle: &str, limit: u64) -> Vec<u8> {
    let (mut all, mut offset) = (Vec::new(), 0);
    loop {
        let page = client.json(
            "linux_handle_read",
            json!({"handle": handle, "offset": offset, "limit": limit}),
        );
        let data = page["data"].as_str().unwrap();
        let bytes = match page["encoding"].as_str().unwrap() {
            "utf-8" => data.as_bytes().to_vec(),
            "base64" => decode(data),
            other => panic!("encoding {other}"),
        };
        let length = page["length"].as_u64().unwrap();
        assert_eq!(bytes.len() as u64, length);
        assert_eq!(page["offset"], offset);
        all.extend(bytes);
        offset += length;
        if page["eof"] == true {
            assert_eq!(page["total_bytes"], all.len());
            return all;
        }
        assert!(
            length > 0,
            "a page without bytes that is not the last: {page}"
        );
    }
}

fn decode(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for digit in text.bytes().filter(|byte| *byte != b'=') {
        let value = DIGITS
            .iter()
            .position(|known| *known == digit)
            .expect("base64");
        bits = (bits << 6) | u32::try_from(value).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 0xff).unwrap());
        }
    }
    out
}

#[test]
fn pages_of_a_handle_joined_are_the_file() {
    let workspace = workspace("//- a\n");
    let plain: String = (0..5000)
        .map(|n| format!("line {n} äöü 日本 🦀\n"))
        .collect();
    let mut torn = plain.clone().into_bytes();
    // Bad bytes in the middle, CRLF, no newline at the end.
    torn.splice(1000..1000, [0xff, 0xfe, b'\r', b'\n', 0xc3]);
    torn.pop();
    for (name, bytes) in [("plain.txt", plain.into_bytes()), ("torn.txt", torn)] {
        workspace.write(name, &bytes);
        let mut client = classic(&workspace);
        let read = client.json("linux_fs_read", json!({"path": name, "max_lines": 3}));
        let handle = read["handle"].as_str().unwrap().to_owned();
        for limit in [1, 7, 4096, 65_536, 8 << 20] {
            // A small page only for a small part: every byte is a call.
            if limit < 100 {
                let page = client.json(
                    "linux_handle_read",
                    json!({"handle": handle, "offset": 990, "limit": limit}),
                );
                assert!(page["length"].as_u64().unwrap() <= limit);
                continue;
            }
            assert!(
                pages(&mut client, &handle, limit) == bytes,
                "{name} by {limit}"
            );
        }
        // Listed like any stored result, and readable as a resource.
        let uri = format!("llmc://handle/{handle}");
        let answer = client.request("resources/read", json!({"uri": uri}));
        let content = &answer["result"]["contents"][0];
        let whole = match (content["text"].as_str(), content["blob"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(blob)) => decode(blob),
            _ => panic!("neither text nor blob: {answer}"),
        };
        assert!(whole == bytes, "{name} as a resource");
    }
}

#[test]
fn documents_and_handles_are_resources() {
    let workspace = workspace(
        "//- DOCS/agents.core.min.md\n# Contract\n//- notes.txt\nplain\n//- llmc.toml\n[mcp.resources]\nsidecars = [\"DOCS/agents.core.min.md\", \"notes.txt\", \"DOCS/missing.md\", \"/etc/hostname\"]\n",
    );
    let mut client = classic(&workspace);
    let list = client.request("resources/list", json!({}));
    let uris: Vec<&str> = list["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["uri"].as_str().unwrap())
        .collect();
    assert_eq!(
        uris,
        [
            "llmc://docs/agents.core.min.md",
            "llmc://docs/notes.txt",
            "llmc://stubs/tools.pyi"
        ]
    );
    let answer = client.request(
        "resources/read",
        json!({"uri": "llmc://docs/agents.core.min.md"}),
    );
    let content = &answer["result"]["contents"][0];
    assert_eq!(content["text"], "# Contract\n");
    assert_eq!(content["mimeType"], "text/markdown");
    let answer = client.request("resources/read", json!({"uri": "llmc://docs/notes.txt"}));
    assert_eq!(answer["result"]["contents"][0]["mimeType"], "text/plain");
    let templates = client.request("resources/templates/list", json!({}));
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"],
        "llmc://handle/{id}"
    );
    for uri in [
        "llmc://docs/missing.md",
        "llmc://docs/hostname",
        "llmc://docs/../llmc.toml",
        "llmc://docs/",
        "llmc://handle/",
        "llmc://handle/res_00000000000000000000000000",
        "llmc://handle/../../etc/passwd",
        "file:///etc/passwd",
        "",
    ] {
        let answer = client.request("resources/read", json!({"uri": uri}));
        assert!(answer.get("result").is_none(), "{uri}: {answer}");
        assert!(
            answer["error"]["code"].as_i64().unwrap() < 0,
            "{uri}: {answer}"
        );
    }
    let ended = client.finish();
    assert!(
        ended.stderr.contains("DOCS/missing.md"),
        "a missing sidecar is a warning"
    );
}

#[test]
fn a_resource_that_cannot_be_read_is_not_called_missing() {
    let workspace = workspace(
        "//- big.md\nx\n//- gone.md\nx\n//- llmc.toml\n[mcp.resources]\nsidecars = [\"big.md\", \"gone.md\"]\n",
    );
    huge(&workspace, "big.md");
    let line = "a line of text, as in any file\n";
    workspace.write("large.txt", line.repeat((9 << 20) / line.len()));
    let mut client = classic(&workspace);
    let read = client.json(
        "linux_fs_read",
        json!({"path": "large.txt", "max_lines": 1}),
    );
    let handle = format!("llmc://handle/{}", read["handle"].as_str().unwrap());
    std::fs::remove_file(workspace.path("gone.md")).unwrap();
    for (uri, code) in [
        ("llmc://docs/big.md", -32602),
        (&handle, -32602),
        ("llmc://docs/gone.md", -32002),
        ("llmc://docs/none.md", -32002),
        ("llmc://handle/none", -32002),
    ] {
        let answer = client.request("resources/read", json!({"uri": uri}));
        assert_eq!(answer["error"]["code"], code, "{uri}: {answer}");
        assert_eq!(answer["error"]["data"]["uri"], uri);
        assert_ne!(answer["error"]["message"], "", "{answer}");
    }
}

#[test]
fn a_large_file_is_paged_whatever_its_name() {
    use std::os::unix::ffi::OsStrExt;
    let workspace = workspace("//- a\n");
    let line = "a line of text, as in any file\n";
    let bytes = line.repeat((9 << 20) / line.len()).into_bytes();
    workspace.write(std::ffi::OsStr::from_bytes(b"bad\xff.txt"), &bytes);
    let mut client = classic(&workspace);
    let args = json!({"path": "bad\\xff.txt", "max_lines": 1});
    let read = client.json("linux_fs_read", args);
    let handle = read["handle"].as_str().unwrap().to_owned();
    let args = json!({"handle": handle, "limit": 1000});
    let page = client.json("linux_handle_read", args);
    assert_eq!(
        (&page["stale"], &page["length"]),
        (&json!(false), &json!(1000))
    );
    assert!(pages(&mut client, &handle, 4 << 20) == bytes);
}
