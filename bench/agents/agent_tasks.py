"""The tasks: a released version of a project with a fault that its next release repaired, and the report of that fault."""

import subprocess
import sys
import tarfile
from dataclasses import dataclass

import peers

PYTEST = "pytest==8.4.2"
# A test of click that fails now and then on the untouched release.
FLAKY = "echo_via_pager"


@dataclass(frozen=True)
class Task:
    """One fault."""

    key: str
    package: str
    version: str
    report: str
    # Python that fails while the fault is there.
    check: str


TASKS = [
    Task(
        "flask-keys", "flask", "3.1.0",
        "SECRET_KEY_FALLBACKS is documented with the most recent key first, and new sessions must be signed with "
        "SECRET_KEY. With fallbacks configured, sessions are signed with the wrong key. Repair it and add a test.",
        """
import flask
app = flask.Flask("x")
app.secret_key = "new"
app.config["SECRET_KEY_FALLBACKS"] = ["old1", "old0"]
serializer = app.session_interface.get_signing_serializer(app)
assert list(serializer.secret_keys) == [b"old0", b"old1", b"new"], serializer.secret_keys
""",
    ),
    Task(
        "flask-redirects", "flask", "3.1.1",
        "In the test client, a `with client:` block that calls `client.get(..., follow_redirects=True)` ends with the "
        "session of the first request instead of that of the last one: contexts that are preserved are pushed in the "
        "wrong order. Repair it and add a test.",
        """
import flask
app = flask.Flask("x")
app.secret_key = "k"
@app.get("/")
def index():
    return flask.redirect("/2")
@app.get("/2")
def second():
    flask.session["seen"] = "second"
    return "done"
with app.test_client() as client:
    client.get("/", follow_redirects=True)
    assert flask.session.get("seen") == "second", dict(flask.session)
    assert flask.request.path == "/2", flask.request.path
""",
    ),
    Task(
        "click-enum", "click", "8.2.1",
        "The help of an option whose type is `click.Choice` of an Enum shows its default as `Color.RED` instead of the "
        "choice that a user types, `RED`. Repair it and add a test.",
        """
import enum, click
from click.testing import CliRunner
class Color(enum.Enum):
    RED = "r"
    GREEN = "g"
@click.command()
@click.option("--color", type=click.Choice(Color), default=Color.RED, show_default=True)
def command(color):
    pass
shown = CliRunner().invoke(command, ["--help"]).output
assert "default: RED" in shown, shown
""",
    ),
    Task(
        "click-completion", "click", "8.2.0",
        "Shell completion below a nested group offers the commands of the wrong group: with `cli outer inner leaf`, "
        "completing after `cli outer inner ` offers `inner` instead of `leaf`. Repair it and add a test.",
        """
import click
from click.shell_completion import ShellComplete
@click.group()
def cli():
    pass
@cli.group()
def outer():
    pass
@outer.group()
def inner():
    pass
@inner.command()
def leaf():
    pass
complete = ShellComplete(cli, {}, "cli", "_CLI_COMPLETE")
got = [item.value for item in complete.get_completions(["outer", "inner"], "")]
assert got == ["leaf"], got
""",
    ),
    Task(
        "click-envvar", "click", "8.2.1",
        "The error for a missing option that has `show_envvar=True` and no environment variable ends with "
        "`(env var: 'None')`. It must not mention an environment variable then. Repair it and add a test.",
        """
import click
from click.testing import CliRunner
@click.command()
@click.option("--name", required=True, show_envvar=True)
def command(name):
    pass
shown = CliRunner().invoke(command, []).output
assert "env var" not in shown, shown
""",
    ),
    Task(
        "click-resource", "click", "8.2.1",
        "A context manager registered with `Context.with_resource()` gets no exception information in its `__exit__` when "
        "the command raises. It must get it, as it would in a `with` block. Repair it and add a test.",
        """
import click
from click.testing import CliRunner
seen = []
class Resource:
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        seen.append(kind)
@click.command()
@click.pass_context
def command(ctx):
    ctx.with_resource(Resource())
    raise ValueError("x")
CliRunner().invoke(command)
assert seen == [ValueError], seen
""",
    ),
]


def prepare(task, folder):
    """The project's sources in `folder`, under git, with a `.venv` in which its tests run."""
    archive = download(task)
    with tarfile.open(archive) as tar:
        tar.extractall(folder.parent, filter="data")
    unpacked = next(folder.parent.glob(f"{task.package}-*"))
    unpacked.rename(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    pip = [folder / ".venv" / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", str(folder), PYTEST], check=True, stdout=subprocess.DEVNULL)
    git = ["git", "-C", str(folder), "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    (folder / ".gitignore").open("a").write("\n.venv/\n__pycache__/\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", f"{task.package} {task.version}"]):
        subprocess.run([*git, *arguments], check=True)


def failing(folder):
    """The project's own tests that fail."""
    python = folder / ".venv" / "bin" / "python"
    shown = subprocess.run([python, "-m", "pytest", "-q", "-rf", "-k", f"not {FLAKY}", "tests"], cwd=folder, capture_output=True, text=True).stdout
    return {line.split()[1] for line in shown.splitlines() if line.startswith("FAILED ")}


def is_repaired(task, folder, failing_before):
    """Whether the project does what the report asks for, and no test fails that passed before."""
    checked = subprocess.run([folder / ".venv" / "bin" / "python", "-c", task.check], cwd=folder, capture_output=True)
    return checked.returncode == 0 and failing(folder) <= failing_before


def download(task):
    cache = peers.CACHE / "agents"
    cache.mkdir(parents=True, exist_ok=True)
    found = list(cache.glob(f"{task.package}-{task.version}.tar.gz"))
    if not found:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary",
             ":all:", "-d", str(cache), f"{task.package}=={task.version}"],
            check=True, stdout=subprocess.DEVNULL,
        )
        found = list(cache.glob(f"{task.package}-{task.version}.tar.gz"))
    return found[0]
