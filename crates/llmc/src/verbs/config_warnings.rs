//! What a valid configuration most likely does not mean, for `config check`, `doctor` and `serve`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use llmc_config::{LoadedConfig, ServerConfig};
use llmc_tools::useless_model_prefix;

/// Everything that can be seen without starting a server.
pub(super) fn all(loaded: &LoadedConfig) -> Vec<String> {
    let mcp = &loaded.config.mcp;
    let mut warnings = Vec::new();
    let script = &mcp.te.script_path;
    if !script.is_empty() {
        let path = loaded.resolve(script);
        if let Err(why) = program(&path) {
            warnings.push(format!(
                "mcp.te.script_path: {} {why}; te_run fails until it can be run (an empty path means this executable)",
                path.display()
            ));
        }
    }
    let own = mcp.linux_ops.roots.allowed_roots.is_some();
    let linux_roots = if own {
        loaded.linux_roots()
    } else {
        Vec::new()
    };
    warnings.extend(missing("mcp.tools.allowed_roots", loaded.roots()));
    warnings.extend(missing("mcp.linux_ops.roots.allowed_roots", linux_roots));
    let prefixes = mcp.rlm.allowed_model_prefixes.iter().flatten();
    warnings.extend(prefixes.filter_map(|prefix| useless_model_prefix(prefix)));
    warnings.extend(foreign_hosts(&mcp.server));
    warnings
}

/// Which requests a server that other machines reach refuses by their `Host` header.
pub(super) fn foreign_hosts(server: &ServerConfig) -> Option<String> {
    let is_local = |name: &String| {
        let names = ServerConfig {
            host: name.trim_matches(['[', ']']).to_owned(),
            ..server.clone()
        };
        names.is_loopback()
    };
    if server.is_loopback() || !server.allowed_hosts.iter().all(is_local) {
        return None;
    }
    Some(format!(
        "mcp.server.host is {}, but a request whose Host header is another name or address than {} gets 403: \
         add the names that clients use to mcp.server.allowed_hosts",
        server.host,
        server.allowed_hosts.join(", ")
    ))
}

fn program(path: &Path) -> Result<(), &'static str> {
    match path.metadata() {
        Err(_) => Err("does not exist"),
        Ok(facts) if !facts.is_file() => Err("is no file"),
        Ok(facts) if facts.permissions().mode() & 0o111 == 0 => Err("is not executable"),
        Ok(_) => Ok(()),
    }
}

fn missing(key: &str, roots: Vec<PathBuf>) -> impl Iterator<Item = String> {
    let missing = roots.into_iter().filter(|root| !root.is_dir());
    missing.map(move |root| {
        format!(
            "{key}: {} is no directory; every path below it is refused",
            root.display()
        )
    })
}
