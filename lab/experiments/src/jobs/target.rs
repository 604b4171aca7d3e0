//! Where jobs have their files: what `filename`, `size` and `offset` are on the modelled drive.
//!
//! A job without `filename` has a file of its own for each clone, which lies where the host's layout puts it. A `filename` below
//! `/dev` is the drive itself, whatever its name. Any other name is a file that all jobs with this name share; these files
//! lie at the end of the drive.

use std::collections::BTreeMap;

use iofair_config::ConfigError;
use iofair_config::fio::{self, Blocks, Job, JobFile, Settings, Size};
use iofair_core::unit::Sectors;

/// The range that a clone uses, as fio 3.33 computes it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Region {
    /// Where it begins on the drive; `None`: a file of its own.
    pub(super) place: Option<Sectors>,
    /// Bytes before it in its file.
    pub(super) offset: u64,
    /// Bytes of a pass.
    pub(super) size: u64,
    /// Bytes, as far as calls go in all files together.
    pub(super) reach: u64,
    /// Bytes to the end of the file.
    pub(super) room: u64,
    /// Whether the file is there before the job makes its own.
    pub(super) is_there: bool,
}

/// A file that several jobs may use.
struct Shared {
    name: String,
    /// Bytes that all jobs together need.
    size: u64,
    /// Bytes that it has before the next job, as jobs make their files one after the other, before the first one runs.
    there: u64,
    /// Where it begins on the drive.
    place: u64,
}

/// The files of all jobs.
pub(super) struct Targets<'a> {
    file: &'a JobFile,
    capacity: u64,
    /// Shared files, in their order on the drive.
    shared: Vec<Shared>,
    /// Where each name is among them.
    index: BTreeMap<String, usize>,
}

/// Blocks of a file system: places of files are multiples.
const ALIGN: u64 = 4096;

/// What a job needs that has no size.
const SIZE_ALLOWED: &str = "a size, or a `filename` of a job above, or below /dev, which is the whole drive; also as --set size=1g or --set filename=/dev/sdx";
/// What a job needs that fills a drive.
const DRIVE_ALLOWED: &str =
    "a `filename` below /dev, which is the whole drive, also as --set filename=/dev/sdx";

/// The name of a clone's file, if it is not its own. Several files are one, which has all of their names.
fn name_of(job: &Job, clone: u32) -> Option<String> {
    let settings = &job.settings;
    let unnamed = || settings.names_drives.then(|| "drive".to_owned());
    let mut files = settings.files();
    if settings.nr_files == 1 {
        files.truncate(1);
    }
    let file = (!files.is_empty()).then(|| files.join(":")).or_else(unnamed)?;
    let numbers = [
        ("$jobname", job.section.clone()),
        ("$jobnum", clone.to_string()),
        ("$filenum", "0".into()),
    ];
    let named = numbers.iter().fold(file, |name, (word, text)| name.replace(word, text));
    match &job.settings.directory {
        Some(directory) if !named.starts_with('/') => Some(format!("{directory}/{named}")),
        _ => Some(named),
    }
}

fn least_block(settings: &Settings) -> u64 {
    settings.blocks.iter().map(Blocks::least).min().unwrap_or(512)
}

/// Whether a job's file is the drive.
fn is_device(job: &Job, name: &str) -> bool {
    fio::is_device(name) || job.settings.names_drives
}

impl<'a> Targets<'a> {
    /// Lays out the files of some jobs; those that cannot be laid out are errors.
    pub(super) fn new(
        file: &'a JobFile,
        capacity: Sectors,
    ) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let (shared, index) = (Vec::new(), BTreeMap::new());
        let mut this = Self { file, capacity: capacity.bytes(), shared, index };
        let (mut end, mut errors) = (this.capacity, Vec::new());
        for job in &file.jobs {
            for clone in 0..job.settings.clones {
                let named = name_of(job, clone).filter(|name| !is_device(job, name));
                let Some(name) = named else { break };
                let known = this.index.get(&name).copied();
                let there = known.map(|at| this.shared[at].size);
                let size = match this.file_end(job, clone, there) {
                    Ok(size) => size,
                    Err(error) => {
                        errors.push(error);
                        break;
                    }
                };
                match known {
                    Some(at) => this.shared[at].size = size.max(this.shared[at].size),
                    None => {
                        this.index.insert(name.clone(), this.shared.len());
                        this.shared.push(Shared { name, size, there: 0, place: 0 });
                    }
                }
            }
        }
        for Shared { name, size, place, .. } in &mut this.shared {
            let Some(left) = end.checked_sub(size.next_multiple_of(ALIGN)) else {
                let message = format!("file `{name}` does not fit on the drive");
                let error = ConfigError::whole_file(file.path(), message);
                return Err(error.allowed("less, or a larger drive: --drive NAME"));
            };
            end = left / ALIGN * ALIGN;
            *place = end;
        }
        Ok((this, errors))
    }
    /// `filesize`, of each file.
    fn made(&self, job: &Job) -> Result<Option<u64>, ConfigError> {
        let (size, files) = (job.settings.file_size, job.settings.nr_files);
        let all = size.map(|size| Size::Bytes(size.saturating_mul(files)));
        let all = all.map(|all| self.resolve(job, "filesize", all, None)).transpose()?;
        Ok(all.map(|all| all / files))
    }
    /// Where the file of a clone ends, of which other jobs have made this much.
    fn file_end(&self, job: &Job, clone: u32, there: Option<u64>) -> Result<u64, ConfigError> {
        match (self.made(job)?, job.settings.size, there) {
            (Some(size), ..) => Ok(size * job.settings.nr_files),
            (None, None | Some(Size::Bytes(0) | Size::Percent(_)), Some(there)) => Ok(there),
            (None, ..) => {
                let size = self.size(job, "size", None)?;
                let there = there.unwrap_or(0) / job.settings.nr_files;
                Ok(self.offset(job, clone, there)? + size)
            }
        }
    }

    /// The range of a clone. Clones are asked for in their order.
    pub(super) fn region(&mut self, job: &Job, clone: u32) -> Result<Region, ConfigError> {
        let settings = &job.settings;
        let name = name_of(job, clone);
        let index = name.map(|name| self.index.get(&name).copied());
        let shared = index.map(|index| index.map(|at| &self.shared[at]));
        let there = shared.flatten().map(|shared| shared.there).filter(|bytes| *bytes > 0);
        // Where the file is, and where it ends if that does not follow from `size`.
        let made = self.made(job)?;
        let (base, end) = match shared {
            None => (None, made),
            Some(Some(shared)) => (Some(shared.place), Some(shared.size)),
            Some(None) => (Some(0), Some(made.unwrap_or(self.capacity).min(self.capacity))),
        };
        let is_device = shared.is_some_and(|shared| shared.is_none());
        let files = settings.nr_files;
        let each = there.map(|there| there / files);
        // Percentages are of the file as the job would make it or finds it; a later one may make it longer.
        let whole = if is_device { end } else { made.or(each) };
        let given = match settings.size {
            _ if settings.fill_device && is_device => None,
            None | Some(Size::Bytes(0)) if whole.is_some() => None,
            // As with fio, a drive may be smaller than asked for.
            Some(Size::Bytes(size)) if is_device => Some(size.min(self.capacity)),
            _ => Some(self.size(job, "size", whole)?),
        };
        let offset = self.offset(job, clone, end.filter(|_| is_device).or(each).unwrap_or(0))?;
        let left = |end: u64| end.checked_sub(offset).filter(|left| *left > 0);
        let behind = || self.file.error(job, "offset", "the offset lies behind the end");
        let is_part = matches!(settings.size, Some(Size::Percent(_)));
        let is_all = settings.size == Some(Size::Percent(100));
        // `filesize` says what a file has, and `size` only how much of it a pass uses.
        let reach = match (made, given) {
            // A percentage is one of each file, in whole blocks.
            (_, Some(size)) if is_part => {
                let block = if is_all { 1 } else { least_block(settings) };
                let room = left(whole.unwrap_or(0)).ok_or_else(behind)?;
                size.min(room) / block * block * files
            }
            (Some(end), _) => left(end).ok_or_else(behind)? * files,
            (None, Some(size)) => size,
            (None, None) => left(whole.unwrap_or(0)).ok_or_else(behind)? * files,
        };
        let room = match end {
            Some(end) if files == 1 => left(end).ok_or_else(behind)?,
            _ => reach,
        };
        let size = given.filter(|_| !is_part).map_or(reach, |size| size.min(reach));
        let place = base.map(|base| Sectors((base + offset) / 512));
        if let Some(at) = index.flatten() {
            let end = self.file_end(job, clone, there)?;
            self.shared[at].there = end.max(self.shared[at].there);
        }
        Ok(Region { place, offset, size, reach: reach.min(room), room, is_there: there.is_some() })
    }

    /// `size`; a percentage is one of `whole`, if there is a whole.
    fn size(&self, job: &Job, option: &str, whole: Option<u64>) -> Result<u64, ConfigError> {
        if job.settings.fill_device {
            let message = "only a whole drive can be filled";
            return Err(self.file.error(job, "fill_device", message).allowed(DRIVE_ALLOWED));
        }
        match (job.settings.size, whole) {
            (Some(Size::Bytes(0)) | None, _) => {
                let error =
                    self.file.error(job, option, format!("job `{}` has no `size`", job.name));
                Err(error.allowed(SIZE_ALLOWED))
            }
            (Some(size), whole) => self.resolve(job, option, size, whole),
        }
    }
    /// Percentages are of the bytes of the drive, or of a file that another job has made. fio takes those of files that it makes as 0.
    fn offset(&self, job: &Job, clone: u32, drive: u64) -> Result<u64, ConfigError> {
        let settings = &job.settings;
        let resolve = |option, size| self.resolve(job, option, size, Some(drive));
        let first = resolve("offset", settings.offset)?;
        let more = resolve("offset_increment", settings.offset_increment)?;
        let offset = more.checked_mul(u64::from(clone)).and_then(|more| more.checked_add(first));
        let is_part = |size| matches!(size, Size::Percent(_));
        let block = match is_part(settings.offset) || is_part(settings.offset_increment) {
            true => least_block(settings),
            false => 1,
        };
        let offset = offset.and_then(|offset| offset.checked_next_multiple_of(block));
        let too_far = || self.file.error(job, "offset_increment", "the offset is out of range");
        offset.ok_or_else(too_far)
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
                let most = self.capacity;
                let allowed =
                    format!("{most}, also as --set {option}=1g, or a larger drive: --drive NAME");
                Err(self.file.error(job, option, message).allowed(allowed))
            }
            (Size::Percent(percent), Some(whole)) => {
                Ok((u128::from(whole) * u128::from(percent) / 100) as u64)
            }
            (Size::Percent(_), None) => {
                let error =
                    self.file.error(job, option, "a percentage of a file that is not there");
                Err(error.allowed(
                    "bytes, a `filesize`, a `filename` of a job above, or one below /dev, which is the whole drive",
                ))
            }
        }
    }
}
