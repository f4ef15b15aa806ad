use proptest::prelude::*;

use self::hazards::{HAZARDS, WORDS};
use super::*;

mod hazards;

fn rules() -> &'static Vec<Rule> {
    built_in().unwrap()
}

fn accepted(program: &str, args: &[String]) -> Option<Vec<String>> {
    let (rule, args) = match program {
        "git" => git::rule_of(rules(), args).ok()?,
        _ => (
            rules().iter().find(|rule| rule.program == program)?,
            args.to_vec(),
        ),
    };
    let mut out = rule
        .check(&args, &Places::Text, &[".env".to_owned()])
        .ok()?;
    if let Some(subcommand) = &rule.subcommand {
        out.insert(0, subcommand.clone());
    }
    Some(out)
}

/// The hazard that the program would see in these arguments, read by its own rules.
fn hazard(program: &str, args: &[String]) -> Option<String> {
    let &(_, letters, ref long, valued, _) = HAZARDS.iter().find(|row| row.0 == program)?;
    for word in args {
        if word == "--" {
            return None;
        }
        // What the rule itself puts in front.
        if word == "--devices=skip" {
            continue;
        }
        let name = match program {
            "find" => word.as_str(),
            _ => word.split('=').next().unwrap(),
        };
        let abbreviates = |flag: &&&str| {
            program != "find" && name.len() > 2 && name.starts_with("--") && flag.starts_with(name)
        };
        if long.contains(&name)
            || long
                .iter()
                .find(abbreviates)
                .is_some_and(|flag| !known(program, name, flag))
        {
            // In git, letters mean something else after the subcommand.
            if program != "git" || name.starts_with("--") || args.first() == Some(word) {
                return Some(word.clone());
            }
        }
        if program == "find" || word.starts_with("--") || !word.starts_with('-') {
            continue;
        }
        for letter in word[1..].chars() {
            if letters.contains(letter) {
                return Some(word.clone());
            }
            if valued.contains(letter) {
                break;
            }
        }
    }
    None
}

/// A flag of its own that happens to be the beginning of another's.
fn known(program: &str, name: &str, hazard: &str) -> bool {
    name != hazard
        && rules()
            .iter()
            .any(|rule| rule.program == program && rule.flags.contains_key(name))
}

fn argv() -> impl Strategy<Value = (&'static str, Vec<String>)> {
    (0..HAZARDS.len()).prop_flat_map(|at| {
        let &(program, letters, ref long, valued, ref long_valued) = &HAZARDS[at];
        let mut pool: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
        for flag in long.iter().chain(long_valued) {
            pool.push((*flag).to_owned());
            pool.push(format!("{flag}=a"));
            pool.push(flag[..flag.len() - 1].to_owned());
        }
        for letter in letters.chars().chain(valued.chars()) {
            pool.extend([
                format!("-{letter}"),
                format!("-n{letter}"),
                format!("-{letter}a"),
                format!("-{letter}5"),
            ]);
        }
        let flags = rules().iter().filter(|rule| rule.program == program);
        pool.extend(flags.flat_map(|rule| rule.flags.keys().cloned()));
        let words = prop::collection::vec(prop::sample::select(pool), 0..6);
        words.prop_map(move |words| (program, words))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that is let through holds a flag that starts a program, writes, or reads what was not checked.
    #[test]
    fn no_accepted_command_line_holds_a_hazard((program, args) in argv()) {
        if let Some(out) = accepted(program, &args) {
            prop_assert_eq!(hazard(program, &out), None, "{} {:?} became {:?}", program, args, out);
            if PATHS_ONLY.contains(&program) {
                let operands = out.iter().skip_while(|word| *word != "--");
                let outside = operands.clone().find(|word| ["/etc/passwd", "../x", "-"].contains(&word.as_str()));
                prop_assert_eq!(outside, None, "{:?}", out);
            }
        }
    }

    #[test]
    fn any_words_are_answered(words in prop::collection::vec(".{0,12}", 0..6), at in 0..HAZARDS.len()) {
        let _ = accepted(HAZARDS[at].0, &words);
    }
}

/// Programs whose operands are all paths.
const PATHS_ONLY: &[&str] = &["cat", "head", "tail", "wc", "ls", "stat", "file", "diff"];

#[test]
fn hazards_are_refused_one_by_one() {
    for &(program, letters, ref long, ..) in HAZARDS.iter() {
        let (sub, operands) = match program {
            "git" => (vec!["log".to_owned()], vec![]),
            "sed" => (vec!["-n".to_owned()], vec!["1p".to_owned(), "a".to_owned()]),
            _ => (vec![], vec!["a".to_owned(), "b".to_owned()]),
        };
        let letters = letters.chars().map(|letter| format!("-{letter}"));
        let long = long.iter().map(|flag| (*flag).to_owned());
        for flag in letters
            .chain(long)
            .filter(|flag| !(program == "git" && (flag == "-c" || flag == "-C")))
        {
            for form in [flag.clone(), format!("{flag}=a"), format!("{flag}a")] {
                let args = [&sub[..], &[form], &operands].concat();
                assert_eq!(accepted(program, &args), None, "{program} {args:?}");
            }
        }
    }
}

#[test]
fn what_passes_is_put_together_safely() {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    for (program, args, expected) in [
        ("cat", &["a", "-n"][..], &["-n", "--", "a"][..]),
        ("cat", &["--", "-x"], &["--", "-x"]),
        (
            "grep",
            &["-rn", "x", "."],
            &[
                "--devices=skip",
                "-rn",
                "--exclude=.[eE][nN][vV]",
                "--",
                "x",
                ".",
            ],
        ),
        (
            "rg",
            &["-e", "--pre", "a"],
            &[
                "--no-config",
                "-e--pre",
                "--iglob=!.[eE][nN][vV]",
                "--",
                "a",
            ],
        ),
        (
            "sed",
            &["-n", "2,4p", "a"],
            &["--sandbox", "-n", "--", "2,4p", "a"],
        ),
        ("find", &[".", "-name", "-x"], &[".", "-name", "-x"]),
        (
            "git",
            &["log", "-3"],
            &[
                "log",
                "--no-ext-diff",
                "--no-textconv",
                "--no-show-signature",
                "-3",
            ],
        ),
        (
            "git",
            &["show", "HEAD"],
            &[
                "show",
                "--no-ext-diff",
                "--no-textconv",
                "--no-show-signature",
                "HEAD",
                ":(top,exclude,icase,glob)**/.env",
            ],
        ),
        (
            "git",
            &["blame", "HEAD", "--", "a"],
            &["blame", "--no-textconv", "HEAD", "--", "a"],
        ),
        ("git", &["branch", "x"], &["branch", "--list", "x"]),
        ("git", &["shortlog", "-s"], &["shortlog", "-s", "HEAD"]),
    ] {
        assert_eq!(
            accepted(program, &words(args)),
            Some(words(expected)),
            "{program} {args:?}"
        );
    }
}

#[test]
fn refusals_name_the_flag_the_reason_and_what_is_allowed() {
    let rule = rules().iter().find(|rule| rule.program == "rg").unwrap();
    let check = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        rule.check(&args, &Places::Text, &[]).unwrap_err()
    };
    let refusal = check(&["-nz", "x"]);
    assert_eq!(
        (refusal.word.as_str(), refusal.why.as_str()),
        ("-z", "starts another program")
    );
    assert!(
        refusal.hint.contains("allowed for rg:") && refusal.hint.contains(" -n "),
        "{}",
        refusal.hint
    );
    let refusal = check(&["--new-thing", "x"]);
    assert!(refusal.why.contains("not among"), "{}", refusal.why);
    assert_eq!(
        check(&["-A", "x", "y"]).why,
        "\"x\" is no number up to 1000000000"
    );
    assert_eq!(check(&["-A"]).why, "needs a value");
    assert_eq!(check(&["--hidden=x", "y"]).why, "takes no value");
    assert!(check(&vec!["a"; 1001]).why.contains("1000"));
    assert!(check(&[&"x".repeat(9000)]).why.contains("8192"));
}

fn policy(profile: Profile, allowlist: &[&str], text: &str) -> Result<Policy> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, text).unwrap();
    let mut settings = Settings {
        profile,
        allowlist: allowlist.iter().map(|&name| name.to_owned()).collect(),
        policy_file: Some(file),
        ..Settings::default()
    };
    Policy::open(&mut settings)
}

const JQ: &str = r#"
[[rule]]
program = "jq"
operands = ["text", "path*"]
flags = { "-r --raw-output" = "none", "--arg" = ["text", "text"], "--indent" = "int" }
match = [["jq", "-r", ".a", "x.json"], ["jq", "--arg", "n", "-f", ".a"]]
no_match = [["jq", "-f", "x"], ["jq", ".", "/etc/passwd"]]
"#;

#[test]
fn the_operators_rules_add_programs_and_flags() {
    let policy = policy(Profile::Restricted, &["rg"], JQ).unwrap();
    let rule = policy.rule_of("jq").unwrap();
    let check = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        rule.check(&args, &Places::Text, &[])
    };
    assert_eq!(check(&["-r", ".a", "b"]).unwrap(), ["-r", "--", ".a", "b"]);
    assert!(check(&["-f", "x"]).is_err() && check(&["--arg", "x"]).is_err());
    let more = "[[rule]]\nprogram = \"rg\"\nflags = { \"-z\" = \"none\" }\nmatch = [[\"rg\", \"-z\", \"x\"]]\n\
                no_match = [[\"rg\", \"--pre=x\", \"y\"]]\n";
    self::policy(Profile::Restricted, &["rg"], more).unwrap();
}

#[test]
fn the_operator_forbids_in_either_profile() {
    let text = "[[rule]]\nprogram = \"git\"\nsubcommand = \"push\"\ndeny = true\nflags = [\"--force\", \"-f\"]\n\
                match = [[\"git\", \"push\", \"--force\"], [\"git\", \"push\", \"--force=x\"]]\nno_match = [[\"git\", \"push\"], [\"git\", \"log\", \"-f\"]]\n\
                [[rule]]\nprogram = \"curl\"\ndeny = true\nmatch = [[\"curl\", \"x\"]]\n";
    for (profile, list) in [
        (Profile::Unrestricted, &["bash", "git"][..]),
        (Profile::Restricted, &["git"]),
    ] {
        let policy = policy(profile, list, text).unwrap();
        let check = |program: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
            policy.check_denials(program, &args)
        };
        assert!(matches!(
            check("git", &["push", "-f"]),
            Err(Error::CommandDenied { .. })
        ));
        assert!(check("curl", &["http://x"]).is_err());
        assert!(
            check("git", &["push"]).is_ok()
                && check("git", &["log"]).is_ok()
                && check("ls", &[]).is_ok()
        );
    }
}

#[test]
fn policy_errors_name_the_line() {
    let rule = |more: &str| format!("\n[[rule]]\nprogram = \"jq\"\n{more}\n");
    let examples = "match = [[\"jq\"]]\nno_match = [[\"jq\", \"-x\"]]";
    for (text, said) in [
        ("x = ".to_owned(), ":1: "),
        ("[[rule]\n".to_owned(), ":1: "),
        ("[rules]\n".to_owned(), "rules: unknown"),
        (rule(""), ":2: match: jq has no examples"),
        (rule("match = [[\"jq\"]]"), "no_match: jq has no examples"),
        (rule(&format!("flgs = {{}}\n{examples}")), ":4: flgs: unknown; a rule has"),
        (rule(&format!("flags = {{ \"-r\" = \"nothing\" }}\n{examples}")), ":4: -r: \"nothing\" is no kind of value"),
        (rule(&format!("flags = {{ \"raw\" = \"none\" }}\n{examples}")), "\"raw\" is no flag"),
        (rule(&format!("flags = 3\n{examples}")), ":4: flags: expected a table"),
        (rule(&format!("operands = [\"path*\", \"path\"]\n{examples}")), "only the last may have a *"),
        (rule(&format!("style = \"dos\"\n{examples}")), "style: \"dos\" is none of"),
        (rule("match = [[\"jq\", \"-r\"]]\nno_match = [[\"jq\", \"-x\"]]"), ":2: match: [\"jq\", \"-r\"] is refused: -r"),
        (rule("match = [[\"jq\"]]\nno_match = [[\"jq\"]]"), "no_match: [\"jq\"] is let through"),
        (rule("match = [[\"ls\"]]\nno_match = [[\"jq\"]]"), ":4: match: each example is a list of words that begins with \"jq\""),
        ("[[rule]]\nprogram = \"bin/jq\"\n".to_owned(), "program: a name without a path"),
        ("[[rule]]\nmatch = []\n".to_owned(), "program: missing"),
        ("[[rule]]\nprogram = \"x\"\ndeny = true\nflags = [\"-f\"]\nmatch = [[\"x\", \"-g\"]]\n".to_owned(), "is not forbidden"),
        ("[[rule]]\nprogram = \"python3\"\nmatch = [[\"python3\"]]\nno_match = [[\"python3\", \"x\"]]\n".to_owned(), "python3 starts other programs"),
    ] {
        match policy(Profile::Restricted, &["rg"], &text) {
            Err(Error::BadPolicy { what, hint }) => {
                assert!(what.contains(said) && !hint.is_empty(), "{text}\n{what}");
            }
            other => panic!("{text}\n{other:?}"),
        }
    }
    let mut settings = Settings {
        policy_file: Some("/nonexistent/policy.toml".into()),
        ..Settings::default()
    };
    assert!(matches!(
        Policy::open(&mut settings),
        Err(Error::UnreadablePolicy { .. })
    ));
    settings.policy_file = Some("/dev/zero".into());
    assert!(matches!(
        Policy::open(&mut settings),
        Err(Error::BadPolicy { .. })
    ));
}

#[test]
fn a_restricted_list_holds_no_launcher_and_nothing_without_a_rule() {
    for name in [
        "bash", "/bin/sh", "python3", "env", "xargs", "make", "tar", "less", "jq", "nonsense",
    ] {
        let mut settings = Settings {
            profile: Profile::Restricted,
            allowlist: vec!["cat".to_owned(), name.to_owned()],
            ..Settings::default()
        };
        let Err(Error::BadPolicy { what, hint }) = Policy::open(&mut settings) else {
            panic!("{name} is taken");
        };
        assert!(
            what.contains(name) && hint.contains("run_cmd_allowlist")
                || hint.contains("off the list"),
            "{what}\n{hint}"
        );
        settings.profile = Profile::Unrestricted;
        assert!(Policy::open(&mut settings).is_ok());
    }
    let mut settings = Settings {
        profile: Profile::Restricted,
        allowlist: rules().iter().map(|rule| rule.program.clone()).collect(),
        ..Settings::default()
    };
    assert!(Policy::open(&mut settings).is_ok());
}

#[test]
fn the_documented_example_is_a_policy() {
    let page = include_str!("../../../../docs/policy.md");
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        policy(Profile::Restricted, &["rg", "git"], block).unwrap();
    }
    for key in read::KEYS {
        assert!(
            page.contains(&format!("`{key}`")),
            "docs/policy.md says nothing of {key}"
        );
    }
}
