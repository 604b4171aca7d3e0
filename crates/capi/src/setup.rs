//! The properties of the drive and the limits of an engine.

use iofair_core::controller::{self, FlushRule};
use iofair_core::policy::DriveFacts;
use iofair_core::unit::{SECTOR_BYTES, Sectors};

use crate::error::Failure;

/// iofair_setup.flags: the drive is a hard disk.
pub const IOFAIR_SETUP_ROTATIONAL: u32 = 1;
/// iofair_setup.flags: flushes bypass ceilings and the scheduler.
pub const IOFAIR_SETUP_FREE_FLUSHES: u32 = 2;
/// iofair_setup.flags: each client has its own file, so flushes of different clients do not share a command.
pub const IOFAIR_SETUP_SEPARATE_FLUSHES: u32 = 4;

/// Maximum of iofair_setup.depth and iofair_setup.tags.
pub const IOFAIR_DEPTH_MAX: u32 = 65536;
/// Maximum of iofair_setup.queue_limit and iofair_setup.guaranteed.
pub const IOFAIR_QUEUE_MAX: u32 = 1048576;

const QUEUE_LIMIT_DEFAULT: u32 = 1024;
const GUARANTEED_DEFAULT: u32 = 8;

/// Properties of the drive, and limits of the engine. Initialise it with zeroes, then set the fields that you need.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Setup {
    /// Size of the drive or file in bytes, a multiple of 512. Required.
    pub capacity_bytes: u64,
    /// Maximum length of a read or write in bytes, merged requests included: a multiple of 512 from 4096 to 1 GiB; 0 means
    /// 1 MiB.
    pub max_request_bytes: u32,
    /// Maximum number of commands in flight, 1 to IOFAIR_DEPTH_MAX. Required. The drive's own queue depth is a good value.
    pub depth: u32,
    /// IOFAIR_SETUP_... or 0.
    pub flags: u32,
    /// Maximum number of requests in the scheduler and the drive together, up to IOFAIR_DEPTH_MAX; 0 means the default of the
    /// scheduler.
    pub tags: u32,
    /// Request slots that the groups share by weight, up to IOFAIR_QUEUE_MAX; 0 means 1024.
    pub queue_limit: u32,
    /// Request slots that each group has in addition, up to IOFAIR_QUEUE_MAX; 0 means 8.
    pub guaranteed: u32,
    /// Maximum number of pending requests of each client; 0 means no maximum.
    pub client_limit: u32,
    /// Must be zero.
    pub reserved: [u32; 7],
}

const FLAGS: u32 =
    IOFAIR_SETUP_ROTATIONAL | IOFAIR_SETUP_FREE_FLUSHES | IOFAIR_SETUP_SEPARATE_FLUSHES;
const MAX_REQUEST_DEFAULT: u32 = 1 << 20;
const MAX_REQUEST_ALLOWED: std::ops::RangeInclusive<u32> = 4096..=1 << 30;

fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

impl Setup {
    /// As the engine knows it, but for the tags of the stack: 0 if they are not set.
    pub(crate) fn check(&self) -> Result<controller::Setup, Failure> {
        let Self { capacity_bytes, depth, flags, tags, reserved, .. } = *self;
        let max_request = or(self.max_request_bytes, MAX_REQUEST_DEFAULT);
        let queue_limit = or(self.queue_limit, QUEUE_LIMIT_DEFAULT);
        let guaranteed = or(self.guaranteed, GUARANTEED_DEFAULT);
        let bad = |what: &str| Err(Failure::argument(what));
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(SECTOR_BYTES) {
            return bad("capacity_bytes is not a positive multiple of 512");
        }
        let whole = u64::from(max_request).is_multiple_of(SECTOR_BYTES);
        if !whole || !MAX_REQUEST_ALLOWED.contains(&max_request) {
            return bad("max_request_bytes is not a multiple of 512 from 4096 to 1 GiB");
        }
        if depth == 0 || depth > IOFAIR_DEPTH_MAX || tags > IOFAIR_DEPTH_MAX {
            return bad("depth is not from 1 to 65536, or tags are more");
        }
        if queue_limit > IOFAIR_QUEUE_MAX || guaranteed > IOFAIR_QUEUE_MAX {
            return bad("queue_limit or guaranteed is more than 1048576");
        }
        if flags & !FLAGS != 0 || reserved != [0; 7] {
            return bad("an unknown flag, or a reserved field that is not zero");
        }
        let free = flags & IOFAIR_SETUP_FREE_FLUSHES != 0;
        Ok(controller::Setup {
            facts: DriveFacts {
                rotational: flags & IOFAIR_SETUP_ROTATIONAL != 0,
                depth,
                max_request: Sectors(u64::from(max_request) / SECTOR_BYTES),
                capacity: Sectors(capacity_bytes / SECTOR_BYTES),
            },
            tags,
            queue_limit: queue_limit as usize,
            guaranteed: guaranteed as usize,
            client_limit: or(self.client_limit, u32::MAX),
            flushes: if free { FlushRule::Bypass } else { FlushRule::Scheduled },
            trace: 0,
        })
    }
    pub(crate) fn has_separate_flushes(&self) -> bool {
        self.flags & IOFAIR_SETUP_SEPARATE_FLUSHES != 0
    }
}
