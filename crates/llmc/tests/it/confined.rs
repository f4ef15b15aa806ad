//! What the server says about confinement, proves, demands of the kernel, and hides from its user's other processes.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use llmc_testkit::{McpClient, ProcessOutput, TEST_TIMEOUT, TestProcess, TestWorkspace, skip};
use serde_json::{Value, json};

use crate::{classic, keys, workspace};

const NOBODY: u32 = 65534;
/// Runs a program where no user namespace can be made, as in many containers.
const NO_USER_NAMESPACE: &str = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";

fn doctor(workspace: &TestWorkspace, flags: &[&str]) -> (ProcessOutput, Value) {
    let ended = workspace.llmc(["doctor", "--json"].iter().chain(flags));
    let document = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", ended.stdout, ended.stderr));
    (ended, document)
}

fn probe_results(document: &Value) -> Vec<(&str, &str)> {
    let probes = document["probes"].as_array().unwrap().iter();
    probes
        .map(|probe| {
            let text = |key: &str| probe[key].as_str().unwrap();
            (text("probe"), text("result"))
        })
        .collect()
}

const CREDENTIAL: &str = "a private key of the test\n";

/// A credential in the home directory: probes read one that is there, and make none.
fn make_credential(workspace: &TestWorkspace) {
    let dir = workspace.base().join("home/.ssh");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("id_test"), CREDENTIAL).unwrap();
}

#[test]
fn doctor_tells_people_and_programs_the_same_and_leaves_no_trace() {
    let workspace = workspace("//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n");
    let text = workspace.llmc(["doctor"]);
    assert_eq!(text.code, Some(0), "{}{}", text.stdout, text.stderr);
    let (ended, document) = doctor(&workspace, &[]);
    assert_eq!(ended.code, Some(0), "{document:#}");
    assert_eq!(document["ok"], true);
    let probes = probe_results(&document);
    // Of root one more: what only root can read.
    let count = 13 + usize::from(rustix::process::geteuid().is_root());
    assert_eq!(probes.len(), count, "{probes:?}");
    for (tried, verdict) in probes {
        assert_ne!(verdict, "ESCAPED", "{tried}");
        let line = text.stdout.lines().find(|line| line.starts_with(tried));
        let line = line.unwrap_or_else(|| panic!("{tried}: {}", text.stdout));
        assert!(line.contains(verdict), "{line}");
    }
    let summary = document["commands"]["summary"].as_str().unwrap();
    assert!(text.stdout.contains(summary), "{}", text.stdout);
    assert!(
        summary.starts_with("unrestricted: any program may run; commands run as uid "),
        "{summary}"
    );
    assert!(!text.stdout.contains('\u{1b}'), "no colour into a pipe");
    assert!(text.stdout.lines().count() <= 40, "{}", text.stdout);
    assert_eq!(workspace.tree(), ["a.txt", "llmc.toml"]);
    workspace.assert_outside_untouched();
    let home = std::fs::read_dir(workspace.base().join("home")).unwrap();
    assert_eq!(home.count(), 0);
}

#[test]
fn doctor_says_what_is_off_and_what_is_wrong() {
    let workspace = workspace("//- a.txt\none\n");
    make_credential(&workspace);
    let off = [
        "--set",
        "mcp.exec.confinement=\"off\"",
        "--set",
        "mcp.tools.run_cmd_allowlist=[\"ls\", \"no-such-program\"]",
    ];
    let (ended, document) = doctor(&workspace, &off);
    assert_eq!(ended.code, Some(0), "off is the operator's word");
    assert_eq!(document["commands"]["enforced"], "none");
    for (tried, verdict) in probe_results(&document) {
        assert_eq!(verdict, "not enforced", "{tried}");
    }
    let key = std::fs::read_to_string(workspace.base().join("home/.ssh/id_test")).unwrap();
    assert_eq!(key, CREDENTIAL, "a credential that is there is only read");
    assert_eq!(document["commands"]["interpreters"], json!([]));
    assert_eq!(
        document["commands"]["unresolved"][0]["name"],
        "no-such-program"
    );
    assert_eq!(workspace.tree(), ["a.txt"]);

    let mut client = classic(&workspace);
    client.text("read_file", json!({"path": "a.txt"}));
    assert_eq!(client.finish().code, Some(0));
    let store = workspace.path(".llmc/te_telemetry.db");
    // Its log would make up for it.
    for log in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(store.with_extension(log));
    }
    std::fs::write(&store, vec![0xa5; 16384]).unwrap();
    let (_, document) = doctor(&workspace, &[]);
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("te_telemetry.db is damaged"),
        "{document:#}"
    );

    let broken = workspace.llmc(["doctor", "--set", "mcp.exec.confinment=\"full\""]);
    assert_eq!(broken.code, Some(2), "{}", broken.stderr);
}

#[test]
fn health_and_the_log_report_confinement() {
    let workspace = workspace(
        "//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nallow_outbound_network = false\n",
    );
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    assert_eq!(
        keys(&health),
        ["confinement", "index", "ok", "profile", "version"]
    );
    assert_eq!(health["profile"], "unrestricted");
    let said = health["confinement"].as_str().unwrap();
    let rest = "; write roots [.]; network off; any program may run";
    let level = said.strip_suffix(rest).unwrap_or_else(|| panic!("{said}"));
    let (_, document) = doctor(&workspace, &[]);
    assert_eq!(document["commands"]["enforced"], level);
    // The line is logged by a thread of its own, at an unknown time.
    let line = format!(
        "unrestricted: any program may run; commands run as uid {} with {level}; write roots [.]; network off",
        rustix::process::geteuid().as_raw()
    );
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !client.process().stderr().contains(&line) {
        assert!(Instant::now() < deadline, "{}", client.process().stderr());
        std::thread::yield_now();
    }
}

#[test]
fn an_end_does_not_wait_for_the_kernel_to_be_asked() {
    let workspace = workspace("//- a.txt\none\n");
    for _ in 0..10 {
        let ended = workspace.mcp(["--mode", "classic"]).finish();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("unrestricted: any program may run"),
            "what the settings decide is logged at once: {}",
            ended.stderr
        );
    }
}

#[test]
fn demands_that_cannot_be_met_are_start_errors() {
    let workspace = workspace("//- a.txt\none\n");
    make_credential(&workspace);
    let run = |words: &[&str]| {
        let mut command = workspace.command_of("unshare");
        command
            .args(["-Ur", "sh", "-c", NO_USER_NAMESPACE])
            .arg(workspace.program())
            .args(words);
        TestProcess::start(command).finish()
    };
    let auto = run(&["doctor", "--json"]);
    let Ok(document) = serde_json::from_str::<Value>(&auto.stdout) else {
        // Nothing to take away: this machine has no user namespaces or no unshare.
        assert!(auto.stdout.is_empty(), "{auto:?}");
        skip("user namespaces and unshare, to take them away");
        return;
    };
    assert_eq!(auto.code, Some(0), "what there is, is enough: {document:#}");
    let given = document["commands"]["kernel_gives"].as_str().unwrap();
    assert!(!given.contains("userns"), "{given}");
    for (tried, verdict) in probe_results(&document) {
        assert!(!["ESCAPED", "not tried"].contains(&verdict), "{tried}");
    }
    for demand in [
        "mcp.exec.confinement=\"full\"",
        "mcp.exec.profile=\"restricted\"",
    ] {
        let mut flags = vec!["--set", demand];
        if demand.contains("restricted") {
            flags.extend(["--set", "mcp.tools.run_cmd_allowlist=[\"ls\"]"]);
        }
        let served = run(&[&["mcp"], &flags[..]].concat());
        assert_eq!(served.code, Some(4), "{demand}: {}", served.stderr);
        assert!(served.stderr.contains("userns"), "{}", served.stderr);
        assert_eq!(served.stdout, "", "{demand}");
        let doctor = run(&[&["doctor", "--json"], &flags[..]].concat());
        assert_eq!(doctor.code, Some(4), "{demand}: {}", doctor.stdout);
        let document: Value = serde_json::from_str(&doctor.stdout).unwrap();
        assert!(
            document["problems"].to_string().contains("userns"),
            "{document:#}"
        );
        assert_eq!(document["commands"]["enforced"], Value::Null);
    }
}

/// A workspace that an ordinary user owns, and that user's way to start programs in it.
struct Ordinary {
    base: tempfile::TempDir,
}

impl Ordinary {
    fn new() -> Ordinary {
        // Not below a directory that only this user may enter.
        let base = tempfile::Builder::new()
            .prefix("llmc-it-")
            .tempdir_in("/var/tmp")
            .unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = base.path().join("llmc");
        // A child copies it: a descriptor that this process opens for writing could be inherited by a program that
        // another test starts at that moment, and the kernel executes no file that is open for writing.
        let mut copy = Command::new("install");
        copy.args(["--mode=755", env!("CARGO_BIN_EXE_llmc")]);
        assert!(copy.arg(&program).status().unwrap().success());
        let ordinary = Ordinary { base };
        let root = ordinary.root();
        std::fs::create_dir(&root).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        ordinary
    }

    fn root(&self) -> PathBuf {
        self.base.path().join("w")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LLMC_MCP_TOKEN", "s3cret-t0ken")
            .current_dir(self.root());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn llmc(&self) -> Command {
        self.command(self.base.path().join("llmc").to_str().unwrap())
    }
}

#[test]
fn the_server_hides_its_token_from_its_user_and_still_confines() {
    let ordinary = Ordinary::new();
    let mut command = ordinary.llmc();
    command.args(["mcp", "--mode", "classic", "--root", "."]);
    let mut client = McpClient::new(TestProcess::start(command));
    client.initialize("2025-11-25");
    let pid = client.process().pid().as_raw_nonzero().to_string();
    let look = |pid: &str| {
        let mut look = ordinary.command("cat");
        look.arg(format!("/proc/{pid}/environ"));
        TestProcess::start(look).finish()
    };
    let seen = look(&pid);
    assert_ne!(seen.code, Some(0), "{}", seen.stdout);
    assert!(!seen.stdout.contains("s3cret"), "{}", seen.stdout);
    // Another process of the same user is an open book, so the look proves something.
    let mut other = ordinary.command("cat");
    other.arg("-");
    let other = TestProcess::start(other);
    let seen = look(&other.pid().as_raw_nonzero().to_string());
    assert!(seen.stdout.contains("s3cret"), "{}", seen.stderr);

    let health = client.json("health", json!({}));
    let said = health["confinement"].as_str().unwrap().to_owned();
    let script =
        "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c s3cret; id -u; echo x > made";
    let text = client.text("run_cmd", json!({"argv": ["sh", "-c", script]}));
    let uid = match rustix::process::geteuid().is_root() {
        true => NOBODY,
        false => rustix::process::geteuid().as_raw(),
    };
    if said.contains("pidns") {
        assert_eq!(text, format!("0\n{uid}\n"), "{said}");
    }
    assert!(ordinary.root().join("made").exists());

    let mut doctor = ordinary.llmc();
    doctor.args(["doctor", "--json", "--root", "."]);
    let ended = TestProcess::start(doctor).finish();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["uid"], uid);
    let level = document["commands"]["enforced"].as_str().unwrap();
    assert!(said.starts_with(level), "hiding costs nothing: {said}");
    assert_eq!(probe_results(&document).len(), 13);
}
