"""Kills and costs of scripts/git-test."""

import random
import statistics
import threading
import time

import git_outside
import git_rows
import mcp_stdio

# What a server is killed in. Every round adds commits, so that later rounds meet a larger repository.
LOADS = {
    "commit": "printf '%s\\n' $N >>c && git add c && git commit -m c$N",
    "merge": "git switch -qc m$N && git commit -q --allow-empty -m m$N && git switch -q main"
    " && git merge --no-ff -m merge$N m$N && git branch -qd m$N && git commit --allow-empty -m after$N",
    "rebase": "git switch -qc r$N main~1 && git commit -q --allow-empty -m r$N && git rebase -q main"
    " && git switch -q main && git merge -q --ff-only r$N && git branch -qd r$N && git commit --allow-empty -m after$N",
    "gc": "git commit --allow-empty -m g$N && git gc -q --prune=now && git commit --allow-empty -m h$N",
}
LONGEST_LIFE = 0.8
RESET = "git rebase --abort; git merge --abort; git reset -q --hard; git switch -qf main"
TIMES = 20


def kills(world, rounds):
    """Kills a server in each round and looks at what is left: the numbers of rounds that passed and failed."""
    moments = random.Random(world.now)
    print(f"{rounds} kills, seed {world.now}")
    passed = failed = said = 0
    for number, kind in enumerate(LOADS):
        area = git_rows.Area(world, 900 + number, {})
        try:
            area.prepare(git_rows.parse("== kills\n< start; commit b b; commit c c\n")[0])
            for turn in range(number, rounds, len(LOADS)):
                try:
                    count, faults = kill(area, LOADS[kind], turn, moments.uniform(0.01, LONGEST_LIFE))
                except mcp_stdio.Ended as error:
                    count, faults = 0, [f"no server: {error}"]
                said += count
                passed, failed = passed + (not faults), failed + bool(faults)
                for fault in faults:
                    print(f"killed in {kind}, round {turn}: {fault}", flush=True)
        finally:
            area.set_aside("kills")
    print(f"{said} acknowledged commits, {passed} rounds passed, {failed} failed")
    return passed, failed


def kill(area, load, turn, life):
    """One life of a server: the number of commits that it acknowledged, and what is wrong afterwards."""
    server = area.server()
    told, number = [], 0
    timer = threading.Timer(life, server.kill)
    timer.start()
    try:
        while True:
            number += 1
            _, text = server.run(area.same_commits() + load.replace("$N", f"{turn}x{number}"))
            told += git_rows.ACKNOWLEDGED.findall(text)
    except mcp_stdio.Ended:
        timer.join()
    faults = [f"git fsck: {text[-300:]}" for code, text in [area.shell("git fsck --no-dangling --no-progress")] if code]
    faults += missing(area, told, "after the kill")
    server = area.server()
    try:
        for line in ("git status", f"{RESET}; git commit --allow-empty -m alive{turn}"):
            code, text = server.run(area.same_commits() + line)
            if code:
                faults.append(f"a new server: {line}: {text[-300:]}")
    finally:
        server.close()
    code, text = area.shell(f"{RESET}; git commit --allow-empty -m outside{turn}")
    if code:
        faults.append(f"outside: {text[-300:]}")
        area.shell(f"find .git -name '*.lock' -delete; {RESET}")
    return len(told), faults + missing(area, told, "after a new server")


def missing(area, told, when):
    there = git_outside.commits([area.ws], area.environment)
    gone = [commit for commit in told if not any(full.startswith(commit) for full in there)]
    return [f"acknowledged and not reachable {when}: {' '.join(gone)}"] if gone else []


def cost(world):
    """Prints what git costs through a server: medians of runs that take turns."""
    area = git_rows.Area(world, 950, {})
    folders = "for n in $(seq 100); do mkdir d$n; (cd d$n; seq 200 | split -l 1 -a 3 -); done"
    commit = "git -C small commit -q --allow-empty -m x"
    try:
        area.prepare(git_rows.parse(f"== cost\n< start; {folders}; git add .; git commit -qm many; start small\n")[0])
        server = area.server()
        try:
            status, plainly = medians(lambda: server.run("git status"), lambda: area.plain("git status"))
            print(f"git status on 20,000 files: {status:.1f} ms, plain {plainly:.1f} ms, ratio {status / plainly:.2f}")
            confined, nothing, plainly = medians(
                lambda: server.run(commit), lambda: server.run("true"), lambda: area.plain(commit)
            )
            print(f"a commit: {confined:.1f} ms, `true` confined {nothing:.1f} ms, plain commit {plainly:.1f} ms,")
            own = confined - nothing - plainly
            print(f"  ratio to `true` {confined / nothing:.2f}; {own:.1f} ms beside `true` and git's own time")
        finally:
            server.close()
    finally:
        area.set_aside("cost")


def medians(*runs):
    """The median time of each in milliseconds. They take turns; the first two turns warm the caches."""
    times = [[] for _ in runs]
    for turn in range(TIMES + 2):
        for column, run in zip(times, runs):
            begun = time.perf_counter()
            code, text = run()
            assert code == 0, text
            if turn > 1:
                column.append(1000 * (time.perf_counter() - begun))
    return map(statistics.median, times)
