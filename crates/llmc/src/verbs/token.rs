//! `llmc token`: named tokens in the database that servers share.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_server::token_store::{NewToken, StoredToken, TokenName, TokenStore};
use llmc_tools::{Error, catalog};
use serde_json::{Value, json};

use super::{Failure, print, store};
use crate::cli::{AddTokenArgs, Common, TokenVerb};

pub(super) fn run(common: &Common, verb: TokenVerb) -> Result<ExitCode, Failure> {
    let tokens = TokenStore::new(store::database(common)?);
    match verb {
        TokenVerb::Add(args) => add(&tokens, args)?,
        TokenVerb::List { json } => {
            let list = tokens.list()?;
            print(&match json {
                true => format!("{:#}", Value::from_iter(list.iter().map(document))),
                false => table(&list),
            })?;
        }
        TokenVerb::Revoke { name } => {
            let name = TokenName::parse(&name)?;
            tokens.revoke(&name)?;
            print(&format!("revoked {name}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(tokens: &TokenStore, args: AddTokenArgs) -> Result<(), Failure> {
    let name = TokenName::parse(&args.name)?;
    // A tool with a dot is an upstream's, which this machine may not have.
    let is_unknown = |tool: &&String| !tool.contains('.') && catalog::find(tool).is_none();
    if let Some(unknown) = args.tools.iter().flatten().find(is_unknown) {
        let unknown = Error::bad_args(format!("there is no tool {unknown:?}"));
        return Err(unknown.hint("llmc tools lists them").into());
    }
    let new = NewToken {
        read_only: args.read_only,
        tools: args.tools,
        rate_rps: args.rate,
        expires_in: args.expires,
    };
    print(&tokens.add(&name, &new)?)
}

fn document(token: &StoredToken) -> Value {
    json!({
        "name": token.name,
        "read_only": token.read_only,
        "tools": token.tools,
        "rate_limit_rps": token.rate_rps,
        "created": moment(token.created_ms),
        "expires": token.expires_ms.map(moment),
        "expired": is_expired(token),
    })
}

fn is_expired(token: &StoredToken) -> bool {
    token.expires_in.is_some_and(|left| left.is_zero())
}

fn moment(ms: i64) -> String {
    let moment = llmc_envelope::clock::from_millis(ms);
    moment.strftime("%FT%TZ").to_string()
}

fn table(list: &[StoredToken]) -> String {
    if list.is_empty() {
        return "there are no tokens; llmc token add NAME makes one".to_owned();
    }
    let mut out = String::new();
    for token in list {
        let rights = match token.read_only {
            true => "read only",
            false => "all rights",
        };
        let tools = match &token.tools {
            None => "all tools".to_owned(),
            Some(tools) => tools.join(","),
        };
        let expires = match token.expires_ms {
            None => "never expires".to_owned(),
            Some(ms) if is_expired(token) => format!("expired {}", moment(ms)),
            Some(ms) => format!("expires {}", moment(ms)),
        };
        let rate = token.rate_rps.map(|rate| format!(", {rate}/s"));
        let _ = writeln!(
            out,
            "{:<24}  {rights}, {tools}, {expires}{}",
            token.name,
            rate.unwrap_or_default()
        );
    }
    out
}
