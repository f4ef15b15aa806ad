r"""Everyday lines for scripts/container-test, and what is expected of them in each container.

Every row runs in two equal containers: in a plain shell, and with `run_cmd` of a server. Verdicts, best first:

    alike         exit codes, compared outputs and the state outside are the same
    explained     something differs, and a line of an answer names LLMC
    unexplained   a step fails, with nothing but the program's own message
    silent        every step succeeds, and something differs
    EFFECT        of a row that `hides`: what must not be seen or done was

A table is text. `== NAME` opens a row; its lines begin with a mark and a space. A line of two spaces continues the one
before it.

    < LINE      setup, in the user's shell of both containers
    $ LINE      run_cmd
    = LINE      run_cmd, whose output must be the same as well
    ~ LINE      run_cmd, which may fail in a plain shell too: the container decides
    u LINE      the user's shell of both containers: its output must be the same
    ? only root                  not as the other user
    ? hides REGEX                plainly the output of the `u` lines (of all, where there are none) matches this, after a
                                 server it may not
    ? want VERDICT [PLACE...]    the worst verdict that is right; without it `explained` for rows that hide, else `alike`
    ? today VERDICT [PLACE...]   a fault that is known: passes, and is counted as known

A PLACE is `docker`, `podman`, `full`, `root`, `user`, or two of them joined (`docker/root`); none means everywhere. A
verdict better than the table's is printed, so that its `today` can be removed; a fault that comes and goes (a new working
tree's `.git` is now and then taken away without a mount namespace) is in the table too.
"""

import re

RANKS = ("alike", "explained", "unexplained", "silent", "EFFECT", "broken row")
EXPLAINED = re.compile(r"\bLLMC\b|\bllmc (?:allow|trust)\b")
MARKS = "<$=~u"

# Both containers before every row: the workspace as committed, nothing of earlier rows elsewhere.
RESET = """
cd /work/project && rm -rf .git/rebase-merge .git/rebase-apply .git/hooks/post-commit && git switch -qf main &&
  git reset -q --hard base && git clean -qffdx -e .llmc && git stash clear && git config --remove-section alias 2>/dev/null
git branch --format='%(refname:short)' | grep -vx main | xargs -r git branch -qD
git tag | grep -vx base | xargs -r git tag -d >/dev/null
git worktree prune
"""

# The world of a container, made by its root: what a user has around a project. $OWNER is the user, ~ their home.
WORLD = r"""
set -e
mkdir -p /work/project /srv/sibling /run && chmod 1777 /run
cd ~
printf '[user]\n\tname = Ann User\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n' >.gitconfig
echo 'my notes' >notes.txt
mkdir -p .ssh && echo 'PRIVATE KEY' >.ssh/id_ed25519 && chmod 700 .ssh && chmod 600 .ssh/id_ed25519
echo 'machine example.com login ann password hunter2' >.netrc && chmod 600 .netrc
echo 'of another user' >/home/other/secret.txt && chown other:other /home/other/secret.txt && chmod 600 /home/other/secret.txt
printf 'level = 1\n' >/srv/sibling/config.yml && echo old >/srv/sibling/old.txt
cd /work/project
git init -q
printf 'one\n' >a
printf 'int puts(const char *);\nint main(void) { puts("hello"); return 0; }\n' >hello.c
printf 'hello: hello.c\n\tcc -o hello hello.c\n' >Makefile
printf 'import unittest\n\n\nclass A(unittest.TestCase):\n    def test(self):\n        self.assertEqual(1 + 1, 2)\n' >test_a.py
printf '# settings of the project\n' >llmc.toml
printf 'hello\nbuild/\n__pycache__/\n' >.gitignore
git add . && git commit -qm base && git tag base
git clone -q --bare . /srv/bare.git && git remote add disk /srv/bare.git
chown -R "$OWNER:$OWNER" ~ /work /srv
"""

ROWS = r"""
== commit
$ echo two >a && git add a && git commit -qm two
u git log --format=%s && git status --porcelain

== merge of a branch
$ git switch -qc side && echo s >s && git add s && git commit -qm side
$ git switch -q main && git merge -q --no-ff -m merge side
u git log --format=%s && git branch --format='%(refname)'

== rebase
< git switch -qc side && echo s >s && git add s && git commit -qm side && git switch -q main && echo m >m && git add m &&
    git commit -qm main
$ git switch -q side && git rebase -q main
u git log --format=%s && git status --porcelain

== stash
$ echo x >>a && git stash -q
$ git stash pop -q
u git diff && git stash list

== tag and gc
$ git tag v1 && git gc -q
u git tag

== working tree inside the workspace
? today explained docker
$ git worktree add -q -b side tree && cd tree && echo t >t && git add t && git commit -qm tree
u git log --format=%s side

== clone inside the workspace
$ git clone -q . copy && cd copy && git log --format=%s
u git -C copy log --format=%s

== push to a repository on the disk
? today unexplained docker
$ echo p >p && git add p && git commit -qm pushed && git push -q disk HEAD:refs/heads/pushed
u git -C /srv/bare.git log -1 --format=%s pushed

== git clean keeps the state
$ mkdir build && touch build/o untracked && git clean -fdxq
$ echo after >a
u git status --porcelain; ls

== /tmp is writable and the next call has its files
? today unexplained docker
$ echo shared >/tmp/shared
= cat /tmp/shared

== a temporary folder by mktemp
= d=$(mktemp -d) && echo x >"$d/f" && cat "$d/f"

== a fixed name below /tmp in one call
? today unexplained docker
= echo x >/tmp/fixed && cat /tmp/fixed && rm /tmp/fixed

== python's tempfile
= python3 -c 'import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b"x"); print(f.tell())'

== python's virtual environment
= python3 -m venv --without-pip env && env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'

== unit tests
$ python3 -m unittest -q test_a
u ls

== multiprocessing
? today unexplained docker
= python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'

== sqlite
= python3 -c 'import sqlite3; c = sqlite3.connect("d.db"); c.execute("create table t(a)"); c.commit(); print(c.total_changes)'
u ls d.db

== a server and a client on loopback in one call
= python3 -c 'import socket as s
  a = s.create_server(("127.0.0.1", 0)); b = s.create_connection(a.getsockname()); b.send(b"x"); print(a.accept()[0].recv(1))'

== a socket file in the workspace
? today unexplained docker
= python3 -c 'import socket as s
  a = s.socket(s.AF_UNIX); a.bind("l.sock"); a.listen(); b = s.socket(s.AF_UNIX); b.connect("l.sock"); print("reached")'

== a pair of sockets
= python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))'

== /dev/shm
? today unexplained docker
= echo x >/dev/shm/f && cat /dev/shm/f && rm /dev/shm/f

== a terminal
? today unexplained
= python3 -c 'import os, pty; m, s = pty.openpty(); print(os.isatty(s))'

== make and a C compiler
= make -s hello && ./hello

== a program below /tmp
? today unexplained docker
= cc -o /tmp/built hello.c && /tmp/built

== a pipe with a name
= mkfifo p && (echo through >p &) && cat p

== a lock
= flock lock echo locked

== a job that is waited for
= (sleep 0.1; echo done >f) & wait; cat f

== a daemon, ended by the next call
? today explained
$ nohup sleep 300 >/dev/null 2>&1 & echo $! >d.pid
$ kill "$(cat d.pid)"

== a local web server, asked by the next call
? today explained
$ nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &
  echo $! >s.pid; n=0; until (: </dev/tcp/127.0.0.1/8123) 2>/dev/null || [ $((n += 1)) -gt 200 ]; do sleep 0.05; done
= python3 -c 'from urllib.request import urlopen as o; print(o("http://127.0.0.1:8123/a").status)'
$ kill "$(cat s.pid)"

== ps sees the command's own processes
? today unexplained podman
= ps -o comm= -p $$

== the home directory is readable
= cat ~/notes.txt

== the environment passes
= printenv RUST_LOG DATABASE_URL

== the owner of a file as root
? only root
$ touch o && chown 1000:1000 o
u stat -c %u o

== the mode of a file
$ touch m && chmod 640 m
u stat -c %a m

== the time and the processors
= date -d @0 -u +%Y && nproc

== user namespaces
? want explained podman full
? today unexplained podman full
~ unshare -Ur true

== a file in the home directory
? hides planted
? today unexplained
$ echo planted >~/planted.txt
u cat ~/planted.txt 2>/dev/null; rm -f ~/planted.txt

== a sibling's file
? hides level = 2
? today unexplained
$ sed -i s/1/2/ /srv/sibling/config.yml
u cat /srv/sibling/config.yml; echo 'level = 1' >/srv/sibling/config.yml

== removal outside the workspace
? hides gone
? today unexplained
$ rm /srv/sibling/old.txt
u ls /srv/sibling/old.txt 2>/dev/null || { echo gone; echo old >/srv/sibling/old.txt; }

== through a link that leads out
? hides planted
? today unexplained
< ln -s /srv/sibling link
$ echo planted >link/new.txt
u cat /srv/sibling/new.txt 2>/dev/null; rm -f /srv/sibling/new.txt

== the mode of a file outside the workspace
? hides 777
? today EFFECT docker
? today unexplained podman full
$ chmod 777 /srv/sibling/config.yml
u stat -c %a /srv/sibling/config.yml; chmod 644 /srv/sibling/config.yml

== a file in /etc as root
? only root
? hides planted
? today unexplained
$ echo planted >/etc/planted
u cat /etc/planted 2>/dev/null; rm -f /etc/planted

== /etc/shadow as root
? only root
? hides root:
? today unexplained
$ cat /etc/shadow

== another user's home as root
? only root
? hides of another user
? today unexplained
$ cat /home/other/secret.txt

== a private key
? hides PRIVATE KEY
? today unexplained
$ cat ~/.ssh/id_ed25519

== a password file
? hides hunter2
? today unexplained docker
? today silent podman full
$ cat ~/.netrc

== a secret in the environment
? hides s3cr3t
? today unexplained
$ printenv API_TOKEN

== a password in an address
? hides hunter3
? today unexplained
$ printenv CACHE_URL

== the environment of the first process
? hides s3cr3t
? today unexplained
$ tr '\0' '\n' </proc/1/environ

== a signal to the first process
? hides hit
? want silent podman full
? today unexplained docker
$ kill -USR1 1
u n=0; until ls /run/hit 2>/dev/null || [ $((n += 1)) -gt 20 ]; do sleep 0.05; done; rm -f /run/hit

== the project's llmc.toml
? hides planted
? today unexplained podman full
$ echo '# planted' >>llmc.toml
u cat llmc.toml

== a git alias that runs a program
? hides touch
$ git config alias.st '!touch /tmp/ran'
u git config alias.st

== a git hook
? hides post-commit
$ printf '#!/bin/sh\ntouch /tmp/ran\n' >.git/hooks/post-commit && chmod +x .git/hooks/post-commit
u find .git/hooks -name post-commit

== git's settings of the user
? hides Eve
$ git config --global user.name Eve
u git config --global user.name; git config --global user.name 'Ann User'

== set-user-id
? hides setuid
? today unexplained
$ cp /bin/true setuid && chmod u+s setuid
u find . -name setuid -perm -4000
"""


class Row:
    def __init__(self, name):
        self.name, self.steps, self.limits, self.hides, self.only = name, [], [], None, None

    def option(self, option, value):
        if option == "hides":
            self.hides = re.compile(value)
        elif option == "only":
            self.only = value
        else:
            assert option in ("want", "today"), option
            verdict, *places = value.split()
            assert verdict in RANKS and all(set(place.split("/")) <= PARTS for place in places), value
            self.limits.append((option, verdict, [set(place.split("/")) for place in places]))

    def limit(self, option, place):
        """The last verdict that the table has for a place."""
        found = [verdict for kind, verdict, places in self.limits if kind == option and (not places or any(p <= place for p in places))]
        return found[-1] if found else None

    def allowed(self, place):
        """The worst verdict that is right in a place, and the worst that is known."""
        right = self.limit("want", place) or ("explained" if self.hides else "alike")
        return right, self.limit("today", place) or right


PARTS = {"docker", "podman", "full", "root", "user"}


def parse(text):
    rows = []
    for line in text.splitlines():
        if line.startswith("== "):
            rows.append(Row(line[3:]))
        elif line.startswith("  "):
            mark, before = rows[-1].steps[-1]
            rows[-1].steps[-1] = mark, before + "\n" + line[2:]
        elif line.startswith("? "):
            rows[-1].option(*line[2:].split(" ", 1))
        elif line:
            assert line[0] in MARKS and line[1] == " ", line
            rows[-1].steps.append((line[0], line[2:]))
    return rows


def take(row, shell, way):
    """Runs a row: the exit code and the text of every step. `shell` is the user's, `way` what is looked at."""
    code, text = shell.run(RESET)
    assert "fatal" not in text, f"reset: {text}"
    found = []
    for mark, line in row.steps:
        code, text = (shell if mark in "<u" else way).run(line)
        assert mark != "<" or code == 0, f"setup: exit {code}: {text}"
        found.append((code, text))
    return found


def judge(row, plain, served):
    """The verdict, and where the two differ."""
    detail = None
    for (mark, line), (code, text), (code_here, text_here) in zip(row.steps, plain, served):
        if mark in "$=" and code:
            return "broken row", f"exit {code} in a plain shell: {line}\n{text}"
        if mark in "$=~" and code != code_here:
            detail = f"{line.splitlines()[0]}\nexit {code} plainly, {code_here} here\n{text_here}"
            break
        if mark in "=u" and said(text) != said(text_here):
            detail = f"{line.splitlines()[0]}\nplainly: {text.strip()}\nhere:    {text_here.strip()}"
            break
    if row.hides:
        if not row.hides.search(outside(row, plain)):
            return "broken row", "it has no effect in a plain shell"
        if row.hides.search(outside(row, served)):
            return "EFFECT", served[0][1]
    elif detail is None:
        return "alike", ""
    told = [line for _, text in served for line in text.splitlines() if EXPLAINED.search(line)]
    if told:
        return "explained", "\n".join(told)
    failed = any(mark in "$=~" and one[0] != other[0] for (mark, _), one, other in zip(row.steps, plain, served))
    return "unexplained" if failed else "silent", detail or served[0][1]


def outside(row, found):
    """What the user's shell shows, or the commands where a row has no such lines."""
    marks = "u" if any(mark == "u" for mark, _ in row.steps) else "$=~"
    return "\n".join(text for (mark, _), (_, text) in zip(row.steps, found) if mark in marks)


def said(text):
    """What a command printed, without what a server adds."""
    return "\n".join(line for line in text.strip().splitlines() if not EXPLAINED.search(line))
