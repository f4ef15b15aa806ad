"""Rows of scripts/workday-test: the environment, limits and the shell itself; workday_rows.py explains the marks."""

ROWS = r"""
== DATABASE_URL without a password
? env DATABASE_URL=postgres://localhost/shop
? expect alike
$ echo "$DATABASE_URL"
= postgres://localhost/shop

== DATABASE_URL with a password
? names DATABASE_URL
? env DATABASE_URL=postgres://ann:pass-of-ann@localhost/shop
? expect explained
$ python3 -c 'import os; os.environ["DATABASE_URL"]'

== a key is withheld from python
? names MY_API_KEY
? env MY_API_KEY=Zk3vQ9tLx7Rw2bNf8sHd
? expect explained
$ python3 -c 'import os; os.environ["MY_API_KEY"]'

== a token is withheld from the shell
? names GITHUB_TOKEN
? env GITHUB_TOKEN=ghp_Zk3vQ9tLx7Rw2bNf8sHdYp4mJc6gTa1eVu0o
? expect explained
$ : "${GITHUB_TOKEN:?is not set}"

== a secret by its shape is withheld from node
? names DEPLOY_HINT
? need node
? env DEPLOY_HINT=ghp_Zk3vQ9tLx7Rw2bNf8sHdYp4mJc6gTa1eVu0o
? expect explained
$ node -e 'if (!process.env.DEPLOY_HINT) throw new Error("DEPLOY_HINT is not set")'

== RUST_LOG, FOO, EDITOR and NODE_ENV
? env RUST_LOG=debug,hyper=info
? env FOO=a b  c
? env EDITOR=true
? env NODE_ENV=test
? expect alike
$ echo "$RUST_LOG|$FOO|$EDITOR|$NODE_ENV"
= debug,hyper=info|a b  c|true|test

== the proxy and the CA bundle
? env HTTP_PROXY=http://proxy.example:3128
? env no_proxy=localhost,.example
? env SSL_CERT_FILE=@DISK/ca.pem
? env REQUESTS_CA_BUNDLE=@DISK/ca.pem
? expect alike
< echo 'no certificate' >@DISK/ca.pem
$ echo "$HTTP_PROXY $no_proxy" && cat "$SSL_CERT_FILE" "$REQUESTS_CA_BUNDLE"
= http://proxy.example:3128 localhost,.example
= no certificate

== LANG, LC_ALL and TZ
? env LC_ALL=C.UTF-8
? env TZ=Asia/Tokyo
? expect alike
$ locale 2>/dev/null | grep LC_ALL && printf 'ü' | wc -m && date -d @0 +%H%z
= *

== CI, USER, SHELL, PWD and HOME
? expect alike
$ echo "${CI-unset} $USER $LOGNAME $SHELL $PWD $HOME"
= unset ann ann /bin/bash @WS @HOME

== CI as the user has it
? env CI=true
? expect alike
$ echo "$CI"
= true

== a variable with a newline
? env MULTI=one\ntwo
? expect alike
$ echo "$MULTI" | tail -1
= two

== a large environment
? expect alike
$ export A=$(head -c 100000 /dev/zero | tr '\0' a) && env | wc -c | awk '{ print ($1 > 100000) }'
= 1

== PATH with tools of the user's
? env PATH=@HOME/bin:/usr/local/bin:/usr/bin:/bin
? expect alike
< mkdir @HOME/bin && printf '#!/bin/sh\necho mine\n' >@HOME/bin/mine && chmod +x @HOME/bin/mine
$ mine && command -v mine
= @HOME/bin/mine

== PYTHONPATH and NODE_PATH
? env PYTHONPATH=@HOME/lib
? expect alike
< mkdir @HOME/lib && echo 'x = 8' >@HOME/lib/own.py
$ PYTHONDONTWRITEBYTECODE=1 python3 -c 'import own; print(own.x)'
= 8

== cd, variables, functions and umask end with their call
? expect alike
< mkdir sub
$ cd sub && export LEAK=1 && f() { :; } && umask 077 && pwd
= sub
$ pwd && echo "${LEAK-unset}" && umask
= *
x f

== here-documents, here-strings and process substitution
? expect alike
$ cat >conf <<EOF
  home = $((20 + 1))
  EOF
  cat conf
= home = 21
$ diff <(printf 'a\nb\n') <(printf 'a\nb\n') && wc -c <<<four
= 5
$ coproc cat; echo hi >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; echo "$l"
= hi

== globs, braces and arrays
? expect alike
< mkdir -p a/b && touch a/1.c a/b/2.c
$ shopt -s globstar && echo **/*.c
= a/1.c a/b/2.c
$ touch x{1..3} && a=(x?) && echo "${#a[@]}"
= 3

== exit codes
? expect alike
x exit 77
x exit 255
x false | true; exit "${PIPESTATUS[0]}"
x set -e; false; echo not reached
$ (exit 9); echo "was $?"
= was 9

== ulimit as the user has it
? expect alike
$ ulimit -f; ulimit -v; ulimit -d; ulimit -t; ulimit -s
= *

== as many open files as the user may have
? if test "$(ulimit -n)" -ge 1000
? expect alike
$ python3 -c 'import os; a = [os.open("/dev/null", 0) for _ in range(900)]; print(len(a))'
= 900

== a sparse file of 5 GB
? expect alike
$ truncate -s 5G big && stat -c %s big && rm big
= 5368709120
$ python3 -c 'f = open("big", "wb"); f.seek(5 * 2**30); f.write(b"x"); f.close()' && stat -c %s big && rm big
= 5368709121

== fallocate of 5 GB
? need fallocate
? if fallocate -l 6G @DISK/probe && rm @DISK/probe
? expect alike
$ fallocate -l 5G big && stat -c %s big && rm big
= 5368709120

== 64 GB of address space that nothing uses
? expect alike
$ python3 -c 'import mmap; m = mmap.mmap(-1, 64 * 2**30, prot=0, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000); print(len(m) >> 30)'
= 64

== one gigabyte that is used
? expect alike
$ python3 -c 'a = bytearray(2**30); a[::4096] = b"x" * (2**18); print(len(a))'
= 1073741824

== deep recursion
? expect alike
$ python3 -c 'import sys; sys.setrecursionlimit(30000); f = lambda n: n and 1 + f(n - 1); print(f(9000))'
= 9000
$ f() { [ "$1" = 0 ] || f $(($1 - 1)); }; f 2000 && echo deep
= deep

== a limit that the command sets itself
? expect alike
$ (ulimit -n 50; ulimit -f 1000; ulimit -n; ulimit -f)
= *
$ ulimit -s unlimited; ulimit -s
= *

== a long command line
? expect alike
$ /bin/echo $(seq 20000) | wc -w
= 20000

== core files and niceness
? expect alike
$ nice -n 10 nice && ulimit -c
= *

== dd, sync and a file that is read while it is written
? expect alike
$ dd if=/dev/zero of=z bs=1M count=50 status=none conv=fsync && stat -c %s z && rm z
= 52428800

== inotify
? if python3 -c 'import ctypes; assert ctypes.CDLL(None).inotify_init() >= 0'
? expect alike
$ python3 -c 'import ctypes, os; l = ctypes.CDLL(None); fd = l.inotify_init(); print(l.inotify_add_watch(fd, b".", 0x100)); open("n", "w").close(); print(len(os.read(fd, 4096)) > 0)'
= True

== clocks and random numbers
? expect alike
$ test "$(date +%Y)" -ge 2024 && python3 -c 'import time, os; t = time.monotonic(); time.sleep(0.01); print(len(os.urandom(4)), time.monotonic() > t)'
= 4 True

== a program that wants huge pages, locked memory or real time asks politely
? expect alike
$ python3 -c 'import ctypes; l = ctypes.CDLL(None); b = ctypes.create_string_buffer(4096); print(l.mlock(b, 4096))'
= *

== nothing of the server's is in the environment
? expect alike
$ env | grep -c '^LLMC_' | grep -x 0
= 0
"""
