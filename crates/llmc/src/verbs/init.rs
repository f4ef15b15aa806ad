//! `llmc init`: a configuration fitted to the repository, with the reasons for what it says.

mod survey;

use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use llmc_config::TemplateOpts;
use llmc_tools::Kind;

use super::{Failure, inputs, print};
use crate::cli::{Common, InitArgs};
use survey::Survey;

/// What an agent reads a repository with. Not `find` and `sed`, which start programs and write files when told to.
const READING: [&str; 10] = [
    "rg", "grep", "cat", "ls", "head", "tail", "wc", "diff", "stat", "file",
];
/// Seconds that builds and tests get.
const BUILD_TIME: &str = "300";

pub(super) fn run(common: &Common, args: &InitArgs) -> Result<ExitCode, Failure> {
    // An existing file may be broken, and replacing it must still work: only the place is needed here.
    let root = llmc_config::workspace_root(&inputs(common)?)
        .map_err(|error| Failure::new(Kind::BadArgs, error.to_string()))?;
    let survey = Survey::of(&root);
    let choices = Choices::of(&root, &survey);
    let text = llmc_config::template(&choices.template(&root, &survey));
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
    let _ = writeln!(out, "\n{}\n", survey.told());
    for (what, why) in choices.told() {
        let _ = writeln!(out, "{what}\n  {why}");
    }
    let _ = writeln!(
        out,
        "\nnext: llmc config check, llmc doctor, llmc install CLIENT"
    );
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// What is set in the file, and why.
struct Choices {
    allowlist: Vec<String>,
    /// Beside reading programs: what the repository is built with.
    builds: bool,
    interpreters: Vec<String>,
}

impl Choices {
    fn of(root: &Path, survey: &Survey) -> Choices {
        let git = root.join(".git").exists().then_some("git");
        let programs = survey.programs();
        let mut allowlist: Vec<String> = Vec::new();
        for name in READING
            .into_iter()
            .chain(git)
            .chain(programs.iter().copied())
        {
            if !allowlist.iter().any(|known| known == name) {
                allowlist.push(name.to_owned());
            }
        }
        let interpreters = allowlist
            .iter()
            .filter(|name| llmc_exec::is_interpreter(name.as_str()));
        Choices {
            interpreters: interpreters.cloned().collect(),
            builds: !programs.is_empty(),
            allowlist,
        }
    }

    fn template(&self, root: &Path, survey: &Survey) -> TemplateOpts {
        let name = root
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let mut notes = vec![survey.told()];
        notes.extend(self.told().map(|(what, why)| format!("{what}: {why}")));
        TemplateOpts {
            project_name: name.unwrap_or_else(|| "this project".to_owned()),
            allowlist: self.allowlist.clone(),
            settings: match self.builds {
                true => ["mcp.tools.exec_timeout", "mcp.te.timeout"]
                    .map(|key| (key.to_owned(), BUILD_TIME.to_owned()))
                    .into(),
                false => Vec::new(),
            },
            notes,
        }
    }

    /// Each choice with its reason.
    fn told(&self) -> impl Iterator<Item = (String, String)> {
        let mut told = vec![(
            "mode = \"hybrid\"".to_owned(),
            "seven tools with full write capability; `llmc tools` prints what each mode costs"
                .to_owned(),
        )];
        let built = match self.builds {
            true => "programs that read, and those this repository is built with",
            false => "programs that read",
        };
        let warning = match self.interpreters.as_slice() {
            [] => "no shell or interpreter, so the list means something".to_owned(),
            some => format!(
                "{} can run anything, so kernel confinement is the boundary; no shell",
                some.join(", ")
            ),
        };
        told.push((
            format!("run_cmd_allowlist = {}", self.allowlist.join(" ")),
            format!("{built}; {warning}; add \"bash\" if the agent shall run scripts"),
        ));
        if self.builds {
            told.push((
                format!("exec_timeout = {BUILD_TIME}"),
                "builds and tests take longer than the usual 30 seconds".to_owned(),
            ));
        }
        told.push((
            "everything else".to_owned(),
            "at its default: this folder is the only root, programs may use the network, nothing listens".to_owned(),
        ));
        told.into_iter()
    }
}

/// The sidecar documents of a fresh installation: short, because a model pays for every line.
fn sidecars(survey: &Survey) -> [(&'static str, String); 2] {
    let commands = survey.commands();
    let commands = match commands.is_empty() {
        true => "- Build and test: (fill in)\n".to_owned(),
        false => commands
            .iter()
            .map(|(what, command)| format!("- {what}: `{command}`\n"))
            .collect(),
    };
    [
        (
            "DOCS/agents.core.min.md",
            "# Agent contract\n\n- Read before you write; pass the sha tag of the read as `expected_sha256`.\n- Search first, then read the lines you need.\n- Keep changes small and say what you changed.\n- Run the tests before you say that it works.\n".to_owned(),
        ),
        (
            "DOCS/contracts.env.min.md",
            format!(
                "# Environment contract\n\n- Paths are relative to the workspace root; nothing outside the allowed roots is reachable.\n- `llmc.toml`, `.llmc/`, `.git/hooks` and `.git/config` are the operator's.\n- Commands run without a shell; one program per call.\n{commands}"
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

/// The text of a small file that may be there; anything else is none.
pub(super) fn read(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = std::fs::OpenOptions::new().read(true).open(path).ok()?;
    let mut text = String::new();
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text)
}
