//! A real PostgreSQL for tests: a cluster in a temporary folder, started by the test itself.
//!
//! Owns the cluster's programs, folder and end. Must not know what a test checks, and is a dev-dependency only: a failure
//! is a panic. A test program has one [`TestCluster::shared`], and a [`TestDatabase`] for each test; a test that stops
//! the cluster starts one of its own.
//!
//! PostgreSQL refuses to run as root, so as root it runs as `nobody`. A shell between the test and the cluster waits for
//! the end of the test's process, whatever its reason, and then ends the cluster and removes its folder.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test support: a panic is a failed test, and tests look at files and start programs from outside"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The longest wait for the cluster.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(60);
/// Where Debian keeps the programs of each version.
const DEBIAN_VERSIONS: &str = "/usr/lib/postgresql";
/// The oldest version that is used.
const OLDEST_VERSION: u32 = 15;
/// The numbers of Debian's `nobody` and `nogroup`.
const NOBODY: u32 = 65534;
/// The superuser of a cluster, and the password of every role.
const ADMIN: &str = "admin";
const PASSWORD: &str = "correct horse";
const ENCODED_PASSWORD: &str = "correct%20horse";

/// Runs the cluster until a line names the signal that ends it, or until the test has ended.
const KEEPER: &str = r#"
dir=$1; shift
"$@" &
pid=$!
if read -r signal; then
  kill -"$signal" "$pid"; wait "$pid"
else
  kill -QUIT "$pid"; wait "$pid"; rm -rf -- "$dir"
fi
"#;

/// A running cluster, reachable through a socket in its folder and, encrypted or not, on loopback.
pub struct TestCluster {
    programs: PathBuf,
    dir: PathBuf,
    port: u16,
    keeper: Mutex<Option<Keeper>>,
    databases: AtomicU32,
}

/// The shell that runs a cluster, and the thread that reads the cluster's log to its end.
struct Keeper {
    shell: Child,
    log: JoinHandle<()>,
}

/// An empty database and the role that owns it.
#[derive(Debug, Clone)]
pub struct TestDatabase {
    pub name: String,
    pub role: String,
    socket: String,
    port: u16,
    authority: PathBuf,
}

impl TestCluster {
    /// The cluster of this test program; `None` where there is no PostgreSQL, which under `CI=true` is a failure.
    pub fn shared() -> Option<&'static TestCluster> {
        static SHARED: OnceLock<Option<TestCluster>> = OnceLock::new();
        SHARED.get_or_init(TestCluster::start).as_ref()
    }

    /// A cluster of its own, for a test that stops it.
    pub fn start() -> Option<TestCluster> {
        let Some(programs) = find_programs() else {
            skip("PostgreSQL 15 or newer (Debian package postgresql)");
            return None;
        };
        let dir = tempfile::Builder::new()
            .prefix("llmc-pg-")
            .tempdir()
            .unwrap()
            .keep();
        let cluster = TestCluster {
            programs,
            port: free_port(),
            dir,
            keeper: Mutex::new(None),
            databases: AtomicU32::new(0),
        };
        cluster.initialise();
        cluster.run();
        Some(cluster)
    }

    /// Starts it again after [`stop`](Self::stop).
    pub fn run(&self) {
        let mut command = self.unprivileged("sh");
        command.arg("-c").arg(KEEPER).arg("keeper").arg(&self.dir);
        command.arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.dir.join("data"));
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = command.stdout(Stdio::null()).spawn().unwrap();
        let (ready, log) = ready_line(BufReader::new(shell.stderr.take().unwrap()));
        let said = ready.recv_timeout(CLUSTER_TIMEOUT);
        if let Err(why) = said.unwrap_or_else(|_| Err("no answer".to_owned())) {
            panic!("PostgreSQL did not start: {why}");
        }
        *self.keeper.lock().unwrap() = Some(Keeper { shell, log });
    }

    /// Ends it as `kill -SIGNAL` does: `QUIT` drops every connection at once, `KILL` is a crash.
    ///
    /// Returns when all its processes have ended. After `KILL` the ones that serve connections go on until they notice
    /// that their parent is gone, and can still commit; the log ends with the last of them.
    pub fn stop(&self, signal: &str) {
        let Keeper { mut shell, log } = self.keeper.lock().unwrap().take().unwrap();
        writeln!(shell.stdin.take().unwrap(), "{signal}").unwrap();
        shell.wait().unwrap();
        log.join().unwrap();
    }

    /// A new database with a role that owns it and is no superuser.
    pub fn database(&self) -> TestDatabase {
        let n = self.databases.fetch_add(1, Ordering::Relaxed);
        let database = TestDatabase {
            name: format!("db{n}"),
            role: format!("role{n}"),
            socket: self.dir.display().to_string().replace('/', "%2F"),
            port: self.port,
            authority: self.dir.join("authority.pem"),
        };
        let TestDatabase { name, role, .. } = &database;
        self.sql(
            "postgres",
            &format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"),
        );
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {role}"));
        database
    }

    /// Runs statements as the superuser; what they print.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let run = Command::new(self.programs.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                ADMIN,
                "-d",
                database,
                "-c",
                sql,
            ])
            .arg("-h")
            .arg(&self.dir)
            .args(["-p", &self.port.to_string()])
            .env_clear()
            .env("PGPASSWORD", PASSWORD)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{sql}: {errors}");
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }

    fn initialise(&self) {
        let own = |path: &Path| {
            if is_root() {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        };
        own(&self.dir);
        let password = self.dir.join("password");
        fs::write(&password, PASSWORD).unwrap();
        own(&password);
        let made = self
            .unprivileged(self.programs.join("initdb"))
            .arg("-D")
            .arg(self.dir.join("data"))
            .arg("--pwfile")
            .arg(&password)
            .args([
                "-U",
                ADMIN,
                "-A",
                "scram-sha-256",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb: {errors}");
        let (authority, certificate, key) = certificates();
        fs::write(self.dir.join("authority.pem"), authority).unwrap();
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.dir.join("data").join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            own(&file);
        }
        // The folder's way down must be open to the tests, which run as another user.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nssl = on\n\
             fsync = off\nshared_buffers = 16MB\nmax_connections = 100\n",
            self.port,
            self.dir.display()
        );
        let file = self.dir.join("data/postgresql.conf");
        let mut text = fs::read_to_string(&file).unwrap();
        text.push_str(&settings);
        fs::write(&file, text).unwrap();
    }

    /// A program as a user that PostgreSQL accepts.
    fn unprivileged(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
                command.args([&user, &group, "--clear-groups"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C");
        command.current_dir(&self.dir);
        command
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap().take() {
            // The end of its input is the sign to end the cluster and remove the folder.
            drop(keeper.shell.stdin.take());
            let _ = keeper.shell.wait();
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl TestDatabase {
    /// Its address through the socket, as its owner.
    pub fn url(&self) -> String {
        self.url_of(&self.role, ENCODED_PASSWORD)
    }

    /// The same with another user and password, in the form that addresses need.
    pub fn url_of(&self, role: &str, password: &str) -> String {
        let (socket, port, name) = (&self.socket, self.port, &self.name);
        format!("postgres://{role}:{password}@{socket}:{port}/{name}")
    }

    /// As the superuser.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, ENCODED_PASSWORD)
    }

    /// On loopback, with these parameters.
    pub fn tcp_url(&self, host: &str, parameters: &str) -> String {
        let (role, port, name) = (&self.role, self.port, &self.name);
        format!("postgres://{role}:{ENCODED_PASSWORD}@{host}:{port}/{name}?{parameters}")
    }

    /// The certificate of the authority that signed the cluster's.
    pub fn authority(&self) -> &Path {
        &self.authority
    }
}

/// The programs of the newest version.
fn find_programs() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN_VERSIONS).ok()?;
    let versions = versions.filter_map(|entry| {
        let entry = entry.ok()?;
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let programs = entry.path().join("bin");
        let is_usable = version >= OLDEST_VERSION && programs.join("postgres").exists();
        is_usable.then_some((version, programs))
    });
    versions.max().map(|(_, programs)| programs)
}

/// Tells when the cluster is ready, or what it said before it ended; what it says later is read and dropped.
fn ready_line(
    lines: impl BufRead + Send + 'static,
) -> (Receiver<Result<(), String>>, JoinHandle<()>) {
    let (said, ready) = channel();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        for line in lines.lines().map_while(Result::ok) {
            if line.contains("ready to accept connections") {
                let _ = said.send(Ok(()));
            } else if log.len() < 10_000 {
                log.push_str(&line);
                log.push('\n');
            }
        }
        let _ = said.send(Err(log));
    });
    (ready, log)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// An authority, and a certificate of it for this machine with its key, in PEM.
fn certificates() -> (String, String, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let server = server.signed_by(&key, &issuer).unwrap();
    (authority_pem, server.pem(), key.serialize_pem())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says that a test tries nothing because this machine lacks something; under `CI=true` that is a failure.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test must not look like one that ran"
)]
fn skip(missing: &str) {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "under CI a missing component is a failure: {missing}");
    eprintln!("SKIPPED: {missing}");
}
