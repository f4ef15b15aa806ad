//! `llmc tui`: the live picture in a terminal, and the summary after a task.

use std::io::Read;
use std::process::ExitCode;

use llmc_config::Loaded;
use llmc_tools::Kind;
use llmc_tui::{Address, Failed, Feed, Setup, Theme, summary};

use super::{Failure, load, print};
use crate::cli::{Common, TuiArgs};

/// The longest token that a file may hold; the server refuses longer ones too.
const TOKEN: u64 = 4096;

pub(super) fn run(common: &Common, args: &TuiArgs) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let feed = match &args.url {
        Some(address) => server(&loaded, address.clone())?,
        None => store(&loaded, args)?,
    };
    let setup = Setup {
        loaded,
        feed,
        theme: Theme::of(std::env::var_os("NO_COLOR").as_deref()),
        pager: std::env::var_os("PAGER"),
    };
    if args.summary {
        let picture = setup.feed.look();
        let picture = picture.map_err(|why| Failure::new(Kind::Internal, why))?;
        print(&summary(&picture, &setup.context()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let ended = llmc_tui::run(setup).map_err(|failed| {
        let kind = match failed {
            Failed::NoTerminal => Kind::BadArgs,
            Failed::Io(_) => Kind::Internal,
        };
        Failure::new(kind, failed.to_string())
    })?;
    let printed = print(&summary(&ended.picture, &ended.context));
    if ended.interrupted {
        // Perhaps because there is no terminal any more to print to.
        return Ok(ExitCode::from(Kind::Cancelled.row().exit));
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// The workspace's own record, which every server and shell call in it writes.
fn store(loaded: &Loaded, args: &TuiArgs) -> Result<Feed, Failure> {
    let config = &loaded.config.mcp;
    if !config.observability.enabled || !config.docker.persist_telemetry {
        let key = if config.observability.enabled {
            "mcp.docker.persist_telemetry"
        } else {
            "mcp.observability.enabled"
        };
        return Err(Failure::new(
            Kind::BadArgs,
            format!(
                "{key} is false: calls of this workspace are not recorded\n  hint: set it to true, or watch a running server with --url"
            ),
        ));
    }
    Ok(Feed::Store {
        path: loaded.state_dir().join("te_telemetry.db"),
        since: args.since,
    })
}

/// A running server, with the token that it was given or has made.
fn server(loaded: &Loaded, address: Address) -> Result<Feed, Failure> {
    let token = match std::env::var(&loaded.config.mcp.auth.token_env) {
        Ok(token) if !token.is_empty() => Some(token),
        _ => kept_token(loaded)?,
    };
    Ok(Feed::Server { address, token })
}

#[allow(
    clippy::disallowed_methods,
    reason = "the server's own file, not one of the agent's"
)]
fn kept_token(loaded: &Loaded) -> Result<Option<String>, Failure> {
    let path = loaded.state_dir().join("token");
    let mut token = String::new();
    match std::fs::File::open(&path) {
        Ok(file) => {
            let read = file.take(TOKEN).read_to_string(&mut token);
            read.map_err(|error| {
                Failure::new(
                    Kind::PermissionDenied,
                    format!("{}: {error}", path.display()),
                )
            })?;
            Ok(Some(token.trim_end().to_owned()))
        }
        // A server may ask for none; if it does, it says so.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(
            Kind::PermissionDenied,
            format!("{}: {error}", path.display()),
        )),
    }
}
