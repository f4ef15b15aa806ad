"""Rows of scripts/workday-test: /tmp, the home directory, links, folders above and beside the workspace; workday_rows.py explains the marks."""

ROWS = r"""
== /tmp between calls
? expect alike
$ echo kept >/tmp/w-@PORT.txt
$ cat /tmp/w-@PORT.txt
= kept
$ rm /tmp/w-@PORT.txt

== /tmp from a command to a script and to read_file
? expect alike
$ echo kept >/tmp/w-@PORT.txt
e print(open('/tmp/w-@PORT.txt').read())
= kept
c cat /tmp/w-@PORT.txt
= kept
r /tmp/w-@PORT.txt
= kept
$ rm /tmp/w-@PORT.txt

== /tmp from a script to a command
? expect alike
e open('/tmp/w-@PORT.txt', 'w').write('by a script'); print('done')
$ cat /tmp/w-@PORT.txt && rm /tmp/w-@PORT.txt
= by a script

== mktemp and TMPDIR between calls
? expect alike
? loose where
$ t=$(mktemp -d) && echo "$t" >where && echo x >"$t/f"
$ cat "$(cat where)/f" && rm -r "$(cat where)" && rm where
= x
$ python3 -c 'import tempfile; print(tempfile.gettempdir())'
= *

== a large file in /tmp
? expect alike
$ head -c 700000000 /dev/zero >/tmp/w-@PORT.big && stat -c %s /tmp/w-@PORT.big && rm /tmp/w-@PORT.big
= 700000000

== /var/tmp between calls
$ echo kept >/var/tmp/w-@PORT.txt
$ cat /var/tmp/w-@PORT.txt && rm /var/tmp/w-@PORT.txt
= kept

== a file that the user put into /tmp
< echo 'from the user' >@TMP/shot.txt
$ cat @TMP/shot.txt
= from the user

== mv from /tmp into the workspace, and back
? expect alike
$ echo x >/tmp/w-@PORT.a && mv /tmp/w-@PORT.a here && cp here /tmp/w-@PORT.b && cat /tmp/w-@PORT.b && rm /tmp/w-@PORT.b
= x

== read a file of the home directory
? expect alike
< echo 'a note' >@HOME/notes.txt
$ cat ~/notes.txt
= a note
c cat ~/notes.txt
= a note
$ ls -A ~ && find ~ -maxdepth 1 -name 'notes*' | wc -l
= 1

== what the user rewrites in the home directory is seen at once
? expect alike
< echo 'a note' >@HOME/notes.txt
$ cat ~/notes.txt
= a note
u echo 'another note' >@HOME/notes.new && mv @HOME/notes.new @HOME/notes.txt && echo more >@HOME/later.txt
$ cat ~/notes.txt ~/later.txt
= another note
= more
u rm @HOME/later.txt
x cat ~/later.txt

== write a new file into the home directory
? names new\.txt|~|@HOME
? expect explained
$ echo x >~/new.txt
u cat @HOME/new.txt

== append to a file of the home directory
? names notes\.txt|~|@HOME
? expect explained
< echo 'a note' >@HOME/notes.txt
$ echo more >>~/notes.txt

== remove a file of the home directory
? names old\.txt|~|@HOME
? expect explained
< echo old >@HOME/old.txt
$ rm ~/old.txt

== rm -rf of a folder in the home directory
? names old|~|@HOME
? expect explained
< mkdir -p @HOME/old/deep && echo old >@HOME/old/deep/f
$ rm -rf ~/old

== move and rename in the home directory
? expect explained
< echo old >@HOME/old.txt
$ mv ~/old.txt ~/older.txt

== mkdir in the home directory
? names projects|~|@HOME
? expect explained
$ mkdir -p ~/projects/new

== chmod and touch in the home directory
? expect explained
< echo x >@HOME/run.sh
$ chmod +x ~/run.sh

== edit ~/.bashrc
? names bashrc|~|@HOME
? expect explained
< echo 'alias ll="ls -l"' >@HOME/.bashrc
$ echo 'export EDITOR=vi' >>~/.bashrc

== sed -i ~/.bashrc
? names ~|@HOME
? expect explained
< echo 'alias ll="ls -l"' >@HOME/.bashrc
$ sed -i 's/ls -l/ls -la/' ~/.bashrc

== sed -i in a folder beside the workspace
? names sibling
? expect explained
< mkdir ../sibling && echo 'port: 1' >../sibling/config.yml
$ sed -i s/1/2/ ../sibling/config.yml
u cat ../sibling/config.yml

== write to a folder beside the workspace
? names sibling
? expect explained
< mkdir ../sibling
$ echo x >../sibling/new.txt

== python writes to a folder beside the workspace
? names sibling
? expect explained
< mkdir ../sibling
$ python3 -c 'open("../sibling/new.txt", "w").write("x")'

== node writes to a folder beside the workspace
? names sibling
? need node
? expect explained
< mkdir ../sibling
$ node -e 'require("fs").writeFileSync("../sibling/new.txt", "x")'

== a script writes to a folder beside the workspace
? expect explained
< mkdir ../sibling
c echo x >../sibling/new.txt

== a script's subprocess writes to a folder beside the workspace
? names sibling
? expect explained
< mkdir ../sibling
e import subprocess; r = subprocess.run('echo x >../sibling/new.txt', shell=True, capture_output=True); print(r.stderr.decode()); r.check_returncode()

== a script opens a file of the home directory for writing
? expect explained
e open('@HOME/new.txt', 'w').write('x')

== a script removes a file of the home directory
? expect explained
< echo old >@HOME/old.txt
e import os; os.remove('@HOME/old.txt')

== a script reads the private key itself
? expect explained
< mkdir -m 700 @HOME/.ssh && echo 'PRIVATE KEY of mine' >@HOME/.ssh/id_rsa && chmod 600 @HOME/.ssh/id_rsa
e print(open('@HOME/.ssh/id_rsa').read())

== errors in German
? if LC_ALL=C.UTF-8 LANGUAGE=de cat /missing 2>&1 | grep -q 'Datei oder Verzeichnis'
? names new\.txt|~|@HOME
? expect explained
$ LC_ALL=C.UTF-8 LANGUAGE=de touch ~/new.txt

== errors in Japanese
? if LC_ALL=C.UTF-8 LANGUAGE=ja cat /missing 2>&1 | grep -qv 'No such file'
? names id_rsa|\.ssh
? expect explained
< mkdir -m 700 @HOME/.ssh && echo 'PRIVATE KEY of mine' >@HOME/.ssh/id_rsa
$ LC_ALL=C.UTF-8 LANGUAGE=ja cat ~/.ssh/id_rsa

== a refusal in a pipeline that succeeds
? names sibling
? expect explained
< mkdir ../sibling
$ { echo x >../sibling/new.txt; } 2>&1 | tail -3

== a refusal that the line passes over
? names old\.txt|~|@HOME
? expect explained
< echo old >@HOME/old.txt
$ rm ~/old.txt; echo done

== tar, rsync-like copies and unzip into the home directory
? names ~|@HOME
? expect explained
< mkdir d && echo x >d/f && tar cf d.tar d
$ tar xf d.tar -C ~

== a linker's output outside
? need gcc
? names sibling
? expect explained
< mkdir ../sibling && echo 'int main(void){return 0;}' >a.c
$ gcc -o ../sibling/a a.c

== sqlite3 on a database of the home directory
? need sqlite3
? names notes\.db|~|@HOME
? expect explained
? loose @HOME/notes.db
< sqlite3 @HOME/notes.db 'create table t(a)'
$ sqlite3 ~/notes.db 'insert into t values (1)'

== java writes a file of the home directory
? need javac java
? names ~|@HOME
? expect explained
< printf 'public class A { public static void main(String[] a) throws Exception { new java.io.FileOutputStream(a[0]).write(1); } }\n' >A.java && javac A.java
$ java -cp . A ~/new.txt

== perl writes a file of the home directory
? need perl
? names ~|@HOME
? expect explained
$ perl -e 'open(F, ">", "$ENV{HOME}/new.txt") or die "cannot write $ENV{HOME}/new.txt: $!\n"'

== a key is appended to a file in ~/.ssh
? names \.ssh
? expect explained
? loose @HOME/.ssh
< mkdir -m 700 @HOME/.ssh && echo x >@HOME/.ssh/config
$ echo 'Host y' >>~/.ssh/config
u cat @HOME/.ssh/config

== a daemon writes to the home directory
? expect explained
$ sh -c 'echo x >~/new.txt'

== cp and mv from the workspace into the home directory
? expect explained
< echo x >report.txt
$ cp report.txt ~/report.txt

== read a folder beside the workspace
? expect alike
< mkdir ../sibling && echo 'port: 1' >../sibling/config.yml
$ cat ../sibling/config.yml && cd ../sibling && ls
= port: 1

== a write to a disk that is not the home's
? names disk
? expect explained
$ echo x >@DISK/new.txt

== the caches of the home directory
? expect alike
< mkdir -p @HOME/.cache/tool && echo old >@HOME/.cache/tool/one
$ cat ~/.cache/tool/one && mkdir -p ~/.cache/x && echo kept >~/.cache/x/y
= old
$ cat ~/.cache/x/y
= kept

== a cache folder that is missing
$ mkdir -p ~/.cache/x && echo kept >~/.cache/x/y

== XDG_CACHE_HOME is where a program may write
? expect alike
$ d=${XDG_CACHE_HOME:-$HOME/.cache}/tool && mkdir -p "$d" && echo kept >"$d/one"
$ cat "${XDG_CACHE_HOME:-$HOME/.cache}/tool/one"
= kept

== a program that the user installed in ~/.local/bin
? expect alike
< mkdir -p @HOME/.local/bin && printf '#!/bin/sh\necho own tool\n' >@HOME/.local/bin/mytool && chmod +x @HOME/.local/bin/mytool
? env PATH=@HOME/.local/bin:/usr/local/bin:/usr/bin:/bin
$ mytool
= own tool

== a program is installed in ~/.local/bin
? expect explained
< mkdir -p @HOME/.local/bin
$ printf '#!/bin/sh\necho own tool\n' >~/.local/bin/mytool && chmod +x ~/.local/bin/mytool && ~/.local/bin/mytool
u @HOME/.local/bin/mytool

== settings below ~/.config
? expect explained
< mkdir -p @HOME/.config/tool && echo 'a = 1' >@HOME/.config/tool/settings.toml
$ cat ~/.config/tool/settings.toml
= a = 1
$ sed -i s/1/2/ ~/.config/tool/settings.toml

== a link out of the workspace is read
? expect alike
< echo 'a note' >@HOME/notes.txt; ln -s @HOME/notes.txt link; mkdir @DISK/data; echo d >@DISK/data/one; ln -s @DISK/data data
$ cat link && cat data/one
= a note

== a write through a link out of the workspace
? names link|notes\.txt|@HOME|~
? expect explained
< echo 'a note' >@HOME/notes.txt; ln -s @HOME/notes.txt link
$ echo more >>link

== a write into a linked folder
? names data
? expect explained
< mkdir @DISK/data; ln -s @DISK/data data
$ echo x >data/new.txt

== a new link to a file outside
? expect alike
< echo 'a note' >@HOME/notes.txt
$ ln -s ~/notes.txt mine && cat mine && rm mine
= a note

== a hard link to a file outside
< echo 'a note' >@HOME/notes.txt
$ ln ~/notes.txt mine

== symbolic and hard links, modes and times in the workspace
? expect alike
$ echo x >a && ln a b && ln -s a c && [ "$(stat -c %h a)" = 2 ] && readlink c
= a
$ chmod 640 a && touch -d '2020-01-02 03:04:05 UTC' a && cp -p a d && stat -c '%a %Y' d
= 640 1577934245
$ (umask 077; echo y >secretive) && stat -c %a secretive
= 600
$ umask
= *

== names with spaces, newlines and letters of the world
? expect alike
$ mkdir 'a b' && echo x >'a b/ü – 漢字.txt' && echo y >$'new\nline' && ls | wc -l
u cat 'a b/ü – 漢字.txt'; cat $'new\nline'

== find -delete and rm -rf in the workspace
? expect alike
< mkdir -p build/deep && touch build/a.o build/deep/b.o keep.c
$ find . -name '*.o' -delete && rm -rf build && ls
= keep.c

== a fifo, a sparse file and an extended attribute in the workspace
? if touch @DISK/x && python3 -c 'import os; os.setxattr("@DISK/x", "user.a", b"1")'
? expect alike
$ mkfifo pipe && truncate -s 1M sparse && python3 -c 'import os; os.setxattr("sparse", "user.a", b"1"); print(os.getxattr("sparse", "user.a"))'
= b'1'

== twenty thousand small files
? expect alike
? loose many
$ mkdir many && python3 -c 'for n in range(20000): open(f"many/{n}", "w").close()' && ls many | wc -l && rm -r many
= 20000

== a workspace inside a repository: git
? ws @HOME/src/mono/packages/one
? args --root @WS
? expect alike
< cd ../.. && repository && mkdir -p packages/one && echo x >packages/one/f && git add . && git commit -qm second
$ git status --short && git log --format=%s && git rev-parse --show-prefix
= *
$ echo y >f && git commit -qam third && git log --format=%s
= third
u git log --format=%s; git status --short

== a workspace inside a repository: what is above can be read
? ws @HOME/src/mono/packages/one
? args --root @WS
? expect alike
< cd ../.. && repository && echo 'read me' >README && echo '{"name":"mono"}' >package.json
$ cat ../../README && ls ../.. && cat "$(git rev-parse --show-toplevel)/package.json"
= read me

== a workspace inside a repository: read_file of what is above
? ws @HOME/src/mono/packages/one
? args --root @WS
< cd ../.. && repository && echo 'read me' >README
r @HOME/src/mono/README
= read me

== a workspace inside a repository: what is above cannot be written
? ws @HOME/src/mono/packages/one
? args --root @WS
? expect explained
< cd ../.. && repository && echo 'read me' >README
$ echo more >>../../README

== a package of a cargo workspace
? need cargo rustc cc
? ws @HOME/src/mono/one
? args --root @WS
? loose ../target
? expect explained
< cd .. && git init -q && printf '[workspace]\nmembers = ["one"]\nresolver = "2"\n' >Cargo.toml && mkdir one/src
< printf '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n' >one/Cargo.toml
< echo 'pub fn one() -> u8 { 1 }' >one/src/lib.rs && cargo generate-lockfile -q --offline
$ cargo build -q --offline

== a package of a cargo workspace with its own target folder
? need cargo rustc cc
? ws @HOME/src/mono/one
? args --root @WS
? loose target
? expect alike
< cd .. && git init -q && printf '[workspace]\nmembers = ["one"]\nresolver = "2"\n' >Cargo.toml && mkdir one/src
< printf '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n' >one/Cargo.toml
< echo 'pub fn one() -> u8 { 1 }' >one/src/lib.rs && cargo generate-lockfile -q --offline
$ CARGO_TARGET_DIR=target cargo build -q --offline

== a package of an npm workspace
? need node npm
? ws @HOME/src/mono/one
? args --root @WS
? expect alike
< cd .. && git init -q && mkdir -p node_modules/dep && printf '{"name":"mono","workspaces":["one"]}' >package.json
< printf '{"name":"dep","version":"1.0.0"}' >node_modules/dep/package.json && echo 'module.exports = 4' >node_modules/dep/index.js
< printf '{"name":"one","version":"1.0.0","scripts":{"go":"node go.js"}}' >one/package.json
< echo 'console.log(require("dep"))' >one/go.js
$ npm run -s go
= 4

== a workspace that is no repository
? expect alike
$ echo x >a && ls
= a
x git status
= not a git repository

== the private key
? names id_rsa|\.ssh
? expect explained
< mkdir -m 700 @HOME/.ssh && echo 'PRIVATE KEY of mine' >@HOME/.ssh/id_rsa && chmod 600 @HOME/.ssh/id_rsa
$ cat ~/.ssh/id_rsa
= PRIVATE KEY of mine

== the cloud's credentials
? names \.aws
? expect explained
< mkdir -m 700 @HOME/.aws && printf '[default]\naws_secret_access_key = abcd1234abcd1234abcd1234abcd1234abcd1234\n' >@HOME/.aws/credentials
$ cat ~/.aws/credentials
= default

== .netrc
? names netrc
? expect explained
< printf 'machine example.com login ann password pass-of-ann\n' >@HOME/.netrc && chmod 600 @HOME/.netrc
$ cat ~/.netrc
= machine example.com

== .git-credentials, read by python
? names git-credentials
? expect explained
< printf 'https://ann:pass-of-ann@example.com\n' >@HOME/.git-credentials
$ python3 -c 'import os; print(open(os.path.expanduser("~/.git-credentials")).read())'
= example.com

== a script reads the private key
? expect explained
< mkdir -m 700 @HOME/.ssh && echo 'PRIVATE KEY of mine' >@HOME/.ssh/id_rsa
c cat ~/.ssh/id_rsa
= PRIVATE KEY of mine

== ls ~/.ssh
? names \.ssh
? expect explained
< mkdir -m 700 @HOME/.ssh && echo x >@HOME/.ssh/known_hosts && echo 'PRIVATE KEY of mine' >@HOME/.ssh/id_rsa
$ ls ~/.ssh
= id_rsa

== ssh-keygen into ~/.ssh
? need ssh-keygen
? expect explained
? loose @HOME/.ssh
< mkdir -m 700 @HOME/.ssh
$ ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
u test -s @HOME/.ssh/id_ed25519 && echo made

== a new llmc.toml
? names llmc\.toml
? expect explained
$ printf '[mcp]\nmode = "classic"\n' >llmc.toml
u cat llmc.toml

== an llmc.toml that is there
? names llmc\.toml
? expect explained
< printf '[mcp]\nmode = "hybrid"\n' >llmc.toml
$ sed -i s/hybrid/classic/ llmc.toml
u cat llmc.toml

== an llmc.toml is read
? expect alike
< printf '[mcp]\nmode = "hybrid"\n' >llmc.toml
$ cat llmc.toml
= hybrid

== chmod u+s
? names set-?u(?:ser-)?id|setuid|u\+s
? expect explained
< cp /usr/bin/id mine
$ chmod u+s mine && stat -c %A mine
= rws

== install -m 4755
? expect explained
$ install -m 4755 /usr/bin/id mine

== a folder with the set-group-id bit
< mkdir shared
$ chmod g+s shared

== the system's files are read
? expect alike
$ head -1 /etc/passwd && ls /usr/include >/dev/null && cat /etc/os-release >/dev/null && test -r /etc/hosts
= root:
$ id -u && id -un && nproc && uname -r
= *
$ test -c /dev/null && test -w /dev/null && head -c 4 /dev/urandom | wc -c && test -d /proc/self/fd && free -m >/dev/null && df . >/dev/null
= 4

== /opt and /usr/local are where their programs are
? expect alike
$ test -x /usr/bin/env && ls /usr/local/bin >/dev/null && ls /opt >/dev/null && ls / | grep -x usr
= usr
"""
