# Sourced: programs of crates.io at exact versions, built once for this user.

# cargo_tool CRATE VERSION [FLAG...]: builds its executables under the user's cache; sets $tool_bin (their folder).
cargo_tool() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/llmc/cargo-tools
  local folder=$cache/$1-$2
  tool_bin=$folder/bin
  mkdir -p "$cache"
  (
    flock 9
    [[ -e $folder/.complete ]] && exit 0
    echo "building $1 $2 into $folder" >&2
    rm -rf "$folder"
    # Without the settings of the repository and of CI, and without a second copy of what was built.
    env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET cargo install --quiet --locked --version "=$2" "${@:3}" --root "$folder" "$1" || exit 1
    touch "$folder/.complete"
  ) 9>"$cache/.lock"
}
