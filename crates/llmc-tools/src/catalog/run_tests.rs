//! `run_tests`: the project's tests by its own runner.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::args::RUN_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::shell::{self, RunOutput, TestsRequest};
use crate::tool::{Effect, Tool};

pub(super) struct RunTests;

/// Run the project's tests: all, some or affected ones.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(
        default,
        alias = "names",
        alias = "tests",
        alias = "path",
        alias = "name",
        deserialize_with = "one_or_many"
    )]
    #[schemars(with = "Option<Vec<String>>")]
    #[schemars(extend("x-help" = "paths or names; default: all"))]
    paths: Vec<String>,
    #[schemars(extend("x-help" = "those that reach what changed since base"))]
    affected: Option<bool>,
    #[schemars(extend("x-help" = "default: as the manifests tell"))]
    command: Option<String>,
    #[schemars(extend("x-help" = "default HEAD", "x-unlisted" = true))]
    base: Option<String>,
    #[schemars(extend("x-help" = "seconds to wait; then it goes on as proc_id"))]
    timeout: Option<f64>,
}

fn one_or_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Paths {
        One(String),
        Many(Vec<String>),
        None,
    }
    Ok(match Paths::deserialize(deserializer)? {
        Paths::One(path) => vec![path],
        Paths::Many(paths) => paths,
        Paths::None => Vec::new(),
    })
}

impl Tool for RunTests {
    const NAME: &'static str = "run_tests";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = RUN_ERRORS;
    const KEYWORDS: &'static str = "test suite unit affected pytest cargo go jest vitest npm";
    type Args = Args;
    type Output = RunOutput;

    fn time_limit(cx: &Cx) -> Duration {
        // What changed is found out before the tests run.
        shell::call_limit(cx) + cx.app().config().mcp.exec.wait()
    }

    async fn run(cx: &Cx, args: Args) -> Result<RunOutput> {
        cx.blocking(move |cx, cancel| {
            let request = TestsRequest {
                paths: args.paths,
                affected: args.affected == Some(true),
                command: args.command,
                base: args.base,
                timeout: args.timeout,
            };
            shell::run_tests(cx, request, cancel)
        })
        .await
    }
}
