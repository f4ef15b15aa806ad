//! What the boundary can refuse, and how an answer says so: in full the first time in a session, then short.

/// A rule of the boundary by which something failed, or had another effect than in a plain shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    ReadOnlyPlace,
    UserSettings,
    Unreadable,
    Hidden,
    Redacted,
    HostSocket,
    OwnTmp,
    Device,
    Protected,
    GitMount,
    Mounts,
    Tracing,
    Namespaces,
    SetUidProgram,
    SetIdBits,
    Terminal,
    TmpFull,
    Processes,
    OpenFiles,
    FileSize,
    Network,
    HostPort,
    ForeignProcess,
    StaleProcess,
    Withheld,
    PrivateInstall,
}

/// One refusal: what it was about, and what the user may run to allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) cause: Cause,
    /// The place, the address or the name.
    pub(super) subject: String,
    /// The arguments of `llmc allow`, where that can allow it.
    pub(super) allow: Option<String>,
}

impl Refusal {
    pub(super) fn new(cause: Cause, subject: impl Into<String>) -> Refusal {
        Refusal {
            cause,
            subject: subject.into(),
            allow: None,
        }
    }

    pub(super) fn allowed_by(mut self, arguments: String) -> Refusal {
        self.allow = Some(arguments);
        self
    }

    /// The whole explanation.
    pub(super) fn in_full(&self) -> String {
        let (said, remedy) = self.words();
        let remedy = match &self.allow {
            Some(arguments) => format!("the user allows it with: llmc allow {arguments}"),
            None => remedy.to_owned(),
        };
        match remedy.is_empty() {
            true => said,
            false => format!("{said}; {remedy}"),
        }
    }

    /// The same for a reader who has seen an explanation of this cause.
    pub(super) fn in_short(&self) -> String {
        let (said, _) = self.words();
        let rule = said.split([':', ';', ',']).next().unwrap_or_default();
        // Only as much of it as names the rule; a subject may hold the marks itself.
        let rule = match said.starts_with(self.subject.as_str()) {
            true => {
                let rest = &said[self.subject.len()..];
                let end = rest.find([':', ';', ',']).unwrap_or(rest.len());
                format!("{}{}", self.subject, &rest[..end])
            }
            false => rule.to_owned(),
        };
        match &self.allow {
            Some(arguments) => format!("{rule} (llmc allow {arguments})"),
            None => rule,
        }
    }

    /// The rule, its name first, and what can be done where no command allows it.
    fn words(&self) -> (String, &'static str) {
        const IN_OWN_SHELL: &str = "the user can run it in their own shell";
        let subject = &self.subject;
        match self.cause {
            Cause::ReadOnlyPlace => (
                format!("{subject} is read-only for commands: it is outside the workspace"),
                IN_OWN_SHELL,
            ),
            Cause::UserSettings => (
                format!("{subject} is read-only for commands: it holds the user's own settings"),
                "the user changes them in their own shell",
            ),
            Cause::Unreadable => (
                format!("{subject} is hidden from commands: profile restricted reads the roots and the system's programs only"),
                "mcp.exec.profile decides",
            ),
            Cause::Hidden => (
                format!("{subject} is hidden from commands: it is a place of credentials (mcp.exec.hidden)"),
                IN_OWN_SHELL,
            ),
            Cause::Redacted => (
                format!("{subject} is shown without its secrets, which are hidden from commands (mcp.exec.hidden)"),
                "",
            ),
            Cause::HostSocket => (
                format!("{subject} is hidden from commands: a program outside this session listens on it"),
                IN_OWN_SHELL,
            ),
            Cause::OwnTmp => (
                format!("{subject} is hidden from commands: they have a private folder in its place"),
                IN_OWN_SHELL,
            ),
            Cause::Device => (
                format!("{subject} is hidden from commands: the boundary shows no devices of the machine"),
                IN_OWN_SHELL,
            ),
            Cause::Protected => (
                format!("{subject} is protected: commands can read it and not change it"),
                "the user changes it in their own shell",
            ),
            Cause::GitMount => (
                "LLMC shows each git directory as a mount of its own, so one cannot be moved or removed: a limit of the boundary"
                    .to_owned(),
                "ask the user to run it in their own shell",
            ),
            Cause::Mounts => (
                format!("{subject} is on another mount for commands: the boundary keeps what they only read apart"),
                "copying works",
            ),
            Cause::Tracing => (
                "tracing of processes (ptrace) is not allowed inside the boundary".to_owned(),
                IN_OWN_SHELL,
            ),
            Cause::Namespaces => (
                "new namespaces and mounts are not allowed inside the boundary: it is a sandbox itself".to_owned(),
                "a program's own sandbox can be switched off here, such as with --no-sandbox; else the user runs it in their own shell",
            ),
            Cause::SetUidProgram => (
                format!("{subject} gains no rights inside the boundary: the set-user-id bits of programs do not count"),
                IN_OWN_SHELL,
            ),
            Cause::SetIdBits => (
                format!("{subject}: new set-user-id and set-group-id bits are not allowed inside the boundary"),
                "the user sets them in their own shell",
            ),
            Cause::Terminal => (
                "new terminals are not allowed inside the boundary here".to_owned(),
                "linux_proc_start with pty gives a command one",
            ),
            Cause::TmpFull => (
                format!("{subject} is at its limit for commands (mcp.exec.max_tmp)"),
                "the workspace has the room of its disk",
            ),
            Cause::Processes => (
                format!("the limit of the boundary is {subject} processes and threads (mcp.exec.max_processes)"),
                "",
            ),
            Cause::OpenFiles => (
                format!("the limit of the boundary is {subject} open files for each process"),
                "",
            ),
            Cause::FileSize => (
                format!("the limit of the boundary is {subject} for one file"),
                "",
            ),
            Cause::Network => (
                "commands have no network (mcp.exec.network, mcp.tools.allow_outbound_network)".to_owned(),
                "the user switches it on in the configuration",
            ),
            Cause::HostPort => (
                format!("{subject} of this machine is outside the boundary: commands have a network of their own (mcp.exec.network)"),
                IN_OWN_SHELL,
            ),
            Cause::ForeignProcess => (
                format!("process {subject} is outside the boundary: commands see and signal the processes of their session only"),
                IN_OWN_SHELL,
            ),
            Cause::StaleProcess => (
                format!("process {subject} has ended: it belonged to an earlier session and ended with it"),
                "start it again",
            ),
            Cause::Withheld => (
                format!("{subject} is withheld from commands: it looks like a secret"),
                IN_OWN_SHELL,
            ),
            Cause::PrivateInstall => (
                format!("{subject} went to a private layer: commands of this workspace see it, the user's own shell does not"),
                "",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_rule_place_and_remedy() {
        let refusal =
            Refusal::new(Cause::ReadOnlyPlace, "~/a: b").allowed_by("--write '~/a: b'".to_owned());
        assert_eq!(
            refusal.in_full(),
            "~/a: b is read-only for commands: it is outside the workspace; the user allows it with: llmc allow --write '~/a: b'"
        );
        assert_eq!(
            refusal.in_short(),
            "~/a: b is read-only for commands (llmc allow --write '~/a: b')"
        );
        let settings = Refusal::new(Cause::UserSettings, "~/.npmrc");
        assert!(settings.in_full().ends_with("in their own shell"));
        assert_eq!(settings.in_short(), "~/.npmrc is read-only for commands");
        let tracing = Refusal::new(Cause::Tracing, "");
        assert!(tracing.in_short().starts_with("tracing of processes"));
    }
}
