//! `llmc dashboard`: a one-time link to the dashboard of this workspace, whose server is started if there is none.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use llmc_config::{ConfigInputs, LoadedConfig};
use llmc_server::control::{ControlRequest, ask_server, listed_servers};
use llmc_server::http;
use llmc_tools::{App, Error, ErrorKind};

use super::{Failure, inputs, print, start_server};
use crate::cli::{Common, DashboardArgs};
use crate::log;

/// How long the server in the background may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The state directory's folder of control sockets.
const SERVERS_DIR: &str = "servers";

pub(super) fn run(common: &Common, args: &DashboardArgs) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    if args.serve {
        return serve(loaded);
    }
    let servers = loaded.state_dir().join(SERVERS_DIR);
    let link = match link_of_a_server(&servers) {
        Some(link) => link,
        None => link_of(&servers, start_in_background(common)?)?,
    };
    if !args.no_open && opens_browser(&link) {
        print("Opened in your browser. If it does not appear, open this link, which works once:")?;
    } else {
        print("Open this link in a browser on this machine; it works once, for two minutes:")?;
    }
    print(&format!("  {link}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration, with an address that only this machine reaches.
fn load(common: &Common) -> Result<LoadedConfig, Failure> {
    let mut inputs: ConfigInputs = inputs(common)?;
    for (key, value, given) in [
        ("mcp.server.host", "127.0.0.1", &common.host),
        ("mcp.server.port", "0", &common.port),
    ] {
        if given.is_none() {
            inputs.flags.push((key.to_owned(), value.to_owned()));
        }
    }
    let plain = ("mcp.server.tls_enabled".to_owned(), "false".to_owned());
    inputs.flags.push(plain);
    let mut loaded = llmc_config::load(&inputs)?;
    llmc_tools::look_for_scripts(&mut loaded);
    Ok(loaded)
}

/// Serves the page until no browser has used it for a while.
fn serve(loaded: LoadedConfig) -> Result<ExitCode, Failure> {
    // The terminal that it was started from may be closed.
    let _ = rustix::process::setsid();
    start_server(&loaded)?;
    let app = App::open(loaded)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("llmc")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    app.join_servers();
    let ended = runtime.block_on(http::serve_dashboard(app.clone(), |started| {
        let token = started.token.to_string();
        tracing::info!(target: log::ALWAYS, url = started.url, token, "listening");
    }));
    runtime.shutdown_background();
    app.leave_servers();
    app.finish_recordings();
    app.observer().close();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// A link of the first server that has a dashboard.
fn link_of_a_server(servers: &Path) -> Option<String> {
    let ids = listed_servers(servers);
    ids.iter().find_map(|id| ticket(servers, id).ok().flatten())
}

fn ticket(servers: &Path, id: &str) -> Result<Option<String>, Error> {
    let answer = ask_server(servers, id, &ControlRequest::Ticket)?;
    let link = answer.and_then(|answer| answer["link"].as_str().map(str::to_owned));
    Ok(link)
}

/// The link of a server that is being started.
fn link_of(servers: &Path, mut server: Child) -> Result<String, Failure> {
    let failed = |why: &str| {
        let hint = "start it in the foreground to see why: llmc dashboard --serve --log-level info";
        Failure::new(
            ErrorKind::Internal,
            format!("the dashboard's server {why}\n  hint: {hint}"),
        )
    };
    let pid = server.id();
    let is_started = |id: &str| {
        let status = ask_server(servers, id, &ControlRequest::Status)
            .ok()
            .flatten();
        status.is_some_and(|status| status["pid"] == pid)
    };
    let give_up = Instant::now() + START_TIMEOUT;
    while Instant::now() < give_up {
        let ids = listed_servers(servers);
        let link = ids.iter().filter(|id| is_started(id));
        let mut links = link.filter_map(|id| ticket(servers, id).ok().flatten());
        if let Some(link) = links.next() {
            return Ok(link);
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(failed(&format!("ended at once ({status})")));
        }
        std::thread::sleep(START_POLL_INTERVAL);
    }
    let _ = server.kill();
    Err(failed("does not answer"))
}

/// Starts this program once more, with the same flags, to serve the page.
fn start_in_background(common: &Common) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            ErrorKind::Internal,
            format!("the dashboard's server cannot be started: {error}"),
        )
    };
    let program = std::env::current_exe().map_err(failed)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "this program itself, started by its user"
    )]
    let mut command = Command::new(program);
    command.args(["dashboard", "--serve"]);
    let flags = [
        ("--config", common.config.as_deref().map(Path::as_os_str)),
        ("--root", common.root.as_deref().map(Path::as_os_str)),
        ("--mode", common.mode.as_deref().map(AsRef::as_ref)),
        ("--host", common.host.as_deref().map(AsRef::as_ref)),
        ("--port", common.port.as_deref().map(AsRef::as_ref)),
        (
            "--log-level",
            common.log_level.as_deref().map(AsRef::as_ref),
        ),
    ];
    for (flag, value) in flags {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    for set in &common.sets {
        command.arg("--set").arg(set);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)
}

/// Opens the link, where a person sits at a display; whether that was tried.
fn opens_browser(link: &str) -> bool {
    let has_display = ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !has_display || !std::io::stdout().is_terminal() {
        return false;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the user's own browser, started by its user"
    )]
    let mut command = Command::new("xdg-open");
    command
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}
