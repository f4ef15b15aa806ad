//! Which of the servers that share a database has a background process or a script session.
//!
//! Both stay on the server that started them. A proxy sends the calls of one conversation to one server; a call that reaches
//! another one all the same fails with the name of the server that has what it asks for. The id of a process holds that name.
//! The name of a script session does not, so a row has the server that used it last.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use llmc_store::{Database, Row};

use crate::app::App;
use crate::error::{Error, ErrorKind, Result};
use crate::script::MAX_IDLE;

/// The longest name of a server; see `server_id`.
const MAX_SERVER_NAME_BYTES: usize = 40;
/// Stands between a process and the server that has it.
const SERVER_MARK: char = '@';
/// How long the end of a server waits until its rows are removed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sessions whose Python process has ended by now, wherever it was.
const FORGET_SESSIONS: &str =
    "DELETE FROM llmc.script_sessions WHERE used_at < clock_timestamp() - $1 * interval '1 second'";
const CLAIM_SESSION: &str = "
INSERT INTO llmc.script_sessions AS known (key, server) VALUES ($1, $2)
ON CONFLICT (tenant, key) DO UPDATE SET used_at = clock_timestamp() WHERE known.server = excluded.server";
const SESSION_SERVER: &str = "SELECT server FROM llmc.script_sessions WHERE key = $1";
const LEAVE: &str = "DELETE FROM llmc.script_sessions WHERE server = $1";

/// The id of a process with the server that has it.
pub(crate) fn on_server(proc_id: &str, server: &str) -> String {
    format!("{proc_id}{SERVER_MARK}{server}")
}

/// The server that an id names.
fn server_of(proc_id: &str) -> Option<&str> {
    let (_, server) = proc_id.strip_prefix("p_")?.split_once(SERVER_MARK)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let fits = (1..=MAX_SERVER_NAME_BYTES).contains(&server.len()) && server.bytes().all(is_plain);
    fits.then_some(server)
}

/// Why this server does not have a process whose id names another one.
pub(crate) fn process_elsewhere(proc_id: &str, own: &str) -> Option<Error> {
    let server = server_of(proc_id).filter(|server| *server != own)?;
    Some(elsewhere(proc_id, server, own).hint(
        "only that server can be asked: the proxy should send it all calls of this session; if it has ended, the process has as well",
    ))
}

fn elsewhere(subject: &str, server: &str, own: &str) -> Error {
    let message = format!("{subject} is on server {server}, and this is server {own}");
    Error::new(ErrorKind::Unavailable, message).retry(false)
}

impl App {
    /// Makes this process one of the servers that share the database, and its name a part of the ids of processes. Does
    /// nothing without a shared database.
    pub fn join_servers(&self) {
        if self.database().is_some() {
            self.processes().name_server(self.server_id());
        }
    }

    /// Lets other servers have the names of this one's script sessions. Waits a second at most.
    pub fn leave_servers(&self) {
        let Some((database, own)) = self.shared_sessions() else {
            return;
        };
        let (done, is_done) = sync_channel(1);
        std::thread::spawn(move || {
            let left = database.transaction(async |tx| tx.execute(LEAVE, &[&own]).await);
            if let Err(error) = left {
                tracing::debug!(%error, "the script sessions of this server stay until they have expired");
            }
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(LEAVE_TIMEOUT);
    }

    /// Makes this server the one that has a script session, unless another one has used it in the last half hour.
    pub(crate) async fn claim_script_session(&self, name: &str, key: &str) -> Result<()> {
        let Some((database, own)) = self.shared_sessions() else {
            return Ok(());
        };
        let key = key.to_owned();
        let claim = tokio::task::spawn_blocking(move || claim(&database, &key, &own));
        let failed = |_| Error::new(ErrorKind::Internal, "the session was not looked for");
        let other = claim.await.map_err(failed)?.map_err(|error| {
            let error = Error::from(error);
            let message = format!("which server has session {name}: {}", error.message);
            Error { message, ..error }
        })?;
        match other {
            None => Ok(()),
            Some(server) => Err(
                elsewhere(&format!("session {name}"), &server, self.server_id())
                    .hint("use another session name; that server's variables cannot be had here"),
            ),
        }
    }

    /// Where the servers of script sessions are recorded, and this one's name; none if it is not one of several.
    fn shared_sessions(&self) -> Option<(Database, String)> {
        let own = self.processes().server()?;
        Some((self.database()?.clone(), own.to_owned()))
    }
}

/// The server that has a session if it is another one than `own`.
fn claim(database: &Database, key: &str, own: &str) -> llmc_store::Result<Option<String>> {
    let idle = MAX_IDLE.as_secs_f64();
    database.transaction(async |tx| {
        tx.execute(FORGET_SESSIONS, &[&idle]).await?;
        if tx.execute(CLAIM_SESSION, &[&key, &own]).await? > 0 {
            return Ok(None);
        }
        let row: Option<Row> = tx.query_opt(SESSION_SERVER, &[&key]).await?;
        // Its server may have left in this moment: the transaction is run once more.
        let row = row.ok_or(llmc_store::Error::Lost)?;
        Ok(Some(row.try_get(0)?))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use llmc_store::{DatabaseSettings, DatabaseUrl, Tenant};
    use llmc_testdb::{TestCluster, TestDatabase};

    use super::*;

    fn connect(database: &TestDatabase, tenant: &str) -> Database {
        Database::new(DatabaseSettings {
            url: DatabaseUrl::parse(&database.url()).unwrap(),
            admin_url: None,
            tenant: Tenant::parse(tenant).unwrap(),
            max_connections: 4,
        })
    }

    #[test]
    fn an_id_names_its_server() {
        let id = on_server("p_1a2b3c4d", "web-1-k3f9xq");
        assert_eq!(id, "p_1a2b3c4d@web-1-k3f9xq");
        assert_eq!(server_of(&id), Some("web-1-k3f9xq"));
        let long = format!("p_1@{}", "x".repeat(41));
        for other in ["p_1a2b3c4d", "p_1@", "x@web", "p_1@a b", "p_1@a'b", &long] {
            assert_eq!(server_of(other), None, "{other}");
        }
        assert!(process_elsewhere(&id, "web-1-k3f9xq").is_none());
        let error = process_elsewhere(&id, "web-2-aaaaaa").unwrap();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("on server web-1-k3f9xq"), "{error}");
    }

    #[test]
    fn a_session_has_one_server_until_that_leaves_or_has_not_used_it_for_long() {
        let Some(cluster) = TestCluster::shared() else {
            return;
        };
        let made = cluster.database();
        let database = connect(&made, "team");
        let names = ["a", "b", "c", "d"];
        let begin = Barrier::new(names.len());
        let claims = std::thread::scope(|scope| {
            let claiming = names.map(|name| {
                let (database, begin) = (&database, &begin);
                scope.spawn(move || {
                    begin.wait();
                    claim(database, "key", name).unwrap()
                })
            });
            claiming.map(|claim| claim.join().unwrap())
        });
        let owner = claims.iter().position(Option::is_none);
        let owner = owner.unwrap_or_else(|| panic!("{claims:?}"));
        for (at, claim) in claims.iter().enumerate() {
            let other = (at != owner).then(|| names[owner].to_owned());
            assert_eq!(*claim, other, "{claims:?}");
        }
        let (owner, other) = (names[owner], names[(owner + 1) % names.len()]);
        assert_eq!(claim(&database, "key", owner).unwrap(), None);
        assert_eq!(
            claim(&connect(&made, "others"), "key", other).unwrap(),
            None
        );
        let age = |minutes: u32| {
            let sql = format!(
                "UPDATE llmc.script_sessions SET used_at = clock_timestamp() - interval '{minutes} min'"
            );
            cluster.sql(&made.name, &sql);
        };
        age(29);
        let kept = claim(&database, "key", other).unwrap();
        assert_eq!(kept.as_deref(), Some(owner));
        age(31);
        assert_eq!(claim(&database, "key", other).unwrap(), None);
        let refused = claim(&database, "key", owner).unwrap();
        assert_eq!(refused.as_deref(), Some(other), "it does not get it back");
    }
}
