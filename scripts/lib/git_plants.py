"""What an agent could plant so that the user's own git runs it, for scripts/git-test; git_rows.py explains the marks.

Every row begins with `evil`, an executable file of the workspace that writes the mark. Its triggers (`t`) run in the user's
shell while the server runs, and once more when it has ended. In a plain shell at least one of them must have an effect.
"""

import os

import git_plants_writes
import git_rows

PAYLOAD = "printf '#!/bin/sh\\ntouch @MARK\\n' >evil && chmod +x evil"
FSMONITOR = "'[core]\\n\\tfsmonitor = @WS/evil\\n'"


def rows():
    text = PLANTS + git_plants_writes.PLANTS
    rows = git_rows.parse(text.replace("@FSMONITOR", FSMONITOR))
    for row in rows:
        row.name = "plant: " + row.name
        row.steps.insert(0, ("$", PAYLOAD))
    return rows


def plant(world, number, row):
    if not effects(world, number, row, git_rows.Plain):
        return git_rows.Verdict("not a plant")
    seen = effects(world, number, row, git_rows.Served)
    detail = "\n".join(f"    {line}" for line in seen)
    return git_rows.Verdict("EFFECT" if seen else "no effect", detail)


def effects(world, number, row, way):
    """What wrote the mark."""
    area = git_rows.Area(world, number, row.options)
    seen = []

    def marked(what):
        if os.path.exists(area.mark):
            os.unlink(area.mark)
            # In a plain shell the plant may run itself, which proves nothing.
            if way is git_rows.Served or what.startswith("t "):
                seen.append(what)

    try:
        area.prepare(row)
        shell = way(area, row)
        try:
            for mark, line in row.steps:
                _, text = shell.step(mark, line)
                marked(f"{mark} {line.splitlines()[0][:140]}: {text.strip()[-200:]!r}")
        finally:
            shell.end()
        marked("the end of the server")
        for mark, line in row.steps:
            if mark == "t":
                area.shell(line)
                marked(f"t {line[:140]}, after the end")
    finally:
        area.set_aside(way.__name__.lower())
    return seen


PLANTS = r"""
== core.fsmonitor
$ git config core.fsmonitor ./evil
t git status

== core.fsmonitor, in capital letters and in pieces
$ printf '[CORE]\n\tFsMonitor = "./ev\\\nil"\n' >>.git/config
t git status

== core.fsmonitor, through config.lock
$ cp .git/config .git/config.lock && printf @FSMONITOR >>.git/config.lock && mv .git/config.lock .git/config
t git status

== core.fsmonitor, through a link to .git
$ ln -s .git g && printf @FSMONITOR >>g/config
t git status

== core.fsmonitor, config is a link into the workspace
$ cp .git/config c && printf @FSMONITOR >>c && rm .git/config && ln -s ../c .git/config
t git status

== core.fsmonitor, config is a hard link of a file
$ cp .git/config c && ln -f c .git/config && printf @FSMONITOR >>c
t git status

== core.hooksPath
$ mkdir h && cp evil h/pre-commit && git config core.hooksPath h
t git commit --allow-empty -m x

== core.sshCommand
$ git config core.sshCommand @WS/evil
t git fetch ssh://localhost/x

== core.pager
$ git config core.pager ./evil
t tty git log

== pager.log
$ git config pager.log ./evil
t tty git log

== core.editor
$ git config core.editor ./evil
t env -u GIT_EDITOR git commit --allow-empty

== sequence.editor
< start; commit b b
$ git config sequence.editor ./evil
t git rebase -i HEAD~1

== core.askPass
$ git config core.askPass ./evil
t printf 'protocol=https\nhost=x.example\n\n' | git credential fill

== core.gitProxy
$ git config core.gitProxy @WS/evil
t git fetch git://localhost/x

== core.worktree
< start; printf 'x\n' >ran; git add ran; git commit -qm ran
$ git config core.worktree "$(dirname @MARK)"
t git checkout -f

== core.attributesFile with a filter
$ printf 'a filter=f\n' >attr && git config core.attributesFile @WS/attr && git config filter.f.clean ./evil
t printf 'x\n' >>a; git add a

== alias that is a command
$ git config alias.st '!./evil'
t git st

== alias that opens with a program
$ git config alias.st 'grep -O./evil one'
t git st

== include.path
$ printf @FSMONITOR >inc && git config include.path ../inc
t git status

== includeIf
$ printf @FSMONITOR >inc && git config 'includeIf.gitdir:**.path' @WS/inc
t git status

== filter.clean with .gitattributes
$ printf 'a filter=f\n' >.gitattributes && git config filter.f.clean ./evil
t printf 'x\n' >>a; git add a

== filter.smudge with info/attributes
$ printf 'a filter=f\n' >.git/info/attributes && git config filter.f.smudge ./evil
t rm a; git checkout -- a

== filter.process
$ printf 'a filter=f\n' >.gitattributes && git config filter.f.process ./evil
t printf 'x\n' >>a; git add a

== diff.external
$ git config diff.external ./evil
t printf 'x\n' >>a; git diff

== diff.textconv
$ printf 'a diff=d\n' >.gitattributes && git config diff.d.textconv ./evil
t git log -p

== diff.command
$ printf 'a diff=d\n' >.gitattributes && git config diff.d.command ./evil
t printf 'x\n' >>a; git diff

== merge driver
< fork
$ printf 'a merge=m\n' >.gitattributes && git config merge.m.driver ./evil
t git merge side

== gpg.program with commit.gpgSign
$ git config gpg.program ./evil && git config commit.gpgSign true
t git commit --allow-empty -m x

== gpg.ssh.defaultKeyCommand
$ git config gpg.format ssh && git config gpg.ssh.defaultKeyCommand ./evil && git config tag.gpgSign true
t git tag -m x v1

== credential.helper
$ git config credential.helper @WS/evil
t printf 'protocol=https\nhost=x.example\n\n' | git credential fill

== remote.uploadpack
< start; bare @DISK/r.git; git remote add origin @DISK/r.git
$ git config remote.origin.uploadpack @WS/evil
t git fetch origin

== remote.receivepack
< start; bare @DISK/r.git; git remote add origin @DISK/r.git
$ git config remote.origin.receivepack @WS/evil
t git push origin main

== remote.vcs
$ git config protocol.ext.allow always && git config remote.origin.vcs ext && git config remote.origin.url 'sh -c @WS/evil'
t git fetch origin

== remote address ext::
$ git config protocol.ext.allow always && git remote add origin 'ext::@WS/evil x'
t git fetch origin

== insteadOf with ext::
< start; git remote add origin https://example.com/x.git
$ git config protocol.ext.allow always && git config 'url.ext::@WS/evil .insteadOf' https://example.com/
t git fetch origin

== pushInsteadOf with ext::
< start; git remote add origin https://example.com/x.git
$ git config protocol.ext.allow always && git config 'url.ext::@WS/evil .pushInsteadOf' https://example.com/
t git push origin main

== branch.mergeOptions with a strategy on the user's PATH
< apart; mkdir bin
$ cp evil bin/git-merge-evil && git config branch.main.mergeOptions --strategy=evil
t PATH="$PWD/bin:$PATH" git merge side

== pull.twohead with a strategy on the user's PATH
< apart; mkdir bin
$ cp evil bin/git-merge-evil && git config pull.twohead evil
t PATH="$PWD/bin:$PATH" git merge side

== submodule.update
< git init -q lib; (cd lib; commit l l; commit l l2); start
< git -c protocol.file.allow=always submodule --quiet add ./lib mod
< git commit -qm sub; git -C mod reset -q --hard HEAD~1
$ git config submodule.mod.update '!@WS/evil'
t git submodule update

== trailer.command
$ git config trailer.sign.key Signed && git config trailer.sign.cmd ./evil
t printf 'x\n\nA: b\n' | git interpret-trailers --trailer sign=x

== interactive.diffFilter
$ git config interactive.diffFilter ./evil && git config color.ui always && git config color.interactive always
t printf 'x\n' >>a; printf 'q\n' | git add -p

== mergetool
< fork; git merge -q side || true
$ git config merge.tool m && git config mergetool.m.cmd @WS/evil
t printf 'y\n' | git mergetool -t m

== difftool
$ git config diff.tool d && git config difftool.d.cmd @WS/evil
t printf 'x\n' >>a; git difftool -y -t d

== tar.command
$ git config tar.tar.gz.command @WS/evil
t git archive --format=tar.gz HEAD

== gc.recentObjectsHook
$ git config gc.recentObjectsHook @WS/evil
t git commit -q --amend --allow-empty -m x; git reflog expire --expire=now --all; git prune

== config.worktree and its extension
$ git config extensions.worktreeConfig true && printf @FSMONITOR >.git/config.worktree
t git status

== config.worktree where the user has the extension
< start; git config extensions.worktreeConfig true
$ printf @FSMONITOR >.git/config.worktree
t git status

== hook pre-commit
$ cp evil .git/hooks/pre-commit
t git commit --allow-empty -m x

== hook post-checkout
$ cp evil .git/hooks/post-checkout
t git switch -c y

== hook reference-transaction
$ cp evil .git/hooks/reference-transaction
t git tag t

== hook through a link to a folder
$ mkdir h && cp evil h/pre-commit && mv .git/hooks .git/old && ln -s ../h .git/hooks
t git commit --allow-empty -m x

== hook through a renamed folder
$ mv .git/hooks .git/old && mkdir h && cp evil h/pre-commit && mv h .git/hooks
t git commit --allow-empty -m x

== a line in a hook of the user
< start; printf '#!/bin/sh\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
$ printf 'touch @MARK\n' >>.git/hooks/pre-commit
t git commit --allow-empty -m x

== a line in a hook of the user, through a hard link
< start; printf '#!/bin/sh\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
$ ln .git/hooks/pre-commit own && printf 'touch @MARK\n' >>own
t git commit --allow-empty -m x

== a sample hook made active
$ cp evil .git/hooks/pre-commit.sample && mv .git/hooks/pre-commit.sample .git/hooks/pre-commit
t git commit --allow-empty -m x

== .git replaced by a folder
$ cp -r .git new && printf @FSMONITOR >>new/config && mv .git old && mv new .git
t git status

== .git replaced by a file
$ cp -r .git new && printf @FSMONITOR >>new/config && mv .git old && printf 'gitdir: new\n' >.git
t git status

== .git replaced by a link
$ cp -r .git new && printf @FSMONITOR >>new/config && mv .git old && ln -s new .git
t git status

== commondir
$ cp -r .git new && printf @FSMONITOR >>new/config && printf '../new\n' >.git/commondir
t git status

== alternates to a repository outside
< start; git init -q @DISK/secret; (cd @DISK/secret; commit s secret)
$ mkdir -p .git/objects/info && printf '@DISK/secret/.git/objects\n' >.git/objects/info/alternates
t git cat-file -e "$(git -C @DISK/secret rev-parse HEAD)" && touch @MARK

== config.worktree of a linked worktree
< start; git config extensions.worktreeConfig true; git worktree add -q .worktrees/x
$ printf @FSMONITOR >.git/worktrees/x/config.worktree
t git -C .worktrees/x status

== commondir of a linked worktree
< start; git worktree add -q .worktrees/x
$ cp -r .git new && printf @FSMONITOR >>new/config && printf '@WS/new\n' >.git/worktrees/x/commondir
t git -C .worktrees/x status

== .git file of a linked worktree
< start; git worktree add -q .worktrees/x
$ cp -r .git new && printf @FSMONITOR >>new/config && rm -f .worktrees/x/.git
$ printf 'gitdir: @WS/new\n' >.worktrees/x/.git
t git -C .worktrees/x status

== a new worktree in a new git directory
$ mkdir -p .git/worktrees/y w && cp .git/HEAD .git/worktrees/y/ && printf '../../../g\n' >.git/worktrees/y/commondir
$ cp -r .git g && printf @FSMONITOR >>g/config && printf 'gitdir: ../.git/worktrees/y\n' >w/.git
$ printf '@WS/w/.git\n' >.git/worktrees/y/gitdir
t git -C w status

== configuration of a submodule
< git init -q lib; (cd lib; commit l l); start
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm s
$ printf @FSMONITOR >>.git/modules/mod/config
t git -C mod status

== hook of a submodule
< git init -q lib; (cd lib; commit l l); start
< git -c protocol.file.allow=always submodule --quiet add ./lib mod; git commit -qm s
$ mkdir -p .git/modules/mod/hooks && cp evil .git/modules/mod/hooks/post-checkout
t git -C mod switch -c y

== modules with a git directory of the agent
$ mkdir -p .git/modules && git init -q --separate-git-dir .git/modules/m m && printf @FSMONITOR >>.git/modules/m/config
t git -C m status

== new repository
$ git init -q nested && printf @FSMONITOR >>nested/.git/config
t cd nested && git status

== new repository, changed in a later call
$ git init -q nested && git -C nested commit --allow-empty -m x
$ git -C nested config core.fsmonitor @WS/evil
t cd nested && git status

== repository of the user below the workspace
< start; start nested
$ printf @FSMONITOR >>nested/.git/config
t cd nested && git status

== repository of the user, moved, changed and moved back
< start; start nested
$ mv nested n && printf @FSMONITOR >>n/.git/config && mv n nested
t cd nested && git status

== copy of the repository
$ mkdir copy && cp -a .git copy/.git && printf @FSMONITOR >>copy/.git/config
t cd copy && git status

== bare repository in a folder
$ mkdir -p docs/objects docs/refs && printf 'ref: refs/heads/main\n' >docs/HEAD
$ printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = @WS/evil\n' >docs/config
t cd docs && git status

== bare repository from a template with a hook
$ mkdir -p t/hooks && cp evil t/hooks/pre-receive && git init -q --bare --template=t b.git
t git push b.git main

== clone with a configuration
$ git clone -q -c core.fsmonitor=@WS/evil . copy
t cd copy && git status

== init from a template with a hook
$ mkdir -p t/hooks && cp evil t/hooks/pre-commit && git init -q --template=t new
t cd new && git commit --allow-empty -m x

== exec in the list of the user's rebase
< fork; git switch -q side; git rebase -q main || true
$ printf 'exec touch @MARK\n' >>.git/rebase-merge/git-rebase-todo
t git rebase --skip

== rebase --exec that stops
< fork; git switch -q side
$ git rebase --exec 'touch @MARK' main
t git rebase --skip

== a forged rebase
< start; commit b b
$ mkdir .git/rebase-merge && cd .git/rebase-merge && echo refs/heads/main >head-name
$ cd .git/rebase-merge && git rev-parse HEAD >onto && cp onto orig-head
$ cd .git/rebase-merge && printf 'exec touch @MARK\n' >git-rebase-todo && : >done && : >interactive
$ cd .git/rebase-merge && echo 1 >msgnum && echo 1 >end
t git rebase --continue

== a strategy in the user's rebase
< fork; git switch -q side; git rebase -q main || true; mkdir bin
$ cp evil bin/git-merge-evil && echo evil >.git/rebase-merge/strategy
t PATH="$PWD/bin:$PATH" git rebase --skip

== a strategy in the user's cherry-pick
< series; git cherry-pick main..side || true; mkdir bin
$ cp evil bin/git-merge-evil && printf '[options]\n\tstrategy = evil\n' >.git/sequencer/opts
t PATH="$PWD/bin:$PATH" git cherry-pick --skip

== a background command plants, while it runs and after
& git config core.fsmonitor ./evil; printf @FSMONITOR >>.git/config; touch up; until test -e go; do sleep 0.05; done
u until_ test -e up
t git status
$ touch go
! wait
t git status

== a background command plants a hook
& cp evil .git/hooks/pre-commit; touch up; until test -e go; do sleep 0.05; done
u until_ test -e up
t git commit --allow-empty -m x
$ touch go
! wait
t git commit --allow-empty -m y

== a call plants while a background command runs
& touch up; until test -e go; do sleep 0.05; done
u until_ test -e up
$ git init -q n && printf @FSMONITOR >>n/.git/config; cp evil .git/hooks/pre-commit; printf @FSMONITOR >>.git/config
t git -C n status; git status; git commit --allow-empty -m x
$ touch go
! wait
t git -C n status; git status; git commit --allow-empty -m y

== a background command makes a repository and changes it later
& git init -q n; touch up; until test -e go; do sleep 0.05; done; printf @FSMONITOR >>n/.git/config
u until_ test -e up
$ touch go
! wait
t git -C n status

== a killed server leaves what was planted
& printf @FSMONITOR >>.git/config; git init -q n; printf @FSMONITOR >>n/.git/config; touch up; sleep 600
u until_ test -e up
! kill
t git status; git -C n status
$ true
t git status; git -C n status

== configuration below extra_write
? args --set mcp.exec.extra_write=["@DISK/more"]
< start; start @DISK/more/lib
$ printf @FSMONITOR >>@DISK/more/lib/.git/config
t git -C @DISK/more/lib status

== hook below extra_write
? args --set mcp.exec.extra_write=["@DISK/more"]
< start; start @DISK/more/lib
$ cp evil @DISK/more/lib/.git/hooks/pre-commit
t git -C @DISK/more/lib commit --allow-empty -m x

== new repository below extra_write
? args --set mcp.exec.extra_write=["@DISK/more"]
< start; mkdir -p @DISK/more
$ git init -q @DISK/more/new && printf @FSMONITOR >>@DISK/more/new/.git/config
t git -C @DISK/more/new status

== main repository of the user's worktree
? ws @HOME/src/proj-x
< start @HOME/src/proj; git -C @HOME/src/proj worktree add -q @WS -b x
$ printf @FSMONITOR >>@HOME/src/proj/.git/config; cp evil @HOME/src/proj/.git/hooks/pre-commit
t git status; git -C @HOME/src/proj status; git commit --allow-empty -m x

== repository that a remote names
< start; bare @DISK/r.git; git remote add origin @DISK/r.git
$ cp evil @DISK/r.git/hooks/pre-receive; printf @FSMONITOR >>@DISK/r.git/config
t git commit -q --allow-empty -m x; git push origin main

== configuration of the user
$ printf @FSMONITOR >>@HOME/.gitconfig; mkdir -p @HOME/.config/git && printf @FSMONITOR >>@HOME/.config/git/config
t git status
"""
