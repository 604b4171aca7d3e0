//! The position of blocks on the platters, and the time that the arm needs to reach them.
//!
//! All zones have the same number of cylinders; outer zones have more blocks per track than inner ones. The first
//! block of each track is skewed against that of the previous one, so that continuing on the next track costs a head
//! switch but no revolution. All times are integer nanoseconds; angles are times within one revolution.

use iofair_core::time::{Instant, Nanos};

use super::parameters::{BLOCK_BYTES, Mechanics};

/// Sectors in a block.
pub(super) const BLOCK_SECTORS: u64 = 8;
const ZONES: u64 = 16;

#[derive(Clone, Debug)]
struct Zone {
    first_block: u64,
    first_track: u64,
    blocks_per_track: u64,
    /// Skew from a track to the next, as a time.
    skew: u64,
}

/// A position under the heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) cylinder: u64,
    pub(super) track: u64,
    /// When in a revolution the start of the block passes the head.
    angle: u64,
    pub(super) blocks_per_track: u64,
    /// Index in its track.
    index: u64,
}

/// The geometry that follows from the mechanics.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    mechanics: Mechanics,
    zones: Vec<Zone>,
    blocks: u64,
    cylinders: u64,
    third_root: u64,
}

/// Fixed-point scale of square roots.
const ROOT_SCALE: u64 = 1 << 10;

fn root(n: u64) -> u64 {
    (n * ROOT_SCALE * ROOT_SCALE).isqrt()
}

impl Geometry {
    pub(super) fn new(mechanics: Mechanics) -> Self {
        let m = &mechanics;
        let per_track = |zone: u64| {
            let rate = m.outer - (m.outer - m.inner) * zone / (ZONES - 1);
            (Nanos(m.revolution.0).units_floor(rate) / BLOCK_BYTES).max(1)
        };
        let sum: u64 = (0..ZONES).map(per_track).sum();
        let zone_cylinders = (m.capacity / BLOCK_BYTES / m.heads / sum).max(1);
        let (mut first_block, mut first_track) = (0, 0);
        let mut zones = Vec::new();
        for zone in 0..ZONES {
            let blocks_per_track = per_track(zone);
            let switch = m.head_switch.0 * blocks_per_track;
            let skew = switch.div_ceil(m.revolution.0) * m.revolution.0 / blocks_per_track;
            zones.push(Zone { first_block, first_track, blocks_per_track, skew });
            first_block += zone_cylinders * m.heads * blocks_per_track;
            first_track += zone_cylinders * m.heads;
        }
        let cylinders = zone_cylinders * ZONES;
        let third_root = root(cylinders / 3);
        Self { mechanics, zones, blocks: first_block, cylinders, third_root }
    }
    /// Blocks on the drive.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
    pub(super) fn place(&self, block: u64) -> Place {
        let block = block.min(self.blocks - 1);
        let zone = self.zones.partition_point(|zone| zone.first_block <= block) - 1;
        let zone = &self.zones[zone];
        let inside = block - zone.first_block;
        let track = zone.first_track + inside / zone.blocks_per_track;
        let index = inside % zone.blocks_per_track;
        let revolution = self.mechanics.revolution.0;
        let angle = (index * revolution / zone.blocks_per_track + track * zone.skew) % revolution;
        let cylinder = track / self.mechanics.heads;
        Place { cylinder, track, angle, blocks_per_track: zone.blocks_per_track, index }
    }
    /// Time to move the arm (or to switch heads) from one place to another.
    pub(super) fn seek(&self, from: Place, to: Place) -> Nanos {
        let m = &self.mechanics;
        let distance = from.cylinder.abs_diff(to.cylinder);
        if distance == 0 {
            let same = from.track == to.track;
            return if same { Nanos::ZERO } else { m.head_switch };
        }
        let third = self.cylinders / 3;
        if distance <= third {
            let rise = (m.seek_average - m.seek_track).0;
            let part = rise * (root(distance) - ROOT_SCALE) / (self.third_root - ROOT_SCALE).max(1);
            return m.seek_track + Nanos(part);
        }
        let rise = (m.seek_full - m.seek_average).0;
        let part = rise * (distance - third) / (self.cylinders - third);
        m.seek_average + Nanos(part)
    }
    /// Time from `at` until the start of `to` is under the head, if the arm starts at `from`.
    pub(super) fn position(&self, at: Instant, from: Place, to: Place, write: bool) -> Nanos {
        let mut travel = self.seek(from, to);
        if write && from.cylinder != to.cylinder {
            travel += self.mechanics.write_settle;
        }
        let revolution = self.mechanics.revolution.0;
        let now = (at + travel).0 % revolution;
        travel + Nanos((to.angle + revolution - now) % revolution)
    }
    /// Time to transfer `blocks` blocks starting at `from`, including track crossings.
    pub(super) fn transfer(&self, from: Place, blocks: u64) -> Nanos {
        let m = &self.mechanics;
        let turning = blocks * m.revolution.0 / from.blocks_per_track;
        let crossings = (from.index + blocks.max(1) - 1) / from.blocks_per_track;
        Nanos(turning) + m.head_switch * crossings
    }
    /// Mean time per block of a long transfer near `place`, including track crossings.
    pub(super) fn streaming(&self, place: Place) -> Nanos {
        let turn = self.mechanics.revolution.0 + self.mechanics.head_switch.0;
        Nanos(turn / place.blocks_per_track)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(Mechanics {
            capacity: 160_000_000_000,
            heads: 4,
            revolution: Nanos(8_333_333),
            outer: 80_000_000,
            inner: 40_000_000,
            seek_track: Nanos::from_micros(2_500),
            seek_average: Nanos::from_micros(10_500),
            seek_full: Nanos::from_micros(18_000),
            head_switch: Nanos::from_micros(800),
            write_settle: Nanos::from_micros(500),
        })
    }

    /// Goal: the seek curve goes through its three points and never falls. Method: ask them.
    #[test]
    fn the_seek_curve_goes_through_its_points() {
        let g = geometry();
        let at = |cylinder| Place {
            cylinder,
            track: cylinder * 4,
            angle: 0,
            blocks_per_track: 1,
            index: 0,
        };
        let seek = |distance| g.seek(at(0), at(distance)).as_micros();
        assert_eq!((seek(0), seek(1)), (0, 2_500));
        assert!((10_490..=10_510).contains(&seek(g.cylinders / 3)), "{}", seek(g.cylinders / 3));
        assert_eq!(seek(g.cylinders), 18_000);
        let curve: Vec<_> = (0..=1_000).map(|i| seek(g.cylinders * i / 1_000)).collect();
        assert!(curve.is_sorted());
    }

    /// Goal: a long transfer runs at the zone's media rate less head switches, and skew hides the
    /// rotation at a track crossing. Method: read a track at a time and compare with one long read.
    #[test]
    fn skew_hides_track_crossings() {
        let g = geometry();
        let first = g.place(0);
        let per_track = first.blocks_per_track;
        let long = g.transfer(first, per_track * 4).0;
        let mut at = Instant(0) + g.position(Instant(0), first, first, false);
        let start = at;
        for track in 0..4 {
            let here = g.place(track * per_track);
            if track > 0 {
                at += g.position(at, g.place(track * per_track - 1), here, false);
            }
            at += g.transfer(here, per_track);
        }
        let steps = at.since(start).0;
        assert!(steps.abs_diff(long) < 300_000, "{steps} against {long}");
        let mb_s = per_track * 4 * BLOCK_BYTES * 1_000 / long;
        assert!((72..=80).contains(&mb_s), "{mb_s}");
    }
}
