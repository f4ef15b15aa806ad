//! The rows by which servers know and reach each other, in the database that they share.
//!
//! Every method is one transaction. What may be done twice after a lost connection has the same result as once.

use std::time::Duration;

use llmc_store::{Database, Result, Row};

/// How often a server writes that it is running.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// A server that has not written that for so long counts as gone: four heartbeats.
const GONE_AFTER_S: i64 = 12;
/// The same for a server whose calls are being carried out: after an outage of the database its heartbeat may come late.
const ORIGIN_GONE_AFTER_S: i64 = 30;
/// Rows of servers that are gone are removed after this; until then errors tell how long they have been silent.
const FORGET_AFTER_S: i64 = 60;
/// Rows of calls whose time is over are removed after this, if the server that made them could not do it.
const REMOVE_CALLS_AFTER_S: i64 = 60;
/// Script sessions of one server whose rows are kept, the last used ones: more than a server keeps variables of.
const MAX_SESSIONS_OF_SERVER: i64 = 256;
/// Servers that are listed.
const MAX_LISTED_SERVERS: i64 = 256;

const HEARTBEAT: &str = "
INSERT INTO llmc.servers (id, machine, version) VALUES ($1, $2, $3)
ON CONFLICT (tenant, id) DO UPDATE SET seen_at = clock_timestamp()";
const FORGET_SERVERS: &str =
    "DELETE FROM llmc.servers WHERE seen_at < clock_timestamp() - $1 * interval '1 second'";
const FORGET_CALLS: &str = "
DELETE FROM llmc.forwarded_calls WHERE expires_at < clock_timestamp() - $1 * interval '1 second'";
const FORGET_SESSIONS: &str =
    "DELETE FROM llmc.script_sessions WHERE used_at < clock_timestamp() - $1 * interval '1 second'";
const DROP_SESSIONS: &str = "
DELETE FROM llmc.script_sessions WHERE server = $1 AND used_at <= (SELECT used_at FROM llmc.script_sessions
    WHERE server = $1 ORDER BY used_at DESC OFFSET $2 LIMIT 1)";
const LIVE_SERVERS: &str = "
SELECT id, machine, version, extract(epoch FROM clock_timestamp() - started_at)::bigint,
    (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint
FROM llmc.servers WHERE seen_at > clock_timestamp() - $1 * interval '1 second' ORDER BY id LIMIT $2";
const SEEN_BEFORE: &str = "
SELECT (extract(epoch FROM clock_timestamp() - seen_at))::bigint FROM llmc.servers WHERE id = $1";
const INSERT_CALL: &str = "
INSERT INTO llmc.forwarded_calls (id, origin, target, request, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond') ON CONFLICT DO NOTHING";
const NEW_CALLS: &str = "
SELECT id, origin, request, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
FROM llmc.forwarded_calls
WHERE target = $1 AND answer IS NULL AND expires_at > clock_timestamp() AND NOT id = ANY($2) LIMIT $3";
/// Calls whose row is there, and whose server is: the client of one that was killed is disconnected.
const WANTED_CALLS: &str = "
SELECT id FROM llmc.forwarded_calls calls WHERE id = ANY($1) AND (origin = '' OR EXISTS (SELECT FROM llmc.servers
    WHERE servers.id = calls.origin AND servers.seen_at > clock_timestamp() - $2 * interval '1 second'))";
/// Of each call that is waited for: whether its row is there, its answer, and whether its server lives.
const AWAITED_CALLS: &str = "
SELECT awaited.id, calls.id IS NOT NULL, calls.answer, servers.id IS NOT NULL
FROM unnest($1::text[]) AS awaited (id)
LEFT JOIN llmc.forwarded_calls calls ON calls.id = awaited.id
LEFT JOIN llmc.servers servers
    ON servers.id = calls.target AND servers.seen_at > clock_timestamp() - $2 * interval '1 second'";
const ANSWER_CALL: &str = "
UPDATE llmc.forwarded_calls SET answer = $2 WHERE id = $1
RETURNING pg_notify('llmc_server_' || origin, '') IS NULL";
/// Rows of calls that were sent and removed need not survive a crash of the database, so their commits do not wait for the
/// disk. Answers do: the server that has carried out a call does not do it again.
const REMOVE_CALL: &str = "
DELETE FROM llmc.forwarded_calls WHERE id = $1 RETURNING set_config('synchronous_commit', 'off', true)";
const NOTIFY_SENT: &str = "
SELECT pg_notify('llmc_server_' || $1::text, ''), set_config('synchronous_commit', 'off', true)";
const LEAVE: &str = "DELETE FROM llmc.servers WHERE id = $1";
/// Wakes the servers that wait for this one, so that they do not wait until it counts as gone.
const NOTIFY_WAITING: &str = "
SELECT pg_notify('llmc_server_' || origin, '') FROM
    (SELECT DISTINCT origin FROM llmc.forwarded_calls WHERE target = $1 AND answer IS NULL) AS waiting";
const SESSION_SERVER: &str = "SELECT server FROM llmc.script_sessions WHERE key = $1 FOR UPDATE";
const CLAIM_SESSION: &str = "
INSERT INTO llmc.script_sessions AS known (key, server) VALUES ($1, $2)
ON CONFLICT (tenant, key) DO UPDATE SET server = excluded.server, used_at = clock_timestamp()
WHERE known.server = excluded.server OR $4 AND NOT EXISTS (SELECT FROM llmc.servers
    WHERE servers.id = known.server AND servers.seen_at > clock_timestamp() - $3 * interval '1 second')";

/// A server that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveServer {
    pub id: String,
    pub machine: String,
    pub version: String,
    /// How long it has been running.
    pub uptime: Duration,
    /// How long ago it wrote that it is running.
    pub silence: Duration,
}

/// Whether another server can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerState {
    Live,
    /// It has not been heard of for so long.
    Silent(Duration),
    /// There is none of that name.
    Gone,
}

/// A call to send.
#[derive(Debug)]
pub(super) struct NewCall<'a> {
    pub(super) id: &'a str,
    pub(super) target: &'a str,
    pub(super) request: &'a str,
    pub(super) limit: Duration,
}

/// A call that another server asks for.
#[derive(Debug)]
pub(super) struct IncomingCall {
    pub(super) id: String,
    /// Empty if no answer is wanted.
    pub(super) origin: String,
    pub(super) request: String,
    pub(super) limit: Duration,
}

/// What is known of a call that this server waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AwaitedCall {
    Pending,
    Answered(String),
    /// The server that has it is gone.
    ServerGone,
    /// There is no such row.
    Lost,
}

/// What the other servers have written.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) incoming: Vec<IncomingCall>,
    /// Calls of others that run here and whose rows, or servers, are gone.
    pub(super) abandoned: Vec<String>,
    pub(super) awaited: Vec<(String, AwaitedCall)>,
}

/// Which server has a script session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionClaim {
    /// This one, which had it before or is its first.
    Own,
    /// This one, since the server that had it is gone.
    TakenFrom(String),
    /// Another one.
    Other(String),
}

/// The rows of one server.
#[derive(Debug, Clone)]
pub(super) struct ServerStore {
    database: Database,
    own: String,
}

impl ServerStore {
    pub(super) fn new(database: Database, own: &str) -> ServerStore {
        ServerStore {
            database,
            own: own.to_owned(),
        }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// The channel on which the database wakes this server.
    pub(super) fn channel(&self) -> String {
        format!("llmc_server_{}", self.own)
    }

    /// Writes that this server is running, and removes what is left of servers that are not.
    pub(super) fn heartbeat(&self, machine: &str, session_ttl: Duration) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let (servers, calls) = (seconds(FORGET_AFTER_S), seconds(REMOVE_CALLS_AFTER_S));
        let sessions = session_ttl.as_secs_f64();
        self.database.transaction(async |tx| {
            tx.execute(HEARTBEAT, &[&self.own, &machine, &version])
                .await?;
            tx.execute(FORGET_SERVERS, &[&servers]).await?;
            tx.execute(FORGET_CALLS, &[&calls]).await?;
            tx.execute(FORGET_SESSIONS, &[&sessions]).await?;
            tx.execute(DROP_SESSIONS, &[&self.own, &MAX_SESSIONS_OF_SERVER])
                .await?;
            Ok(())
        })
    }

    /// Removes this server, which is about to end.
    pub(super) fn leave(&self) -> Result<()> {
        self.database.transaction(async |tx| {
            tx.execute(LEAVE, &[&self.own]).await?;
            tx.query(NOTIFY_WAITING, &[&self.own]).await?;
            Ok(())
        })
    }

    /// The servers of this tenant that are running, this one included.
    pub(super) fn live_servers(&self) -> Result<Vec<LiveServer>> {
        live_servers(&self.database)
    }

    /// Hands a call to another server, if that is running.
    pub(super) fn send(&self, call: &NewCall<'_>) -> Result<ServerState> {
        let limit = call.limit.as_secs_f64() * 1000.0;
        self.database.transaction(async |tx| {
            let seen = tx.query_opt(SEEN_BEFORE, &[&call.target]).await?;
            let Some(seen) = seen else {
                return Ok(ServerState::Gone);
            };
            let silence: i64 = seen.try_get(0)?;
            if silence >= GONE_AFTER_S {
                let silence = u64::try_from(silence).unwrap_or_default();
                return Ok(ServerState::Silent(Duration::from_secs(silence)));
            }
            let row: [&(dyn llmc_store::ToSql + Sync); 5] =
                [&call.id, &self.own, &call.target, &call.request, &limit];
            tx.execute(INSERT_CALL, &row).await?;
            tx.query(NOTIFY_SENT, &[&call.target]).await?;
            Ok(ServerState::Live)
        })
    }

    /// Tells every other server something that wants no answer.
    pub(super) fn broadcast(&self, request: &str, limit: Duration) -> Result<()> {
        let others = self.live_servers()?;
        let others = others.iter().filter(|server| server.id != self.own);
        let rows: Vec<(String, &str)> = others
            .map(|server| (uuid::Uuid::new_v4().to_string(), server.id.as_str()))
            .collect();
        let limit = limit.as_secs_f64() * 1000.0;
        self.database.transaction(async |tx| {
            for (id, target) in &rows {
                tx.execute(INSERT_CALL, &[id, &"", target, &request, &limit])
                    .await?;
                tx.query(NOTIFY_SENT, &[target]).await?;
            }
            Ok(())
        })
    }

    /// Reads what others ask of this server, and what has become of what this one asked.
    pub(super) fn exchange(
        &self,
        running: &[String],
        room: usize,
        awaited: &[String],
    ) -> Result<Exchange> {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        self.database.transaction(async |tx| {
            let mut found = Exchange::default();
            let rows = tx.query(NEW_CALLS, &[&self.own, &running, &room]).await?;
            found.incoming = rows.iter().map(incoming).collect::<Result<_>>()?;
            if !running.is_empty() {
                let params: [&(dyn llmc_store::ToSql + Sync); 2] =
                    [&running, &seconds(ORIGIN_GONE_AFTER_S)];
                let rows = tx.query(WANTED_CALLS, &params).await?;
                let wanted: Vec<String> = (rows.iter())
                    .map(|row| Ok(row.try_get(0)?))
                    .collect::<Result<_>>()?;
                let is_gone = |id: &&String| !wanted.contains(id);
                found.abandoned = running.iter().filter(is_gone).cloned().collect();
            }
            if !awaited.is_empty() {
                let params: [&(dyn llmc_store::ToSql + Sync); 2] =
                    [&awaited, &seconds(GONE_AFTER_S)];
                let rows = tx.query(AWAITED_CALLS, &params).await?;
                found.awaited = rows.iter().map(awaited_call).collect::<Result<_>>()?;
            }
            Ok(found)
        })
    }

    /// Writes the answer to a call; `false` if nothing waits for it any more.
    pub(super) fn answer(&self, id: &str, answer: &str) -> Result<bool> {
        self.database.transaction(async |tx| {
            let row = tx.query_opt(ANSWER_CALL, &[&id, &answer]).await?;
            Ok(row.is_some())
        })
    }

    /// Removes a call; `wakes` names the server that has to learn of it.
    pub(super) fn remove(&self, id: &str, wakes: Option<&str>) -> Result<()> {
        self.database.transaction(async |tx| {
            tx.query(REMOVE_CALL, &[&id]).await?;
            if let Some(server) = wakes {
                tx.query(NOTIFY_SENT, &[&server]).await?;
            }
            Ok(())
        })
    }

    /// Makes this server the one that has a script session, unless another has it: one that is running, or, if this one
    /// does not take sessions over, any.
    pub(super) fn claim_session(&self, key: &str, takes_over: bool) -> Result<SessionClaim> {
        self.database.transaction(async |tx| {
            let server = |row: Option<Row>| -> Result<Option<String>> {
                Ok(row.map(|row| row.try_get(0)).transpose()?)
            };
            let before = server(tx.query_opt(SESSION_SERVER, &[&key]).await?)?;
            let params: [&(dyn llmc_store::ToSql + Sync); 4] =
                [&key, &self.own, &seconds(GONE_AFTER_S), &takes_over];
            if tx.execute(CLAIM_SESSION, &params).await? > 0 {
                return Ok(match before.filter(|before| *before != self.own) {
                    Some(before) => SessionClaim::TakenFrom(before),
                    None => SessionClaim::Own,
                });
            }
            // Another server may have claimed it since it was looked for.
            let now = server(tx.query_opt(SESSION_SERVER, &[&key]).await?)?;
            now.map(SessionClaim::Other).ok_or(llmc_store::Error::Lost)
        })
    }
}

/// The servers of a tenant that are running.
///
/// # Errors
/// The database cannot be used.
pub fn live_servers(database: &Database) -> Result<Vec<LiveServer>> {
    database.transaction(async |tx| {
        let params: [&(dyn llmc_store::ToSql + Sync); 2] =
            [&seconds(GONE_AFTER_S), &MAX_LISTED_SERVERS];
        let rows = tx.query(LIVE_SERVERS, &params).await?;
        rows.iter().map(live_server).collect()
    })
}

/// A number of seconds as the type that PostgreSQL multiplies intervals with.
fn seconds(count: i64) -> f64 {
    count as f64
}

fn live_server(row: &Row) -> Result<LiveServer> {
    let count = |column: usize| -> Result<u64> {
        Ok(u64::try_from(row.try_get::<_, i64>(column)?).unwrap_or_default())
    };
    Ok(LiveServer {
        id: row.try_get(0)?,
        machine: row.try_get(1)?,
        version: row.try_get(2)?,
        uptime: Duration::from_secs(count(3)?),
        silence: Duration::from_millis(count(4)?),
    })
}

fn incoming(row: &Row) -> Result<IncomingCall> {
    let left_ms: i64 = row.try_get(3)?;
    Ok(IncomingCall {
        id: row.try_get(0)?,
        origin: row.try_get(1)?,
        request: row.try_get(2)?,
        limit: Duration::from_millis(u64::try_from(left_ms).unwrap_or_default()),
    })
}

fn awaited_call(row: &Row) -> Result<(String, AwaitedCall)> {
    let (is_present, is_live): (bool, bool) = (row.try_get(1)?, row.try_get(3)?);
    let answer: Option<String> = row.try_get(2)?;
    let state = match (answer, is_present, is_live) {
        (Some(answer), _, _) => AwaitedCall::Answered(answer),
        (None, false, _) => AwaitedCall::Lost,
        (None, true, false) => AwaitedCall::ServerGone,
        (None, true, true) => AwaitedCall::Pending,
    };
    Ok((row.try_get(0)?, state))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use llmc_store::{DatabaseSettings, DatabaseUrl, Tenant};
    use llmc_testdb::{TestCluster, TestDatabase};

    use super::*;

    const TTL: Duration = Duration::from_secs(3600);
    const LIMIT: Duration = Duration::from_secs(60);

    fn server(database: &TestDatabase, tenant: &str, name: &str) -> ServerStore {
        let database = Database::new(DatabaseSettings {
            url: DatabaseUrl::parse(&database.url()).unwrap(),
            admin_url: None,
            tenant: Tenant::parse(tenant).unwrap(),
            max_connections: 4,
        });
        let server = ServerStore::new(database, name);
        server.heartbeat("machine", TTL).unwrap();
        server
    }

    fn names(server: &ServerStore) -> Vec<String> {
        let live = server.live_servers().unwrap();
        live.into_iter().map(|server| server.id).collect()
    }

    /// As if a server had been killed some time ago.
    fn silence(cluster: &TestCluster, database: &TestDatabase, name: &str, seconds: u32) {
        let sql = format!(
            "UPDATE llmc.servers SET seen_at = clock_timestamp() - interval '{seconds} s' WHERE id = '{name}'"
        );
        cluster.sql(&database.name, &sql);
    }

    #[test]
    fn a_session_has_one_server_until_that_is_gone() {
        let Some(cluster) = TestCluster::shared() else {
            return;
        };
        let database = cluster.database();
        let names = ["a", "b", "c", "d"];
        let servers = names.map(|name| server(&database, "team", name));
        let begin = Barrier::new(names.len());
        let claims = std::thread::scope(|scope| {
            let claiming = servers.each_ref().map(|server| {
                scope.spawn(|| {
                    begin.wait();
                    server.claim_session("key", true).unwrap()
                })
            });
            claiming.map(|claim| claim.join().unwrap())
        });
        let owner = claims.iter().position(|claim| *claim == SessionClaim::Own);
        let owner = owner.unwrap_or_else(|| panic!("{claims:?}"));
        for (at, claim) in claims.iter().enumerate() {
            let other = SessionClaim::Other(names[owner].to_owned());
            assert!(at == owner || *claim == other, "{claims:?}");
        }
        let next = (owner + 1) % names.len();
        silence(cluster, &database, names[owner], 13);
        let kept = servers[next].claim_session("key", false).unwrap();
        assert_eq!(kept, SessionClaim::Other(names[owner].to_owned()));
        let taken = servers[next].claim_session("key", true).unwrap();
        assert_eq!(taken, SessionClaim::TakenFrom(names[owner].to_owned()));
        // One that was only suspended does not get it back.
        servers[owner].heartbeat("machine", TTL).unwrap();
        let refused = servers[owner].claim_session("key", true).unwrap();
        assert_eq!(refused, SessionClaim::Other(names[next].to_owned()));
        // The last used ones are kept.
        for n in 0..MAX_SESSIONS_OF_SERVER {
            let new = servers[next].claim_session(&format!("key {n}"), true);
            assert_eq!(new.unwrap(), SessionClaim::Own);
        }
        servers[next].heartbeat("machine", TTL).unwrap();
        let kept = servers[owner].claim_session("key 1", true).unwrap();
        assert_eq!(kept, SessionClaim::Other(names[next].to_owned()));
        assert_eq!(
            servers[owner].claim_session("key", true).unwrap(),
            SessionClaim::Own
        );
        // One that was not used for long is forgotten.
        servers[next].heartbeat("machine", Duration::ZERO).unwrap();
        let anew = servers[owner].claim_session("key 1", true).unwrap();
        assert_eq!(anew, SessionClaim::Own);
    }

    #[test]
    fn a_call_goes_to_its_server_and_its_removal_cancels_it() {
        let Some(cluster) = TestCluster::shared() else {
            return;
        };
        let database = cluster.database();
        let [asking, other] = ["asking", "other"].map(|name| server(&database, "team", name));
        let send = |target: &str| {
            let (id, request, limit) = ("call", "{}", LIMIT);
            let call = NewCall {
                id,
                target,
                request,
                limit,
            };
            asking.send(&call).unwrap()
        };
        assert_eq!(send("other"), ServerState::Live);
        // The same once more, as after a lost connection.
        assert_eq!(send("other"), ServerState::Live);
        let none = asking.exchange(&[], 9, &[]).unwrap();
        assert!(none.incoming.is_empty(), "it is not for this server");
        let found = other.exchange(&[], 9, &[]).unwrap();
        assert_eq!(found.incoming.len(), 1);
        assert_eq!(found.incoming[0].origin, "asking");
        let running = ["call".to_owned()];
        let again = other.exchange(&running, 9, &[]).unwrap();
        assert!(again.incoming.is_empty() && again.abandoned.is_empty());
        silence(cluster, &database, "asking", 31);
        assert_eq!(other.exchange(&running, 9, &[]).unwrap().abandoned, running);
        asking.heartbeat("machine", TTL).unwrap();
        let awaited = || {
            asking
                .exchange(&[], 9, &running)
                .unwrap()
                .awaited
                .remove(0)
                .1
        };
        assert_eq!(awaited(), AwaitedCall::Pending);
        assert!(other.answer("call", "yes").unwrap());
        silence(cluster, &database, "other", 13);
        assert_eq!(awaited(), AwaitedCall::Answered("yes".to_owned()));
        asking.remove("call", Some("other")).unwrap();
        assert_eq!(awaited(), AwaitedCall::Lost);
        assert_eq!(other.exchange(&running, 9, &[]).unwrap().abandoned, running);
        assert!(!other.answer("call", "late").unwrap());
    }

    #[test]
    fn a_server_is_known_to_its_tenant_until_it_ends() {
        let Some(cluster) = TestCluster::shared() else {
            return;
        };
        let database = cluster.database();
        let [one, two] = ["one", "two"].map(|name| server(&database, "team", name));
        let foreign = server(&database, "others", "foreign");
        assert_eq!(names(&one), ["one", "two"]);
        assert_eq!(names(&foreign), ["foreign"]);
        let send = |from: &ServerStore, target: &str| {
            let id = &uuid::Uuid::new_v4().to_string();
            let (request, limit) = ("{}", LIMIT);
            let call = NewCall {
                id,
                target,
                request,
                limit,
            };
            from.send(&call).unwrap()
        };
        assert_eq!(send(&foreign, "one"), ServerState::Gone);
        assert_eq!(send(&two, "one"), ServerState::Live);
        silence(cluster, &database, "one", 13);
        assert_eq!(names(&two), ["two"]);
        assert!(matches!(send(&two, "one"), ServerState::Silent(_)));
        silence(cluster, &database, "one", 61);
        two.heartbeat("machine", TTL).unwrap();
        assert_eq!(send(&two, "one"), ServerState::Gone, "its row is removed");
        one.heartbeat("machine", TTL).unwrap();
        one.leave().unwrap();
        assert_eq!(names(&two), ["two"]);
        // Calls whose time is over do not stay.
        let sql =
            "UPDATE llmc.forwarded_calls SET expires_at = clock_timestamp() - interval '61 s'";
        cluster.sql(&database.name, sql);
        two.heartbeat("machine", TTL).unwrap();
        let left = cluster.sql(&database.name, "SELECT count(*) FROM llmc.forwarded_calls");
        assert_eq!(left, "0");
    }
}
