//! A volume of an NBD server.

use std::io;
use std::path::Path;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_drive::measure::{Completion, Device, Request};

use crate::client::{self, Client, CommandType, Crowd};
use crate::clock::Clock;

/// Requests in flight at most; the drive behind a volume is unknown.
const DEPTH: u32 = 64;
/// Longest request.
const BYTES_MAX: u64 = 1 << 20;
/// Blocks that are read to see whether a volume is empty, and their size.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u32 = 4096;

/// A volume that is measured through its socket.
#[derive(Debug)]
pub struct NbdDevice {
    crowd: Crowd,
    clock: Clock,
    capacity: u64,
    reads_zeros: bool,
}

impl NbdDevice {
    /// Connects to an export of the server behind a Unix socket.
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut probe = Client::connect(socket, export)?;
        let capacity = probe.size;
        let blocks = capacity / u64::from(SAMPLE_BYTES);
        let mut reads_zeros = true;
        for sample in 0..SAMPLES.min(blocks) {
            let offset = blocks * sample / SAMPLES * u64::from(SAMPLE_BYTES);
            probe.send_read(offset, SAMPLE_BYTES)?;
            reads_zeros &= probe.receive()?.1.iter().all(|byte| *byte == 0);
        }
        probe.disconnect()?;
        let clock = Clock::start();
        let crowd = Crowd::connect(socket, &[export.to_owned()], clock)?;
        Ok(Self { crowd, clock, capacity, reads_zeros })
    }
    /// Whether blocks all over the volume read as zeros: nothing may be stored there, and then reads do not reach the
    /// drive.
    pub fn reads_zeros(&self) -> bool {
        self.reads_zeros
    }
}

impl Device for NbdDevice {
    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: false,
            depth: DEPTH,
            max_request: Sectors(BYTES_MAX / 512),
            capacity: Sectors(self.capacity / 512),
        }
    }
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn submit(&mut self, request: Request) -> io::Result<()> {
        let Request { tag, operation, durable, offset, bytes } = request;
        let command_type = match operation {
            Operation::Read => CommandType::Read,
            Operation::Write if !durable => CommandType::Write,
            Operation::Flush => CommandType::Flush,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let length = u32::try_from(bytes).map_err(io::Error::other)?;
        self.crowd.push(client::Request {
            client: 0,
            tag: u64::from(tag),
            command_type,
            offset,
            length,
        });
        Ok(())
    }
    fn wait(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        let at = self.crowd.wait(until)?;
        for reply in self.crowd.take_replies() {
            if reply.error != 0 {
                return Err(io::Error::from_raw_os_error(reply.error.cast_signed()));
            }
            done.push(Completion { tag: reply.tag as u32, at });
        }
        Ok(())
    }
}
