//! A call of an upstream's tool.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use llmc_config::{UpstreamCommand, UpstreamConfig, UpstreamHttp, UpstreamLaunch};
use llmc_exec::{Confinement, Profile, SYSTEM_SEARCH_PATH, Settings};
use llmc_gateway::{
    AskUser, ChildLaunch, Error as GatewayError, HttpLaunch, Launch, Upstream, UpstreamCall,
    UpstreamRequest, lies_in,
};
use serde_json::{Map, Value};

use super::definition::{UpstreamFunction, UpstreamTool};
use super::instructions::{instruction_like, warning};
use super::output::UpstreamOutput;
use crate::app::App;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::recording;
use crate::tool::{Effect, RunningTool, ToolDef, finish};

/// Characters of a failed tool's own words in an error.
const MAX_FAILURE_CHARS: usize = 2_000;

/// How many servers stand before this one, in the environment of an upstream: it may be this very program.
const DEPTH_VARIABLE: &str = "LLMC_UPSTREAM_DEPTH";
const MAX_DEPTH: u32 = 2;

/// How long the user may take to answer what servers ask in one call.
const MAX_USER_TIME: Duration = Duration::from_secs(1_800);

/// As long as a command may be waited for, and as long as the user may be asked.
pub(super) fn time_limit(cx: &Cx) -> Duration {
    let asked = cx.ask_user().map(|_| MAX_USER_TIME);
    server_time(cx) + asked.unwrap_or_default()
}

/// How long the server may take.
fn server_time(cx: &Cx) -> Duration {
    cx.app().config().mcp.exec.max_wait()
}

/// Calls the tool that `cx` names.
pub(super) fn run(cx: Cx, args: Map<String, Value>) -> RunningTool {
    let since = Instant::now();
    Box::pin(async move {
        let mut args = args;
        let found = cx.app().find_tool(cx.tool());
        let Some((tool, origin)) = found.and_then(|tool| Some((tool, tool.origin?))) else {
            return Err(Error::new(ErrorKind::Internal, "no tool of an upstream"));
        };
        if origin.function == UpstreamFunction::GetPrompt {
            parse_arguments(&mut args);
        }
        let returned = call(&cx, tool, origin, &args, since).await;
        finish(&cx, tool, returned).await
    })
}

async fn call(
    cx: &Cx,
    tool: &'static ToolDef,
    origin: &'static UpstreamTool,
    args: &Map<String, Value>,
    since: Instant,
) -> Result<UpstreamOutput> {
    let upstream = cx.app().upstream(&origin.upstream)?;
    if tool.effect == Effect::UpstreamRuns {
        cx.blocking(|cx, _| {
            recording::begin(cx);
            Ok(())
        })
        .await?;
    }
    let words = cx.clone();
    let answered = upstream
        .call(UpstreamCall {
            request: request(&origin.function, args)?,
            timeout: server_time(cx),
            since,
            cancel: cx.cancel(),
            progress: Some(Arc::new(move |said: &str| words.tell(said.to_owned()))),
            ask_user: cx.ask_user().map(|user| asking(&origin.upstream, user)),
        })
        .await;
    let answer = answered.map_err(|error| failure(&origin.upstream, error))?;
    if answer.is_error {
        let said = upstream.masked(answer.text());
        let mut message: String = said.chars().take(MAX_FAILURE_CHARS).collect();
        if message.len() < said.len() {
            message.push('…');
        }
        let message = format!("{}: {message}", origin.full_name);
        let error = Error::new(ErrorKind::ProviderFailed, message).retry(false);
        return Err(match instruction_like(&said) {
            Some(found) => error.hint(warning(&origin.upstream, &found)),
            None => error,
        });
    }
    cx.blocking(move |_, cancel| Ok(UpstreamOutput::of(&origin.full_name, answer, cancel)))
        .await
}

/// Reads the arguments of a prompt that come as text, as the command line gives them.
fn parse_arguments(args: &mut Map<String, Value>) {
    if let Some(given) = args.get_mut("arguments")
        && let Some(parsed) = given
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
    {
        *given = parsed;
    }
}

/// What the server is asked for.
fn request<'a>(
    function: &'a UpstreamFunction,
    args: &'a Map<String, Value>,
) -> Result<UpstreamRequest<'a>> {
    let text = |name: &str| {
        let given = args.get(name).and_then(Value::as_str);
        given.ok_or_else(|| Error::bad_args(format!("{name} is missing, or no text")))
    };
    Ok(match function {
        UpstreamFunction::Tool { name, hash } => UpstreamRequest::Tool { name, hash, args },
        UpstreamFunction::Resources => UpstreamRequest::Resources,
        UpstreamFunction::ReadResource => UpstreamRequest::ReadResource { uri: text("uri")? },
        UpstreamFunction::Prompts => UpstreamRequest::Prompts,
        UpstreamFunction::GetPrompt => {
            static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
            let name = text("name")?;
            let args = match args.get("arguments") {
                Some(Value::Object(given)) => given,
                None | Some(Value::Null) => &NONE,
                Some(_) => return Err(Error::bad_args("arguments is no object: values by name")),
            };
            UpstreamRequest::Prompt { name, args }
        }
    })
}

/// Asks the same user, and says who wants to know: the client shows questions as this server's own.
fn asking(upstream: &str, user: &AskUser) -> AskUser {
    user.with_prefix(format!("The MCP server {upstream} asks: "))
}

/// The gateway's error in the terms of the error table.
fn failure(upstream: &str, error: GatewayError) -> Error {
    let message = format!("upstream {upstream}: {error}");
    let kind = match &error {
        GatewayError::TimedOut(_) => ErrorKind::TimedOut,
        GatewayError::Cancelled => ErrorKind::Cancelled,
        GatewayError::TooLarge(_) => ErrorKind::TooLarge,
        GatewayError::Withheld(_) => ErrorKind::CommandDenied,
        GatewayError::Gone(_) => ErrorKind::NotFound,
        _ => ErrorKind::ProviderFailed,
    };
    let retryable = matches!(
        error,
        GatewayError::Ended { .. } | GatewayError::Waiting { .. } | GatewayError::TimedOut(_)
    );
    let needs_credentials = matches!(
        error,
        GatewayError::Refused {
            code: 401 | 403,
            ..
        }
    );
    let error = Error::new(kind, message).retry(retryable);
    match kind {
        ErrorKind::CommandDenied | ErrorKind::NotFound => error.hint(format!(
            "the user can look at the change and accept it with `llmc upstream accept {upstream}`"
        )),
        ErrorKind::TooLarge => error.hint("ask the tool for less at a time"),
        _ if needs_credentials => error.hint(format!(
            "the user has to renew the credentials: token_file or headers_env of the upstream {upstream}"
        )),
        _ => error,
    }
}

impl App {
    /// The connection to an upstream, which its first call makes.
    pub(super) fn upstream(&self, name: &str) -> Result<Arc<Upstream>> {
        let entry = self.upstreams().find(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no upstream {name}"))
        })?;
        let made = entry.upstream.get_or_init(|| {
            self.make_upstream(&entry.config)
                .map(Arc::new)
                .map_err(|error| error.message)
        });
        made.clone().map_err(|why| {
            Error::new(ErrorKind::ProviderFailed, format!("upstream {name}: {why}")).retry(false)
        })
    }

    /// An upstream of the configuration, not started; also for the command line.
    ///
    /// # Errors
    /// What the configuration refers to is not there: a variable, a place for the record.
    pub fn make_upstream(&self, config: &UpstreamConfig) -> Result<Upstream> {
        let pin_file = self
            .loaded()
            .pin_file(config)
            .map_err(|error| Error::new(ErrorKind::ProviderFailed, error.to_string()))?;
        let launch = match &config.launch {
            UpstreamLaunch::Command(command) => {
                Launch::Child(Box::new(self.child_launch(&config.name, command)?))
            }
            UpstreamLaunch::Http(http) => Launch::Http(self.http_launch(http)?),
        };
        Ok(Upstream::new(launch, config.idle(), pin_file))
    }

    fn http_launch(&self, http: &UpstreamHttp) -> Result<HttpLaunch> {
        let mut headers = Vec::new();
        for header in &http.headers_env {
            let (name, variable) = header.split_once('=').unwrap_or((header, ""));
            let value = std::env::var(variable).map_err(|_| {
                Error::bad_args(format!("the environment variable {variable} is not set"))
            })?;
            headers.push((name.to_ascii_lowercase(), value));
        }
        let token_file = http.token_file.as_deref();
        Ok(HttpLaunch {
            url: http.url.clone(),
            headers,
            token_file: token_file.map(|path| self.loaded().resolve(path)),
        })
    }

    fn child_launch(&self, name: &str, command: &UpstreamCommand) -> Result<ChildLaunch> {
        let depth = std::env::var(DEPTH_VARIABLE).ok();
        let depth: u32 = depth.and_then(|depth| depth.parse().ok()).unwrap_or(0);
        if depth >= MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::ProviderFailed,
                "this server is behind itself: a server that is an upstream starts no further ones",
            ));
        }
        let mut env = vec![(DEPTH_VARIABLE.to_owned(), (depth + 1).to_string())];
        for variable in &command.env {
            match variable.split_once('=') {
                Some((name, value)) => env.push((name.to_owned(), value.to_owned())),
                None => match std::env::var(variable) {
                    Ok(value) => env.push((variable.clone(), value)),
                    Err(_) => {
                        return Err(Error::bad_args(format!(
                            "the environment variable {variable} is not set"
                        )));
                    }
                },
            }
        }
        // Programs take modules, packages and settings out of the folder they start in: not out of one that agents write.
        let cwd = command.cwd.as_deref();
        let cwd = cwd.map_or_else(|| PathBuf::from("/"), |cwd| self.loaded().resolve(cwd));
        let argv = std::iter::once(&command.command).chain(&command.args);
        Ok(ChildLaunch {
            name: name.to_owned(),
            settings: self.upstream_settings(command),
            writable: self.agents_folders(),
            confined: command.confine,
            argv: argv.cloned().collect(),
            env,
            cwd,
        })
    }

    /// The folders that agents may write, each also as what it leads to.
    fn agents_folders(&self) -> Vec<PathBuf> {
        let loaded = self.loaded();
        let mut folders = vec![loaded.root.clone()];
        folders.extend(loaded.roots());
        folders.extend(loaded.linux_roots());
        let extra = loaded.config.mcp.exec.extra_write.iter();
        folders.extend(extra.map(|path| loaded.resolve(path)));
        folders.extend(self.allowed_writes());
        let real = folders.iter().filter_map(|dir| dir.canonicalize().ok());
        let real: Vec<PathBuf> = real.collect();
        folders.extend(real);
        folders
    }

    /// What bounds an upstream: what bounds commands, but that the operator has chosen the program. A program of that
    /// name in a folder that agents write is not the one.
    fn upstream_settings(&self, command: &UpstreamCommand) -> Settings {
        let mut commands = self.command_settings();
        let agents = self.agents_folders();
        commands.search_path.retain(|dir| !lies_in(dir, &agents));
        if commands.search_path.is_empty() {
            commands.search_path = SYSTEM_SEARCH_PATH.map(PathBuf::from).to_vec();
        }
        let further: Vec<PathBuf> = command
            .extra_write
            .iter()
            .map(|path| self.loaded().resolve(path))
            .collect();
        let confinement = match (command.confine, commands.profile) {
            (false, _) => Confinement::Off,
            (true, Profile::Restricted) => Confinement::Full,
            (true, Profile::Unrestricted) => commands.confinement,
        };
        Settings {
            profile: Profile::Unrestricted,
            allowlist: vec!["*".to_owned()],
            policy_file: None,
            sees: None,
            network: !command.confine || command.network.unwrap_or(commands.network),
            extra_write: commands
                .extra_write
                .iter()
                .cloned()
                .chain(further)
                .collect(),
            confinement,
            ..commands
        }
    }
}
