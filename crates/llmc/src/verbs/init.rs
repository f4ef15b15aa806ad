//! `llmc init`: writes a commented configuration for this repository, and on request the two sidecar documents.

mod survey;

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use llmc_config::{LinkPolicy, TemplateExtent, TemplateOptions, read_regular_file};
use llmc_exec::{Settings, withheld_names};
use llmc_tools::ErrorKind;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

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
        "any program may run; the kernel lets commands write only inside the workspace and hides credentials",
    ),
    (
        "everything else is at its default",
        "this folder is the only root, commands may use the network, nothing listens",
    ),
];

pub(super) fn run(common: &Common, args: &InitArgs) -> Result<ExitCode, Failure> {
    // An existing file may be invalid, and --force must still replace it: only its path is needed here.
    let root = llmc_config::workspace_root(&inputs(common)?)?;
    let survey = Survey::of(&root);
    let text = llmc_config::template(&template_options(&root, &survey, args));
    if args.print {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = common
        .config
        .clone()
        .unwrap_or_else(|| root.join(llmc_host::CONFIG_FILE));
    write_config(&file, &text, args.force)?;
    let mut out = format!("wrote {}\n", file.display());
    if let Err(error) = trust_written(common) {
        let _ = writeln!(out, "not trusted yet ({error}); run llmc trust");
    }
    let documents = args.full.then(|| sidecars(&survey));
    for (path, text) in documents.into_iter().flatten() {
        let done = match write_sidecar(&root, path, &text) {
            Ok(()) => format!("wrote {}", root.join(path).display()),
            Err(Errno::EXIST) => format!("kept {}", root.join(path).display()),
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                format!(
                    "skipped {}: its folder is a link or a file",
                    root.join(path).display()
                )
            }
            Err(error) => return Err(unwritable(&root.join(path), &error.into())),
        };
        let _ = writeln!(out, "{done}");
    }
    let _ = writeln!(out, "\n{}\n", survey.summary());
    for (what, why) in CHOICES {
        let _ = writeln!(out, "{what}\n  {why}");
    }
    let withheld = withheld_names(&Settings::default());
    if !withheld.is_empty() {
        let _ = writeln!(
            out,
            "environment variables that look like secrets are withheld from commands\n  {}",
            withheld.join(", ")
        );
    }
    let _ = writeln!(
        out,
        "\nnext: llmc config check, llmc doctor, llmc install CLIENT"
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn template_options(root: &Path, survey: &Survey, args: &InitArgs) -> TemplateOptions {
    let name = root.file_name().map(|name| name.to_string_lossy());
    let choices = CHOICES.iter().map(|(what, why)| format!("{what}: {why}"));
    TemplateOptions {
        project_name: name.unwrap_or("this project".into()).into_owned(),
        notes: std::iter::once(survey.summary()).chain(choices).collect(),
        extent: match args.full {
            true => TemplateExtent::Full,
            false => TemplateExtent::Short,
        },
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
                "# Environment contract\n\n- Paths are relative to the workspace root; nothing outside the allowed roots is reachable.\n- `llmc.toml` and LLMC's state are the operator's; what makes git run programs (hooks, such settings) is the user's to set.\n- `run_cmd` takes a shell line; commands write only inside the workspace and see no credentials.\n{commands}"
            ),
        ),
    ]
}

/// Accepts the new file, which is this program's own choice.
fn trust_written(common: &Common) -> Result<(), String> {
    let written = inputs(common).map_err(|failure| failure.message)?;
    let loaded = llmc_config::load(&written).map_err(|error| error.to_string())?;
    match loaded.trust.record() {
        Err(error) if !loaded.trust.settings.is_empty() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Writes the configuration: a new file, or with `force` one that replaces what is there. Neither follows a link.
fn write_config(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let target = match force {
        true => path.with_extension(format!("toml.new-{}", std::process::id())),
        false => path.to_owned(),
    };
    let mut options = std::fs::OpenOptions::new();
    let created = options.write(true).create_new(true).open(&target);
    let mut file = created.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists if !force => Failure::new(
            ErrorKind::AlreadyExists,
            format!("{} exists already; --force replaces it", path.display()),
        ),
        _ => unwritable(&target, &error),
    })?;
    let mut written = std::io::Write::write_all(&mut file, text.as_bytes());
    if force {
        written = written.and_then(|()| std::fs::rename(&target, path));
        if written.is_err() {
            let _ = rustix::fs::unlink(&target);
        }
    }
    written.map_err(|error| unwritable(path, &error))
}

/// Writes a new file below the root. No link is followed, so that nothing is written elsewhere.
fn write_sidecar(root: &Path, path: &str, text: &str) -> Result<(), Errno> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder_flags, Mode::empty())?;
    let (folder, name) = path.split_once('/').unwrap_or((".", path));
    match rustix::fs::mkdirat(&root, folder, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let folder = rustix::fs::openat2(&root, folder, folder_flags, Mode::empty(), beneath)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let file = rustix::fs::openat2(&folder, name, flags, mode, beneath)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        ErrorKind::WriteFailed,
        format!("{}: {error}", path.display()),
    )
}

/// The text of a regular file of at most 1 MiB; `None` when there is none or it is not UTF-8.
pub(super) fn read(path: &Path) -> Option<String> {
    let file = read_regular_file(path, 1 << 20, LinkPolicy::Follow).ok()?;
    file.into_text().ok()
}
