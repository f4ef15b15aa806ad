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
x head missing.txt
x tail -n 3 missing/dir
x sort missing.txt
x sed s/a/b/ missing.txt
x sed -i s/a/b/ missing.txt
x sed 's/a/b' a
x awk '{ print' a
x cp a missing/dir/b
x cp -r missing b2
x cp a locked.d/a
x cp a fixed.d/a
x cp locked.txt copy
x mv missing other
x mv fixed.d/none a
x rm -r missing
x rm locked.d/x
x rmdir missing
x mkdir full/x/y
x mkdir missing/deep
x mkdir ~/missing/deep
x touch missing/new
x touch locked.d/new
x ln a b
x ln -s a b
x ln missing new
x chmod 644 missing
x chmod nonsense a
x chmod u+s missing
x chgrp root a
x chown root:root a
x stat missing
x readlink a
x realpath -e missing
x find missing -name x
x find locked.d -type f
x du missing
x df missing
x tar cf out.tar missing
x tar xf missing.tar
x gzip missing
x gunzip a
x diff a missing
x cmp a b
x comm a missing
x test -f missing
x test -x a
x [ 1 = 2 ]
x command -v nosuchcommand
x type nosuchcommand
x which nosuchcommand
? need which
x source missing.sh
x . ./missing.sh
x exec missing
x ./missing.sh
x bash missing.sh
x sh -c 'exit 9'
x sh -n <<<'if'
x cat <missing
x echo x >locked.txt
x echo x >>fixed.txt
x echo x >locked.d/new
x echo x >a/b
x cat full/x/y
x cat locked.d/x
x ls locked.txt/x
x cd a
x cd locked.d
x exec 3<missing
x read -t 0.1 line </dev/null
x python3 missing.py
x python3 -c 'open("missing.txt")'
x python3 -c 'open("locked.txt")'
x python3 -c 'open("fixed.txt", "w")'
x python3 -c 'open("fixed.d/new", "w")'
x python3 -c 'import os; os.mkdir("a")'
x python3 -c 'import os; os.rmdir("full")'
x python3 -c 'import os; os.listdir("missing")'
x python3 -c 'import os; os.remove("missing")'
x python3 -c 'import os; os.rename("missing", "b")'
x python3 -c 'import os; os.link("a", "b")'
x python3 -c 'import os; os.chown("a", 0, 0)'
x python3 -c 'import os; os.kill(4194300, 15)'
x python3 -c 'import os; os.execv("./plain.sh", ["x"])'
x python3 -c 'import subprocess; subprocess.run(["nosuchcommand"])'
x python3 -c 'import subprocess; subprocess.run(["cat", "missing"], check=True)'
x python3 -c 'import shutil; shutil.copy("missing", "b")'
x python3 -c 'import json; json.loads("{")'
x python3 -c '1 / 0'
x python3 -c 'import sys; sys.exit(3)'
x python3 -c 'assert False, "Permission denied: /srv/data"'
x python3 -c 'raise FileNotFoundError(2, "No such file or directory", "/srv/missing.csv")'
x python3 -c 'raise BlockingIOError(11, "Resource temporarily unavailable")'
x python3 -c 'raise OSError(16, "Device or resource busy", "a")'
x python3 -c 'raise OSError(18, "Invalid cross-device link", "a", None, "b")'
x python3 -c 'raise OSError(24, "Too many open files", "a")'
x python3 -c 'raise ProcessLookupError(3, "No such process")'
x python3 -c 'raise PermissionError(1, "Operation not permitted", "a")'
x python3 -c 'raise OSError(101, "Network is unreachable")'
x python3 -c 'raise OSError(113, "No route to host")'
x python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", @PORT)); s.listen(); socket.socket().bind(("127.0.0.1", @PORT))'
x python3 -c 'import socket; socket.socket().bind(("127.0.0.1", 80))' 2>&1; exit 1
x python3 -c 'import socket; socket.create_connection(("::1", @PORT))'
x python3 -c 'import socket; socket.socket().bind(("203.0.113.9", 0))'
x python3 -c 'import socket; socket.getaddrinfo("no such name", 80)'
x python3 -c 'import os; os.setgid(0)'
x python3 -c 'import os; os.chroot(".")'
x python3 -c 'import os; os.nice(-5)'
x python3 -c 'import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)); [open("/dev/null") for _ in range(20)]'
x python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)'
x python3 -m nosuchmodule
x python3 -m pip install --no-index nosuchpackage
? if python3 -m pip --version
x python3 -m unittest missing_test
x kill 4194301 4194302
x kill -0 4194300
x kill nonsense
x pkill -x nosuchcommand
? need pkill
x wait 4194300
x fg
x sleep nonsense
x timeout 0.1 cat /dev/zero >/dev/null
x date -d nonsense
x expr a + b
x printf '%d' nonsense
x dd if=missing of=b status=none
x dd if=/dev/zero of=/dev/full bs=1 count=1 status=none
x curl -sS http://nosuch.invalid/
? need curl
x curl -sS --max-time 2 http://127.0.0.1:@PORT/missing
? need curl
x curl -sS file:///srv/missing.txt
? need curl
x git log
x git commit -m nothing
x git checkout nosuchbranch
x git -C missing status
x git init -q r && git -C r commit -qm empty
x git init -q r && git -C r push origin main
x git init -q r && cd r && git checkout -q nosuch
x git init -q r && cd r && git show HEAD
x git clone -q /srv/nowhere.git copy
x git clone -q ssh://nosuch.invalid/x copy
? need ssh
x ssh -o BatchMode=yes -o ConnectTimeout=2 -p @PORT 127.0.0.1 true
? need ssh
x ssh-keygen -l -f missing.pub
? need ssh-keygen
x ssh-add -l
? need ssh-add
x openssl x509 -in a -noout
? need openssl
x psql -h 127.0.0.1 -p @PORT -Atc 'select 1' postgres
? need psql
x pg_ctl -D missing status
? need pg_ctl
x sqlite3 w.db 'select * from missing'
? need sqlite3
x sqlite3 missing/w.db 'create table t(a)'
? need sqlite3
x sqlite3 fixed.d/w.db 'create table t(a)'
? need sqlite3
x node missing.js
? need node
x node -e 'require("fs").readFileSync("missing")'
? need node
x node -e 'require("fs").writeFileSync("fixed.txt", "x")'
? need node
x node -e 'require("fs").mkdirSync("missing/deep")'
? need node
x node -e 'require("net").connect(@PORT, "127.0.0.1")'
? need node
x node -e 'process.exit(4)'
? need node
x npm test
? need npm
x npm install --offline --no-audit nosuchpackage
? need npm
x cargo build --offline
? need cargo
x cargo nosuchsubcommand
? need cargo
x rustc missing.rs
? need rustc
x gcc missing.c
? need gcc
x echo 'int main(void){return f();}' | gcc -w -x c -o out -
? need gcc
x echo 'int main(void){return 0;}' | gcc -x c -o missing/out -
? need gcc
x echo 'int main(void){*(volatile int*)0=1;}' >s.c && gcc -o s s.c && ./s
? need gcc
x javac Missing.java
? need javac
x perl -e 'open(F, "<", "missing") or die "missing: $!\n"'
? need perl
x perl -e 'use NoSuchModule'
? need perl
x jq . a
? need jq
x make
? need make
x make -C missing
? need make
x patch -p1 <missing.patch
? need patch
x xargs false <a
x env -i nosuchcommand
x nice -n -10 true && exit 1
x mknod dev c 1 3
x mkfifo a
x sysctl -w kernel.hostname=x
? need sysctl
x LC_ALL=C.UTF-8 LANGUAGE=de cat missing.txt
x LC_ALL=C.UTF-8 LANGUAGE=fr cat locked.txt
x LC_ALL=C.UTF-8 LANGUAGE=ja touch fixed.d/new
x grep -r '~/.ssh/id_rsa' full
x grep GITHUB_TOKEN a
x echo 'cannot open /etc/shadow: Permission denied' >&2; exit 1
x echo 'sudo: a password is required' >&2; exit 1
x echo 'unshare: not found' >&2; exit 127
x echo 'Killed: out of memory, limit reached' >&2; exit 137
"""
