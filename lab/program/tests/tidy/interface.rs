//! The public interface of the engine's crates, in `crates/CRATE/interface.txt`: a line for each public item with its
//! signature. A change of it is a change for everybody who embeds the engine, so it is made on purpose: IOFAIR_BLESS=1
//! writes the files anew, their difference is read in review, and CHANGELOG.md gets a line.
//!
//! The sources are parsed; rustdoc's own description needs a nightly compiler. An item counts as public if it says `pub`,
//! in a private module too: the lint `unreachable_pub` refuses the word where nothing exports it. Left out are tests,
//! the feature `testing`, and what `#[doc(hidden)]` takes out of the interface. What needs a feature says so.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, Meta, TraitItem, Visibility};

use crate::files::{File, all, root};

/// Crates that others build on.
const CRATES: &[&str] = &["core", "policies"];

/// Sources of a crate by the path of their module: `controller::flush` from `src/controller/flush.rs`.
type Modules<'a> = BTreeMap<String, &'a str>;

fn modules<'a>(files: &'a [File], room: &str) -> Modules<'a> {
    let folder = format!("crates/{room}/src/");
    let sources = files.iter().filter(|file| file.is_rust());
    let sources = sources.filter_map(|file| {
        let inside = file.path.strip_prefix(&folder)?.strip_suffix(".rs")?;
        let inside = inside.strip_suffix("/mod").unwrap_or(inside);
        Some((inside.replace('/', "::"), file.text.as_str()))
    });
    sources.collect()
}

/// What an attribute `cfg` or `doc(hidden)` makes of an item: nothing if it is no part of the interface, otherwise the
/// feature that it needs.
fn shown(attributes: &[Attribute]) -> Option<String> {
    let mut needs = String::new();
    for attribute in attributes {
        let text = compact(&attribute.meta);
        if text == "doc(hidden)" || text == "cfg(test)" || text.contains("\"testing\"") {
            return None;
        }
        if let Some(feature) = text.split("feature = \"").nth(1).filter(|_| text.starts_with("cfg"))
        {
            let name = feature.split('"').next().unwrap_or_default();
            needs = format!("[feature {name}] ");
        }
    }
    Some(needs)
}

/// Attributes that callers notice, in front of the item.
fn promises(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("must_use") || path.is_ident("non_exhaustive") {
            let _ = write!(text, "#[{}] ", path.to_token_stream());
        } else if path.is_ident("derive") {
            let Meta::List(list) = &attribute.meta else { continue };
            let tokens = list.tokens.to_string();
            let mut names: Vec<_> = tokens.split(',').map(str::trim).collect();
            names.sort();
            let _ = write!(text, "#[derive({})] ", names.join(", "));
        }
    }
    text
}

/// Code as people write it: `ToTokens` has a space between any two tokens.
fn compact(code: &impl ToTokens) -> String {
    let text = code.to_token_stream().to_string();
    let mut text = text.replace(" :: ", "::").replace(":: ", "::");
    for mark in [" ,", " ;", " )", " ]", " >", " (", " <", " :", " ?", " !"] {
        text = text.replace(mark, &mark[1..]);
    }
    for mark in ["( ", "[ ", "< ", "& ", "' ", "! ", "* "] {
        text = text.replace(mark, &mark[..1]);
    }
    let arrow = text.replace("->", " ->").replace("  ->", " ->").replace(":: <", "::<");
    arrow
        .replace("- >", "->")
        .replace(">=", "> =")
        .replace("& mut", "&mut")
        .replace("=(", "= (")
        .replace(":(", ": (")
        .replace(",)", ")")
}

struct Listing {
    lines: Vec<String>,
    /// Path of the module, ending in `::`.
    path: String,
    /// Feature that the module needs.
    needs: String,
}

impl Listing {
    fn put(&mut self, attributes: &[Attribute], name: impl Display, rest: &str) {
        let Some(needs) = shown(attributes) else { return };
        let needs = if self.needs.is_empty() { needs } else { self.needs.clone() };
        let path = &self.path;
        self.lines.push(format!("{path}{name}: {needs}{}{rest}", promises(attributes)));
    }
    fn fields(&mut self, owner: &str, fields: &Fields, all: bool) {
        for (index, field) in fields.iter().enumerate() {
            if !all && !is_public(&field.vis) {
                continue;
            }
            let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
            self.put(&field.attrs, format!("{owner}.{name}"), &compact(&field.ty));
        }
    }
    fn item(&mut self, item: &Item) {
        match item {
            Item::Const(item) if is_public(&item.vis) => {
                self.put(&item.attrs, &item.ident, &format!("const {}", compact(&item.ty)));
            }
            Item::Static(item) if is_public(&item.vis) => {
                self.put(&item.attrs, &item.ident, &format!("static {}", compact(&item.ty)));
            }
            Item::Fn(item) if is_public(&item.vis) => {
                self.put(&item.attrs, &item.sig.ident, &compact(&item.sig));
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.put(&item.attrs, &item.ident, &format!("type = {}", compact(&item.ty)));
            }
            Item::Use(item) if is_public(&item.vis) => {
                self.put(&item.attrs, "use", &compact(&item.tree));
            }
            Item::Struct(item) if is_public(&item.vis) && shown(&item.attrs).is_some() => {
                let name = item.ident.to_string();
                let hidden = item.fields.iter().any(|field| !is_public(&field.vis));
                let hidden = if hidden { " with private fields" } else { "" };
                let generics = compact(&item.generics);
                self.put(&item.attrs, &name, &format!("struct{generics}{hidden}"));
                self.fields(&name, &item.fields, false);
            }
            Item::Enum(item) if is_public(&item.vis) && shown(&item.attrs).is_some() => {
                let name = item.ident.to_string();
                self.put(&item.attrs, &name, &format!("enum{}", compact(&item.generics)));
                for variant in &item.variants {
                    let name = format!("{name}::{}", variant.ident);
                    self.put(&variant.attrs, &name, "variant");
                    self.fields(&name, &variant.fields, true);
                }
            }
            Item::Trait(item) if is_public(&item.vis) && shown(&item.attrs).is_some() => {
                self.a_trait(item)
            }
            Item::Impl(item) => self.an_impl(item),
            _ => {}
        }
    }
    fn a_trait(&mut self, item: &syn::ItemTrait) {
        let name = item.ident.to_string();
        let above = compact(&item.supertraits);
        let above = if above.is_empty() { above } else { format!(": {above}") };
        self.put(&item.attrs, &name, &format!("trait{}{above}", compact(&item.generics)));
        for part in &item.items {
            let (attributes, member, text) = match part {
                TraitItem::Fn(item) => {
                    let provided = if item.default.is_some() { " (provided)" } else { "" };
                    (&item.attrs, &item.sig.ident, format!("{}{provided}", compact(&item.sig)))
                }
                TraitItem::Type(item) => {
                    (&item.attrs, &item.ident, format!("type: {}", compact(&item.bounds)))
                }
                TraitItem::Const(item) => {
                    (&item.attrs, &item.ident, format!("const {}", compact(&item.ty)))
                }
                _ => continue,
            };
            self.put(attributes, format!("{name}::{member}"), &text);
        }
    }
    fn an_impl(&mut self, block: &syn::ItemImpl) {
        if shown(&block.attrs).is_none() {
            return;
        }
        let owner = compact(&block.self_ty);
        if let Some((_, name, _)) = &block.trait_ {
            self.put(&block.attrs, format!("impl {} for {owner}", compact(name)), "");
            return;
        }
        for item in &block.items {
            let (visibility, attributes, member, text) = match item {
                ImplItem::Fn(item) => (&item.vis, &item.attrs, &item.sig.ident, compact(&item.sig)),
                ImplItem::Const(item) => {
                    (&item.vis, &item.attrs, &item.ident, format!("const {}", compact(&item.ty)))
                }
                _ => continue,
            };
            if is_public(visibility) {
                let attributes: Vec<_> = block.attrs.iter().chain(attributes).cloned().collect();
                self.put(&attributes, format!("{owner}::{member}"), &text);
            }
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The public items of a module and those below it.
fn list(modules: &Modules<'_>, module: &str, path: &str, needs: &str, lines: &mut Vec<String>) {
    let Some(text) = modules.get(module) else { panic!("module {module} has no file") };
    let file = syn::parse_file(text).expect("the compiler reads it too");
    let mut listing =
        Listing { lines: Vec::new(), path: path.to_string(), needs: needs.to_string() };
    for item in &file.items {
        listing.item(item);
    }
    lines.append(&mut listing.lines);
    for item in &file.items {
        let Item::Mod(inner) = item else { continue };
        let Some(needs) = shown(&inner.attrs).filter(|_| inner.content.is_none()) else { continue };
        let name = inner.ident.to_string();
        let below = if module == "lib" { name.clone() } else { format!("{module}::{name}") };
        if is_public(&inner.vis) {
            lines.push(format!("{path}{name}: {needs}mod"));
        }
        list(modules, &below, &format!("{path}{name}::"), &needs, lines);
    }
}

/// The interface of a crate, a line an item, sorted. Implementations for private types are none of it.
fn interface(files: &[File], room: &str) -> String {
    let mut lines = Vec::new();
    list(&modules(files, room), "lib", "", "", &mut lines);
    let types: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let (path, rest) = line.split_once(": ")?;
            let kind = rest.split(' ').any(|word| {
                word.starts_with("struct") || word.starts_with("enum") || word.starts_with("trait")
            });
            kind.then(|| path.rsplit("::").next().unwrap_or(path).to_string())
        })
        .collect();
    lines.retain(|line| {
        let Some((_, owner)) = line.split_once(" for ").filter(|_| line.contains("impl ")) else {
            return true;
        };
        let owner = owner.split(['<', ':']).next().unwrap_or_default();
        types.iter().any(|known| known == owner)
    });
    lines.sort();
    lines
        .iter()
        .fold(String::new(), |text, line| text + line.trim_end().trim_end_matches(':') + "\n")
}

/// What is in one text and not in the other, in the manner of diff.
fn difference(old: &str, new: &str) -> String {
    let (before, after): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let gone = before.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}\n"));
    let come = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}\n"));
    gone.chain(come).collect()
}

/// Goal: a change of what embedders use is noticed. Method: the list of public items and their signatures against
/// the file; IOFAIR_BLESS=1 writes it.
#[test]
fn the_interface_changes_on_purpose() {
    let files = all();
    for room in CRATES {
        let path = root().join(format!("crates/{room}/interface.txt"));
        let fresh = interface(&files, room);
        if std::env::var_os("IOFAIR_BLESS").is_some() {
            std::fs::write(&path, &fresh).expect("it can be written");
            continue;
        }
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(fresh.lines().count() > 100, "crates/{room}: hardly any item was found");
        assert!(
            known == fresh,
            "the public interface of crates/{room} has changed:\n{}\nIf this is meant, run \
             `IOFAIR_BLESS=1 cargo test -p iofair-lab --test tidy interface` and add a line to CHANGELOG.md.",
            difference(&known, &fresh)
        );
    }
}

/// Goal: each kind of change shows, and what is private does not. Method: a made-up crate, and what its list says.
#[test]
fn interface_canaries() {
    let listed = |text: &str| {
        let part = "pub fn inner() {}";
        let files = [
            File::canary("crates/x/src/lib.rs", text),
            File::canary("crates/x/src/part.rs", part),
            File::canary("crates/x/src/part/tests.rs", "pub fn test() {}"),
        ];
        interface(&files, "x")
    };
    let shows = |text: &str, line: &str| {
        let list = listed(text);
        assert!(list.lines().any(|known| known == line), "{text}\n{line}\n{list}");
    };
    shows(
        "pub fn f(a: &mut [u8], b: Option<&'static str>) -> Vec<u8> {}",
        "f: fn f(a: &mut [u8], b: Option<&'static str>) -> Vec<u8>",
    );
    shows("mod part; pub use part::inner;", "part::inner: fn inner()");
    shows("mod part; pub use part::inner;", "use: part::inner");
    shows("#[must_use = \"why\"] pub fn f() -> bool {}", "f: #[must_use] fn f() -> bool");
    let text = "#[non_exhaustive] #[derive(Debug, Clone)] pub struct S { pub a: u64, b: u8 }";
    shows(text, "S: #[non_exhaustive] #[derive(Clone, Debug)] struct with private fields");
    shows(text, "S.a: u64");
    assert_eq!(listed(text).lines().count(), 2, "the private field is not there");
    shows("pub enum E { A(u8), B { c: u16 } }", "E::A.0: u8");
    shows("pub enum E { A(u8), B { c: u16 } }", "E::B.c: u16");
    shows("pub trait T: Send { fn a(&self); fn b(&self) {} }", "T::a: fn a(&self)");
    shows("pub trait T: Send { fn a(&self); fn b(&self) {} }", "T::b: fn b(&self) (provided)");
    shows("pub struct S; impl Clone for S {}", "impl Clone for S");
    shows("#[cfg(feature = \"simulation\")] pub fn f() {}", "f: [feature simulation] fn f()");
    shows("pub const C: [u8; 3] = [0; 3];", "C: const [u8; 3]");
    for hidden in [
        "fn f() {}",
        "pub(crate) fn f() {}",
        "#[cfg(test)] pub fn f() {}",
        "#[doc(hidden)] pub fn f() {}",
        "#[cfg(feature = \"testing\")] pub fn f() {}",
        "struct S; impl Clone for S {}",
        "struct S; impl S { fn f() {} }",
    ] {
        assert_eq!(listed(hidden), "", "{hidden}");
    }
    assert_eq!(difference("a\nb\n", "b\nc\n"), "- a\n+ c\n");
}
