"""Lines of scripts/workday-test that fail for reasons of their own, with or without LLMC: no answer may claim its boundary.

Every line is a row. Some print the texts by which a refusal could be recognised, some fail in places outside the
workspace, where an ordinary user may not write either.
"""

SETUP = r"""
printf 'one\n' >a; printf 'two\n' >b; mkdir full; touch full/x
printf 'locked\n' >locked.txt; chmod 000 locked.txt; mkdir locked.d; chmod 000 locked.d
printf 'fixed\n' >fixed.txt; chmod 444 fixed.txt; mkdir fixed.d; chmod 555 fixed.d
printf '#!/bin/sh\necho never\n' >plain.sh; printf '\177ELFgarbage' >broken; chmod +x broken
ln -s loop loop; ln -s nowhere dangling
"""

LINES = r"""
x cat missing.txt
x cat ~/missing.txt
x cat /tmp/missing.txt
x cat /etc/missing.conf
x ls /nowhere/at/all
x cat locked.txt
x ls locked.d
x echo x >fixed.txt
x touch fixed.d/new
x rm fixed.d/../locked.d/x
x ./plain.sh
x ./broken
x echo x >>/etc/hosts
x touch /usr/bin/mine
x mkdir /newdir
x rm /etc/passwd
x cat /etc/shadow
x ls /root/secret
x python3 -c 'print("Read-only file system"); raise SystemExit(1)'
x sh -c 'echo "bash: /srv/data: Permission denied" >&2; exit 13'
x python3 -c 'raise PermissionError(13, "Permission denied", "/data/in.csv")'
x python3 -c 'raise OSError(30, "Read-only file system", "report.txt")'
x python3 -c 'import unittest; T = type("T", (unittest.TestCase,), {"test_it": lambda s: s.assertEqual("Operation not permitted", "")}); unittest.main(argv=["t"], defaultTest="T")'
x echo 'FAILED test_sandbox.py::test_denied - EROFS: read-only file system, open /app/x'; exit 1
x python3 -c 'import socket; socket.create_connection(("127.0.0.1", @PORT))'
x curl -sS http://127.0.0.1:@PORT/
x python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("missing.sock")'
x python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("dead.sock"); s.close(); socket.socket(socket.AF_UNIX).connect("dead.sock")'
x psql -h /nowhere -Atc 'select 1' postgres
? need psql
x python3 -c 'raise ConnectionRefusedError(111, "Connection refused")'
x nosuchcommand --version
x python3 -c 'import nosuchmodule'
x node -e 'require("nosuchmodule")'
? need node
x node -e 'throw new Error("EACCES: permission denied, open /data/x")'
? need node
x java NoSuchClass
? need java
x ulimit -f 8; head -c 100000 /dev/zero >big.bin
x ulimit -v 300000; python3 -c 'bytearray(10**9)'
x ulimit -n 12; python3 -c 'import os; [os.open("/dev/null", 0) for _ in range(50)]'
x ulimit -t 1; while :; do :; done
x echo x >/dev/full
x python3 -c 'raise MemoryError'
x python3 -c 'raise OSError(28, "No space left on device")'
x rmdir full
x mkdir a
x cp missing b
x mv a missing/dir/a
x rm missing.txt
x echo x >missing/dir/file
x cd missing
x cat full
x cat loop
x cat dangling
x grep nothing a
x diff a b
x false
x test -e missing.txt
x echo 'int main(void) { return }' | gcc -x c -o out -
? need gcc
x make nothing
? need make
x printf 'all:\n\t@echo "Permission denied"; exit 2\n' | make -f -
? need make
x git status
x git clone -q nowhere copy
x kill 4194300
x sleep 0 & p=$!; wait $p; kill $p
x kill -9 $$
x python3 -c 'import os; os.abort()'
x python3 -c 'import ctypes; ctypes.string_at(0)'
x timeout 0.2 sleep 5
x chown 0 a
x mount -t tmpfs none full
? need mount
x python3 -c 'import os; os.setuid(0)'
x su -c true </dev/null
? need su
x python3 -c 'input()'
x tar xf a
x unzip -q a
? need unzip
x sqlite3 'file:a?mode=ro' 'create table t(a)'
? need sqlite3
x npm run nothing
? need npm
x exec 9>lock; flock 9; flock -n lock true
? need flock
x test -w /
x tty
x stty -a
x wc -l <locked.txt
x bash -c 'set -u; echo "$NOT_SET_ANYWHERE"'
x python3 -c 'import os; os.environ["NOT_SET_ANYWHERE"]'
"""
