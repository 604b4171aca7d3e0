//! The victim: one 4 KiB request at a time at random places, and the time of each.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iofair_drive::random::Random;

use crate::attackers_guest::is_answered;
use crate::disk::Disk;
use crate::peer::Transport;
use crate::place::{Front, Place, Shared, VICTIM_BYTES};
use crate::rig::wire::Wire;

const BLOCK: usize = 4096;

/// What the victim does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads.
    Reader,
    /// Every fourth request a write, every 64th a flush.
    Writer,
}

/// What the victim asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommandType {
    Read,
    Write,
    Flush,
}

/// A connection of the victim.
pub(crate) enum Client {
    Nbd(Box<Wire>),
    Vhost(Box<Disk>),
    File(File),
}

// SAFETY: a disk is used by one thread at a time; its raw memory is its own.
unsafe impl Send for Client {}

impl Client {
    pub(crate) fn connect(place: &Place) -> Self {
        match place.front {
            Front::Unix | Front::Tls => {
                let peer = Transport::to(place).connect("victim").expect("the victim is let in");
                peer.raw().limit(Some(Duration::from_secs(30))).unwrap();
                Self::Nbd(Box::new(Wire::after_go(Box::new(peer))))
            }
            Front::Vhost => Self::Vhost(Box::new(Disk::connect(&place.path("disk-victim"), 1, 16))),
            Front::Fuse => {
                let path = place.path("mnt/victim");
                Self::File(OpenOptions::new().read(true).write(true).open(path).unwrap())
            }
        }
    }
    fn command_type(
        &mut self,
        command_type: CommandType,
        offset: u64,
        shared: &Shared,
    ) -> io::Result<()> {
        match self {
            Self::Nbd(wire) => {
                match command_type {
                    CommandType::Read => wire.send_read(offset, BLOCK as u32)?,
                    CommandType::Write => wire.send_write(0, offset, &[3; BLOCK])?,
                    CommandType::Flush => wire.send_flush()?,
                };
                match wire.receive()?.error {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error as i32)),
                }
            }
            Self::Vhost(disk) => {
                let bytes = disk.bytes(0, BLOCK);
                let queue = &mut disk.queues[0];
                match command_type {
                    CommandType::Read => queue.read(offset, bytes, 0),
                    CommandType::Write => queue.write(offset, bytes, 0),
                    CommandType::Flush => queue.flush(0),
                }?;
                disk.kick(0);
                while disk.queues[0].completions().count() == 0 {
                    if !is_answered(disk, || shared.over.load(Ordering::Relaxed)) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Ok(())
            }
            Self::File(file) => match command_type {
                CommandType::Read => file.read_exact_at(&mut [0; BLOCK], offset),
                CommandType::Write => file.write_all_at(&[3; BLOCK], offset),
                CommandType::Flush => file.sync_data(),
            },
        }
    }
    /// Works for this long, or until this many requests are answered, or the run is over.
    pub(crate) fn work(
        &mut self,
        kind: Kind,
        limit: Duration,
        requests: usize,
        shared: &Shared,
    ) -> Outcome {
        let mut random = Random::new(1, 0x7669_6374);
        let mut latencies = Vec::new();
        let (started, mut failed) = (Instant::now(), 0);
        while started.elapsed() < limit && latencies.len() < requests {
            let command_type = match latencies.len() {
                n if kind == Kind::Writer && n % 64 == 63 => CommandType::Flush,
                n if kind == Kind::Writer && n % 4 == 3 => CommandType::Write,
                _ => CommandType::Read,
            };
            let offset = random.below(VICTIM_BYTES / BLOCK as u64) * BLOCK as u64;
            let begun = Instant::now();
            let asked = self.command_type(command_type, offset, shared);
            // A request that was never answered took at least as long as it was waited for.
            latencies.push(begun.elapsed().as_nanos() as u64);
            if asked.is_err() {
                failed += 1;
                break;
            }
        }
        Outcome::new(latencies, started.elapsed(), failed)
    }
}

/// What the victim got.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) bytes_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) failed: usize,
}

impl Outcome {
    fn new(mut latencies: Vec<u64>, time: Duration, failed: usize) -> Self {
        latencies.sort_unstable();
        let at = |percent: usize| match latencies.len() {
            0 => 0.0,
            count => latencies[(count * percent / 100).min(count - 1)] as f64 / 1e3,
        };
        let good = latencies.len() - failed;
        Self {
            requests: good,
            bytes_per_s: (good * BLOCK) as f64 / time.as_secs_f64(),
            p50_us: at(50),
            p99_us: at(99),
            failed,
        }
    }
}
