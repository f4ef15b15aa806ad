"""Plants of scripts/git-test through which the user's git would write, and of repositories that change in use."""

PLANTS = r"""
== index that names a hook
< start; craft
$ python3 craft.py .git .git/hooks/post-checkout
t git checkout -- .

== index that names a hook, through its lock
< start; craft
$ python3 craft.py .git .git/hooks/post-checkout new && cp new .git/index.lock && mv .git/index.lock .git/index
t git checkout -- .

== index that leads out of the tree
< start; craft
$ python3 craft.py .git ../../../mark/ran
t git checkout -- .

== index of a linked worktree
< start; craft; git worktree add -q wt; cp evil wt 2>/dev/null || true
$ python3 craft.py .git ../.git/hooks/post-checkout .git/worktrees/wt/index
t git -C wt checkout -- .

== index of a new repository
< start; craft
$ git init -q n && python3 craft.py n/.git .git/hooks/post-checkout
t git -C n checkout -- .

== index of a submodule
< git init -q lib; (cd lib; commit l l); start; craft
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm s
$ python3 craft.py .git/modules/mod ../evil2
t git -C mod checkout -- .; test -e evil2 && touch @MARK

== split index whose shared part names a hook
< start; craft
$ git update-index --split-index && python3 craft.py .git .git/hooks/post-checkout shared &&
  s=$(ls .git/sharedindex.* | tail -1) && python3 - "$s" <<'END'
  import sys, hashlib, struct, os
  shared = open("shared", "rb").read()
  name = hashlib.sha1(shared[:-20]).hexdigest()
  folder = os.path.dirname(sys.argv[1])
  open(folder + "/sharedindex." + name, "wb").write(shared)
  link = bytes.fromhex(name) + struct.pack(">III", 0, 0, 0) + struct.pack(">III", 0, 0, 0)
  data = b"DIRC" + struct.pack(">II", 2, 0) + b"link" + struct.pack(">I", len(link)) + link
  open(folder + "/index", "wb").write(data + hashlib.sha1(data).digest())
  END
t git checkout -- .

== index version 4 that names a hook
< start; craft
$ python3 craft.py .git .git/hooks/post-checkout i && python3 - <<'END'
  import hashlib, struct
  d = open("i", "rb").read()
  entry = d[12:12 + 62]
  name = b".git/hooks/post-checkout"
  data = b"DIRC" + struct.pack(">II", 4, 1) + entry + b"\0" + name + b"\0"
  open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
  END
t git checkout -- .

== index, good and bad by turns, while the user works
< start; craft; cp .git/index good
& python3 craft.py .git .git/hooks/post-checkout bad; touch up; until test -e go; do cp bad .git/index
  cp bad .git/index.lock; mv .git/index.lock .git/index; cp good .git/index; done
u until_ test -e up
t for n in 1 2 3 4 5 6 7 8; do git checkout -q -- . ; done
$ touch go
! wait
t git checkout -- .

== index of a new bare repository with a worktree
< start; craft
$ git clone -q --bare . b && git -C b worktree add -q ../w main &&
  python3 craft.py b ../b/hooks/post-checkout b/worktrees/w/index
t git -C w checkout -- .

== a killed server leaves an index that names a hook
< start; craft
& python3 craft.py .git .git/hooks/post-checkout; touch up; sleep 600
u until_ test -e up
! kill
t git checkout -- .
$ true
t git checkout -- .

== sha256 configuration over an index of sha1
< start
$ git init -q n && cp n/.git/config c && mv c n/.git/config && python3 - <<'END'
  import hashlib, struct, zlib, os
  evil = open("evil", "rb").read()
  data = b"blob %d\0" % len(evil) + evil
  oid = hashlib.sha256(data).hexdigest()
  os.makedirs("n/.git/objects/" + oid[:2], exist_ok=True)
  open(f"n/.git/objects/{oid[:2]}/{oid[2:]}", "wb").write(zlib.compress(data))
  def entry(path, size):
      h = bytes.fromhex(oid)
      e = b"\0" * 24 + struct.pack(">I", 0o100755) + b"\0" * 12 + h + struct.pack(">H", len(path)) + path
      return e + b"\0" * (8 - len(e) % 8)
  d = b"DIRC" + struct.pack(">II", 2, 1) + entry(b".git/hooks/post-checkout", 32)
  open("n/.git/index", "wb").write(d + hashlib.sha256(d).digest())
  END
$ printf '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n' >>n/.git/config
t git -C n checkout -- .

== log of HEAD that is a link
$ rm -f .git/logs/HEAD && ln -s @MARK .git/logs/HEAD
t git commit --allow-empty -m x

== log of a branch that is a link, made by turns
& touch up; until test -e go; do rm -f .git/logs/HEAD; ln -s @MARK .git/logs/HEAD; done
u until_ test -e up
t for n in 1 2 3 4 5 6; do git commit -q --allow-empty -m x; done
$ touch go
! wait
t git commit --allow-empty -m x

== folder of logs that is a link
$ rm -rf .git/logs/refs && ln -s "$(dirname @MARK)" .git/logs/refs && mkdir -p x
t git update-ref --create-reflog refs/ran HEAD; git branch --create-reflog ran

== log of a stash that is a link
$ printf 'x\n' >>a; mkdir -p .git/logs/refs; ln -s @MARK .git/logs/refs/stash
t printf 'y\n' >>a; git stash

== folder of branches that is a link
$ ln -s "$(dirname @MARK)" .git/refs/heads/d
t git branch d/ran

== multi-pack-index that is a link
< start; git repack -adq
$ ln -s @MARK .git/objects/pack/multi-pack-index
t git multi-pack-index write

== COMMIT_EDITMSG that is a link
$ rm -f .git/COMMIT_EDITMSG; ln -s @MARK .git/COMMIT_EDITMSG
t git commit --allow-empty -m x

== COMMIT_EDITMSG of a new repository that is a link
$ git init -q n && ln -s @MARK n/.git/COMMIT_EDITMSG
t git -C n commit --allow-empty -m x

== log of a new repository that is a link
$ git init -q n && mkdir n/.git/logs && ln -s @MARK n/.git/logs/HEAD
t git -C n commit --allow-empty -m x

== a new repository whose logs lead to a folder
$ git init -q n && mkdir -p n/.git/logs/refs && ln -s "$(dirname @MARK)" n/.git/logs/refs/heads
t git -C n commit --allow-empty -m x; git -C n branch ran

== the repository removed and made again
$ rm -rf .git && git init -q && git add a && git commit -qm x; printf @FSMONITOR >>.git/config
t git status

== a nested repository removed and made again
< start; start n
$ rm -rf n/.git && git init -q n && printf @FSMONITOR >>n/.git/config
t git -C n status

== address in a file of remotes with a helper
$ mkdir -p .git/remotes bin && printf 'URL: evil::a\nPull: main\n' >.git/remotes/x && cp evil bin/git-remote-evil
t PATH="$PWD/bin:$PATH" git fetch x

== address in a file of branches with a helper
$ mkdir -p .git/branches bin && printf 'evil::a\n' >.git/branches/x && cp evil bin/git-remote-evil
t PATH="$PWD/bin:$PATH" git fetch x

== git directory with commondir, found through a .git file
$ mkdir -p docs g/objects g/refs x && echo 'ref: refs/heads/main' >docs/HEAD && echo ../g >docs/commondir &&
  echo 'gitdir: ../docs' >x/.git
$ printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = @WS/evil\n' >g/config
t cd x && git status

== separate git directory with an evil configuration
$ git init -q --separate-git-dir sep.git proj && printf @FSMONITOR >>sep.git/config && cp evil sep.git/hooks/post-commit
t git -C proj status; git -C proj commit --allow-empty -m x

== separate git directory swapped for another
$ mkdir sub && git init -q --separate-git-dir sub/sep.git proj && git -C proj commit -q --allow-empty -m x
$ mv sub sub2; mkdir -p sub/g/objects sub/g/refs sub/sep.git; cp sub2/sep.git/HEAD sub/sep.git
  echo ../g >sub/sep.git/commondir; cp sub2/sep.git/config sub/g; printf @FSMONITOR >>sub/g/config
t git -C proj status

== a rename storm on the configuration
& (cp .git/config c; printf @FSMONITOR >>c); touch up; until test -e go; do cp c .git/config.lock
  mv .git/config.lock .git/config; cp c .git/config; cp c .git/x; mv -f .git/x .git/config; done
u until_ test -e up
t for n in 1 2 3 4 5 6 7 8 9; do git status >/dev/null; done
$ touch go
! wait
t git status

== a storm of folders and links in the place of hooks
& mkdir h; cp evil h/post-checkout; touch up; until test -e go; do mv .git/hooks .git/o; ln -s ../h .git/hooks
  rm -f .git/hooks; cp -r h .git/hooks; rm -rf .git/hooks; mkdir .git/hooks; 
  ln h/post-checkout .git/hooks/post-checkout; mv h/post-checkout .git/hooks/; cp evil h/post-checkout; rm -rf .git/o; done
u until_ test -e up
t for n in 1 2 3 4 5 6 7 8 9; do git checkout -q .; done
$ touch go
! wait
t git checkout -q .

== the repository's own folder by turns
& (git init -q m; printf @FSMONITOR >>m/.git/config); touch up; until test -e go; do mv .git/info .git/i
  mv m/.git/info .git/info; cp -r m/.git/config .git/config; mv .git/i .git/info; done
u until_ test -e up
t for n in 1 2 3 4 5 6 7 8 9; do git status >/dev/null; done
$ touch go
! wait
t git status

== a module that takes the place of the user's
< git init -q lib; (cd lib; commit l l); start
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm s
$ cp -r .git/modules/mod .git/modules/new; printf @FSMONITOR >>.git/modules/new/config; rm -rf .git/modules/mod
  mv .git/modules/new .git/modules/mod
t git -C mod status

== .git file of a submodule led elsewhere
< git init -q lib; (cd lib; commit l l); start
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm s
$ cp -r .git/modules/mod mod/g && printf '[core]\n\tworktree = @WS/mod\n' >>mod/g/config &&
  printf @FSMONITOR >>mod/g/config && printf 'gitdir: g\n' >mod/.git
t git -C mod status
"""
