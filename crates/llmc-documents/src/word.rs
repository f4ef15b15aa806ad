//! The text of a Word document: headings, paragraphs, lists and tables, by page where the file says where pages begin.

use crate::package::{Package, XmlElement, XmlStep, walk_xml};
use crate::parts::PartsText;
use crate::{ConversionFault, DocumentKind, DocumentText, PartUnit};

pub(crate) fn read(package: &mut Package<'_>) -> Result<DocumentText, ConversionFault> {
    read_xml(&package.required("word/document.xml")?)
}

pub(crate) fn read_xml(xml: &str) -> Result<DocumentText, ConversionFault> {
    let mut pages = Pages::default();
    let mut flow = Flow::default();
    walk_xml(xml, |step| {
        visit(&mut flow, &mut pages, step);
        !pages.is_full()
    })?;
    Ok(pages.finish(DocumentKind::Word))
}

fn visit(flow: &mut Flow, pages: &mut Pages, step: XmlStep<'_>) {
    match step {
        // A second form of the same content, for old programs.
        XmlStep::Open(element) if element.name() == "Fallback" => flow.skipped += 1,
        XmlStep::Close("Fallback") => flow.skipped = flow.skipped.saturating_sub(1),
        _ if flow.skipped > 0 => {}
        XmlStep::Open(element) => open(flow, pages, &element),
        XmlStep::Close(name) => match name {
            "t" => flow.in_text = false,
            "p" => flow.end_paragraph(pages),
            "tc" => flow.end_cell(),
            "tr" => flow.end_row(pages),
            "tbl" => flow.tables = flow.tables.saturating_sub(1),
            _ => {}
        },
        XmlStep::Text(text) if flow.in_text => flow.paragraph.push_str(&text),
        XmlStep::Text(_) => {}
    }
}

fn open(flow: &mut Flow, pages: &mut Pages, element: &XmlElement<'_>) {
    match element.name() {
        "t" => flow.in_text = true,
        "tab" => flow.paragraph.push('\t'),
        "noBreakHyphen" => flow.paragraph.push('-'),
        "br" | "cr" => match element.attribute("type").as_deref() {
            Some("page") => flow.break_page(pages),
            _ => flow.paragraph.push('\n'),
        },
        "lastRenderedPageBreak" => flow.break_page(pages),
        "pStyle" => flow.style(&element.attribute("val").unwrap_or_default()),
        "numPr" => flow.is_item = true,
        "ilvl" => {
            let level = element
                .attribute("val")
                .and_then(|value| value.parse().ok());
            flow.level = level.unwrap_or(0_usize).min(MAX_LIST_LEVEL);
        }
        "tbl" => flow.tables += 1,
        _ => {}
    }
}

const MAX_LIST_LEVEL: usize = 8;

/// Paragraphs and table rows as they are read; shared with OpenDocument.
#[derive(Default)]
pub(crate) struct Flow {
    pub(crate) paragraph: String,
    pub(crate) heading: usize,
    pub(crate) is_item: bool,
    pub(crate) level: usize,
    pub(crate) in_text: bool,
    pub(crate) skipped: usize,
    pub(crate) tables: usize,
    cell: String,
    row: Vec<String>,
}

impl Flow {
    /// `Heading2` and `Title` are headings, `ListBullet` is an item.
    fn style(&mut self, style: &str) {
        let style = style.to_ascii_lowercase();
        if style == "title" {
            self.heading = 1;
        } else if let Some(level) = style.strip_prefix("heading") {
            self.heading = level.trim().parse().unwrap_or(1).clamp(1, 6);
        } else if style.starts_with("list") {
            self.is_item = true;
        }
    }

    pub(crate) fn end_paragraph(&mut self, pages: &mut Pages) {
        let text = std::mem::take(&mut self.paragraph);
        let (heading, level) = (
            std::mem::take(&mut self.heading),
            std::mem::take(&mut self.level),
        );
        let is_item = std::mem::take(&mut self.is_item);
        if self.tables > 0 {
            if !self.cell.is_empty() {
                self.cell.push(' ');
            }
            self.cell.push_str(text.trim());
            return;
        }
        if text.trim().is_empty() {
            pages.blank();
            return;
        }
        let before = match (heading, is_item) {
            (0, true) => format!("{}- ", "  ".repeat(level)),
            (0, false) => String::new(),
            (heading, _) => format!("{} ", "#".repeat(heading)),
        };
        pages.text(&format!("{before}{}", text.trim_end()));
    }

    pub(crate) fn end_cell(&mut self) {
        self.row.push(std::mem::take(&mut self.cell));
    }

    pub(crate) fn end_row(&mut self, pages: &mut Pages) {
        let row = std::mem::take(&mut self.row);
        if self.tables > 1 {
            // A table in a cell is part of the cell's text.
            self.cell.push_str(&row.join(" "));
        } else if !row.is_empty() {
            pages.text(&format!("| {} |", row.join(" | ").replace('\n', " ")));
        }
    }

    pub(crate) fn break_page(&mut self, pages: &mut Pages) {
        if self.tables == 0 {
            if !self.paragraph.trim().is_empty() {
                let (heading, level, is_item) = (self.heading, self.level, self.is_item);
                self.end_paragraph(pages);
                (self.heading, self.level, self.is_item) = (heading, level, is_item);
            }
            pages.turn();
        }
    }
}

/// The pages of a text, as far as they are known.
#[derive(Default)]
pub(crate) struct Pages {
    all: Vec<String>,
    now: String,
    bytes: usize,
}

impl Pages {
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > crate::MAX_TEXT_BYTES
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes += text.len() + 1;
        self.now.push_str(text);
        self.now.push('\n');
    }

    pub(crate) fn blank(&mut self) {
        self.bytes += 1;
        self.now.push('\n');
    }

    /// Begins the next page. Word marks some breaks twice, so an empty page is none.
    pub(crate) fn turn(&mut self) {
        if !self.now.trim().is_empty() {
            self.all.push(std::mem::take(&mut self.now));
        }
    }

    pub(crate) fn finish(mut self, kind: DocumentKind) -> DocumentText {
        let is_cut = self.is_full();
        if self.all.is_empty() || !self.now.trim().is_empty() {
            self.all.push(self.now);
        }
        let mut parts = PartsText::new(kind, PartUnit::Page);
        for (index, page) in self.all.iter().enumerate() {
            let number = index + 1;
            let heading = format!("page {number} of {}", self.all.len());
            parts.begin(
                number.to_string(),
                (self.all.len() > 1).then_some(heading.as_str()),
            );
            parts.lines(page);
        }
        if is_cut {
            parts.set_cut();
        }
        parts.finish()
    }
}
