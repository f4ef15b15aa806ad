# Sourced: npm packages at exact versions, with a Node that is new enough whatever the machine has.

NODE=22.23.3

# node_tools PACKAGE@VERSION...: installs them once under the user's cache; sets $tools (the folder) and $node.
node_tools() {
  local arch cache lock
  case $(uname -m) in
    x86_64) arch=x64 ;;
    aarch64) arch=arm64 ;;
    *) echo "no Node package for $(uname -m)" >&2; return 1 ;;
  esac
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/llmc/node-tools
  tools=$cache/$(printf '%s\n' "$NODE" "$@" | sha256sum | cut -c1-16)
  node=$tools/node_modules/node-linux-$arch/bin/node
  mkdir -p "$cache"
  exec {lock}>"$cache/.lock"
  flock "$lock"
  if [[ ! -e $tools/.complete ]]; then
    command -v npm >/dev/null || { echo "npm is needed to install $*" >&2; return 1; }
    echo "installing $* into $tools"
    rm -rf "$tools"
    mkdir -p "$tools"
    # A polyfill far down Desktop Commander's dependencies; not every mirror has the patch release that is asked for last.
    echo '{"private":true,"overrides":{"typedarray.prototype.slice":"1.0.5"}}' >"$tools/package.json"
    npm install --prefix "$tools" --save-exact --omit=dev --no-audit --no-fund --loglevel=error \
      "node-linux-$arch@$NODE" "$@" >/dev/null || return 1
    touch "$tools/.complete"
  fi
  exec {lock}>&-
}
