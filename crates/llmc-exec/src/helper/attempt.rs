//! The hostile program of escape tests: makes attempts and prints what came of each, with its length before it.
//!
//! It is this executable, so that a test needs no shell, no Python and nothing on the list of allowed programs. What it
//! prints is what it could read, or a line that reports a refusal as an errno.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::plan::{ATTEMPT, NEXT_ATTEMPT, REFUSED};

/// How long a connection is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes the attempts that the words describe, one after the other.
pub(super) fn run(words: &[String]) -> io::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = io::stdout();
    if let ["wait"] = words[..] {
        return wait(&mut out);
    }
    for words in words.split(|word| *word == NEXT_ATTEMPT) {
        let got = match attempt(words) {
            Ok(got) => got,
            Err(error) => format!("{REFUSED}{}\n", error.raw_os_error().unwrap_or(0)).into_bytes(),
        };
        // At once: the next attempt may end this process.
        writeln!(out, "{}", got.len())?;
        out.write_all(&got)?;
        out.flush()?;
    }
    Ok(())
}

/// The process of the host that attempts are aimed at: says that it runs, and lives until its input ends.
fn wait(out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"\n")?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(|_| ())
}

#[expect(
    clippy::disallowed_methods,
    reason = "trying to get at what is none of its business is what it is for"
)]
fn attempt(words: &[&str]) -> io::Result<Vec<u8>> {
    let nothing = |()| Vec::new();
    match words {
        ["write", path, text] => fs::write(path, text).map(nothing),
        ["append", path] => OpenOptions::new()
            .append(true)
            .open(path)
            .map(|_| Vec::new()),
        ["plant", dir, name, text] => {
            fs::create_dir_all(dir)?;
            fs::write(format!("{dir}/{name}"), text).map(nothing)
        }
        ["chmod", path] => fs::set_permissions(path, Permissions::from_mode(0o777)).map(nothing),
        ["chmod-as-is", path] => {
            fs::set_permissions(path, fs::metadata(path)?.permissions()).map(nothing)
        }
        ["read", path] => fs::read(path),
        ["start", text] => {
            let said = Command::new("/proc/self/exe")
                .args([ATTEMPT, "say", text])
                .stdin(Stdio::null())
                .output()?;
            Ok(said.stdout)
        }
        ["say", text] => Ok(text.as_bytes().to_vec()),
        ["become", path] => Err(Command::new(path).exec()),
        ["tcp", address, text] => {
            let address = address.parse().map_err(io::Error::other)?;
            let mut socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
            socket.write_all(text.as_bytes()).map(nothing)
        }
        ["udp", address, text] => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(text.as_bytes(), address).map(|_| Vec::new())
        }
        ["unix", path, text] => UnixStream::connect(path)?
            .write_all(text.as_bytes())
            .map(nothing),
        ["abstract", name, text] => {
            let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            socket.write_all(text.as_bytes()).map(nothing)
        }
        ["kill", pid] => {
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
            kill_process(pid, Signal::KILL)?;
            Ok(Vec::new())
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
