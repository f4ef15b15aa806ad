"""Flows of scripts/git-test in repositories of other kinds and with other settings; the marks are explained in git_rows.py."""

FLOWS = r"""
== reftable: commit, branch, tag, stash
< git init -q --ref-format=reftable; commit a one
$ printf 'two\n' >a && git commit -am two
$ git branch topic && git tag v1 && git switch topic
$ printf 'three\n' >a && git stash && git stash pop
$ git commit -am three && git log --oneline

== reftable: rebase with a conflict over calls
< git init -q --ref-format=reftable; commit a one; git switch -qc side; commit a side; git switch -q main
< commit a main; git switch -q side
x git rebase main
$ printf 'both\n' >a && git add a
$ git rebase --continue

== reftable: linked worktree in the workspace, gc
< git init -q --ref-format=reftable; commit a one
$ git worktree add .worktrees/x -b x && cd .worktrees/x && git commit --allow-empty -m wt
$ git pack-refs --all && git gc -q && git commit --allow-empty -m after
$ git -C .worktrees/x log --oneline && git worktree remove .worktrees/x

== reftable: init and clone by the agent
$ git init -q --ref-format=reftable new && cd new && git commit --allow-empty -m one
$ cd new && git branch x && git commit --allow-empty -m two
$ git clone -q --ref-format=reftable . copy && git -C copy commit --allow-empty -m three

== sha256: commit, amend, stash, rebase conflict
< git init -q --object-format=sha256; commit a one; git switch -qc side; commit a side; git switch -q main
< commit a main; git switch -q side
$ printf 'x\n' >b && git add b && git commit -m b && git commit --amend -m bb
x git rebase main
$ printf 'both\n' >a && git add a && git rebase --continue
$ printf 'dirty\n' >a && git stash && git stash pop && git status

== sha256: push, clone and worktree
< git init -q --object-format=sha256; commit a one; git init -q --bare --object-format=sha256 @DISK/r.git
< git remote add origin @DISK/r.git
$ git push -u origin main && git commit --allow-empty -m two && git push
$ git clone -q . copy && git -C copy commit --allow-empty -m in-copy
$ git worktree add -q wt && git -C wt commit --allow-empty -m in-wt

== am of a mailbox on standard input, signed off
< series; git format-patch --stdout main~1..side~2 >@HOME/mbox; cp @HOME/mbox mbox; 
x git am --signoff <mbox
$ git am --show-current-patch=diff | head -3; git am --quit
$ git status -s && git stash list

== merge --quit, cherry-pick --quit, rebase --quit
< fork
x git merge side
$ git merge --quit && git reset -q --hard
x git cherry-pick side~1
$ git cherry-pick --quit && git reset -q --hard
x git rebase side
$ git rebase --quit && git status

== rebase --edit-todo in a later call, with break
< series; git switch -q side
$ GIT_SEQUENCE_EDITOR='sed -i "1ibreak"' git rebase -i main~1
$ GIT_SEQUENCE_EDITOR='sed -i "2s/^pick/drop/"' git rebase --edit-todo
$ git rebase --continue && git log --oneline

== rebase --rebase-merges that stops
< start; commit a two; git switch -qc x; commit x x; git switch -qc y main; commit y y
< git merge -q --no-ff -m merged x; commit a y2;
  git switch -q main; commit a main; git switch -q y
x git rebase --rebase-merges main
$ git status
$ printf 'both\n' >a && git add a && git rebase --continue
$ git log --oneline --graph

== rebase --update-refs that stops
< series; git branch half side~2; git config rebase.updateRefs true; git switch -q side
x git rebase main
$ printf 'both\n' >a && git add a
$ git rebase --continue && git log --oneline half

== rebase -i squash with an editor, stops in the middle
< series; git switch -q side
x GIT_SEQUENCE_EDITOR='sed -i "2,3s/pick/squash/"' git rebase -i main
$ printf 'both\n' >a && git add a && git rebase --continue
$ git log --format=%B -3

== cherry-pick -x -s with a strategy option, stops
< start; git switch -qc side; commit a s1; commit d d1; git mv a z; git commit -qm mv; commit z e1
< git switch -q main; git rm -q a; git commit -qm gone
x git cherry-pick -x -s -X theirs main~1..side
$ git rm -q a; git -c core.editor=true cherry-pick --skip || git add -A &&
  git -c core.editor=true cherry-pick --continue || git cherry-pick --abort
$ git log --format=%B -2

== cherry-pick -m of a merge, and of an empty commit
< apart; git switch -qc top side; git merge -q --no-edit main; git switch -q main
$ git cherry-pick -m 2 top --allow-empty --keep-redundant-commits || git cherry-pick --skip
$ git log --oneline

== bisect with terms, paths, skip and replay
< start; for n in 1 2 3 4 5 6 7; do commit b $n; commit c $n; done
$ git bisect start --term-old=fine --term-new=broken HEAD HEAD~12 -- b
$ git bisect skip
$ git bisect broken && git bisect log >log.txt
$ git bisect reset && git bisect replay log.txt
$ git bisect reset

== an editor that writes COMMIT_EDITMSG in place, by rename and with a backup
< start; printf '#!/bin/sh\ncp "$1" "$1~"; echo renamed >"$1.swp"; mv "$1.swp" "$1"\n' >@HOME/ed; chmod +x @HOME/ed
$ cp @HOME/ed ed && printf '2\n' >a && GIT_EDITOR=./ed git commit -a
$ printf '3\n' >a && GIT_EDITOR="sed -i 1s/.*/sedded/" git commit -a && rm ed && git log --oneline

== stash -p, --keep-index, --staged, create and store
< start; commit b b; printf '1\n' >a; printf '2\n' >b; git add b
$ git stash push --keep-index -m kept && git stash pop --index || git reset -q --hard
$ printf 'z\n' >a && git add a && git stash push --staged -m staged
$ printf 'y\n' >b && git stash store -m stored "$(git stash create)" && git stash list
$ git stash clear && git status -s

== notes in another ref, merged by hand
< start; git notes add -m base; git notes --ref=other add -m other
x git notes merge --strategy=manual other
$ cd .git/NOTES_MERGE_WORKTREE && for f in *; do printf 'both\n' >$f; done
$ git notes merge --commit && git notes show

== maintenance: all tasks
< start; for n in 1 2 3; do commit b $n; done
$ git maintenance run --task=gc --task=loose-objects --task=pack-refs --task=commit-graph --quiet
$ git commit --allow-empty -m after && git fsck

== repack with bitmaps, multi-pack-index, split commit-graph
< start; for n in 1 2 3 4; do commit b $n; git branch b$n; done
$ git repack -adbq && git multi-pack-index write --bitmap && git commit --allow-empty -m x
$ git commit-graph write --reachable --split && git commit --allow-empty -m y && git commit-graph write --reachable --split
$ git fsck && git gc -q --aggressive --prune=now

== repack and prune while the user commits
< start; for n in 1 2 3 4; do commit b $n; done
$ git repack -adq
u git commit -q --allow-empty -m users && git branch users
$ git prune --expire=now && git prune-packed && git log --oneline users
u git fsck 2>&1

== sparse checkout, cone and sparse index
< start; commit x/f x; commit y/z/f y; commit w/f w
$ git sparse-checkout init --cone --sparse-index && git sparse-checkout set x
$ git sparse-checkout add y/z && git commit --allow-empty -m sparse && git status
$ git sparse-checkout reapply && git sparse-checkout disable && ls

== sparse checkout in a linked worktree
< start; commit x/f x; commit y/f y
$ git worktree add -q --no-checkout wt && git -C wt sparse-checkout set x && git -C wt checkout
$ cd wt && ls && printf 'n\n' >x/f && git commit -am in-wt

== split index, untracked cache, version 4
< start; commit b b
$ git update-index --split-index && printf 'x\n' >a && git add a && git commit -m split
$ git update-index --no-split-index --index-version 4 && git commit --allow-empty -m v4
$ git update-index --untracked-cache --force-write-index; git update-index --assume-unchanged a &&
  git update-index --skip-worktree b
$ printf 'hidden\n' >a && git status -s && git ls-files -v

== filter-branch of a tree and of a folder
< start; commit d/b b; commit d/c c
$ FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --tree-filter 'rm -f a' HEAD
$ FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --subdirectory-filter d -- --all

== bundle: verify, clone, pull
< start; commit b b
$ git bundle create ../ws/b.bundle main && git bundle verify b.bundle
$ git clone -q -b main b.bundle copy && git -C copy commit --allow-empty -m in-copy
$ git commit --allow-empty -m more && git bundle create -q inc.bundle HEAD~1..main && git -C copy fetch ../inc.bundle main

== filter and hook of the user, as git lfs makes them
< start; git config filter.lfs.clean 'tr a-z A-Z'; git config filter.lfs.smudge 'tr A-Z a-z'
< git config filter.lfs.required true
< printf '*.bin filter=lfs diff=lfs merge=lfs -text\n' >.gitattributes; git add .gitattributes; git commit -qm attr
< printf '#!/bin/sh\necho pushed >>.git/lfs-push\n' >.git/hooks/pre-push; chmod +x .git/hooks/pre-push
< bare @DISK/r.git; git remote add origin @DISK/r.git
$ printf 'hello\n' >x.bin && git add x.bin && git commit -m bin && git show HEAD:x.bin
$ mkdir -p .git/lfs/objects/aa/bb && printf 'o\n' >.git/lfs/objects/aa/bb/aabb && git push origin main
$ rm x.bin && git checkout x.bin && cat x.bin

== gpg program of the user signs
< start; cat >@HOME/fakegpg <<'END'
  #!/bin/sh
  cat >/dev/null
  printf '[GNUPG:] SIG_CREATED D 1 8 00 1 ABC\n' >&2
  printf -- '-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----\n'
  END
< chmod +x @HOME/fakegpg
< git config gpg.program @HOME/fakegpg; git config commit.gpgSign true
$ git commit --allow-empty -m signed && git cat-file -p HEAD | grep -c PGP

== husky: hooksPath of the user in a folder, hook runs git
< start; mkdir -p .husky/_; printf '#!/bin/sh\nprintf "fmt\\n" >fmt && git add fmt\n' >.husky/_/pre-commit
< chmod +x .husky/_/pre-commit; printf '*\n' >.husky/_/.gitignore
< git config core.hooksPath .husky/_
$ printf 'two\n' >a && git add a && git commit -m hooked && git show --stat --oneline
$ git commit --no-verify --allow-empty -m skipped

== hook of the user that fails in the middle of a rebase
< apart; git switch -q side; commit t t; printf '#!/bin/sh\ntest ! -e bad\n' >.git/hooks/pre-commit
< chmod +x .git/hooks/pre-commit
x touch bad; git commit --allow-empty -m no
$ rm bad; git rebase main && git commit --allow-empty -m yes

== bare repository as the workspace
? ws @HOME/src/proj.git
< start @DISK/p; git clone -q --bare @DISK/p .
$ git log --oneline && git branch topic && git tag v1
$ git worktree add -q wt topic && cd wt && printf 'w\n' >w && git add w && git commit -m in-wt
$ git update-ref refs/heads/moved topic && git gc -q && git symbolic-ref HEAD refs/heads/topic

== bare repository in a folder .bare with a .git file, worktrees beside
< start @DISK/p; git clone -q --bare @DISK/p bare.git; printf 'gitdir: ./bare.git\n' >.git
< git worktree add -q main main 2>/dev/null || true
$ git worktree add -q feature -b feature && cd feature && printf 'f\n' >f && git add f && git commit -m f
$ cd main && git merge feature && git log --oneline
$ git worktree remove feature && git branch -d feature

== workspace through a link
? args --root @HOME/src/link
< start; ln -s ws ../link
$ cd @HOME/src/link && printf 'two\n' >a && git commit -am two && git worktree add -q wt &&
  git -C wt commit --allow-empty -m w

== .git is a link to a folder inside
< start; mv .git g.git; ln -s g.git .git; printf 'g.git\n' >>g.git/info/exclude
$ printf 'two\n' >a && git commit -am two
$ git gc -q && git switch -c x

== separate git directory of the user, with core.worktree
< git init -q --separate-git-dir @DISK/sep.git .; git config core.worktree "$PWD"; commit a one
$ printf 'two\n' >a && git commit -am two && git gc -q

== separate git directory made by the agent
$ git init -q --separate-git-dir sep.git proj && cd proj && printf 'x\n' >x && git add x && git commit -m x
$ cd proj && git switch -c y && git commit --allow-empty -m y

== folder of a linked worktree as the workspace
? ws @HOME/src/proj-x/sub
? args --root .
< start @HOME/src/proj; cd @HOME/src/proj; mkdir sub; printf 's\n' >sub/s; git add sub; git commit -qm sub
< rmdir ../proj-x/sub ../proj-x; git worktree add -q ../proj-x -b x
$ git status && printf 'two\n' >s && git commit -am two
x git switch main

== config and HEAD with odd permissions
< start; chmod 400 .git/config; chmod 700 .git; chmod 600 .git/HEAD; umask 077
$ git commit --allow-empty -m x && git config user.name 'New Name' && git switch -c y
$ ls -l .git/config | cut -c1-10

== configuration with control characters and strange sections
< start; printf '[x "a\\\\b \\"c"]\n\tk = "\\t\\b"\n[a.b]\n\tc = 1\n[y]\n\tz\n' >>.git/config
$ git config user.name 'New Name' && git config --get-regexp . && git commit --allow-empty -m x
$ git branch -m trunk && git config --unset user.name

== git config: add, unset, rename, remove, edit
< start; git remote add origin https://example.com/x.git
$ git config --add remote.origin.fetch '+refs/notes/*:refs/notes/*' && git config --unset-all remote.origin.fetch notes
$ git config --replace-all pull.ff only && git config branch.main.description 'the branch' &&
  git config --rename-section branch.main branch.other
$ GIT_EDITOR="sed -i -e '\$a[pull]\n\trebase = true'" git config --edit && git config --list --local

== branch and folder of branches of one name
< start; git branch x; git pack-refs --all
$ git branch -d x && git branch x/y && git commit --allow-empty -m one
$ git branch -d x/y && git branch x && git branch --list

== index of another name, plumbing
< start; commit b b
$ export GIT_INDEX_FILE=.git/tmp-index; git read-tree HEAD && printf 'x\n' >a && git add a
  tree=$(git write-tree) && git update-ref refs/heads/plumbed "$(git commit-tree -p HEAD -m plumbed $tree)"
$ rm .git/tmp-index && git log --oneline plumbed && git status -s

== GIT_DIR of another name, as for dotfiles
$ git init -q --bare cfg.git && git --git-dir=cfg.git --work-tree=. add a &&
  git --git-dir=cfg.git --work-tree=. commit -m dot
$ git --git-dir=cfg.git config status.showUntrackedFiles no && git --git-dir=cfg.git --work-tree=. log --oneline

== .git removed and made again
$ rm -rf .git && git init -q
$ git add -A && git commit -m fresh
$ rm -rf .git && git init -q && git add -A && git commit -m again
$ git log --oneline && git commit --allow-empty -m second

== .git removed, and made again in a later call
$ rm -rf .git
$ git init -q
$ git add -A && git commit -m fresh

== a stale lock of the index, removed by a command
< start; touch .git/index.lock
x git commit -q --allow-empty -m 1 -a
$ rm -f .git/index.lock && printf 'two\n' >a && git commit -qam 2

== clean -ffdx removes a nested repository
< start; printf 'junk/\n' >.git/info/exclude; start junk/inner; start other
$ git clean -ffdxq && ls -A && git commit --allow-empty -m after

== update-ref of many in one transaction
< start; commit b b
$ for n in $(seq 300); do echo "create refs/heads/many/b$n HEAD"; done | git update-ref --stdin && git branch | wc -l
$ git pack-refs --all && git for-each-ref --format='delete %(refname)' refs/heads/many | git update-ref --stdin
$ git reflog delete HEAD@{0} || true; git branch

== submodule: nested, recursive, foreach, sync
< git init -q deep; (cd deep; commit d d); git init -q mid; cd mid; commit m m
< git -c protocol.file.allow=always submodule --quiet add ../deep deep; git commit -qm sub; cd ..; start
< printf 'deep\nmid\n' >.git/info/exclude
$ git -c protocol.file.allow=always submodule add ./mid sub &&
  git -c protocol.file.allow=always submodule update --init --recursive && git commit -m sub
$ git submodule foreach --recursive 'git switch -q -c work && git commit -q --allow-empty -m in-$name'
$ git add -A && git commit -m moved && git submodule sync --recursive && git submodule status --recursive

== submodule: moved, renamed and removed
< git init -q lib; (cd lib; commit l l); start; printf 'lib\n' >.git/info/exclude
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm sub
$ git mv mod moved && git commit -m moved && git -C moved status -s
$ cd moved && git switch -q -c w && printf 'x\n' >l && git commit -am inside
$ git submodule set-url moved ./lib && git submodule set-branch -b main moved && git commit -am urls
$ git rm -q -f moved && git commit -m removed && rm -rf .git/modules/mod && git config --remove-section submodule.mod

== submodule added to a submodule by the agent, cloned recursively
< git init -q lib; (cd lib; commit l l); start; printf '/lib\ncopy\n' >.git/info/exclude
$ git -c protocol.file.allow=always submodule --quiet add --name some/name ./lib vendor/lib && git commit -m sub
$ git -c protocol.file.allow=always clone -q --recurse-submodules . copy && git -C copy/vendor/lib log --oneline
$ cd copy && git submodule update --remote --merge 2>/dev/null; git -C vendor/lib commit --allow-empty -m x &&
  git commit -am bumped

== an index locked by the user's own git
< start; touch .git/index.lock
x printf 'two\n' >a && git commit -am no
u rm .git/index.lock
$ git commit -am yes

== a ref locked by the user's own git
< start; touch .git/refs/heads/main.lock
x git commit --allow-empty -m no
u rm .git/refs/heads/main.lock
$ git commit --allow-empty -m yes

== worktree: detach, lock, orphan, repair, remove --force
$ git worktree add -q --detach wt && git -C wt commit --allow-empty -m detached
$ git worktree add -q --lock --reason busy wt2 && git worktree list
$ mv wt moved && git worktree repair moved && git -C moved commit --allow-empty -m repaired
$ git worktree unlock wt2 && touch wt2/x && git worktree remove --force wt2 && git worktree list

== worktree of the agent, used by the user, then the agent
$ git worktree add -q .worktrees/x -b x
u cd .worktrees/x && printf 'user\n' >u && git add u && git commit -qm users && git branch -q by-user
$ cd .worktrees/x && git log --oneline && printf 'agent\n' >g && git add g && git commit -m agents
u git worktree remove .worktrees/x
$ git worktree list && git merge x

== worktree with a conflict over calls, removed by the user
< fork; git worktree add -q wt side
x cd wt && git rebase main
$ cd wt && printf 'both\n' >a && git add a && git rebase --continue
u git worktree remove wt && git worktree prune
$ git merge side && git branch -d side

== the user and a call change different configuration
$ git config user.name 'By Agent'
u git config user.email user@own.example; git config alias.st status
$ git config pull.rebase true && git config --list --local
u git config --unset alias.st; git remote add mine https://example.com/m.git
$ git remote rename mine yours && git commit --allow-empty -m x

== the user switches between two calls
< start; git branch topic
$ printf 'two\n' >b && git add b
u git switch -q topic
$ git commit -m on-topic && git status -sb
u git switch -q main
$ git log --oneline -1 && git merge topic

== the user stashes between two calls
$ printf 'dirty\n' >a && printf 'n\n' >n && git add n
u git stash -q -u
$ git status -s && git stash pop --index && git commit -am popped

== restart in the middle of everything
< fork
x git merge side
! restart
$ git merge --abort && git cherry-pick -n side
! restart
$ git commit -m picked && git bisect start HEAD HEAD~2
! restart
$ git bisect reset && git stash list && git worktree add -q wt
! restart
$ git -C wt commit --allow-empty -m in-wt && git submodule status

== a daemon commits in the background of a session
& for n in $(seq 20); do git commit -q --allow-empty -m bg$n || git commit -q --allow-empty -m bg$n || exit 3; done; touch up
  until test -e go; do sleep 0.05; done
u until_ test -e up
$ git commit --allow-empty -m fg && git log --oneline | wc -l
$ touch go
! wait

== maintenance register
? expect refused
$ git maintenance register

== a configuration of 2 MB
? expect refused
< start; { yes '# a comment that is long enough to fill a line of the file' | head -n 35000; } >>.git/config
$ git config user.name 'New Name'
"""
