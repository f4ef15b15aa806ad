//! Entries of other servers that give an agent files and commands, as this one does.
//!
//! Each server's tool list is part of every conversation, so two of a kind cost twice and leave the model to choose.

use std::path::Path;

use crate::servers::ClientServer;

/// An entry that starts another file server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherFileServer {
    /// The entry's name in the client's settings.
    pub entry: String,
    /// The server's own name.
    pub title: &'static str,
}

/// By what other file servers are started.
struct KnownServer {
    title: &'static str,
    /// npm packages, alone or with a version.
    packages: &'static [&'static str],
    /// Container images, alone or with a tag.
    images: &'static [&'static str],
    /// Programs, by their file name.
    programs: &'static [&'static str],
}

const KNOWN: [KnownServer; 2] = [
    KnownServer {
        title: "Desktop Commander",
        packages: &["@wonderwhy-er/desktop-commander"],
        images: &["mcp/desktop-commander"],
        programs: &["desktop-commander", "desktop-commander-mcp"],
    },
    KnownServer {
        title: "server-filesystem",
        packages: &["@modelcontextprotocol/server-filesystem"],
        images: &["mcp/filesystem"],
        programs: &["mcp-server-filesystem"],
    },
];

impl ClientServer {
    pub(crate) fn other_file_server(self) -> Option<OtherFileServer> {
        let known = KNOWN.iter().find(|known| known.is_started_by(&self))?;
        Some(OtherFileServer {
            entry: self.entry,
            title: known.title,
        })
    }
}

impl KnownServer {
    fn is_started_by(&self, server: &ClientServer) -> bool {
        let command = server.command.as_deref().unwrap_or_default();
        let program = Path::new(command).file_name().unwrap_or_default();
        // A shell has the whole line as one argument.
        let words = || server.args.iter().flat_map(|arg| arg.split_whitespace());
        let in_container = ["docker", "podman"].iter().any(|name| program == *name);
        self.programs.iter().any(|name| program == *name)
            || words().any(|word| self.packages.iter().any(|name| is_package(word, name)))
            || (in_container
                && words().any(|word| {
                    let image = word.split([':', '@']).next().unwrap_or(word);
                    self.images.contains(&image)
                }))
    }
}

/// Whether a word names an npm package: alone, with a version, or as the path of a file in it.
fn is_package(word: &str, package: &str) -> bool {
    match word.strip_prefix(package) {
        Some(rest) => rest.is_empty() || rest.starts_with('@'),
        None => word.contains(&format!("/node_modules/{package}/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_servers_are_known_by_what_starts_them() {
        let title = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let server = ClientServer {
                command: words.next(),
                args: words.collect(),
                ..ClientServer::default()
            };
            server.other_file_server().map(|other| other.title)
        };
        for line in [
            "npx -y @wonderwhy-er/desktop-commander",
            "/usr/bin/npx @wonderwhy-er/desktop-commander@latest",
            "cmd /c npx @wonderwhy-er/desktop-commander",
            "node /opt/node_modules/@wonderwhy-er/desktop-commander/dist/index.js",
            "/usr/local/bin/desktop-commander",
            "docker run -i --rm mcp/desktop-commander:latest",
        ] {
            assert_eq!(title(line), Some("Desktop Commander"), "{line}");
        }
        for line in [
            "npx -y @modelcontextprotocol/server-filesystem /home/me",
            "mcp-server-filesystem /home/me",
            "docker run -i mcp/filesystem /projects",
        ] {
            assert_eq!(title(line), Some("server-filesystem"), "{line}");
        }
        // Other servers, also those that work on a folder of such a name.
        for line in [
            "npx -y @modelcontextprotocol/server-github",
            "npx -y @wonderwhy-er/desktop-commander-theme",
            "llmc mcp --root /home/me/desktop-commander",
            "node server.js /home/me/mcp/filesystem mcp/filesystem",
            "docker run mcp/fetch",
        ] {
            assert_eq!(title(line), None, "{line}");
        }
        let shell = ClientServer {
            command: Some("bash".to_owned()),
            args: vec![
                "-c".to_owned(),
                "exec npx -y @wonderwhy-er/desktop-commander".to_owned(),
            ],
            ..ClientServer::default()
        };
        assert!(shell.other_file_server().is_some());
    }
}
