//! `llmc init`: writes a commented configuration and the two sidecar documents for this repository.

mod survey;

use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use llmc_config::TemplateOptions;
use llmc_tools::ErrorKind;

use super::{Failure, inputs, print};
use crate::cli::{Common, InitArgs};
use survey::Survey;

/// What `llmc init` sets or leaves alone, and why.
const CHOICES: [(&str, &str); 3] = [
    (
        "mode = \"hybrid\"",
        "nine tools with full write access; `llmc tools` prints what each mode costs",
    ),
    (
        "run_cmd_allowlist is not set",
        "any program may run: commands are confined by the kernel, write only inside the workspace and see no credentials",
    ),
    (
        "everything else",
        "at its default: this folder is the only root, commands may use the network, nothing listens",
    ),
];

pub(super) fn run(common: &Common, args: &InitArgs) -> Result<ExitCode, Failure> {
    // An existing file may be invalid, and --force must still replace it: only its path is needed here.
    let root = llmc_config::workspace_root(&inputs(common)?)?;
    let survey = Survey::of(&root);
    let text = llmc_config::template(&template_options(&root, &survey));
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
    for (path, text) in sidecars(&survey) {
        let path = root.join(path);
        if path.symlink_metadata().is_ok() {
            let _ = writeln!(out, "kept {}", path.display());
            continue;
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
        }
        write_new(&path, &text, false)?;
        let _ = writeln!(out, "wrote {}", path.display());
    }
    let _ = writeln!(out, "\n{}\n", survey.summary());
    for (what, why) in CHOICES {
        let _ = writeln!(out, "{what}\n  {why}");
    }
    let _ = writeln!(
        out,
        "\nnext: llmc config check, llmc doctor, llmc install CLIENT"
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn template_options(root: &Path, survey: &Survey) -> TemplateOptions {
    let name = root.file_name().map(|name| name.to_string_lossy());
    let choices = CHOICES.iter().map(|(what, why)| format!("{what}: {why}"));
    TemplateOptions {
        project_name: name.unwrap_or("this project".into()).into_owned(),
        notes: std::iter::once(survey.summary()).chain(choices).collect(),
    }
}

/// The two sidecar documents: short, because a model pays for every line.
fn sidecars(survey: &Survey) -> [(&'static str, String); 2] {
    let commands = survey.commands();
    let commands: String = if commands.is_empty() {
        "- Build and test: (fill in)\n".to_owned()
    } else {
        let line = |(what, command): &(&str, &str)| format!("- {what}: `{command}`\n");
        commands.iter().map(line).collect()
    };
    [
        (
            "DOCS/agents.core.min.md",
            "# Agent contract\n\n- Read before you write; pass the sha tag of the read as `expected_sha256`.\n- Search first, then read the lines you need.\n- Keep changes small and say what you changed.\n- Run the tests before you say that it works.\n".to_owned(),
        ),
        (
            "DOCS/contracts.env.min.md",
            format!(
                "# Environment contract\n\n- Paths are relative to the workspace root; nothing outside the allowed roots is reachable.\n- `llmc.toml`, `.llmc/`, `.git/hooks` and `.git/config` are the operator's.\n- `run_cmd` takes a shell line; commands write only inside the workspace and see no credentials.\n{commands}"
            ),
        ),
    ]
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
            ErrorKind::AlreadyExists,
            format!("{} exists already; --force replaces it", path.display()),
        ),
        _ => unwritable(path, &error),
    });
    opened?
        .write_all(text.as_bytes())
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        ErrorKind::WriteFailed,
        format!("{}: {error}", path.display()),
    )
}

/// The text of a regular file, at most 1 MiB of it; `None` when there is none or it is not UTF-8.
pub(super) fn read(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = std::fs::OpenOptions::new().read(true).open(path).ok()?;
    let mut text = String::new();
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text)
}
