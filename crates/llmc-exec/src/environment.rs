//! The environment variables a command starts with.
//!
//! The list is closed: a variable that is not named here or by the operator does not reach a command, and a variable whose
//! name looks like a secret never does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::settings::{Profile, Settings};

/// Variables of every command, beside `PATH`, `TERM` and those whose names start with `LC_`.
const INHERITED: [&str; 5] = ["HOME", "LANG", "TZ", "USER", "LOGNAME"];

/// Variables by which tool chains find their folders. Not passed on in the restricted profile.
const TOOL_CHAIN: [&str; 7] = [
    "VIRTUAL_ENV",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "JAVA_HOME",
    "NVM_DIR",
    "CI",
];

/// Parts of the names of variables that hold secrets.
const SECRET_PARTS: [&str; 13] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "AUTH_SOCK",
    "_AUTH",
    "COOKIE",
];

/// Whether a variable's name says that its value is a secret.
pub(crate) fn is_secret_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Whether an environment variable can have this name.
pub(super) fn is_variable(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.is_empty() && !bytes.iter().any(|b| matches!(b, b'=' | 0))
}

/// The variables of this process that commands inherit, `PATH` and `TERM`.
pub(super) fn base_environment(settings: &Settings) -> Vec<(OsString, OsString)> {
    select(settings, std::env::vars_os())
}

/// Variables that a shell sets for itself, which no command misses.
const OF_THE_SHELL: [&str; 4] = ["_", "SHLVL", "PWD", "OLDPWD"];

/// Names of this process's variables that commands do not get, the server's own ones aside.
pub(super) fn withheld_names(settings: &Settings) -> Vec<String> {
    withheld(settings, &std::env::vars_os().collect::<Vec<_>>())
}

fn withheld(settings: &Settings, own: &[(OsString, OsString)]) -> Vec<String> {
    let passed = select(settings, own.iter().cloned());
    let names = own.iter().filter_map(|(name, _)| name.to_str());
    names
        .filter(|name| !name.starts_with("LLMC_") && !OF_THE_SHELL.contains(name))
        .filter(|name| !passed.iter().any(|(passed, _)| passed == name))
        .map(str::to_owned)
        .collect()
}

fn select(
    settings: &Settings,
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let is_inherited = |name: &OsStr| {
        let is_any_of = |names: &[&str]| names.iter().any(|other| name == *other);
        if name.to_str().is_none_or(is_secret_variable) {
            return false;
        }
        name.as_bytes().starts_with(b"LC_")
            || is_any_of(&INHERITED)
            || (settings.profile == Profile::Unrestricted && is_any_of(&TOOL_CHAIN))
            || settings.env.iter().any(|other| name == other.as_str())
    };
    let mut env: Vec<(OsString, OsString)> = own.filter(|(name, _)| is_inherited(name)).collect();
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
        // A root is a mount of its own, and git would not look for a repository above it.
        set("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1".into());
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
    use super::*;

    #[test]
    fn tool_chain_variables_pass_and_secrets_do_not() {
        let own = [
            ("PATH", "/server/bin"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C"),
            ("CARGO_HOME", "/cargo"),
            ("TERM", "xterm"),
            ("MY_SETTING", "1"),
            ("MY_TOKEN", "s3cret"),
            ("AWS_ACCESS_KEY_ID", "s3cret"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("LD_PRELOAD", "/evil.so"),
            ("LC_SECRET", "s3cret"),
            ("npm_config__auth", "s3cret"),
        ];
        let named = ["MY_SETTING", "MY_TOKEN", "npm_config__auth"];
        let settings = Settings {
            env: named.map(str::to_owned).to_vec(),
            search_path: vec!["/a".into(), "/b".into()],
            home: Some("/home/u".into()),
            ..Settings::default()
        };
        let names = |settings: &Settings| {
            let own = own.iter().map(|(name, value)| (name.into(), value.into()));
            let mut env: Vec<String> = select(settings, own)
                .iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
            env.sort();
            env
        };
        let wanted = [
            "CARGO_HOME=/cargo",
            "GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
            "HOME=/home/u",
            "LANG=C.UTF-8",
            "LC_ALL=C",
            "MY_SETTING=1",
            "PATH=/a:/b",
            "TERM=dumb",
        ];
        assert_eq!(names(&settings), wanted);
        let all = own.map(|(name, value)| (name.into(), value.into()));
        let wanted = [
            "MY_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "SSH_AUTH_SOCK",
            "LD_PRELOAD",
            "LC_SECRET",
            "npm_config__auth",
        ];
        assert_eq!(withheld(&settings, &all), wanted);
        let restricted = Settings {
            profile: Profile::Restricted,
            env: Vec::new(),
            ..settings
        };
        let wanted = [
            "HOME=/home/u",
            "LANG=C.UTF-8",
            "LC_ALL=C",
            "PATH=/a:/b",
            "TERM=dumb",
        ];
        assert_eq!(names(&restricted), wanted);
    }
}
