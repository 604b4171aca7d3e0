//! The comparison of simulator, live server and kernel: what was measured ([`Evidence`]), and the page about it.
//!
//! `iofair-lab run --on linux --evidence FILE` measures the kernel and `--on serve --evidence FILE` the live server, experiment by
//! experiment ([`store`]); `iofair-lab run --truth FILE --markdown PAGE` runs the simulator with the measured path and writes the
//! page. So the page can be written again without measuring.

mod causes;
mod evidence;
mod page;
mod path;
mod picture;
mod score;
mod store;

pub use self::causes::Causes;
pub use self::evidence::{Described, Evidence, Part};
pub use self::page::page;
pub use self::path::{DEEP, PathTimes, Shared, iops, is_drive_the_limit, probes};
pub use self::picture::pictures;
pub use self::store::{Store, World};
