"""Compares the licences in `inputs.txt` with the licence files of the repositories at their commits.

    python3 bench/rag/train/licences.py REPOSITORIES

prints the licence files of each project that trains, and fails if one does not say what the list says.
"""

import re
import subprocess
import sys
from pathlib import Path

PHRASES = {
    "Apache-2.0": r"Apache License,? Version 2\.0|Apache-2\.0",
    "MIT": r"Permission is hereby granted, free of charge",
    "BSD-2-Clause": r"Redistribution and use in source and binary",
    "BSD-3-Clause": r"Redistribution and use in source and binary.*(Neither the name|The names? of the)|BSD-3-Clause",
    "ISC": r"Permission to use, copy, modify, and/or distribute",
    "PostgreSQL": r"Permission to use, copy, modify, and distribute this software and its documentation for any purpose",
    "Zlib": r"provided 'as-is'",
    "public domain": r"[Pp]ublic [Dd]omain",
    "GPL-2.0-or-later": r"GPL-2\.0|GENERAL PUBLIC LICENSE",
    "GPL-2.0": r"GENERAL PUBLIC LICENSE",
}
FILES = re.compile(r"^(licen[cs]es?|copying|copyright)([.-][\w.-]+)?(/[\w.-]+)?$", re.IGNORECASE)


def git(repository, *arguments):
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True).stdout.decode(errors="replace")


def main():
    repositories, wrong = Path(sys.argv[1]), 0
    for line in (Path(__file__).parent / "inputs.txt").read_text().splitlines():
        name, commit, licence, use = (line.split("\t") + [""] * 3)[:4]
        if use not in ("train", "rank"):
            continue
        repository = repositories / name.replace("/", "+") / "repo"
        files = [path for path in git(repository, "ls-tree", "-r", "--name-only", commit).splitlines() if FILES.match(path)]
        text = " ".join(" ".join(git(repository, "show", f"{commit}:{path}") for path in files).split())
        missing = [one for one in re.split(r", | or ", licence) if not re.search(PHRASES[one], text)]
        wrong += bool(missing)
        print(f"{name}\t{licence}\t{' '.join(files)[:80]}" + (f"\tNOT FOUND: {missing}" if missing else ""))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
