//! Which server a call belongs to: the one that has the process or the script session that it names.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ServerLink;
use super::store::SessionClaim;
use crate::app::App;
use crate::arguments;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::script;
use crate::tool::ToolDef;

/// The longest name of a server; see `server_id`.
const MAX_SERVER_NAME_BYTES: usize = 40;
/// Stands between a process and the server that has it.
const SERVER_MARK: char = '@';

/// The argument of a tool that names something which lives on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeArgument {
    /// The id of a background process.
    Process(&'static str),
    /// The number of a process on its machine.
    Pid(&'static str),
    /// The name of a script session.
    ScriptSession(&'static str),
}

/// Another server that has to carry out a call.
#[derive(Debug)]
pub(crate) struct CallHome {
    pub(super) server: String,
    /// What it has that the call names.
    pub(super) subject: Subject,
}

/// What ties a call to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Process(String),
    ScriptSession(String),
}

/// The id of a process with the server that has it.
pub(crate) fn on_server(proc_id: &str, server: &str) -> String {
    format!("{proc_id}{SERVER_MARK}{server}")
}

/// The server that an id names.
pub(crate) fn server_of(proc_id: &str) -> Option<&str> {
    let (_, server) = proc_id.strip_prefix("p_")?.split_once(SERVER_MARK)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let fits = (1..=MAX_SERVER_NAME_BYTES).contains(&server.len()) && server.bytes().all(is_plain);
    fits.then_some(server)
}

impl App {
    /// The server that has to carry out a call; `None` for this one.
    pub(crate) async fn home_of(
        self: &Arc<App>,
        tool: &'static ToolDef,
        call: &Call,
    ) -> Result<Option<CallHome>> {
        let (Some(link), Some(home)) = (self.server_link(), tool.home) else {
            return Ok(None);
        };
        // What cannot be read is refused here as anywhere.
        let Ok(args) = arguments::normalise(tool, call.args.clone()) else {
            return Ok(None);
        };
        match home {
            HomeArgument::Process(name) => Ok(process_home(link, &args, name)),
            HomeArgument::Pid(name) => self.pid_home(link, &args, name, call).await,
            HomeArgument::ScriptSession(name) => self.session_home(link, &args, name, call).await,
        }
    }

    /// The server that has a process of the caller with this number. A number that is also one of this machine, or of
    /// several others, means this machine.
    async fn pid_home(
        self: &Arc<App>,
        link: &Arc<ServerLink>,
        args: &Map<String, Value>,
        name: &str,
        call: &Call,
    ) -> Result<Option<CallHome>> {
        let Some(pid) = args.get(name).and_then(Value::as_i64) else {
            return Ok(None);
        };
        let own = self.processes().list(&call.caller);
        if (own.iter()).any(|entry| i64::from(entry.process.pid()) == pid) {
            return Ok(None);
        }
        let others = link.processes_of(&call.caller).await;
        let mut found = (others.listed.iter()).filter(|process| process["pid"] == pid);
        let proc_id = found.next().and_then(|process| process["proc_id"].as_str());
        let home = proc_id.and_then(|id| Some((id, server_of(id)?)));
        Ok(home
            .filter(|_| found.next().is_none())
            .map(|(id, server)| CallHome {
                server: server.to_owned(),
                subject: Subject::Process(id.to_owned()),
            }))
    }

    /// The server that has a script session of the caller; the one that is asked first becomes it.
    async fn session_home(
        self: &Arc<App>,
        link: &Arc<ServerLink>,
        args: &Map<String, Value>,
        name: &str,
        call: &Call,
    ) -> Result<Option<CallHome>> {
        let session = args.get(name).and_then(Value::as_str);
        let Some(session) = session.filter(|name| script::is_session_name(name)) else {
            return Ok(None);
        };
        let key = script::session_key(&call.caller.principal, session);
        let (claimed, takes_over) = (key.clone(), link.knows_who_is_gone());
        let claim = link.with_store(move |store| store.claim_session(&claimed, takes_over));
        let claim = claim.await.map_err(|error| {
            let error = Error::from(error);
            let message = format!("which server has session {session}: {}", error.message);
            Error { message, ..error }
        })?;
        Ok(match claim {
            SessionClaim::Own => None,
            SessionClaim::TakenFrom(server) => {
                let why = format!("server {server} is gone");
                self.scripts().lose_session(&key, why);
                None
            }
            SessionClaim::Other(server) => Some(CallHome {
                server,
                subject: Subject::ScriptSession(session.to_owned()),
            }),
        })
    }
}

fn process_home(link: &ServerLink, args: &Map<String, Value>, name: &str) -> Option<CallHome> {
    let id = args.get(name)?.as_str()?;
    let server = server_of(id).filter(|server| *server != link.own)?;
    Some(CallHome {
        server: server.to_owned(),
        subject: Subject::Process(id.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_server() {
        let id = on_server("p_1a2b3c4d", "web-1-k3f9xq");
        assert_eq!(id, "p_1a2b3c4d@web-1-k3f9xq");
        assert_eq!(server_of(&id), Some("web-1-k3f9xq"));
        let long = format!("p_1@{}", "x".repeat(41));
        for other in ["p_1a2b3c4d", "p_1@", "x@web", "p_1@a b", "p_1@a'b", &long] {
            assert_eq!(server_of(other), None, "{other}");
        }
    }
}
