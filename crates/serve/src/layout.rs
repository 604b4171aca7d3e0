//! The positions of volumes on an emulated drive or in memory, and on pools of earlier versions, which `iofair pool
//! import` converts.
//!
//! Volumes are placed in the order of the contract file, one after the other. A volume keeps its position whatever
//! happens to the file: beside an emulated drive with a file, `.volumes` records positions. New volumes go to the
//! first gap that is large enough, or to the end.
//!
//! A volume may grow into the gap behind it. One that shrinks or is removed keeps its range, so its data never
//! becomes another volume's, and a removed one's is kept for its group. On devices of earlier versions nothing was
//! recorded, and the order of the file determined the positions.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iofair_config::contracts::Volume;
use iofair_core::unit::Count;
use uuid::Uuid;

use crate::error::ServeError;
use crate::log;
use crate::places::revocable::Revocable;
use crate::trial::{Mode, Trial};

/// The line with the identity of an emulated drive.
const DRIVE: &str = "# drive ";
/// The line with the group of the volume in the next line, and whether the contracts have it. Earlier versions ignore it.
const LIVE: &str = "# live in ";
const KEPT: &str = "# kept for ";
/// The line with the size of the volume in the next line, which has more room. Earlier versions ignore it.
const BYTES: &str = "# bytes ";
/// Volumes begin on borders of this many bytes, which suits every drive's blocks.
const BORDER: u64 = 4096;

/// Reads a file that others write, also while the server runs: a device may have no end, and a pipe nobody who writes.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    match iofair_config::is_regular(path)? {
        true => iofair_config::read_text(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// A volume's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) base: u64,
    /// Its room.
    pub(crate) size: u64,
    /// What of it the volume has.
    bytes: u64,
    /// The same as it is stored.
    stored: u64,
    /// Empty if an earlier version did not record it.
    group: String,
    /// The contracts do not have it any more.
    kept: bool,
}

impl Place {
    fn end(&self) -> u64 {
        (self.base + self.size).next_multiple_of(BORDER)
    }
}

/// How a layout outlives its server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Memory {
    /// Not at all, and neither does the data.
    #[default]
    None,
    /// The order and the sizes of the volumes tell it.
    Order,
    /// In this file.
    File(PathBuf),
}

/// Who lies where. Volumes that are not in the contracts any more keep their place, since their data
/// is still there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The identity of an emulated drive with a file.
    pub(crate) drive: Option<Uuid>,
    places: Vec<Place>,
    memory: Memory,
    /// Nothing is written.
    trial: Option<Arc<Trial>>,
}

impl Layout {
    /// The layout of a device.
    pub(crate) fn in_order() -> Self {
        Self { memory: Memory::Order, ..Self::default() }
    }
    /// The layout of a pool that is this file.
    pub(crate) fn beside(pool: &Path) -> Result<Self, ServeError> {
        let path = sidecar(pool);
        let (drive, places) = match fs::read_to_string(&path) {
            Ok(text) => {
                let places = parse(&text)
                    .map_err(|message| ServeError::Layout { path: path.clone(), message })?;
                let drive = text.lines().find_map(|line| line.strip_prefix(DRIVE));
                (drive.and_then(|drive| Uuid::parse_str(drive).ok()), places)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Vec::new()),
            Err(error) => return Err(ServeError::system(path.display().to_string())(error)),
        };
        Ok(Self { drive, places, memory: Memory::File(path), ..Self::default() })
    }
    /// The same, which is only tried if `mode` says so.
    pub(crate) fn under(self, mode: &Mode) -> Self {
        let trial = match mode {
            Mode::Serve => None,
            Mode::Check(trial) => Some(Arc::clone(trial)),
        };
        Self { trial, ..self }
    }
    /// Finds every volume's place.
    pub(crate) fn place(&mut self, volumes: &[Volume]) -> Result<(), ServeError> {
        self.places.iter_mut().for_each(|place| place.kept = true);
        for volume in volumes {
            let Volume { name, group, size_bytes: size, .. } = volume.clone();
            match self.places.iter().position(|place| place.name == name) {
                Some(index) => {
                    self.resize(index, volume)?;
                    let place = &mut self.places[index];
                    (place.bytes, place.group, place.kept) = (size, group, false);
                }
                None => {
                    let base = self.gap(size);
                    let (bytes, stored, kept) = (size, size, false);
                    self.places.push(Place { name, base, size, bytes, stored, group, kept });
                    self.places.sort_by_key(|place| place.base);
                }
            }
        }
        Ok(())
    }
    /// The group for which the data of a removed volume is kept.
    pub(crate) fn kept_for(&self, name: &str) -> Option<&str> {
        let place = self.find(name).filter(|place| place.kept && !place.group.is_empty());
        place.map(|place| &*place.group)
    }
    /// The removed volumes: name, group, and size.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let kept = self.places.iter().filter(|place| place.kept);
        kept.map(|place| (&*place.name, &*place.group, place.bytes))
    }
    /// The size of a volume that is larger than this.
    pub(crate) fn larger(&self, name: &str, bytes: u64) -> Option<u64> {
        self.find(name).map(|place| place.bytes).filter(|has| *has > bytes)
    }
    fn resize(&mut self, index: usize, volume: &Volume) -> Result<(), ServeError> {
        let place = &self.places[index];
        let (base, size, new) = (place.base, place.size, volume.size_bytes);
        let behind = self.places.get(index + 1).map(|next| next.base);
        let refuse = |message: String| Err(ServeError::volume(&volume.name, message));
        if self.memory == Memory::Order && behind.is_some() && new != size {
            return refuse(format!(
                "a size of {}, not {size}, would move the volumes behind it on the device",
                Count(new, "byte")
            ));
        }
        if let Some(behind) = behind.filter(|behind| new > behind - base) {
            let room = behind - base;
            return refuse(format!(
                "it has room for {} before the next volume, not {new}",
                Count(room, "byte")
            ));
        }
        let keeps_room = self.memory != Memory::Order;
        self.places[index].size = if keeps_room { new.max(size) } else { new };
        Ok(())
    }
    pub(crate) fn find(&self, name: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.name == name)
    }
    /// Names, first bytes and sizes, in the order of the drive.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.places.iter().map(|place| (&*place.name, place.base, place.size))
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
    /// Whether nothing is known of it.
    pub(crate) fn is_new(&self) -> bool {
        self.drive.is_none() && self.places.is_empty()
    }
    /// Remembers it on disk, all or nothing; sizes of volumes that are larger than before only if this is said.
    pub(crate) fn save(&mut self, larger: bool) -> Result<Made, ServeError> {
        let Memory::File(path) = &self.memory else { return Ok(Made(None)) };
        let mut text = String::from("# Where volumes lie in the pool: first byte, bytes, name.\n");
        if let Some(drive) = self.drive {
            writeln!(text, "{DRIVE}{drive}").expect("writing to a string");
        }
        for Place { name, base, size, bytes, stored, group, kept } in &mut self.places {
            *stored = if larger { *bytes } else { *bytes.min(stored) };
            let state = if *kept { KEPT } else { LIVE };
            writeln!(text, "{state}{group}").expect("writing to a string");
            if stored != size {
                writeln!(text, "{BYTES}{stored}").expect("writing to a string");
            }
            writeln!(text, "{base} {size} {name}").expect("writing to a string");
        }
        let old = fs::read_to_string(path).ok();
        if old.as_ref() == Some(&text) {
            return Ok(Made(None));
        }
        let what = ServeError::system(path.display().to_string());
        match &self.trial {
            Some(trial) => trial.stand_in(path).map(|_| Made(None)),
            None => {
                replace(path, text.as_bytes()).map(|()| Made(old.map(|old| (path.clone(), old))))
            }
        }
        .map_err(what)
    }
    /// Whether what is saved is on disk.
    pub(crate) fn is_saved(&self) -> bool {
        self.trial.is_none() && matches!(self.memory, Memory::File(_))
    }
}

/// The text that a layout has replaced, for contracts that are not in force yet. Dropping it puts it back.
#[derive(Debug)]
pub(crate) struct Made(Option<(PathBuf, String)>);

impl Revocable for Made {
    fn keep(mut self: Box<Self>) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((path, text)) = &self.0
            && let Err(error) = replace(path, text.as_bytes())
        {
            log::tell("pool", &format!("{} stays as it is: {error}", path.display()));
        }
    }
}

/// How the name of the file that remembers who lies where ends.
pub(crate) const SIDECAR: &str = ".volumes";

/// The file beside a pool that remembers who lies where.
pub(crate) fn sidecar(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_os_string();
    name.push(SIDECAR);
    PathBuf::from(name)
}

/// Replaces a file that only its user may read, all or nothing.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_os_string();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let mut file = create_private(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_parent(path)
}

/// Creates a file that only its owner may read. What an interrupted call has left in its place is removed, not written to:
/// it may be a link.
pub(crate) fn create_private(path: &Path) -> io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes the entry of a file in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn parse(text: &str) -> Result<Vec<Place>, String> {
    let mut places: Vec<Place> = Vec::new();
    let (mut group, mut kept, mut bytes) = ("", false, None);
    for (index, line) in text.lines().enumerate() {
        for (begin, is_kept) in [(LIVE, false), (KEPT, true)] {
            if let Some(told) = line.strip_prefix(begin) {
                (group, kept) = (told, is_kept);
            }
        }
        bytes = line.strip_prefix(BYTES).map_or(bytes, |text| text.parse().ok());
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
        let of = std::mem::take(&mut group).to_string();
        let (name, bytes) = (name.to_string(), bytes.take().unwrap_or(size));
        places.push(Place { name, base, size, bytes, stored: bytes, group: of, kept });
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

    /// Goal: no volume's data moves, and gaps are used. Method: remove, reorder, add, restart.
    #[test]
    fn places_are_kept() {
        let directory = std::env::temp_dir().join(format!("iofair-layout-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pool = directory.join("pool.img");
        let mut layout = Layout::beside(&pool).unwrap();
        layout.place(&volumes(&[("a", "1MiB"), ("b", "512B"), ("c", "1MiB")])).unwrap();
        Box::new(layout.save(true).unwrap()).keep();
        let base = |layout: &Layout, name| layout.find(name).unwrap().base;
        assert_eq!([base(&layout, "b"), base(&layout, "c")], [1 << 20, (1 << 20) + 4096]);
        let mut again = Layout::beside(&pool).unwrap();
        again.place(&volumes(&[("c", "1MiB"), ("d", "4KiB")])).unwrap();
        assert_eq!([base(&again, "c"), base(&again, "d")], [(1 << 20) + 4096, (2 << 20) + 4096]);
        let error = again.place(&volumes(&[("c", "2MiB")])).unwrap_err().to_string();
        assert!(error.contains("room for 1048576 bytes"), "{error}");
        fs::write(directory.join("pool.img.volumes"), "0 4096 a\n100 5 b\n").unwrap();
        let error = Layout::beside(&pool).unwrap_err().to_string();
        assert!(error.contains("line 2: volumes overlap"), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }

    /// Goal: a volume grows where no other is behind it, and the room of one that shrinks goes to no other; on a device
    /// only the last one changes. Method: grow, shrink, add, grow again, in both kinds of layout.
    #[test]
    fn volumes_grow_into_gaps() {
        let mut layout = Layout::default();
        layout.place(&volumes(&[("a", "1MiB"), ("b", "1MiB")])).unwrap();
        layout.place(&volumes(&[("b", "3MiB")])).unwrap();
        assert_eq!(layout.end(), 4 << 20);
        layout.place(&volumes(&[("a", "4KiB"), ("b", "4KiB")])).unwrap();
        layout.place(&volumes(&[("c", "4KiB")])).unwrap();
        assert_eq!(layout.find("c").unwrap().base, 4 << 20, "no byte of another volume's");
        layout.place(&volumes(&[("a", "1MiB"), ("b", "3MiB")])).unwrap();
        assert!(layout.place(&volumes(&[("a", "2MiB")])).is_err());
        let mut device = Layout::in_order();
        device.place(&volumes(&[("a", "1MiB"), ("b", "1MiB")])).unwrap();
        for size in ["4KiB", "2MiB"] {
            assert!(device.place(&volumes(&[("a", size)])).is_err(), "b would move");
            device.place(&volumes(&[("a", "1MiB"), ("b", size)])).unwrap();
        }
        assert_eq!(device.end(), 3 << 20);
    }
}
