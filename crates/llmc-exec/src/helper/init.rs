//! The inner helper: restricts itself, starts the command, reaps, and goes when the command or the server goes.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Nix};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgid, ioctl_tiocsctty, kill_process,
    kill_process_group, pidfd_open, wait,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};

use super::landlock::Bounds;
use super::layered::{self, Layers};
use super::mounter::enter_mounts;
use super::outer::leash;
use super::seccomp::Tracing;
use super::session_mounts::tmp_dir;
use super::usage::UsageCheck;
use super::{caps, landlock, limits, mounts, namespaces, reaper, seccomp, stage};
use crate::fds;
use crate::level::{Feature, Features};
use crate::plan::{self, Failure, Input, Plan, Report, SEEN, SessionTmp, Stage, Start, Target};

/// Runs as pid 1: waits for its plan, then until the command is over.
pub(super) fn run() -> io::Result<()> {
    let leash = leash()?;
    // A session without the broker, so that a signal to the group cannot reach it.
    let _ = rustix::process::setsid();
    let Start { features, stage } = plan::receive(&leash)?;
    // The broker has put it into its network.
    if let Err(failure) = bound_programs(features) {
        return plan::send(&leash, &Report::Failed(failure));
    }
    // The working directory, the two outputs and perhaps an input. If there is no plan after all, the server is gone or
    // had no use for it.
    let mut fds = fds::receive(&leash)?.into_iter().peekable();
    let (Some(cwd), Some(out), Some(err)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    rustix::process::fchdir(cwd)?;
    let plan: Plan = plan::receive(&leash)?;
    let ends = CommandStdio {
        input: fds.next_if(|_| wants_input(&plan)),
        outputs: Some((out, err)),
    };
    join_group(fds.next());
    // A session's commands may use the host's network, and a run beside them must not.
    let network = match features.net {
        true => Ok(()),
        false => namespaces::net(plan.features),
    };
    let confined = network.and_then(|()| confine(&plan, stage.as_ref(), &leash));
    carry_out(&plan, confined, &leash, ends)
}

/// Runs as the first process of one run in a session, under the rules of its leader.
pub(super) fn run_in_session() -> io::Result<()> {
    let leash = leash()?;
    let _ = rustix::process::setsid();
    super::hide()?;
    let mounter = fds::receive(&leash)?.pop().map(UnixStream::from);
    let mut fds = fds::receive(&leash)?.into_iter().peekable();
    let (Some(mounter), Some(cwd), Some(out), Some(err)) =
        (mounter, fds.next(), fds.next(), fds.next())
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    rustix::process::fchdir(cwd)?;
    let plan: Plan = plan::receive(&leash)?;
    plan::send(&leash, &Report::Joined)?;
    let ends = CommandStdio {
        input: fds.next_if(|_| wants_input(&plan)),
        outputs: Some((out, err)),
    };
    join_group(fds.next());
    let confined = join_session(&plan, &mounter, &leash);
    drop(mounter);
    carry_out(&plan, confined, &leash, ends)
}

fn join_group(group: Option<OwnedFd>) {
    if let Some(group) = group {
        // Without the group the checks of this process hold.
        let _ = rustix::io::write(group, b"0");
    }
}

/// Runs without a pid namespace, where the outer helper already has everything.
pub(super) fn run_here(features: Features, leash: &UnixStream) -> io::Result<()> {
    if let Err(failure) = namespaces::net(features).and_then(|()| bound_programs(features)) {
        return plan::send(leash, &Report::Failed(failure));
    }
    let plan: Plan = plan::receive(leash)?;
    let input = if wants_input(&plan) {
        fds::receive(leash)?.pop()
    } else {
        None
    };
    let ends = CommandStdio {
        input,
        outputs: None,
    };
    let confined = confine(&plan, None, leash);
    carry_out(&plan, confined, leash, ends)
}

fn wants_input(plan: &Plan) -> bool {
    let target = plan.target.as_ref();
    target.is_some_and(|target| target.input.has_descriptor())
}

/// Bounds what programs can have, which needs no plan.
fn bound_programs(features: Features) -> Result<(), Failure> {
    if features == Features::default() {
        return Ok(());
    }
    caps::bound_programs().map_err(|errno| Failure::new(None, "bounding capabilities", errno))
}

/// What the command reads from and writes to. This process keeps none of it, so that the server sees the end of the output
/// when the command's last process has gone; outputs that are not given are its own.
struct CommandStdio {
    input: Option<OwnedFd>,
    outputs: Option<(OwnedFd, OwnedFd)>,
}

fn carry_out(
    plan: &Plan,
    confined: Result<Option<u32>, Failure>,
    leash: &UnixStream,
    ends: CommandStdio,
) -> io::Result<()> {
    let reports = match confined {
        Ok(landlock) => match &plan.target {
            Some(target) => live(target, plan, landlock, leash, ends),
            None => vec![Report::Ready { landlock }],
        },
        Err(failure) => vec![Report::Failed(failure)],
    };
    plan::send_all(leash, &reports)
}

/// Puts the boundary up around this process. Returns the Landlock ABI in force.
fn confine(plan: &Plan, stage: Option<&Stage>, leash: &UnixStream) -> Result<Option<u32>, Failure> {
    let here =
        rustix::fs::stat(".").map_err(|errno| Failure::new(None, "looking around", errno))?;
    if plan.features.mount {
        // The last thing done in the mount namespace of the broker, which keeps it for the session's next run.
        let tmp = match &plan.view.tmp {
            Some(SessionTmp::OfSession) => Some(tmp_dir()),
            Some(SessionTmp::Named(session)) if stage.is_some() => {
                let tmp = stage::session_tmp(session, plan.limits.tmp_bytes);
                Some(tmp.map_err(|error| Failure::new(None, "the session's /tmp", error))?)
            }
            _ => None,
        };
        let layers_dir = layered::mount_point(plan, stage)?;
        namespaces::mount(plan.features)?;
        let layers = match (&plan.layered, layers_dir) {
            (Some(writes), Some(dir)) => Some(Layers::make(writes, &dir, leash)?),
            _ => None,
        };
        mounts::build(plan, stage, tmp.as_deref(), layers.as_ref())
            .map_err(|error| Failure::new(Some(error.feature), &error.step, error.errno))?;
        if plan.features.fresh_proc {
            mounts::fresh_proc(|| limits::bound_pids(plan.limits.processes))
                .map_err(|errno| Failure::new(Some(Feature::FreshProc), "mounting /proc", errno))?;
        }
        stand_at(plan, &here)?;
    } else if plan.layered.is_some() {
        return Err(layered::failure("no mount namespace", Errno::NOSYS));
    }
    restrict(plan, stage, leash)
}

/// Enters the mounts that a mounter makes, and gives up what the leader has kept.
fn join_session(
    plan: &Plan,
    mounter: &UnixStream,
    leash: &UnixStream,
) -> Result<Option<u32>, Failure> {
    let here =
        rustix::fs::stat(".").map_err(|errno| Failure::new(None, "looking around", errno))?;
    bound_programs(plan.features)?;
    enter_mounts(plan, mounter)?;
    stand_at(plan, &here)?;
    restrict(plan, None, leash)
}

/// Limits, capabilities, Landlock and the system call filters.
fn restrict(
    plan: &Plan,
    stage: Option<&Stage>,
    leash: &UnixStream,
) -> Result<Option<u32>, Failure> {
    limits::set(plan).map_err(|errno| Failure::new(None, "resource limits", errno))?;
    if plan.features == Features::default() {
        return Ok(None);
    }
    caps::drop_most().map_err(|errno| Failure::new(None, "dropping capabilities", errno))?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| Failure::new(None, "no_new_privs", errno))?;
    let mut abi = None;
    if plan.features.landlock && !plan.is_member {
        let enforced = landlock::restrict(Bounds::of_run(plan, stage))
            .map_err(|error| Failure::new(Some(Feature::Landlock), "landlock", error))?;
        abi = Some(enforced);
    }
    if plan.features.seccomp {
        let tracing = match plan.features.pid || abi.is_some() {
            true => Tracing::OfLeakSanitizer,
            false => Tracing::Refused,
        };
        seccomp::filter(plan.sockets, tracing)
            .map_err(|error| Failure::new(Some(Feature::Seccomp), "seccomp", error))?;
    }
    if plan.supervises_renames() {
        // Where the kernel has no such filter, what a rename makes is carried over a moment later.
        let listener = seccomp::supervise_renames().ok();
        let report = Report::Renames {
            are_supervised: listener.is_some(),
        };
        let sent = plan::send(leash, &report).and_then(|()| match &listener {
            Some(listener) => fds::send(leash, &[listener.as_fd()]),
            None => Ok(()),
        });
        sent.map_err(|error| Failure::new(None, "handing over renames", error))?;
    }
    Ok(abi)
}

/// Steps onto the new mounts, to the very directory this process was started in.
fn stand_at(plan: &Plan, here: &Stat) -> Result<(), Failure> {
    let failed = |errno| Failure::new(None, "the working directory", errno);
    rustix::process::chdir(&plan.cwd).map_err(failed)?;
    let layered = plan.layered.iter().flat_map(|writes| &writes.places);
    let git_dirs = plan.places.git.iter().map(|git| &git.git_dir);
    let mut overlaid = git_dirs.chain(layered).map(Path::new);
    if overlaid.any(|dir| Path::new(&plan.cwd).starts_with(dir)) {
        // An overlay shows the directory under numbers of its own.
        return Ok(());
    }
    let there = rustix::fs::stat(".").map_err(failed)?;
    if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) {
        Ok(())
    } else {
        Err(failed(Errno::STALE))
    }
}

/// Starts the command and stays until it is over. Nothing to report if the server went first.
fn live(
    target: &Target,
    plan: &Plan,
    landlock: Option<u32>,
    leash: &UnixStream,
    ends: CommandStdio,
) -> Vec<Report> {
    let mut reports = Vec::new();
    let over = start(target, plan, ends).and_then(|command| {
        let signals = only_wait()?;
        if target.input == Input::Nothing || introduce(command, leash).is_ok() {
            let mut usage = UsageCheck::new(plan, landlock);
            let mut end = |bound| {
                reports.push(Report::Exceeded(bound));
                end_command(plan, landlock);
            };
            let over = watch(&signals, Some(command), leash, &mut usage, &mut end);
            let is_left = plan.is_member && over.is_some() && !alone();
            if !is_left {
                return Ok(over);
            }
            reports.extend(over);
            reports.push(Report::Left);
            if plan::send_all(leash, &std::mem::take(&mut reports)).is_ok() {
                let mut end = |bound| {
                    reports.push(Report::Exceeded(bound));
                    end_command(plan, landlock);
                };
                watch(&signals, None, leash, &mut usage, &mut end);
            }
            Ok(None)
        } else {
            Ok(None)
        }
    });
    if !plan.owns_pid_namespace() {
        reaper::end_all(landlock);
    }
    match over {
        Ok(Some(report)) if plan.features.pid && alone() => {
            reports.extend([report, Report::Alone]);
        }
        Ok(report) => reports.extend(report),
        Err(failure) => reports.push(Report::Failed(failure)),
    }
    if plan.is_member && !matches!(reports.last(), Some(Report::Alone)) && alone() {
        reports.push(Report::Alone);
    }
    reports
}

/// Kills every process of the run but this one.
fn end_command(plan: &Plan, landlock: Option<u32>) {
    if plan.owns_pid_namespace() {
        // In one step for all of them, so that none can fork away.
        let everyone = nix::unistd::Pid::from_raw(-1);
        let _ = nix::sys::signal::kill(everyone, Nix::SIGKILL);
    } else {
        reaper::kill_all(landlock);
    }
}

/// Whether pid 1 is the only process of its namespace: whatever has lost its parent is its child.
fn alone() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(errno) => return errno == Errno::CHILD,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
fn start(target: &Target, plan: &Plan, ends: CommandStdio) -> Result<Pid, Failure> {
    let CommandStdio { input, outputs } = ends;
    let failed = |step: &str, error: io::Error| Failure::new(None, step, error);
    if !plan.owns_pid_namespace() {
        reaper::adopt_orphans().map_err(|errno| failed("becoming a subreaper", errno.into()))?;
    }
    super::hide().map_err(|error| failed("hiding the helper", error))?;
    let none_ignored = || -> io::Result<()> {
        for signal in [SIGHUP, SIGINT, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        Ok(())
    };
    // A server that a shell put in the background ignores some signals, and a command would inherit that and could not
    // be interrupted. Signals with a handler here have their default action there.
    none_ignored().map_err(|error| failed("resetting signals", error))?;
    let mut command = Command::new(&target.program);
    if let Some((name, args)) = target.argv.split_first() {
        command.arg0(name).args(args);
    }
    match (target.input, &input) {
        // This process leads the session, so the terminal becomes the session's, and its own group, in which the command
        // stays, becomes the one in the foreground. A group of its own would start in the background and be stopped.
        (Input::Terminal, Some(terminal)) => {
            ioctl_tiocsctty(terminal).map_err(|errno| failed("the terminal", errno.into()))?;
        }
        _ => {
            command.process_group(0);
        }
    }
    if let Some((out, err)) = outputs {
        command.stdout(out).stderr(err);
    }
    let child = command
        .env_clear()
        .envs(target.env.iter().map(|(name, value)| (name, value)))
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .spawn()
        .map_err(|error| failed("starting the program", error))?;
    Ok(Pid::from_child(&child))
}

/// From now on no signal disturbs this process, which may share the command's group; ended children are asked for.
///
/// Not earlier: a command inherits what is blocked.
fn only_wait() -> Result<SignalFd, Failure> {
    let mut children = SigSet::empty();
    children.add(Nix::SIGCHLD);
    SigSet::all()
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC))
        .map_err(|errno| Failure::new(None, "watching for children", errno))
}

/// Gives the server a descriptor of the command, by which it finds the number that the host knows the command under.
fn introduce(command: Pid, leash: &UnixStream) -> io::Result<()> {
    let pidfd = pidfd_open(command, PidfdFlags::empty())?;
    plan::send(leash, &Report::Running)?;
    fds::send(leash, &[pidfd.as_fd()])?;
    let mut answer = [SEEN];
    { leash }.read_exact(&mut answer)
}

/// Ended children that are reaped before anything else is looked at.
const MAX_REAPED_AT_ONCE: usize = 64;

/// Reaps whatever ends until that is the command itself, or the server is gone; without a command, until nothing is left.
/// Passes on signals that the server sends, and calls `end` once if the run is over a bound.
///
/// A run that starts processes without end leaves this one little time, and may end them faster than they can be reaped.
/// So nothing here goes on until there is no more, and the server comes before the count.
fn watch(
    signals: &SignalFd,
    command: Option<Pid>,
    leash: &UnixStream,
    usage: &mut UsageCheck,
    end: &mut dyn FnMut(String),
) -> Option<Report> {
    let mut next_check = Instant::now() + usage.interval();
    let mut is_over = false;
    loop {
        // First: a child may have ended before its signal was blocked.
        let mut has_more = true;
        for _ in 0..MAX_REAPED_AT_ONCE {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Err(Errno::CHILD) if command.is_none() => return None,
                _ => {
                    has_more = false;
                    break;
                }
            };
            if Some(pid) != command {
                continue;
            }
            if let Some(code) = status.exit_status() {
                return Some(Report::Exited(code));
            }
            if let Some(signal) = status.terminating_signal() {
                return Some(Report::Killed(signal));
            }
        }
        let mut watched = [
            PollFd::new(leash, PollFlags::RDHUP | PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let left = match has_more {
            true => Duration::ZERO,
            false => next_check.saturating_duration_since(Instant::now()),
        };
        let timeout = Timespec::try_from(left).ok();
        if poll(&mut watched, timeout.as_ref()).is_err() {
            continue;
        }
        if !watched[1].revents().is_empty() {
            let _ = signals.read_signal();
        }
        let leash_says = watched[0].revents();
        if !leash_says.is_empty() {
            let mut signal = [0];
            let ended = leash_says != PollFlags::IN;
            if ended || !{ leash }.read(&mut signal).is_ok_and(|read| read == 1) {
                return None;
            }
            match command {
                Some(command) => pass_on(signal[0], command),
                None => signal_left(signal[0]),
            }
        }
        if Instant::now() >= next_check {
            match usage.exceeded() {
                Some(bound) if !is_over => {
                    is_over = true;
                    end(bound);
                }
                _ => {}
            }
            next_check = Instant::now() + usage.interval();
        }
    }
}

/// Sends a signal to what a command has left running.
fn signal_left(signal: u8) {
    if let Some(signal) = Signal::from_named_raw(signal.into()) {
        reaper::signal_all(signal);
    }
}

/// Sends a signal to the command and, where it leads one, to its group.
fn pass_on(signal: u8, command: Pid) {
    let Some(signal) = Signal::from_named_raw(signal.into()) else {
        return;
    };
    // Only this process reaps the command, so the pid still names it.
    let _ = match getpgid(Some(command)) {
        Ok(group) if group == command => kill_process_group(command, signal),
        _ => kill_process(command, signal),
    };
}
