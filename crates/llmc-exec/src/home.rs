//! The user's home directory: where tool chains keep their caches and programs keep credentials.

use std::path::PathBuf;

use super::settings::{CacheMode, Profile, Settings};

/// Places that hold credentials or reach programs of the user's session, hidden from commands unless the operator says
/// otherwise (`mcp.exec.hidden`). `~/` is the home directory; `*` at the end of a name stands for any ending.
///
/// A place whose file also holds settings that tool chains need (`~/.npmrc`, `~/.cargo/config.toml`) is shown without its
/// secrets; the others are empty or absent.
pub const HIDDEN_PLACES: &[&str] = &[
    // Keys and keyrings.
    "~/.ssh",
    "~/.gnupg",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.local/share/kwalletd",
    "~/.pki",
    "~/.age",
    "~/.config/sops",
    "~/.config/op",
    "~/.config/Bitwarden",
    "~/.config/Bitwarden CLI",
    // Clouds and clusters.
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/doctl",
    "~/.config/hcloud",
    "~/.config/heroku",
    "~/.config/linode-cli",
    "~/.oci",
    "~/.kube",
    "~/.minikube",
    "~/.terraform.d/credentials.tfrc.json",
    "~/.terraformrc",
    "~/.pulumi/credentials.json",
    "~/.vault-token",
    "~/.fly",
    "~/.netlify",
    "~/.config/netlify",
    "~/.vercel",
    "~/.local/share/com.vercel.cli",
    "~/.config/wrangler",
    "~/.wrangler",
    "~/.s3cfg",
    "~/.boto",
    "~/.config/rclone",
    // Code hosts and version control.
    "~/.config/gh",
    "~/.config/glab-cli",
    "~/.config/hub",
    "~/.netrc",
    "~/_netrc",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.gitconfig",
    "~/.config/git/config",
    "~/.subversion/auth",
    // Package registries.
    "~/.npmrc",
    "~/.yarnrc",
    "~/.yarnrc.yml",
    "~/.config/pnpm/rc",
    "~/.bunfig.toml",
    "~/.pypirc",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "~/.config/pypoetry/auth.toml",
    "~/.local/share/uv/credentials",
    "~/.cargo/credentials*",
    "~/.cargo/config.toml",
    "~/.cargo/config",
    "~/.gem/credentials",
    "~/.bundle/config",
    "~/.m2/settings.xml",
    "~/.m2/settings-security.xml",
    "~/.gradle/gradle.properties",
    "~/.nuget/NuGet/NuGet.Config",
    "~/.composer/auth.json",
    "~/.config/composer/auth.json",
    "~/.config/containers/auth.json",
    "~/.docker/config.json",
    "~/.docker/run",
    "~/.docker/desktop",
    "~/.colima",
    "~/.lima",
    "~/.rd",
    "~/.orbstack",
    // Models, agents and their assistants.
    "~/.cache/huggingface/token",
    "~/.cache/huggingface/stored_tokens",
    "~/.huggingface/token",
    "~/.kaggle",
    "~/.config/openai",
    "~/.config/anthropic",
    "~/.anthropic",
    "~/.openai",
    "~/.claude",
    "~/.claude.json",
    "~/.codex",
    "~/.gemini",
    "~/.config/github-copilot",
    "~/.continue",
    "~/.cursor",
    "~/.aider.conf.yml",
    // Databases and mail.
    "~/.pgpass",
    "~/.my.cnf",
    "~/.mylogin.cnf",
    "~/.config/neomutt",
    "~/.msmtprc",
    "~/.thunderbird",
    // Browsers.
    "~/.mozilla",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/.config/opera",
    "~/snap/firefox",
    "~/snap/chromium",
    "~/.var/app",
    // Histories, which hold what was typed.
    "~/.bash_history",
    "~/.zsh_history",
    "~/.local/share/fish/fish_history",
    "~/.python_history",
    "~/.node_repl_history",
    "~/.psql_history",
    "~/.mysql_history",
    "~/.rediscli_history",
    // Display.
    "~/.Xauthority",
    "~/.ICEauthority",
];

/// Variables that say where a program keeps what it else keeps in this place of the home directory.
pub(super) const MOVED_PLACES: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_CACHE_HOME", ".cache"),
    ("GNUPGHOME", ".gnupg"),
    ("PASSWORD_STORE_DIR", ".password-store"),
    ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ("AWS_CONFIG_FILE", ".aws/config"),
    ("AZURE_CONFIG_DIR", ".azure"),
    ("CLOUDSDK_CONFIG", ".config/gcloud"),
    ("GOOGLE_APPLICATION_CREDENTIALS", ".config/gcloud/key.json"),
    ("KUBECONFIG", ".kube/config"),
    ("DOCKER_CONFIG", ".docker"),
    ("REGISTRY_AUTH_FILE", ".config/containers/auth.json"),
    ("GH_CONFIG_DIR", ".config/gh"),
    ("NETRC", ".netrc"),
    ("GIT_CONFIG_GLOBAL", ".gitconfig"),
    ("NPM_CONFIG_USERCONFIG", ".npmrc"),
    ("npm_config_userconfig", ".npmrc"),
    ("PIP_CONFIG_FILE", ".config/pip/pip.conf"),
    ("CARGO_HOME", ".cargo"),
    ("GRADLE_USER_HOME", ".gradle"),
    ("COMPOSER_HOME", ".composer"),
    ("PGPASSFILE", ".pgpass"),
    ("HF_HOME", ".cache/huggingface"),
    ("HF_TOKEN_PATH", ".cache/huggingface/token"),
    ("KAGGLE_CONFIG_DIR", ".kaggle"),
    ("CLAUDE_CONFIG_DIR", ".claude"),
    ("CODEX_HOME", ".codex"),
    ("HISTFILE", ".bash_history"),
    ("XAUTHORITY", ".Xauthority"),
];

/// The home directory of this process's user: `HOME`, or what the system's list of users says. `None` where neither names
/// an existing directory other than `/`.
pub fn user_home() -> Option<PathBuf> {
    let named = std::env::var_os("HOME").map(PathBuf::from);
    named.into_iter().chain(listed_home()).find(|dir| {
        let real = std::fs::canonicalize(dir).unwrap_or_default();
        dir.is_absolute() && real.is_dir() && real.parent().is_some()
    })
}

/// Variables that name folders of tool chains, which may lie outside the home directory.
const TOOL_FOLDER_VARIABLES: [&str; 6] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "NVM_DIR",
    "PYENV_ROOT",
    "XDG_CACHE_HOME",
];

/// Folders of the home directory that commands write in their private layer: caches and programs of tool chains. All else in
/// it is read-only for them, so that nothing that a user would look for ends in the layer.
pub(super) const TOOL_FOLDERS: [&str; 44] = [
    ".cache",
    ".local",
    ".cargo",
    ".rustup",
    ".npm",
    ".nvm",
    ".yarn",
    ".pnpm-store",
    ".bun",
    ".deno",
    ".volta",
    ".node-gyp",
    ".pyenv",
    ".conda",
    ".ipython",
    ".jupyter",
    ".matplotlib",
    ".keras",
    ".nltk_data",
    "go",
    ".m2",
    ".gradle",
    ".ivy2",
    ".sbt",
    ".sdkman",
    ".android",
    ".konan",
    ".gem",
    ".rbenv",
    ".rvm",
    ".cocoapods",
    ".composer",
    ".nuget",
    ".dotnet",
    ".templateengine",
    ".ghcup",
    ".cabal",
    ".stack",
    ".opam",
    ".julia",
    ".hex",
    ".mix",
    ".pub-cache",
    ".ccache",
];
/// Those of them that are there for commands even where the user has none.
pub(super) const MADE_TOOL_FOLDERS: [&str; 7] =
    [".cache", ".local", ".cargo", ".npm", "go", ".m2", ".gradle"];

/// Folders of the home directory that tool chains write (`mcp.exec.caches = "shared"`).
const CACHE_FOLDERS: [&str; 10] = [
    ".cargo",
    ".rustup",
    ".cache",
    ".npm",
    ".nvm",
    ".pyenv",
    ".local/share",
    "go/pkg",
    ".m2",
    ".gradle",
];

/// The folders that commands write copy-on-write: the home directory, since tools make new folders in it, and tool folders
/// elsewhere. Not those that commands may write anyway.
pub(super) fn layered_folders(settings: &Settings) -> Vec<PathBuf> {
    let Some(home) = &settings.home else {
        return Vec::new();
    };
    if settings.profile != Profile::Unrestricted || settings.caches != CacheMode::Private {
        return Vec::new();
    }
    let named = TOOL_FOLDER_VARIABLES.iter().filter_map(std::env::var_os);
    let named = named.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let mut folders: Vec<PathBuf> = Vec::new();
    for dir in [home.clone()].into_iter().chain(named) {
        let Ok(dir) = std::fs::canonicalize(dir) else {
            continue;
        };
        let is_known = folders.iter().any(|known| dir.starts_with(known));
        let is_writable = settings.writable().any(|root| dir.starts_with(root));
        if dir.is_dir() && dir.parent().is_some() && !is_known && !is_writable {
            folders.push(dir);
        }
    }
    folders
}

/// The user's cache folders that exist, where commands share them.
pub(super) fn shared_folders(settings: &Settings) -> Vec<PathBuf> {
    match (&settings.home, settings.caches) {
        (Some(home), CacheMode::Shared) if settings.profile == Profile::Unrestricted => {
            let folders = CACHE_FOLDERS.iter().map(|dir| home.join(dir));
            folders.filter(|dir| dir.is_dir()).collect()
        }
        _ => Vec::new(),
    }
}

fn listed_home() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the system, not of the agent"
    )]
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [_, _, id, _, _, home, ..] if id == uid => Some(PathBuf::from(home)),
            _ => None,
        }
    })
}
