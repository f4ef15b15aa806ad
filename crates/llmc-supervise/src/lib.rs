//! System calls of a process that another process carries out or lets pass: the kernel's `seccomp` user notification.
//!
//! A process installs a filter with [`install`] and hands the descriptor to its supervisor, which receives the chosen calls
//! from a [`CallListener`] and answers each. The caller waits meanwhile. Once the supervisor is gone, such calls fail.
//!
//! Knows nothing else of the workspace. The only `unsafe` code beside `heap.rs` of `llmc`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `_IOWR('!', 0, struct seccomp_notif)`, `_IOWR('!', 1, struct seccomp_notif_resp)` and `_IOW('!', 2, __u64)`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
/// Once received, only a signal that ends the caller interrupts its call, which would else be carried out twice.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// One instruction of a filter program.
pub type Instruction = libc::sock_filter;

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct WaitingCall {
    id: u64,
    /// The calling thread, by its number where this process runs.
    pub pid: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel carries it out as it would without a supervisor.
    Pass,
    /// It has been carried out.
    Done,
    /// It failed with this number.
    Failed(i32),
}

/// Filters the calls of this thread and of all that come from it; those for which the program returns
/// `SECCOMP_RET_USER_NOTIF` can be received from the descriptor.
///
/// # Errors
/// The kernel knows no such filter, or this thread already has one.
pub fn install(program: &[Instruction]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    let attempt = |flags: libc::c_ulong| {
        // SAFETY: `filter` and the program it points to live until the call returns, which only reads them.
        let made = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const filter,
            )
        };
        match i32::try_from(made) {
            Ok(descriptor) if descriptor >= 0 => Ok(descriptor),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // Kernels before 5.19 know only the first flag.
    let descriptor = attempt(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE)
        .or_else(|_| attempt(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER))?;
    // SAFETY: the kernel has just made this descriptor for this process, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Where a supervisor receives calls.
#[derive(Debug)]
pub struct CallListener(OwnedFd);

impl CallListener {
    pub fn new(descriptor: OwnedFd) -> CallListener {
        CallListener(descriptor)
    }

    /// The next call; waits for it.
    ///
    /// # Errors
    /// `ENOENT` if the caller is gone by now.
    pub fn receive(&self) -> io::Result<WaitingCall> {
        let mut call = MaybeUninit::<libc::seccomp_notif>::zeroed();
        // SAFETY: the kernel writes one `seccomp_notif`, for which there is room and which must be zero before.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE as _, call.as_mut_ptr()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all bytes were zero or written by the kernel, and every value of them is a valid `seccomp_notif`.
        let call = unsafe { call.assume_init() };
        Ok(WaitingCall {
            id: call.id,
            pid: call.pid,
            number: i64::from(call.data.nr),
            arguments: call.data.args,
        })
    }

    /// Whether the caller still waits. Before that is known, what its number names may be another process.
    pub fn is_waiting(&self, call: &WaitingCall) -> bool {
        // SAFETY: the kernel reads one `u64`.
        unsafe { libc::ioctl(self.0.as_raw_fd(), IS_VALID as _, &raw const call.id) == 0 }
    }

    /// Lets the caller go on.
    ///
    /// # Errors
    /// `ENOENT` if the caller is gone by now.
    pub fn answer(&self, call: &WaitingCall, answer: Answer) -> io::Result<()> {
        let mut response = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: 0,
            flags: 0,
        };
        match answer {
            Answer::Pass => response.flags = PASS,
            Answer::Done => {}
            Answer::Failed(errno) => response.error = -errno,
        }
        // SAFETY: the kernel reads one `seccomp_notif_resp`.
        let sent = unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut response) };
        match sent < 0 {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const PASS: u32 = 1;

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
