//! Real devices for [`iofair_drive::measure`]: files and block devices through io_uring and direct I/O, and volumes of
//! an NBD server.

mod file;
mod volume;

pub use file::{Access, FileDevice};
pub use volume::NbdDevice;
