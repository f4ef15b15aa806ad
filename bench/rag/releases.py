"""A repository out of a package's releases: one commit for each, and what its changelog says of it as the message.

    python3 bench/rag/releases.py WORK PACKAGE CHANGELOG 13.0.0..13.9.4

needs pip and git. Wheels hold the code as it was; CHANGELOG is the changelog of a later source archive. A release whose
notes are not in it is a commit that `commits.py` passes over.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path


def versions(package):
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], check=True, capture_output=True, text=True).stdout
    line = next(line for line in listed.splitlines() if line.startswith("Available versions:"))
    plain = [v.strip() for v in line.partition(":")[2].split(",") if re.fullmatch(r"[\d.]+", v.strip())]
    return sorted(plain, key=number)


def number(version):
    return tuple(int(part) for part in version.split("."))


def notes(changelog, version):
    """What a changelog says under the heading of a version."""
    lines = changelog.splitlines()
    heading = re.compile(rf"^(#+\s*)?\[?(v|version\s+)?{re.escape(version)}(\]|\s|$|:|\()", re.IGNORECASE)
    other = re.compile(r"^(#+\s*)?\[?(v|version\s+)?\d+\.\d+(\.\d+)?(\]|\s|$|:|\()", re.IGNORECASE)
    start = next((at for at, line in enumerate(lines) if heading.match(line)), None)
    if start is None:
        return ""
    body = []
    for line in lines[start + 1:]:
        if other.match(line):
            break
        if not re.match(r"^\s*(#+ |[-=~]{3,}$|Released |Unreleased)", line):
            body.append(line)
    return "\n".join(body).strip()


def main():
    work, package, changelog, span = sys.argv[1:]
    work, changelog = Path(work), Path(changelog).read_text()
    first, last = map(number, span.split(".."))
    repository, wheels = work / package, work / "wheels"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    git = ["git", "-C", repository, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    for version in versions(package):
        if not first <= number(version) <= last:
            continue
        fetched = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, f"{package}=={version}"], capture_output=True)
        prefix = f"{package}-{version}-".replace("-", "_").lower()
        found = [wheel for wheel in wheels.glob("*.whl") if wheel.name.replace("-", "_").lower().startswith(prefix)]
        if fetched.returncode or not found:
            continue
        for entry in repository.iterdir():
            if entry.name != ".git":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        with zipfile.ZipFile(found[0]) as wheel:
            wheel.extractall(repository, [n for n in wheel.namelist() if ".dist-info/" not in n])
        subprocess.run([*git, "add", "-A"], check=True)
        message = notes(changelog, version) or version
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)


main()
