//! `llmc config show|init|check`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use llmc_config::{Mode, TemplateOpts};
use llmc_tools::{Kind, mode};

use super::{Failure, inputs, load, print, tools};
use crate::cli::{Common, InitArgs};

pub(super) fn show(common: &Common) -> Result<ExitCode, Failure> {
    print(&llmc_config::render_show(&load(common)?))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn check(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let config = &loaded.config;
    let mut out = String::new();
    let file = if loaded.file.is_some() {
        loaded.file_label()
    } else {
        "no llmc.toml, defaults only"
    };
    let _ = writeln!(out, "configuration is valid ({file})");
    let _ = writeln!(out, "workspace: {}", loaded.root.display());
    let (list, warnings) = mode::listing(config);
    let (tokens, _) = tools::cost(&list);
    let _ = writeln!(
        out,
        "mode {}: {} tools, {tokens} tokens per conversation",
        config.mcp.mode,
        list.len()
    );
    for other in Mode::ALL.iter().filter(|other| **other != config.mcp.mode) {
        let mut changed = config.clone();
        changed.mcp.mode = *other;
        let (cost, _) = tools::cost(&mode::listing(&changed).0);
        let word = if cost < tokens { "saves" } else { "costs" };
        let _ = writeln!(
            out,
            "  mode {other} {word} {} tokens ({cost})",
            cost.abs_diff(tokens)
        );
    }
    for warning in warnings.iter().chain(&loaded.warnings) {
        let _ = writeln!(out, "warning: {warning}");
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The sidecar documents of a fresh installation: short, because a model pays for every line.
const SIDECARS: [(&str, &str); 2] = [
    (
        "DOCS/agents.core.min.md",
        "# Agent contract\n\n- Read before you write; pass the sha tag of the read as `expected_sha256`.\n- Search first, then read the lines you need.\n- Keep changes small and say what you changed.\n",
    ),
    (
        "DOCS/contracts.env.min.md",
        "# Environment contract\n\n- Paths are relative to the workspace root; nothing outside the allowed roots is reachable.\n- `llmc.toml`, `.llmc/`, `.git/hooks` and `.git/config` are the operator's.\n- How to build and test this project: (fill in)\n",
    ),
];

pub(super) fn init(common: &Common, args: &InitArgs) -> Result<ExitCode, Failure> {
    // An existing file may be broken, and replacing it must still work: only the place is needed here.
    let root = llmc_config::workspace_root(&inputs(common)?)
        .map_err(|error| Failure::new(Kind::BadArgs, error.to_string()))?;
    let name = root
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let opts = TemplateOpts {
        project_name: name.unwrap_or_else(|| "this project".to_owned()),
        allowlist: allowlist(&root),
        notes: Vec::new(),
    };
    let text = llmc_config::template(&opts);
    if args.print {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = common
        .config
        .clone()
        .unwrap_or_else(|| root.join(llmc_host::CONFIG_FILE));
    write_new(&file, &text, args.force)?;
    let mut out = format!("wrote {}\n", file.display());
    for (path, text) in SIDECARS {
        let path = root.join(path);
        if !path.exists() {
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
            }
            write_new(&path, text, false)?;
            let _ = writeln!(out, "wrote {}", path.display());
        }
    }
    let _ = writeln!(out, "next: llmc config check");
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The seeds' list, plus the programs this repository is built with.
fn allowlist(root: &Path) -> Vec<String> {
    let mut list = llmc_config::Config::default().mcp.tools.run_cmd_allowlist;
    let signs = [
        ("Cargo.toml", "cargo"),
        ("package.json", "npm"),
        ("go.mod", "go"),
        ("Makefile", "make"),
        (".git", "git"),
    ];
    for (sign, program) in signs {
        if root.join(sign).exists() && !list.iter().any(|known| known == program) {
            list.push(program.to_owned());
        }
    }
    list
}

fn write_new(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let opened = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(
            Kind::AlreadyExists,
            format!("{} is there already; --force replaces it", path.display()),
        ),
        _ => unwritable(path, &error),
    });
    opened?
        .write_all(text.as_bytes())
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Kind::WriteFailed, format!("{}: {error}", path.display()))
}
