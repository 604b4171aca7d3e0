//! Where volumes lie on the drive.
//!
//! A new pool is laid out in the order of the contract file, one volume after the other. A volume that
//! has a place keeps it, whatever happens to the file: beside a pool that is a regular file, `.volumes`
//! remembers who lies where, so that reordering or removing a `[[volume]]` moves nobody's data. New
//! volumes go to the first gap that holds them, or to the end.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iofair_config::contracts::Volume;

use crate::error::ServeError;

/// Volumes begin on borders of so many bytes, which suits every drive's blocks.
const BORDER: u64 = 4096;

/// A volume's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) size: u64,
}

impl Place {
    fn end(&self) -> u64 {
        (self.base + self.size).next_multiple_of(BORDER)
    }
}

/// Who lies where. Volumes that are not in the contracts any more keep their place, since their data
/// is still there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    places: Vec<Place>,
    /// Where it is remembered.
    path: Option<PathBuf>,
}

impl Layout {
    /// The layout of a pool that is this file.
    pub(crate) fn beside(pool: &Path) -> Result<Self, ServeError> {
        let mut name = pool.as_os_str().to_os_string();
        name.push(".volumes");
        let path = PathBuf::from(name);
        let places = match fs::read_to_string(&path) {
            Ok(text) => parse(&text)
                .map_err(|message| ServeError::Layout { path: path.clone(), message })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(ServeError::system(path.display().to_string())(error)),
        };
        Ok(Self { places, path: Some(path) })
    }
    /// Finds every volume's place; a new size for an old volume is refused.
    pub(crate) fn place(&mut self, volumes: &[Volume]) -> Result<(), ServeError> {
        for volume in volumes {
            match self.find(&volume.name) {
                Some(place) if place.size == volume.size_bytes => {}
                Some(place) => {
                    let Volume { name, size_bytes, .. } = volume;
                    let size = place.size;
                    return Err(ServeError::Fixed(format!(
                        "the size of volume \"{name}\" ({size} bytes, not {size_bytes})"
                    )));
                }
                None => {
                    let base = self.gap(volume.size_bytes);
                    let (name, size) = (volume.name.clone(), volume.size_bytes);
                    self.places.push(Place { name, base, size });
                    self.places.sort_by_key(|place| place.base);
                }
            }
        }
        Ok(())
    }
    pub(crate) fn find(&self, name: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.name == name)
    }
    /// The end of the last volume.
    pub(crate) fn end(&self) -> u64 {
        self.places.last().map_or(0, |last| last.base + last.size)
    }
    fn gap(&self, size: u64) -> u64 {
        let mut base = 0;
        for place in &self.places {
            if place.base - base >= size {
                break;
            }
            base = place.end();
        }
        base
    }
    /// Remembers it on disk, all or nothing.
    pub(crate) fn save(&self) -> Result<(), ServeError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = String::from("# Where volumes lie in the pool: first byte, bytes, name.\n");
        for Place { name, base, size } in &self.places {
            writeln!(text, "{base} {size} {name}").expect("writing to a string");
        }
        if fs::read_to_string(path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        let fresh = path.with_extension("volumes.new");
        let write = || {
            fs::write(&fresh, &text)?;
            fs::File::open(&fresh)?.sync_all()?;
            fs::rename(&fresh, path)
        };
        write().map_err(ServeError::system(path.display().to_string()))
    }
}

fn parse(text: &str) -> Result<Vec<Place>, String> {
    let mut places: Vec<Place> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let parsed = number().zip(number());
        let (Some((base, size)), Some(name)) = (parsed, words.next()) else {
            return Err(format!("line {}: not \"first-byte bytes name\": {line}", index + 1));
        };
        let free = places.last().map_or(0, Place::end);
        if base < free || base.checked_add(size).is_none() {
            return Err(format!("line {}: volumes overlap", index + 1));
        }
        places.push(Place { name: name.to_string(), base, size });
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_config::contracts::Contracts;

    fn volumes(list: &[(&str, &str)]) -> Vec<Volume> {
        let mut text = String::from("[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n");
        text += "[[group]]\nname = 'g'\n";
        for (name, size) in list {
            writeln!(text, "[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '{size}'").unwrap();
        }
        Contracts::parse("test.toml", &text).unwrap().volumes
    }

    /// Goal: nobody's data moves, gaps are used, sizes stay. Method: remove, reorder, add, restart.
    #[test]
    fn places_are_kept() {
        let directory = std::env::temp_dir().join(format!("iofair-layout-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pool = directory.join("pool.img");
        let mut layout = Layout::beside(&pool).unwrap();
        layout.place(&volumes(&[("a", "1MiB"), ("b", "512B"), ("c", "1MiB")])).unwrap();
        layout.save().unwrap();
        let base = |layout: &Layout, name| layout.find(name).unwrap().base;
        assert_eq!([base(&layout, "b"), base(&layout, "c")], [1 << 20, (1 << 20) + 4096]);
        let mut again = Layout::beside(&pool).unwrap();
        again.place(&volumes(&[("c", "1MiB"), ("d", "4KiB")])).unwrap();
        assert_eq!([base(&again, "c"), base(&again, "d")], [(1 << 20) + 4096, (2 << 20) + 4096]);
        assert!(again.place(&volumes(&[("c", "2MiB")])).is_err());
        fs::write(directory.join("pool.img.volumes"), "0 4096 a\n100 5 b\n").unwrap();
        let error = Layout::beside(&pool).unwrap_err().to_string();
        assert!(error.contains("line 2: volumes overlap"), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }
}
