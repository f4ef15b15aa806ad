//! Real documents, and files made to harm their reader.
//!
//! The fixtures were written by the usual libraries of each format (reportlab, python-docx, openpyxl, python-pptx, odfpy,
//! Pillow, xlwt, and SheetJS for `short.xlsb`) and keep only what a reader needs. `stock.xlsb` is `short.xlsb` with the
//! cells that Excel writes, rewritten by hand.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Cursor, Write};

use llmc_documents::{
    Conversion, ConversionFault, DocumentText, FileFormat, ImageKind, ScaledImage, convert,
    convert_here,
};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../fixtures/", $name)).as_slice()
    };
}

fn converted(name: &str, bytes: &[u8]) -> Result<Conversion, ConversionFault> {
    let format = FileFormat::of(name, bytes).unwrap_or_else(|| panic!("{name} has no format"));
    convert_here(format, bytes)
}

fn document(name: &str, bytes: &[u8]) -> DocumentText {
    match converted(name, bytes) {
        Ok(Conversion::Text(document)) => {
            assert!(document.is_sound() && !document.is_cut, "{document:?}");
            document
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn image(name: &str, bytes: &[u8]) -> ScaledImage {
    match converted(name, bytes) {
        Ok(Conversion::Image(image)) => {
            assert!(image.is_sound(), "{}", image.summary());
            image
        }
        other => panic!("{name}: {other:?}"),
    }
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
fn nothing_is_parsed_in_a_process_that_has_set_up_no_other() {
    let fault = convert(FileFormat::Pdf, fixture!("report.pdf"), &|| false).unwrap_err();
    assert!(matches!(fault, ConversionFault::Unavailable(_)), "{fault}");
}

#[test]
fn a_pdf_is_read_page_by_page() {
    let report = document("report.pdf", fixture!("report.pdf"));
    assert_eq!(report.summary(), "PDF, 3 pages");
    assert_eq!(
        report.text,
        "--- page 1 of 3 ---\nQuarterly report\n\nThe margin rose to 17 percent (café, naïve).\n\
         --- page 2 of 3 ---\nSecond page: outlook\n\nOrders are stable.\n\
         --- page 3 of 3 ---\n(no text on this page; it may be a scanned picture)\n"
    );
    let (first, last) = report.lines_of("2").unwrap();
    let lines: Vec<&str> = report.text.lines().collect();
    assert_eq!(lines[first as usize], "Second page: outlook");
    assert_eq!(last - first, 3);
    assert!(report.lines_of("4").is_none() && report.lines_of("0").is_none());
    assert_eq!(report.lines_of("1-3"), Some((1, lines.len() as u64)));
}

#[test]
fn a_pdf_that_anybody_may_open_needs_no_password() {
    let text = document("restricted.pdf", fixture!("restricted.pdf")).text;
    assert!(text.contains("Quarterly report"), "{text}");
    assert_eq!(
        converted("locked.pdf", fixture!("locked.pdf")),
        Err(ConversionFault::Encrypted)
    );
}

#[test]
fn a_word_document_keeps_headings_lists_tables_and_pages() {
    let letter = document("letter.docx", fixture!("letter.docx"));
    assert_eq!(letter.summary(), "Word document, 2 pages");
    for line in [
        "# Offer",
        "Dear Ms Ko, thank you & regards <soon>.",
        "| item | price |",
        "| bolt | 0.12 |",
        "--- page 2 of 2 ---",
        "## Terms",
    ] {
        assert!(
            letter.text.lines().any(|found| found == line),
            "{line}: {}",
            letter.text
        );
    }
    assert!(letter.text.contains("- first point\n"), "{}", letter.text);
}

#[test]
fn sheets_are_rows_of_values() {
    let book = document("book.xlsx", fixture!("book.xlsx"));
    assert_eq!(book.summary(), "Excel workbook, 3 sheets");
    assert_eq!(
        book.text,
        "--- sheet Prices ---\nitem,price,note\nbolt,0.12,\"M6, \"\"zinc\"\"\"\nnut,3\n(5 empty rows)\ntotal,3.12\n\
         --- sheet Dates ---\nstart,2026-01-31\nat,2026-02-01 12:30:00\ntook,26:05:00\ntrue\n\
         --- sheet Notes (hidden) ---\ninternal\n"
    );
    assert_eq!(book.lines_of("Dates"), Some((7, 11)));
    // The name says one thing, the content another.
    assert_eq!(document("book.docx", fixture!("book.xlsx")), book);
    let plan = document("plan.ods", fixture!("plan.ods"));
    assert_eq!(plan.summary(), "OpenDocument spreadsheet, 2 sheets");
    assert_eq!(
        plan.text,
        "--- sheet Costs ---\nroom,120\nfood,80\n--- sheet People ---\nAda\nGrace\n"
    );
}

#[test]
fn older_and_binary_workbooks_are_read() {
    let text = "--- sheet Parts ---\npart,price\n\"bolt, \"\"zinc\"\"\",0.12\nnut,3\n(5 empty rows)\ntotal,3.12\n\
                --- sheet Dates ---\nstart,2026-01-31\nat,2026-02-01 12:30:00\ndone,true\nnaïve ✓\n\
                --- sheet Notes (hidden) ---\ninternal\n";
    for (name, bytes) in [
        ("stock.xls", fixture!("stock.xls")),
        ("stock.xlsb", fixture!("stock.xlsb")),
        // The same with cells that do not say their column.
        ("short.xlsb", fixture!("short.xlsb")),
    ] {
        let stock = document(name, bytes);
        assert_eq!(stock.summary(), "Excel workbook, 3 sheets", "{name}");
        assert_eq!(stock.text, text, "{name}");
        assert_eq!(stock.lines_of("Notes"), Some((12, 13)), "{name}");
    }
}

#[test]
fn slides_texts_and_notebooks_are_read() {
    let deck = document("deck.pptx", fixture!("deck.pptx"));
    assert_eq!(
        deck.text,
        "--- slide 1 of 2 ---\nLaunch plan\nShip in May\n--- slide 2 of 2 ---\nRisks\nSupply & demand\n"
    );
    let talk = document("talk.odp", fixture!("talk.odp"));
    assert_eq!(talk.summary(), "OpenDocument slides, 2 slides");
    assert_eq!(
        talk.text,
        "--- slide 1 of 2 ---\nLaunch plan\nShip in May\nTell customers\n\
         --- slide 2 of 2 ---\nRisks\nSupply & demand\n| risk | owner |\n| late parts | Ada |\n"
    );
    let minutes = document("minutes.odt", fixture!("minutes.odt"));
    assert_eq!(
        minutes.text,
        "# Minutes\nWe met on Monday.\n- decide the date\n| who | what |\n"
    );
    let survey = document("survey.ipynb", fixture!("survey.ipynb"));
    assert_eq!(survey.summary(), "Jupyter notebook, 3 cells");
    assert_eq!(
        survey.text,
        "--- cell 1, markdown ---\n# Survey\nTwo groups.\n\
         --- cell 2, code [7] ---\nmean = sum(x) / len(x)\nprint(mean)\n[stdout]\n4.5\n[output]\n<Figure>\n(image/png not shown)\n\
         --- cell 3, code [8] ---\n1/0\n[error]\nZeroDivisionError: division by zero\n"
    );
}

#[test]
fn images_fit_a_model() {
    let wide = image("wide.png", fixture!("wide.png"));
    assert_eq!(
        (wide.kind, wide.width, wide.height),
        (ImageKind::Png, 1568, 784)
    );
    assert_eq!(wide.summary(), "PNG image, 3136x1568, scaled to 1568x784");
    // Its camera was held upright.
    let turned = image("turned.jpg", fixture!("turned.jpg"));
    assert_eq!(
        (turned.kind, turned.width, turned.height),
        (ImageKind::Jpeg, 40, 60)
    );
    let small = image("small.webp", fixture!("small.webp"));
    assert_eq!(
        (small.kind, small.summary().as_str()),
        (ImageKind::WebP, "WebP image, 32x24")
    );
    assert_eq!(small.bytes, fixture!("small.webp"));
    let moving = image("moving.gif", fixture!("moving.gif"));
    assert_eq!((moving.kind, moving.width), (ImageKind::Png, 16));
}

#[test]
fn other_files_are_left_alone() {
    for (name, bytes) in [
        ("a.pdf", b"just text".as_slice()),
        ("a.zip", fixture!("letter.docx")),
        ("a.ipynb", b"[1]"),
        ("a.json", b"{}"),
        ("a.png", b"no image"),
        ("", b""),
    ] {
        assert_eq!(FileFormat::of(name, bytes), None, "{name}");
    }
    assert_eq!(
        FileFormat::of("x/A.PDF", b"\n%PDF-1.7"),
        Some(FileFormat::Pdf)
    );
    let archive = package(&[("a.txt", b"hello")]);
    assert_eq!(converted("a.docx", &archive), Err(ConversionFault::Unknown));
}

#[test]
fn an_archive_that_unpacks_to_much_is_refused() {
    let zeros = vec![b' '; (48 << 20) + 1];
    let bomb = package(&[("word/document.xml", &zeros)]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let fault = converted("bomb.docx", &bomb).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "word/document.xml in it unpacks to more than 48 MiB"
    );
}

#[test]
fn declared_entities_are_not_expanded() {
    let mut xml = String::from("<!DOCTYPE d [<!ENTITY a0 \"aaaaaaaaaa\">");
    for level in 1..=9 {
        let inner = format!("&a{};", level - 1).repeat(10);
        xml.push_str(&format!("<!ENTITY a{level} \"{inner}\">"));
    }
    xml.push_str("]><w:document><w:body><w:p><w:r><w:t>x &a9; &amp; &#65;</w:t></w:r></w:p></w:body></w:document>");
    let bytes = package(&[("word/document.xml", xml.as_bytes())]);
    assert_eq!(document("a.docx", &bytes).text, "x &a9; & A\n");
}

#[test]
fn two_cells_far_apart_make_no_table_of_billions() {
    let sheet = r#"<worksheet><sheetData><row r="1"><c r="A1"><v>1</v></c></row>
        <row r="1048576"><c r="XFD1048576"><v>2</v></c></row></sheetData></worksheet>"#;
    let bytes = workbook(sheet);
    let text = document("far.xlsx", &bytes).text;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["--- sheet One ---", "1", "(1048574 empty rows)"]
    );
    assert_eq!(lines[3].len(), 16_384);
}

#[test]
fn damaged_files_are_errors() {
    for (name, bytes) in [
        ("report.pdf", fixture!("report.pdf")),
        ("letter.docx", fixture!("letter.docx")),
        ("book.xlsx", fixture!("book.xlsx")),
        ("stock.xls", fixture!("stock.xls")),
        ("short.xlsb", fixture!("short.xlsb")),
        ("plan.ods", fixture!("plan.ods")),
        ("talk.odp", fixture!("talk.odp")),
        ("deck.pptx", fixture!("deck.pptx")),
        ("survey.ipynb", fixture!("survey.ipynb")),
        ("wide.png", fixture!("wide.png")),
        ("turned.jpg", fixture!("turned.jpg")),
        ("small.webp", fixture!("small.webp")),
    ] {
        let cut = &bytes[..bytes.len() / 2];
        // A parser may repair a file; it must not do anything else than that.
        if let Err(fault) = converted(name, cut) {
            assert!(
                matches!(fault, ConversionFault::Damaged(_)),
                "{name}: {fault}"
            );
        }
        for at in (16..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x55;
            if FileFormat::of(name, &flipped).is_some() {
                let _ = converted(name, &flipped);
            }
        }
    }
    let cut = &fixture!("letter.docx")[..2000];
    assert!(converted("letter.docx", cut).is_err());
}

#[test]
fn an_image_of_huge_dimensions_is_not_decoded() {
    let mut huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    let mut header = b"IHDR".to_vec();
    header.extend(60_000_u32.to_be_bytes());
    header.extend(60_000_u32.to_be_bytes());
    header.extend([8, 6, 0, 0, 0]);
    huge.extend(&header[4..]);
    huge.extend(crc32(&header).to_be_bytes());
    huge.extend(b"\0\0\0\0IDAT");
    let fault = converted("huge.png", &huge).unwrap_err();
    assert!(
        matches!(fault, ConversionFault::TooLarge(_))
            || matches!(fault, ConversionFault::Damaged(_)),
        "{fault}"
    );
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

/// A workbook of one sheet.
fn workbook(sheet: &str) -> Vec<u8> {
    let sheet = sheet.replacen(
        "<worksheet>",
        r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">"#,
        1,
    );
    package(&[
        (
            "[Content_Types].xml",
            br#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#,
        ),
        (
            "_rels/.rels",
            br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#,
        ),
        (
            "xl/workbook.xml",
            br#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="One" sheetId="1" r:id="rId1"/></sheets></workbook>"#,
        ),
        (
            "xl/_rels/workbook.xml.rels",
            br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#,
        ),
        ("xl/worksheets/sheet1.xml", sheet.as_bytes()),
    ])
}
