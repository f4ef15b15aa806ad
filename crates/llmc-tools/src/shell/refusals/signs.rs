//! Programs that say in words of their own what they were refused, and limits that have no place.

use std::path::{Path, PathBuf};

use llmc_exec::BoundaryFacts;
use rustix::process::{Resource, geteuid};

use super::cause::{Cause, Refusal};
use super::errno::Errno;
use super::host::{
    is_listening, is_socket, may_connect, may_make_namespaces, may_trace, own_limit, real_path,
};
use super::{Ended, Search};

/// What a program prints where tracing is refused, lower case, whatever error stands beside it.
const TRACING: [&str; 2] = [
    "leaksanitizer has encountered a fatal error",
    "could not trace the inferior process",
];
/// The same beside the error "not permitted".
const TRACING_CALLS: [&str; 3] = ["ptrace", "process_vm_readv", "pidfd_getfd"];
/// What a program prints where namespaces are refused.
const NAMESPACES: [&str; 6] = [
    "no usable sandbox",
    "no permissions to create new namespace",
    "no permissions to create a new namespace",
    "creating new namespace failed",
    "failed to move to new namespace",
    "cannot set up namespace",
];
/// The same beside the error "not permitted" or "no space".
const NAMESPACE_CALLS: [&str; 7] = [
    "unshare",
    "clone",
    "namespace",
    "uid_map",
    "gid_map",
    "setns",
    "newuidmap",
];
/// Programs of root that the boundary refuses what they are for.
const KERNEL_PROGRAMS: [&str; 8] = [
    "mount", "umount", "chroot", "losetup", "modprobe", "insmod", "sysctl", "swapon",
];
/// What set-user-id programs print where their bit does not count.
const SET_UID: [&str; 5] = [
    "no new privileges",
    "effective uid is not 0",
    "have the setuid bit set",
    "must be setuid root",
    "must be installed setuid root",
];
/// What a program prints that gets no terminal of its own.
const TERMINALS: [&str; 6] = [
    "out of pty devices",
    "failed to create pseudo-terminal",
    "openpty",
    "/dev/ptmx",
    "no available pty",
    "can't open pty",
];
/// What a program prints without a network.
const NETWORK: [&str; 8] = [
    "could not resolve",
    "temporary failure in name resolution",
    "name or service not known",
    "enotfound",
    "eai_again",
    "dns error",
    "no route to host",
    "failed to lookup address",
];
/// What a program prints that misses a credential, and the place of the home directory where the user has it.
const CREDENTIALS: [(&str, &str); 21] = [
    ("permission denied (publickey", ".ssh"),
    ("host key verification failed", ".ssh"),
    ("could not read username for", ".git-credentials"),
    ("could not read password for", ".git-credentials"),
    ("unable to locate credentials", ".aws"),
    ("gh auth login", ".config/gh"),
    ("no configuration has been provided", ".kube"),
    ("server localhost:8080 was refused", ".kube"),
    ("gcloud auth login", ".config/gcloud"),
    ("default credentials were not found", ".config/gcloud"),
    ("run 'az login'", ".azure"),
    ("gpg failed to sign", ".gnupg"),
    ("no secret key", ".gnupg"),
    ("secret key not available", ".gnupg"),
    ("no password supplied", ".pgpass"),
    ("huggingface-cli login", ".cache/huggingface/token"),
    (
        "no token found, please run `cargo login`",
        ".cargo/credentials.toml",
    ),
    ("docker login", ".docker/config.json"),
    ("vault token", ".vault-token"),
    ("pulumi login", ".pulumi/credentials.json"),
    ("not logged in to fly", ".fly"),
];
/// What a program prints that misses a program of the user's session, and the variable that leads to it.
const AGENTS: [(&str, &str); 4] = [
    ("connection to your authentication agent", "SSH_AUTH_SOCK"),
    ("cannot open display", "DISPLAY"),
    ("can't open display", "DISPLAY"),
    ("failed to connect to bus", "DBUS_SESSION_BUS_ADDRESS"),
];
/// The signal for a file above its limit.
const SIGXFSZ: i32 = 25;

/// What the words of programs tell, wherever they stand.
pub(super) fn find(search: &Search<'_>) -> Vec<Refusal> {
    let lower = search.ended.printed.to_ascii_lowercase();
    // What the command itself holds is no evidence: it prints or looks for that.
    let command = search.ended.command.to_ascii_lowercase();
    let says = |texts: &[&str]| {
        let mut texts = texts.iter();
        texts.any(|text| lower.contains(text) && !command.contains(text))
    };
    let level = search.facts.level;
    let mut found = Vec::new();
    let mut add = |is_so: bool, refusal: Refusal| {
        if is_so {
            found.push(refusal);
        }
    };
    add(level.seccomp && says(&TRACING) && may_trace(), tracing());
    add(
        level.seccomp && says(&NAMESPACES) && may_make_namespaces(),
        namespaces(),
    );
    if (level.seccomp || level.mountns) && says(&SET_UID) {
        let programs = ["sudo", "doas", "su", "pkexec", "ping", "fusermount"];
        let named = search
            .words
            .iter()
            .find(|word| programs.contains(&word.as_str()));
        let subject = named.map_or("the program", String::as_str);
        add(true, Refusal::new(Cause::SetUidProgram, subject));
    }
    let has_terminals = may_connect_terminals();
    add(
        level.mountns && says(&TERMINALS) && has_terminals,
        Refusal::new(Cause::Terminal, ""),
    );
    add(
        !search.facts.settings.network && says(&NETWORK),
        Refusal::new(Cause::Network, ""),
    );
    found.extend(missing_credentials(search, &lower));
    found.extend(missing_agents(search, &lower));
    found.extend(too_large_file(search, &lower));
    found.extend(withheld(search));
    found
}

/// What has no words at all: a variable that the command names and that is withheld is empty.
pub(super) fn silent(ended: &Ended<'_>, facts: &BoundaryFacts<'_>) -> Option<Refusal> {
    if !ended.command.contains('$') {
        return None;
    }
    let names = facts.withheld_names();
    let is_read = |name: &&String| {
        let command = ended.command;
        let is_set = command.contains(&format!("{name}="));
        let plain = command
            .match_indices(&format!("${name}"))
            .any(|(at, text)| {
                let after = command[at + text.len()..].chars().next();
                !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            });
        !is_set && (plain || command.contains(&format!("${{{name}}}")))
    };
    withheld_refusal(names.iter().filter(is_read))
}

/// A program that may not trace another, or make namespaces, and says so with the error "not permitted".
pub(super) fn not_permitted(search: &Search<'_>, line: &str) -> Option<Refusal> {
    let lower = line.to_ascii_lowercase();
    if search.prints(Errno::NotPermitted) {
        return None;
    }
    if search.facts.level.seccomp
        && TRACING_CALLS.iter().any(|call| lower.contains(call))
        && may_trace()
    {
        return Some(tracing());
    }
    no_namespaces(search, line)
}

pub(super) fn no_namespaces(search: &Search<'_>, line: &str) -> Option<Refusal> {
    let lower = line.to_ascii_lowercase();
    let level = search.facts.level;
    let is_named = NAMESPACE_CALLS.iter().any(|call| lower.contains(call)) && may_make_namespaces();
    let is_root = geteuid().is_root()
        && search
            .words
            .iter()
            .any(|word| KERNEL_PROGRAMS.contains(&word.as_str()));
    (level.seccomp && (is_named || is_root)).then(namespaces)
}

fn tracing() -> Refusal {
    Refusal::new(Cause::Tracing, "")
}

fn namespaces() -> Refusal {
    Refusal::new(Cause::Namespaces, "")
}

fn may_connect_terminals() -> bool {
    Path::new("/dev/ptmx").exists()
}

/// A service of this machine that commands with a network of their own do not reach.
pub(super) fn host_port(search: &Search<'_>, line: &str) -> Option<Refusal> {
    if !search.facts.level.netns {
        return None;
    }
    let is_local = ["127.0.0.1", "localhost", "::1"]
        .iter()
        .any(|name| line.contains(name));
    let words = line.split(|c: char| !c.is_ascii_digit());
    let mut ports = words
        .filter_map(|word| word.parse::<u16>().ok())
        .filter(|port| *port > 0);
    let port = ports.find(|port| is_local && is_listening(*port))?;
    Some(Refusal::new(Cause::HostPort, format!("port {port}")))
}

pub(super) fn no_network(search: &Search<'_>) -> Option<Refusal> {
    (!search.facts.settings.network).then(|| Refusal::new(Cause::Network, ""))
}

/// A process or thread that could not be started, unless the command set that limit itself.
pub(super) fn too_many_processes(search: &Search<'_>, line: &str) -> Option<Refusal> {
    let lower = line.to_ascii_lowercase();
    let is_start = ["fork", "thread", "clone", "spawn", "process"]
        .iter()
        .any(|word| lower.contains(word));
    let bound = search.facts.settings.limits.processes;
    let is_ours = is_start && !sets_limit(search) && own_limit(Resource::Nproc) > bound;
    is_ours.then(|| Refusal::new(Cause::Processes, bound.to_string()))
}

pub(super) fn too_many_files(search: &Search<'_>) -> Option<Refusal> {
    let bound = search.facts.settings.limits.open_files;
    let is_ours = !sets_limit(search) && own_limit(Resource::Nofile) > bound;
    is_ours.then(|| Refusal::new(Cause::OpenFiles, bound.to_string()))
}

fn too_large_file(search: &Search<'_>, lower: &str) -> Option<Refusal> {
    let bound = search.facts.settings.limits.file_bytes?;
    let status = search.ended.status?;
    let is_over =
        status.shell_code() == Some(128 + SIGXFSZ) || lower.contains("file size limit exceeded");
    let is_ours = is_over && !sets_limit(search) && own_limit(Resource::Fsize) > bound;
    is_ours.then(|| Refusal::new(Cause::FileSize, format!("{} MiB", bound >> 20)))
}

/// Whether a command lowers a limit itself.
fn sets_limit(search: &Search<'_>) -> bool {
    let signs = ["ulimit", "prlimit", "setrlimit", "LimitNOFILE"];
    signs.iter().any(|sign| search.ended.command.contains(sign))
}

/// A credential that the user has and the program did not find.
fn missing_credentials(search: &Search<'_>, lower: &str) -> Option<Refusal> {
    let home = search.base.home.as_deref()?;
    let mut named = CREDENTIALS.iter().filter(|(text, _)| lower.contains(text));
    named.find_map(|(_, place)| {
        let place = real_path(&home.join(place));
        let hidden = search
            .hidden
            .iter()
            .find(|hidden| place.starts_with(&hidden.path))?;
        Some(search.hidden_refusal(&place, hidden))
    })
}

/// A program of the user's session, to which a variable or a socket leads.
fn missing_agents(search: &Search<'_>, lower: &str) -> Option<Refusal> {
    let (_, variable) = AGENTS.iter().find(|(text, _)| lower.contains(text))?;
    let value = std::env::var_os(variable)?;
    let path = PathBuf::from(value.to_string_lossy().trim_start_matches("unix:path="));
    if is_socket(&path) && may_connect(&path) {
        return Some(search.socket_refusal(&real_path(&path)));
    }
    let names = search.facts.withheld_names();
    withheld_refusal(names.iter().filter(|name| name == variable))
}

/// Variables that the output of a failed command mentions and that the user has.
fn withheld(search: &Search<'_>) -> Option<Refusal> {
    if !search.has_failed() {
        return None;
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> = search.ended.printed.split(|c| !is_name(c)).collect();
    let names = search.facts.withheld_names();
    withheld_refusal(names.iter().filter(|name| words.contains(&name.as_str())))
}

fn withheld_refusal<'a>(names: impl Iterator<Item = &'a String>) -> Option<Refusal> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let options: Vec<String> = names.iter().map(|name| format!("--env {name}")).collect();
    let refusal = Refusal::new(Cause::Withheld, names.join(", "));
    (!names.is_empty()).then(|| refusal.allowed_by(options.join(" ")))
}
