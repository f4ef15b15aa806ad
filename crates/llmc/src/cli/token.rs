//! Arguments of `llmc token`.

use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token and print it, once
    ///
    /// The token itself is stored nowhere. Calls made with it, and their handles, belong to its name.
    #[command(
        after_help = "Examples:\n  llmc token add ann --expires 90d\n  llmc token add ci --read-only --tools read_file,te_grep --rate 5"
    )]
    Add(AddTokenArgs),
    /// List the tokens with what each may do
    #[command(after_help = "Examples:\n  llmc token list\n  llmc token list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a token; servers refuse it within a second
    ///
    /// A server that cannot reach the database refuses all of these tokens after mcp.store.token_grace_s.
    #[command(after_help = "Examples:\n  llmc token revoke ann")]
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddTokenArgs {
    /// Whose it is: letters, digits, dots, underscores and hyphens
    pub(crate) name: String,
    /// Allow no tool that writes or runs
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Allow these tools only, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub(crate) tools: Option<Vec<String>>,
    /// Requests a second on each server, in place of mcp.limits.rate_limit_rps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: Option<u32>,
    /// How long it counts: a number and m, h or d, such as 90d
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub(crate) expires: Option<Duration>,
}

fn parse_life(text: &str) -> Result<Duration, String> {
    let invalid = || format!("expected a number and m, h or d (such as 90d), not {text:?}");
    let unit = text.chars().last().ok_or_else(invalid)?;
    let seconds: u64 = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(invalid()),
    };
    let digits = &text[..text.len() - 1];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u32>().ok();
    let number = number.filter(|number| is_number && *number > 0);
    let number = number.ok_or_else(invalid)?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}
