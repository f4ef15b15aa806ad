//! `llmc te …`: the Tool Envelope on the command line.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Args, Parser};
use jiff::{SignedDuration, Timestamp};
use llmc_observe::{CallFilter, GroupBy, TelemetryAnalysis};
use llmc_tools::ErrorKind;
use llmc_tools::shell::{Cli, Flags, HELP};

use super::{Failure, print, print_clap_error, start_quietly};
use crate::cli::Common;

pub(super) fn run(common: &Common, words: &[String]) -> Result<ExitCode, Failure> {
    if words.first().is_some_and(|word| word == "analyze") {
        return match Analyze::try_parse_from(words) {
            Ok(args) => args.run(common),
            Err(error) => print_clap_error(&error),
        };
    }
    let flags = Flags::parse(words)?;
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

/// Where tokens go, what condensing saved, and what would be worth condensing next.
#[derive(Debug, Parser)]
#[command(name = "te analyze")]
struct Analyze {
    /// What to add up by: cmd, agent, source or session
    #[arg(long, default_value = "cmd", value_parser = group)]
    by: GroupBy,
    /// Only calls of the last so many days
    #[arg(long, value_name = "DAYS")]
    since: Option<u16>,
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
        let days = |days: u16| SignedDuration::from_hours(24 * i64::from(days));
        let filter = CallFilter {
            since: self
                .since
                .and_then(|since| Timestamp::now().checked_sub(days(since)).ok()),
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

fn group(text: &str) -> Result<GroupBy, String> {
    GroupBy::parse(text).ok_or_else(|| "one of cmd, agent, source, session".to_owned())
}
