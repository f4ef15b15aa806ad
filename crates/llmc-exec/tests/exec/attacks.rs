//! The hostile program: each attack exits 0 if it got what it wanted and 1 if it was refused.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal};

/// Runs an attack if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    // A fixture's copy of this binary carries the name.
    let attack = std::env::args_os().next()?;
    if !attack.as_bytes().ends_with(b"attack") {
        return None;
    }
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    Some(match attempt(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refused: {error}");
            ExitCode::FAILURE
        }
    })
}

fn attempt(words: &[&str]) -> io::Result<()> {
    match words {
        ["write", path] => fs::write(path, "owned"),
        ["append", path] => OpenOptions::new()
            .append(true)
            .open(path)?
            .write_all(b"owned"),
        ["truncate", path] => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .map(drop),
        ["unlink", path] => fs::remove_file(path),
        ["rmdir", path] => fs::remove_dir_all(path),
        ["mkdir", path] => fs::create_dir(path),
        ["rename", from, to] => fs::rename(from, to),
        ["symlink", to, path] => std::os::unix::fs::symlink(to, path),
        ["link", from, to] => fs::hard_link(from, to),
        ["link-write", from, to] => fs::hard_link(from, to).and_then(|()| fs::write(to, "owned")),
        ["chmod", path] => fs::set_permissions(path, Permissions::from_mode(0o777)),
        // Ways to give a file the bits that make it run as its owner.
        ["set-id-chmod", path, mode] => {
            fs::set_permissions(path, Permissions::from_mode(octal(mode)?))
        }
        ["set-id-fchmod", path, mode] => {
            let mode = Permissions::from_mode(octal(mode)?);
            fs::File::open(path)?.set_permissions(mode)
        }
        ["set-id-create", path, mode] => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(octal(mode)?);
            options.open(path).map(drop)
        }
        ["set-id-openat2", path, mode] => {
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
            let mode = rustix::fs::Mode::from_raw_mode(octal(mode)?);
            let resolve = rustix::fs::ResolveFlags::empty();
            rustix::fs::openat2(rustix::fs::CWD, *path, flags, mode, resolve)?;
            Ok(())
        }
        ["set-id-mknod", path, mode] => {
            let mode = rustix::fs::Mode::from_raw_mode(octal(mode)?);
            let kind = rustix::fs::FileType::RegularFile;
            Ok(rustix::fs::mknodat(rustix::fs::CWD, *path, kind, mode, 0)?)
        }
        ["chown", path] => std::os::unix::fs::chown(path, Some(12345), None),
        ["utime", path] => fs::File::open(path)?.set_modified(SystemTime::UNIX_EPOCH),
        ["setxattr", path] => {
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(*path, "user.owned", b"1", flags)?)
        }
        ["read", path] => {
            let mut byte = [0];
            fs::File::open(path)?.read_exact(&mut byte)
        }
        ["rewrite", path] => {
            // Writes back what is there: harmless where it works.
            let value = fs::read(path)?;
            OpenOptions::new().write(true).open(path)?.write_all(&value)
        }
        ["tcp", address] => {
            let mut socket = TcpStream::connect(address)?;
            socket.write_all(b"ping")?;
            expect_pong(|answer| socket.read(answer))
        }
        ["udp", address] => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            socket.send_to(b"ping", address)?;
            expect_pong(|answer| socket.recv(answer))
        }
        ["unix", path] => {
            let mut socket = UnixStream::connect(path)?;
            expect_pong(|answer| socket.read(answer))
        }
        ["connect", path] => UnixStream::connect(path).map(drop),
        // A service of the host: says when it listens, and ends with its input.
        ["bind", path] => {
            let _listener = std::os::unix::net::UnixListener::bind(path)?;
            println!("listens");
            io::stdin().read_to_end(&mut Vec::new()).map(drop)
        }
        ["abstract", name] => {
            let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            expect_pong(|answer| socket.read(answer))
        }
        ["datagram", path] => {
            // Needs no socket of its own making: half of a pair can be addressed elsewhere.
            let (half, _other) = UnixDatagram::pair()?;
            half.send_to(b"owned", path).map(drop)
        }
        // Among the command's own processes.
        ["own-socket", path] => {
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            local_pong(&listener, || UnixStream::connect(path))
        }
        ["own-abstract"] => {
            let address = SocketAddr::from_abstract_name(format!("own-{}", std::process::id()))?;
            let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
            local_pong(&listener, || UnixStream::connect_addr(&address))
        }
        ["stream-pair"] => UnixStream::pair().map(drop),
        ["loopback"] => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            TcpStream::connect(listener.local_addr()?).map(drop)
        }
        // The network is this run's alone: the port is free.
        ["own-port", address] => {
            if TcpStream::connect(address).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let listener = std::net::TcpListener::bind(address)?;
            let mut client = TcpStream::connect(address)?;
            let (mut server, _) = listener.accept()?;
            server.write_all(b"pong")?;
            expect_pong(|answer| client.read(answer))?;
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        ["ptrace", pid] => Ok(nix::sys::ptrace::seize(
            nix::unistd::Pid::from_raw(parse(pid)?),
            nix::sys::ptrace::Options::empty(),
        )?),
        ["memory", pid] => OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map(drop),
        ["environ", pid, mark] => {
            let environ = fs::read(format!("/proc/{pid}/environ"))?;
            let found = environ
                .windows(mark.len())
                .any(|part| part == mark.as_bytes());
            found
                .then_some(())
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        ["signal", pid] => Ok(rustix::process::kill_process(process(pid)?, Signal::TERM)?),
        ["kill-parent"] => match rustix::process::getppid() {
            Some(parent) => {
                rustix::process::kill_process(parent, Signal::KILL)?;
                std::thread::sleep(Duration::from_millis(300));
                if rustix::process::getppid() == Some(parent) {
                    Err(io::ErrorKind::PermissionDenied.into())
                } else {
                    Ok(())
                }
            }
            None => Err(io::ErrorKind::NotFound.into()),
        },
        ["user-namespace"] => Ok(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)?),
        ["remount"] => Ok(rustix::mount::mount_remount(
            "/",
            rustix::mount::MountFlags::BIND,
            "",
        )?),
        ["unmount", path] => Ok(rustix::mount::unmount(
            *path,
            rustix::mount::UnmountFlags::DETACH,
        )?),
        ["escape-cwd"] => {
            std::env::set_current_dir("..")?;
            fs::write("planted", "owned")
        }
        ["double-fork", file] => {
            // Leaves the session and its parent, and ignores signals.
            let script = format!(
                "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP INT; while :; do echo x >> {file}; sleep 0.02; done' >/dev/null 2>&1 &) ; sleep 1000"
            );
            let status = std::process::Command::new("/bin/sh")
                .args(["-c", &script])
                .status()?;
            status
                .success()
                .then_some(())
                .ok_or_else(|| io::ErrorKind::Other.into())
        }
        // Starts processes until it may not, each of which does the same. All together as many as no bound of a test is, so
        // that a machine outlives a test that fails: each leaves a byte in a file.
        ["fork-bomb"] => loop {
            let own = std::env::current_exe()?;
            let mut count = OpenOptions::new().create(true).append(true).open("bomb")?;
            count.write_all(b".")?;
            if count.metadata()?.len() > 5000 {
                std::thread::sleep(Duration::from_secs(1000));
            }
            let started = std::process::Command::new(own)
                .arg0("attack")
                .arg("fork-bomb")
                .spawn();
            if started.is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        },
        ["many-children", count] => {
            let mut children = Vec::new();
            for _ in 0..parse(count)? {
                children.push(std::process::Command::new("sleep").arg("1000").spawn()?);
            }
            std::thread::sleep(Duration::from_secs(1000));
            Ok(())
        }
        ["shared-memory"] => fs::write("/dev/shm/owned", "x"),
        ["null"] => fs::write("/dev/null", "x"),
        ["own-tmp"] => fs::write("/tmp/llmc-exec-test", "x"),
        ["env"] => {
            for (name, value) in std::env::vars() {
                println!("{name}={value}");
            }
            Ok(())
        }
        ["descriptors"] => {
            let mut open: Vec<String> = fs::read_dir("/proc/self/fd")?
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            open.sort();
            println!("{}", open.join(" "));
            Ok(())
        }
        other => panic!("no such attack: {other:?}"),
    }
}

fn local_pong(
    listener: &std::os::unix::net::UnixListener,
    connect: impl FnOnce() -> io::Result<UnixStream>,
) -> io::Result<()> {
    let mut client = connect()?;
    listener.accept()?.0.write_all(b"pong")?;
    expect_pong(|answer| client.read(answer))
}

fn expect_pong(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
    let mut answer = [0; 4];
    match read(&mut answer)? {
        4 if &answer == b"pong" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn octal(mode: &str) -> io::Result<u32> {
    u32::from_str_radix(mode, 8).map_err(io::Error::other)
}

fn parse(pid: &str) -> io::Result<i32> {
    pid.parse().map_err(io::Error::other)
}

fn process(pid: &str) -> io::Result<Pid> {
    Pid::from_raw(parse(pid)?).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
