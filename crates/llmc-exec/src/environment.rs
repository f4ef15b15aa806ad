//! The environment variables a command starts with: the server's own, less what looks like a secret.
//!
//! Profile `restricted`, interpreters of scripts and the server's own git get a closed list instead, since variables decide what
//! programs load and run. The server's own settings (`LLMC_*`) never reach a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::secret_variables::is_secret;
use super::settings::{Children, Profile, Settings};

/// The closed list, beside those whose names start with `LC_`.
const CLOSED_LIST: [&str; 7] = ["PATH", "TERM", "HOME", "LANG", "TZ", "USER", "LOGNAME"];

/// Set for every command: a root is a mount of its own, and git would not look for a repository above it.
pub(super) const GIT_DISCOVERY: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";

/// How the names of the server's own settings begin.
const OWN_PREFIX: &str = "LLMC_";

/// What the server's shell has left about itself; a command's shell sets its own.
const OF_SHELL: [&str; 3] = ["PWD", "OLDPWD", "_"];

/// Whether an environment variable can have this name.
pub(super) fn is_variable(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.is_empty() && !bytes.iter().any(|b| matches!(b, b'=' | 0))
}

/// Whether a variable is on the closed list.
pub(super) fn is_on_closed_list(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"LC_") || CLOSED_LIST.iter().any(|other| name == *other)
}

/// The variables of this process that commands inherit, `PATH` and `TERM`.
pub(super) fn base_environment(settings: &Settings) -> Vec<(OsString, OsString)> {
    select(settings, std::env::vars_os())
}

/// Names of this process's variables that commands do not get because they look like secrets, sorted.
pub fn withheld_names(settings: &Settings) -> Vec<String> {
    withheld(settings, std::env::vars_os())
}

fn withheld(settings: &Settings, own: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut names: Vec<String> = own
        .filter(|(name, value)| Passing::of(settings, name, value) == Passing::Withheld)
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What becomes of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    Passes,
    /// It looks like a secret, and the operator has not named it.
    Withheld,
    /// It is not of concern to commands.
    LeftOut,
}

impl Passing {
    fn of(settings: &Settings, name: &OsStr, value: &OsStr) -> Passing {
        let is_any_of = |names: &[&str]| names.iter().any(|other| name == *other);
        if name.as_bytes().starts_with(OWN_PREFIX.as_bytes()) || is_any_of(&OF_SHELL) {
            return Passing::LeftOut;
        }
        if settings.env.iter().any(|other| name == other.as_str()) {
            return Passing::Passes;
        }
        let is_closed = settings.profile == Profile::Restricted
            || settings.children == Children::Refused
            || settings.sees.is_some();
        if is_closed && !is_on_closed_list(name) {
            return Passing::LeftOut;
        }
        match is_secret(&name.to_string_lossy(), value.as_bytes()) {
            true => Passing::Withheld,
            false => Passing::Passes,
        }
    }
}

fn select(
    settings: &Settings,
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = own
        .filter(|(name, value)| Passing::of(settings, name, value) == Passing::Passes)
        .collect();
    let mut set = |name: &str, value: OsString| {
        env.retain(|(known, _)| known != name);
        env.push((name.into(), value));
    };
    if let Ok(path) = std::env::join_paths(&settings.search_path) {
        set("PATH", path);
    }
    if let Some(home) = &settings.home {
        set("HOME", home.into());
    }
    set("TERM", "dumb".into());
    if settings.profile == Profile::Unrestricted {
        set(GIT_DISCOVERY, "1".into());
    }
    env
}

/// The Python environment of a workspace, as `VIRTUAL_ENV` names it; its programs come first on the search path.
pub(super) fn virtual_env(workspace: &Path) -> Option<OsString> {
    let dirs = [".venv", "venv"].map(|dir| workspace.join(dir));
    let mut dirs = dirs.into_iter();
    dirs.find(|dir| dir.join("pyvenv.cfg").is_file())
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    const OWN: [(&str, &str); 14] = [
        ("PATH", "/server/bin"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C"),
        ("CARGO_HOME", "/cargo"),
        ("TERM", "xterm"),
        ("CI", "true"),
        ("HTTPS_PROXY", "http://proxy.example:3128"),
        ("DATABASE_URL", "postgres://ann:pass-of-ann@localhost/shop"),
        ("MY_TOKEN", "s3cret"),
        ("PASSED_ON_TOKEN", "s3cret"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("LLMC_MCP_TOKEN", "s3cret"),
        ("PWD", "/where/the/server/is"),
        ("MULTI", "one\ntwo"),
    ];

    fn own() -> impl Iterator<Item = (OsString, OsString)> {
        OWN.iter().map(|(name, value)| (name.into(), value.into()))
    }

    fn settings(profile: Profile) -> Settings {
        let named = ["PASSED_ON_TOKEN", "LLMC_MCP_TOKEN"];
        Settings {
            profile,
            env: named.map(str::to_owned).to_vec(),
            search_path: vec!["/a".into(), "/b".into()],
            home: Some("/home/u".into()),
            ..Settings::default()
        }
    }

    fn selected(settings: &Settings) -> Vec<String> {
        let env = select(settings, own());
        let mut env: Vec<String> = env
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        env.sort();
        env
    }

    #[test]
    fn the_servers_variables_pass_and_secrets_do_not() {
        let wanted = [
            "CARGO_HOME=/cargo",
            "CI=true",
            "GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
            "HOME=/home/u",
            "HTTPS_PROXY=http://proxy.example:3128",
            "LANG=C.UTF-8",
            "LC_ALL=C",
            "MULTI=one\ntwo",
            "PASSED_ON_TOKEN=s3cret",
            "PATH=/a:/b",
            "TERM=dumb",
        ];
        let settings = settings(Profile::Unrestricted);
        assert_eq!(selected(&settings), wanted);
        let names = withheld(&settings, own());
        assert_eq!(names, ["DATABASE_URL", "MY_TOKEN", "SSH_AUTH_SOCK"]);
    }

    #[test]
    fn the_restricted_profile_has_a_closed_list() {
        let restricted = settings(Profile::Restricted);
        let wanted = [
            "HOME=/home/u",
            "LANG=C.UTF-8",
            "LC_ALL=C",
            "PASSED_ON_TOKEN=s3cret",
            "PATH=/a:/b",
            "TERM=dumb",
        ];
        assert_eq!(selected(&restricted), wanted);
    }

    #[test]
    fn values_pass_byte_for_byte() {
        let odd = OsString::from_vec(b"\xff\xfe\n".to_vec());
        let own = [(OsString::from("ODD"), odd.clone())];
        let env = select(&settings(Profile::Unrestricted), own.into_iter());
        assert!(env.contains(&("ODD".into(), odd)));
    }
}
