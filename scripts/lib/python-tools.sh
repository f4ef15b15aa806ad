# Sourced: Python packages at exact versions, in a folder of their own beside whatever the machine has.

# The pytest that tests and benchmarks run.
PYTEST=pytest==9.2.0

# python_tools PACKAGE==VERSION...: installs them once under the user's cache; sets $site (the folder to import from).
python_tools() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/llmc/python-tools
  site=$cache/$(printf '%s\n' "$@" | sha256sum | cut -c1-16)
  mkdir -p "$cache"
  (
    flock 9
    [[ -e $site/.complete ]] && exit 0
    python3 -m pip --version >/dev/null 2>&1 || { echo "pip is needed to install $*" >&2; exit 1; }
    echo "installing $* into $site" >&2
    rm -rf "$site"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$site" "$@" || exit 1
    touch "$site/.complete"
  ) 9>"$cache/.lock"
}
