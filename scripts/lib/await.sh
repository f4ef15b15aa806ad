# Sourced: waiting for servers that a script has started.

# free_port: prints a free port.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# await SECONDS PID COMMAND...: tries until the command succeeds; fails when the process has ended or time is up.
await() {
  local tries=$(($1 * 10)) pid=$2
  shift 2
  while ((tries-- > 0)); do
    "$@" >/dev/null 2>&1 && return 0
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}
