//! `llmc upstream import CLIENT`: moves the servers of a client's settings behind this one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llmc_clients::{
    Client, ClientServer, EditPlan, NameConflict, OtherFileServer, SettingsChange, SettingsFormat,
    SettingsScope,
};
use llmc_config::{UpstreamCommand, UpstreamConfig, UpstreamHttp, UpstreamLaunch, with_upstream};
use llmc_tools::ErrorKind;

use super::{accepted, carry_out, file_to_write, find, listed, scope, store, summary};
use crate::cli::{Common, UpstreamImportArgs};
use crate::verbs::install::client_paths;
use crate::verbs::trust::visible;
use crate::verbs::{Failure, load, print, start_quietly};

/// A server that can be moved: its entry in the client's settings, and what it becomes.
struct Move {
    entry: String,
    /// The file that has the entry.
    file: PathBuf,
    format: SettingsFormat,
    upstream: UpstreamConfig,
}

pub(super) fn import(common: &Common, args: &UpstreamImportArgs) -> Result<ExitCode, Failure> {
    let client = args.client;
    let client_scope = args.scope.unwrap_or(client.default_scope());
    let paths = client_paths(common)?;
    let files = client.files(client_scope, &paths);
    let Some((first, _)) = files.first() else {
        let message = format!("{} has no settings of that scope", client.title());
        return Err(Failure::new(ErrorKind::NotFound, message));
    };
    let loaded = load(common)?;
    let mut moves = Vec::new();
    for (file, format) in &files {
        let servers = EditPlan::servers(file, *format)?;
        add_moves(
            &mut moves,
            servers,
            (file, *format),
            &loaded.config.mcp.upstream,
        )?;
    }
    if moves.is_empty() {
        let message = match files.len() {
            1 => format!("{} has no server to move", first.display()),
            _ => format!("{} and its folder have no server to move", first.display()),
        };
        return Err(Failure::new(ErrorKind::NotFound, message));
    }
    let target = file_to_write(common, &args.write)?;
    let plan = EditPlan::of_text(&target, scope(&args.write), |text| {
        let mut text = text.to_owned();
        for one in &moves {
            text = with_upstream(&text, &one.upstream)?;
        }
        Ok(text)
    })?;
    if !carry_out(&plan, &args.write)? {
        return Ok(ExitCode::SUCCESS);
    }
    let app = start_quietly(common)?;
    let mut failed = false;
    for one in &moves {
        let name = &one.upstream.name;
        let pinned = match find(&app, name) {
            Some(upstream) => listed(&app, upstream).and_then(|now| {
                if let Some(before) = accepted(&app, upstream)?
                    && !before.changes(&now).is_empty()
                {
                    let message = format!(
                        "{name}: its tools are not as accepted before\n  hint: `llmc upstream accept {name}` shows and accepts them"
                    );
                    return Err(Failure::new(ErrorKind::Conflict, message));
                }
                store(&app, upstream, &now)?;
                Ok(summary(upstream, &now))
            }),
            None => Err(Failure::new(
                ErrorKind::BadArgs,
                format!("{name} is written but not in effect here"),
            )),
        };
        match pinned {
            Ok(text) => {
                print(&format!("\n{name}: {text}"))?;
                retire(args, client, client_scope, one)?;
            }
            Err(failure) => {
                failed = true;
                failure.report();
                print(&format!("{name} stays in {}", one.file.display()))?;
            }
        }
    }
    Ok(match failed {
        true => ExitCode::from(ErrorKind::ProviderFailed.row().exit),
        false => ExitCode::SUCCESS,
    })
}

/// Adds what each server of a file becomes; one that cannot be moved is named.
fn add_moves(
    moves: &mut Vec<Move>,
    servers: Vec<ClientServer>,
    (file, format): (&Path, SettingsFormat),
    known: &[UpstreamConfig],
) -> Result<(), Failure> {
    for server in servers {
        let program = server.command.as_deref().map(Path::new);
        if program
            .and_then(Path::file_name)
            .is_some_and(|name| name == "llmc")
        {
            continue;
        }
        let entry = visible(&server.entry);
        if server.has_credentials {
            print(&format!(
                "{entry} stays: its credentials belong into environment variables; llmc upstream add --url URL --header HEADER=VARIABLE"
            ))?;
            continue;
        }
        if server.is_special {
            print(&format!(
                "{entry} stays: it is switched off, has a cwd, or values that are no plain text; llmc upstream add adds it"
            ))?;
            continue;
        }
        let launch = match (server.command, server.url) {
            (Some(command), _) => UpstreamLaunch::Command(UpstreamCommand {
                command,
                args: server.args,
                env: server
                    .env
                    .into_iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect(),
                cwd: None,
                confine: true,
                network: None,
                extra_write: Vec::new(),
            }),
            (None, Some(url)) => UpstreamLaunch::Http(UpstreamHttp {
                url,
                headers_env: Vec::new(),
                token_file: None,
            }),
            (None, None) => {
                print(&format!("{entry} stays: it has no command and no url"))?;
                continue;
            }
        };
        let taken = |name: &str| {
            let own = moves.iter().map(|one| &one.upstream);
            known
                .iter()
                .chain(own)
                .any(|upstream| upstream.name == name)
        };
        moves.push(Move {
            upstream: UpstreamConfig {
                name: name_for(&server.entry, taken),
                launch,
                tools: vec!["*".to_owned()],
                promoted: Vec::new(),
                idle_s: 300,
            },
            entry: server.entry,
            file: file.to_owned(),
            format,
        });
    }
    Ok(())
}

/// A name that scripts can write and no other upstream has.
fn name_for(entry: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '_',
    };
    let mut name: String = entry.chars().take(24).map(plain).collect();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert_str(0, "s_");
    }
    let mut free = name.clone();
    let mut number = 2;
    while is_taken(&free) {
        free = format!("{name}_{number}");
        number += 1;
    }
    free
}

/// Takes the entry out of the client's settings, which would send its list to every conversation.
fn retire(
    args: &UpstreamImportArgs,
    client: Client,
    scope: SettingsScope,
    one: &Move,
) -> Result<(), Failure> {
    if args.keep {
        return Ok(());
    }
    let change = SettingsChange::Retire(OtherFileServer {
        entry: one.entry.clone(),
        title: "MCP server",
    });
    let plan = EditPlan::new(&one.file, one.format, scope, &change, NameConflict::Refuse)?;
    if carry_out(&plan, &args.write)? {
        print(&format!("moved; next: {}", client.next_step()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_for_scripts() {
        let free = |_: &str| false;
        assert_eq!(name_for("GitHub MCP", free), "github_mcp");
        assert_eq!(name_for("3d", free), "s_3d");
        assert_eq!(name_for("time", |name| name == "time"), "time_2");
        assert_eq!(name_for(&"x".repeat(99), free).len(), 24);
    }
}
