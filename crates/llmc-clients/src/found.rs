//! Which clients this machine has: by the folders that they make, or by their programs on the search path.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::client::{Client, ClientPaths, cline_folders};

impl Client {
    /// Whether the client was used on this machine or can be started on it.
    pub fn is_found(self, place: &ClientPaths) -> bool {
        let ClientPaths { home, config, .. } = place;
        let (traces, program): (Vec<PathBuf>, &str) = match self {
            Client::ClaudeDesktop => (vec![config.join("Claude")], "claude-desktop"),
            Client::ClaudeCode => (
                vec![home.join(".claude.json"), home.join(".claude")],
                "claude",
            ),
            Client::Codex => (vec![place.codex.clone()], "codex"),
            Client::Cursor => (vec![home.join(".cursor"), config.join("Cursor")], "cursor"),
            Client::VsCode => (vec![config.join("Code")], "code"),
            Client::Continue => (vec![home.join(".continue")], "cn"),
            Client::Cline => (cline_folders(place).to_vec(), "cline"),
            Client::Zed => (vec![config.join("zed")], "zed"),
            Client::Gemini => (vec![home.join(".gemini")], "gemini"),
            Client::Windsurf => (
                vec![home.join(".codeium/windsurf"), config.join("Windsurf")],
                "windsurf",
            ),
        };
        let can_start = |folder: &PathBuf| {
            let found = folder.join(program).metadata();
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        traces.iter().any(|trace| trace.exists()) || place.search_path.iter().any(can_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_found_by_their_folders_and_programs() {
        let base = tempfile::tempdir().unwrap();
        let (home, bin) = (base.path().join("home"), base.path().join("bin"));
        let path = std::env::join_paths([&bin]).unwrap();
        let place = ClientPaths::new(home.clone(), "/p".into(), |name| {
            (name == "PATH").then(|| path.clone())
        });
        let found = || -> Vec<&str> {
            let all = Client::ALL.into_iter();
            all.filter(|client| client.is_found(&place))
                .map(Client::id)
                .collect()
        };
        assert_eq!(found(), [""; 0]);
        for folder in [
            ".gemini",
            ".config/zed",
            ".config/VSCodium/User/globalStorage/saoudrizwan.claude-dev",
        ] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("code"), "no program").unwrap();
        std::fs::write(bin.join("codex"), "#!/bin/sh\n").unwrap();
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bin.join("codex"), runs).unwrap();
        assert_eq!(found(), ["codex", "cline", "zed", "gemini"]);
    }
}
