//! `llmc trust`: accept the security keys of the workspace's file.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_config::{ConfigTrust, TrustState, revoke_trust};
use llmc_tools::ErrorKind;

use super::{Failure, confirm, inputs, load, print, require_user};
use crate::cli::{Common, TrustArgs};

pub(super) fn run(common: &Common, args: &TrustArgs) -> Result<ExitCode, Failure> {
    require_user()?;
    if args.revoke {
        return revoke(common);
    }
    let loaded = load(common)?;
    let trust = &loaded.trust;
    let Some(file) = &trust.file else {
        print("no llmc.toml here: nothing to accept")?;
        return Ok(ExitCode::SUCCESS);
    };
    let file = visible(&file.display().to_string());
    if trust.settings.is_empty() {
        print(&format!(
            "{file} sets no security keys: nothing to accept\nhash: {}",
            trust.hash
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&describe(&file, trust))?;
    match &trust.state {
        _ if args.show => {}
        TrustState::NotNeeded | TrustState::Trusted(_) => {}
        TrustState::Untrustable(why) => {
            let message = format!(
                "{file} cannot be accepted: {why}\n  hint: mend that, or put the settings into your own file \
                 ($XDG_CONFIG_HOME/llmc/config.toml); LLMC_TRUST accepts a file of another user"
            );
            return Err(Failure::new(ErrorKind::PermissionDenied, message));
        }
        TrustState::Untrusted(_) => {
            let hint = "--yes accepts, --show only shows";
            if !args.yes && !confirm("accept these settings?", hint)? {
                print("nothing was accepted")?;
                return Ok(ExitCode::SUCCESS);
            }
            trust
                .record()
                .map_err(|error| Failure::from_error(ErrorKind::WriteFailed, &error))?;
            print("accepted; running servers read it when they start again")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn revoke(common: &Common) -> Result<ExitCode, Failure> {
    let (file, revoked) = revoke_trust(&inputs(common)?)?;
    let file = visible(&file.display().to_string());
    print(&match revoked {
        true => {
            format!("{file} is no longer trusted; running servers read that when they start again")
        }
        false => format!("{file} was not trusted"),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn describe(file: &str, trust: &ConfigTrust) -> String {
    let mut out = format!("{file} sets these security keys:\n");
    for setting in &trust.settings {
        let _ = writeln!(out, "  {} = {}", setting.key, visible(&setting.value));
    }
    let _ = writeln!(out, "hash: {}", trust.hash);
    let _ = match &trust.state {
        TrustState::NotNeeded => Ok(()),
        TrustState::Trusted(why) => writeln!(out, "trusted: {why}"),
        TrustState::Untrusted(why) | TrustState::Untrustable(why) => {
            writeln!(out, "not trusted, so they are ignored: {why}")
        }
    };
    out
}

/// Text from a file or a name that is not trusted, with everything escaped that could hide or reorder parts of it on a terminal.
pub(super) fn visible(text: &str) -> String {
    text.chars().fold(String::new(), |mut shown, c| {
        if c.is_control() || !(c.is_ascii() || c.is_alphanumeric()) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_value_can_hide_another() {
        assert_eq!(visible("[\"/srv/käse\"]"), "[\"/srv/käse\"]");
        assert_eq!(
            visible("a\u{1b}[2Kb\u{202e}c\rd\u{200b}"),
            "a\\u{1b}[2Kb\\u{202e}c\\u{d}d\\u{200b}"
        );
    }
}
