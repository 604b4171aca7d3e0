//! The data exchanged with the driver: commands, facts of a device, and requests.
//!
//! It is pure. Numbers have this machine's byte order, as in all memory shared with the kernel.

use iofair_core::request::Operation;
use iofair_core::unit::Count;

use crate::request::op::Hints;

/// Longest read or write that a device is told it may send.
pub(crate) const BYTES_MAX: u32 = 1 << 20;
/// Longest discard or range of zeroes, in sectors: 1 GiB.
pub(crate) const EMPTY_SECTORS_MAX: u32 = 1 << 21;
/// Requests that a queue may have at once; and the most that the driver knows.
pub(crate) const DEPTH: u16 = 128;
pub(crate) const DEPTH_MAX: u16 = 4096;
/// Most queues: one thread serves them all, so more would only cost memory.
pub(crate) const QUEUES_MAX: u16 = 16;
/// Tags that a device may have, so that queue and tag together fit 16 bits.
const TAGS_MAX: u32 = 1 << 16;
/// Blocks are 512 bytes, and pages are what every drive under us likes.
const SECTOR_SHIFT: u8 = 9;
const PAGE_SHIFT: u8 = 12;

/// Features of the driver.
pub(crate) mod feature {
    /// A device outlives its server.
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// Requests that the previous server had not completed are sent again.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Orders are numbered like ioctls.
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Payloads are copied by reading and writing the device's channel.
    pub(crate) const USER_COPY: u64 = 1 << 7;
    /// A device can change its size (Linux 6.16).
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
    /// What this server cannot do without (Linux 6.5).
    pub(crate) const NEEDED: u64 =
        USER_RECOVERY | USER_RECOVERY_REISSUE | CMD_IOCTL_ENCODE | USER_COPY;
}

const fn order(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}
const fn reads(number: u32) -> u32 {
    order(2, number, Order::BYTES)
}
const fn changes(number: u32) -> u32 {
    order(3, number, Order::BYTES)
}

/// Orders for the control device.
pub(crate) mod op {
    use super::{changes, reads};
    pub(crate) const GET_DEV_INFO: u32 = reads(0x02);
    pub(crate) const ADD_DEV: u32 = changes(0x04);
    pub(crate) const DEL_DEV: u32 = changes(0x05);
    pub(crate) const START_DEV: u32 = changes(0x06);
    pub(crate) const STOP_DEV: u32 = changes(0x07);
    pub(crate) const SET_PARAMS: u32 = changes(0x08);
    pub(crate) const START_USER_RECOVERY: u32 = changes(0x10);
    pub(crate) const END_USER_RECOVERY: u32 = changes(0x11);
    pub(crate) const GET_FEATURES: u32 = reads(0x13);
    pub(crate) const UPDATE_SIZE: u32 = changes(0x15);
}

/// Orders for a device's channel.
pub(crate) const FETCH: u32 = order(3, 0x20, Move::BYTES);
pub(crate) const COMMIT_AND_FETCH: u32 = order(3, 0x21, Move::BYTES);

/// A number of the kernel's at a place, if it is all there.
fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has this length")
}

/// An order for the control device: `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) device: u32,
    /// Where something is written or read, and its bytes.
    pub(crate) address: u64,
    pub(crate) bytes: u16,
    pub(crate) value: u64,
}

impl Order {
    const BYTES: usize = 32;
    /// As it stands in the entry of a ring, which has room for 80 bytes.
    pub(crate) fn encode(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        // No queue.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}

/// What a device is: `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) bytes_max: u32,
    pub(crate) device: u32,
    pub(crate) server: i32,
    pub(crate) flags: u64,
    /// Ours to use: whose device it is.
    pub(crate) mark: u64,
}

impl Info {
    pub(crate) const BYTES: usize = 64;
    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(read(bytes, 0)),
            depth: u16::from_ne_bytes(read(bytes, 2)),
            state: u16::from_ne_bytes(read(bytes, 4)),
            bytes_max: u32::from_ne_bytes(read(bytes, 8)),
            device: u32::from_ne_bytes(read(bytes, 12)),
            server: i32::from_ne_bytes(read(bytes, 16)),
            flags: u64::from_ne_bytes(read(bytes, 24)),
            mark: u64::from_ne_bytes(read(bytes, 32)),
        }
    }
    /// Whether it can be served. What is wrong if not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { queues, depth, .. } = *self;
        let tags = u32::from(queues) * u32::from(depth);
        if queues == 0 || depth == 0 || depth > DEPTH_MAX || tags > TAGS_MAX {
            return Err(format!("{} of {}", Count(queues, "queue"), Count(depth, "request")));
        }
        if self.flags & feature::NEEDED != feature::NEEDED {
            return Err(format!("features {:#x} without {:#x}", self.flags, feature::NEEDED));
        }
        Ok(())
    }
}

/// What a device must know of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Facts {
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
    /// Whether the drive is rotational.
    pub(crate) rotational: bool,
}

impl Facts {
    const PARAMETERS: usize = 60;
    /// `struct ublk_params`: the basic ones and those of discards.
    pub(crate) fn parameters(&self) -> [u8; Self::PARAMETERS] {
        const READ_ONLY: u32 = 1 << 0;
        const ROTATIONAL: u32 = 1 << 1;
        const VOLATILE_CACHE: u32 = 1 << 2;
        const FUA: u32 = 1 << 3;
        const BASIC: u32 = 1 << 0;
        const DISCARD: u32 = 1 << 1;
        let attributes = VOLATILE_CACHE
            | FUA
            | if self.read_only { READ_ONLY } else { 0 }
            | if self.rotational { ROTATIONAL } else { 0 };
        let types = if self.read_only { BASIC } else { BASIC | DISCARD };
        let mut bytes = [0; Self::PARAMETERS];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &(Self::PARAMETERS as u32).to_ne_bytes());
        put(4, &types.to_ne_bytes());
        put(8, &attributes.to_ne_bytes());
        // Logical and physical blocks, the best and the least good transfer.
        put(12, &[SECTOR_SHIFT, PAGE_SHIFT, PAGE_SHIFT, PAGE_SHIFT]);
        put(16, &(BYTES_MAX >> SECTOR_SHIFT).to_ne_bytes());
        put(24, &(self.bytes >> SECTOR_SHIFT).to_ne_bytes());
        if !self.read_only {
            put(44, &(1u32 << PAGE_SHIFT).to_ne_bytes()); // granularity
            put(48, &EMPTY_SECTORS_MAX.to_ne_bytes());
            put(52, &EMPTY_SECTORS_MAX.to_ne_bytes()); // of zeroes
            put(56, &1u16.to_ne_bytes()); // ranges of a discard
        }
        bytes
    }
}

/// What is said of one tag: `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    /// Bytes, or an error number below zero.
    pub(crate) result: i32,
}

impl Move {
    const BYTES: usize = 16;
    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes
    }
}

/// Where a request's payload is read and written in the channel.
pub(crate) fn payload_at(queue: u16, tag: u16) -> u64 {
    const FIRST: u64 = 0x8000_0000;
    const TAG_SHIFT: u32 = 25;
    const QUEUE_SHIFT: u32 = TAG_SHIFT + 16;
    FIRST + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT)
}

/// Where a queue's descriptors begin in the channel, and their bytes, in whole pages.
pub(crate) fn descriptors_at(queue: u16, depth: u16, page: usize) -> (u64, usize) {
    let whole = |depth: u16| (usize::from(depth) * Descriptor::BYTES).next_multiple_of(page);
    (u64::from(queue) * whole(DEPTH_MAX) as u64, whole(depth))
}

/// A request as the driver writes it: `struct ublksrv_io_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) operation: u32,
    pub(crate) sectors: u32,
    pub(crate) first: u64,
}

/// What a request comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Command {
    pub(crate) operation: Operation,
    pub(crate) hints: Hints,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Command {
    /// Payload, in bytes.
    pub(crate) fn carries(&self) -> u32 {
        match self.operation {
            Operation::Read | Operation::Write => self.length,
            _ => 0,
        }
    }
}

impl Descriptor {
    pub(crate) const BYTES: usize = 24;
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            operation: u32::from_ne_bytes(read(bytes, 0)),
            sectors: u32::from_ne_bytes(read(bytes, 4)),
            first: u64::from_ne_bytes(read(bytes, 8)),
        }
    }
    /// The request, or the error number with which it is completed.
    pub(crate) fn command(&self, facts: Facts) -> Result<Command, i32> {
        const READ: u32 = 0;
        const WRITE: u32 = 1;
        const FLUSH: u32 = 2;
        const DISCARD: u32 = 3;
        const WRITE_ZEROES: u32 = 5;
        const FUA: u32 = 1 << 13;
        const KEEP_SPACE: u32 = 1 << 15;
        let flags = self.operation & !0xff;
        let empty = EMPTY_SECTORS_MAX;
        let (operation, most) = match self.operation & 0xff {
            READ => (Operation::Read, BYTES_MAX >> SECTOR_SHIFT),
            WRITE => (Operation::Write, BYTES_MAX >> SECTOR_SHIFT),
            FLUSH => (Operation::Flush, 0),
            DISCARD => (Operation::Discard, empty),
            WRITE_ZEROES => (Operation::WriteZeroes, empty),
            _ => return Err(libc::EOPNOTSUPP),
        };
        if operation == Operation::Flush {
            return Ok(Command { operation, hints: Hints::default(), offset: 0, length: 0 });
        }
        if facts.read_only && operation != Operation::Read {
            return Err(libc::EROFS);
        }
        let end = self.first.checked_add(u64::from(self.sectors));
        let inside = end.is_some_and(|end| end <= facts.bytes >> SECTOR_SHIFT);
        if self.sectors == 0 || self.sectors > most || !inside {
            return Err(libc::EIO);
        }
        let fua = flags & FUA != 0 && operation != Operation::Read;
        let hole = operation == Operation::WriteZeroes && flags & KEEP_SPACE == 0;
        let hints = Hints { fua, hole, ..Hints::default() };
        let (offset, length) = (self.first << SECTOR_SHIFT, self.sectors << SECTOR_SHIFT);
        Ok(Command { operation, hints, offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { bytes: 1 << 30, read_only: false, rotational: false };

    fn ask(operation: u32, first: u64, sectors: u32) -> Result<Command, i32> {
        Descriptor { operation, sectors, first }.command(FACTS)
    }

    /// Goal: orders and places are those of the kernel's header. Method: numbers that a C compiler gave for it.
    #[test]
    fn orders_are_the_kernels() {
        assert_eq!(op::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(op::ADD_DEV, 0xc020_7504);
        assert_eq!(op::GET_FEATURES, 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(payload_at(0, 0), 0x8000_0000);
        assert_eq!(payload_at(3, 5), 0x8000_0000 + (3 << 41) + (5 << 25));
        assert_eq!(descriptors_at(0, 128, 4096), (0, 4096));
        assert_eq!(descriptors_at(2, 171, 4096), (2 * 98_304, 8192));
        let order = Order { device: 7, address: 0x1122, bytes: 64, value: 9 }.encode();
        assert_eq!(order[..8], [7, 0, 0, 0, 255, 255, 64, 0]);
        assert_eq!((order[8], order[9], order[16], order[24..] == [0; 56]), (0x22, 0x11, 9, true));
        let told = Move { queue: 1, tag: 2, result: -5 }.encode();
        assert_eq!(told[..8], [1, 0, 2, 0, 251, 255, 255, 255]);
        assert_eq!(told[8..], [0; 8], "no address: the driver refuses one");
    }

    /// Goal: what a device is comes back as it was told, and one that cannot be served is refused. Method: a round
    /// trip, and every number that is out of range.
    #[test]
    fn devices_are_checked() {
        let good = Info {
            queues: 2,
            depth: DEPTH,
            state: 1,
            bytes_max: BYTES_MAX,
            device: 3,
            server: 77,
            flags: feature::NEEDED | feature::UPDATE_SIZE,
            mark: u64::MAX - 1,
        };
        assert_eq!(Info::decode(&good.encode()), good);
        assert_eq!(good.check(), Ok(()));
        let bad = [
            Info { queues: 0, ..good },
            Info { depth: 0, ..good },
            Info { depth: DEPTH_MAX + 1, ..good },
            Info { queues: 17, depth: DEPTH_MAX, ..good },
            Info { queues: u16::MAX, depth: u16::MAX, ..good },
            Info { flags: feature::NEEDED & !feature::USER_COPY, ..good },
            Info { flags: 0, ..good },
        ];
        for info in bad {
            assert!(info.check().is_err(), "{info:?}");
        }
        assert_eq!(Info { queues: 16, depth: DEPTH_MAX, ..good }.check(), Ok(()));
        assert!(Info::decode(&[255; Info::BYTES]).check().is_err());
    }

    /// Goal: parameters lie where the kernel's header says. Method: offsets counted by hand.
    #[test]
    fn parameters_lie_where_the_header_says() {
        let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(read(bytes, at));
        let bytes = Facts { bytes: (1 << 40) + 512, rotational: true, ..FACTS }.parameters();
        assert_eq!((word(&bytes, 0), word(&bytes, 4)), (60, 3));
        assert_eq!(word(&bytes, 8), 0b1110, "turns, has a cache, knows FUA");
        assert_eq!(bytes[12..16], [9, 12, 12, 12]);
        assert_eq!((word(&bytes, 16), word(&bytes, 20)), (2048, 0));
        assert_eq!(u64::from_ne_bytes(read(&bytes, 24)), (1 << 31) + 1);
        assert_eq!(bytes[32..44], [0; 12]);
        assert_eq!(
            [word(&bytes, 44), word(&bytes, 48), word(&bytes, 52)],
            [4096, 1 << 21, 1 << 21]
        );
        assert_eq!(bytes[56..60], [1, 0, 0, 0]);
        let bytes = Facts { read_only: true, ..FACTS }.parameters();
        assert_eq!((word(&bytes, 4), word(&bytes, 8)), (1, 0b1101));
        assert_eq!(bytes[40..], [0; 20]);
    }

    /// Goal: every operation becomes what it means. Method: one each, with the flags that matter.
    #[test]
    fn requests_become_commands() {
        let none = Hints::default();
        let command =
            |operation, hints, offset, length| Ok(Command { operation, hints, offset, length });
        assert_eq!(ask(0, 8, 8), command(Operation::Read, none, 4096, 4096));
        assert_eq!(ask(1, 0, 2048), command(Operation::Write, none, 0, BYTES_MAX));
        let fua = Hints { fua: true, ..none };
        assert_eq!(ask(1 | 1 << 13, 1, 1), command(Operation::Write, fua, 512, 512));
        assert_eq!(ask(2 | 1 << 11, u64::MAX, 9), command(Operation::Flush, none, 0, 0));
        assert_eq!(ask(3, 0, 1 << 21), command(Operation::Discard, none, 0, 1 << 30));
        let hole = Hints { hole: true, ..none };
        assert_eq!(ask(5, 0, 8), command(Operation::WriteZeroes, hole, 0, 4096));
        assert_eq!(ask(5 | 1 << 15, 0, 8), command(Operation::WriteZeroes, none, 0, 4096));
        assert_eq!(ask(1, 0, 2).unwrap().carries(), 1024);
        assert_eq!((ask(2, 0, 0).unwrap().carries(), ask(3, 0, 8).unwrap().carries()), (0, 0));
    }

    /// Goal: whatever a descriptor says, what comes out lies within the volume and its bounds, or is an error.
    /// Method: the borders one by one, then every combination of extreme numbers.
    #[test]
    fn hostile_descriptors_are_refused() {
        let sectors = FACTS.bytes >> 9;
        assert_eq!(ask(0, sectors, 1), Err(libc::EIO));
        assert_eq!(ask(0, sectors - 1, 2), Err(libc::EIO));
        assert_eq!(ask(1, u64::MAX, 1), Err(libc::EIO));
        assert_eq!(ask(1, 0, 0), Err(libc::EIO));
        assert_eq!(ask(1, 0, 2049), Err(libc::EIO));
        assert_eq!(ask(5, 0, (1 << 21) + 1), Err(libc::EIO));
        assert_eq!(ask(3, 0, u32::MAX), Err(libc::EIO));
        for unknown in [4, 6, 13, 255] {
            assert_eq!(ask(unknown, 0, 8), Err(libc::EOPNOTSUPP));
        }
        let read_only = Facts { read_only: true, ..FACTS };
        for operation in [1, 3, 5] {
            let asked = Descriptor { operation, sectors: 8, first: 0 };
            assert_eq!(asked.command(read_only), Err(libc::EROFS));
        }
        let extreme = [0, 1, 8, (1 << 21) - 1, 1 << 21, 1 << 23, u32::MAX - 1, u32::MAX];
        for operation in (0..=255).flat_map(|kind| [kind, kind | 0xffff_ff00]) {
            for sectors in extreme {
                for first in [0, 1, (1 << 21) - 1, 1 << 21, u64::MAX >> 9, u64::MAX] {
                    let asked = Descriptor { operation, sectors, first };
                    let Ok(command) = asked.command(FACTS) else { continue };
                    assert!(command.offset + u64::from(command.length) <= FACTS.bytes, "{asked:?}");
                    assert!(command.carries() <= BYTES_MAX, "{asked:?}");
                }
            }
        }
        let empty = Facts { bytes: 0, ..FACTS };
        assert_eq!(
            Descriptor { operation: 0, sectors: 1, first: 0 }.command(empty),
            Err(libc::EIO)
        );
        let bytes = [255; Descriptor::BYTES];
        assert!(Descriptor::decode(&bytes).command(FACTS).is_err());
    }
}
