//! The verbs of `llmc rag`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum RagVerb {
    /// Bring the index up to date with the files
    #[command(after_help = "Examples:\n  llmc rag index\n  llmc rag index --root ~/work/project")]
    Index,
    /// Keep the index up to date until interrupted
    #[command(after_help = "Examples:\n  llmc rag watch")]
    Watch,
    /// Find code and documentation by words, name or pasted error
    #[command(
        after_help = "Examples:\n  llmc rag search 'where are sessions closed'\n  llmc rag search parse_header -k 1 --json\n  cargo test 2>&1 | tail -20 | llmc rag search -"
    )]
    Search {
        /// The question; - reads it from standard input
        #[arg(required = true)]
        query: Vec<String>,
        /// How many snippets
        #[arg(short, value_name = "N", allow_negative_numbers = true)]
        k: Option<i64>,
        /// repo, docs or both
        #[arg(long)]
        scope: Option<String>,
        /// Tokens of all snippets together
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        budget_tokens: Option<i64>,
        /// Print what each score is made of
        #[arg(long)]
        explain: bool,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// List the uses of a symbol
    #[command(
        after_help = "Examples:\n  llmc rag where-used Pool::take\n  llmc rag where-used take --depth 2 --json"
    )]
    WhereUsed {
        /// A name: take, Pool::take or src/pool.rs#Pool::take
        symbol: String,
        /// Steps from user to user
        #[arg(long, value_name = "N")]
        depth: Option<i64>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// List what calls a symbol, or what it calls
    #[command(
        after_help = "Examples:\n  llmc rag lineage Pool::take\n  llmc rag lineage main --direction callees --depth 3"
    )]
    Lineage {
        /// A name: take, Pool::take or src/pool.rs#Pool::take
        symbol: String,
        /// callers or callees
        #[arg(long)]
        direction: Option<String>,
        /// Steps from symbol to symbol
        #[arg(long, value_name = "N")]
        depth: Option<i64>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Show definition, callers, callees and tests of a symbol or file
    #[command(
        after_help = "Examples:\n  llmc rag inspect Pool\n  llmc rag inspect src/pool.rs --json"
    )]
    Inspect {
        /// A name, or a path
        what: String,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// List what to read for a task, in order
    #[command(
        after_help = "Examples:\n  llmc rag plan 'add a timeout to the pool'\n  git log -1 --format=%B | llmc rag plan -"
    )]
    Plan {
        /// The question; - reads it from standard input
        #[arg(required = true)]
        query: Vec<String>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Show what the index holds
    #[command(after_help = "Examples:\n  llmc rag stats\n  llmc rag stats --json")]
    Stats {
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Check the index for damage
    #[command(after_help = "Examples:\n  llmc rag doctor")]
    Doctor,
}
