//! `llmc te …`: the Tool Envelope on the command line.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Args, Parser};
use jiff::Timestamp;
use llmc_observe::{CallFilter, GroupBy, TelemetryAnalysis};
use llmc_tools::ErrorKind;
use llmc_tools::shell::{Cli, Flags, HELP};
use llmc_tui::Since;

use super::{Failure, print, print_clap_error, start_quietly, tool};
use crate::cli::Common;

pub(super) fn run(common: &Common, words: &[String]) -> Result<ExitCode, Failure> {
    if words.first().is_some_and(|word| word == "analyze") {
        return match Analyze::try_parse_from(words) {
            Ok(args) => args.run(common),
            Err(error) => print_clap_error(&error),
        };
    }
    let mut flags = match Flags::parse(words) {
        Ok(flags) => flags,
        Err(error) => {
            if let Ok(app) = start_quietly(common) {
                llmc_tools::shell::record_refused(&app, &error);
            }
            return Err(error.into());
        }
    };
    match flags.command.first().map(String::as_str) {
        Some("rag") => return ask(common, "te_rag", "--query", &flags),
        Some("explain") => return ask(common, "te_explain", "--symbol", &flags),
        // What `te_run` is to an agent.
        Some("run") if flags.command.len() > 1 => drop(flags.command.remove(0)),
        _ => {}
    }
    if flags.help {
        print(HELP)?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.version {
        print(concat!("te ", env!("CARGO_PKG_VERSION")))?;
        return Ok(ExitCode::SUCCESS);
    }
    let app = start_quietly(common)?;
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let terminal = out.is_terminal();
    let code = Cli::new(app, &mut out, &mut err, terminal).run(&flags)?;
    Ok(ExitCode::from(code))
}

/// Asks the index, as the tool of that name does; the words after the verb are the question.
fn ask(common: &Common, tool: &str, flag: &str, flags: &Flags) -> Result<ExitCode, Failure> {
    let question = flags.command[1..].join(" ");
    if question.is_empty() {
        let verb = &flags.command[0];
        let message = format!("te {verb}: say what to look for, such as te {verb} parse_header");
        return Err(Failure::new(ErrorKind::BadArgs, message));
    }
    let mut words = vec![tool.to_owned(), format!("{flag}={question}")];
    words.extend(flags.json.then(|| "--json".to_owned()));
    tool::run(common, &words)
}

/// Where tokens go, what condensing saved, and what would be worth condensing next.
#[derive(Debug, Parser)]
#[command(name = "te analyze")]
struct Analyze {
    /// What to add up by: cmd, agent, source, session or model
    #[arg(long, default_value = "cmd", value_parser = group)]
    by: GroupBy,
    /// Only calls since: 90m, 24h, 7d (or 7), or all
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
    /// As one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Where the telemetry is, when `te` itself is asked.
#[derive(Debug, Args)]
struct Place {
    /// Workspace [default: nearest folder upwards with .git, else this one]
    #[arg(long, value_name = "DIR")]
    root: Option<std::path::PathBuf>,
}

impl Analyze {
    fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let mut common = common.clone();
        common.root = self.place.root.or(common.root);
        let app = start_quietly(&common)?;
        let filter = CallFilter {
            since: self.since.map(|since| since.start(Timestamp::now())),
            ..CallFilter::default()
        };
        let analysis = TelemetryAnalysis::of(&app.telemetry()?, self.by, &filter)
            .map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?;
        print(&if self.json {
            serde_json::to_string(&analysis)
                .map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?
        } else {
            analysis.text()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A number alone counts days, as it did before units were read.
fn since(text: &str) -> Result<Since, String> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => format!("{text}d").parse(),
        false => text.parse(),
    }
}

fn group(text: &str) -> Result<GroupBy, String> {
    GroupBy::parse(text).ok_or_else(|| "one of cmd, agent, source, session, model".to_owned())
}
