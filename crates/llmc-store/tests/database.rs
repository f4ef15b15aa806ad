//! The shared database on a real PostgreSQL: what connects, what is refused and why, who sees what.
#![allow(clippy::unwrap_used)]

use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use llmc_store::{
    Database, DatabaseSettings, DatabaseUrl, Error, ListenOutcome, SCHEMA_VERSION, Tenant,
};
use llmc_testdb::{TestCluster, TestDatabase};

/// A database as this tenant.
fn database(url: &str, admin_url: Option<&str>, tenant: &str) -> Database {
    Database::new(DatabaseSettings {
        url: DatabaseUrl::parse(url).unwrap(),
        admin_url: admin_url.map(|url| DatabaseUrl::parse(url).unwrap()),
        tenant: Tenant::parse(tenant).unwrap(),
        max_connections: 2,
    })
}

fn connect(url: &str) -> Result<(), Error> {
    database(url, None, "one").connect()
}

/// The cluster and an empty database; `None` where there is no PostgreSQL.
fn start() -> Option<(&'static TestCluster, TestDatabase)> {
    let cluster = TestCluster::shared()?;
    Some((cluster, cluster.database()))
}

fn insert(database: &Database, id: &str) -> Result<u64, Error> {
    database.transaction(async |tx| {
        tx.execute(
            "INSERT INTO llmc.handles (id, owner, kind, meta, pending, kept_file, total_bytes, stored_bytes, \
             created_ms, expires_ms) VALUES ($1, '', '', '{}', false, false, 0, 0, 0, 0)",
            &[&id],
        )
        .await
    })
}

fn ids(database: &Database) -> Vec<String> {
    let rows = database
        .transaction(async |tx| {
            tx.query("SELECT id FROM llmc.handles ORDER BY id", &[])
                .await
        })
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn the_first_use_creates_the_tables() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let first = self::database(&database.url(), None, "one");
    assert_eq!(
        first.check().unwrap().schema,
        None,
        "a check changes nothing"
    );
    assert_eq!(insert(&first, "a"), Ok(1));
    let report = first.check().unwrap();
    assert_eq!(report.schema, Some(SCHEMA_VERSION));
    assert_eq!(report.role, database.role);
    assert!(
        report.server.starts_with("PostgreSQL "),
        "{}",
        report.server
    );
    assert!(!report.is_encrypted);
    assert!(!first.create_tables().unwrap().created_tables);
    // Every table is bound by its policy, its owner included; the version is no tenant's.
    let unbound = "SELECT relname FROM pg_class WHERE relnamespace = 'llmc'::regnamespace AND relkind IN ('r', 'p') \
                   AND NOT (relrowsecurity AND relforcerowsecurity)";
    assert_eq!(cluster.sql(&database.name, unbound), "schema_version");
}

#[test]
fn servers_that_start_at_once_create_the_tables_once() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let barrier = Barrier::new(6);
    let created: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let server = self::database(&database.url(), None, "one");
                    barrier.wait();
                    server.create_tables().unwrap().created_tables
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let first = created.iter().filter(|created| **created);
    assert_eq!(first.count(), 1, "{created:?}");
    let versions = cluster.sql(&database.name, "SELECT count(*) FROM llmc.schema_version");
    assert_eq!(versions, "1");
}

#[test]
fn a_newer_schema_is_refused_unless_it_says_that_it_works() {
    let Some((cluster, database)) = start() else {
        return;
    };
    connect(&database.url()).unwrap();
    let newer = |works_with: i32| {
        let sql = format!(
            "DELETE FROM llmc.schema_version WHERE version = 99; \
             INSERT INTO llmc.schema_version (version, works_with) VALUES (99, {works_with})"
        );
        cluster.sql(&database.name, &sql)
    };
    newer(99);
    let refused = Error::NewSchema {
        found: 99,
        known: SCHEMA_VERSION,
    };
    let server = self::database(&database.url(), None, "one");
    assert_eq!(server.connect(), Err(refused.clone()));
    assert_eq!(server.create_tables(), Err(refused.clone()));
    assert_eq!(server.check().unwrap_err(), refused);
    assert_eq!(refused.hint(), "upgrade this program");
    newer(SCHEMA_VERSION);
    connect(&database.url()).unwrap();
}

#[test]
fn a_schema_of_before_the_first_release_is_refused_and_left_alone() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let former = format!(
        "CREATE SCHEMA llmc AUTHORIZATION \"{0}\"; SET ROLE \"{0}\"; \
         CREATE TABLE llmc.schema_history (version integer PRIMARY KEY, works_with integer NOT NULL); \
         INSERT INTO llmc.schema_history VALUES (7, 2); CREATE TABLE llmc.handles (id text)",
        database.role
    );
    cluster.sql(&database.name, &former);
    let server = self::database(&database.url(), None, "one");
    assert_eq!(server.connect(), Err(Error::FormerSchema));
    assert_eq!(server.create_tables(), Err(Error::FormerSchema));
    assert_eq!(server.check().unwrap_err(), Error::FormerSchema);
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'llmc'";
    assert_eq!(cluster.sql(&database.name, tables), "2");
    // What the hint says works.
    let hint = Error::FormerSchema.hint();
    let statement = hint.split(": ").nth(1).unwrap().split(';').next().unwrap();
    cluster.sql(&database.name, statement);
    let server = self::database(&database.url(), None, "one");
    assert!(server.create_tables().unwrap().created_tables);
}

#[test]
fn what_cannot_connect_says_why() {
    let Some((_, database)) = start() else {
        return;
    };
    let wrong = connect(&database.url_of(&database.role, "secret-word"));
    assert!(matches!(&wrong, Err(Error::LoginRefused(_))), "{wrong:?}");
    assert!(!format!("{wrong:?}").contains("secret-word"));
    let nobody = connect(&database.url_of("nobody", "secret-word"));
    assert!(matches!(nobody, Err(Error::LoginRefused(_))), "{nobody:?}");
    let missing = database
        .url()
        .replace(&format!("/{}", database.name), "/missing");
    assert_eq!(connect(&missing), Err(Error::NoDatabase));
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    for nowhere in [
        format!("postgres://u:p@127.0.0.1:{port}/d"),
        "postgres://u:p@%2Fnowhere/d".to_owned(),
        "postgres://u:p@host.invalid/d?sslmode=disable".to_owned(),
    ] {
        let error = connect(&nowhere).unwrap_err();
        assert!(
            matches!(error, Error::Unreachable(_)),
            "{nowhere}: {error:?}"
        );
        assert!(error.hint().contains("host and port"));
    }
}

#[test]
fn a_certificate_is_checked() {
    let Some((_, database)) = start() else {
        return;
    };
    let authority = database.authority().display();
    let good = database.tcp_url(
        "localhost",
        &format!("sslmode=verify-full&sslrootcert={authority}"),
    );
    let server = self::database(&good, None, "one");
    server.connect().unwrap();
    assert!(server.check().unwrap().is_encrypted);
    for (why, bad) in [
        (
            "no known authority",
            database.tcp_url("localhost", "sslmode=verify-full"),
        ),
        (
            "another name",
            database.tcp_url(
                "127.0.0.1",
                &format!("sslmode=require&sslrootcert={authority}"),
            ),
        ),
        (
            "no such file",
            database.tcp_url("localhost", "sslmode=require&sslrootcert=/nowhere"),
        ),
    ] {
        let error = connect(&bad).unwrap_err();
        assert!(matches!(error, Error::Tls(_)), "{why}: {error:?}");
        assert!(error.hint().contains("sslrootcert"));
    }
}

#[test]
fn a_role_that_policies_do_not_bind_is_refused() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let refused = connect(&database.admin_url());
    assert_eq!(
        refused,
        Err(Error::Unconfined {
            role: "admin".to_owned()
        })
    );
    cluster.sql(
        "postgres",
        &format!("ALTER ROLE {} BYPASSRLS", database.role),
    );
    let refused = connect(&database.url());
    assert!(
        matches!(refused, Err(Error::Unconfined { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_role_of_servers_is_made_with_the_rights_that_they_need() {
    let Some((cluster, database)) = start() else {
        return;
    };
    // A role that may connect and no more.
    let stranger = cluster.database();
    let url = database.url_of(&stranger.role, "correct%20horse");
    let refused = connect(&url);
    assert!(matches!(refused, Err(Error::NoRights(_))), "{refused:?}");
    assert!(refused.unwrap_err().hint().contains("llmc store migrate"));
    assert_eq!(
        self::database(&url, None, "one").check().unwrap_err(),
        Error::NoSchema
    );

    let role = format!("\"{} '; DROP\"", database.role);
    let url = database.url_of(
        &format!("%22{}%20%27%3B%20DROP%22", database.role),
        "s%27cret",
    );
    let server = self::database(&url, Some(&database.admin_url()), "one");
    let made = server.create_tables().unwrap();
    assert!(made.created_tables && made.created_role);
    assert!(!server.create_tables().unwrap().created_role);
    assert_eq!(server.check().unwrap().role, role);
    assert_eq!(insert(&server, "a"), Ok(1));
    for beyond in [
        "CREATE TABLE llmc.mine (x integer)",
        "INSERT INTO llmc.schema_version VALUES (9, 9)",
        "ALTER TABLE llmc.handles DISABLE ROW LEVEL SECURITY",
        "DROP TABLE llmc.handles",
    ] {
        let refused = server.transaction(async |tx| tx.execute(beyond, &[]).await);
        assert!(
            matches!(refused, Err(Error::NoRights(_))),
            "{beyond}: {refused:?}"
        );
    }
}

#[test]
fn tenants_are_kept_apart_by_the_database() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let one = self::database(&database.url(), None, "one");
    let two = self::database(&database.url(), None, "two");
    assert_eq!(insert(&one, "a"), Ok(1));
    assert_eq!(insert(&two, "b"), Ok(1));
    assert_eq!(insert(&two, "a"), Ok(1), "names are a tenant's own");
    assert_eq!(
        (ids(&one), ids(&two)),
        (vec!["a".into()], vec!["a".into(), "b".into()])
    );
    let deleted = one.transaction(async |tx| tx.execute("DELETE FROM llmc.handles", &[]).await);
    assert_eq!(deleted, Ok(1));
    assert_eq!(ids(&two), ["a", "b"]);
    let foreign = one.transaction(async |tx| {
        tx.execute(
            "UPDATE llmc.handles SET tenant = 'one' WHERE tenant = 'two'",
            &[],
        )
        .await
    });
    assert_eq!(foreign, Ok(0));
    let given = two.transaction(async |tx| {
        tx.execute("UPDATE llmc.handles SET tenant = 'one'", &[])
            .await
    });
    assert!(matches!(given, Err(Error::NoRights(_))), "{given:?}");
    let rows = cluster.sql(&database.name, "SELECT count(*) FROM llmc.handles");
    assert_eq!(rows, "2");
}

#[test]
fn a_failed_transaction_leaves_nothing_and_its_connection_is_used_again() {
    let Some((_, database)) = start() else {
        return;
    };
    let server = self::database(&database.url(), None, "one");
    for _ in 0..5 {
        let failed = server.transaction(async |tx| {
            tx.execute(
                "INSERT INTO llmc.handles (id, owner, kind, meta, pending, kept_file, total_bytes, stored_bytes, \
                 created_ms, expires_ms) VALUES ('x', '', '', '{}', false, false, 0, 0, 0, 0)",
                &[],
            )
            .await?;
            tx.query("SELECT 1 / 0", &[]).await
        });
        assert!(matches!(&failed, Err(Error::Failed(why)) if why.contains("division by zero")));
    }
    assert!(ids(&server).is_empty());
}

#[test]
fn a_lost_connection_is_replaced_unseen() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let server = self::database(&database.url(), None, "one");
    for n in 0..5 {
        assert_eq!(insert(&server, &format!("row{n}")), Ok(1));
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = ";
        cluster.sql("postgres", &format!("{end}'{}'", database.role));
    }
    assert_eq!(ids(&server).len(), 5);
}

#[test]
fn waits_are_bounded() {
    let Some((_, database)) = start() else {
        return;
    };
    let server = self::database(&database.url(), None, "one");
    server.connect().unwrap();
    let slow = server.transaction(async |tx| tx.query("SELECT pg_sleep(600)", &[]).await);
    assert_eq!(slow.unwrap_err(), Error::TooSlow);
    // Both connections are held until the third has been refused.
    let (started, starts) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut releases = Vec::new();
        for _ in 0..2 {
            let (release, released) = mpsc::channel::<()>();
            releases.push(release);
            let (server, started) = (server.clone(), started.clone());
            scope.spawn(move || {
                server.transaction(async |_| {
                    started.send(()).unwrap();
                    let _ = released.recv();
                    Ok::<_, Error>(())
                })
            });
            starts.recv().unwrap();
        }
        assert_eq!(server.connect(), Err(Error::Busy));
        drop(releases);
    });
    server.connect().unwrap();
}

#[test]
fn callers_take_turns_when_the_database_accepts_no_further_connection() {
    let Some((cluster, database)) = start() else {
        return;
    };
    let server = self::database(&database.url(), None, "one");
    server.connect().unwrap();
    let limit = |count: i32| {
        let sql = format!("ALTER ROLE {} CONNECTION LIMIT {count}", database.role);
        cluster.sql("postgres", &sql);
    };
    limit(1);
    let (holding, holds) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let holder = server.clone();
        scope.spawn(move || {
            holder.transaction(async |_| {
                holding.send(()).unwrap();
                let _ = released.recv();
                Ok::<_, Error>(())
            })
        });
        holds.recv().unwrap();
        // The only connection is in use for longer than a call waits: that is said, and the database is not away.
        let refused = server.connect().unwrap_err();
        assert!(matches!(refused, Error::NoConnection(_)), "{refused:?}");
        let (server, waiting) = (server.clone(), mpsc::channel());
        scope.spawn(move || waiting.0.send(server.connect()).unwrap());
        drop(release);
        assert_eq!(waiting.1.recv().unwrap(), Ok(()));
    });
    // Many callers share it.
    std::thread::scope(|scope| {
        let inserting: Vec<_> = (0..20)
            .map(|n| {
                let server = &server;
                scope.spawn(move || insert(server, &format!("row{n:02}")))
            })
            .collect();
        for insert in inserting {
            assert_eq!(insert.join().unwrap(), Ok(1));
        }
    });
    limit(-1);
    assert_eq!(ids(&server).len(), 20);
}

#[test]
fn a_thread_of_another_runtime_may_wait() {
    let Some((_, database)) = start() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = self::database(&database.url(), None, "one");
        assert_eq!(insert(&server, "a"), Ok(1));
        drop(server);
    });
}

#[test]
fn a_listener_is_notified_and_notices_that_the_database_is_away() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let made = cluster.database();
    let database = database(&made.url(), None, "team");
    database.connect().unwrap();
    let mut listener = database.listener("llmc_tokens");
    let wait = Duration::from_millis(50);
    let connected = listener.wait(wait).unwrap();
    assert_eq!(
        connected,
        ListenOutcome::Notified,
        "one may have been missed"
    );
    assert_eq!(listener.wait(wait).unwrap(), ListenOutcome::Unchanged);
    cluster.sql(&made.name, "NOTIFY another_channel");
    assert_eq!(listener.wait(wait).unwrap(), ListenOutcome::Unchanged);
    for _ in 0..3 {
        cluster.sql(&made.name, "NOTIFY llmc_tokens");
    }
    assert_eq!(
        listener.wait(Duration::from_secs(60)).unwrap(),
        ListenOutcome::Notified
    );
    cluster.stop("QUIT");
    while listener.wait(wait).is_ok() {}
    assert!(listener.wait(wait).is_err(), "still away");
    cluster.run();
    let deadline = Instant::now() + Duration::from_secs(60);
    while listener.wait(wait) != Ok(ListenOutcome::Notified) {
        assert!(Instant::now() < deadline);
    }
}
