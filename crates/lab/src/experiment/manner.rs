//! Clients that are more than a job of fio's: copies, start-ups, processes that share a file.

use std::sync::Arc;

use iofair_config::{ConfigError, Source};

use super::file::{ClientFile, JobFile};
use crate::recording;
use crate::scenario::{ClientSpec, Manner, Pattern};

/// What `job` may be.
pub(super) const JOBS: &str = "read, write, randread, randwrite, copy, startup";

/// Where a job reads or writes.
pub(super) fn pattern(job: JobFile) -> Pattern {
    match job {
        JobFile::Read | JobFile::Copy => Pattern::SequentialRead,
        JobFile::Write => Pattern::SequentialWrite,
        JobFile::Randread | JobFile::Startup => Pattern::RandomRead,
        JobFile::Randwrite => Pattern::RandomWrite,
    }
}

/// Gives one of a client's processes its manner: number `index` of `count`.
pub(super) fn apply(
    source: &Source,
    keys: &ClientFile,
    (index, count): (u32, u32),
    spec: &mut ClientSpec,
) -> Result<(), ConfigError> {
    let at = keys.name.as_ref().expect("a client without a name was refused before").span();
    let refuse =
        |message: &str| source.error(at.clone(), format!("client `{}`: {message}", spec.name));
    let (job, buffered) = (keys.job, keys.buffered.unwrap_or(true));
    if (keys.program.is_some() || keys.pauses.is_some()) && job != Some(JobFile::Startup) {
        return Err(refuse("`program` and `pauses` are for `job = \"startup\"`"));
    }
    if keys.interleaved == Some(true) {
        let job_is_good = match job {
            Some(JobFile::Read) => true,
            Some(JobFile::Write) => !buffered,
            _ => false,
        };
        if !job_is_good {
            let error = refuse("`interleaved` needs `job` read, or write and `buffered = false`");
            return Err(error);
        }
        spec.manner = Manner::Interleaved { index, of: count };
    }
    match job {
        Some(JobFile::Copy) if !buffered => {
            return Err(refuse("a copy goes through the page cache"));
        }
        Some(JobFile::Copy) => spec.manner = Manner::Copy,
        Some(JobFile::Startup) => {
            let known = recording::names().collect::<Vec<_>>().join(", ");
            let Some(program) = &keys.program else {
                return Err(refuse("a start-up needs its `program`").allowed(known));
            };
            let Some(recording) = recording::load(program) else {
                let error = refuse(&format!("no program `{program}`"));
                return Err(error.allowed(known).near(program, recording::names()));
            };
            let recording = match keys.pauses.unwrap_or(false) {
                true => recording,
                false => recording.without_pauses(),
            };
            spec.file_size = recording.file_size();
            spec.manner = Manner::Startup(Arc::new(recording));
        }
        _ => {}
    }
    Ok(())
}
