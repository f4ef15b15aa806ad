//! The user's home directory: where tool chains keep their caches and programs keep credentials.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::settings::{CacheMode, Profile, Settings};

/// Places that hold credentials or reach programs of the user's session, hidden from commands unless the operator says
/// otherwise (`mcp.exec.hidden`). `~/` is the home directory; `*` at the end of a name stands for any ending; `OTHER_HOMES`
/// for the homes of other users.
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
    // What only root can read: passwords, host keys, and the homes of other users.
    "/etc/shadow*",
    "/etc/gshadow*",
    "/etc/sudoers*",
    "/etc/security/opasswd",
    "/etc/ssh/ssh_host_*",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/docker/key.json",
    "/var/lib/sss/secrets",
    OTHER_HOMES,
];

/// Stands for the home directories of the machine's other users, where the server runs as root.
pub(super) const OTHER_HOMES: &str = "~*";

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
const TOOL_FOLDER_VARIABLES: [&str; 20] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOCACHE",
    "GOMODCACHE",
    "NVM_DIR",
    "PYENV_ROOT",
    "VOLTA_HOME",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "XDG_CACHE_HOME",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "PYTHONUSERBASE",
    "GRADLE_USER_HOME",
    "CCACHE_DIR",
    "SCCACHE_DIR",
    "HF_HOME",
    "npm_config_cache",
];

/// Folders of the home directory that commands write in their private layer: caches and programs of tool chains. All else in
/// it is read-only for them, so that nothing that a user would look for ends in the layer.
pub(super) const TOOL_FOLDERS: [&str; 47] = [
    ".cache",
    ".local",
    ".cargo",
    ".rustup",
    ".npm",
    ".npm-global",
    ".npm-packages",
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
    ".bundle",
];

/// Where commands have the tool folders that the user has not, in their own `/run`.
pub(super) const PRIVATE_HOME: &str = "/run/llmc/home";

/// Variables that move what a tool keeps in this place of the home directory.
const MOVABLE_PLACES: [(&str, &str); 22] = [
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("GOPATH", "go"),
    ("GRADLE_USER_HOME", ".gradle"),
    ("MAVEN_USER_HOME", ".m2"),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
    ("XDG_BIN_HOME", ".local/bin"),
    ("PYTHONUSERBASE", ".local"),
    ("PIPX_HOME", ".local/share/pipx"),
    ("PIPX_BIN_DIR", ".local/bin"),
    ("npm_config_cache", ".npm"),
    ("BUN_INSTALL", ".bun"),
    ("NUGET_PACKAGES", ".nuget/packages"),
    ("DOTNET_CLI_HOME", ".dotnet"),
    ("CABAL_DIR", ".cabal"),
    ("STACK_ROOT", ".stack"),
    ("HEX_HOME", ".hex"),
    ("MIX_HOME", ".mix"),
    ("PUB_CACHE", ".pub-cache"),
    ("IPYTHONDIR", ".ipython"),
];
/// Maven has no variable for its repository, but one for arguments, and one for the virtual machine before 3.9.
const MAVEN_VARIABLES: [&str; 2] = ["MAVEN_ARGS", "MAVEN_OPTS"];
const MAVEN_REPOSITORY: &str = ".m2/repository";

/// Where tools install programs for one user.
const INSTALL_DIRS: [&str; 4] = [".local/bin", ".cargo/bin", "go/bin", ".bun/bin"];

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

fn has_private_layers(settings: &Settings) -> bool {
    settings.profile == Profile::Unrestricted && settings.caches == CacheMode::Private
}

/// The folders that commands write in their private layer: [`PRIVATE_HOME`], which needs a `/run` of their own, and copy-on-write
/// the tool folders that exist.
pub(super) fn layered_folders(settings: &Settings) -> Vec<PathBuf> {
    if !has_private_layers(settings) {
        return Vec::new();
    }
    let mut folders = existing_tool_folders(settings);
    folders.extend(settings.local_sockets.then(|| PRIVATE_HOME.into()));
    folders
}

/// Tool folders of the home directory, and those that variables name. Only this user's own, and not those that commands may
/// write anyway.
fn existing_tool_folders(settings: &Settings) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let homes: Vec<PathBuf> = settings
        .home
        .iter()
        .filter_map(|home| std::fs::canonicalize(home).ok())
        .collect();
    let of_home = settings
        .home
        .iter()
        .flat_map(|home| TOOL_FOLDERS.map(|name| home.join(name)));
    let named = TOOL_FOLDER_VARIABLES.iter().filter_map(std::env::var_os);
    let named = named.flat_map(|dirs| std::env::split_paths(&dirs).collect::<Vec<_>>());
    let mut found: Vec<PathBuf> = of_home
        .chain(named)
        .filter(|dir| dir.is_absolute())
        .filter_map(|dir| std::fs::canonicalize(dir).ok())
        .filter(|dir| {
            let is_own =
                std::fs::metadata(dir).is_ok_and(|status| status.is_dir() && status.uid() == own);
            let is_writable = settings.writable().any(|root| dir.starts_with(root));
            // A link can lead to a folder around everything.
            let is_around = homes.iter().any(|home| home.starts_with(dir));
            is_own && !is_writable && !is_around && dir.parent().is_some()
        })
        .collect();
    found.sort();
    found.dedup();
    let all = found.clone();
    found.retain(|dir| {
        !all.iter()
            .any(|outer| dir != outer && dir.starts_with(outer))
    });
    found
}

/// Variables that lead tools to [`PRIVATE_HOME`] where what they would write is not there and cannot be made: nothing is
/// ever made in the home directory.
pub(super) fn private_home_variables(
    settings: &Settings,
    layers: &[PathBuf],
) -> Vec<(OsString, OsString)> {
    match layers.iter().any(|layer| layer == Path::new(PRIVATE_HOME)) {
        true => private_variables(settings, layers, |name| std::env::var_os(name)),
        false => Vec::new(),
    }
}

fn private_variables(
    settings: &Settings,
    layers: &[PathBuf],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let home = Path::new(PRIVATE_HOME);
    let in_home = |place: &str| settings.home.as_ref().map(|home| home.join(place));
    let is_missing = |place: Option<PathBuf>| {
        place.is_none_or(|place| {
            let mut writable = settings.writable().chain(layers);
            !place.exists() && !writable.any(|dir| real_parent(&place).starts_with(dir))
        })
    };
    let mut found = Vec::new();
    for (name, place) in MOVABLE_PLACES {
        let named = variable(name).filter(|value| !value.is_empty());
        let usual = named.map(PathBuf::from).or_else(|| in_home(place));
        if is_missing(usual) {
            found.push((name.into(), home.join(place).into_os_string()));
        }
    }
    if is_missing(in_home(MAVEN_REPOSITORY)) {
        let option = format!("-Dmaven.repo.local={PRIVATE_HOME}/{MAVEN_REPOSITORY}");
        for name in MAVEN_VARIABLES {
            let mut value = variable(name).unwrap_or_default();
            if !value.to_string_lossy().contains("-Dmaven.repo.local=") {
                if !value.is_empty() {
                    value.push(" ");
                }
                value.push(&option);
                found.push((name.into(), value));
            }
        }
    }
    found
}

/// The nearest folder above a place that exists, free of links.
fn real_parent(place: &Path) -> PathBuf {
    let mut above = place.ancestors();
    above
        .find_map(|dir| std::fs::canonicalize(dir).ok())
        .unwrap_or_default()
}

/// Folders in which commands install programs in their private layer, where the search path has none of them yet.
pub(super) fn install_dirs(
    settings: &Settings,
    layers: &[PathBuf],
    has_private_home: bool,
) -> Vec<PathBuf> {
    let in_layer = |dir: &PathBuf| {
        let parent = real_parent(dir);
        layers.iter().any(|layer| parent.starts_with(layer))
    };
    let of_home = settings.home.iter();
    let of_home = of_home.flat_map(|home| INSTALL_DIRS.map(|dir| home.join(dir)));
    let private =
        has_private_home.then(|| INSTALL_DIRS.map(|dir| Path::new(PRIVATE_HOME).join(dir)));
    of_home
        .filter(|dir| !settings.search_path.contains(dir))
        .filter(in_layer)
        .chain(private.into_iter().flatten())
        .collect()
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
    let own = rustix::process::geteuid().as_raw();
    let mut users = listed_users().into_iter();
    users.find(|(id, _)| *id == own).map(|(_, home)| home)
}

/// The lowest user id of a person, on all distributions of today.
const MIN_PERSON_ID: u32 = 1000;

/// The homes of the people that the system lists, and of root, without this user's.
pub(super) fn other_homes() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let users = listed_users().into_iter();
    let people = users.filter(|(id, _)| *id != own && (*id == 0 || *id >= MIN_PERSON_ID));
    let mut homes: Vec<PathBuf> = people
        .filter_map(|(_, home)| std::fs::canonicalize(home).ok())
        .filter(|home| home.is_dir() && home.components().count() > 2)
        .collect();
    homes.sort();
    homes.dedup();
    homes
}

/// User ids and homes out of the system's list of users.
fn listed_users() -> Vec<(u32, PathBuf)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the system, not of the agent"
    )]
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let users = users.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [_, _, id, _, _, home, ..] => Some((id.parse().ok()?, PathBuf::from(home))),
            _ => None,
        }
    });
    users.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(home: &Path) -> Settings {
        Settings {
            home: Some(home.to_owned()),
            local_sockets: true,
            ..Settings::default()
        }
    }

    fn names(found: &[(OsString, OsString)]) -> Vec<&str> {
        let names = found.iter().map(|(name, _)| name.to_str().unwrap());
        names.collect()
    }

    #[test]
    fn missing_tool_folders_are_moved_and_existing_ones_are_not() {
        let home = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(home.path()).unwrap();
        std::fs::create_dir_all(home.join(".local")).unwrap();
        std::fs::create_dir_all(home.join("other")).unwrap();
        std::os::unix::fs::symlink("other", home.join(".npm")).unwrap();
        std::os::unix::fs::symlink(".", home.join(".gradle")).unwrap();
        let mut settings = settings(&home);
        let layers = layered_folders(&settings);
        let of_home = layers.iter().filter_map(|dir| dir.strip_prefix(&home).ok());
        let of_home: Vec<&Path> = of_home.collect();
        assert_eq!(of_home, [Path::new(".local"), Path::new("other")]);
        let variable = |name: &str| match name {
            "GOPATH" => Some(home.join(".local/go").into_os_string()),
            "CABAL_DIR" => Some("/no/such/folder".into()),
            "MAVEN_OPTS" => Some("-Xmx1g".into()),
            _ => None,
        };
        let found = private_variables(&settings, &layers, variable);
        let moved = names(&found);
        for name in ["CARGO_HOME", "XDG_CACHE_HOME", "MAVEN_ARGS", "CABAL_DIR"] {
            assert!(moved.contains(&name), "{name}: {moved:?}");
        }
        // They exist, can be made in a layer, or are links to what exists.
        for name in [
            "XDG_DATA_HOME",
            "PYTHONUSERBASE",
            "npm_config_cache",
            "GOPATH",
        ] {
            assert!(!moved.contains(&name), "{name}: {moved:?}");
        }
        let maven = found.iter().find(|(name, _)| name == "MAVEN_OPTS").unwrap();
        let wanted = "-Xmx1g -Dmaven.repo.local=/run/llmc/home/.m2/repository";
        assert_eq!(maven.1, wanted);
        // In a workspace that is the home directory commands make what they want.
        settings.write_roots = vec![home.clone()];
        let layers = layered_folders(&settings);
        assert!(
            !layers.iter().any(|dir| dir.starts_with(&home)),
            "{layers:?}"
        );
        let found = private_variables(&settings, &[], |_| None);
        assert_eq!(names(&found), [""; 0]);
    }

    #[test]
    fn without_a_home_directory_everything_is_moved() {
        let settings = Settings {
            local_sockets: true,
            ..Settings::default()
        };
        let found = private_variables(&settings, &[], |_| None);
        assert_eq!(found.len(), MOVABLE_PLACES.len() + MAVEN_VARIABLES.len());
        let dirs = install_dirs(&settings, &[], true);
        assert!(dirs.contains(&PathBuf::from("/run/llmc/home/.local/bin")));
    }
}
