//! Converters of documents that are attacked through the files they read.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use llmc_documents::{
    Conversion, ConversionFault, DocumentKind, DocumentPart, DocumentText, FileFormat, ImageKind,
    MAX_TEXT_BYTES, PartUnit, ScaledImage, convert_here,
};
use llmc_sandbox::{DocumentRole, DocumentWorkers, serve_documents};

use crate::escapes::{ATTEMPTS, what_works};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("documents::a_worker_reads_what_its_parser_reads", reads);
    add("documents::a_converter_taken_over_gets_nowhere", taken_over);
    add("documents::without_a_filter_nothing_is_read", unfiltered);
    add("documents::a_crash_costs_one_file", crash);
    add("documents::exhausted_memory_costs_one_file", memory);
    add("documents::a_lie_is_refused", lie);
    add("documents::a_hang_ends_when_the_call_is_cancelled", hang);
    add(
        "documents::nested_pdf_objects_end_the_worker_at_most",
        nested,
    );
}

/// The hidden arguments of converters that do not what they should.
const HOSTILE: &str = "__hostile_document";
const TAKEN_OVER: &str = "__document_taken_over";
const UNHELD: &str = "__document_unheld";
const UNFILTERED: &str = "__document_unfiltered";

const MEMORY_BYTES: u64 = 256 << 20;

pub(crate) fn document_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    let kind = args.next()?;
    let held = DocumentRole::default();
    let role = match kind.as_str() {
        HOSTILE => DocumentRole {
            convert: misbehave,
            ..held
        },
        TAKEN_OVER => DocumentRole {
            convert: attack,
            ..held
        },
        UNHELD => DocumentRole {
            convert: attack,
            confine: |_| Ok(()),
        },
        UNFILTERED => DocumentRole {
            confine: |_| Err(std::io::Error::other("no filter here")),
            ..held
        },
        _ => return None,
    };
    Some(serve_documents(role, args.next()?.parse().ok()?))
}

fn text(text: String, first_line: u64) -> Result<Conversion, ConversionFault> {
    Ok(Conversion::Text(DocumentText {
        kind: DocumentKind::Pdf,
        unit: PartUnit::Page,
        parts: vec![DocumentPart {
            name: "1".to_owned(),
            first_line,
        }],
        is_cut: false,
        text,
    }))
}

/// Does what the file asks for.
fn misbehave(format: FileFormat, bytes: &[u8]) -> Result<Conversion, ConversionFault> {
    let asked = String::from_utf8_lossy(bytes);
    match asked.split_whitespace().next() {
        Some("ABORT") => std::process::abort(),
        Some("HANG") => loop {
            std::hint::spin_loop();
        },
        Some("MEMORY") => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(vec![1; 8 << 20]);
            }
        }
        Some("LINE") => text("one line\n".to_owned(), 1 << 40),
        Some("LONG") => text("x".repeat(MAX_TEXT_BYTES + 1), 1),
        Some("FLOOD") => text("x".repeat(60 << 20), 1),
        Some("IMAGE") => Ok(Conversion::Image(ScaledImage {
            kind: ImageKind::Png,
            width: 10,
            height: 10,
            source: ImageKind::Png,
            source_width: 10,
            source_height: 10,
            bytes: b"<svg onload=alert(1)>".to_vec(),
        })),
        _ => convert_here(format, bytes),
    }
}

/// Tries to get out, and returns what worked as text.
fn attack(_: FileFormat, _: &[u8]) -> Result<Conversion, ConversionFault> {
    text(format!("{}\n", what_works().join(" ")), 1)
}

const NOTEBOOK: &[u8] = br##"{"cells": [{"cell_type": "markdown", "source": "# Hello"}]}"##;

fn ask(argument: &'static str, bytes: &[u8]) -> Result<Conversion, ConversionFault> {
    DocumentWorkers::new(argument, MEMORY_BYTES).convert(FileFormat::Notebook, bytes, &|| false)
}

fn text_of(conversion: Result<Conversion, ConversionFault>) -> String {
    match conversion {
        Ok(Conversion::Text(document)) => document.text,
        other => panic!("{other:?}"),
    }
}

fn reads() {
    let here = convert_here(FileFormat::Notebook, NOTEBOOK).unwrap();
    assert_eq!(ask("__document", NOTEBOOK).unwrap(), here);
    let fault = ask("__document", b"{").unwrap_err();
    assert!(matches!(fault, ConversionFault::Damaged(_)), "{fault:?}");
    let pdf = include_bytes!("../../../llmc-documents/fixtures/report.pdf");
    let workers = DocumentWorkers::new("__document", 640 << 20);
    let report = text_of(workers.convert(FileFormat::Pdf, pdf, &|| false));
    assert!(report.contains("Quarterly report"), "{report}");
    let png = include_bytes!("../../../llmc-documents/fixtures/wide.png");
    match workers.convert(FileFormat::Image, png, &|| false) {
        Ok(Conversion::Image(image)) => assert_eq!((image.width, image.height), (1568, 784)),
        other => panic!("{other:?}"),
    }
}

fn taken_over() {
    // Without what holds a converter every attempt works, or the second line would prove nothing.
    let free = text_of(ask(UNHELD, b""));
    assert_eq!(free.trim(), ATTEMPTS.join(" "));
    assert_eq!(text_of(ask(TAKEN_OVER, b"")), "\n");
    let _ = std::fs::remove_file("/tmp/llmc-attacker");
}

fn unfiltered() {
    match ask(UNFILTERED, NOTEBOOK) {
        Err(ConversionFault::Unavailable(why)) => assert!(why.contains("no filter here"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        ask("--list", NOTEBOOK),
        Err(ConversionFault::Unavailable(_))
    ));
}

fn crash() {
    // More often than there are places for workers.
    for _ in 0..5 {
        assert_eq!(ask(HOSTILE, b"ABORT"), Err(ConversionFault::Crashed));
    }
    assert!(text_of(ask(HOSTILE, NOTEBOOK)).contains("# Hello"));
}

fn memory() {
    assert_eq!(ask(HOSTILE, b"MEMORY"), Err(ConversionFault::Crashed));
}

fn lie() {
    for lie in ["LINE", "LONG", "FLOOD", "IMAGE"] {
        assert_eq!(
            ask(HOSTILE, lie.as_bytes()),
            Err(ConversionFault::Crashed),
            "{lie}"
        );
    }
}

fn hang() {
    let started = Instant::now();
    let is_cancelled = || started.elapsed() > Duration::from_millis(300);
    let workers = DocumentWorkers::new(HOSTILE, MEMORY_BYTES);
    let ended = workers.convert(FileFormat::Notebook, b"HANG", &is_cancelled);
    assert_eq!(ended, Err(ConversionFault::Cancelled));
}

fn nested() {
    let depth = 300_000;
    let mut pdf = b"%PDF-1.7\n1 0 obj\n".to_vec();
    pdf.extend("[".repeat(depth).bytes());
    pdf.extend("]".repeat(depth).bytes());
    pdf.extend(b"\nendobj\n2 0 obj\n<< /Type /Catalog /Pages 1 0 R >>\nendobj\nxref\n0 3\n0000000000 65535 f \n0000000009 00000 n \n");
    let second = format!("{:010} 00000 n \n", 9 + 8 + 2 * depth + 8);
    pdf.extend(second.bytes());
    let start = 9 + 8 + 2 * depth + 8 + 50;
    pdf.extend(format!("trailer << /Root 2 0 R /Size 3 >>\nstartxref\n{start}\n%%EOF\n").bytes());
    let workers = DocumentWorkers::new("__document", MEMORY_BYTES);
    let fault = workers
        .convert(FileFormat::Pdf, &pdf, &|| false)
        .unwrap_err();
    assert!(
        matches!(
            fault,
            ConversionFault::Damaged(_) | ConversionFault::Crashed
        ),
        "{fault:?}"
    );
    // The next file is read as before.
    assert!(text_of(ask("__document", NOTEBOOK)).contains("# Hello"));
}
