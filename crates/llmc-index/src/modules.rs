//! Which file of the workspace a module is.

mod script_paths;

use std::collections::HashMap;
use std::rc::Rc;

use llmc_syntax::Language;

use self::script_paths::ScriptPaths;
use crate::catalog::Catalog;
use crate::source::Sources;

/// Manifests read for the names of packages.
const MAX_MANIFESTS: usize = 400;

/// A module of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModulePath {
    File(String),
    /// A package without a file of its own.
    Folder(String),
}

/// Finds modules by the names that imports give them.
#[derive(Default)]
pub(crate) struct Modules {
    exists: HashMap<String, bool>,
    /// The folders of packages by name, once asked for.
    packages: Option<HashMap<String, String>>,
    /// The configurations of TypeScript by folder.
    script_paths: HashMap<String, Option<Rc<ScriptPaths>>>,
}

impl Modules {
    /// The module that an import in a file names; `None` for one from outside of the workspace.
    pub(crate) fn find(
        &mut self,
        language: Option<Language>,
        from: &str,
        module: &str,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) -> Option<ModulePath> {
        match language? {
            Language::Python => self.python(from, module, catalog),
            Language::JavaScript | Language::TypeScript | Language::Tsx => self
                .script(from, module, catalog, sources)
                .map(ModulePath::File),
            _ => None,
        }
    }

    pub(crate) fn is_file(&mut self, path: &str, catalog: &Catalog) -> bool {
        if let Some(known) = self.exists.get(path) {
            return *known;
        }
        let found = catalog.indexed_file(path).ok().flatten().is_some();
        self.exists.insert(path.to_owned(), found);
        found
    }

    fn first(&mut self, candidates: &[String], catalog: &Catalog) -> Option<String> {
        let found = candidates.iter().find(|path| self.is_file(path, catalog));
        found.cloned()
    }

    fn python(&mut self, from: &str, module: &str, catalog: &Catalog) -> Option<ModulePath> {
        let dots = module.chars().take_while(|c| *c == '.').count();
        let names = module[dots..].replace('.', "/");
        if dots > 0 {
            let mut folder = folder_of(from);
            for _ in 1..dots {
                folder = folder_of(folder);
            }
            return self.python_below(folder, &names, catalog);
        }
        let mut folder = folder_of(from);
        loop {
            // A package's own folder is no place to import from.
            let package = self.is_file(&join(folder, "__init__.py"), catalog);
            for base in [folder.to_owned(), join(folder, "src"), join(folder, "lib")] {
                if package && base == folder {
                    continue;
                }
                if let Some(found) = self.python_below(&base, &names, catalog) {
                    return Some(found);
                }
            }
            if folder.is_empty() {
                return None;
            }
            folder = folder_of(folder);
        }
    }

    /// A module in a folder.
    pub(crate) fn python_below(
        &mut self,
        folder: &str,
        names: &str,
        catalog: &Catalog,
    ) -> Option<ModulePath> {
        let base = if names.is_empty() {
            folder.to_owned()
        } else {
            join(folder, names)
        };
        let candidates = [
            join(&base, "__init__.py"),
            format!("{base}.py"),
            join(&base, "__init__.pyi"),
            format!("{base}.pyi"),
        ];
        if let Some(file) = self.first(&candidates, catalog) {
            return Some(ModulePath::File(file));
        }
        names.is_empty().then_some(ModulePath::Folder(base))
    }

    fn script(
        &mut self,
        from: &str,
        module: &str,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) -> Option<String> {
        if module.starts_with('.') {
            let path = normal(folder_of(from), module)?;
            return self.script_file(&path, catalog);
        }
        if let Some(inner) = module.strip_prefix("@/").or(module.strip_prefix("~/")) {
            let mut folder = folder_of(from);
            loop {
                for base in [join(folder, "src"), folder.to_owned()] {
                    if let Some(found) = self.script_file(&join(&base, inner), catalog) {
                        return Some(found);
                    }
                }
                if folder.is_empty() {
                    return None;
                }
                folder = folder_of(folder);
            }
        }
        if let Some(found) = self.mapped(from, module, catalog, sources) {
            return Some(found);
        }
        let parts = if module.starts_with('@') { 2 } else { 1 };
        let at = module
            .match_indices('/')
            .nth(parts - 1)
            .map_or(module.len(), |(at, _)| at);
        let (package, below) = (&module[..at], module[at..].trim_start_matches('/'));
        let known = self.packages("package.json", catalog, sources).get(package);
        let folder = match known {
            Some(folder) => folder.clone(),
            None => package_around(from, package, sources)?,
        };
        let below = if below.is_empty() { "index" } else { below };
        for base in ["src", "", "lib", "source"] {
            if let Some(found) = self.script_file(&join(&join(&folder, base), below), catalog) {
                return Some(found);
            }
        }
        None
    }

    /// The file that the configuration of the nearest folder above maps a module's name to.
    fn mapped(
        &mut self,
        from: &str,
        module: &str,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) -> Option<String> {
        let mut folder = folder_of(from);
        loop {
            let known = self.script_paths.entry(folder.to_owned());
            let paths = known
                .or_insert_with(|| ScriptPaths::in_folder(folder, sources).map(Rc::new))
                .clone();
            for path in paths.iter().flat_map(|paths| paths.candidates(module)) {
                if let Some(found) = self.script_file(&path, catalog) {
                    return Some(found);
                }
            }
            if folder.is_empty() {
                return None;
            }
            folder = folder_of(folder);
        }
    }

    fn script_file(&mut self, path: &str, catalog: &Catalog) -> Option<String> {
        let stem = path
            .strip_suffix(".js")
            .or_else(|| path.strip_suffix(".mjs"))
            .or_else(|| path.strip_suffix(".jsx"))
            .or_else(|| path.strip_suffix(".cjs"));
        let mut candidates = Vec::new();
        for stem in stem.into_iter().chain([path]) {
            for ending in ["ts", "tsx", "d.ts", "mts", "cts", "js", "jsx", "mjs", "cjs"] {
                candidates.push(format!("{stem}.{ending}"));
            }
        }
        candidates.push(path.to_owned());
        for ending in ["ts", "tsx", "d.ts", "js", "jsx", "mjs"] {
            candidates.push(join(path, &format!("index.{ending}")));
        }
        self.first(&candidates, catalog)
    }

    /// The folders of the workspace's packages by name.
    fn packages(
        &mut self,
        manifest: &str,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) -> &HashMap<String, String> {
        self.packages.get_or_insert_with(|| {
            let files = catalog.files_named(manifest).unwrap_or_default();
            let mut found = HashMap::new();
            for file in files.into_iter().take(MAX_MANIFESTS) {
                let Some(source) = sources.get(&file.path) else {
                    continue;
                };
                if let Some(name) = package_name(manifest, &source.text) {
                    found.insert(name, folder_of(&file.path).to_owned());
                }
            }
            found
        })
    }

    /// The root of a crate, by its name in code; a test names the crate that it lies beside.
    pub(crate) fn rust_crate(
        &mut self,
        from: &str,
        name: &str,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) -> Option<ModulePath> {
        let outside = matches!(name, "std" | "core" | "alloc");
        if outside || !name.starts_with(char::is_lowercase) {
            return None;
        }
        let known = self.packages("Cargo.toml", catalog, sources).get(name);
        if let Some(folder) = known.cloned() {
            let roots = ["src/lib.rs", "lib.rs", "src/main.rs"];
            let roots: Vec<String> = roots.iter().map(|root| join(&folder, root)).collect();
            return self.first(&roots, catalog).map(ModulePath::File);
        }
        let folder = ["tests", "examples", "benches"].iter().find_map(|beside| {
            let (before, _) = from.split_once(&format!("{beside}/"))?;
            (before.is_empty() || before.ends_with('/')).then(|| before.trim_end_matches('/'))
        })?;
        Some(self.rust_root_in(&join(folder, "src"), catalog))
    }

    fn rust_root_in(&mut self, folder: &str, catalog: &Catalog) -> ModulePath {
        match self.first(&[join(folder, "lib.rs"), join(folder, "main.rs")], catalog) {
            Some(file) => ModulePath::File(file),
            None => ModulePath::Folder(folder.to_owned()),
        }
    }

    /// The root of the crate that a file belongs to.
    pub(crate) fn rust_root(&mut self, from: &str, catalog: &Catalog) -> ModulePath {
        let mut folder = folder_of(from);
        loop {
            let found = self.rust_root_in(folder, catalog);
            if matches!(found, ModulePath::File(_)) || folder.rsplit('/').next() == Some("src") {
                return found;
            }
            if self.is_file(&join(folder, "Cargo.toml"), catalog) || folder.is_empty() {
                // A test, an example or a binary is a crate of its own.
                return ModulePath::File(from.to_owned());
            }
            folder = folder_of(folder);
        }
    }

    /// A module in a folder.
    pub(crate) fn below(
        &mut self,
        folder: &str,
        name: &str,
        catalog: &Catalog,
    ) -> Option<ModulePath> {
        let rust = [
            join(folder, &format!("{name}.rs")),
            join(folder, &format!("{name}/mod.rs")),
        ];
        match self.first(&rust, catalog) {
            Some(file) => Some(ModulePath::File(file)),
            None => self.python_below(folder, name, catalog),
        }
    }

    /// The file of a module that a file declares.
    pub(crate) fn rust_child(
        &mut self,
        from: &str,
        name: &str,
        catalog: &Catalog,
    ) -> Option<String> {
        let folder = rust_folder(from);
        let beside = folder_of(from);
        self.first(
            &[
                join(&folder, &format!("{name}.rs")),
                join(&folder, &format!("{name}/mod.rs")),
                join(beside, &format!("{name}.rs")),
                join(beside, &format!("{name}/mod.rs")),
            ],
            catalog,
        )
    }

    /// The file of the module around a file's.
    pub(crate) fn rust_parent(&mut self, from: &str, catalog: &Catalog) -> Option<String> {
        let folder = match from.strip_suffix("/mod.rs") {
            Some(own) => folder_of(own),
            None => folder_of(from),
        };
        self.first(
            &[
                join(folder, "mod.rs"),
                format!("{folder}.rs"),
                join(folder, "lib.rs"),
                join(folder, "main.rs"),
            ],
            catalog,
        )
    }
}

/// The folder of the package that a file belongs to, if it has that name; its manifest need not be in the index.
fn package_around(from: &str, package: &str, sources: &mut Sources<'_>) -> Option<String> {
    let mut folder = folder_of(from);
    loop {
        let manifest = sources.get(&join(folder, "package.json"));
        let name = manifest.and_then(|manifest| package_name("package.json", &manifest.text));
        if name.is_some() || folder.is_empty() {
            let own = name.as_deref() == Some(package);
            return own.then(|| folder.to_owned());
        }
        folder = folder_of(folder);
    }
}

/// The folder of a Rust file's child modules.
fn rust_folder(path: &str) -> String {
    let own = ["/mod.rs", "/lib.rs", "/main.rs"];
    match own.iter().find_map(|own| path.strip_suffix(own)) {
        Some(folder) => folder.to_owned(),
        None => path.strip_suffix(".rs").unwrap_or(path).to_owned(),
    }
}

/// The package's name in a manifest, as code writes it.
fn package_name(manifest: &str, text: &str) -> Option<String> {
    if manifest == "package.json" {
        let found: serde_json::Value = serde_json::from_str(text).ok()?;
        return Some(found.get("name")?.as_str()?.to_owned());
    }
    let package = text.split("[package]").nth(1)?;
    let line = package
        .lines()
        .find(|line| line.trim_start().starts_with("name"))?;
    let name = line.split('=').nth(1)?.trim().trim_matches('"');
    Some(name.replace('-', "_"))
}

pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

pub(crate) fn join(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => folder.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

/// A relative path, without dots.
fn normal(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
