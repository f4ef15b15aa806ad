"""What is done to the service in mid-load."""

import asyncio
import datetime
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

from postgres import ADMIN, ROLE, environment, fill_up, small_disk

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
#define SHIFT 300
static int (*real)(clockid_t, struct timespec *);
int clock_gettime(clockid_t id, struct timespec *t) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(id, t);
    if (!r && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += SHIFT;
    return r;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    int r = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return r;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""


class Fault:
    """A fault, how the service is set up for it, and what clients may notice."""

    seconds = None
    # Whether clients may lose connections, and script sessions their variables: only if a server is killed.
    breaks_connections = False
    ends_sessions = False
    needs_root = False

    def prepare(self, folder, stack):
        """Options of the service."""
        return {}

    async def inject(self, team, incident):
        raise NotImplementedError


class DatabaseKilled(Fault):
    name, what = "database-killed", "PostgreSQL killed (`kill -9`), started again after 4 s"

    async def inject(self, team, incident):
        incident.begin()
        incident.crash()
        await asyncio.to_thread(team.cluster.stop, signal.SIGKILL)
        await asyncio.sleep(4)
        team.cluster.launch()
        await asyncio.to_thread(team.cluster.wait_until_ready)
        incident.end()


class DatabaseRestarted(Fault):
    name, what = "database-restarted", "PostgreSQL restarted cleanly (`pg_ctl restart -m fast`)"

    async def inject(self, team, incident):
        incident.begin()
        await asyncio.to_thread(team.cluster.stop, signal.SIGINT)
        team.cluster.launch()
        await asyncio.to_thread(team.cluster.wait_until_ready)
        incident.end()


class ConnectionsTaken(Fault):
    """32 connections in all. Three servers want 27; for ten seconds they get 6, of which 3 go to `LISTEN`, and others take the rest."""

    name, what = "connections-taken", "connections exhausted: 6 left for three servers that want 27, for 10 s"
    left = 6

    def prepare(self, folder, stack):
        return {"postgres": {"max_connections": 32, "superuser_reserved_connections": 3}}

    async def inject(self, team, incident):
        incident.begin()
        team.cluster.sql("CREATE ROLE other LOGIN PASSWORD 'bench'")
        end = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{ROLE}'"
        await asyncio.to_thread(team.cluster.sql, f"ALTER ROLE {ROLE} CONNECTION LIMIT {self.left}; {end}")
        sleeping = [subprocess.Popen(team.cluster.psql("other", "postgres", "SELECT pg_sleep(10)"), env=environment(),
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(29 - self.left)]
        try:
            await asyncio.sleep(10)
        finally:
            for one in sleeping:
                one.kill()
                one.wait()
        team.cluster.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
        incident.end()


class DiskFull(Fault):
    """The cluster's folder, write-ahead log included, is on a file system of its own that is filled up for 8 seconds."""

    name, what = "disk-full", "the database's disk full for 8 s"
    needs_root = True

    def prepare(self, folder, stack):
        disk = stack.enter_context(small_disk(Path(folder) / "disk", 192))
        self.disk = disk
        # Small segments, so that the log needs new ones soon.
        return {"data": disk, "postgres": {"shared_buffers": "16MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}}

    async def inject(self, team, incident):
        incident.begin()
        ballast = fill_up(self.disk)
        # Commits go on in the segment that is there; the next one does not fit.
        await asyncio.sleep(3)
        try:
            await asyncio.to_thread(team.cluster.sql, "SELECT pg_switch_wal()", "postgres", 10)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            incident.notes.append(str(error).splitlines()[0][:200])
        await asyncio.sleep(5)
        crashed = not team.cluster.answers()
        incident.notes.append(f"PostgreSQL {'crashed' if crashed else 'went on'} with the disk full")
        ballast.unlink()
        if not team.cluster.is_running():
            team.cluster.launch()
        await asyncio.to_thread(team.cluster.wait_until_ready)
        incident.end()


class SlowDatabase(Fault):
    name, what = "slow-database", "every request to the database takes 50 ms longer, for 12 s"

    def prepare(self, folder, stack):
        return {"through_proxy": True}

    async def inject(self, team, incident):
        incident.begin()
        team.database_proxy.obey("delay 0.05")
        await asyncio.sleep(12)
        team.database_proxy.obey("delay 0")
        incident.end()


class NetworkCut(Fault):
    name, what = "network-cut", "nothing arrives from the database for 20 s, connections stay open"
    seconds = 40

    def prepare(self, folder, stack):
        return {"through_proxy": True}

    async def inject(self, team, incident):
        incident.begin()
        team.database_proxy.obey("cut")
        await asyncio.sleep(20)
        team.database_proxy.obey("open")
        incident.end()


class NetworkReset(NetworkCut):
    name, what = "network-reset", "every connection to the database reset (RST), and each new one for 5 s"
    seconds = None

    async def inject(self, team, incident):
        incident.begin()
        team.database_proxy.obey("reset")
        await asyncio.sleep(5)
        team.database_proxy.obey("open")
        incident.end()


class ServerKilled(Fault):
    """A server is stopped until one of its leases is seen in the database, then killed; it is started again after 3 s."""

    name, what = "server-killed", "a server killed (`kill -9`) while it holds a lease, started again after 3 s"
    seconds = 40
    breaks_connections = ends_sessions = True
    lease_seconds = 5

    def prepare(self, folder, stack):
        return {"settings": {"mcp.locks.lease_s": self.lease_seconds}}

    async def inject(self, team, incident):
        server = team.servers[0]
        leases = lambda: set(team.cluster.sql("SELECT token FROM llmc.leases WHERE expires_at > now()").split())
        held, deadline = set(), time.time() + 15
        while not held and time.time() < deadline:
            # Long enough to write the telemetry of the pause before.
            await asyncio.sleep(0.6)
            stopped = time.time()
            server.process.send_signal(signal.SIGSTOP)
            before = await asyncio.to_thread(leases)
            await asyncio.sleep(0.3)
            # Other servers hold a lease for some milliseconds only.
            held = before & await asyncio.to_thread(leases)
            if not held:
                server.process.send_signal(signal.SIGCONT)
        incident.begin()
        # From then on it has done nothing.
        incident.crashes.append(stopped)
        server.kill()
        incident.notes.append(f"it held {len(held)} lease{'' if len(held) == 1 else 's'}")
        await asyncio.sleep(3)
        server.launch()
        await asyncio.to_thread(server.wait_until_ready)
        incident.end()


class Migrations(Fault):
    """The servers start at the same moment on an empty database, and two operators migrate it at once in mid-load."""

    name, what = "migrations", "three servers create the tables at once; two migrations at once in mid-load"

    def prepare(self, folder, stack):
        return {"migrates": False}

    async def inject(self, team, incident):
        incident.begin()
        await asyncio.gather(*(asyncio.to_thread(team.run, "store", "migrate") for _ in range(2)))
        incident.end()


class ClockSkew(Fault):
    """One server's clock is five minutes fast from its start on, by a library that shifts what the C library tells."""

    name, what = "clock-skew", "one server's clock five minutes fast"

    def prepare(self, folder, stack):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            raise RuntimeError("clock-skew needs a C compiler")
        source, library = Path(folder) / "shift.c", Path(folder) / "shift.so"
        source.write_text(SHIM)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        return {"env": {1: {"LD_PRELOAD": str(library)}}}

    async def inject(self, team, incident):
        incident.begin()
        ahead = clock_of(team.servers[0]) - time.time()
        incident.notes.append(f"its log is {ahead:.0f} s ahead")
        if not 290 < ahead < 310:
            raise RuntimeError(f"the clock of the server could not be shifted: {ahead:.0f} s")
        incident.end()


def clock_of(server):
    """The time of the last line in a server's log."""
    last = server.log.read_text().splitlines()[-1]
    return datetime.datetime.fromisoformat(json.loads(last)["ts"].replace("Z", "+00:00")).timestamp()


FAULTS = {fault.name: fault for fault in (
    DatabaseKilled, DatabaseRestarted, ConnectionsTaken, DiskFull, SlowDatabase, NetworkCut, NetworkReset, ServerKilled,
    Migrations, ClockSkew,
)}
