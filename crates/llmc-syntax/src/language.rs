//! Which language a file is written in.

/// A language whose definitions can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    Rust,
    Python,
    JavaScript,
    TypeScript,
    Tsx,
    Go,
    Java,
    C,
    Cpp,
    CSharp,
    Ruby,
    Php,
    Bash,
    Lua,
    Zig,
    Protobuf,
    Hcl,
    Dockerfile,
    Css,
    Html,
    Vue,
    Svelte,
    Kotlin,
    Swift,
    Scala,
    Elixir,
    Sql,
}

/// Extensions, lower case, by language.
const EXTENSIONS: &[(Language, &[&str])] = &[
    (Language::Rust, &["rs"]),
    (Language::Python, &["py", "pyi", "pyw"]),
    (Language::JavaScript, &["js", "jsx", "mjs", "cjs"]),
    (Language::TypeScript, &["ts", "mts", "cts"]),
    (Language::Tsx, &["tsx"]),
    (Language::Go, &["go"]),
    (Language::Java, &["java"]),
    (Language::C, &["c", "h"]),
    (
        Language::Cpp,
        &[
            "cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "ipp", "tpp", "cu", "cuh",
        ],
    ),
    (Language::CSharp, &["cs", "csx"]),
    (Language::Ruby, &["rb", "rake", "gemspec"]),
    (Language::Php, &["php", "phtml"]),
    (Language::Bash, &["sh", "bash", "bats", "ksh"]),
    (Language::Lua, &["lua", "rockspec"]),
    (Language::Zig, &["zig"]),
    (Language::Protobuf, &["proto"]),
    (Language::Hcl, &["tf", "tfvars", "hcl"]),
    (Language::Dockerfile, &["dockerfile", "containerfile"]),
    (Language::Css, &["css"]),
    (Language::Html, &["html", "htm", "xhtml"]),
    (Language::Vue, &["vue"]),
    (Language::Svelte, &["svelte"]),
    (Language::Kotlin, &["kt", "kts"]),
    (Language::Swift, &["swift"]),
    (Language::Scala, &["scala", "sc", "sbt"]),
    (Language::Elixir, &["ex", "exs"]),
    (Language::Sql, &["sql"]),
];

/// Whole names, where there is no extension to go by.
const NAMES: &[(Language, &[&str])] = &[
    (Language::Python, &["SConstruct", "SConscript", "wscript"]),
    (
        Language::Ruby,
        &["Gemfile", "Rakefile", "Vagrantfile", "Podfile"],
    ),
    (
        Language::Bash,
        &[
            ".bashrc",
            ".bash_profile",
            ".profile",
            "PKGBUILD",
            "APKBUILD",
        ],
    ),
    (Language::Dockerfile, &["Dockerfile", "Containerfile"]),
];

/// Programs a `#!` line names, without version digits.
const INTERPRETERS: &[(Language, &[&str])] = &[
    (Language::Python, &["python", "pypy"]),
    (Language::JavaScript, &["node", "nodejs", "bun"]),
    (Language::TypeScript, &["deno", "ts-node", "tsx"]),
    (Language::Ruby, &["ruby"]),
    (Language::Php, &["php"]),
    (Language::Bash, &["sh", "bash", "dash", "ksh", "ash"]),
    (Language::Lua, &["lua", "luajit"]),
    (Language::Elixir, &["elixir"]),
];

impl Language {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Sql as usize + 1;

    /// All of them, by their number.
    pub(super) const ALL: [Language; Self::COUNT] = [
        Self::Rust,
        Self::Python,
        Self::JavaScript,
        Self::TypeScript,
        Self::Tsx,
        Self::Go,
        Self::Java,
        Self::C,
        Self::Cpp,
        Self::CSharp,
        Self::Ruby,
        Self::Php,
        Self::Bash,
        Self::Lua,
        Self::Zig,
        Self::Protobuf,
        Self::Hcl,
        Self::Dockerfile,
        Self::Css,
        Self::Html,
        Self::Vue,
        Self::Svelte,
        Self::Kotlin,
        Self::Swift,
        Self::Scala,
        Self::Elixir,
        Self::Sql,
    ];

    /// By name and extension alone.
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if let Some(found) = look_up(NAMES, name) {
            return Some(found);
        }
        // A name that is all extension (`.h`) has none.
        let (stem, extension) = name.rsplit_once('.')?;
        if stem.is_empty() {
            return None;
        }
        if extension == "C" || extension == "H" {
            return Some(Self::Cpp);
        }
        // `Dockerfile.dev`
        if matches!(stem, "Dockerfile" | "Containerfile") {
            return Some(Self::Dockerfile);
        }
        look_up(EXTENSIONS, &extension.to_ascii_lowercase())
    }

    /// By name, else by the `#!` line; a `.h` file also by what is in it.
    pub fn detect(path: &str, source: &str) -> Option<Self> {
        match Self::of_path(path) {
            Some(Self::C) if path.ends_with(".h") && looks_like_cpp(source) => Some(Self::Cpp),
            Some(language) => Some(language),
            None => Self::of_shebang(source),
        }
    }

    fn of_shebang(source: &str) -> Option<Self> {
        let line = source.strip_prefix("#!")?.lines().next()?;
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let program = match first.rsplit('/').next()? {
            "env" => words.find(|word| !word.starts_with('-') && !word.contains('='))?,
            program => program,
        };
        let program = program.rsplit('/').next()?;
        let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        look_up(INTERPRETERS, bare)
    }

    /// The language of the scripts that are embedded in a file of this language.
    pub(super) fn of_embedded_scripts(self) -> Option<Self> {
        let script = match self {
            Self::Html => Self::JavaScript,
            Self::Vue | Self::Svelte => Self::TypeScript,
            _ => return None,
        };
        Some(if script.has_grammar() {
            script
        } else {
            Self::JavaScript
        })
    }

    /// Whether this build can parse it.
    pub fn has_grammar(self) -> bool {
        self.grammar().is_some()
    }

    /// The grammar, if this build has it.
    pub(super) fn grammar(self) -> Option<tree_sitter::Language> {
        let function = match self {
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::Go => tree_sitter_go::LANGUAGE,
            Self::Java => tree_sitter_java::LANGUAGE,
            Self::C => tree_sitter_c::LANGUAGE,
            Self::Bash => tree_sitter_bash::LANGUAGE,
            #[cfg(feature = "heavy-grammars")]
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            #[cfg(feature = "heavy-grammars")]
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            #[cfg(feature = "heavy-grammars")]
            Self::Cpp => tree_sitter_cpp::LANGUAGE,
            #[cfg(feature = "heavy-grammars")]
            Self::CSharp => tree_sitter_c_sharp::LANGUAGE,
            #[cfg(feature = "heavy-grammars")]
            Self::Ruby => tree_sitter_ruby::LANGUAGE,
            #[cfg(feature = "heavy-grammars")]
            Self::Php => tree_sitter_php::LANGUAGE_PHP,
            Self::Lua => tree_sitter_lua::LANGUAGE,
            Self::Zig => tree_sitter_zig::LANGUAGE,
            Self::Protobuf => tree_sitter_proto::LANGUAGE,
            Self::Hcl => tree_sitter_hcl::LANGUAGE,
            Self::Dockerfile => tree_sitter_containerfile::LANGUAGE,
            Self::Css => tree_sitter_css::LANGUAGE,
            // Vue and Svelte files are elements too; what their scripts define is found by the scripts' own grammar.
            Self::Html | Self::Vue | Self::Svelte => tree_sitter_html::LANGUAGE,
            #[cfg(feature = "more-grammars")]
            Self::Kotlin => tree_sitter_kotlin_ng::LANGUAGE,
            #[cfg(feature = "more-grammars")]
            Self::Swift => tree_sitter_swift::LANGUAGE,
            #[cfg(feature = "more-grammars")]
            Self::Scala => tree_sitter_scala::LANGUAGE,
            #[cfg(feature = "more-grammars")]
            Self::Elixir => tree_sitter_elixir::LANGUAGE,
            #[cfg(feature = "more-grammars")]
            Self::Sql => tree_sitter_sequel::LANGUAGE,
            #[cfg(not(all(feature = "heavy-grammars", feature = "more-grammars")))]
            _ => return None,
        };
        Some(function.into())
    }
}

fn look_up(list: &[(Language, &[&str])], word: &str) -> Option<Language> {
    list.iter()
        .find(|(_, words)| words.contains(&word))
        .map(|(language, _)| *language)
}

fn looks_like_cpp(source: &str) -> bool {
    source.lines().take(2000).any(|line| {
        let line = line.trim_start();
        [
            "class ",
            "namespace ",
            "template<",
            "template <",
            "using ",
            "public:",
            "private:",
        ]
        .iter()
        .any(|word| line.starts_with(word))
    })
}
