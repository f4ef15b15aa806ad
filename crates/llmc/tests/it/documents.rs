//! Documents and images over MCP, REST and in scripts, real ones and hostile ones.

use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::rag_hostile::{is_parsing, workers_of};
use crate::{classic, workspace};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../llmc-documents/fixtures/", $name)).as_slice()
    };
}

/// A workspace with a document of each kind.
fn documents() -> TestWorkspace {
    let workspace = workspace("//- a.txt\nplain\n");
    for (name, bytes) in [
        ("report.pdf", fixture!("report.pdf")),
        ("locked.pdf", fixture!("locked.pdf")),
        ("letter.docx", fixture!("letter.docx")),
        ("book.xlsx", fixture!("book.xlsx")),
        ("plan.ods", fixture!("plan.ods")),
        ("deck.pptx", fixture!("deck.pptx")),
        ("minutes.odt", fixture!("minutes.odt")),
        ("survey.ipynb", fixture!("survey.ipynb")),
        ("wide.png", fixture!("wide.png")),
        ("turned.jpg", fixture!("turned.jpg")),
        ("small.webp", fixture!("small.webp")),
        ("moving.gif", fixture!("moving.gif")),
    ] {
        workspace.write(name, bytes);
    }
    workspace
}

/// The blocks of an answer.
fn content(client: &mut McpClient, tool: &str, args: Value) -> Vec<Value> {
    let answer = client.request("tools/call", json!({"name": tool, "arguments": args}));
    let result = &answer["result"];
    assert!(
        result.get("isError").is_none_or(|failed| *failed == false),
        "{answer}"
    );
    result["content"].as_array().unwrap().clone()
}

#[test]
fn documents_are_read_by_page_sheet_and_cell() {
    let workspace = documents();
    let mut client = classic(&workspace);
    for (path, line) in [
        ("report.pdf", "Second page: outlook"),
        ("letter.docx", "| bolt | 0.12 |"),
        ("book.xlsx", "at,2026-02-01 12:30:00"),
        ("plan.ods", "--- sheet People ---"),
        ("deck.pptx", "Ship in May"),
        ("minutes.odt", "# Minutes"),
        ("survey.ipynb", "--- cell 3, code [8] ---"),
    ] {
        for tool in ["read_file", "te_cat"] {
            let text = client.text(tool, json!({"path": path}));
            assert!(
                text.lines().any(|found| found == line),
                "{tool} {path}: {text}"
            );
        }
    }
    let text = client.text("read_file", json!({"path": "report.pdf#page=2"}));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "--- page 2 of 3 ---",
            "Second page: outlook",
            "",
            "Orders are stable."
        ]
    );
    assert!(
        lines[4].starts_with("# LLMC: PDF, 3 pages; lines 5-8 of 10"),
        "{text}"
    );
    let text = client.text("read_file", json!({"path": "book.xlsx#sheet=Notes"}));
    assert!(
        text.starts_with("--- sheet Notes (hidden) ---\ninternal\n# LLMC: "),
        "{text}"
    );
    let text = client.text("te_cat", json!({"path": "survey.ipynb#cell=2"}));
    assert!(text.starts_with("--- cell 2, code [7] ---\n"), "{text}");
    // Lines count in the document's text.
    let text = client.text(
        "read_file",
        json!({"path": "plan.ods", "offset_lines": 1, "max_lines": 1}),
    );
    assert!(
        text.starts_with("room,120\n# LLMC: OpenDocument spreadsheet, 2 sheets; lines 2-2 of 6"),
        "{text}"
    );
    let text = client.text("read_file", json!({"path": "plan.ods:2-3"}));
    assert!(text.starts_with("room,120\nfood,80\n"), "{text}");
    let error = client.error("read_file", json!({"path": "report.pdf#page=9"}));
    assert_eq!(error["error"], "report.pdf has no page 9");
    let error = client.error("read_file", json!({"path": "a.txt#page=1"}));
    assert_eq!(error["error"], "a.txt is not divided into pages");
}

#[test]
fn what_a_long_document_leaves_out_is_under_a_handle() {
    let workspace = documents();
    let cells: Vec<Value> = (0..400)
        .map(|number| json!({"cell_type": "code", "source": format!("value_{number} = compute({number})")}))
        .collect();
    workspace.write("long.ipynb", json!({"cells": cells}).to_string());
    let mut client = classic(&workspace);
    let text = client.text("read_file", json!({"path": "long.ipynb"}));
    let receipt = text.lines().last().unwrap();
    assert!(
        receipt.starts_with("# LLMC: Jupyter notebook, 400 cells; lines 1-200 of 800"),
        "{receipt}"
    );
    let handle = receipt.split_whitespace().find_map(|word| {
        let word = word
            .trim_start_matches("path=")
            .trim_start_matches("handle=");
        word.starts_with("res_")
            .then(|| word.trim_end_matches([';', ',']))
    });
    let handle = handle.unwrap_or_else(|| panic!("no handle: {receipt}"));
    let rest = client.text(
        "read_file",
        json!({"path": handle, "offset_lines": 798, "max_lines": 2}),
    );
    assert!(
        rest.starts_with("--- cell 400, code ---\nvalue_399 = compute(399)\n"),
        "{rest}"
    );
}

#[test]
fn images_are_image_content_with_a_line_of_facts() {
    let workspace = documents();
    let mut client = classic(&workspace);
    for (path, facts, mime) in [
        (
            "wide.png",
            "PNG image, 3136x1568, scaled to 1568x784, ",
            "image/png",
        ),
        ("turned.jpg", "JPEG image, 40x60, ", "image/jpeg"),
        ("small.webp", "WebP image, 32x24, ", "image/webp"),
        ("moving.gif", "GIF image, 16x16, ", "image/png"),
    ] {
        let [text, image] = &content(&mut client, "read_file", json!({"path": path}))[..] else {
            panic!("{path}: two blocks");
        };
        let line = text["text"].as_str().unwrap();
        assert!(line.starts_with(&format!("# LLMC: {facts}")), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert_eq!(
            (&image["type"], &image["mimeType"]),
            (&json!("image"), &json!(mime))
        );
        let bytes = STANDARD.decode(image["data"].as_str().unwrap()).unwrap();
        let kind = match mime {
            "image/png" => b"\x89PNG".as_slice(),
            "image/jpeg" => b"\xff\xd8\xff",
            _ => b"RIFF",
        };
        assert!(bytes.starts_with(kind), "{path}");
        if path == "wide.png" {
            assert_eq!(bytes[16..24], [0, 0, 0x06, 0x20, 0, 0, 0x03, 0x10]);
        }
        let preview = content(&mut client, "te_cat", json!({"path": path}));
        assert!(
            preview[0]["text"].as_str().unwrap().contains(facts),
            "{preview:?}"
        );
        assert_eq!(preview[1], *image);
    }
}

#[test]
fn scripts_rest_and_the_shell_get_text() {
    let workspace = documents();
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    let code = "print(read_file('wide.png'))\nprint(read_file('report.pdf').count('page'))";
    let text = client.text("execute_code", json!({"code": code}));
    assert!(
        text.starts_with("PNG image, 3136x1568, scaled to 1568x784, "),
        "{text}"
    );
    assert!(
        text.lines()
            .nth(1)
            .is_some_and(|line| line.parse::<u32>().is_ok()),
        "{text}"
    );
    let server = workspace.serve(["--mode", "classic"]);
    let body = server.tool("read_file", json!({"path": "report.pdf"})).ok();
    assert!(
        body["data"]
            .as_str()
            .unwrap()
            .starts_with("--- page 1 of 3 ---\nQuarterly"),
        "{body}"
    );
    assert_eq!(body["meta"]["truncated"], false);
    let body = server.tool("read_file", json!({"path": "wide.png"})).ok();
    assert!(
        body["data"]
            .as_str()
            .unwrap()
            .starts_with("PNG image, 3136x1568"),
        "{body}"
    );
    let image = &body["meta"]["image"];
    assert_eq!(
        (&image["mime_type"], &image["width"]),
        (&json!("image/png"), &json!(1568))
    );
    assert!(
        STANDARD
            .decode(image["data"].as_str().unwrap())
            .unwrap()
            .starts_with(b"\x89PNG")
    );
    let output = workspace.llmc(["tool", "read_file", "--path", "plan.ods"]);
    assert!(output.stdout.contains("room,120"), "{output:?}");
}

fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn hostile_files_are_errors_and_the_server_goes_on() {
    let workspace = documents();
    let report = fixture!("report.pdf");
    workspace.write("cut.pdf", &report[..report.len() / 3]);
    workspace.write(
        "bomb.docx",
        package(&[("word/document.xml", &vec![b' '; 60 << 20])]),
    );
    workspace.write("cut.docx", &fixture!("letter.docx")[..1500]);
    let deep = "<a>".repeat(100_000);
    workspace.write(
        "deep.odt",
        package(&[
            ("mimetype", b"application/vnd.oasis.opendocument.text"),
            ("content.xml", deep.as_bytes()),
        ]),
    );
    let nested = format!(
        "%PDF-1.7\n1 0 obj\n{}{}\nendobj\n",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    workspace.write("nested.pdf", nested);
    workspace.write("tiny.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0");
    workspace.write("empty.xlsx", b"PK\x03\x04");
    workspace.write(
        "large.pdf",
        [b"%PDF-1.7\n".as_slice(), &vec![b'x'; 33 << 20]].concat(),
    );
    let mut client = classic(&workspace);
    for (path, code, message) in [
        (
            "locked.pdf",
            "BAD_ARGS",
            "it is encrypted and needs a password",
        ),
        ("cut.pdf", "BAD_ARGS", ""),
        (
            "bomb.docx",
            "OUTPUT_TOO_LARGE",
            "unpacks to more than 48 MiB",
        ),
        ("cut.docx", "BAD_ARGS", "it is damaged: "),
        ("deep.odt", "BAD_ARGS", "its elements are nested too deeply"),
        ("nested.pdf", "BAD_ARGS", ""),
        ("tiny.png", "BAD_ARGS", "it is damaged: "),
        ("empty.xlsx", "BAD_ARGS", "it is damaged: "),
        (
            "large.pdf",
            "OUTPUT_TOO_LARGE",
            "only files up to 32 MiB are converted",
        ),
    ] {
        let error = client.error("read_file", json!({"path": path}));
        assert_eq!(error["meta"]["error_code"], code, "{path}: {error}");
        let said = error["error"].as_str().unwrap();
        assert!(said.starts_with(path) && said.contains(message), "{said}");
        // A preview still says what it is.
        let preview = client.text("te_cat", json!({"path": path}));
        assert!(preview.contains("not read: "), "{path}: {preview}");
    }
    // By its content a document, by its name another.
    workspace.write("renamed.docx", fixture!("report.pdf"));
    client.assert_contains(
        "read_file",
        json!({"path": "renamed.docx"}),
        "Quarterly report",
    );
    workspace.write("renamed.pdf", "just text\n");
    client.assert_starts("read_file", json!({"path": "renamed.pdf"}), "just text\n");
    client.assert_starts("read_file", json!({"path": "a.txt"}), "plain\n");
}

/// The converter that a server has started, confined and in the middle of a file.
fn converter_of(server: u32) -> u32 {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let found = workers_of(server, "__document")
            .into_iter()
            .find(|id| is_parsing(*id));
        if let Some(id) = found {
            return id;
        }
        assert!(Instant::now() < end, "no converter");
        std::thread::yield_now();
    }
}

#[test]
fn documents_are_parsed_in_a_confined_process_whose_end_costs_one_call() {
    let workspace = documents();
    // Cells without a value: much to parse, nothing to show.
    let mut sheet = String::from(
        r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>"#,
    );
    for row in 1..=400_000 {
        sheet.push_str(&format!(
            "<row r=\"{row}\"><c r=\"A{row}\"/><c r=\"B{row}\"/><c r=\"C{row}\"/></row>"
        ));
    }
    sheet.push_str("</sheetData></worksheet>");
    workspace.write("slow.xlsx", package(&[
        ("[Content_Types].xml", br#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#),
        ("_rels/.rels", br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#),
        ("xl/workbook.xml", br#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="One" sheetId="1" r:id="rId1"/></sheets></workbook>"#),
        ("xl/_rels/workbook.xml.rels", br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#),
        ("xl/worksheets/sheet1.xml", sheet.as_bytes()),
    ]));
    let mut client = classic(&workspace);
    let server = u32::try_from(client.process().pid().as_raw_nonzero().get()).unwrap();
    let call = client.send_call("read_file", json!({"path": "slow.xlsx"}));
    let converter = converter_of(server);
    let id = rustix::process::Pid::from_raw(i32::try_from(converter).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::ABORT).unwrap();
    let (failed, text) = client.tool_answer(call);
    assert!(
        failed && text.contains("slow.xlsx: its parser crashed"),
        "{text}"
    );
    client.assert_contains("read_file", json!({"path": "plan.ods"}), "room,120");
}
