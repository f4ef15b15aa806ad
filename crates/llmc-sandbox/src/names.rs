//! The names that a script finds beside Python's own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names that are bound from the start. Any other name that the script has not bound raises `NameError`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptNames {
    /// Functions of the host, called by these names: `read_file("a")`. A script may rebind them.
    pub functions: Vec<String>,
    /// A module with the same functions: with `tools`, `tools.read_file("a")`, `tools.aio.read_file("a")` to await, and
    /// `from tools import read_file`. `tools.error_code(e)` is the code that an exception's message begins with.
    pub module: Option<String>,
    /// Functions found in the module only.
    pub module_functions: Vec<String>,
    /// Parts of the module: `tools.github.create_issue()`, `tools.aio.github.create_issue()`.
    #[serde(default)]
    pub parts: Vec<ModulePart>,
    /// Names that scripts write for functions which are called otherwise here, each with the function's own name.
    pub meant: Vec<(String, String)>,
    /// Small values; they are bound anew for each block.
    pub values: Vec<(String, Value)>,
    /// A block that binds one of these is refused before it runs; arguments of functions may have these names.
    pub reserved: Vec<String>,
}

/// Functions of the host under a name of their own; the host is called with `name.function`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModulePart {
    pub name: String,
    pub functions: Vec<String>,
}
