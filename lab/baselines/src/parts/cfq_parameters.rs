//! Parameters that all versions of CFQ have, with the kernel's names and defaults.

use iofair_core::params::{Parameter, Values};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::SeekRules;

/// Age at which a synchronous request goes first.
pub const FIFO_EXPIRE_SYNC: Parameter = Parameter::time(
    "fifo_expire_sync",
    Nanos::from_millis(125),
    "a synchronous request this old goes first in its queue",
);
/// Age at which a buffered write goes first.
pub const FIFO_EXPIRE_ASYNC: Parameter = Parameter::time(
    "fifo_expire_async",
    Nanos::from_millis(250),
    "a buffered write this old goes first in its queue",
);
/// Longest backward movement of the head.
pub const BACK_SEEK_MAX: Parameter = Parameter::bytes(
    "back_seek_max",
    16 << 20,
    "longest backward movement of the head that is not treated as a wrap",
);
/// Factor for the length of a backward movement.
pub const BACK_SEEK_PENALTY: Parameter = Parameter::count(
    "back_seek_penalty",
    2,
    (1, 1000),
    "a backward movement counts this many times its length",
);
/// Slice of synchronous requests.
pub const SLICE_SYNC: Parameter = Parameter::time(
    "slice_sync",
    Nanos::from_millis(100),
    "slice of a queue of level 4; a fifth more or less for each other level",
);
/// Slice of buffered writes.
pub const SLICE_ASYNC: Parameter = Parameter::time(
    "slice_async",
    Nanos::from_millis(40),
    "slice of buffered writes of level 4; a fifth more or less for each other level",
);
/// Buffered writes in a slice.
pub const SLICE_ASYNC_RQ: Parameter = Parameter::count(
    "slice_async_rq",
    2,
    (1, 1 << 20),
    "buffered writes per slice while others wait: twice this, and again twice for each level more urgent than 7",
);

/// The order of requests by [`BACK_SEEK_MAX`] and [`BACK_SEEK_PENALTY`].
pub fn seek_rules(values: &Values) -> SeekRules {
    SeekRules {
        back_max: Sectors::from_bytes_ceil(values.count("back_seek_max")),
        back_penalty: values.count("back_seek_penalty"),
        urgent_first: true,
    }
}
