"""Flows of scripts/git-test with more than one repository, process or server; the marks are explained in git_rows.py."""

FLOWS = r"""
== remotes: add, rename, set-url, remove
$ git remote add origin https://example.com/a.git && git remote add second https://example.com/b.git
$ git remote rename origin upstream
$ git remote set-url upstream git@example.com:a/c.git && git remote remove second
$ git remote -v

== push -u to a bare repository in the workspace
< start; bare remote.git
$ git remote add origin "$PWD/remote.git" && git push -u origin main
$ git commit --allow-empty -m more && git push

== push -u to a bare repository beside the workspace
< start; bare @DISK/remote.git; git remote add origin @DISK/remote.git
$ git commit --allow-empty -m more
$ git push -u origin main
$ git status -sb

== push -u to a bare repository in the home directory
< start; bare @HOME/remote.git; git remote add origin @HOME/remote.git
$ git switch -qc topic && git commit --allow-empty -m more && git push -u origin topic

== push to a relative path and to file://
< start; bare @HOME/src/remote.git; git remote add origin ../remote.git; git remote add url file://@HOME/src/remote.git
$ git commit --allow-empty -m more && git push origin main
$ git push url main:copy

== fetch twice, with new commits in between
< start; git clone -q . @DISK/other; git remote add origin @DISK/other; git fetch -q
u cd @DISK/other && git commit -q --allow-empty -m new1
$ git fetch origin
u cd @DISK/other && git commit -q --allow-empty -m new2
$ git fetch origin && git log --oneline origin/main

== pull, fast forward
< start; git clone -q . @DISK/other; git remote add origin @DISK/other; git fetch -q; git branch -q -u origin/main
u cd @DISK/other && commit n n
$ git pull

== pull --rebase
< start; git clone -q . @DISK/other; git remote add origin @DISK/other; git fetch -q; git branch -q -u origin/main
u cd @DISK/other && commit n n
$ git commit --allow-empty -m mine && git pull --rebase

== push --tags, push --delete, push --force-with-lease
< start; git branch gone; bare @DISK/remote.git; git remote add origin @DISK/remote.git; git fetch -q
$ git tag v1 && git tag -a -m v2 v2 && git push --tags
$ git push --delete origin gone
$ git commit --amend -m changed && git push --force-with-lease origin main

== push between two workspaces
< start; git clone -q . @HOME/src/second; git remote add second @HOME/src/second
$ git switch -qc topic && git commit --allow-empty -m shared && git push second topic
u cd @HOME/src/second && git log --oneline topic

== switch to a remote branch
< start; git branch topic; bare @DISK/remote.git; git branch -qD topic; git remote add origin @DISK/remote.git; git fetch -q
$ git switch topic
$ git status -sb && git branch -vv

== branch --set-upstream-to, -m, and unset
< start; bare @DISK/remote.git; git remote add origin @DISK/remote.git; git fetch -q
$ git branch --set-upstream-to=origin/main
$ git branch -m main trunk
$ git branch --unset-upstream && git status -sb

== branch -d of a packed ref
< start; git branch old; git branch keep; git pack-refs --all
$ git branch -d old
$ git branch --list

== detached HEAD, commit, branch
< start; commit b b
$ git switch --detach HEAD~1
$ git commit --allow-empty -m floating
$ git branch rescued && git switch main

== orphan branch
$ git switch --orphan pages
$ printf 'page\n' >index && git add index && git commit -m pages
$ git switch main

== rename of the default branch
< git init -q -b master; commit a one
$ git branch -M main && git commit --allow-empty -m renamed

== worktree in the workspace
$ git worktree add .worktrees/x -b x
$ cd .worktrees/x && printf 'x\n' >x && git add x && git commit -m in-worktree
$ git worktree list && git status -s
$ git -C .worktrees/x status && git worktree remove .worktrees/x
$ git worktree add .worktrees/y x && rm -rf .worktrees/y && git worktree prune && git branch -d x || git branch -D x

== worktree lock, move, unlock
$ git worktree add -q .worktrees/x && git worktree lock .worktrees/x
$ git worktree unlock .worktrees/x && git worktree move .worktrees/x .worktrees/z

== worktree add outside the workspace
? expect refused
$ git worktree add @DISK/elsewhere -b elsewhere

== clone outside the workspace
? expect refused
$ git clone . @DISK/elsewhere

== workspace is a worktree, its repository beside it
? ws @HOME/src/proj-x
< start @HOME/src/proj; git -C @HOME/src/proj worktree add -q @WS -b x
$ printf 'new\n' >n && git add n && git commit -m new-work
$ git status && git log --oneline
u cd @HOME/src/proj && git log --oneline x

== workspace is a worktree in .codex of the home
? ws @HOME/.codex/worktrees/ab12/proj
< start @HOME/src/proj; git -C @HOME/src/proj worktree add -q @WS -b x
$ printf 'new\n' >n && git add n && git commit -m new-work
$ git switch -c y && git commit --allow-empty -m more

== workspace is a worktree of a repository in /tmp
? ws @DISK/proj-x
< start @TMP/proj; git -C @TMP/proj worktree add -q @WS -b x
$ git status
$ printf 'new\n' >n && git add n && git commit -m new-work

== workspace is a worktree inside the checkout
? ws @HOME/src/proj/.claude/worktrees/x
< start ../../..; git -C ../../.. worktree add -q @WS -b x
$ printf 'new\n' >n && git add n && git commit -m new-work
$ git rebase main && git stash list

== rebase with a conflict in a linked worktree
? ws @HOME/src/proj-x
< mkdir ../proj; cd ../proj; fork; git worktree add -q @WS side
x git rebase main
$ printf 'both\n' >a && git add a
$ git rebase --continue

== clone of a local path in the workspace
$ git clone . sub/copy && cd sub/copy && printf 'c\n' >c && git add c && git commit -m in-copy
$ git -C sub/copy push origin HEAD:refs/heads/from-copy
$ git log --oneline from-copy

== clone of a repository outside the workspace
? without remote.origin.url
< start @DISK/lib
$ git clone @DISK/lib lib && git -C lib commit --allow-empty -m in-lib
$ cd lib && git switch -c topic

== clone --bare, init --bare, push to them
$ git clone --bare . copy.git && git commit --allow-empty -m more && git push copy.git main
$ git init --bare fresh.git && git push fresh.git main

== partial clone
< start up; (cd up; commit b b; git config uploadpack.allowFilter true)
$ git clone --filter=blob:none --no-checkout file://@WS/up lib
$ cd lib && git checkout main && git commit --allow-empty -m more

== shallow clone, deepened
< start up; (cd up; commit b b; commit c c)
$ git clone --depth 1 file://@WS/up lib
$ cd lib && git commit --allow-empty -m more && git fetch --unshallow

== submodule: add, commit inside, update, deinit
< start; git init -q lib; (cd lib; commit l l); printf 'lib\n' >.git/info/exclude
$ git -c protocol.file.allow=always submodule add ./lib mod
$ git commit -m 'with a submodule'
$ cd mod && printf 'two\n' >l && git commit -am inside
$ git add mod && git commit -m 'submodule moved' && git submodule status
$ git -c protocol.file.allow=always submodule update --init && git submodule deinit -f mod

== submodule cloned by the user, updated by a call
? without remote.origin.url submodule.mod.url
< start @DISK/lib; start @DISK/up; cd @DISK/up; git -c protocol.file.allow=always submodule --quiet add @DISK/lib mod;
  git commit -qm sub; git clone -q . @WS
$ git -c protocol.file.allow=always submodule update --init
$ cd mod && git switch -q main && printf 'two\n' >a && git commit -am inside

== nested repository of the user
< start; start inner; printf 'inner\n' >.git/info/exclude
$ cd inner && printf 'two\n' >a && git commit -am nested
$ git commit --allow-empty -m outer

== sparse checkout
< start; commit x/f x; commit y/f y
$ git sparse-checkout set x
$ git sparse-checkout list && ls
$ git commit --allow-empty -m sparse && git sparse-checkout disable

== hooks of the user run and block
< start; printf '#!/bin/sh\n! grep -q bad a\n' >.git/hooks/pre-commit
< printf '#!/bin/sh\necho checked >>"$1"\n' >.git/hooks/commit-msg
< chmod +x .git/hooks/pre-commit .git/hooks/commit-msg
x printf 'bad\n' >a && git commit -am no
$ printf 'good\n' >a && git commit -am yes

== hooks of the user in core.hooksPath
< start; mkdir .husky; printf '#!/bin/sh\necho checked >>"$1"\n' >.husky/commit-msg; chmod +x .husky/commit-msg
< git config core.hooksPath .husky
$ git add .husky && git commit -m hooked

== info/exclude
$ printf 'build/\n' >>.git/info/exclude && mkdir build && touch build/x && git status --porcelain

== a background command commits, visible while it runs
& git commit --allow-empty -m early; touch up; until test -e go; do sleep 0.05; done
u until_ test -e up; git log -1 --format=%s
$ test "$(git log -1 --format=%s)" = early && git tag seen
$ touch go
! wait

== a call commits while a background command runs
& touch up; until test -e go; do sleep 0.05; done
u until_ test -e up
$ git commit --allow-empty -m during
u git log -1 --format=%s
$ git commit --allow-empty -m second && touch go
! wait

== two commits, one late in the background
& touch up; until test -e go; do sleep 0.05; done; git commit --allow-empty -m late
u until_ test -e up
$ git commit --allow-empty -m during
$ touch go
! wait
$ git log --oneline | grep -q late && git log --oneline | grep -q during

== the user commits while a background command runs
& touch up; until test -e go; do sleep 0.05; done; git commit --allow-empty -m late
u until_ test -e up; git commit -q --allow-empty -m users
$ git log --oneline | grep users
u git switch -qc users-branch; touch go
! wait
$ git log --oneline | grep late

== linux_proc_start commits, visible while it runs
? args --mode classic
p git commit --allow-empty -m by-process && touch up; until test -e go; do sleep 0.05; done
u until_ test -e up; git log -1 --format=%s
$ git commit --allow-empty -m beside && git log --oneline | grep by-process
$ touch go

== killed after an acknowledged commit
$ printf 'two\n' >a && git commit -am acknowledged
! kill
$ git log --oneline | grep acknowledged && git commit --allow-empty -m after

== killed in a merge with a conflict
< fork
x git merge side
! kill
$ git status | grep -i 'unmerged paths'
$ printf 'both\n' >a && git add a && git commit --no-edit

== killed in a rebase with a conflict
< fork; git switch -q side
x git rebase main
! kill
$ printf 'both\n' >a && git add a && git rebase --continue

== killed while a background command runs
& touch up; sleep 600
u until_ test -e up
$ git commit --allow-empty -m during
! kill
$ git log --oneline | grep during

== restart between a conflict and its end
< fork
x git merge side
! restart
$ printf 'both\n' >a && git add a && git merge --continue

== two servers commit in turn
$ git commit --allow-empty -m one
2 git log --oneline | grep -q one && git commit --allow-empty -m two
$ git log --oneline | grep -q two && git commit --allow-empty -m three
2 git switch -qc other && git commit --allow-empty -m four
$ git status -sb && git commit --allow-empty -m five

== two servers, one in a conflict
< fork
x git merge side
2 git status | grep -i unmerged && printf 'both\n' >a && git add a && git commit --no-edit
$ git log --oneline

== workspace is a folder of a repository, by --root
? ws @HOME/src/proj/sub
? args --root .
< cd ..; start; printf 's\n' >sub/s; git add sub; git commit -qm sub
$ git status
$ printf 'two\n' >s && git add s && git commit -m 'from a folder'

== workspace is a folder of a repository, switch and stash
? ws @HOME/src/proj/packages/app
? args --root .
< cd ../..; start; printf 's\n' >packages/app/s; git add packages; git commit -qm sub
$ printf 'two\n' >s && git stash
$ git switch -c topic && git stash pop && git commit -am popped

== 20 repositories, each committed in by one call
< for n in $(seq 20); do start r$n; done
$ for n in $(seq 20); do (cd r$n && printf 'two\n' >a && git commit -qam two) || exit 1; done
$ cd r20 && git commit --allow-empty -m last

== 200 repositories
< for n in $(seq 200); do cp -a r r$n 2>/dev/null || { start r; cp -a r r$n; }; done
$ cd r173 && printf 'two\n' >a && git commit -am two
$ for n in 7 77 200; do git -C r$n commit --allow-empty -qm more || exit 1; done

== repository below extra_write
? args --set mcp.exec.extra_write=["@DISK/more"]
< start; start @DISK/more/lib
$ cd @DISK/more/lib && printf 'two\n' >a && git commit -am two && git switch -c topic
$ git init -q @DISK/more/new && cd @DISK/more/new && git commit --allow-empty -m first

== a fresh clone is removed in a later call
$ git clone -q . copy
$ rm -rf copy && git status --porcelain

== a repository is moved
< start; start inner; git branch side; printf 'inner\nouter\n' >.git/info/exclude
$ mv inner outer && git -C outer commit --allow-empty -m moved
$ git -C outer log --oneline && git status --porcelain

== a repository is copied
$ mkdir copies && cp -a .git copies/.git && cd copies && git reset -q --hard && git commit --allow-empty -m in-copy
$ git commit --allow-empty -m original

== a new repository is committed in by later calls
$ git init -q new
$ printf 'x\n' >new/x && git -C new add x
$ git -C new commit -m inner
! restart
$ git -C new commit --allow-empty -m inner2 && git commit --allow-empty -m outer

== 2,000 files
$ for n in $(seq 2000); do echo $n >f$n; done; git add . && git commit -qm many
$ git rm -q 'f1*' && git commit -qm fewer

== many packed refs
< start; name=$(git rev-parse HEAD); { echo '# pack-refs with: peeled fully-peeled sorted ';
  seq -f "$name refs/tags/t%07.0f" 20000; } >.git/packed-refs
$ git tag after && git commit --allow-empty -m after
$ git tag -d t0000007 t0019999

== 500,000 packed refs
? full
< start; name=$(git rev-parse HEAD); { echo '# pack-refs with: peeled fully-peeled sorted ';
  seq -f "$name refs/tags/t%07.0f" 500000; } >.git/packed-refs
$ git tag after && git commit --allow-empty -m after
$ git tag -d t0000007 t0499999
"""
