//! Where jobs have their files: what `filename`, `size` and `offset` are on the modelled drive.
//!
//! A job without `filename` has a file of its own for each clone, which lies where the host's layout puts it. A `filename` below
//! `/dev` is the drive itself, whatever its name. Any other name is a file that all jobs with this name share; these files
//! lie at the end of the drive.

use iofair_config::ConfigError;
use iofair_config::fio::{Job, JobFile, Size};
use iofair_core::unit::Sectors;

/// The range that a clone uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// Where it begins on the drive; `None`: a file of its own.
    pub(super) place: Option<Sectors>,
    pub(super) size: Sectors,
    /// What a percentage of a size is of.
    pub(super) whole: u64,
}

/// The files of all jobs.
pub(super) struct Targets<'a> {
    file: &'a JobFile,
    capacity: u64,
    /// Names, sizes and places of shared files.
    shared: Vec<(String, u64, u64)>,
}

/// Blocks of a file system: places of files are multiples.
const ALIGN: u64 = 4096;

/// The name of a clone's file, if it is not its own.
fn name_of(job: &Job, clone: u32) -> Option<String> {
    let file = job.settings.file.as_ref()?;
    let numbers =
        [("$jobname", job.name.clone()), ("$jobnum", clone.to_string()), ("$filenum", "0".into())];
    let named = numbers.iter().fold(file.clone(), |name, (word, text)| name.replace(word, text));
    match &job.settings.directory {
        Some(directory) if !named.starts_with('/') => Some(format!("{directory}/{named}")),
        _ => Some(named),
    }
}

fn is_device(name: &str) -> bool {
    name.starts_with("/dev/")
}

impl<'a> Targets<'a> {
    pub(super) fn new(file: &'a JobFile, capacity: Sectors) -> Result<Self, ConfigError> {
        let mut this = Self { file, capacity: capacity.bytes(), shared: Vec::new() };
        let mut end = this.capacity;
        for job in &file.jobs {
            for clone in 0..job.settings.clones {
                let Some(name) = name_of(job, clone).filter(|name| !is_device(name)) else { break };
                let size = this.offset(job, clone, None)? + this.size(job, "size", None)?;
                match this.shared.iter_mut().find(|it| it.0 == name) {
                    Some((_, known, _)) => *known = size.max(*known),
                    None => this.shared.push((name, size, 0)),
                }
            }
        }
        for (name, size, place) in &mut this.shared {
            let Some(left) = end.checked_sub(size.next_multiple_of(ALIGN)) else {
                let message = format!("file `{name}` does not fit on the drive");
                return Err(ConfigError::whole_file(file.path(), message));
            };
            end = left / ALIGN * ALIGN;
            *place = end;
        }
        Ok(this)
    }

    /// The range of a clone.
    pub(super) fn region(&mut self, job: &Job, clone: u32) -> Result<Region, ConfigError> {
        let refuse = |option: &str, message: &str| Err(self.file.error(job, option, message));
        let Some(name) = name_of(job, clone) else {
            let size = Sectors::from_bytes_ceil(self.size(job, "size", None)?);
            return Ok(Region { place: None, size, whole: size.bytes() });
        };
        let shared = self.shared.iter().find(|it| it.0 == name);
        let (base, whole) = match shared {
            Some((_, size, place)) => (*place, *size),
            None => (0, self.capacity),
        };
        let offset = self.offset(job, clone, Some(whole))?;
        if offset >= whole {
            return refuse("offset", "the offset lies behind the end");
        }
        let size = match job.settings.size {
            Some(_) => self.size(job, "size", Some(whole))?.min(whole - offset),
            None => whole - offset,
        };
        let place = Some(Sectors((base + offset) / 512));
        Ok(Region { place, size: Sectors(size / 512), whole })
    }

    /// `size`; a percentage is one of `whole`, if there is a whole.
    fn size(&self, job: &Job, option: &str, whole: Option<u64>) -> Result<u64, ConfigError> {
        match (job.settings.size, whole) {
            (Some(Size::Bytes(0)) | None, _) => {
                let error =
                    self.file.error(job, option, format!("job `{}` has no `size`", job.name));
                Err(error.allowed("a size, or a `filename` below /dev, which is the whole drive"))
            }
            (Some(size), whole) => self.resolve(job, option, size, whole),
        }
    }
    fn offset(&self, job: &Job, clone: u32, whole: Option<u64>) -> Result<u64, ConfigError> {
        let it = &job.settings;
        let first = self.resolve(job, "offset", it.offset, whole)?;
        let more = self.resolve(job, "offset_increment", it.offset_increment, whole)?;
        let least = it.blocks.iter().map(|blocks| blocks.least()).min().unwrap_or(512);
        let offset = more.checked_mul(u64::from(clone)).and_then(|more| more.checked_add(first));
        let too_far = || self.file.error(job, "offset_increment", "the offset is out of range");
        Ok(offset.ok_or_else(too_far)? / least * least)
    }
    fn resolve(
        &self,
        job: &Job,
        option: &str,
        size: Size,
        whole: Option<u64>,
    ) -> Result<u64, ConfigError> {
        match (size, whole) {
            (Size::Bytes(bytes), _) if bytes <= self.capacity => Ok(bytes),
            (Size::Bytes(bytes), _) => {
                let message = format!("{bytes} bytes are more than the drive has");
                Err(self.file.error(job, option, message).allowed(self.capacity.to_string()))
            }
            (Size::Percent(percent), Some(whole)) => {
                Ok((u128::from(whole) * u128::from(percent) / 100) as u64)
            }
            (Size::Percent(_), None) => {
                let error =
                    self.file.error(job, option, "a percentage of a file that is not there");
                Err(error.allowed("bytes, or a `filename` below /dev, which is the whole drive"))
            }
        }
    }
}
