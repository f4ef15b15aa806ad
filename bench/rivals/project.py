"""The repository that the tasks are about: networkx, with a bug, an open change and a stack trace, and what is true of it.

What is true is worked out here with Python alone, so that no server is judged by another one's search.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

from peers import CACHE, REPOSITORY, Missing

NETWORKX = "3.3"
PYTHON = "/usr/bin/python3"

# One comparison: tests of the centre fail.
BUG = (
    "networkx/algorithms/distance_measures.py",
    "    p = [v for v in e if e[v] == radius]\n",
    "    p = [v for v in e if e[v] >= radius]\n",
)

# An uncommitted change: a new parameter with its documentation and test, a helper, and a slip.
SMALLWORLD = "networkx/algorithms/smallworld.py"
TOO_SMALL = '    if len(G) < {}:\n        raise nx.NetworkXError("Graph has fewer than four nodes.")\n'
CHANGE = [
    (
        SMALLWORLD,
        "def random_reference(G, niter=1, connectivity=True, seed=None):",
        "def random_reference(G, niter=1, connectivity=True, seed=None, max_tries=None):",
    ),
    (
        SMALLWORLD,
        TOO_SMALL.format(4) + '    if len(G.edges) < 2:\n        raise nx.NetworkXError("Graph has fewer that 2 edges")\n\n'
        "    from networkx.utils import cumulative_distribution, discrete_sequence\n\n"
        "    local_conn = nx.connectivity.local_edge_connectivity\n\n    G = G.copy()",
        TOO_SMALL.format(3) + '    if len(G.edges) < 2:\n        raise nx.NetworkXError("Graph has fewer than 2 edges")\n\n'
        "    from networkx.utils import cumulative_distribution, discrete_sequence\n\n"
        "    local_conn = nx.connectivity.local_edge_connectivity\n\n    G = G.copy()",
    ),
    (
        SMALLWORLD,
        "    ntries = int(nnodes * nedges / (nnodes * (nnodes - 1) / 2))\n    swapcount = 0\n",
        "    ntries = max_tries or _attempts(nnodes, nedges)\n    swapcount = 0\n",
    ),
    (
        SMALLWORLD,
        "    max_attempts = int(nnodes * nedges / (nnodes * (nnodes - 1) / 2))\n",
        "    max_attempts = _attempts(nnodes, nedges)\n",
    ),
    (
        SMALLWORLD,
        '__all__ = ["random_reference", "lattice_reference", "sigma", "omega"]\n',
        '__all__ = ["random_reference", "lattice_reference", "sigma", "omega"]\n\n\n'
        'def _attempts(nodes, edges):\n    """How often a swap is tried: the mean degree."""\n'
        "    return int(nodes * edges / (nodes * (nodes - 1) / 2))\n",
    ),
    (
        "networkx/algorithms/tests/test_smallworld.py",
        "    H = nx.Graph(((0, 1), (2, 3)))\n    Hl = random_reference(H, niter=1, seed=rng)\n",
        "    H = nx.Graph(((0, 1), (2, 3)))\n    Hl = random_reference(H, niter=1, seed=rng, max_tries=5)\n"
        "    assert sorted(d for _, d in Hl.degree()) == [1, 1, 1, 1]\n",
    ),
]

SCRIPT = """\
import networkx as nx

roads = nx.path_graph(4)
roads.add_node("harbour")
nx.dijkstra_path(roads, 0, "harbour")
"""


class Project:
    """A fresh copy of the repository."""

    def __init__(self):
        archive = download()
        try:
            # A short name: some servers print absolute paths, and a long one would count against them.
            self.root = Path("/tmp/networkx")
            self.root.mkdir()
        except FileExistsError:
            self.root = Path(tempfile.mkdtemp(prefix="nx-", dir="/tmp"))
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(self.root)
        notes = next(self.root.glob("*.dist-info"))
        (self.root / "README.md").write_text((notes / "METADATA").read_text().split("\n\n", 1)[1])
        shutil.rmtree(notes)
        (self.root / ".gitignore").write_text(".venv/\n.llmc/\n__pycache__/\n.pytest_cache/\n")
        self.change([BUG])
        (self.root / "plan_route.py").write_text(SCRIPT)
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Bring in networkx")
        make_environment(self.root)

    def reset(self):
        """The files as they were committed."""
        self.git("checkout", "-q", "--", ".")

    def change(self, changes):
        for name, old, new in changes:
            path = self.root / name
            text = path.read_text()
            assert text.count(old) == 1, f"{name} has changed: {old!r}"
            path.write_text(text.replace(old, new))

    def git(self, *words):
        environment = dict(
            os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="A. Author",
            GIT_AUTHOR_EMAIL="author@example.org", GIT_COMMITTER_NAME="A. Author",
            GIT_COMMITTER_EMAIL="author@example.org",
        )
        subprocess.run(["git", *words], cwd=self.root, check=True, stdout=subprocess.DEVNULL, env=environment)

    def sources(self):
        """Every Python file by its name, sorted."""
        found = sorted(path for path in self.root.rglob("*.py") if ".venv" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def lines(self, pattern, under=""):
        """(name, number, line) of each line that matches."""
        expression = re.compile(pattern)
        return [
            (name, number, line)
            for name, text in self.sources().items() if name.startswith(under)
            for number, line in enumerate(text.splitlines(), 1) if expression.search(line)
        ]

    def committed(self, name):
        """A file as it was committed."""
        return self.output("show", f"HEAD:{name}")

    def changed_files(self):
        """Every file that differs from the commit, with its text."""
        names = self.output("diff", "--name-only", "HEAD").split() + self.output(
            "ls-files", "--others", "--exclude-standard"
        ).split()
        return {name: (self.root / name).read_text() for name in names}

    def original(self, pattern):
        """(name,) of each committed Python file that matches."""
        expression = re.compile(pattern)
        names = self.output("ls-files", "*.py").split()
        return [(name,) for name in names if expression.search(self.committed(name))]

    def open_lines(self):
        """Every line that the open change adds or takes away."""
        lines = self.output("diff", "-U0").splitlines()
        return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip()]

    def output(self, *words):
        done = subprocess.run(["git", *words], cwd=self.root, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def callers(self, function, under=""):
        """(name, line) of each call of a function, by syntax."""
        found = []
        for name, text in self.sources().items():
            if not name.startswith(under):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
                    if called == function:
                        found.append((name, node.lineno))
        return found

    def trace(self):
        """What Python prints when the script fails."""
        done = subprocess.run([PYTHON, "plan_route.py"], cwd=self.root, stderr=subprocess.PIPE, text=True)
        return done.stderr.replace(f"{self.root}/", "")

    def remove(self):
        shutil.rmtree(self.root)


def download():
    """The wheel, once."""
    folder = CACHE / "rivals"
    wheel = folder / f"networkx-{NETWORKX}-py3-none-any.whl"
    if not wheel.exists():
        print(f"fetching networkx {NETWORKX}", file=sys.stderr, flush=True)
        done = subprocess.run([
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", f"networkx=={NETWORKX}", "-d", str(folder),
        ])
        if done.returncode != 0:
            raise Missing("pip could not fetch networkx")
    return wheel


def make_environment(root):
    """A virtual environment with pytest, as a project has one."""
    script = 'source scripts/lib/python-tools.sh && python_tools "$PYTEST" && echo "$site"'
    done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Missing("pip could not install pytest")
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"], stdout=subprocess.PIPE, text=True,
    ).stdout.strip()
    shutil.copytree(done.stdout.strip(), root / ".venv" / "lib" / version / "site-packages")
    (root / ".venv" / "bin").mkdir()
    (root / ".venv" / "bin" / "python").symlink_to(PYTHON)
    (root / ".venv" / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\n")


def body(text, function):
    """The source of a function without its docstring, as lines that are not blank."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            first = node.body[1] if ast.get_docstring(node) else node.body[0]
            lines = text.splitlines()[first.lineno - 1:node.end_lineno]
            return [line.strip() for line in textwrap.dedent("\n".join(lines)).splitlines() if line.strip()]
    raise KeyError(function)
