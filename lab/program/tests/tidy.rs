//! The repository's own rules, as ordinary tests. Each rule looks at files and returns complaints; each
//! has a canary, a made-up file that it must complain about.

#[path = "tidy/bands.rs"]
mod bands;
#[path = "tidy/basis.rs"]
mod basis;
#[path = "tidy/bench.rs"]
mod bench;
#[path = "tidy/book.rs"]
mod book;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/compare.rs"]
mod compare;
#[path = "tidy/comparison.rs"]
mod comparison;
#[path = "tidy/evidence.rs"]
mod evidence;
#[path = "tidy/explain.rs"]
mod explain;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/interface.rs"]
mod interface;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/machines.rs"]
mod machines;
#[path = "tidy/measured.rs"]
mod measured;
#[path = "tidy/registry.rs"]
mod registry;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/tables.rs"]
mod tables;
#[path = "tidy/text.rs"]
mod text;
