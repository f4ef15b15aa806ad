//! Enums for settings that take one of a few words. The words are written here once; the parser, the error messages
//! and the reference page read them here.

use std::fmt;

/// An enum whose variants are words in the configuration.
pub(crate) trait Choice: Copy {
    const WORDS: &'static [&'static str];

    fn word(self) -> &'static str;

    fn of_word(word: &str) -> Option<Self>;
}

/// Why a word of an earlier version is none any more.
pub(crate) fn why_gone(word: &str) -> Option<&'static str> {
    matches!(word, "embedded" | "monty").then_some(
        "the interpreter inside LLMC is gone: scripts run in the project's or the machine's python3, confined by the kernel",
    )
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every variant, in the order in which they are documented.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The word of every variant, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The word that stands for this variant in the configuration.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Choice for $name {
            const WORDS: &'static [&'static str] = Self::NAMES;

            fn word(self) -> &'static str {
                self.as_str()
            }

            fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choice! {
    /// Layout of the configuration file.
    ConfigVersion {
        V0 = "v0",
    }
}

choice! {
    /// Which tools are listed to an MCP client.
    Mode {
        /// Every tool.
        Classic = "classic",
        /// Reading, writing, running and code: the lean default.
        Hybrid = "hybrid",
        /// Only reading and code; everything else is reached from code.
        CodeExecution = "code_execution",
        /// The Tool Envelope commands.
        Te = "te",
    }
}

choice! {
    /// How an HTTP caller proves who it is.
    AuthMode {
        /// By a token in a header.
        Token = "token",
        /// Not at all.
        None = "none",
    }
}

choice! {
    /// How far the command list is trusted.
    ExecProfile {
        /// Any program, or the operator's list; kernel confinement is the boundary.
        Unrestricted = "unrestricted",
        /// No interpreters or launchers, checked arguments, no network, full confinement or no start.
        Restricted = "restricted",
    }
}

choice! {
    /// How much kernel confinement child processes get.
    ConfinementMode {
        /// As much as this kernel gives.
        Auto = "auto",
        /// All of it, or no start.
        Full = "full",
        /// None.
        Off = "off",
    }
}

choice! {
    /// Which models recursive analysis may reach.
    RlmProfile {
        /// Local models only, unless listed.
        Restricted = "restricted",
        /// Whatever the operator configured.
        Unrestricted = "unrestricted",
    }
}

choice! {
    /// What happens to a command that is still running when the wait for it is over.
    OnTimeout {
        /// It goes on as a background process.
        Background = "background",
        /// The server kills its process tree.
        Kill = "kill",
    }
}

choice! {
    /// Where commands write when they write to a tool chain's cache in the home directory.
    CachePolicy {
        /// Into a copy-on-write layer in the state directory.
        Private = "private",
        /// Into the cache itself.
        Shared = "shared",
        /// Nowhere: the caches are read-only.
        Off = "off",
    }
}

choice! {
    /// What runs the code of `execute_code`.
    ScriptBackend {
        /// The project's Python, or the machine's.
        Auto = "auto",
        /// The same by its name.
        Python = "python",
    }
}

choice! {
    /// Where vectors for retrieval come from.
    EmbeddingProvider {
        /// The table of word vectors in the executable.
        Builtin = "builtin",
        /// Nowhere: retrieval is lexical.
        None = "none",
        /// An Ollama server.
        Ollama = "ollama",
        /// An OpenAI-compatible server.
        Openai = "openai",
    }
}

choice! {
    /// Which files a search covers when it does not say.
    DefaultScope {
        /// Code.
        Repo = "repo",
        /// Documentation.
        Docs = "docs",
        /// Both.
        Both = "both",
    }
}

choice! {
    /// How log lines are written.
    LogFormat {
        /// Text when standard error is a terminal, else JSON.
        Auto = "auto",
        /// One JSON object a line.
        Json = "json",
        /// Short lines for people.
        Text = "text",
    }
}

choice! {
    /// The least severe log line that is written.
    LogLevel {
        /// Failures.
        Error = "error",
        /// And what may become one.
        Warn = "warn",
        /// And one line a call.
        Info = "info",
        /// And decisions.
        Debug = "debug",
        /// And everything else.
        Trace = "trace",
    }
}
