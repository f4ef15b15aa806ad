//! The text of PowerPoint slides, in the order in which they are shown.

use std::collections::BTreeMap;

use crate::package::{Package, XmlStep, walk_xml};
use crate::parts::PartsText;
use crate::{ConversionFault, DocumentKind, DocumentText, PartUnit};

/// Slides of one presentation.
const MAX_SLIDES: usize = 5_000;

pub(crate) fn read(package: &mut Package<'_>) -> Result<DocumentText, ConversionFault> {
    let order = slide_order(package)?;
    let mut parts = PartsText::new(DocumentKind::Slides, PartUnit::Slide);
    for (index, name) in order.iter().enumerate() {
        if parts.is_full() {
            break;
        }
        let number = index + 1;
        parts.begin(
            number.to_string(),
            Some(&format!("slide {number} of {}", order.len())),
        );
        let xml = package.required(name)?;
        write_slide(&mut parts, &xml)?;
    }
    Ok(parts.finish())
}

/// The files of the slides: the presentation lists ids, its relations say what they are.
fn slide_order(package: &mut Package<'_>) -> Result<Vec<String>, ConversionFault> {
    let presentation = package.required("ppt/presentation.xml")?;
    let relations = package.required("ppt/_rels/presentation.xml.rels")?;
    let mut targets = BTreeMap::new();
    walk_xml(&relations, |step| {
        if let XmlStep::Open(element) = step
            && element.name() == "Relationship"
            && let Some(id) = element.attribute("Id")
            && let Some(target) = element.attribute("Target")
        {
            targets.insert(id, target);
        }
        targets.len() < MAX_SLIDES * 2
    })?;
    let mut order = Vec::new();
    walk_xml(&presentation, |step| {
        if let XmlStep::Open(element) = step
            && element.name() == "sldId"
            && let Some(target) = element.relation().and_then(|id| targets.get(&id))
        {
            order.push(match target.strip_prefix('/') {
                Some(absolute) => absolute.to_owned(),
                None => format!("ppt/{target}"),
            });
        }
        order.len() < MAX_SLIDES
    })?;
    Ok(order)
}

fn write_slide(parts: &mut PartsText, xml: &str) -> Result<(), ConversionFault> {
    let (mut paragraph, mut cells) = (String::new(), Vec::new());
    let (mut in_text, mut in_table) = (false, false);
    walk_xml(xml, |step| {
        match step {
            XmlStep::Open(element) => match element.name() {
                "t" => in_text = true,
                "tab" => paragraph.push('\t'),
                "br" => paragraph.push(' '),
                "tbl" => in_table = true,
                _ => {}
            },
            XmlStep::Text(text) if in_text => paragraph.push_str(&text),
            XmlStep::Text(_) => {}
            XmlStep::Close(name) => match name {
                "t" => in_text = false,
                "p" if in_table => paragraph.push(' '),
                "p" => parts.lines(&std::mem::take(&mut paragraph)),
                "tc" => cells.push(std::mem::take(&mut paragraph).trim().to_owned()),
                "tr" => parts.line(&format!("| {} |", std::mem::take(&mut cells).join(" | "))),
                "tbl" => in_table = false,
                _ => {}
            },
        }
        !parts.is_full()
    })
}
