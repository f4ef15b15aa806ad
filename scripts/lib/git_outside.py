"""What git and the file system say about an area, read from outside by an ordinary user, for scripts/git-test.

A state is a set of lines `kind|where|what`. Two areas that went through the same steps have the same lines.
"""

import hashlib
import os
import subprocess

# A missing line of one of these kinds is something that a user lost; one of another kind is an effect that is missing.
KEPT = ("ref", "log", "config", "file")
# State of the server and of other programs in the home directory.
NOT_LISTED = (".llmc", ".cache", ".config", ".local")
STATE_FILES = (
    "MERGE_HEAD MERGE_MSG MERGE_MODE MERGE_AUTOSTASH CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD ORIG_HEAD FETCH_HEAD "
    "SQUASH_MSG BISECT_LOG BISECT_TERMS BISECT_START BISECT_NAMES BISECT_EXPECTED_REV shallow gitdir commondir "
    "info/exclude info/attributes info/sparse-checkout objects/info/alternates"
).split()
STATE_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
# Beyond this number of repositories only the branch, its commit and the status of each are compared.
MANY = 40


def state(places, environment):
    lines, works, bares = set(), [], []
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name not in NOT_LISTED]
            for name in list(folders):
                path = os.path.join(folder, name)
                if name == ".git":
                    # With nothing but a server's state it is no repository to git.
                    if os.listdir(path) != ["llmc"]:
                        works.append(folder)
                elif name.endswith(".git") and os.path.isfile(os.path.join(path, "HEAD")):
                    bares.append(path)
                elif os.path.islink(path):
                    lines.add(f"file|{path}|-> {os.readlink(path)}")
                    continue
                else:
                    lines.add(f"file|{path}|folder")
                    continue
                folders.remove(name)
            for name in files:
                path = os.path.join(folder, name)
                if name == ".git":
                    works.append(folder)
                lines.add(f"file|{path}|{content(path)}")
    few = len(works) + len(bares) <= MANY
    for where in works + bares:
        lines |= repository(where, where in bares, few, environment)
    return lines


def content(path):
    """A file's bits for execution and a hash of its bytes."""
    try:
        if os.path.islink(path):
            return "-> " + os.readlink(path)
        with open(path, "rb") as file:
            return f"{os.stat(path).st_mode & 0o111:o} {hashlib.sha1(file.read()).hexdigest()[:12]}"
    except OSError as error:
        return f"unreadable: {error.strerror}"


def git(where, environment, *arguments):
    command = ["git", "-C", where, *arguments]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return ran.returncode, ran.stdout.decode(errors="replace").splitlines()


def repository(where, bare, few, environment):
    environment = dict(environment, GIT_OPTIONAL_LOCKS="0")

    def said(kind, *arguments):
        code, text = git(where, environment, *arguments)
        return {f"{kind}|{where}|{line}" for line in text} | ({f"{kind}|{where}|exit {code}"} if code else set())

    lines = said("ref", "symbolic-ref", "-q", "HEAD") | said("ref", "rev-parse", "-q", "--verify", "HEAD")
    if not bare:
        # Quoted names: a space is an ordinary letter of one.
        lines |= said("status", "status", "--porcelain=v2", "--branch", "--untracked-files=all")
    if not few:
        return lines
    lines |= said("ref", "for-each-ref", "--format=%(refname) %(objectname) %(symref) %(upstream)")
    lines |= said("config", "config", "--local", "--list")
    lines |= said("operation", "worktree", "list", "--porcelain")
    lines |= {line for line in said("fsck", "fsck", "--no-dangling", "--no-progress") if "notice: " not in line}
    if not bare:
        lines |= said("index", "ls-files", "-s", "-v")
    code, folders = git(where, environment, "rev-parse", "--absolute-git-dir", "--git-common-dir")
    if code:
        return lines
    for folder in {os.path.realpath(os.path.join(where, folder)) for folder in folders}:
        lines |= inside(where, folder)
    return lines


def inside(where, folder):
    """The files of a git directory that its commands do not show."""
    lines = set()
    for name in STATE_FILES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            lines.add(f"operation|{where}|{name} {content(path)}")
    for name in STATE_FOLDERS:
        for inner, _, files in os.walk(os.path.join(folder, name)):
            for file in files:
                path = os.path.join(inner, file)
                lines.add(f"operation|{where}|{os.path.relpath(path, folder)} {content(path)}")
    for name in sorted(listed(os.path.join(folder, "hooks"))):
        if not name.endswith(".sample"):
            lines.add(f"hook|{where}|{name} {content(os.path.join(folder, 'hooks', name))}")
    for name in ("worktrees", "modules"):
        lines |= {f"operation|{where}|{name}/{one}" for one in listed(os.path.join(folder, name))}
    packs = [name for name in listed(os.path.join(folder, "objects", "pack")) if name.endswith(".pack")]
    lines.add(f"objects|{where}|{len(packs)} packs")
    logs = os.path.join(folder, "logs")
    for inner, _, files in os.walk(logs):
        for name in files:
            path = os.path.join(inner, name)
            log = f"log|{where}|{os.path.relpath(path, logs)}"
            with open(path, errors="replace") as file:
                lines |= {f"{log} {number} {text}" for number, text in enumerate(file.read().splitlines())}
    return lines


def listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def commits(places, environment):
    """Every commit that is reachable from a ref or a reflog of a repository below these places."""
    found = set()
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name not in NOT_LISTED]
            for name in list(folders):
                if name == ".git" or name.endswith(".git"):
                    found |= set(git(os.path.join(folder, name), environment, "rev-list", "--all", "--reflog", "HEAD")[1])
                    folders.remove(name)
            if ".git" in files:
                found |= set(git(folder, environment, "rev-list", "--all", "--reflog", "HEAD")[1])
    return found
