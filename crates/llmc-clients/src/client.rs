//! The MCP clients: where each keeps its servers, in which format, and in which folder it starts them.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Anthropic's desktop application.
    ClaudeDesktop,
    /// Anthropic's command line agent.
    ClaudeCode,
    /// OpenAI's command line agent.
    Codex,
    /// The Cursor editor.
    Cursor,
    /// Visual Studio Code with Copilot.
    VsCode,
    /// The Continue extension.
    Continue,
    /// The Cline extension and command line.
    Cline,
    /// The Zed editor.
    Zed,
    /// Google's command line agent.
    Gemini,
    /// The Windsurf editor.
    Windsurf,
}

/// Whose settings are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsScope {
    /// Those of the user, for every project.
    User,
    /// Those that lie in the project.
    Project,
}

/// Format of a settings file, and the key that holds its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFormat {
    /// JSON, with comments and trailing commas where there are some; entries may need a `type`.
    Json {
        /// The object that holds the servers.
        servers: &'static str,
        /// Whether an entry needs `"type": "stdio"`.
        typed: bool,
    },
    /// TOML, a table for each server below this one.
    Toml {
        /// The table that holds the servers.
        servers: &'static str,
    },
    /// A YAML file of its own for each server.
    YamlFile,
}

/// In which folder a client starts its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFolder {
    /// The project it works on: the server finds its workspace by itself.
    InProject,
    /// Any folder, but the client replaces this variable by the project's folder.
    Variable(&'static str),
    /// Any folder: the entry must name the workspace.
    Anywhere,
}

/// Folders in which clients keep their settings.
#[derive(Debug, Clone)]
pub struct ClientPaths {
    pub home: PathBuf,
    /// `XDG_CONFIG_HOME`, usually `.config` in the home folder.
    pub config: PathBuf,
    /// `CODEX_HOME`, usually `.codex` in the home folder.
    pub codex: PathBuf,
    /// `CLINE_DIR`, usually `.cline` in the home folder.
    pub cline: PathBuf,
    pub project: PathBuf,
    /// The folders of `PATH`.
    pub search_path: Vec<PathBuf>,
}

impl ClientPaths {
    /// Reads the environment variables that move these folders, as the clients do: empty and relative values are ignored.
    pub fn new(
        home: PathBuf,
        project: PathBuf,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> ClientPaths {
        let moved = |name: &str, usual: &str| {
            let path = variable(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(usual))
        };
        ClientPaths {
            config: moved("XDG_CONFIG_HOME", ".config"),
            codex: moved("CODEX_HOME", ".codex"),
            cline: moved("CLINE_DIR", ".cline"),
            search_path: variable("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            home,
            project,
        }
    }
}

/// What is known about a client.
struct ClientInfo {
    id: &'static str,
    title: &'static str,
    format: SettingsFormat,
    /// The project's file; empty when there is none.
    project: &'static str,
    /// Where it starts servers of the user's file, and of the project's.
    starts: [StartFolder; 2],
    /// What makes it read the file again.
    next: &'static str,
}

/// Files of a folder that are looked at.
const MAX_FOLDER_FILES: usize = 1000;

const MCP_SERVERS: SettingsFormat = SettingsFormat::Json {
    servers: "mcpServers",
    typed: false,
};

impl Client {
    /// All of them, in reading order.
    pub const ALL: [Client; 10] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Codex,
        Client::Cursor,
        Client::VsCode,
        Client::Continue,
        Client::Cline,
        Client::Zed,
        Client::Gemini,
        Client::Windsurf,
    ];

    fn info(self) -> ClientInfo {
        use StartFolder::{Anywhere, InProject, Variable};
        let workspace_folder = Variable("${workspaceFolder}");
        let info = |id, title, format, project, starts, next| ClientInfo {
            id,
            title,
            format,
            project,
            starts,
            next,
        };
        match self {
            Client::ClaudeDesktop => info(
                "claude-desktop",
                "Claude Desktop",
                MCP_SERVERS,
                "",
                [Anywhere, Anywhere],
                "quit Claude Desktop and start it again",
            ),
            Client::ClaudeCode => info(
                "claude-code",
                "Claude Code",
                SettingsFormat::Json {
                    servers: "mcpServers",
                    typed: true,
                },
                ".mcp.json",
                [InProject, InProject],
                "start a new `claude` session; `/mcp` shows the server",
            ),
            Client::Codex => info(
                "codex",
                "Codex CLI",
                SettingsFormat::Toml {
                    servers: "mcp_servers",
                },
                ".codex/config.toml",
                [InProject, InProject],
                "start a new `codex` session; `/mcp` shows the server",
            ),
            Client::Cursor => info(
                "cursor",
                "Cursor",
                MCP_SERVERS,
                ".cursor/mcp.json",
                [Anywhere, workspace_folder],
                "switch the server on under Settings, MCP",
            ),
            Client::VsCode => info(
                "vscode",
                "VS Code",
                SettingsFormat::Json {
                    servers: "servers",
                    typed: true,
                },
                ".vscode/mcp.json",
                [Anywhere, workspace_folder],
                "run `MCP: List Servers` in the command palette and start it",
            ),
            Client::Continue => info(
                "continue",
                "Continue",
                SettingsFormat::YamlFile,
                ".continue/mcpServers",
                [Anywhere, Anywhere],
                "reload the window; agent mode has the tools",
            ),
            Client::Cline => info(
                "cline",
                "Cline",
                MCP_SERVERS,
                "",
                [Anywhere, Anywhere],
                "open Cline's MCP servers; it has read the file by then",
            ),
            Client::Zed => info(
                "zed",
                "Zed",
                SettingsFormat::Json {
                    servers: "context_servers",
                    typed: false,
                },
                ".zed/settings.json",
                [Anywhere, Anywhere],
                "trust the project if Zed asks; the Agent panel's settings show the server with a green dot",
            ),
            Client::Gemini => info(
                "gemini",
                "Gemini CLI",
                MCP_SERVERS,
                ".gemini/settings.json",
                [InProject, InProject],
                "start a new `gemini` session; `/mcp` shows the server",
            ),
            Client::Windsurf => info(
                "windsurf",
                "Windsurf",
                MCP_SERVERS,
                "",
                [Anywhere, Anywhere],
                "press refresh in the MCP list of Cascade",
            ),
        }
    }

    /// The name on the command line.
    pub fn id(self) -> &'static str {
        self.info().id
    }

    /// The name its makers give it.
    pub fn title(self) -> &'static str {
        self.info().title
    }

    pub fn format(self) -> SettingsFormat {
        self.info().format
    }

    /// What makes the client read the file again.
    pub fn next_step(self) -> &'static str {
        self.info().next
    }

    pub fn start_folder(self, scope: SettingsScope) -> StartFolder {
        let [user, project] = self.info().starts;
        match scope {
            SettingsScope::User => user,
            SettingsScope::Project => project,
        }
    }

    /// The settings to change when the caller names none: the user's where that serves every project, the project's where
    /// only those name the right folder, and the user's where the client has no others.
    pub fn default_scope(self) -> SettingsScope {
        if self.start_folder(SettingsScope::User) == StartFolder::InProject
            || self.info().project.is_empty()
        {
            SettingsScope::User
        } else {
            SettingsScope::Project
        }
    }

    /// The file that holds the entry of this name; `None` when the client has no settings of that scope.
    pub fn file(self, scope: SettingsScope, place: &ClientPaths, name: &str) -> Option<PathBuf> {
        let path = match (scope, self.info().project) {
            (SettingsScope::Project, "") => return None,
            (SettingsScope::Project, project) => place.project.join(project),
            (SettingsScope::User, _) => self.user_file(place),
        };
        Some(match self.format() {
            SettingsFormat::YamlFile => path.join(format!("{name}.yaml")),
            _ => path,
        })
    }

    /// Every file in which the client's settings of that scope name servers, with its format. Continue has one with its other
    /// settings, and a folder of further ones.
    pub fn files(
        self,
        scope: SettingsScope,
        place: &ClientPaths,
    ) -> Vec<(PathBuf, SettingsFormat)> {
        let Some(file) = self.file(scope, place, "llmc") else {
            return Vec::new();
        };
        let Some(folder) = file.parent().filter(|_| self == Client::Continue) else {
            return vec![(file, self.format())];
        };
        let config = folder.with_file_name("config.yaml");
        let mut files = vec![(config, SettingsFormat::YamlFile)];
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.take(MAX_FOLDER_FILES).map(|entry| entry.path());
        let mut found: Vec<(PathBuf, SettingsFormat)> = found
            .filter_map(|path| match path.extension()?.to_str()? {
                "yaml" | "yml" => Some((path, SettingsFormat::YamlFile)),
                "json" => Some((path, MCP_SERVERS)),
                _ => None,
            })
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        files.extend(found);
        files
    }

    fn user_file(self, place: &ClientPaths) -> PathBuf {
        let ClientPaths { home, config, .. } = place;
        match self {
            Client::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            Client::ClaudeCode => home.join(".claude.json"),
            Client::Codex => place.codex.join("config.toml"),
            Client::Cursor => home.join(".cursor/mcp.json"),
            Client::VsCode => config.join("Code/User/mcp.json"),
            Client::Continue => home.join(".continue/mcpServers"),
            Client::Cline => cline_file(place),
            Client::Zed => config.join("zed/settings.json"),
            Client::Gemini => home.join(".gemini/settings.json"),
            Client::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
        }
    }
}

/// Cline's command line has its own folder; the extension keeps its file in the editor's storage. The one that exists is
/// used, the extension's first.
fn cline_file(place: &ClientPaths) -> PathBuf {
    let file = "settings/cline_mcp_settings.json";
    let folders = cline_folders(place);
    let [extensions @ .., own] = &folders;
    match folders.iter().find(|folder| is_dir(folder)) {
        Some(found) if found == own => own.join("data").join(file),
        Some(found) => found.join(file),
        None => extensions[0].join(file),
    }
}

/// The folders that Cline makes: of the extension in each editor, then that of the command line.
pub(crate) fn cline_folders(place: &ClientPaths) -> [PathBuf; 5] {
    let storage = "User/globalStorage/saoudrizwan.claude-dev";
    let of = |editor: &str| place.config.join(editor).join(storage);
    [
        of("Code"),
        of("VSCodium"),
        of("Cursor"),
        of("Windsurf"),
        place.cline.clone(),
    ]
}

fn is_dir(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_dir())
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Client, String> {
        let known = Client::ALL.into_iter();
        let asked = text.to_ascii_lowercase().replace([' ', '_'], "-");
        let names = |client: Client| {
            let title = client.title().to_ascii_lowercase().replace(' ', "-");
            [client.id().to_owned(), title]
        };
        known
            .clone()
            .find(|client| names(*client).contains(&asked))
            .ok_or_else(|| {
                let ids: Vec<&str> = known.map(Client::id).collect();
                format!("one of {}", ids.join(", "))
            })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl FromStr for SettingsScope {
    type Err = String;

    fn from_str(text: &str) -> Result<SettingsScope, String> {
        match text {
            "user" => Ok(SettingsScope::User),
            "project" => Ok(SettingsScope::Project),
            _ => Err("one of user, project".to_owned()),
        }
    }
}

impl AsRef<OsStr> for SettingsScope {
    fn as_ref(&self) -> &OsStr {
        OsStr::new(match self {
            SettingsScope::User => "user",
            SettingsScope::Project => "project",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> ClientPaths {
        ClientPaths::new("/h".into(), "/p".into(), |_| None)
    }

    #[test]
    fn every_client_has_its_files() {
        let file = |client: Client, scope| client.file(scope, &place(), "llmc");
        let found: Vec<String> = Client::ALL
            .iter()
            .map(|client| {
                let user = file(*client, SettingsScope::User).unwrap();
                let project = file(*client, SettingsScope::Project).unwrap_or_default();
                format!("{client} {} {}", user.display(), project.display())
            })
            .collect();
        assert_eq!(
            found,
            [
                "claude-desktop /h/.config/Claude/claude_desktop_config.json ",
                "claude-code /h/.claude.json /p/.mcp.json",
                "codex /h/.codex/config.toml /p/.codex/config.toml",
                "cursor /h/.cursor/mcp.json /p/.cursor/mcp.json",
                "vscode /h/.config/Code/User/mcp.json /p/.vscode/mcp.json",
                "continue /h/.continue/mcpServers/llmc.yaml /p/.continue/mcpServers/llmc.yaml",
                "cline /h/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json ",
                "zed /h/.config/zed/settings.json /p/.zed/settings.json",
                "gemini /h/.gemini/settings.json /p/.gemini/settings.json",
                "windsurf /h/.codeium/windsurf/mcp_config.json ",
            ]
        );
    }

    #[test]
    fn continue_names_servers_in_several_files() {
        let base = tempfile::tempdir().unwrap();
        let place = ClientPaths::new(base.path().into(), "/p".into(), |_| None);
        let names = || -> Vec<String> {
            let files = Client::Continue.files(SettingsScope::User, &place);
            let shown = files
                .iter()
                .map(|(path, _)| path.strip_prefix(base.path()).unwrap());
            shown.map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names(), [".continue/config.yaml"]);
        let folder = base.path().join(".continue/mcpServers");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["b.yaml", "a.json", "notes.txt"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(
            names(),
            [
                ".continue/config.yaml",
                ".continue/mcpServers/a.json",
                ".continue/mcpServers/b.yaml"
            ]
        );
        let one = Client::Cursor.files(SettingsScope::Project, &place);
        assert_eq!(one, [("/p/.cursor/mcp.json".into(), MCP_SERVERS)]);
        assert_eq!(Client::Cline.files(SettingsScope::Project, &place), []);
    }

    #[test]
    fn clients_are_found_by_id_and_by_title() {
        for client in Client::ALL {
            assert_eq!(client.id().parse(), Ok(client));
            assert_eq!(client.title().parse(), Ok(client));
        }
        assert!("emacs".parse::<Client>().unwrap_err().contains("windsurf"));
    }

    #[test]
    fn clines_file_is_the_one_that_is_there() {
        let base = tempfile::tempdir().unwrap();
        let place = ClientPaths::new(base.path().into(), "/p".into(), |_| None);
        let shown = || {
            let file = Client::Cline
                .file(SettingsScope::User, &place, "llmc")
                .unwrap();
            file.strip_prefix(base.path())
                .unwrap()
                .display()
                .to_string()
        };
        let code = ".config/Code/User/globalStorage/saoudrizwan.claude-dev";
        let settings = "settings/cline_mcp_settings.json";
        assert_eq!(shown(), format!("{code}/{settings}"), "nothing is there");
        std::fs::create_dir_all(base.path().join(".cline")).unwrap();
        assert_eq!(shown(), format!(".cline/data/{settings}"));
        std::fs::create_dir_all(base.path().join(code)).unwrap();
        assert_eq!(shown(), format!("{code}/{settings}"));
    }

    #[test]
    fn variables_move_files_when_they_are_absolute() {
        let set = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("/x".into()),
            "CODEX_HOME" => Some("relative".into()),
            _ => None,
        };
        let place = ClientPaths::new("/h".into(), "/p".into(), set);
        assert_eq!(
            (place.config, place.codex),
            ("/x".into(), "/h/.codex".into())
        );
    }

    #[test]
    fn a_usual_scope_never_names_another_project() {
        for client in Client::ALL {
            let scope = client.default_scope();
            assert!(
                client.file(scope, &place(), "llmc").is_some(),
                "{client} has that file"
            );
            if scope == SettingsScope::User && client.start_folder(scope) == StartFolder::Anywhere {
                assert!(client.file(SettingsScope::Project, &place(), "x").is_none());
            }
        }
    }
}
