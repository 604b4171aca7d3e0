//! The places of a stream's requests.

use crate::random::Random;

/// Where the requests of a stream go, within its area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Anywhere, at multiples of the request's length.
    Random,
    /// One after the other.
    Sequential,
    /// One before the other, from the end.
    Backward,
    /// Always the first place.
    Same,
    /// The two ends in turn, anywhere within a sixteenth of the area from them.
    Ends,
    /// In turn from this many sequential runs at equal distances.
    Interleaved(u32),
}

/// The positions of a stream.
#[derive(Debug)]
pub(super) struct Places {
    order: Order,
    area: (u64, u64),
    block: u64,
    count: u64,
    random: Random,
}

impl Places {
    /// Of an area that holds at least one request of `block` bytes.
    pub(super) fn new(order: Order, area: (u64, u64), block: u64, random: Random) -> Self {
        assert!(block > 0 && area.1 >= block, "an area of {} bytes for {block}", area.1);
        Self { order, area, block, count: 0, random }
    }
    /// The first byte of the next request.
    pub(super) fn next(&mut self) -> u64 {
        let (slots, count) = (self.area.1 / self.block, self.count);
        self.count += 1;
        let slot = match self.order {
            Order::Random => self.random.below(slots),
            Order::Sequential => count % slots,
            Order::Backward => slots - 1 - count % slots,
            Order::Same => 0,
            Order::Ends => {
                let near = self.random.below((slots / 16).max(1));
                if count.is_multiple_of(2) { near } else { slots - 1 - near }
            }
            Order::Interleaved(runs) => {
                let runs = u64::from(runs.max(1)).min(slots);
                let length = slots / runs;
                (count % runs) * length + (count / runs) % length
            }
        };
        self.area.0 + slot * self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each order goes where it says and never leaves its area. Method: the first places of each.
    #[test]
    fn places_are_in_order() {
        let places = |order| {
            let mut places = Places::new(order, (1000, 640), 10, Random::new(1, 1));
            (0..6).map(|_| places.next()).collect::<Vec<_>>()
        };
        assert_eq!(places(Order::Sequential), [1000, 1010, 1020, 1030, 1040, 1050]);
        assert_eq!(places(Order::Backward), [1630, 1620, 1610, 1600, 1590, 1580]);
        assert_eq!(places(Order::Same), [1000; 6]);
        assert_eq!(places(Order::Interleaved(2)), [1000, 1320, 1010, 1330, 1020, 1340]);
        for (index, at) in places(Order::Ends).into_iter().enumerate() {
            assert!(if index % 2 == 0 { at < 1040 } else { at >= 1600 }, "{at}");
        }
        let mut random = Places::new(Order::Random, (1000, 645), 10, Random::new(1, 1));
        assert!((0..1000).map(|_| random.next()).all(|at| (1000..=1630).contains(&at)));
    }
}
