"""Rows of scripts/workday-test: daemons, process numbers, sockets and terminals across calls; workday_rows.py explains the marks."""

SERVER = r"python3 -m http.server --bind 127.0.0.1 @PORT"

ROWS = r"""
== nohup in one call, kill in the next
? expect alike
$ nohup sleep 300 >/dev/null 2>&1 & echo $! >s.pid
$ kill -0 $(cat s.pid) && kill $(cat s.pid)
$ @UNTIL sh -c '! kill -0 $(cat s.pid)'

== a background process that keeps the output open
? expect alike
$ sleep 300 & echo $! >s.pid; echo started
= started
$ kill $(cat s.pid)

== setsid, a daemon that writes later
? expect alike
$ setsid sh -c 'while [ ! -e go ]; do sleep 0.05; done; echo went >out' >/dev/null 2>&1 &
$ touch go && @UNTIL test -s out && cat out
= went

== an http server in one call, curl in the next
? need curl
? expect alike
< echo page >index.html
$ @SERVER >server.log 2>&1 & echo $! >server.pid
$ @UNTIL curl -sf http://127.0.0.1:@PORT/ && curl -s http://127.0.0.1:@PORT/
= page
$ kill $(cat server.pid) && @UNTIL sh -c '! curl -s http://127.0.0.1:@PORT/'

== an http server reached by a script
? expect alike
< echo page >index.html
$ nohup @SERVER >server.log 2>&1 & echo $! >server.pid
c @UNTIL python3 -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:@PORT/")' && python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:@PORT/").read())'
= page
$ kill $(cat server.pid)

== ps and pgrep see the process of an earlier call
? need ps pgrep
? expect alike
$ sleep 300.@PORT >/dev/null 2>&1 & echo $! >s.pid
$ ps -o args= -p $(cat s.pid)
= sleep 300.@PORT
$ pgrep -f 'sleep 300\.@PORT' | grep -cx "$(cat s.pid)"
= 1
$ pkill -f 'sleep 300\.@PORT'

== lsof and /proc of an earlier call's process
? need lsof
? expect alike
$ sleep 300 >held.log 2>&1 & echo $! >s.pid
$ readlink /proc/$(cat s.pid)/cwd
= @WS
$ lsof -p $(cat s.pid) 2>/dev/null | grep -o held.log | head -1
= held.log
$ kill $(cat s.pid)

== jobs of one call are not jobs of the next
? expect alike
$ sleep 300 >/dev/null 2>&1 & echo $! >s.pid; jobs | wc -l
= 1
$ jobs | wc -l
= 0
$ kill $(cat s.pid)

== a unix socket in the workspace between calls
? expect alike
< cat >serve.py <<'END'
  import socket
  s = socket.socket(socket.AF_UNIX)
  s.bind("w.sock")
  s.listen()
  while True:
      c, _ = s.accept()
      c.sendall(b"over the socket")
      c.close()
  END
$ python3 serve.py >/dev/null 2>&1 & echo $! >s.pid
$ @UNTIL test -S w.sock; python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("w.sock"); print(s.recv(100))'
= over the socket
$ kill $(cat s.pid) && rm w.sock

== a unix socket in /tmp and one without a name between calls
? expect alike
< cat >serve.py <<'END'
  import socket, sys, threading
  def serve(name):
      s = socket.socket(socket.AF_UNIX)
      s.bind(name)
      s.listen()
      while True:
          s.accept()[0].sendall(b"over the socket")
  threading.Thread(target=serve, args=("\0w-@PORT",)).start()
  serve("/tmp/w-@PORT.sock")
  END
$ python3 serve.py >/dev/null 2>&1 & echo $! >s.pid
$ @UNTIL test -S /tmp/w-@PORT.sock; python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/tmp/w-@PORT.sock"); print(s.recv(100))'
= over the socket
$ python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("\0w-@PORT"); print(s.recv(100))'
= over the socket
$ kill $(cat s.pid); rm /tmp/w-@PORT.sock

== a fifo between calls
? expect alike
$ mkfifo f && (echo through >f) >/dev/null 2>&1 &
$ @UNTIL test -p f; timeout 10 cat f
= through
$ rm f

== shared memory between calls
? expect alike
$ echo kept >/dev/shm/w-@PORT
$ cat /dev/shm/w-@PORT && rm /dev/shm/w-@PORT
= kept

== a lock that an earlier call's process holds
? need flock
? expect alike
$ (exec 9>lock; flock 9; touch held; exec sleep 300) >/dev/null 2>&1 & echo $! >s.pid
x @UNTIL test -e held; flock -n lock true
$ kill $(cat s.pid); @UNTIL flock -n lock true

== tmux
? need tmux
? expect alike
? loose t.sock
$ tmux -S t.sock -f /dev/null new -d -s w && tmux -S t.sock ls -F '#S'
= w
$ tmux -S t.sock send-keys -t w 'echo $((40 + 2)) >out' Enter && @UNTIL test -s out && cat out
= 42
$ tmux -S t.sock kill-server

== tmux with its own socket in /tmp
? need tmux
? expect alike
$ tmux -L w@PORT -f /dev/null new -d -s w
$ tmux -L w@PORT ls -F '#S' && tmux -L w@PORT kill-server
= w

== pg_ctl start, psql, pg_ctl stop
? need pg_ctl initdb psql
? expect alike
? loose pg
$ initdb -D pg -U ann -A trust --no-sync -E UTF8 --locale=C >/dev/null && pg_ctl -s -D pg -o "-k $PWD -p @PORT -c listen_addresses=''" -l pg.log -w start
$ psql -h "$PWD" -p @PORT -U ann -Atc 'select 6*7' postgres
= 42
$ pg_ctl -s -D pg -m fast -w stop
x pg_ctl -D pg status

== pg_ctl with its socket in /tmp and a TCP port
? need pg_ctl initdb psql
? expect alike
? loose pg
$ initdb -D pg -U ann -A trust --no-sync -E UTF8 --locale=C >/dev/null && pg_ctl -s -D pg -o "-k /tmp -p @PORT" -l pg.log -w start
$ psql -h 127.0.0.1 -p @PORT -U ann -Atc 'select 1' postgres && psql -h /tmp -p @PORT -U ann -Atc 'select 6*7' postgres
= 42
$ pg_ctl -s -D pg -m fast -w stop

== a pid file and stop, twice
? expect alike
< printf 'if kill "$(cat s.pid)"; then rm s.pid; echo stopped; else echo not running; exit 3; fi\n' >stop.sh
$ nohup sleep 300 >/dev/null 2>&1 & echo $! >s.pid
$ sh stop.sh
= stopped
x sh stop.sh
= not running

== signals to an earlier call's process
? expect alike
< cat >daemon.sh <<'END'
  trap 'echo reloaded >>log.txt' HUP
  trap 'echo bye >>log.txt; exit 0' TERM
  echo ready >log.txt
  while :; do sleep 0.05; done
  END
$ sh daemon.sh >/dev/null 2>&1 & echo $! >d.pid
$ @UNTIL grep -q ready log.txt && kill -HUP $(cat d.pid) && @UNTIL grep -q reloaded log.txt && kill $(cat d.pid) && @UNTIL grep -q bye log.txt; cat log.txt
= bye

== a daemon that forks twice and closes everything
? expect alike
< cat >daemon.py <<'END'
  import os, time
  if os.fork(): os._exit(0)
  os.setsid()
  if os.fork(): os._exit(0)
  for n in range(3): os.close(n)
  with open("d.pid", "w") as f: f.write(str(os.getpid()))
  time.sleep(300)
  END
$ python3 daemon.py && @UNTIL test -s d.pid
$ kill $(cat d.pid)

== a queue that is worked off between calls
? expect alike
< mkdir queue
$ (while :; do for f in queue/*; do [ -f "$f" ] && tr a-z A-Z <"$f" >>done.txt && rm "$f"; done; sleep 0.05; done) >/dev/null 2>&1 & echo $! >w.pid
$ echo job >queue/new && @UNTIL sh -c '! test -e queue/new' && cat done.txt
= JOB
$ kill $(cat w.pid)

== the user sees what a daemon writes
? expect alike
$ (while [ ! -e go ]; do sleep 0.05; done; echo seen >out) >/dev/null 2>&1 &
u touch go; @UNTIL test -s out; cat out

== ssh-agent
? need ssh-agent ssh-add ssh-keygen
? expect alike
? loose agent.sh
$ ssh-agent -s >agent.sh
$ . ./agent.sh >/dev/null; ssh-keygen -q -t ed25519 -N '' -f k -C mine && ssh-add -q k && ssh-add -l | grep -o mine && rm k k.pub
= mine
$ . ./agent.sh >/dev/null; ssh-agent -k >/dev/null

== background and wait
? expect alike
$ sleep 0.1 & sleep 0.1 & wait && echo both
= both
$ (exit 3) & wait $! ; [ $? = 3 ] && echo three
= three

== trap on exit
? expect alike
$ t=$(mktemp -d); trap 'rm -rf "$t"; echo cleaned >trap.txt' EXIT; touch $t/x; ls $t
= x
$ cat trap.txt
= cleaned

== a signal to oneself
? expect alike
x kill -TERM $$
x kill -KILL $$
x python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'
$ trap 'echo got usr1' USR1; kill -USR1 $$; echo after
= got usr1

== timeout ends a program
? expect alike
x timeout 0.3 sleep 60
x timeout -s KILL 0.3 sleep 60

== xargs -P and two hundred processes
? expect alike
$ seq 200 | xargs -P 50 -I{} sh -c 'echo {} >/dev/null' && for i in $(seq 200); do sleep 0.5 & done; wait; echo all
= all

== five hundred threads
? expect alike
$ python3 -c 'import threading as t; e = t.Event(); a = [t.Thread(target=e.wait) for _ in range(500)]; [x.start() for x in a]; e.set(); [x.join() for x in a]; print("joined")'
= joined

== redis
? need redis-server redis-cli
? expect alike
$ redis-server --daemonize yes --port @PORT --pidfile "$PWD/r.pid" --save '' >/dev/null
$ @UNTIL redis-cli -p @PORT ping && redis-cli -p @PORT set a 4 && redis-cli -p @PORT get a
= 4
$ redis-cli -p @PORT shutdown nosave

== screen
? need screen
? expect alike
$ SCREENDIR=$PWD/.screen screen -dmS w sh -c 'echo 42 >out; exec sleep 300'
$ @UNTIL test -s out && cat out && SCREENDIR=$PWD/.screen screen -S w -X quit
= 42

== kill of a process of the user's
h echo $$ >h.pid; exec sleep 300
u @UNTIL test -s h.pid
$ kill $(cat h.pid)

== IPv6 loopback between calls
? if python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))'
? need curl
? expect alike
$ python3 -m http.server --bind ::1 @PORT >server.log 2>&1 & echo $! >server.pid
$ @UNTIL curl -sf http://[::1]:@PORT/ && kill $(cat server.pid)

== bash's /dev/tcp to a server of the same call
? expect alike
< echo page >index.html
$ @SERVER >server.log 2>&1 & p=$!; @UNTIL bash -c '</dev/tcp/127.0.0.1/@PORT'; exec 3<>/dev/tcp/127.0.0.1/@PORT; printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3; kill $p
= page

== a server that the user started on loopback
? need curl
< mkdir @DISK/site && echo page >@DISK/site/index.html
h cd @DISK/site && exec @SERVER
u @UNTIL curl -sf http://127.0.0.1:@PORT/
$ curl -sS -m 10 http://127.0.0.1:@PORT/
= page

== a database socket that the user's daemon made
< cat >@DISK/serve.py <<'END'
  import socket
  s = socket.socket(socket.AF_UNIX)
  s.bind("@HOME/db.sock")
  s.listen()
  while True:
      s.accept()[0].sendall(b"rows")
  END
? expect explained
? names db\.sock
h exec python3 @DISK/serve.py
u @UNTIL test -S @HOME/db.sock
< cat >client.py <<'END'
  import socket, sys
  s = socket.socket(socket.AF_UNIX)
  try:
      s.connect(sys.argv[1])
  except OSError as error:
      sys.exit(f"cannot connect to {sys.argv[1]}: {error}")
  print(s.recv(100))
  END
$ python3 client.py @HOME/db.sock
= rows

== psql to the user's PostgreSQL by its socket
? need initdb postgres psql pg_isready
? expect explained
? names \.s\.PGSQL|disk
? loose @DISK/pg
< initdb -D @DISK/pg -U ann -A trust --no-sync -E UTF8 --locale=C >/dev/null
h exec postgres -D @DISK/pg -k @DISK -p @PORT -c listen_addresses=''
u @UNTIL pg_isready -q -h @DISK -p @PORT && echo ready
$ psql -h @DISK -p @PORT -U ann -Atc 'select 6*7' postgres
= 42

== names of this machine
? expect alike
$ getent hosts localhost >/dev/null && hostname && ip -o addr show lo | head -1 | cut -c1-5
= *

== tty and stty without a terminal
? expect alike
x tty
= not a tty
x stty -a

== script gives a terminal
? need script
? expect alike
$ script -qec 'test -t 1 && tty | grep -o /dev/pts' /dev/null
= /dev/pts
$ script -qec 'stty rows 40 && stty size' /dev/null
= 40

== a terminal from python
? expect alike
$ python3 -c 'import pty; raise SystemExit(pty.spawn(["sh", "-c", "tty | cut -c1-8; test -t 0"]) >> 8)'
= /dev/pts
$ python3 -c 'import os; m, s = os.openpty(); print(os.isatty(s), os.ttyname(s)[:8])'
= True /dev/pts

== full-screen programs
? need script top
? expect alike
$ TERM=xterm script -qec 'python3 -c "import curses; s = curses.initscr(); curses.endwin(); print(7 * 6)"' /dev/null
= 42
$ top -bn1 | grep -c '^ *PID'
= 1

== programs that read stdin
? expect alike
$ cat; wc -l; sort
x read -r line
x python3 -c 'input()'
$ bash -s <<<'echo from stdin'
= from stdin
$ python3 -i -c 'print(5)' 2>&1
= 5

== big output and its exit code
? expect alike
x head -c 30000000 /dev/zero | tr '\0' 'x' | fold -w 100; exit 4
$ python3 -c 'print("y" * 1000000)' | wc -c
= 1000001
$ head -c 100000 /dev/urandom
$ seq 300000 >numbers && tail -1 numbers
= 300000

== unshare
? need unshare
? if unshare -Ur true
$ unshare -Ur id -u
= 0

== a tool in a sandbox of its own
? need bwrap
? if bwrap --ro-bind / / true
$ bwrap --ro-bind / / true

== su without a password
? need su
x su -c true

== sudo that wants a password
? need sudo
? if ! sudo -n true
x sudo -n true

== sudo without a password
? need sudo
? if sudo -n true
? expect explained
$ sudo -n true

== a daemon that is left when the session ends
? expect alike
$ setsid nohup sleep 300 >/dev/null 2>&1 & echo $! >s.pid
$ kill -0 $(cat s.pid)

== the daemon of an earlier call under gdb
? need gdb
? if sh -c 'sleep 60 & gdb -nx -batch -p $! -ex detach >/dev/null 2>&1; r=$?; kill $!; exit $r'
$ sleep 300 >/dev/null 2>&1 & echo $! >s.pid
$ gdb -nx -batch -p $(cat s.pid) -ex detach
= detached]
$ kill $(cat s.pid)
""".replace("@SERVER", SERVER)
