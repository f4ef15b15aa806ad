//! What a script finds beside Python itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names that mean something from the start. Any other that the script has not bound is a `NameError` that never
/// reaches the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Names {
    /// Functions of the host, called by these names: `read_file("a")`. A script may use the names for its own things.
    pub functions: Vec<String>,
    /// A name under which they are found too: with `tools`, `tools.read_file("a")`, `tools.aio.read_file("a")` for
    /// something to await, and `from tools import read_file`. `tools.error_code(e)` tells the code that an exception's
    /// message begins with.
    pub module: Option<String>,
    /// Functions found in the module only.
    pub module_functions: Vec<String>,
    /// Small values under their names. Large ones stay with the host: they would be copied into the worker.
    pub values: Vec<(String, Value)>,
    /// Names that no block may bind; one that does is refused before it runs.
    pub reserved: Vec<String>,
}
