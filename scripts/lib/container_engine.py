"""Containers for scripts/container-test: Debian's packages, one cached root, podman with a storage of its own.

Nothing is pulled. The root comes from debootstrap and is kept as a tar below the user's cache, named after its release and
packages; a run unpacks it, and every container is an overlay over that folder. Root, run root, temporary folder, volumes
and configuration of podman are the run's own, so the machine's containers and images are neither seen nor changed.
Standard library only.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time

# Programs and the Debian packages that bring them.
PROGRAMS = {"podman": "podman", "runc": "runc", "debootstrap": "debootstrap"}
# What the root holds beyond Debian's minimum.
BASE_PACKAGES = ("ca-certificates", "gcc", "git", "libc6-dev", "make", "procps", "python3")
# Half of the root, and no program reads it.
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/lib/apt/lists")
PACKAGED_PROFILES = ("/usr/share/containers/seccomp.json", "/etc/containers/seccomp.json")
USER, OTHER = 1000, 1001

# System calls that podman's packaged profile always allows, and Docker's default only with a capability that its
# containers do not have (CAP_SYS_ADMIN; CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_BOOT, CAP_SYSLOG for the last line).
DOCKER_REFUSES = """
    fsconfig fsmount fsopen fspick keyctl mount mount_setattr move_mount open_tree pivot_root setns umount umount2 unshare
    get_mempolicy mbind pidfd_getfd reboot set_mempolicy syslog
""".split()
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
NAMESPACE_FLAGS = 0x7E020000
EPERM, ENOSYS = 1, 38

# Every set-up's options for `podman run`. Docker's containers have three more capabilities than podman's.
SETUPS = {
    "docker": ["--cap-add", "AUDIT_WRITE,MKNOD,NET_RAW", "--security-opt", "seccomp=@PROFILE"],
    "podman": [],
    "full": ["--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined"],
}

# The first process of a container: it notes SIGUSR1, so that a row can see whether a signal came through.
FIRST_PROCESS = "trap 'touch /run/hit' USR1; while :; do sleep 60 & wait $!; done"


class Unavailable(Exception):
    """What is needed for containers cannot be had on this machine."""


def output(command, what, error=Unavailable, **options):
    """The output of a program that must succeed, or `error`."""
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900, **options)
    if found.returncode:
        raise error(f"{what}: {(found.stderr or found.stdout).strip()[-600:]}")
    return found.stdout


def install():
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise Unavailable(f"{' '.join(missing)} are not installed, and there is no apt-get")
    print(f"installing {' '.join(missing)}", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output(["apt-get", "update", "-qq"], "package lists", env=quiet)
    output(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], "packages", env=quiet)


def release():
    """This machine's Debian release: an executable that was linked here finds the same libraries there."""
    with open("/etc/os-release") as file:
        values = dict(line.strip().split("=", 1) for line in file if "=" in line)
    return values.get("VERSION_CODENAME", "").strip('"') or "stable"


def base(cache):
    """The tar of the root, made when it is not there; the file's name says of what it was made."""
    suite = release()
    kept = hashlib.sha256(repr((suite, platform.machine(), BASE_PACKAGES, UNUSED, USER, OTHER)).encode()).hexdigest()[:12]
    path = f"{cache}/{suite}-{kept}.tar"
    os.makedirs(cache, exist_ok=True)
    with open(f"{cache}/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            make_base(suite, path)
    if owner := os.environ.get("SUDO_UID"):
        for name in (cache, f"{cache}/.lock", path):
            os.chown(name, int(owner), int(os.environ.get("SUDO_GID", "-1")))
    return path


def make_base(suite, path):
    print(f"making the base of the containers ({suite}, once)", flush=True)
    work = tempfile.mkdtemp(prefix="container-base-", dir="/var/tmp")
    root = work + "/root"
    try:
        packages = ",".join(BASE_PACKAGES)
        output(["debootstrap", "--variant=minbase", f"--include={packages}", suite, root], "debootstrap")
        for name, number in (("dev", USER), ("other", OTHER)):
            output(["chroot", root, "useradd", "-m", "-u", str(number), "-s", "/bin/bash", name], "a user")
        for name in UNUSED:
            shutil.rmtree(f"{root}/{name}", ignore_errors=True)
        archives = f"{root}/var/cache/apt/archives"
        for name in os.listdir(archives):
            if name.endswith(".deb"):
                os.remove(f"{archives}/{name}")
        output(["tar", "-C", root, "--numeric-owner", "-cf", path + ".part", "."], "tar")
        os.rename(path + ".part", path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def docker_profile():
    """Docker's default seccomp profile, as far as the two differ for a server, made of the one that podman's package has.

    Both have one origin. What differs: namespaces, mounts, keys and a few more (`DOCKER_REFUSES`); `clone` without flags for
    namespaces; `clone3`, whose flags a filter cannot see, as if the kernel had none.
    """
    path = next((path for path in PACKAGED_PROFILES if os.path.exists(path)), None)
    if path is None:
        raise Unavailable("podman's seccomp.json is not installed (containers-common)")
    with open(path) as file:
        profile = json.load(file)
    taken = {*DOCKER_REFUSES, "clone", "clone3"}
    rules = [{**rule, "names": [name for name in rule["names"] if name not in taken]} for rule in profile["syscalls"]]
    flags = {"index": 0, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    profile["syscalls"] = [rule for rule in rules if rule["names"]] + [
        {"names": DOCKER_REFUSES, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [flags]},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
    ]
    return profile


class Engine:
    """Podman with its own storage in a temporary folder, and the root that its containers have."""

    def __init__(self, llmc, cache):
        self.folder = tempfile.mkdtemp(prefix="container-test-", dir="/var/tmp")
        try:
            self.prepare(llmc, cache)
        except BaseException:
            self.remove()
            raise

    def prepare(self, llmc, cache):
        folder = self.folder
        self.root = folder + "/base"
        os.mkdir(self.root)
        output(["tar", "-C", self.root, "--numeric-owner", "-xpf", base(cache)], "the base")
        shutil.copy(llmc, self.root + "/usr/local/bin/llmc")
        os.chmod(self.root + "/usr/local/bin/llmc", 0o755)
        with open(folder + "/docker.json", "w") as file:
            json.dump(docker_profile(), file)
        with open(folder + "/containers.conf", "w") as file:
            file.write("[engine]\n")
        with open(folder + "/storage.conf", "w") as file:
            file.write(f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/storage"\n')
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": folder + "/containers.conf",
            "CONTAINERS_STORAGE_CONF": folder + "/storage.conf",
        }
        places = ["--root", folder + "/storage", "--runroot", folder + "/run", "--tmpdir", folder + "/tmp"]
        places += ["--volumepath", folder + "/volumes", "--storage-driver", "overlay"]
        self.podman = ["podman", *places, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def run(self, name, setup, user, variables):
        """Starts a container that waits, as a user of it."""
        options = [option.replace("@PROFILE", self.folder + "/docker.json") for option in SETUPS[setup]]
        for key, value in variables.items():
            options += ["--env", f"{key}={value}"]
        # Limits of the host's session would otherwise be asked for, which not every machine may give.
        options += ["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096"]
        options += ["--network", "none", "--user", str(user), "--name", name, "--rootfs", self.root + ":O"]
        output([*self.podman, "run", "-d", *options, "bash", "-c", FIRST_PROCESS], f"container {name}", env=self.environment)

    def exec(self, name, user, *command, cwd="/"):
        """The command line that runs a command in a container."""
        return [*self.podman, "exec", "-i", "-u", str(user), "-w", cwd, name, *command]

    def inside(self, name, user, *command, cwd="/"):
        line = self.exec(name, user, *command, cwd=cwd)
        return output(line, " ".join(command)[:80], AssertionError, env=self.environment)

    def remove(self):
        if hasattr(self, "podman"):
            remove = [*self.podman, "rm", "-fa", "-t", "0"]
            subprocess.run(remove, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment, timeout=120)
        with open("/proc/self/mountinfo") as file:
            mounted = [line.split()[4] for line in file]
        for path in sorted((path for path in mounted if path.startswith(self.folder + "/")), key=len, reverse=True):
            subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL, check=False)
        # Faster than shutil.rmtree, which matters with a whole root. Podman's clean-up after a container is a process of
        # its own, which may still write here.
        deadline = time.monotonic() + 30
        while os.path.exists(self.folder) and time.monotonic() < deadline:
            subprocess.run(["rm", "-rf", "--one-file-system", self.folder], stderr=subprocess.DEVNULL, check=False)
