//! Which files of a crate import which, read from the tokens of their code.
//!
//! A file imports another if its `use` declarations or its paths name what the other one defines. A
//! re-export is looked through: code that uses `crate::a::X`, which `a/mod.rs` re-exports from
//! `a/b.rs`, imports `a/b.rs`. Declarations of modules, re-exports of a file's own children and
//! `#[cfg(test)]` code are no imports.
//!
//! A file stands in its directory, also `lib.rs`, `main.rs` and `mod.rs`. A file `a.rs` beside a
//! directory `a` with files of its children stands in that directory, as `a/mod.rs` does.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tokens::{Token, tokens_of};

/// The segments of a path.
type Names = Vec<String>;

/// Keywords before the name of an item.
const ITEMS: [&str; 9] =
    ["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];
/// A path is followed through this many aliases: names of other crates are aliases of themselves.
const ALIASES_MAX: usize = 8;

/// The modules of one crate, by their paths from its root.
#[derive(Default)]
pub(crate) struct Modules(BTreeMap<Names, Module>);

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Its child modules, in files or inline.
    children: BTreeSet<String>,
    /// Items that it defines itself.
    items: BTreeSet<String>,
    /// Items that it imports or re-exports, by the names that these have here.
    imported: BTreeMap<String, Names>,
    /// The paths of `use …::*`.
    globs: Vec<Names>,
    /// All paths that its code names, but for `pub use`.
    paths: Vec<Names>,
    reexported: Vec<Names>,
}

/// From a file to one that it imports, with a path that does it.
pub(crate) type Imports = BTreeMap<(PathBuf, PathBuf), String>;

impl Modules {
    /// `root`: `lib.rs` or `main.rs`.
    pub(crate) fn of_crate(root: &Path) -> Self {
        let mut modules = Modules::default();
        modules.read_file(Names::new(), root, root.parent().expect("a directory"));
        modules
    }

    /// `directory`: of the files of its children.
    fn read_file(&mut self, name: Names, file: &Path, directory: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file:?}: {e}"));
        self.read_module(name, file, directory, &tokens_of(&text));
    }

    fn read_module(&mut self, name: Names, file: &Path, directory: &Path, tokens: &[Token]) {
        let module = Module { file: file.to_owned(), ..Module::default() };
        let mut reader = Reader { module, children: Vec::new() };
        reader.read(tokens, true);
        for (child, inline) in reader.children {
            let mut name = name.clone();
            name.push(child.clone());
            let directory = directory.join(&child);
            let beside = directory.with_extension("rs");
            match inline {
                Some(tokens) => self.read_module(name, file, &directory, &tokens),
                None if beside.exists() => self.read_file(name, &beside, &directory),
                None if directory.join("mod.rs").exists() => {
                    self.read_file(name, &directory.join("mod.rs"), &directory);
                }
                // It has a `#[path]`, to a file that tests share.
                None => continue,
            }
            reader.module.children.insert(child);
        }
        self.0.insert(name, reader.module);
    }

    /// Every import of one file of the crate by another.
    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (name, module) in &self.0 {
            let is_childs = |path: &&Names| {
                let first = path.iter().find(|segment| *segment != "self");
                first.is_some_and(|first| module.children.contains(first))
            };
            let reexported = module.reexported.iter().filter(|path| !is_childs(path));
            for path in module.paths.iter().chain(reexported) {
                let Some(file) = self.defining_file(name, path, 0) else { continue };
                if *file != module.file {
                    let between = (module.file.clone(), file.to_owned());
                    imports.entry(between).or_insert_with(|| path.join("::"));
                }
            }
        }
        imports
    }

    /// The file that defines what a path in this module names. `None`: another crate does.
    fn defining_file(&self, module: &Names, path: &[String], aliases: usize) -> Option<&Path> {
        if aliases > ALIASES_MAX {
            return None;
        }
        let mut at = module.clone();
        for (index, segment) in path.iter().enumerate() {
            let module = &self.0[&at];
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop(),
                _ if module.children.contains(segment) => at.push(segment.clone()),
                _ if module.items.contains(segment) => return Some(&module.file),
                _ => {
                    let (from_here, further) = (&path[index..], &path[index + 1..]);
                    let alias = module.imported.get(segment).map(|path| [path, further].concat());
                    let globs = module.globs.iter().map(|glob| [glob, from_here].concat());
                    let found = alias
                        .into_iter()
                        .chain(globs)
                        .find_map(|path| self.defining_file(&at, &path, aliases + 1));
                    // Unknown in a known module: a macro defines it.
                    let is_written = index > 0 && aliases == 0;
                    return found.or(is_written.then_some(&module.file));
                }
            }
        }
        Some(&self.0[&at].file)
    }

    /// Files that import each other, directly or not, in more than one directory. Each circle is
    /// given by all imports within it.
    pub(crate) fn circles_across_folders(&self) -> Vec<Imports> {
        let imports = self.imports();
        let files: BTreeSet<&Path> = self.0.values().map(|module| module.file.as_path()).collect();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            files.iter().map(|file| (*file, reached_from(file, &imports))).collect();
        let mut circles = BTreeSet::new();
        for (file, reached_files) in &reached {
            let is_mutual = |other: &&&Path| reached[**other].contains(file);
            let circle: BTreeSet<&Path> = reached_files.iter().filter(is_mutual).copied().collect();
            let folders: BTreeSet<_> = circle.iter().map(|file| folder(file, &files)).collect();
            if folders.len() > 1 {
                circles.insert(circle);
            }
        }
        let within = |circle: BTreeSet<&Path>| {
            let mut imports = imports.clone();
            imports.retain(|(from, to), _| {
                circle.contains(from.as_path()) && circle.contains(to.as_path())
            });
            imports
        };
        circles.into_iter().map(within).collect()
    }
}

fn reached_from<'a>(file: &Path, imports: &'a Imports) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![file];
    while let Some(file) = ahead.pop() {
        for (from, to) in imports.keys() {
            if from == file && reached.insert(to.as_path()) {
                ahead.push(to);
            }
        }
    }
    reached
}

/// The directory in which a file stands, among these files.
fn folder(file: &Path, files: &BTreeSet<&Path>) -> PathBuf {
    let of_children = file.with_extension("");
    let has_children = files.iter().any(|file| file.parent() == Some(&of_children));
    if has_children { of_children } else { file.parent().expect("a directory").to_owned() }
}

/// The tokens of one module as they are read.
struct Reader {
    module: Module,
    /// With their tokens, if they are inline.
    children: Vec<(String, Option<Vec<Token>>)>,
}

impl Reader {
    /// `is_top`: these are not within an item.
    fn read(&mut self, tokens: &[Token], is_top: bool) {
        let mut rest = tokens;
        let mut is_public = false;
        while let [first, after @ ..] = rest {
            let was_public = is_public;
            is_public = first.is_word("pub");
            rest = match (first, after) {
                (Token::Mark('#'), [attribute, item @ ..]) if is_for_tests(attribute) => {
                    after_item(item)
                }
                (_, [Token::Word(name), body, after @ ..]) if first.is_word("mod") => {
                    let inline = match body {
                        Token::Group(_, body) => Some(body.clone()),
                        _ => None,
                    };
                    self.children.push((name.clone(), inline));
                    after
                }
                // Not `impl Trait + use<'_>`
                (_, [next, ..]) if first.is_word("use") && *next != Token::Mark('<') => {
                    let end = after.iter().position(|token| *token == Token::Mark(';'));
                    let (tree, after) = after.split_at(end.unwrap_or(after.len()));
                    self.read_use(&[], tree, was_public);
                    after
                }
                (Token::Word(_), _) => {
                    if is_top {
                        self.module.items.extend(defined(rest).cloned());
                    }
                    let (path, after) = path(rest);
                    // A single name may come from a glob; then it is as a rule a type.
                    if path.len() > 1 || path[0].starts_with(char::is_uppercase) {
                        self.module.paths.push(path);
                    }
                    after
                }
                // `pub(in crate::a)`
                (Token::Group(..), _) if was_public => {
                    is_public = true;
                    after
                }
                (Token::Group(_, tokens), _) => {
                    self.read(tokens, false);
                    after
                }
                _ => after,
            };
        }
    }

    /// Reads what stands between `use` and `;`, or a part of it after `prefix`.
    fn read_use(&mut self, prefix: &[String], tree: &[Token], is_public: bool) {
        let (names, after) = path(tree);
        let mut full = [prefix, &names].concat();
        match after {
            [Token::Group(_, list), ..] => {
                for part in list.split(|token| *token == Token::Mark(',')) {
                    self.read_use(&full, part, is_public);
                }
                return;
            }
            [Token::Mark('*'), ..] => self.module.globs.push(full.clone()),
            _ if names.is_empty() => return,
            _ => {
                full.pop_if(|last| last == "self" && !prefix.is_empty());
                let name = match after {
                    [_as, Token::Word(alias)] => alias,
                    _ => full.last().expect("a name"),
                };
                self.module.imported.insert(name.clone(), full.clone());
            }
        }
        if is_public { &mut self.module.reexported } else { &mut self.module.paths }.push(full);
    }
}

fn is_for_tests(attribute: &Token) -> bool {
    let Token::Group('[', attribute) = attribute else { return false };
    let [cfg, Token::Group('(', condition)] = attribute.as_slice() else { return false };
    cfg.is_word("cfg") && matches!(condition.as_slice(), [only] if only.is_word("test"))
}

fn is_item(keyword: &Token) -> bool {
    matches!(keyword, Token::Word(word) if ITEMS.contains(&word.as_str()))
}

/// The tokens after an item, a statement or a field.
fn after_item(mut item: &[Token]) -> &[Token] {
    while let [Token::Mark('#'), _attribute, after @ ..] = item {
        item = after;
    }
    // `pub(crate) async fn`
    let mut head = item.iter().take(4);
    let is_field = !head.any(|token| is_item(token) || token.is_word("impl"));
    let end = item.iter().position(|token| match token {
        Token::Group('{', _) | Token::Mark(';') => true,
        Token::Mark(',') => is_field,
        _ => false,
    });
    end.map_or(&[], |end| &item[end + 1..])
}

/// The name of the item that begins here.
fn defined(tokens: &[Token]) -> Option<&String> {
    match tokens {
        [keyword, Token::Word(name), ..] if is_item(keyword) => Some(name),
        [keyword, Token::Mark('!'), Token::Word(name), ..] if is_item(keyword) => Some(name),
        _ => None,
    }
}

/// The names of the path that begins here, and what follows it.
fn path(mut tokens: &[Token]) -> (Names, &[Token]) {
    let mut names = Names::new();
    while let [Token::Word(name), after @ ..] = tokens {
        names.push(name.clone());
        match after {
            [Token::Colons, after @ ..] => tokens = after,
            _ => return (names, after),
        }
    }
    (names, tokens)
}
