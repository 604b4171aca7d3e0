//! The drive of `--at`: a directory of the demo's own in one of the user's, with a file a client, written once and read by
//! every run.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use iofair_serve::{FileSystem, takes_direct};

use super::client::splitmix;
use super::temporary::{Temporaries, Temporary};
use crate::failure::Usage;
use crate::output::say;

/// Written at once.
const CHUNK: usize = 1 << 20;
/// What must stay free beside the files, in per cent of them.
const SPARE_PERCENT: u64 = 10;

/// The name of the pool in the directory: the server has a note beside it.
const POOL: &str = "pool";

/// The directory, which is removed with this.
pub(crate) struct Site {
    directory: Temporary,
}

impl Site {
    /// Makes files of `size` bytes, one a client, if they may be written in `at`.
    pub(crate) fn new(
        at: &Path,
        clients: &[String],
        size: u64,
        temporaries: &Temporaries,
    ) -> Result<Self> {
        let name = at.display();
        let found = FileSystem::query(at).with_context(|| format!("cannot access {name}"))?;
        if !at.is_dir() {
            return Err(Usage(format!("{name} is no directory; name a directory on a disk")).into());
        }
        if found.in_memory {
            let what = "is in memory: there is no drive to share; name a directory on a disk";
            return Err(Usage(format!("{name} {what}")).into());
        }
        let bytes = size.saturating_mul(clients.len() as u64);
        let wanted = bytes.saturating_add(bytes / 100 * SPARE_PERCENT);
        if wanted > found.free {
            return Err(anyhow!(
                "{name} has {} free and the demo needs {}; --size and --clients make it smaller",
                gigabytes(found.free),
                gigabytes(wanted)
            ));
        }
        let directory = temporaries.make(at)?;
        say(format_args!(
            "  writing {} in {} ({} free), which is removed at the end",
            gigabytes(bytes),
            directory.path.display(),
            gigabytes(found.free)
        ));
        let pool = directory.path.join(POOL);
        fs::create_dir(&pool).with_context(|| format!("cannot make {}", pool.display()))?;
        for client in clients {
            // As the server calls the file of a volume.
            let path = pool.join(format!("{client}.img"));
            fill(&path, size).with_context(|| format!("cannot write {}", path.display()))?;
            if client == &clients[0] && !takes_direct(&path) {
                say(format_args!(
                    "  {name} does not support direct I/O: reads may come from the page cache, not from the drive"
                ));
            }
        }
        Ok(Self { directory })
    }
    /// Its name as a back end.
    pub(crate) fn back(&self) -> String {
        format!("directory:{}", self.directory.path.join(POOL).display())
    }
}

/// Writes what neither a drive nor a file system can compress, down to the drive.
fn fill(path: &Path, size: u64) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    let (mut chunk, mut random, mut left) = (vec![0; CHUNK], path.as_os_str().len() as u64, size);
    while left > 0 {
        chunk.chunks_exact_mut(8).for_each(|word| {
            word.copy_from_slice(&splitmix(&mut random).to_le_bytes());
        });
        let now = left.min(CHUNK as u64);
        file.write_all(&chunk[..usize::try_from(now).expect("no more than a chunk")])?;
        left -= now;
    }
    file.sync_all()
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}
