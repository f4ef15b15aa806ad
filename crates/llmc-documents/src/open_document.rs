//! The text of OpenDocument texts and slides.

use crate::package::{Package, XmlElement, XmlStep, walk_xml};
use crate::parts::PartsText;
use crate::word::{Flow, Pages};
use crate::{ConversionFault, DocumentKind, DocumentText, MAX_TEXT_BYTES, PartUnit};

/// Slides of one presentation.
const MAX_SLIDES: usize = 5_000;
/// Spaces that one element stands for.
const MAX_SPACES: usize = 200;

pub(crate) fn read_text(package: &mut Package<'_>) -> Result<DocumentText, ConversionFault> {
    let xml = package.required("content.xml")?;
    let (mut pages, mut flow, mut lists) = (Pages::default(), Flow::default(), 0_usize);
    walk_xml(&xml, |step| {
        match &step {
            XmlStep::Open(element) if element.name() == "list" => lists += 1,
            XmlStep::Close("list") => lists = lists.saturating_sub(1),
            _ => {}
        }
        visit(&mut flow, &mut pages, &step, lists);
        !pages.is_full()
    })?;
    Ok(pages.finish(DocumentKind::OpenText))
}

pub(crate) fn read_slides(package: &mut Package<'_>) -> Result<DocumentText, ConversionFault> {
    let xml = package.required("content.xml")?;
    let mut slides: Vec<String> = Vec::new();
    let mut flow = Flow::default();
    let mut slide: Option<Pages> = None;
    let (mut bytes, mut is_cut) = (0, false);
    walk_xml(&xml, |step| {
        match &step {
            XmlStep::Open(element) if element.name() == "page" => slide = Some(Pages::default()),
            XmlStep::Close("page") => {
                let text = slide
                    .take()
                    .map(|slide| slide.finish(DocumentKind::OpenSlides).text)
                    .unwrap_or_default();
                bytes += text.len();
                slides.push(text);
            }
            _ => {
                if let Some(slide) = &mut slide {
                    visit(&mut flow, slide, &step, 0);
                }
            }
        }
        is_cut = bytes > MAX_TEXT_BYTES
            || slides.len() > MAX_SLIDES
            || slide.as_ref().is_some_and(Pages::is_full);
        !is_cut
    })?;
    slides.extend(slide.map(|slide| slide.finish(DocumentKind::OpenSlides).text));
    let mut parts = PartsText::new(DocumentKind::OpenSlides, PartUnit::Slide);
    for (index, text) in slides.iter().enumerate() {
        let number = index + 1;
        let heading = format!("slide {number} of {}", slides.len());
        parts.begin(number.to_string(), Some(&heading));
        parts.lines(text);
    }
    if is_cut {
        parts.set_cut();
    }
    Ok(parts.finish())
}

fn visit(flow: &mut Flow, pages: &mut Pages, step: &XmlStep<'_>, lists: usize) {
    match step {
        XmlStep::Open(element) if is_aside(element.name()) => flow.skipped += 1,
        XmlStep::Close(name) if is_aside(name) => flow.skipped = flow.skipped.saturating_sub(1),
        _ if flow.skipped > 0 => {}
        XmlStep::Open(element) => open(flow, pages, element, lists),
        XmlStep::Close(name) => match *name {
            "p" | "h" => {
                flow.in_text = false;
                flow.end_paragraph(pages);
            }
            "table-cell" => flow.end_cell(),
            "table-row" => flow.end_row(pages),
            "table" => flow.tables = flow.tables.saturating_sub(1),
            _ => {}
        },
        XmlStep::Text(text) if flow.in_text => flow.paragraph.push_str(&text.replace('\n', " ")),
        XmlStep::Text(_) => {}
    }
}

/// Whether an element holds what is no part of the text: old versions, comments, what a speaker says.
fn is_aside(name: &str) -> bool {
    matches!(name, "tracked-changes" | "annotation" | "notes")
}

fn open(flow: &mut Flow, pages: &mut Pages, element: &XmlElement<'_>, lists: usize) {
    let number = |name: &str| {
        let value = element.attribute(name)?;
        value.parse::<usize>().ok()
    };
    match element.name() {
        "p" => {
            flow.in_text = true;
            flow.is_item = lists > 0;
            flow.level = lists.saturating_sub(1).min(8);
        }
        "h" => {
            flow.in_text = true;
            flow.heading = number("outline-level").unwrap_or(1).clamp(1, 6);
        }
        "s" => {
            let spaces = number("c").unwrap_or(1).min(MAX_SPACES);
            flow.paragraph.push_str(&" ".repeat(spaces));
        }
        "tab" => flow.paragraph.push('\t'),
        "line-break" => flow.paragraph.push('\n'),
        "soft-page-break" => flow.break_page(pages),
        "table" => flow.tables += 1,
        _ => {}
    }
}
