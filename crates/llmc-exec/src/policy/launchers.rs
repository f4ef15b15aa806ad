//! Programs that start other programs named in their arguments or input, so that no rule can bound them.

/// Interpreters, launchers, build tools, editors and remote shells, separated by spaces. Version numbers at the end of a
/// name do not count.
const LAUNCHERS: &[&str] = &[
    // shells
    "ash bash busybox csh dash elvish fish ksh mksh nu pwsh rbash sh tcsh toybox yash zsh",
    // languages
    "awk bun clojure deno elixir erl gawk gdb ghci groovy guile iex ipython irb java jjs jshell julia lldb lua",
    "luajit mawk nawk node nodejs ocaml octave perl php pypy python r racket ruby rscript sbcl scala swift",
    "tclsh ts-node tsx wish",
    // build tools and package managers
    "ansible apk apt apt-get bazel brew bundle cargo cmake composer conda dnf dpkg gem gmake go gradle just",
    "make mvn ninja nix npm npx pip pipx pnpm poetry pytest rake rpm rustc rustup tox uv uvx yarn yum",
    // what starts other programs
    "at batch chroot chrt crontab doas docker env expect flock gcc cc clang ionice kubectl ld ltrace nice",
    "nohup nsenter parallel pkexec podman proot run-parts runuser script setarch setpriv setsid ssh-agent",
    "start-stop-daemon stdbuf strace su sudo systemd-run taskset tclsh time timeout unshare watch xargs",
    // editors, pagers and readers with a shell in them
    "ed emacs ex info less m4 man more most nano nvim pico rvim screen tmux vi view vim vimdiff",
    // archives and remote access with commands of their own
    "cpio curl ftp nc ncat netcat openssl rsync scp sftp socat sqlite ssh tar telnet unzip wget zip",
];

/// Whether a program of this name starts arbitrary programs.
pub(crate) fn is_launcher(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let mut launchers = LAUNCHERS.iter().flat_map(|line| line.split(' '));
    launchers.any(|launcher| launcher == name || launcher == bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_with_and_without_their_versions() {
        for name in [
            "bash",
            "/bin/sh",
            "python3",
            "python3.12",
            "perl5.36",
            "lua5.4",
            "Python",
            "busybox",
            "env",
            "find-not-this",
        ] {
            assert_eq!(is_launcher(name), name != "find-not-this", "{name}");
        }
        for name in [
            "rg", "grep", "git", "find", "sed", "jq", "cat", "b2sum", "7z", "123",
        ] {
            assert!(!is_launcher(name), "{name}");
        }
    }
}
