//! Attackers that use files of the mounted directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use iofair_drive::random::Random;

use crate::attack::Attack;
use crate::place::{HOSTILE_BYTES, Shared};

/// Threads of an attacker that wants a deep queue, as asynchronous I/O would.
const THREADS: usize = 8;

/// One attacker, until the run is over.
pub(crate) fn attack(attack: Attack, path: &str, number: usize, shared: &Shared) {
    let threads = if matches!(attack, Attack::Deep | Attack::Honest) { THREADS } else { 1 };
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new((number * THREADS + thread) as u64, 0x6669_6c65);
                crate::peer::be_nice();
                while !shared.over.load(Ordering::Relaxed) {
                    // When the server goes, so does the run.
                    if session(attack, Path::new(path), &mut random, shared).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
    });
}

fn session(attack: Attack, path: &Path, random: &mut Random, shared: &Shared) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = match attack {
        Attack::Huge => 32 << 20,
        Attack::Tiny => 511,
        Attack::Deep => 4096,
        _ => 64 << 10,
    };
    let mut bytes = vec![7; length];
    for number in 0u64.. {
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
        let unit = (length as u64).next_power_of_two();
        let offset = random.below(HOSTILE_BYTES / unit) * unit;
        match attack {
            Attack::Flush => file.sync_data()?,
            Attack::Zeroes => allocate(&file, libc::FALLOC_FL_ZERO_RANGE)?,
            Attack::Trims => allocate(&file, libc::FALLOC_FL_PUNCH_HOLE)?,
            Attack::Churn => drop(File::open(path)?),
            Attack::Status => {
                fs::metadata(path)?;
                fs::read_dir(path.parent().expect("files have a directory"))?.for_each(drop);
            }
            Attack::Honest if number % 100 == 99 => file.sync_data()?,
            Attack::Honest if number % 10 > 6 => file.write_all_at(&bytes, offset)?,
            Attack::Tiny if number % 2 == 1 => file.write_all_at(&bytes, offset + 1)?,
            Attack::Tiny => file.read_exact_at(&mut bytes, offset + 1)?,
            _ => file.read_exact_at(&mut bytes, offset)?,
        }
        shared.operations.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn allocate(file: &File, mode: i32) -> io::Result<()> {
    let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain system call on a descriptor of ours.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, HOSTILE_BYTES as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
