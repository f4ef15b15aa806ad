//! The cells of a Jupyter notebook and what they printed.

use serde_json::Value;

use crate::parts::PartsText;
use crate::{ConversionFault, DocumentKind, DocumentText, PartUnit};

pub(crate) fn read(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let notebook: Value =
        serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
            .map_err(ConversionFault::damaged)?;
    // Before version 4 of the format the cells were in worksheets.
    let cells = notebook
        .get("cells")
        .or_else(|| notebook.pointer("/worksheets/0/cells"));
    let Some(Value::Array(cells)) = cells else {
        return Err(ConversionFault::damaged("it has no cells"));
    };
    let mut parts = PartsText::new(DocumentKind::Notebook, PartUnit::Cell);
    for (index, cell) in cells.iter().enumerate() {
        if parts.is_full() {
            break;
        }
        let number = index + 1;
        let kind = cell
            .get("cell_type")
            .and_then(Value::as_str)
            .unwrap_or("raw");
        let count = cell
            .get("execution_count")
            .or_else(|| cell.get("prompt_number"));
        let heading = match count.and_then(Value::as_u64) {
            Some(count) => format!("cell {number}, {kind} [{count}]"),
            None => format!("cell {number}, {kind}"),
        };
        parts.begin(number.to_string(), Some(&heading));
        let source = cell.get("source").or_else(|| cell.get("input"));
        for line in source.map(text_of).unwrap_or_default().lines() {
            parts.line(line);
        }
        let outputs = cell.get("outputs").and_then(Value::as_array);
        for output in outputs.into_iter().flatten() {
            write_output(&mut parts, output);
        }
    }
    Ok(parts.finish())
}

/// Text, which notebooks also store as a list of lines.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn write_output(parts: &mut PartsText, output: &Value) {
    let kind = output.get("output_type").and_then(Value::as_str);
    let text = match kind {
        Some("stream") => output.get("text").map(text_of),
        Some("error" | "pyerr") => {
            let word = |key: &str| output.get(key).and_then(Value::as_str).unwrap_or_default();
            Some(format!("{}: {}", word("ename"), word("evalue")))
        }
        _ => shown_data(output),
    };
    let label = match kind {
        Some("stream") => output
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("stdout"),
        Some("error" | "pyerr") => "error",
        _ => "output",
    };
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return;
    }
    parts.line(&format!("[{label}]"));
    for line in lines {
        parts.line(line);
    }
}

/// The plain text of a result, and which other forms it has.
fn shown_data(output: &Value) -> Option<String> {
    let data = output.get("data").unwrap_or(output).as_object()?;
    let mut text = data
        .get("text/plain")
        .or_else(|| data.get("text"))
        .map(text_of)
        .unwrap_or_default();
    let pictures: Vec<&str> = data
        .keys()
        .map(String::as_str)
        .filter(|key| key.starts_with("image/"))
        .collect();
    if !pictures.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("({} not shown)", pictures.join(", ")));
    }
    Some(text)
}
