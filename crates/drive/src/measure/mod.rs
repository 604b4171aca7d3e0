//! Puts a load on a device and measures rates and latencies. The same loads run on a drive model in simulated time
//! ([`Simulated`]) and on real devices (the server's crate has those), so that their results can be compared.
//!
//! A [`Load`] consists of streams; each keeps a fixed number of requests in flight. [`run()`] needs no clock: the device
//! says what time it is. In an open load, commands arrive at a rate ([`Stream::interval`]), on models only.

mod device;
mod load;
mod place;
mod run;
mod simulated;

pub use self::device::{Completion, Device, Request};
pub use self::load::{Amount, Counted, Load, Outcome, Stream};
pub use self::place::Order;
pub use self::run::run;
pub use self::simulated::Simulated;
