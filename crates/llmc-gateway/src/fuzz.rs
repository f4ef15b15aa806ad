//! Fuzz target: whatever an upstream prints becomes bounded data with usable names, or an error in one line.

use std::collections::BTreeSet;

use llmc_fuzz::check;
use serde_json::Value;

use crate::answer::UpstreamAnswer;
use crate::lines::{Line, LineSplitter};
use crate::param_headers::param_headers;
use crate::pins::PinnedTools;
use crate::request;

/// Lines longer than this are too long here.
const MAX_LINE_BYTES: usize = 4 << 10;

#[test]
fn upstream_output() {
    check!("upstream_output", |bytes: &[u8]| {
        let lines = split(bytes, bytes.len().max(1));
        assert_eq!(lines, split(bytes, 7), "pieces make other lines");
        for line in lines.iter().flatten() {
            assert!(line.len() <= MAX_LINE_BYTES);
            if let Ok(message) = serde_json::from_slice::<Value>(line) {
                look_at(message);
            }
        }
    });
}

/// The lines of a stream that comes in pieces; `None` for one that is too long.
fn split(bytes: &[u8], piece: usize) -> Vec<Option<Vec<u8>>> {
    let mut splitter = LineSplitter::new(MAX_LINE_BYTES);
    let mut lines = Vec::new();
    for piece in bytes.chunks(piece) {
        splitter.push(piece, |line| {
            lines.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        });
    }
    lines
}

fn look_at(mut message: Value) {
    let words = request::progress_words(&message["params"]);
    assert!(!words.contains(char::is_control), "{words:?}");
    match request::answer(&mut message) {
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        Ok(result) => {
            if let Some(tools) = result["tools"].as_array() {
                check_tools(&PinnedTools::of_list(String::new(), tools));
            }
            for read in [
                UpstreamAnswer::of_result,
                UpstreamAnswer::of_contents,
                UpstreamAnswer::of_prompt,
            ] {
                if let Ok(answer) = read(result.clone()) {
                    answer.text();
                }
            }
        }
    }
}

/// Functions are different Python names, and what is stored is what is read.
fn check_tools(tools: &PinnedTools) {
    let functions = tools.functions(&[]);
    assert_eq!(functions.len(), tools.tools.len());
    for tool in &tools.tools {
        for (name, value) in param_headers(&tool.input_schema, &tool.annotations) {
            let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
            assert!(is_plain(&name) && is_plain(&value), "{name}: {value}");
        }
    }
    for function in &functions {
        assert!(function.starts_with(|c: char| c.is_ascii_alphabetic()));
        assert!(
            function
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_')
        );
    }
    let different: BTreeSet<&String> = functions.iter().collect();
    assert_eq!(different.len(), functions.len());
    assert_eq!(tools.changes(tools), []);
    let stored = serde_json::to_string(tools).unwrap();
    let read: PinnedTools = serde_json::from_str(&stored).unwrap();
    assert_eq!(&read, tools);
}
