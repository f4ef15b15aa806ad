//! Targets of escape tests, made for them and removed after them.

use std::io::{self, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::trial::own_program;
use crate::settings::Settings;
use crate::view::hidden_places;
use llmc_host::OpenDir;

/// How long a process that was killed may take to be gone, and one that was started to be there.
const PROCESS_CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// A directory where commands have no business, with a file in it. Not in `/tmp`, of which a run has its own.
#[derive(Debug)]
pub(super) struct Outside(PathBuf);

impl Outside {
    pub(super) fn new(settings: &Settings, cwd: &OpenDir, mark: &str) -> Result<Outside, String> {
        let beside = cwd.path.absolute().parent().map(Path::to_owned);
        let candidates = [Some(PathBuf::from("/var/tmp")), home(), beside];
        let writable: Vec<&PathBuf> = settings
            .write_roots
            .iter()
            .chain(&settings.extra_write)
            .collect();
        for dir in candidates.into_iter().flatten() {
            let Ok(dir) = std::fs::canonicalize(dir) else {
                continue;
            };
            let inside = writable.iter().any(|root| dir.starts_with(root));
            if inside || dir.starts_with("/tmp") || dir.starts_with("/dev") {
                continue;
            }
            let dir = dir.join(format!(".{mark}"));
            let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
            let outside = Outside(dir);
            if made.is_ok() && std::fs::write(outside.file(), "").is_ok() {
                outside.close();
                return Ok(outside);
            }
        }
        Err("no place outside the roots can be written from here".to_owned())
    }

    pub(super) fn file(&self) -> String {
        self.0.join("file").display().to_string()
    }

    /// The path of another file, which says this.
    pub(super) fn secret(&self, mark: &str) -> io::Result<String> {
        let path = self.0.join("secret");
        new_private_file(&path, mark)?;
        Ok(path.display().to_string())
    }

    /// Whether the file says this; it no longer does then.
    #[expect(clippy::disallowed_methods, reason = "a file made here")]
    pub(super) fn was_written(&self, mark: &str) -> bool {
        let written = std::fs::read(self.file()).is_ok_and(|text| text == mark.as_bytes());
        let _ = std::fs::write(self.file(), "");
        written
    }

    /// Whether everyone may write the file; they no longer may then.
    pub(super) fn was_opened_up(&self) -> bool {
        let opened = std::fs::metadata(self.file())
            .is_ok_and(|status| status.permissions().mode() & 0o077 != 0);
        self.close();
        opened
    }

    fn close(&self) {
        let _ = std::fs::set_permissions(self.file(), std::fs::Permissions::from_mode(0o600));
    }
}

impl Drop for Outside {
    #[expect(clippy::disallowed_methods, reason = "a directory made here")]
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// When the status of a file last changed.
pub(super) fn change_time(path: &Path) -> Option<(i64, i64)> {
    let status = std::fs::metadata(path).ok()?;
    Some((status.ctime(), status.ctime_nsec()))
}

/// Ears on the host. What cannot be made is left out.
#[derive(Debug)]
pub(super) struct Sockets {
    tcp: Option<TcpListener>,
    udp: Option<UdpSocket>,
    unix: Option<(UnixListener, String)>,
    unnamed: Option<(UnixListener, String)>,
    /// Where one of them is.
    _outside: Option<Rc<Outside>>,
}

impl Sockets {
    pub(super) fn new(outside: Option<Rc<Outside>>, mark: &str) -> Sockets {
        let tcp = TcpListener::bind("127.0.0.1:0").and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let udp = UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let unix = outside.as_ref().and_then(|outside| {
            let path = outside.0.join("socket");
            let socket = quiet(UnixListener::bind(&path)).ok()?;
            Some((socket, path.display().to_string()))
        });
        let unnamed = SocketAddr::from_abstract_name(mark)
            .and_then(|address| quiet(UnixListener::bind_addr(&address)))
            .map(|socket| (socket, mark.to_owned()));
        Sockets {
            tcp: tcp.ok(),
            udp: udp.ok(),
            unix,
            unnamed: unnamed.ok(),
            _outside: outside,
        }
    }

    pub(super) fn tcp_address(&self) -> Option<String> {
        Some(self.tcp.as_ref()?.local_addr().ok()?.to_string())
    }

    pub(super) fn udp_address(&self) -> Option<String> {
        Some(self.udp.as_ref()?.local_addr().ok()?.to_string())
    }

    pub(super) fn unix_path(&self) -> Option<String> {
        self.unix.as_ref().map(|(_, path)| path.clone())
    }

    pub(super) fn abstract_name(&self) -> Option<String> {
        self.unnamed.as_ref().map(|(_, name)| name.clone())
    }

    // The sender has ended by now, so its message has arrived or never will.

    pub(super) fn tcp_received(&self, mark: &str) -> bool {
        let accepted = self.tcp.as_ref().and_then(|socket| socket.accept().ok());
        accepted.is_some_and(|(from, _)| from.set_nonblocking(true).is_ok() && receives(from, mark))
    }

    pub(super) fn udp_received(&self, mark: &str) -> bool {
        let mut said = [0; 64];
        let read = self.udp.as_ref().and_then(|udp| udp.recv(&mut said).ok());
        read.is_some_and(|read| said[..read] == *mark.as_bytes())
    }

    pub(super) fn unix_received(&self, mark: &str) -> bool {
        stream_received(self.unix.as_ref(), mark)
    }

    pub(super) fn abstract_received(&self, mark: &str) -> bool {
        stream_received(self.unnamed.as_ref(), mark)
    }
}

fn quiet(socket: io::Result<UnixListener>) -> io::Result<UnixListener> {
    let socket = socket?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn stream_received(socket: Option<&(UnixListener, String)>, mark: &str) -> bool {
    let accepted = socket.and_then(|(socket, _)| socket.accept().ok());
    accepted.is_some_and(|(from, _)| from.set_nonblocking(true).is_ok() && receives(from, mark))
}

fn receives(mut from: impl Read, mark: &str) -> bool {
    let mut said = vec![0; mark.len()];
    from.read_exact(&mut said).is_ok() && said == mark.as_bytes()
}

/// A process of the host with a token in its environment, as the server has.
#[derive(Debug)]
pub(super) struct Victim {
    process: Child,
    /// It lives until this is closed.
    _leash: Option<ChildStdin>,
}

impl Victim {
    pub(super) fn new(mark: &str) -> io::Result<Victim> {
        let mut process = own_program(&["wait".to_owned()])
            .env("LLMC_MCP_TOKEN", mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = process.stdout.take();
        let victim = Victim {
            _leash: process.stdin.take(),
            process,
        };
        // The kernel shows no environment until the program is loaded, which is after `spawn` returns.
        if let Some(mut stdout) = stdout {
            stdout.read_exact(&mut [0])?;
        }
        Ok(victim)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it is gone, or goes now.
    pub(super) fn dies(&mut self) -> bool {
        let deadline = Instant::now() + PROCESS_CHANGE_TIMEOUT;
        while Instant::now() < deadline {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How much of a credential is compared.
const CREDENTIAL_BYTES: u64 = 64;

/// A credential of the user's that is there, and how it begins. None is made for a test.
#[derive(Debug)]
pub(super) struct Credential {
    path: PathBuf,
    start: Vec<u8>,
}

impl Credential {
    /// One in the home directory.
    pub(super) fn of_home(settings: &Settings, home: &Path) -> Option<Credential> {
        let home = std::fs::canonicalize(home).ok()?;
        Credential::find(settings, |place| place.starts_with(&home))
    }

    /// One of the system's or of another user's, which only root can read.
    pub(super) fn of_system(settings: &Settings) -> Option<Credential> {
        let home = settings.home.iter();
        let own = home.filter_map(|home| std::fs::canonicalize(home).ok());
        let own: Vec<PathBuf> = own.chain(settings.state_dir.clone()).collect();
        Credential::find(settings, |place| {
            !own.iter().any(|dir| place.starts_with(dir))
        })
    }

    fn find(settings: &Settings, is_meant: impl Fn(&Path) -> bool) -> Option<Credential> {
        let places = hidden_places(settings).into_iter();
        places
            // A settings file is shown, without its secrets.
            .filter(|place| !place.is_settings)
            .map(|place| PathBuf::from(place.path))
            .filter(|place| is_meant(place))
            .flat_map(|place| match std::fs::read_dir(&place) {
                Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
                Err(_) => vec![place],
            })
            .find_map(Credential::of)
    }

    fn of(path: PathBuf) -> Option<Credential> {
        let is_file = path.symlink_metadata().is_ok_and(|status| status.is_file());
        let mut start = Vec::new();
        #[expect(clippy::disallowed_methods, reason = "compared here, and not shown")]
        let file = std::fs::File::open(&path).ok().filter(|_| is_file)?;
        file.take(CREDENTIAL_BYTES).read_to_end(&mut start).ok()?;
        // Little may be read by chance.
        (start.len() >= 8).then_some(Credential { path, start })
    }

    pub(super) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// How it begins.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }
}

/// A name in the home directory that is not there, outside the places that commands may write.
#[derive(Debug)]
pub(super) struct HomeFile(PathBuf);

impl HomeFile {
    pub(super) fn new(settings: &Settings, home: &Path, mark: &str) -> Result<HomeFile, String> {
        let home = std::fs::canonicalize(home).map_err(|error| error.to_string())?;
        match settings.writable().any(|root| home.starts_with(root)) {
            true => Err("commands may write the home directory".to_owned()),
            false => Ok(HomeFile(home.join(format!(".{mark}")))),
        }
    }

    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Whether it was made; it is deleted then.
    #[expect(clippy::disallowed_methods, reason = "a file that an attempt made")]
    pub(super) fn was_made(&self) -> bool {
        std::fs::remove_file(&self.0).is_ok()
    }
}

fn new_private_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// A secret in the state directory, where the server keeps its own.
#[derive(Debug)]
pub(super) struct Token(PathBuf);

impl Token {
    pub(super) fn new(dir: &Path, mark: &str) -> io::Result<Token> {
        let token = Token(dir.join(format!("{mark}.token")));
        new_private_file(&token.0, mark)?;
        Ok(token)
    }

    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Token {
    #[expect(clippy::disallowed_methods, reason = "a file made here")]
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
