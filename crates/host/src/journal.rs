//! Applies writes and takes them back.
//!
//! The journal is on disk before the first write. It has, for each place, the value from before us and every value that
//! we may have written. Whatever a crash leaves, each place therefore has one of three states: the value from before,
//! one of ours, or somebody else's. Applying and reverting bring each place from any of the first two to where it
//! belongs, so that they can be repeated after a crash at any point; the third is reported and left alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::write::{current, place, same, set, vanished};
use crate::{Files, HostError, Slot, Write};

/// The path of the journal. Only root can write there.
pub const JOURNAL: &str = "/var/lib/iofair-host/journal.json";
/// Changes with every boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Values of one place that are kept; older ones cannot be there any more.
const OURS_MAX: usize = 8;

/// Who wrote.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// `iofair host apply`: values stay until they are changed.
    Apply,
    /// `iofair host watch`: values change all the time, so every value is one of ours.
    Watch,
}

/// A place that was written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Entry {
    /// Absolute path.
    pub file: String,
    /// How the file holds the value.
    pub slot: Slot,
    /// The value from before; `None`: there was none.
    pub before: Option<String>,
    /// Values that we may have written, the last one last.
    pub ours: Vec<String>,
    /// Who wrote it.
    pub owner: Owner,
    /// Whether it was written for certain.
    pub written: bool,
}

/// Everything that was written and not taken back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Journal {
    boot: String,
    /// Names of devices by their numbers, which can change at a reboot.
    devices: BTreeMap<String, String>,
    /// In the order of writing.
    pub entries: Vec<Entry>,
}

/// What happened to each place; texts for people.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Done {
    /// Places that were written.
    pub written: Vec<String>,
    /// Places that have vanished, such as files of groups that ended.
    pub gone: Vec<String>,
    /// Files that this kernel does not have, of groups that exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Places that somebody else changed, which were left alone.
    pub changed: Vec<String>,
}

/// A place and what it is beside what it should be.
enum State {
    Before,
    Ours,
    Changed(String),
    Gone,
}

impl Entry {
    fn place(&self) -> String {
        place(&self.file, &self.slot)
    }
    fn is(&self, file: &str, slot: &Slot) -> bool {
        self.file == file && self.slot == *slot
    }
    fn state(&self, files: &dyn Files) -> Result<State, HostError> {
        let now = current(files, &self.file, &self.slot)?;
        let matches = |value: &str| now.as_deref().is_some_and(|now| same(now, value));
        Ok(match &self.before {
            None if now.is_none() => State::Before,
            // A setting that came with a scheduler which we have selected, before its own write.
            None if self.slot == Slot::Whole && !self.written => State::Before,
            Some(before) if now.as_deref() == Some(before.as_str()) => State::Before,
            // The controller writes all the time.
            _ if self.owner == Owner::Watch && files.read(&self.file).is_ok() => State::Ours,
            _ if self.ours.iter().any(|value| matches(value)) => State::Ours,
            _ if files.read(&self.file).is_err() && self.slot != Slot::Document => State::Gone,
            _ => State::Changed(now.unwrap_or_else(|| "nothing".to_owned())),
        })
    }
    fn describe(&self, now: &str) -> String {
        let ours = self.ours.last().map_or("", String::as_str);
        match self.slot {
            Slot::Document => format!("{}: its text differs from what was written", self.place()),
            _ => format!("{}: {now}, was set to {ours}", self.place()),
        }
    }
}

impl Journal {
    fn empty(files: &dyn Files) -> Self {
        let boot = files.read(BOOT).unwrap_or_default().trim().to_owned();
        Self { boot, devices: BTreeMap::new(), entries: Vec::new() }
    }
    /// Reads it; without a file it is empty.
    ///
    /// # Errors
    ///
    /// It cannot be read or understood.
    pub fn load(files: &dyn Files) -> Result<Self, HostError> {
        match files.read(JOURNAL) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| HostError::Journal {
                file: JOURNAL.to_owned(),
                why: error.to_string(),
            }),
            Err(error) if vanished(&error) => Ok(Self::empty(files)),
            Err(error) => Err(HostError::io("read", JOURNAL, error)),
        }
    }
    fn save(&self, files: &dyn Files) -> Result<(), HostError> {
        if self.entries.is_empty() {
            return files.remove(JOURNAL).map_err(|error| HostError::io("remove", JOURNAL, error));
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| HostError::Journal {
            file: JOURNAL.to_owned(),
            why: error.to_string(),
        })?;
        files.replace(JOURNAL, &text).map_err(|error| HostError::io("write", JOURNAL, error))
    }
    /// Adapts to a reboot: values of the kernel are the ones from before us again, unless our own files have set them;
    /// numbers may belong to other devices.
    fn after_boot(&mut self, files: &dyn Files, gone: &mut Vec<String>) -> Result<(), HostError> {
        let now = Self::empty(files).boot;
        if self.boot == now {
            return Ok(());
        }
        let mut kept = Vec::new();
        for mut entry in std::mem::take(&mut self.entries) {
            let moved = match &entry.slot {
                Slot::Keyed { key, .. } => {
                    device_name(files, key) != self.devices.get(key).cloned()
                }
                _ => false,
            };
            if moved {
                gone.push(format!("{}: another device since a reboot", entry.place()));
                continue;
            }
            if let State::Changed(_) = entry.state(files)?
                && entry.slot != Slot::Document
            {
                entry.before = current(files, &entry.file, &entry.slot)?;
            }
            kept.push(entry);
        }
        (self.entries, self.boot) = (kept, now);
        Ok(())
    }
    fn note_device(&mut self, files: &dyn Files, slot: &Slot) {
        if let Slot::Keyed { key, .. } = slot
            && let Some(name) = device_name(files, key)
        {
            self.devices.insert(key.clone(), name);
        }
    }
}

fn device_name(files: &dyn Files, number: &str) -> Option<String> {
    let path = files.canonical(&format!("/sys/dev/block/{number}")).ok()?;
    path.rsplit('/').next().map(str::to_owned)
}

/// Sets a value as [`set`] does. Version 1 of cgroups erases the weights of devices when a group's weight is written;
/// they are written again.
fn put(files: &dyn Files, file: &str, slot: &Slot, value: Option<&str>) -> Result<(), HostError> {
    let devices = match file.ends_with("/blkio.bfq.weight") {
        true => files.read(&format!("{file}_device")).unwrap_or_default(),
        false => String::new(),
    };
    set(files, file, slot, value)?;
    for line in devices.lines().filter(|line| !line.starts_with("default")) {
        let (path, action) = (format!("{file}_device"), format!("write `{line}` to"));
        files.write(&path, line).map_err(|error| HostError::io(&action, &path, error))?;
    }
    Ok(())
}

/// The same for a place that may vanish meanwhile; whether it was there.
fn put_if_there(
    files: &dyn Files,
    file: &str,
    slot: &Slot,
    value: Option<&str>,
) -> Result<bool, HostError> {
    match put(files, file, slot, value) {
        Ok(()) => Ok(true),
        Err(HostError::Io { error, .. }) if vanished(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the writes of a plan, and takes back what an earlier plan of the same owner wrote and this one does not.
///
/// # Errors
///
/// [`HostError::Changed`] if somebody else has changed a value since it was applied, unless `force`: nothing is written
/// then. An error of the kernel ends it; the journal knows everything that was written.
pub fn apply(
    files: &dyn Files,
    writes: &[Write],
    owner: Owner,
    force: bool,
) -> Result<Done, HostError> {
    let mut done = Done::default();
    let mut journal = Journal::load(files)?;
    journal.after_boot(files, &mut done.gone)?;
    if owner == Owner::Apply && journal.entries.iter().any(|entry| entry.owner == Owner::Watch) {
        // A controller was killed: its values go first, so that those below are seen.
        let watched = revert(files, Some(Owner::Watch), false)?;
        done.written.extend(watched.written);
        journal = Journal::load(files)?;
        journal.after_boot(files, &mut done.gone)?;
    }
    let wanted = |entry: &Entry| writes.iter().find(|write| entry.is(&write.file, &write.slot));
    let mut changed = Vec::new();
    for entry in journal.entries.iter().filter(|entry| entry.owner == owner) {
        if let State::Changed(now) = entry.state(files)?
            && !wanted(entry).is_some_and(|write| same(&now, &write.after))
        {
            changed.push(entry.describe(&now));
        }
    }
    if !changed.is_empty() && !force {
        return Err(HostError::Changed(changed));
    }
    let dropped = |entry: &Entry| entry.owner == owner && wanted(entry).is_none();
    let old: Vec<Entry> = journal.entries.iter().filter(|old| dropped(old)).cloned().collect();
    for write in writes {
        journal.note_device(files, &write.slot);
        let mut entries = journal.entries.iter_mut();
        match entries.find(|entry| entry.owner == owner && entry.is(&write.file, &write.slot)) {
            Some(entry) => remember(entry, &write.after),
            None if write.is_done() => {}
            None => journal.entries.push(Entry {
                file: write.file.clone(),
                slot: write.slot.clone(),
                before: write.before.clone(),
                ours: vec![write.after.clone()],
                owner,
                written: false,
            }),
        }
    }
    journal.save(files)?;
    for entry in old.iter().rev() {
        restore(files, entry, &mut done)?;
    }
    journal.entries.retain(|entry| !old.contains(entry));
    for write in writes {
        make(files, write, &mut journal, &mut done)?;
    }
    for entry in journal.entries.iter_mut().filter(|entry| entry.owner == owner) {
        entry.written = true;
    }
    journal.save(files)?;
    Ok(done)
}

/// Keeps the values of places that a controller is about to write many times, without writing them.
///
/// # Errors
///
/// The journal or a place cannot be read, or the journal cannot be written.
pub fn claim(files: &dyn Files, places: &[(String, Slot)]) -> Result<(), HostError> {
    let mut journal = Journal::load(files)?;
    journal.after_boot(files, &mut Vec::new())?;
    for (file, slot) in places {
        let mut entries = journal.entries.iter();
        if entries.any(|entry| entry.owner == Owner::Watch && entry.is(file, slot)) {
            continue;
        }
        journal.note_device(files, slot);
        let before = current(files, file, slot)?;
        let (file, slot, owner) = (file.clone(), slot.clone(), Owner::Watch);
        journal.entries.push(Entry { file, slot, before, ours: Vec::new(), owner, written: true });
    }
    journal.save(files)
}

fn remember(entry: &mut Entry, value: &str) {
    entry.ours.retain(|old| old != value);
    entry.ours.push(value.to_owned());
    if entry.ours.len() > OURS_MAX {
        entry.ours.remove(0);
    }
}

fn make(
    files: &dyn Files,
    write: &Write,
    journal: &mut Journal,
    done: &mut Done,
) -> Result<(), HostError> {
    let now = current(files, &write.file, &write.slot)?;
    if now.as_deref().is_some_and(|now| same(now, &write.after)) {
        return Ok(());
    }
    if !put_if_there(files, &write.file, &write.slot, Some(&write.after))? {
        if is_missing(files, &write.file) {
            done.missing.push(write.place());
            // Nothing was written that could be restored.
            journal.entries.retain(|entry| !entry.is(&write.file, &write.slot));
        } else {
            done.gone.push(write.place());
        }
        return Ok(());
    }
    done.written.push(write.place());
    // The kernel may round. What it shows is ours, too.
    let now = current(files, &write.file, &write.slot)?;
    let mut entries = journal.entries.iter_mut();
    if let (Some(now), Some(entry)) = (now, entries.find(|old| old.is(&write.file, &write.slot)))
        && !same(&now, &write.after)
    {
        remember(entry, &now);
    }
    Ok(())
}

/// Whether the directory of a file exists, and the file does not.
fn is_missing(files: &dyn Files, file: &str) -> bool {
    let directory = file.rsplit_once('/').map_or("", |parts| parts.0);
    let error = files.read(file).map_err(|error| error.kind());
    files.is_directory(directory) && error == Err(std::io::ErrorKind::NotFound)
}

/// Takes one place back.
fn restore(files: &dyn Files, entry: &Entry, done: &mut Done) -> Result<(), HostError> {
    match put_if_there(files, &entry.file, &entry.slot, entry.before.as_deref())? {
        true => done.written.push(entry.place()),
        false => done.gone.push(entry.place()),
    }
    Ok(())
}

/// Restores every value from before, of one owner or of all. Values that somebody else changed stay, and stay in the
/// journal, unless `force`.
///
/// # Errors
///
/// An error of the kernel or of the journal; it can be repeated.
pub fn revert(files: &dyn Files, owner: Option<Owner>, force: bool) -> Result<Done, HostError> {
    let mut done = Done::default();
    let mut journal = Journal::load(files)?;
    journal.after_boot(files, &mut done.gone)?;
    let ours = |entry: &Entry| owner.is_none_or(|owner| entry.owner == owner);
    let mut kept = Vec::new();
    for entry in journal.entries.iter().rev() {
        if !ours(entry) {
            kept.push(entry.clone());
            continue;
        }
        match entry.state(files)? {
            State::Before => {}
            State::Gone => done.gone.push(entry.place()),
            State::Changed(now) if !force => {
                done.changed.push(entry.describe(&now));
                kept.push(entry.clone());
            }
            State::Ours | State::Changed(_) => match restore(files, entry, &mut done) {
                // Other groups use the controller by now.
                Err(HostError::Io { error, .. }) if matches!(entry.slot, Slot::Word { .. }) => {
                    done.changed.push(format!("{}: {error}; it stays", entry.place()));
                }
                restored => restored?,
            },
        }
    }
    kept.reverse();
    journal.entries = kept;
    journal.save(files)?;
    Ok(done)
}

#[cfg(test)]
mod tests;
