"""Processes that end with the benchmark, and what they cost."""

import ctypes
import os
import signal
import socket
from pathlib import Path

PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None)


def dies_with_us(how=signal.SIGKILL):
    """For `preexec_fn`: the child gets this signal when the thread that starts it ends, whatever ends it."""
    return lambda: LIBC.prctl(PR_SET_PDEATHSIG, how, 0, 0, 0)


def cpu_of(pid):
    """CPU seconds of a process, and of its children that have ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(word) for word in words[11:15]) / TICKS


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
