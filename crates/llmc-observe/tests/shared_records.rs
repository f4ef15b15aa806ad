//! Telemetry and audit of several servers in one PostgreSQL: outages, tenants, killed servers.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use llmc_observe::{
    AuditRow, CallEvent, CallFilter, Observer, ObserverOptions, SharedAudit, Telemetry,
    TelemetryFollower, TelemetryOptions, UncountedCall,
};
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Error, Tenant};
use llmc_testdb::{TestCluster, TestDatabase};

const LONG: Duration = Duration::from_secs(60);

fn connect(database: &TestDatabase, tenant: &str) -> Database {
    Database::new(DatabaseSettings {
        url: DatabaseUrl::parse(&database.url()).unwrap(),
        admin_url: None,
        tenant: Tenant::parse(tenant).unwrap(),
        max_connections: 4,
    })
}

fn call(tool: &str) -> UncountedCall<'static> {
    UncountedCall {
        event: CallEvent {
            tool: tool.to_owned(),
            correlation_id: "correlation".to_owned(),
            session: "session\0".to_owned(),
            agent: "=agent".to_owned(),
            ..CallEvent::default()
        },
        args: "{}".to_owned(),
        answer: "one two three".into(),
        withheld_bytes: 13,
        script_bytes: 0,
        fetched_back: false,
        error_message: None,
        keeps_content: true,
    }
}

fn observer(database: Database, server: &str) -> Observer {
    Observer::start(ObserverOptions {
        enabled: true,
        metrics: true,
        telemetry: Some(database.into()),
        server: server.to_owned(),
        ..ObserverOptions::default()
    })
}

fn calls(database: Database) -> u64 {
    let telemetry = Telemetry::shared(database, TelemetryOptions::default());
    let summary = telemetry.summary(&CallFilter::default()).unwrap();
    summary.totals.calls
}

#[test]
fn all_servers_record_into_one_store_and_tenants_see_their_own() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    for server in ["one", "other"] {
        let observer = observer(connect(&database, "team"), server);
        for n in 0..700 {
            observer.record(call(&format!("tool{n}")));
        }
        observer.close();
        assert_eq!(observer.dropped(), 0);
    }
    let team = connect(&database, "team");
    assert_eq!(calls(team.clone()), 1400);
    let mut follower = TelemetryFollower::new(team, Timestamp::UNIX_EPOCH);
    let read = follower.next(2000).unwrap();
    let of = |server| read.iter().filter(|call| call.server == server).count();
    assert_eq!((of("one"), of("other")), (700, 700));
    assert_eq!(calls(connect(&database, "others")), 0);
}

#[test]
fn calls_made_during_an_outage_are_recorded_after_it_once() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let team = connect(&database, "team");
    let observer = observer(team.clone(), "one");
    observer.record(call("before"));
    let deadline = Instant::now() + LONG;
    while calls(team.clone()) == 0 {
        assert!(Instant::now() < deadline);
    }
    cluster.stop("QUIT");
    let started = Instant::now();
    for _ in 0..300 {
        observer.record(call("meanwhile"));
    }
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "recording waits: {:?}",
        started.elapsed()
    );
    // Counted, so that they are with the thread that writes.
    observer.flush(LONG);
    cluster.run();
    observer.record(call("after"));
    while cluster.sql(&database.name, "SELECT count(*) FROM llmc.calls") != "302" {
        assert!(Instant::now() < deadline);
    }
    observer.close();
    assert_eq!(calls(team), 302);
    assert_eq!(observer.dropped(), 0);
}

#[test]
fn an_audit_row_is_there_when_its_writer_goes_on() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let audit = SharedAudit::new(connect(&database, "team"), "one".to_owned(), 30);
    let started = AuditRow::started("correlation", "session\0", "=agent", "linux_fs_write");
    audit.write("a", &started).unwrap();
    let status = || {
        let sql = "SELECT string_agg(id || ' ' || status || ' ' || tokens_out, ', ' ORDER BY id) FROM llmc.audit";
        cluster.sql(&database.name, sql)
    };
    assert_eq!(status(), "a started 0");
    let finished = AuditRow::finished(&call("linux_fs_write"));
    audit.write("a", &finished).unwrap();
    // A row that was committed before its connection was lost is written again.
    audit.write("a", &finished).unwrap();
    assert_eq!(status(), "a ok 3");
    let mut csv = Vec::new();
    audit.export(&mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 2, "{csv}");
    assert!(lines[0].ends_with("duration_ms,status,server"), "{csv}");
    let cells = ",correlation,session\u{fffd},'=agent,linux_fs_write,1,3,3,0,0.000,ok,one";
    assert!(lines[1].ends_with(cells), "{csv}");
    let mut others = Vec::new();
    let other = SharedAudit::new(connect(&database, "others"), "x".to_owned(), 0);
    other.export(&mut others).unwrap();
    assert_eq!(String::from_utf8(others).unwrap().lines().count(), 1);
}

#[test]
fn old_audit_rows_leave_and_new_ones_stay() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let row = AuditRow::started("correlation", "session", "agent", "stat");
    let keeps_all = SharedAudit::new(connect(&database, "team"), "one".to_owned(), 0);
    for id in ["old", "new"] {
        keeps_all.write(id, &row).unwrap();
    }
    let age = "UPDATE llmc.audit SET time_ms = time_ms - 4 * 86400000 WHERE id = 'old'";
    cluster.sql(&database.name, age);
    keeps_all.write("newer", &row).unwrap();
    let ids = || {
        let sql = "SELECT string_agg(id, ' ' ORDER BY id) FROM llmc.audit";
        cluster.sql(&database.name, sql)
    };
    assert_eq!(ids(), "new newer old");
    let prunes = SharedAudit::new(connect(&database, "team"), "one".to_owned(), 3);
    prunes.write("newest", &row).unwrap();
    assert_eq!(ids(), "new newer newest");
}

#[test]
fn without_the_database_no_audit_row_is_acknowledged() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let audit = SharedAudit::new(connect(&database, "team"), "one".to_owned(), 0);
    let row = AuditRow::started("correlation", "session", "agent", "stat");
    audit.write("acknowledged", &row).unwrap();
    cluster.stop("KILL");
    let refused = audit.write("refused", &row);
    assert!(
        matches!(refused, Err(Error::Unreachable(_) | Error::Lost)),
        "{refused:?}"
    );
    cluster.run();
    let deadline = Instant::now() + LONG;
    while audit.write("later", &row).is_err() {
        assert!(Instant::now() < deadline);
    }
    let ids = "SELECT string_agg(id, ' ' ORDER BY id) FROM llmc.audit";
    assert_eq!(cluster.sql(&database.name, ids), "acknowledged later");
}
