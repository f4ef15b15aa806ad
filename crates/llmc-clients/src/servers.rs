//! The servers that a client's settings name, whatever servers these are.

/// One server of a client's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientServer {
    /// The entry's name.
    pub entry: String,
    /// The program, for one that the client starts.
    pub command: Option<String>,
    pub args: Vec<String>,
    /// Variables with their values.
    pub env: Vec<(String, String)>,
    /// The address, for one that the client connects to.
    pub url: Option<String>,
    /// Whether the entry has headers or credentials of a kind that only the client understands.
    pub has_credentials: bool,
    /// Whether the entry is switched off, starts in a folder of its own, or has arguments or variables that are no text.
    pub is_special: bool,
}

/// Keys that hold the address of a server, by client.
pub(crate) const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];
/// Keys whose presence means credentials.
pub(crate) const CREDENTIAL_KEYS: [&str; 6] = [
    "headers",
    "requestOptions",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "auth",
];
