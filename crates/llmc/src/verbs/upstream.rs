//! `llmc upstream`: other MCP servers behind this one.

mod import;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use llmc_clients::{EditPlan, SettingsScope};
use llmc_config::{
    UpstreamCommand, UpstreamConfig, UpstreamHttp, UpstreamLaunch, with_upstream, without_upstream,
};
use llmc_gateway::{PinChange, PinnedTools, ToolPin};
use llmc_tools::{App, ErrorKind, InstructionLike, instruction_like};
use tokio_util::sync::CancellationToken;

use super::trust::visible;
use super::{Failure, confirm, load, print, start_quietly};
use crate::cli::{Common, UpstreamAddArgs, UpstreamVerb, UpstreamWrite};

pub(super) fn run(common: &Common, verb: UpstreamVerb) -> Result<ExitCode, Failure> {
    match verb {
        UpstreamVerb::Add(args) => add(common, &args),
        UpstreamVerb::Import(args) => import::import(common, &args),
        UpstreamVerb::Remove { name, write } => remove(common, &name, &write),
        UpstreamVerb::List => list(common),
        UpstreamVerb::Test { name } => test(common, &name),
        UpstreamVerb::Accept { name, show, yes } => accept(common, &name, show, yes),
    }
}

fn add(common: &Common, args: &UpstreamAddArgs) -> Result<ExitCode, Failure> {
    let upstream = wanted(args)?;
    let has_values = args.env.iter().any(|variable| variable.contains('='));
    if args.write.project && has_values {
        print(
            "note: commands can read llmc.toml and the values in it; --env NAME passes on your own variable and writes none",
        )?;
    }
    let file = file_to_write(common, &args.write)?;
    let plan = EditPlan::of_text(&file, scope(&args.write), |text| {
        with_upstream(text, &upstream)
    })?;
    if !carry_out(&plan, &args.write)? {
        return Ok(ExitCode::SUCCESS);
    }
    let app = start_quietly(common)?;
    let Some(found) = find(&app, &upstream.name) else {
        let hint = match args.write.project {
            true => "`llmc trust` accepts it",
            false => {
                "the workspace's llmc.toml has a list of its own, which takes the place of yours"
            }
        };
        return Err(Failure::new(
            ErrorKind::BadArgs,
            format!(
                "{} is written but not in effect here\n  hint: {hint}",
                upstream.name
            ),
        ));
    };
    let now = listed(&app, found)?;
    match accepted(&app, found)? {
        // `--yes` is consent to the change of the file, not to that of the tools.
        Some(before) if !before.changes(&now).is_empty() => {
            let hint = format!("`llmc upstream accept {} --yes` accepts", found.name);
            decide(&app, found, &before.changes(&now), &now, &hint)
        }
        _ => {
            store(&app, found, &now)?;
            print(&summary(found, &now))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What the flags ask for.
fn wanted(args: &UpstreamAddArgs) -> Result<UpstreamConfig, Failure> {
    let launch = match (&args.url, args.command.split_first()) {
        (Some(url), None) => UpstreamLaunch::Http(UpstreamHttp {
            url: url.clone(),
            headers_env: args.header.clone(),
            token_file: args.token_file.clone(),
        }),
        (None, Some((command, rest))) => UpstreamLaunch::Command(UpstreamCommand {
            command: command.clone(),
            args: rest.to_vec(),
            env: args.env.clone(),
            cwd: args.cwd.clone(),
            confine: !args.no_confine,
            network: args.no_network.then_some(false),
            extra_write: args.extra_write.clone(),
        }),
        _ => {
            return Err(Failure::new(
                ErrorKind::BadArgs,
                "give the command after --, or --url\n  hint: llmc upstream add time -- uvx mcp-server-time",
            ));
        }
    };
    Ok(UpstreamConfig {
        name: args.name.clone(),
        launch,
        tools: match args.tools.is_empty() {
            true => vec!["*".to_owned()],
            false => args.tools.clone(),
        },
        promoted: args.promote.clone(),
        idle_s: 300,
    })
}

fn remove(common: &Common, name: &str, write: &UpstreamWrite) -> Result<ExitCode, Failure> {
    let file = file_to_write(common, write)?;
    let loaded = load(common)?;
    let mut there = false;
    let plan = EditPlan::of_text(&file, scope(write), |text| {
        let without = without_upstream(text, name)?;
        there = without.is_some();
        Ok(without.unwrap_or_else(|| text.to_owned()))
    })?;
    if !there {
        let message = format!("{} has no upstream {name}", file.display());
        return Err(Failure::new(ErrorKind::NotFound, message));
    }
    if !carry_out(&plan, write)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut upstreams = loaded.config.mcp.upstream.iter();
    if let Some(upstream) = upstreams.find(|upstream| upstream.name == name)
        && let Ok(pins) = loaded.pin_file(upstream)
    {
        PinnedTools::remove(&pins).map_err(failed)?;
    }
    print("removed; running servers read it when they start again")?;
    Ok(ExitCode::SUCCESS)
}

fn list(common: &Common) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let upstreams = &app.config().mcp.upstream;
    if upstreams.is_empty() {
        print("no upstreams; `llmc upstream add NAME -- COMMAND` adds one")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = format!(
        "{:<20} {:>6} {:>14} {:>14}  server\n",
        "name", "tools", "tokens direct", "through llmc"
    );
    let (mut direct, mut through) = (0, 0);
    for upstream in upstreams {
        let name = &upstream.name;
        let Some(pins) = accepted(&app, upstream)? else {
            let _ = writeln!(out, "{name:<20} not accepted: llmc upstream accept {name}");
            continue;
        };
        let tokens = list_tokens(&pins);
        let own = app.promoted_tokens(name);
        (direct, through) = (direct + tokens, through + own);
        let count = pins.tools.len();
        let server = visible(&pins.server);
        let _ = writeln!(
            out,
            "{name:<20} {count:>6} {tokens:>14} {own:>14}  {server}"
        );
        for mark in pins.tools.iter().filter_map(marked) {
            let _ = writeln!(out, "  {mark}");
        }
    }
    let _ = writeln!(out, "{:<20} {:>6} {direct:>14} {through:>14}", "all", "");
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn test(common: &Common, name: &str) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let upstream = known(&app, name)?;
    let began = Instant::now();
    let now = listed(&app, upstream)?;
    let seconds = began.elapsed().as_secs_f64();
    let server = visible(&now.server);
    let mut out = format!(
        "{name}: {server} answered in {seconds:.1} s with {} tools\n",
        now.tools.len()
    );
    for left in &now.left_out {
        let _ = writeln!(out, "left out: {}", visible(left));
    }
    let changes = match accepted(&app, upstream)? {
        Some(pins) => pins.changes(&now),
        None => PinnedTools::default().changes(&now),
    };
    for change in &changes {
        let what = match change {
            PinChange::Added(_) => "not accepted",
            PinChange::Removed(_) => "gone",
            PinChange::Changed { .. } => "changed since it was accepted, withheld",
        };
        let _ = writeln!(out, "{}: {what}", visible(change.tool()));
    }
    if changes.is_empty() {
        out.push_str("all tools are as accepted\n");
        print(&out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let _ = writeln!(out, "`llmc upstream accept {name}` shows and accepts them");
    print(&out)?;
    Ok(ExitCode::from(ErrorKind::Conflict.row().exit))
}

fn accept(common: &Common, name: &str, show: bool, yes: bool) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let upstream = known(&app, name)?;
    let now = listed(&app, upstream)?;
    let before = accepted(&app, upstream)?;
    let changes = before.clone().unwrap_or_default().changes(&now);
    if before.is_some() && changes.is_empty() {
        print(&format!("all {} tools are as accepted", now.tools.len()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if show {
        show_changes(&changes)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !yes {
        return decide(
            &app,
            upstream,
            &changes,
            &now,
            "--yes accepts, --show only shows",
        );
    }
    show_changes(&changes)?;
    store(&app, upstream, &now)?;
    print(&summary(upstream, &now))?;
    Ok(ExitCode::SUCCESS)
}

fn show_changes(changes: &[PinChange]) -> Result<(), Failure> {
    let mut out = String::new();
    for change in changes {
        if let PinChange::Added(tool) | PinChange::Changed { now: tool, .. } = change
            && let Some(mark) = marked(tool)
        {
            let _ = writeln!(out, "{mark}");
        }
        for line in change.describe().lines() {
            let _ = writeln!(out, "{}", visible(line));
        }
        out.push('\n');
    }
    print(&out)
}

/// Shows what differs, and records it if the user agrees.
fn decide(
    app: &App,
    upstream: &UpstreamConfig,
    changes: &[PinChange],
    now: &PinnedTools,
    hint: &str,
) -> Result<ExitCode, Failure> {
    show_changes(changes)?;
    let name = &upstream.name;
    let question = format!("accept these {} changes of {name}?", changes.len());
    if confirm(&question, hint)? {
        store(app, upstream, now)?;
        print(&summary(upstream, now))?;
    } else {
        print("nothing was accepted")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts an upstream and asks it for its tools.
fn listed(app: &Arc<App>, upstream: &UpstreamConfig) -> Result<PinnedTools, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    let made = app.make_upstream(upstream)?;
    let cancel = CancellationToken::new();
    let listed = runtime.block_on(async {
        let interrupted = cancel.clone();
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.cancel();
            }
        });
        let listed = made.list(&cancel).await;
        made.stop().await;
        listed
    });
    runtime.shutdown_background();
    listed.map_err(|error| {
        let message = format!("upstream {}: {error}", upstream.name);
        Failure::new(ErrorKind::ProviderFailed, visible(&message))
    })
}

fn summary(upstream: &UpstreamConfig, pins: &PinnedTools) -> String {
    let name = &upstream.name;
    let mut out = format!(
        "accepted {} tools of {}; their list would take {} tokens of every conversation\n",
        pins.tools.len(),
        visible(&pins.server),
        list_tokens(pins)
    );
    for mark in pins.tools.iter().filter_map(marked) {
        let _ = writeln!(out, "{mark}");
    }
    for left in &pins.left_out {
        let _ = writeln!(out, "left out: {}", visible(left));
    }
    if let Some(function) = pins.functions(&[]).first() {
        let _ = writeln!(
            out,
            "scripts call them as tools.{name}.{function}(…), the shell as llmc tool {name}.{function}"
        );
    }
    out.push_str("running servers read it when they start again\n");
    out
}

/// That a tool's own text reads like instructions to a model, and where.
fn marked(tool: &ToolPin) -> Option<String> {
    let schema = serde_json::Value::Object(tool.input_schema.clone()).to_string();
    let found = instruction_like(&tool.description).or_else(|| instruction_like(&schema));
    found.map(|InstructionLike { what, excerpt }| {
        format!(
            "careful: {}: its text {what}: {:?}",
            visible(&tool.name),
            visible(&excerpt)
        )
    })
}

/// Tokens of the list that a client of the server would be sent.
fn list_tokens(pins: &PinnedTools) -> usize {
    let tools = pins.tools.iter();
    tools.map(|tool| llmc_tokens::count(&tool.listing())).sum()
}

fn known<'a>(app: &'a App, name: &str) -> Result<&'a UpstreamConfig, Failure> {
    find(app, name).ok_or_else(|| {
        let message =
            format!("there is no upstream {name}\n  hint: `llmc upstream list` names them");
        Failure::new(ErrorKind::NotFound, message)
    })
}

fn find<'a>(app: &'a App, name: &str) -> Option<&'a UpstreamConfig> {
    let mut all = app.config().mcp.upstream.iter();
    all.find(|upstream| upstream.name == name)
}

fn pin_file(app: &App, upstream: &UpstreamConfig) -> Result<PathBuf, Failure> {
    let path = app.loaded().pin_file(upstream);
    path.map_err(|error| Failure::from_error(ErrorKind::WriteFailed, &error))
}

fn accepted(app: &App, upstream: &UpstreamConfig) -> Result<Option<PinnedTools>, Failure> {
    PinnedTools::load(&pin_file(app, upstream)?).map_err(failed)
}

fn store(app: &App, upstream: &UpstreamConfig, pins: &PinnedTools) -> Result<(), Failure> {
    pins.store(&pin_file(app, upstream)?).map_err(failed)
}

fn failed(error: llmc_gateway::Error) -> Failure {
    Failure::new(ErrorKind::WriteFailed, error.to_string())
}

/// The user's own file, or the workspace's.
fn file_to_write(common: &Common, write: &UpstreamWrite) -> Result<PathBuf, Failure> {
    let loaded = load(common)?;
    if write.project {
        let named = loaded.file.clone().or_else(|| common.config.clone());
        return Ok(named.unwrap_or_else(|| loaded.root.join("llmc.toml")));
    }
    loaded.user_file().map(Path::to_owned).ok_or_else(|| {
        let message = "no place for your own configuration: neither XDG_CONFIG_HOME nor HOME is an absolute path";
        Failure::new(ErrorKind::NotFound, message)
    })
}

fn scope(write: &UpstreamWrite) -> SettingsScope {
    match write.project {
        true => SettingsScope::Project,
        false => SettingsScope::User,
    }
}

/// Shows the difference, asks, and writes; whether something is different now.
fn carry_out(plan: &EditPlan, write: &UpstreamWrite) -> Result<bool, Failure> {
    if plan.is_unchanged() {
        return Ok(true);
    }
    plan.check_writable()?;
    print(&plan.diff())?;
    if write.dry_run {
        return Ok(false);
    }
    let question = format!("write {}?", plan.file().display());
    if !write.yes && !confirm(&question, "--yes writes, --dry-run only shows")? {
        print("nothing was written")?;
        return Ok(false);
    }
    let applied = plan.apply()?;
    if let Some(backup) = &applied.backup {
        print(&format!("backup: {}", backup.display()))?;
    }
    Ok(true)
}
