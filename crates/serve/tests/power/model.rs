//! What a volume may hold after a power cut, sector by sector: what is durable, or anything written since.

use std::sync::Arc;

pub(crate) const SECTOR: usize = 512;

type Bytes = Arc<[u8; SECTOR]>;

/// A sector as a write left it, and the number of the answer to that write.
#[derive(Clone, Debug)]
struct Version {
    bytes: Bytes,
    answered: Option<u64>,
}

/// The first version is durable.
#[derive(Clone, Debug)]
struct Sector {
    versions: Vec<Version>,
    busy: bool,
}

/// The names of the versions that a write made: one a sector.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    first: usize,
    versions: Vec<Bytes>,
}

/// One volume. Requests that are in flight touch different sectors.
pub(crate) struct Volume {
    sectors: Vec<Sector>,
    answers: u64,
}

fn sectors(offset: u64, length: usize) -> std::ops::Range<usize> {
    let end = offset as usize + length;
    offset as usize / SECTOR..end.div_ceil(SECTOR)
}

impl Volume {
    /// Zeroes, durable.
    pub(crate) fn new(bytes: usize) -> Self {
        let zeroes = Version { bytes: Arc::new([0; SECTOR]), answered: Some(0) };
        let sector = Sector { versions: vec![zeroes], busy: false };
        Self { sectors: vec![sector; bytes / SECTOR], answers: 0 }
    }
    pub(crate) fn bytes(&self) -> usize {
        self.sectors.len() * SECTOR
    }
    /// Takes a range for one request; false if another has a part of it.
    pub(crate) fn take(&mut self, offset: u64, length: usize) -> bool {
        let range = sectors(offset, length);
        let free = self.sectors[range.clone()].iter().all(|sector| !sector.busy);
        if free {
            self.sectors[range].iter_mut().for_each(|sector| sector.busy = true);
        }
        free
    }
    fn give(&mut self, offset: u64, length: usize) {
        self.sectors[sectors(offset, length)].iter_mut().for_each(|sector| sector.busy = false);
    }
    fn newest(&self, sector: usize) -> &[u8; SECTOR] {
        &self.sectors[sector].versions.last().unwrap().bytes
    }
    /// A write is sent: from now on it may be there.
    pub(crate) fn sent(&mut self, offset: u64, data: &[u8]) -> Made {
        let (start, end) = (offset as usize, offset as usize + data.len());
        let range = sectors(offset, data.len());
        let mut made = Made { first: range.start, versions: Vec::new() };
        for sector in range {
            let (first, last) = (sector * SECTOR, (sector + 1) * SECTOR);
            let (from, to) = (first.max(start), last.min(end));
            let mut bytes = *self.newest(sector);
            bytes[from - first..to - first].copy_from_slice(&data[from - start..to - start]);
            let bytes = Arc::new(bytes);
            made.versions.push(Arc::clone(&bytes));
            self.sectors[sector].versions.push(Version { bytes, answered: None });
        }
        made
    }
    /// A write is answered well; with `durable` it must be there from now on.
    pub(crate) fn written(&mut self, made: &Made, durable: bool) {
        self.answers += 1;
        for (place, bytes) in made.versions.iter().enumerate() {
            let sector = &mut self.sectors[made.first + place];
            sector.busy = false;
            let version = sector.versions.iter().position(|known| Arc::ptr_eq(&known.bytes, bytes));
            let version = version.expect("a version that is not durable is kept");
            sector.versions[version].answered = Some(self.answers);
            if durable {
                sector.versions.drain(..version);
            }
        }
    }
    /// What a flush that is sent now covers.
    pub(crate) fn covered(&self) -> u64 {
        self.answers
    }
    /// A flush is answered well.
    pub(crate) fn flushed(&mut self, covered: u64) {
        for sector in &mut self.sectors {
            let is_covered = |version: &Version| version.answered.is_some_and(|at| at <= covered);
            if let Some(newest) = sector.versions.iter().rposition(is_covered) {
                sector.versions.drain(..newest);
            }
        }
    }
    /// A read is answered: it found what was written last.
    pub(crate) fn check_read(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        self.give(offset, data.len());
        for sector in sectors(offset, data.len()) {
            let first = sector * SECTOR;
            let from = first.max(offset as usize);
            let to = (first + SECTOR).min(offset as usize + data.len());
            let found = &data[from - offset as usize..to - offset as usize];
            if *found != self.newest(sector)[from - first..to - first] {
                return Err(format!("a read of sector {sector} found something else"));
            }
        }
        Ok(())
    }
    /// Compares with what a cut left, which is durable from now on. Returns how many sectors are older than the last
    /// write that was sent.
    pub(crate) fn check_image(&mut self, image: &[u8]) -> Result<usize, String> {
        assert_eq!(image.len(), self.bytes());
        let (mut older, mut wrong) = (0, Vec::new());
        for (number, (sector, found)) in
            self.sectors.iter_mut().zip(image.chunks(SECTOR)).enumerate()
        {
            let fits = |version: &Version| version.bytes[..] == *found;
            match sector.versions.iter().rposition(fits) {
                None => wrong.push((number, sector.versions.len())),
                Some(place) => older += usize::from(place + 1 < sector.versions.len()),
            }
            let bytes = Arc::new(found.try_into().unwrap());
            *sector = Sector { versions: vec![Version { bytes, answered: Some(0) }], busy: false };
        }
        self.answers = 0;
        match wrong.is_empty() {
            true => Ok(older),
            false => Err(format!(
                "{} sectors hold neither what was durable nor what came later; the first with their versions: {:?}",
                wrong.len(),
                &wrong[..wrong.len().min(8)]
            )),
        }
    }
}
