//! Files that import each other in a circle can only be read together. This rule follows each name to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::files::{File, all, assert_none};

/// Files in circles, by crate. These numbers only become smaller.
const LEFT: &[(&str, usize)] = &[("baselines", 17), ("policies", 16)];

type Path = Vec<String>;

/// What a file, which is a module, has.
#[derive(Default)]
struct Module {
    /// What its imports call something, and what this is.
    imports: BTreeMap<String, Path>,
    /// Paths that its code names, from the root of the crate.
    names: BTreeSet<Path>,
    /// Items that it defines.
    items: BTreeSet<String>,
}

/// Collects what one file has.
struct Reader<'a> {
    at: &'a [String],
    children: BTreeSet<String>,
    module: Module,
}

fn is_test(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|attribute| {
        attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl Reader<'_> {
    /// A path from the root of the crate, if it begins in this crate.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([self.at, rest].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let parent = self.at.len().checked_sub(up)?;
                Some([&self.at[..parent], &path[up..]].concat())
            }
            child if self.children.contains(child) => Some([self.at, path].concat()),
            name => Some([self.module.imports.get(name)?, rest].concat()),
        }
    }
    fn import(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(before, tree)),
            UseTree::Name(name) if name.ident == "self" => {
                let name = before.last().cloned().unwrap_or_default();
                self.add_import(name, before);
            }
            UseTree::Name(name) => self.add_import(name.ident.to_string(), &with(&name.ident)),
            UseTree::Rename(tree) => self.add_import(tree.rename.to_string(), &with(&tree.ident)),
            UseTree::Glob(_) => self.add_import(String::new(), before),
        }
    }
    fn add_import(&mut self, name: String, path: &[String]) {
        if let Some(path) = self.absolute(path) {
            self.module.names.insert(path.clone());
            self.module.imports.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            self.import(&[], &item.tree);
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1
            && let Some(path) = self.absolute(&names)
        {
            self.module.names.insert(path);
        }
        visit::visit_path(self, path);
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The modules of a crate, by their paths.
type Crate<'a> = BTreeMap<Path, (&'a str, Module)>;

fn read<'a>(files: &'a [File], room: &str) -> Crate<'a> {
    let mut paths = Vec::new();
    for file in files.iter().filter(|file| file.room_of_source() == Some(room)) {
        let (_, inside) = file.in_room().expect("it has a room");
        let inside = inside.trim_start_matches("src/");
        let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let parts = inside.split('/').filter(|part| !["lib", "main"].contains(part));
        let path: Path = parts.map(str::to_owned).collect();
        if !path.iter().any(|part| ["tests", "testing"].contains(&part.as_str())) {
            paths.push((path, file));
        }
    }
    let mut modules = BTreeMap::new();
    for (path, file) in &paths {
        let children =
            paths.iter().filter(|(sub, _)| sub.len() == path.len() + 1 && sub.starts_with(path));
        let children = children.filter_map(|(sub, _)| sub.last().cloned()).collect();
        let source =
            syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
        let items = source.items.iter().filter_map(name_of).collect();
        let mut reader =
            Reader { at: path, children, module: Module { items, ..Module::default() } };
        // Imports may stand below what uses them.
        for _ in 0..2 {
            reader.visit_file(&source);
        }
        modules.insert(path.clone(), (file.path.as_str(), reader.module));
    }
    modules
}

/// The module that defines what a path names; re-exports are followed.
fn definer<'a>(modules: &'a Crate<'_>, path: &[String], steps: u32) -> Option<&'a Path> {
    let known = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (key, (_, module)) = modules.get_key_value(&path[..known])?;
    let Some(item) = path.get(known) else { return Some(key) };
    match module.imports.get(item) {
        Some(other) if !module.items.contains(item) && steps > 0 => {
            definer(modules, &[other, &path[known + 1..]].concat(), steps - 1)
        }
        _ => Some(key),
    }
}

/// Files that import each other, directly or through others.
fn circles<'a>(files: &'a [File], room: &str) -> Vec<Vec<&'a str>> {
    let modules = read(files, room);
    let mut imports: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for (path, (_, module)) in &modules {
        let others = module.names.iter().filter_map(|name| definer(&modules, name, 8));
        imports.insert(path, others.filter(|other| *other != path).collect());
    }
    let mut reach = imports.clone();
    for through in modules.keys() {
        let beyond = reach[through].clone();
        for others in reach.values_mut().filter(|others| others.contains(through)) {
            others.extend(&beyond);
        }
    }
    let mut found: BTreeSet<Vec<&str>> = BTreeSet::new();
    for path in modules.keys().filter(|path| reach[path].contains(path)) {
        let circle = reach[path].iter().filter(|other| reach[**other].contains(path));
        found.insert(circle.map(|other| modules[*other].0).collect());
    }
    found.into_iter().collect()
}

fn complaints(files: &[File], left: &[(&str, usize)]) -> Vec<String> {
    let rooms: BTreeSet<&str> = files.iter().filter_map(File::room_of_source).collect();
    let mut complaints = Vec::new();
    for room in rooms {
        let circles = circles(files, room);
        let count = circles.iter().map(Vec::len).sum::<usize>();
        let most = left.iter().find(|(name, _)| *name == room).map_or(0, |(_, most)| *most);
        if count != most {
            complaints.push(format!("{room}: {count} files in circles, not {most}"));
            complaints.extend(circles.iter().map(|circle| format!("    {}", circle.join(", "))));
        }
    }
    complaints
}

/// Goal: no new circles. Method: sources are parsed, and names followed to where they are defined.
#[test]
fn no_new_circles() {
    assert_none(&complaints(&all(), LEFT));
}

/// Goal: the rule catches circles, and only them. Method: made-up crates.
#[test]
fn canaries() {
    let with = |a: &str, b: &str| {
        let files = [
            File::canary("crates/x/src/lib.rs", "mod a; mod b; pub use b::B;"),
            File::canary("crates/x/src/a.rs", a),
            File::canary("crates/x/src/b.rs", b),
        ];
        circles(&files, "x").len()
    };
    let uses_a = "use crate::a::A; pub struct B(A);";
    assert_eq!(with("use crate::b::B; pub struct A(B);", uses_a), 1);
    assert_eq!(with("pub struct A(super::B);", uses_a), 1, "through a re-export");
    assert_eq!(with("pub struct A;", uses_a), 0);
    assert_eq!(with("pub struct A; #[cfg(test)] mod tests { use crate::b::B; }", uses_a), 0);
}
