//! What people are shown: the effective values, the reference page, the template.

use super::{Workspace, lines, load_trusted, loaded};
use crate::declarations::TABLES;
use crate::registry::{DefaultValue, all_settings};
use crate::value::ValueKind;
use crate::{TemplateExtent, TemplateOptions, reference_markdown, render_show, template};

#[test]
fn show_has_a_line_for_every_key_in_columns() {
    let shown = render_show(&loaded(
        "[mcp]\nmode = \"te\"\n",
        &[("LLMC_MCP_TOKEN", "s3cret")],
        &[],
    ));
    assert!(shown.starts_with("mcp.enabled  "), "{shown}");
    assert!(!shown.contains("s3cret"));
    let columns: Vec<Option<usize>> = shown.lines().map(|line| line.find(" = ")).collect();
    assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{shown}");
    let line = |key: &str| {
        shown
            .lines()
            .find(|line| line.split(' ').next() == Some(key))
            .unwrap()
    };
    assert!(
        line("mcp.mode").ends_with("# llmc.toml:2"),
        "{}",
        line("mcp.mode")
    );
    assert!(line("mcp.server.tls_key").contains(" = (unset)"));
}

#[test]
fn the_reference_has_every_key_with_default_and_environment_name() {
    let page = reference_markdown();
    for key in all_settings() {
        let row = page.lines().find(|line| {
            let named = line.starts_with(&format!("| `{}` |", key.name()));
            named && line.contains(&format!("| {}", key.doc))
        });
        let row = row.unwrap_or_else(|| panic!("{} is missing", key.path));
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells.len(), 6, "{row}");
        assert_eq!(cells[3] == "yes", key.needs_trust(), "{row}");
        if let DefaultValue::Fixed(value) = &key.default {
            assert!(row.contains(&format!("| `{}` |", value.to_toml())), "{row}");
        }
        if let Some(name) = key.env_name() {
            assert!(row.contains(&format!("`{name}`")), "{row}");
        }
    }
    assert_eq!(page.matches("\n## `[").count(), TABLES.len());
}

#[test]
fn the_template_loads_and_changes_only_the_given_keys() {
    let options = TemplateOptions {
        project_name: "demo\n[mcp]".to_owned(),
        notes: vec!["Rust workspace.\nenabled = false".to_owned()],
        extent: TemplateExtent::Short,
    };
    for extent in [TemplateExtent::Short, TemplateExtent::Full] {
        let text = template(&TemplateOptions {
            extent,
            ..options.clone()
        });
        let from_template = loaded(&text, &[], &[]);
        assert!(from_template.warnings.is_empty());
        assert_eq!(from_template.config, loaded("", &[], &[]).config);
        let set = from_template
            .entries()
            .iter()
            .filter(|entry| entry.source.describe("f").starts_with("f:"));
        let set: Vec<&str> = set.map(|entry| entry.key.as_str()).collect();
        assert_eq!(set, ["mcp.mode"]);
    }
    let short = template(&options);
    assert!(short.lines().count() < 45, "{short}");
    for key in crate::template::FIRST_KEYS {
        let name = key.rsplit('.').next().unwrap();
        let line = |line: &str| {
            line.trim_start_matches('#')
                .starts_with(&format!("{name} = "))
        };
        assert_eq!(short.lines().filter(|text| line(text)).count(), 1, "{key}");
    }

    let plain = loaded(&template(&TemplateOptions::default()), &[], &[]);
    assert_eq!(plain.config, loaded("", &[], &[]).config);
}

#[test]
fn every_line_of_the_template_can_be_uncommented() {
    let text = template(&TemplateOptions {
        extent: TemplateExtent::Full,
        ..TemplateOptions::default()
    });
    // Of the two proofs of a token only one may be given, and an upstream has a command or an address.
    let left_out = ["sha256", "url", "token_file"];
    let live = |line: &str| match line.strip_prefix('#') {
        Some(rest) if left_out.iter().any(|name| rest.starts_with(name)) => line.to_owned(),
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let all: Vec<String> = text.lines().map(live).collect();
    let workspace = Workspace::new(&all.join("\n"));
    let loaded_all =
        load_trusted(&workspace.inputs(&[], &[])).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let shown = lines(&loaded_all);
    for key in all_settings() {
        let table = matches!(key.kind, ValueKind::Tables | ValueKind::Map);
        let path = key.path.replace("[]", "[0]").replace('*', "agent-id");
        if !table && !left_out.contains(&key.name()) {
            assert!(shown[&path].contains("  # llmc.toml:"), "{}", shown[&path]);
        }
    }
}
