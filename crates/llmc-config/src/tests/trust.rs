//! Security keys of a workspace's file count only when the user has trusted the file as it is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::registry::{companions, is_plain};
use super::{Workspace, another_text, load_trusted};
use crate::registry::{SettingDef, all_settings};
use crate::value::ValueKind;
use crate::{ConfigInputs, LoadedConfig, SettingSource, TrustState, load, revoke_trust};

/// What a hostile repository would set.
const HOSTILE: &str = r#"
[mcp.tools]
allowed_roots = ["/"]
[mcp.exec]
confinement = "off"
[mcp.te]
script_path = "./evil.sh"
[mcp.server]
allowed_origins = ["https://evil.example"]
[mcp.auth]
mode = "none"
"#;

/// A workspace beside the user's home, which it does not contain.
struct Place {
    workspace: Workspace,
    home: tempfile::TempDir,
}

impl Place {
    fn new(toml: &str) -> Self {
        Self {
            workspace: Workspace::new(toml),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn with_user_file(self, toml: &str) -> Self {
        let folder = self.home.path().join(".config/llmc");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), toml).unwrap();
        self
    }

    fn file(&self) -> PathBuf {
        self.workspace.path().join("llmc.toml")
    }

    fn inputs(&self, sets: &[&str]) -> ConfigInputs {
        let home = self.home.path().to_str().unwrap();
        self.workspace.inputs(&[("HOME", home)], sets)
    }

    fn load(&self, sets: &[&str]) -> LoadedConfig {
        load(&self.inputs(sets)).unwrap()
    }

    fn why(&self) -> String {
        match self.load(&[]).trust.state {
            TrustState::Untrusted(why) | TrustState::Untrustable(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn keys(loaded: &LoadedConfig) -> Vec<&'static str> {
    let settings = loaded.trust.settings.iter();
    settings.map(|setting| setting.key).collect()
}

#[test]
fn a_hostile_file_is_not_obeyed_until_it_is_accepted() {
    let place = Place::new(HOSTILE);
    let loaded = place.load(&[]);
    let without = Place::new("[mcp]\n").load(&[]);
    assert_eq!(loaded.config, without.config);
    let expected = [
        "mcp.tools.allowed_roots",
        "mcp.exec.confinement",
        "mcp.te.script_path",
        "mcp.server.allowed_origins",
        "mcp.auth.mode",
    ];
    assert_eq!(keys(&loaded), expected);
    let line = loaded.trust.ignored().unwrap();
    assert!(loaded.warnings.contains(&line), "{:?}", loaded.warnings);
    assert!(
        line.starts_with("llmc.toml is not trusted (the user has not accepted it)")
            && line.contains(&expected.join(", "))
            && line.contains("llmc trust")
            && !line.contains('\n'),
        "{line}"
    );
    let shown = crate::render_show(&loaded);
    assert!(shown.starts_with(&format!("# {line}\n")), "{shown}");

    loaded.trust.record().unwrap();
    let trusted = place.load(&[]);
    assert_eq!(
        trusted.trust.state,
        TrustState::Trusted("accepted with `llmc trust`")
    );
    assert_eq!(trusted.trust.ignored(), None);
    assert_eq!(trusted.config.mcp.te.script_path, "./evil.sh");
    assert_eq!(trusted.config.mcp.tools.allowed_roots, ["/"]);

    // Any other byte, and the question comes again.
    let changed = [
        HOSTILE.replace("evil.sh", "worse.sh"),
        format!("{HOSTILE}header = \"X-Evil\"\n"),
        format!("{HOSTILE} "),
        HOSTILE.replacen('\n', "", 1),
    ];
    for text in changed {
        fs::write(place.file(), text).unwrap();
        assert_eq!(place.load(&[]).config, without.config);
        assert!(place.why().contains("has changed"), "{}", place.why());
    }
    fs::write(place.file(), HOSTILE).unwrap();
    assert_eq!(place.load(&[]).config.mcp.te.script_path, "./evil.sh");

    let (file, revoked) = revoke_trust(&place.inputs(&[])).unwrap();
    assert_eq!(
        (file, revoked),
        (fs::canonicalize(place.file()).unwrap(), true)
    );
    assert!(!revoke_trust(&place.inputs(&[])).unwrap().1);
    assert!(place.load(&[]).trust.ignored().is_some());
}

#[test]
fn trust_in_one_workspace_is_none_in_another() {
    let (one, mut two) = (Place::new(HOSTILE), Place::new(HOSTILE));
    two.home = one.home;
    let one = Place {
        workspace: one.workspace,
        home: tempfile::tempdir().unwrap(),
    };
    two.load(&[]).trust.record().unwrap();
    assert!(two.load(&[]).trust.ignored().is_none());
    let mut inputs = one.inputs(&[]);
    inputs.env = two.inputs(&[]).env;
    assert!(load(&inputs).unwrap().trust.ignored().is_some());
}

/// Values for a key, written in TOML.
fn candidates(key: &SettingDef) -> Vec<String> {
    let quoted = |text: &str| format!("\"{text}\"");
    match key.kind {
        ValueKind::Bool => vec!["true".into(), "false".into()],
        ValueKind::Int { min, max } => vec![min.to_string(), max.min(4_321).to_string()],
        ValueKind::Float => vec!["0.125".into(), "4.0".into()],
        ValueKind::OneOf { words, .. } => words.iter().map(|word| quoted(word)).collect(),
        ValueKind::Text(shape) => {
            let default = key.default.example().to_toml();
            vec![default, quoted(&another_text(shape))]
        }
        ValueKind::List(shape) => {
            let other = another_text(shape);
            vec!["[]".into(), format!("[\"{other}\"]")]
        }
        ValueKind::Tables | ValueKind::Map => Vec::new(),
    }
}

/// Every declaration, every pair of a value the user has set and one the workspace sets.
#[test]
fn an_untrusted_file_sets_every_key_but_security_keys() {
    let mut security_keys = 0;
    for key in all_settings().filter(|key| is_plain(key)) {
        security_keys += usize::from(key.is_security);
        for (lower, value) in pairs(&candidates(key)) {
            let case = format!("{} = {value} over {lower}", key.path);
            let user_file = format!("{} = {lower}\n", key.path);
            let place = Place::new(&format!("{} = {value}\n", key.path)).with_user_file(&user_file);
            let beside = companions(key);
            let untrusted = load(&place.inputs(beside)).unwrap_or_else(|e| panic!("{e}"));
            let trusted = load_trusted(&place.inputs(beside)).unwrap();
            let file = SettingSource::File { line: 1 };
            assert_eq!(entry(&trusted, key.path).1, file, "{case}");
            if key.is_security {
                let without = Place::new("[mcp]\n").with_user_file(&user_file);
                let without = without.load(beside);
                assert_eq!(untrusted.config, without.config, "{case}");
                assert_eq!(entry(&untrusted, key.path), entry(&without, key.path));
                assert_eq!(keys(&untrusted), [key.path]);
                assert!(untrusted.trust.ignored().unwrap().contains(key.path));
            } else {
                assert_eq!(untrusted.config, trusted.config, "{case}");
                assert_eq!(entry(&untrusted, key.path).1, file, "{case}");
                assert_eq!(untrusted.trust.state, TrustState::NotNeeded);
            }
        }
    }
    assert!(security_keys > 50, "{security_keys}");
}

fn pairs(values: &[String]) -> impl Iterator<Item = (&String, &String)> {
    let all = values
        .iter()
        .flat_map(move |lower| values.iter().map(move |value| (lower, value)));
    all.filter(|(lower, value)| lower != value)
}

fn entry(loaded: &LoadedConfig, key: &str) -> (String, SettingSource) {
    let mut entries = loaded.entries().iter();
    let entry = entries.find(|entry| entry.key == key).unwrap();
    let source = match &entry.source {
        SettingSource::UserFile { line, .. } => SettingSource::UserFile {
            label: String::new(),
            line: *line,
        },
        other => other.clone(),
    };
    (entry.shown().to_owned(), source)
}

/// The list of the contract: what is added under these names later must be marked too.
#[test]
fn everything_that_decides_over_rights_addresses_and_costs_is_a_security_key() {
    let tables = [
        "mcp.exec.",
        "mcp.auth.",
        "mcp.server.",
        "mcp.upstream",
        "mcp.lsp",
        "mcp.store.",
        "mcp.linux_ops.roots.",
        "mcp.rag.embedding.",
    ];
    let keys = [
        "mcp.state_dir",
        "mcp.tools.allowed_roots",
        "mcp.tools.read_only",
        "mcp.tools.kill_any",
        "mcp.tools.allow_outbound_network",
        "mcp.te.script_path",
        "mcp.observability.csv_path",
        "mcp.docker.data_volume",
        "mcp.history.enabled",
        "mcp.rlm.profile",
        "mcp.rlm.allowed_hosts",
        "mcp.rlm.allowed_model_prefixes",
        "mcp.rlm.allow_http",
        "rlm.base_url",
        "rlm.token_budget",
        "rlm.max_budget_usd",
        "rlm.price_per_mtok_in",
        "rlm.price_per_mtok_out",
    ];
    let mut found = 0;
    for key in all_settings() {
        let named = keys.contains(&key.path)
            || key.name().starts_with("denylist_")
            || tables.iter().any(|table| key.path.starts_with(table));
        if named {
            found += 1;
            assert!(key.needs_trust(), "{}", key.path);
        }
    }
    assert!(found > 40, "{found}");
}

/// For each layer: what it sets a security key and another key to, and who wins.
#[test]
fn layers_by_precedence_and_trust() {
    // The user's file, the workspace's file, the environment, the command line, and what holds: untrusted, then trusted.
    let cases = [
        ([None, None, None, None], ["auto", "auto"]),
        ([Some("off"), None, None, None], ["off", "off"]),
        ([None, Some("off"), None, None], ["auto", "off"]),
        ([None, Some("full"), None, None], ["auto", "full"]),
        ([Some("full"), Some("off"), None, None], ["full", "off"]),
        ([Some("off"), Some("full"), None, None], ["off", "full"]),
        ([None, Some("off"), Some("full"), None], ["full", "full"]),
        ([Some("off"), None, Some("full"), None], ["full", "full"]),
        (
            [Some("auto"), Some("full"), Some("auto"), Some("off")],
            ["off", "off"],
        ),
    ];
    for (layers, expected) in cases {
        let lines = |word: Option<&str>| match word {
            // A key that needs no trust follows the same layers.
            Some(word) => format!(
                "mcp.exec.confinement = \"{word}\"\nmcp.te.budget_tokens = {}\n",
                budget(word)
            ),
            None => String::new(),
        };
        let [user, file, env, set] = layers;
        let place = Place::new(&lines(file)).with_user_file(&lines(user));
        let sets: Vec<String> = lines(set).lines().map(str::to_owned).collect();
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let mut inputs = place.inputs(&sets);
        if let Some(word) = env {
            let budget = budget(word).to_string();
            for (key, value) in [
                ("LLMC_MCP__EXEC__CONFINEMENT", word),
                ("LLMC_MCP__TE__BUDGET_TOKENS", &budget),
            ] {
                inputs.env.insert(key.to_owned(), value.to_owned());
            }
        }
        let loads = [load(&inputs), load_trusted(&inputs)];
        for (loaded, expected) in loads.into_iter().zip(expected) {
            let mcp = loaded.unwrap().config.mcp;
            assert_eq!(mcp.exec.confinement.as_str(), expected, "{layers:?}");
            let highest = layers.iter().rev().flatten().next();
            let budget = highest.map_or(2000, |word| budget(word));
            assert_eq!(mcp.te.budget_tokens, budget, "{layers:?}");
        }
    }
}

/// A number for each word.
fn budget(word: &str) -> u64 {
    match word {
        "full" => 11,
        "auto" => 12,
        _ => 13,
    }
}

#[test]
fn the_user_file_lies_between_workspace_and_defaults() {
    let place = Place::new("mcp.limits.rate_limit_rps = 3\n")
        .with_user_file("[mcp.limits]\nrate_limit_rps = 5\nrate_limit_burst = 6\n[mcp.exec]\nconfinement = \"off\"\n");
    let loaded = place.load(&[]);
    let limits = &loaded.config.mcp.limits;
    assert_eq!((limits.rate_limit_rps, limits.rate_limit_burst), (3, 6));
    assert_eq!(
        loaded.config.mcp.exec.confinement.as_str(),
        "off",
        "the user's own word needs no trust"
    );
    let burst = loaded.entries().iter();
    let burst = burst.clone().find(|entry| entry.key.ends_with("burst"));
    let source = burst.unwrap().source.describe("llmc.toml");
    assert!(source.ends_with(".config/llmc/config.toml:3"), "{source}");

    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("llmc")).unwrap();
    fs::write(
        elsewhere.path().join("llmc/config.toml"),
        "mcp.limits.rate_limit_burst = 7",
    )
    .unwrap();
    let mut inputs = place.inputs(&[]);
    let folder = elsewhere.path().to_str().unwrap().to_owned();
    inputs.env.insert("XDG_CONFIG_HOME".to_owned(), folder);
    assert_eq!(load(&inputs).unwrap().config.mcp.limits.rate_limit_burst, 7);

    let broken = Place::new("").with_user_file("[mcp]\nmdoe = \"te\"\n");
    let error = load(&broken.inputs(&[])).unwrap_err().to_string();
    assert!(error.contains("config.toml:2: mcp.mdoe"), "{error}");
    let own = broken.home.path().join(".config/llmc/config.toml");
    fs::set_permissions(own, fs::Permissions::from_mode(0o666)).unwrap();
    let error = load(&broken.inputs(&[])).unwrap_err().to_string();
    assert!(error.contains("every user may write it"), "{error}");
}

#[test]
fn an_environment_hash_trusts_exactly_this_file() {
    let place = Place::new(HOSTILE);
    let mut inputs = place.inputs(&[]);
    let hash = load(&inputs).unwrap().trust.hash;
    assert_eq!(hash, sha256(HOSTILE), "what sha256sum prints");
    inputs.env.insert("LLMC_TRUST".to_owned(), hash);
    let loaded = load(&inputs).unwrap();
    assert_eq!(
        loaded.trust.state,
        TrustState::Trusted("LLMC_TRUST is its hash")
    );
    assert_eq!(loaded.config.mcp.exec.confinement.as_str(), "off");
    fs::write(place.file(), HOSTILE.replace("evil.sh", "worse.sh")).unwrap();
    let line = load(&inputs).unwrap().trust.ignored().unwrap();
    assert!(line.contains("hash of another file"), "{line}");
}

#[test]
fn a_named_file_is_trusted_unless_it_lies_in_the_workspace() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("operator.toml");
    fs::write(&outside, HOSTILE).unwrap();
    let place = Place::new("");
    let named = |path: PathBuf| {
        let mut inputs = place.inputs(&[]);
        inputs.config_flag = Some(path);
        load(&inputs).unwrap()
    };
    let trusted = named(outside.clone());
    assert!(matches!(trusted.trust.state, TrustState::Trusted(_)));
    assert_eq!(trusted.config.mcp.exec.confinement.as_str(), "off");

    let inside = place.workspace.path().join("conf.toml");
    fs::write(&inside, HOSTILE).unwrap();
    assert!(named(inside.clone()).trust.ignored().is_some());
    // A link in the workspace is the repository's, and a link to the workspace leads there.
    let link_out = place.workspace.path().join("link.toml");
    symlink(&outside, &link_out).unwrap();
    assert!(named(link_out).trust.ignored().is_some());
    let link_in = elsewhere.path().join("link.toml");
    symlink(&inside, &link_in).unwrap();
    assert!(named(link_in).trust.ignored().is_some());

    let mut inputs = place.inputs(&[]);
    let path = outside.to_str().unwrap().to_owned();
    inputs.env.insert("LLMC_CONFIG".to_owned(), path);
    assert!(load(&inputs).unwrap().trust.ignored().is_none());
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(load(&inputs).unwrap().trust.ignored().is_some());
}

#[test]
fn a_file_that_others_control_cannot_be_trusted() {
    let place = Place::new(HOSTILE);
    place.load(&[]).trust.record().unwrap();
    assert_eq!(place.load(&[]).trust.ignored(), None);
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(
        place.load(&[]).trust.state,
        TrustState::Untrustable(_)
    ));
    assert!(place.why().contains("every user may write it"));
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(place.load(&[]).trust.ignored(), None);

    // Only root can give files away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let give = |path: &std::path::Path, uid: u32| {
        std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    };
    give(&place.file(), 65_534);
    assert_eq!(place.why(), "it belongs to another user, uid 65534");
    let hash = place.load(&[]).trust.hash;
    let mut pinned = place.inputs(&[]);
    pinned.env.insert("LLMC_TRUST".to_owned(), hash);
    assert_eq!(load(&pinned).unwrap().trust.ignored(), None);
    give(&place.file(), 0);
    assert_eq!(place.load(&[]).trust.ignored(), None);
    // Found from a folder below, in a parent that belongs to another user.
    let below = place.workspace.path().join("mine");
    fs::create_dir(&below).unwrap();
    give(place.workspace.path(), 65_534);
    let mut inputs = place.inputs(&[]);
    inputs.cwd = below;
    let state = load(&inputs).unwrap().trust.state;
    let why = "its folder belongs to another user, uid 65534".to_owned();
    assert_eq!(state, TrustState::Untrustable(why));
    give(place.workspace.path(), 0);
}

#[test]
fn a_record_in_the_workspace_is_no_record() {
    let place = Place::new(HOSTILE);
    let outer = place.load(&[]);
    outer.trust.record().unwrap();
    // The same record, brought along by the repository as its own home.
    let state = ".local/state/llmc/trust.toml";
    let planted = place.workspace.path().join(state);
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::copy(place.home.path().join(state), &planted).unwrap();
    let home = place.workspace.path().to_str().unwrap();
    let loaded = load(&place.workspace.inputs(&[("HOME", home)], &[])).unwrap();
    let line = loaded.trust.ignored().unwrap();
    assert!(line.contains("lies in the workspace"), "{line}");
    assert!(loaded.trust.record().is_err());
    let mut inputs = place.inputs(&[]);
    inputs.env.clear();
    let line = load(&inputs).unwrap().trust.ignored().unwrap();
    assert!(line.contains("XDG_STATE_HOME"), "{line}");
}

#[test]
fn tokens_are_trusted_as_a_whole() {
    let digest = "0a".repeat(32);
    let token =
        |name: &str| format!("[[mcp.auth.tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n");
    let names = |loaded: &LoadedConfig| -> Vec<String> {
        let tokens = loaded.config.mcp.auth.tokens.iter();
        tokens.map(|token| token.name.clone()).collect()
    };
    let place = Place::new(&token("evil")).with_user_file(&token("mine"));
    let loaded = place.load(&[]);
    assert_eq!(names(&loaded), ["mine"]);
    assert_eq!(keys(&loaded), ["mcp.auth.tokens"]);
    assert!(loaded.trust.settings[0].value.contains("name = \"evil\""));
    assert_eq!(names(&load_trusted(&place.inputs(&[])).unwrap()), ["evil"]);
}

#[test]
fn an_upstream_of_a_workspace_needs_trust_and_leaves_the_users_own_in_place() {
    let upstream =
        |name: &str| format!("[[mcp.upstream]]\nname = \"{name}\"\ncommand = \"{name}\"\n");
    let names = |loaded: &LoadedConfig| -> Vec<String> {
        let upstreams = loaded.config.mcp.upstream.iter();
        upstreams.map(|upstream| upstream.name.clone()).collect()
    };
    let place = Place::new(&upstream("evil")).with_user_file(&upstream("mine"));
    let loaded = place.load(&[]);
    assert_eq!(names(&loaded), ["mine"]);
    assert_eq!(keys(&loaded), ["mcp.upstream"]);
    assert!(loaded.trust.settings[0].value.contains("name = \"evil\""));
    assert_eq!(names(&load_trusted(&place.inputs(&[])).unwrap()), ["evil"]);
}

#[test]
fn values_are_shown_without_passwords() {
    let place = Place::new("rlm.base_url = \"http://a:b@model.example/\"");
    let settings = place.load(&[]).trust.settings;
    assert_eq!(settings[0].value, "\"http://***@model.example/\"");
}

fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
