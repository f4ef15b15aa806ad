//! Documents and images converted in confined processes.
//!
//! Their parsers read files of strangers. Each file gets a process of its own, like those of scripts: no files, no network,
//! no programs, bounded memory. It is given the file's bytes and returns text or a smaller image, which the server checks.
//! Without confinement nothing is converted.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llmc_documents::{
    Conversion, ConversionFault, FileFormat, MAX_IMAGE_BYTES, MAX_TEXT_BYTES, convert_here,
};
use llmc_exec::Worker;
use serde::{Deserialize, Serialize};

use crate::timed_socket::{SocketCancelled, TimedSocket};
use crate::wire;
use crate::worker::exit_with_server;

/// The hidden argument that makes the executable convert a document.
const DOCUMENT_ARGUMENT: &str = "__document";
/// Files that are converted at the same time; further ones wait.
const MAX_WORKERS: usize = 2;
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long converting may take at most, whatever the caller's own limit is.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest list of parts that comes with a text.
const MAX_HEAD_BYTES: usize = 4 << 20;

/// Makes this process convert documents in workers from now on; `main` calls this once. Starts nothing yet.
pub fn convert_in_workers() {
    static WORKERS: DocumentWorkers = DocumentWorkers::new(DOCUMENT_ARGUMENT, 640 << 20);
    llmc_documents::set_conversion_service(|format, bytes, is_cancelled| {
        WORKERS.convert(format, bytes, is_cancelled)
    });
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum DocumentReport {
    /// The worker is confined and waits for a file.
    Ready,
    /// The worker cannot confine itself.
    Refused(String),
    /// The tail is the text or the image.
    Done(Conversion),
    Failed(ConversionFault),
}

/// The processes that convert files: one for each, a few at a time.
#[derive(Debug)]
pub struct DocumentWorkers {
    argument: &'static str,
    memory_bytes: u64,
    running: Mutex<usize>,
    ended: Condvar,
}

impl DocumentWorkers {
    /// Workers that are started with this hidden argument and may take this much memory each.
    pub const fn new(argument: &'static str, memory_bytes: u64) -> DocumentWorkers {
        DocumentWorkers {
            argument,
            memory_bytes,
            running: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// Converts a file in a process that ends with it.
    ///
    /// # Errors
    /// What the worker says of the file; [`ConversionFault::Crashed`] where it ends, sends nonsense or runs out of memory.
    pub fn convert(
        &self,
        format: FileFormat,
        bytes: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Conversion, ConversionFault> {
        let deadline = Instant::now() + CONVERSION_TIMEOUT;
        let _turn = self.take_turn(deadline, is_cancelled)?;
        let memory = self.memory_bytes.to_string();
        let (process, socket) = Worker::start(&[self.argument, &memory])
            .map_err(|error| ConversionFault::Unavailable(error.to_string()))?;
        let started = Instant::now() + START_TIMEOUT;
        let mut start = TimedSocket::new(&socket, started).unless(is_cancelled);
        match receive(&mut start) {
            Ok((DocumentReport::Ready, _)) => {}
            Ok((DocumentReport::Refused(why), _)) => return Err(ConversionFault::Unavailable(why)),
            Ok(_) => return Err(ConversionFault::Crashed),
            Err(error) if SocketCancelled::caused(&error) => {
                return Err(ConversionFault::Cancelled);
            }
            Err(error) => return Err(ConversionFault::Unavailable(error.to_string())),
        }
        let mut exchange = TimedSocket::new(&socket, deadline).unless(is_cancelled);
        let reply = wire::pack(&format, bytes)
            .and_then(|request| exchange.write_all(&request))
            .and_then(|()| receive(&mut exchange));
        // Ends the process, whatever it still does.
        drop(process);
        match reply {
            Ok((DocumentReport::Done(conversion), tail)) => checked(conversion, tail),
            Ok((DocumentReport::Failed(fault), _)) => Err(fault),
            Ok(_) => Err(ConversionFault::Crashed),
            Err(error) if SocketCancelled::caused(&error) => Err(ConversionFault::Cancelled),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(ConversionFault::TimedOut),
            Err(error) => {
                tracing::warn!(%error, ?format, bytes = bytes.len(), "the parser of a document failed");
                Err(ConversionFault::Crashed)
            }
        }
    }

    fn take_turn(
        &self,
        deadline: Instant,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Turn<'_>, ConversionFault> {
        const INTERVAL: Duration = Duration::from_millis(50);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= MAX_WORKERS {
            if is_cancelled() {
                return Err(ConversionFault::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(ConversionFault::TimedOut);
            }
            let waited = self.ended.wait_timeout(running, INTERVAL);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *running += 1;
        Ok(Turn(self))
    }
}

/// The right to run a worker.
struct Turn<'w>(&'w DocumentWorkers);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let running = self.0.running.lock();
        *running.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}

/// Joins a conversion with its bytes, if a worker that was taken over could have sent nothing worse.
fn checked(conversion: Conversion, tail: Vec<u8>) -> Result<Conversion, ConversionFault> {
    let (conversion, is_sound) = match conversion {
        Conversion::Text(mut document) => {
            document.text = String::from_utf8(tail).map_err(|_| ConversionFault::Crashed)?;
            let is_sound = document.is_sound();
            (Conversion::Text(document), is_sound)
        }
        Conversion::Image(mut image) => {
            image.bytes = tail;
            let is_sound = image.is_sound();
            (Conversion::Image(image), is_sound)
        }
    };
    match is_sound {
        true => Ok(conversion),
        false => Err(ConversionFault::Crashed),
    }
}

/// Reads one report, in the server. Memory grows with what arrives, up to the longest answer.
fn receive(from: &mut impl Read) -> io::Result<(DocumentReport, Vec<u8>)> {
    const MAX_REPORT_BYTES: usize = MAX_HEAD_BYTES
        + if MAX_TEXT_BYTES > MAX_IMAGE_BYTES {
            MAX_TEXT_BYTES
        } else {
            MAX_IMAGE_BYTES
        };
    let (mut inbox, mut block) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if let Some(report) = wire::take(&mut inbox)? {
            return Ok(report);
        }
        match from.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => inbox.extend_from_slice(&block[..read]),
        }
        if inbox.len() > MAX_REPORT_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// What a worker does; tests replace a part.
#[derive(Debug, Clone, Copy)]
pub struct DocumentRole {
    /// Gives up everything but computing, with at most this many bytes of memory.
    pub confine: fn(u64) -> io::Result<()>,
    pub convert: fn(FileFormat, &[u8]) -> Result<Conversion, ConversionFault>,
}

impl Default for DocumentRole {
    fn default() -> DocumentRole {
        DocumentRole {
            confine: llmc_exec::restrict_to_compute,
            convert: convert_here,
        }
    }
}

/// Converts documents if this process was started to do so, else returns `None`.
pub(crate) fn document_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()?.to_str()? != DOCUMENT_ARGUMENT {
        return None;
    }
    let memory = args.next().and_then(|word| word.to_str()?.parse().ok());
    Some(serve_documents(
        DocumentRole::default(),
        memory.unwrap_or(0),
    ))
}

/// Serves the server at the other end of standard input until it closes the socket.
pub fn serve_documents(role: DocumentRole, memory_bytes: u64) -> ExitCode {
    // Failures show as a closed socket; there is no other channel.
    match serve(role, memory_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(role: DocumentRole, memory_bytes: u64) -> io::Result<()> {
    llmc_exec::close_inherited()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    exit_with_server(socket.try_clone()?, memory_bytes, role.confine)?;
    if let Err(error) = (role.confine)(memory_bytes) {
        let why = format!("the kernel does not filter its system calls: {error}");
        return wire::send(&socket, &DocumentReport::Refused(why), &[]);
    }
    wire::send(&socket, &DocumentReport::Ready, &[])?;
    let (format, bytes) = wire::receive::<FileFormat>(&socket)?;
    let (report, tail) = match (role.convert)(format, &bytes) {
        Ok(Conversion::Text(mut document)) => {
            let text = std::mem::take(&mut document.text).into_bytes();
            (DocumentReport::Done(Conversion::Text(document)), text)
        }
        Ok(Conversion::Image(mut image)) => {
            let bytes = std::mem::take(&mut image.bytes);
            (DocumentReport::Done(Conversion::Image(image)), bytes)
        }
        Err(fault) => (DocumentReport::Failed(fault), Vec::new()),
    };
    wire::send(&socket, &report, &tail)
}
