//! A drive with a volatile write cache. At a power cut, every sector of 512 bytes that was written since the last
//! sync randomly gets its durable value or any of the values written since: writes are lost, torn and reordered.

use std::collections::BTreeMap;
use std::io;

use super::medium::Medium;

const SECTOR: usize = 512;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// The drive.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    durable: Vec<u8>,
    /// Values that were written to a sector since the last sync, in order.
    cache: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Its length, if that is not durable yet.
    length: usize,
    file: bool,
    /// Calls until the power goes.
    left: Option<u64>,
    /// Calls so far that the power could have gone in.
    pub(super) calls: u64,
    /// Sync does nothing.
    pub(super) lies: bool,
    random: Random,
}

impl Drive {
    pub(super) fn new(bytes: usize, file: bool, seed: u64) -> Self {
        Self {
            durable: vec![0; bytes],
            cache: BTreeMap::new(),
            length: bytes,
            file,
            left: None,
            calls: 0,
            lies: false,
            random: Random(seed),
        }
    }
    /// The power goes in the call after this many.
    pub(super) fn cut_after(&mut self, calls: u64) {
        self.left = Some(calls);
    }
    /// Whether it is without power.
    pub(super) fn is_dead(&self) -> bool {
        self.left == Some(0)
    }
    /// The power comes back: what of the cache was written is decided now.
    pub(super) fn restart(mut self) -> Self {
        // A file that became longer may have its old length again.
        if self.length > self.durable.len() && self.random.below(2) == 0 {
            self.durable.resize(self.length, 0);
        }
        for (sector, values) in std::mem::take(&mut self.cache) {
            let at = sector * SECTOR;
            let chosen = self.random.below(values.len() as u64 + 1) as usize;
            if at + SECTOR <= self.durable.len() && chosen > 0 {
                self.durable[at..at + SECTOR].copy_from_slice(&values[chosen - 1]);
            }
        }
        self.length = self.durable.len();
        self.left = None;
        self
    }
    /// One call; an error if the power has gone or goes now.
    fn call(&mut self) -> io::Result<bool> {
        self.calls += 1;
        match &mut self.left {
            None => Ok(false),
            Some(0) => Err(io::Error::other("no power")),
            Some(left) => {
                *left -= 1;
                Ok(*left == 0)
            }
        }
    }
    fn sector(&self, sector: usize) -> [u8; SECTOR] {
        let at = sector * SECTOR;
        match self.cache.get(&sector).and_then(|values| values.last()) {
            Some(value) => *value,
            None => match self.durable.get(at..at + SECTOR) {
                Some(bytes) => bytes.try_into().unwrap(),
                None => [0; SECTOR],
            },
        }
    }
    /// What a client reads.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut at, end) = (offset as usize, offset as usize + into.len());
        if end > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while at < end {
            let within = at % SECTOR;
            let piece = (SECTOR - within).min(end - at);
            let value = self.sector(at / SECTOR);
            into[done..done + piece].copy_from_slice(&value[within..within + piece]);
            at += piece;
            done += piece;
        }
        Ok(())
    }
    /// What a client writes, durably.
    pub(super) fn write_durably(&mut self, offset: u64, bytes: &[u8]) {
        self.put(offset, bytes);
        self.write_back();
    }
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset as usize, bytes);
        while !rest.is_empty() {
            let (sector, within) = (at / SECTOR, at % SECTOR);
            let piece = rest.len().min(SECTOR - within);
            let mut value = self.sector(sector);
            value[within..within + piece].copy_from_slice(&rest[..piece]);
            self.cache.entry(sector).or_default().push(value);
            at += piece;
            rest = &rest[piece..];
        }
    }
    fn write_back(&mut self) {
        self.durable.resize(self.length, 0);
        for (sector, values) in std::mem::take(&mut self.cache) {
            let at = sector * SECTOR;
            self.durable[at..at + SECTOR].copy_from_slice(values.last().unwrap());
        }
    }
}

/// What a call says when the power went in it.
fn cut(went: bool) -> io::Result<()> {
    if went { Err(io::Error::other("the power goes")) } else { Ok(()) }
}

impl Medium for &mut Drive {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length as u64)
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read(offset, into)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let went = self.call()?;
        self.put(offset, bytes);
        cut(went)
    }
    fn sync(&mut self) -> io::Result<()> {
        let went = self.call()?;
        if !went && !self.lies {
            self.write_back();
        }
        cut(went)
    }
    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let went = self.call()?;
        self.put(offset, &vec![0; length as usize]);
        cut(went)
    }
    fn grows(&self) -> bool {
        self.file
    }
    fn lengthen(&mut self, bytes: u64) -> io::Result<()> {
        let went = self.call()?;
        if bytes as usize > self.length {
            if !self.file {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.length = bytes as usize;
        }
        cut(went)
    }
}
