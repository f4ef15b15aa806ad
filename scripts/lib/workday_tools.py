"""Rows of scripts/workday-test: tool chains, git and the programs of every day; workday_rows.py explains the marks."""

ROWS = r"""
== a pipeline of text tools
? expect alike
$ seq 100 | awk '$1 % 7 == 0' | sort -rn | head -3 | tee top.txt | paste -sd,
= 98,91,84
$ set -o pipefail; seq 3 | grep -c . >n.txt && tr -d '\n' <n.txt

== make and gcc
? need make gcc
? expect alike
< printf 'all: hello\nhello: hello.c\n\tgcc -O1 -o $@ $<\nclean:\n\trm -f hello\n' >Makefile
< printf '#include <stdio.h>\nint main(void){puts("built");return 0;}\n' >hello.c
$ make
$ ./hello
= built
$ make clean

== a shared library with pkg-config's flags in the environment
? need gcc
? expect alike
< printf 'int answer(void){return 42;}\n' >a.c; printf 'int answer(void);int main(void){return answer()-42;}\n' >m.c
$ gcc -shared -fPIC -o libanswer.so a.c && gcc -o m m.c -L. -lanswer
$ LD_LIBRARY_PATH=. ./m

== a program that is compiled to /tmp and run there
? need gcc
? expect alike
$ echo 'int main(void){return 7;}' | gcc -x c -o /tmp/seven - && { /tmp/seven; [ $? = 7 ]; }

== gcc -fsanitize=address, a clean program
? need gcc
? if echo 'int main(void){return 0;}' | gcc -fsanitize=address -x c -o @TMP/asan - && @TMP/asan
? expect alike
< printf '#include <stdlib.h>\nint main(void){char*p=malloc(10);p[1]=1;free(p);return 0;}\n' >a.c
$ gcc -fsanitize=address -o a a.c && ./a

== gcc -fsanitize=address finds an overflow
? need gcc
? if echo 'int main(void){return 0;}' | gcc -fsanitize=address -x c -o @TMP/asan - && @TMP/asan
? expect alike
< printf '#include <stdlib.h>\nint main(int c,char**v){char*p=malloc(10);p[9+c]=1;free(p);return 0;}\n' >a.c
$ gcc -g -fsanitize=address -o a a.c
x ./a
= heap-buffer-overflow

== gcc -fsanitize=thread
? need gcc
? if echo 'int main(void){return 0;}' | gcc -fsanitize=thread -x c -o @TMP/tsan - && @TMP/tsan
? expect alike
< printf '#include <pthread.h>\nstatic void*f(void*p){return p;}\nint main(void){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);return 0;}\n' >a.c
$ gcc -fsanitize=thread -o a a.c && ./a

== gcc -fsanitize=undefined
? need gcc
? if echo 'int main(void){return 0;}' | gcc -fsanitize=undefined -x c -o @TMP/ub - && @TMP/ub
? expect alike
< printf 'int main(int c,char**v){int x=2147483647;return (x+c)==0;}\n' >a.c
$ gcc -fsanitize=undefined -o a a.c && ./a 2>&1 | grep -c 'signed integer overflow'
= 1

== valgrind
? need gcc valgrind
< printf 'int main(void){return 0;}\n' >a.c; gcc -o a a.c
$ valgrind -q --error-exitcode=9 ./a

== gdb runs a program
? need gcc gdb
< printf 'int main(void){return 5;}\n' >a.c; gcc -g -o a a.c
$ gdb -nx -batch -ex run ./a
= exited with code 05

== strace
? need strace
? if strace -o @TMP/trace true
$ strace -f -o trace.log true

== a virtual environment and a wheel of one's own
? if python3 -c 'import venv, ensurepip'
? expect alike
? loose wheels
< mkdir -p wheels src; cat >src/build.py <<'END'
  import zipfile
  info = "tiny-1.0.dist-info"
  with zipfile.ZipFile("wheels/tiny-1.0-py3-none-any.whl", "w") as wheel:
      wheel.writestr("tiny.py", "def main():\n    print('tiny runs')\n")
      wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
      wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: own\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
      wheel.writestr(info + "/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
      wheel.writestr(info + "/RECORD", "")
  END
  python3 src/build.py
$ python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check --no-index --find-links wheels tiny
$ .venv/bin/tiny
= tiny runs
u .venv/bin/tiny

== pip install --user
? if python3 -m pip --version
? expect explained
< mkdir tiny && printf 'def main():\n    print("tiny runs")\n' >tiny/tiny.py
< python3 - <<'END'
  import zipfile
  with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
      wheel.writestr("tiny.py", "def main():\n    print('tiny runs')\n")
      wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
      wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: own\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
      wheel.writestr("tiny-1.0.dist-info/RECORD", "")
  END
$ PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install -q --disable-pip-version-check --user --no-index ./tiny-1.0-py3-none-any.whl
u python3 -c 'import tiny; tiny.main()'

== pip config set
? if python3 -m pip --version
? expect explained
$ python3 -m pip config set global.timeout 30

== python unittest
? expect alike
< printf 'import unittest\nclass T(unittest.TestCase):\n    def test_one(self):\n        self.assertEqual(1, 1)\n' >test_one.py
$ python3 -m unittest 2>&1 | tail -1
= OK

== pytest, where there is one
? env PYTHONPATH=@PYTHON
? if python3 -m pytest --version
? expect alike
< printf 'def test_one(tmp_path):\n    (tmp_path / "a").write_text("x")\n' >test_one.py
$ python3 -m pytest -q

== python: processes, locks and shared memory
? expect alike
$ python3 -c 'import multiprocessing as m; p = m.Pool(3); print(sum(p.map(abs, range(-10, 0)))); p.close(); p.join()'
= 55
$ python3 -c 'import multiprocessing as m; l = m.Lock(); v = m.Value("i", 3); l.acquire(); print(v.value)'
$ python3 -c 'from multiprocessing import shared_memory as s; a = s.SharedMemory(create=True, size=10); a.close(); a.unlink()'

== npm run and npm test
? need node npm
? expect alike
< printf '{"name":"w","version":"1.0.0","scripts":{"build":"node build.js","test":"node --test t.test.js"}}' >package.json
< printf 'require("fs").writeFileSync("out.txt", "built")' >build.js
< printf 'require("node:test")("one", () => {})' >t.test.js
$ npm run build
$ npm test
u cat out.txt

== npm install of a local package
? need node npm
? expect alike
< mkdir dep && printf '{"name":"dep","version":"1.0.0","main":"i.js"}' >dep/package.json && echo 'module.exports = 4' >dep/i.js
< printf '{"name":"w","version":"1.0.0"}' >package.json
$ npm install --offline --no-audit --no-fund ./dep
$ node -e 'process.exit(require("dep") - 4)'

== npm install -g into the home directory
? need node npm
? expect explained
? loose @HOME/.npm-global
< mkdir -p @HOME/.npm-global/lib @HOME/.npm-global/bin && printf 'prefix=@HOME/.npm-global\n' >@HOME/.npmrc
< mkdir dep && printf '{"name":"dep","version":"1.0.0","bin":{"dep":"i.js"}}' >dep/package.json
< printf '#!/usr/bin/env node\nconsole.log("dep runs")\n' >dep/i.js && chmod +x dep/i.js
$ npm install -g --offline --no-audit --no-fund ./dep
u @HOME/.npm-global/bin/dep

== npm config set
? need npm
? expect explained
$ npm config set fund false
u npm config get fund

== node: child processes and worker threads
? need node
? expect alike
$ node -e 'console.log(require("child_process").execSync("echo child").toString())'
= child
$ node -e 'const w = require("worker_threads"); new w.Worker("require(\"worker_threads\").parentPort.postMessage(9)", {eval: true}).on("message", m => console.log(m))'
= 9

== cargo build and cargo test
? need cargo rustc cc
? expect alike
? loose target
< mkdir src && printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
< printf 'fn main() { println!("tiny runs"); }\n#[test]\nfn one() { assert_eq!(1, 1); }\n' >src/main.rs
$ cargo build -q --offline && ./target/debug/tiny
= tiny runs
$ cargo test -q --offline
= 1 passed

== cargo install --path
? need cargo rustc cc
? expect explained
? loose target
< mkdir src @HOME/.cargo && printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
< printf 'fn main() { println!("tiny runs"); }\n' >src/main.rs
$ cargo install -q --offline --debug --path .
u @HOME/.cargo/bin/tiny

== javac and java
? need javac java
? expect alike
< printf 'public class A { public static void main(String[] a) { System.out.println("java runs"); } }\n' >A.java
$ javac A.java && java -cp . A
= java runs

== a jar with a large heap
? need javac java jar
? expect alike
< printf 'public class A { public static void main(String[] a) { System.out.println("java runs"); } }\n' >A.java
$ javac A.java && jar cfe a.jar A A.class && java -Xmx8g -jar a.jar
= java runs

== go build, go test
? need go
? expect alike
? loose tiny
< printf 'module tiny\ngo 1.18\n' >go.mod; printf 'package main\nfunc main() { println("tiny runs") }\n' >main.go
< printf 'package main\nimport "testing"\nfunc TestOne(t *testing.T) {}\n' >main_test.go
$ go build -o tiny && ./tiny
= tiny runs
$ go test ./...

== cmake
? need cmake make gcc
? expect alike
? loose build
< printf 'cmake_minimum_required(VERSION 3.10)\nproject(tiny C)\nadd_executable(tiny a.c)\n' >CMakeLists.txt
< printf 'int main(void){return 0;}\n' >a.c
$ cmake -S . -B build && cmake --build build && ./build/tiny

== uv and a virtual environment
? need uv
? expect alike
$ uv venv --offline -q .venv && .venv/bin/python -c 'print(4)'

== sqlite3
? need sqlite3
? expect alike
? loose w.db
$ sqlite3 w.db 'pragma journal_mode=wal; create table t(a); insert into t values (3),(4)' && sqlite3 w.db 'select sum(a) from t'
= 7
u sqlite3 w.db 'select count(*) from t'

== perl and awk
? need perl
? expect alike
< printf 'a=1\nb=2\n' >c.txt
$ perl -pi -e 's/=/: /' c.txt && awk -F': ' '{ s += $2 } END { print s }' c.txt
= 3

== jq
? need jq
? expect alike
$ echo '{"a":[1,2,3]}' | jq '.a | add'
= 6

== tar, gzip and zip there and back
? need zip unzip
? expect alike
? loose a.tgz a.zip
< mkdir -p d/e && echo x >d/e/f && chmod 750 d/e && ln -s f d/e/g
$ tar czf a.tgz d && mkdir t && tar xzf a.tgz -C t && diff -r d t/d
$ zip -qry a.zip d && mkdir z && unzip -q a.zip -d z && diff -r d z/d

== git: init, commit, branch, merge
? expect alike
$ git init -q && echo one >a && git add . && git commit -qm first && git switch -qc side && echo two >b && git add . && git commit -qm second
$ git switch -q main && git merge -q --no-edit side && git log --format=%s
= *
u git log --format=%s; git status --short

== git clean -fdx and stash -u
? expect alike
< repository; printf 'build/\n' >.gitignore; git add .; git commit -qm ignore
$ mkdir build && touch build/o new && git clean -fdxq && ls -A
= *
$ echo two >a && echo n >new && git stash -qu && git stash pop -q && git status --short
= *
u git status --short --ignored

== git config in the repository
? expect alike
< repository
$ git config user.email new@example.com && git config --get user.email
u git config --get user.email

== git config --global
? names --global
? expect explained
< repository
$ git config --global alias.st status
u git config --global --get alias.st

== git clone to a folder beside the workspace
? expect explained
< repository
$ git clone -q . ../copy
u git -C ../copy log --format=%s

== git push to a bare repository beside the workspace
? expect alike
< repository; git clone -q --bare . ../remote.git; git remote add origin ../remote.git
? loose @HOME/src/remote.git
$ git commit -q --allow-empty -m second && git push -q origin main
u git -C ../remote.git log --format=%s main

== a pre-commit hook of the user's runs
? expect alike
< repository; printf '#!/bin/sh\necho hook ran >>hook.txt\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
$ echo two >a && git commit -qam second && cat hook.txt
= hook ran

== a new hook
? names hooks
? expect explained
< repository
$ printf '#!/bin/sh\necho planted\n' >.git/hooks/post-commit && chmod +x .git/hooks/post-commit
u ls .git/hooks | grep -v sample; true

== patch, diff and ed scripts
? need patch
? expect alike
? loose p
< printf 'one\ntwo\n' >a; printf 'one\nthree\n' >b
$ diff -u a b >p || patch -s a p && cmp a b

== openssl and checksums
? need openssl
? expect alike
$ openssl genrsa -out k.key 2048 2>/dev/null && openssl rsa -in k.key -check -noout 2>&1 && rm k.key
$ echo x >a && sha256sum a >sums && sha256sum -c sums
= a: OK

== ssh-keygen into the workspace
? need ssh-keygen
? expect alike
$ ssh-keygen -q -t ed25519 -N '' -f deploy && ls deploy.pub && rm deploy deploy.pub
= deploy.pub
"""
