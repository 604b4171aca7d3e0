//! The mapping from the engine's addresses to files.
//!
//! The engine has a single address space. A pool is one file that fills it. In a directory, each volume has its own
//! file, and the number of its slot is the upper part of its addresses. Slots are so far apart that a volume can grow
//! in place and commands of two volumes are never adjacent. A file stays open as long as the kernel has a command on
//! it, even if its volume has been removed.

use std::ops::Range;
use std::sync::Arc;

use super::file::Storage;

/// Bits of an address within a slot: 64 TiB a volume.
const SLOT_BITS: u32 = 46;
/// Most bytes that a volume in a file of its own may have.
pub(crate) const VOLUME_BYTES_MAX: u64 = 1 << SLOT_BITS;
/// Slots there are: the engine's addresses end at 2^63.
pub(crate) const SLOTS_MAX: u64 = 1 << (63 - SLOT_BITS);

/// The first address of a slot.
pub(crate) const fn slot_base(slot: u64) -> u64 {
    slot << SLOT_BITS
}

#[derive(Debug)]
struct Slot {
    storage: Arc<Storage>,
    /// Commands that the kernel has, or will have.
    running: u32,
    /// Its volume is gone.
    leaving: bool,
}

/// The files behind the engine's addresses.
#[derive(Debug)]
pub(super) struct Files {
    slots: Vec<Option<Slot>>,
    /// Bits of an address within a slot.
    bits: u32,
    /// Files without volumes, to be closed.
    closing: Vec<Arc<Storage>>,
}

impl Files {
    /// One file that is everything.
    pub(super) fn pool(storage: Arc<Storage>) -> Self {
        let slot = Slot { storage, running: 0, leaving: false };
        Self { slots: vec![Some(slot)], bits: 63, closing: Vec::new() }
    }
    /// A file a volume, none yet.
    pub(super) fn many() -> Self {
        Self { slots: Vec::new(), bits: SLOT_BITS, closing: Vec::new() }
    }
    /// The slot of an address, and where in its file the address lies.
    pub(super) fn find(&self, address: u64) -> (usize, u64) {
        let slot = (address >> self.bits) as usize;
        (slot, address & ((1 << self.bits) - 1))
    }
    /// The addresses of a slot.
    pub(super) fn range(&self, slot: usize) -> Range<u64> {
        (slot as u64) << self.bits..(slot as u64 + 1) << self.bits
    }
    fn slot(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot].as_mut().expect("a volume with requests has its file")
    }
    pub(super) fn storage(&self, slot: usize) -> &Storage {
        &self.slots[slot].as_ref().expect("a volume with requests has its file").storage
    }
    /// The same for another thread.
    pub(super) fn shared(&self, slot: usize) -> Arc<Storage> {
        self.slots[slot].as_ref().expect("a volume with requests has its file").storage.clone()
    }
    /// All that are there.
    pub(super) fn all(&self) -> impl Iterator<Item = &Storage> {
        self.slots.iter().flatten().map(|slot| &*slot.storage)
    }
    /// A volume came whose addresses begin here.
    pub(super) fn place(&mut self, base: u64, storage: &Arc<Storage>) {
        let (index, _) = self.find(base);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        match &mut self.slots[index] {
            Some(slot) => {
                assert!(Arc::ptr_eq(&slot.storage, storage), "two volumes in one slot");
                slot.leaving = false;
            }
            empty => {
                *empty = Some(Slot { storage: Arc::clone(storage), running: 0, leaving: false });
            }
        }
    }
    /// The volume whose addresses begin here is gone.
    pub(super) fn forget(&mut self, base: u64) {
        let (index, _) = self.find(base);
        self.slot(index).leaving = true;
        self.let_go(index);
    }
    fn let_go(&mut self, index: usize) {
        let over = |slot: &mut Slot| slot.leaving && slot.running == 0;
        self.closing.extend(self.slots[index].take_if(over).map(|slot| slot.storage));
    }
    /// Files to close. That may take long: the kernel frees the blocks of a file that has no name any more.
    pub(super) fn closing(&mut self) -> &mut Vec<Arc<Storage>> {
        &mut self.closing
    }
    /// A command on a slot begins.
    pub(super) fn begin(&mut self, index: usize) {
        self.slot(index).running += 1;
    }
    /// A command on a slot is over.
    pub(super) fn end(&mut self, index: usize) {
        self.slot(index).running -= 1;
        self.let_go(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Mode;

    /// Goal: a file is not closed by the thread that completes commands, and before it may be closed nothing uses
    /// it. Method: a volume that goes while the kernel has a command on its file, and one that goes idle.
    #[test]
    fn files_are_closed_by_others() {
        let path = std::env::temp_dir().join(format!("iofair-closing-{}", std::process::id()));
        for busy in [true, false] {
            let storage = Arc::new(Storage::open(&path, 4096, &Mode::Serve).unwrap());
            std::fs::remove_file(&path).unwrap();
            let mut files = Files::many();
            files.place(slot_base(3), &storage);
            let watch = Arc::downgrade(&storage);
            drop(storage);
            if busy {
                files.begin(3);
                files.forget(slot_base(3));
                assert!(files.closing().is_empty(), "the kernel has a command on it");
                files.end(3);
            } else {
                files.forget(slot_base(3));
            }
            assert_eq!((files.all().count(), watch.strong_count()), (0, 1));
            let closing = files.closing().pop().unwrap();
            assert!(watch.upgrade().is_some() && files.closing().is_empty());
            drop(closing);
            assert!(watch.upgrade().is_none());
        }
    }
}
