//! Features and configuration space of the device (VIRTIO 1.2, 5.2.3-5.2.4).

/// Queues that a client may set up: one a processor of a large guest.
pub(crate) const QUEUES_MAX: usize = 64;
/// Longest queue; QEMU's own limit.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;
/// Buffers of one request: what fits a queue of 128 beside header and status.
const SEGMENTS_MAX: u32 = 126;
/// Sectors that one discard or write-zeroes may name: 1 GiB.
pub(crate) const EMPTY_SECTORS_MAX: u32 = 1 << 21;
/// Sectors of 512 bytes in a page, which every drive under us likes.
const PAGE_SECTORS: u32 = 8;
/// Bytes of the configuration space that may be asked for (the protocol's own limit).
const CONFIG_BYTES_MAX: usize = 256;

/// Feature bits.
pub(crate) mod feature {
    /// At most `seg_max` buffers a request.
    const SEG_MAX: u64 = 1 << 2;
    /// Writes are refused.
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    /// `blk_size` is there. It must not be zero: SeaBIOS refuses such a disk.
    const BLK_SIZE: u64 = 1 << 6;
    /// Flushes are understood; without it every write must be durable.
    pub(crate) const FLUSH: u64 = 1 << 9;
    /// Physical blocks and good sizes are told.
    const TOPOLOGY: u64 = 1 << 10;
    /// `num_queues` is there.
    const MQ: u64 = 1 << 12;
    /// Discards are understood.
    const DISCARD: u64 = 1 << 13;
    /// Zeroes can be made.
    const WRITE_ZEROES: u64 = 1 << 14;
    /// A descriptor may be a table of descriptors.
    const INDIRECT: u64 = 1 << 28;
    /// Kicks and calls are asked for by index.
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    /// vhost-user's own: there are protocol features, and queues begin disabled.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    /// VIRTIO 1.
    const VERSION_1: u64 = 1 << 32;

    const RING: u64 = INDIRECT | EVENT_IDX | PROTOCOL | VERSION_1;
    const DISK: u64 = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MQ;

    /// What a volume offers.
    pub(crate) fn offered(read_only: bool) -> u64 {
        RING | DISK | if read_only { READ_ONLY } else { DISCARD | WRITE_ZEROES }
    }
}

/// What a driver must know of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Facts {
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
}

/// A part of `struct virtio_blk_config`, zeroes after its end; `None` where there can be nothing.
pub(crate) fn space(facts: Facts, offset: u32, length: u32) -> Option<Vec<u8>> {
    let mut space = Vec::with_capacity(CONFIG_BYTES_MAX);
    space.extend((facts.bytes / 512).to_le_bytes());
    space.extend(0u32.to_le_bytes()); // size_max: any
    space.extend(SEGMENTS_MAX.to_le_bytes());
    space.extend([0; 4]); // geometry: none
    space.extend(512u32.to_le_bytes());
    space.extend([PAGE_SECTORS.ilog2() as u8, 0]); // physical block exponent, alignment offset
    space.extend((PAGE_SECTORS as u16).to_le_bytes()); // min_io_size
    space.extend(0u32.to_le_bytes()); // opt_io_size
    space.extend([1, 0]); // writeback, unused
    space.extend((QUEUES_MAX as u16).to_le_bytes());
    space.extend(EMPTY_SECTORS_MAX.to_le_bytes()); // max_discard_sectors
    space.extend(1u32.to_le_bytes()); // max_discard_seg
    space.extend(PAGE_SECTORS.to_le_bytes()); // discard_sector_alignment
    space.extend(EMPTY_SECTORS_MAX.to_le_bytes()); // max_write_zeroes_sectors
    space.extend(1u32.to_le_bytes()); // max_write_zeroes_seg
    space.extend([1, 0, 0, 0]); // write_zeroes_may_unmap, unused
    space.resize(CONFIG_BYTES_MAX, 0);
    let end = offset.checked_add(length)? as usize;
    space.get(offset as usize..end).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fields lie where VIRTIO 1.2 (5.2.4) says. Method: offsets counted by hand.
    #[test]
    fn fields_lie_where_the_specification_says() {
        let facts = Facts { bytes: 10 << 20, read_only: false };
        let word = |at: u32| {
            let bytes = space(facts, at, 4).unwrap();
            u32::from_le_bytes(bytes.try_into().unwrap())
        };
        assert_eq!((word(0), word(4)), (20_480, 0), "capacity");
        assert_eq!((word(12), word(20)), (SEGMENTS_MAX, 512), "seg_max, blk_size");
        assert_eq!(space(facts, 24, 4).unwrap(), [3, 0, 8, 0], "topology");
        assert_eq!(space(facts, 32, 4).unwrap(), [1, 0, 64, 0], "writeback, num_queues");
        assert_eq!([word(36), word(40), word(44)], [EMPTY_SECTORS_MAX, 1, 8], "discard");
        assert_eq!([word(48), word(52), word(56)], [EMPTY_SECTORS_MAX, 1, 1], "write zeroes");
        assert_eq!(space(facts, 60, 196), Some(vec![0; 196]));
        assert_eq!(space(facts, 60, 197), None);
        assert_eq!(space(facts, u32::MAX, 2), None);
    }
}
