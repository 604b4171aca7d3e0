//! Calibrations: what was measured of a drive, and the profile that is fitted to it. `iofair_drive::fit` plans the rows and
//! fits the model; here a model is measured in simulated time, and [`results::read`] reads what was measured on other machines.

mod disturbed;
pub mod fio;
mod page;
mod published;
mod result;
pub mod results;

pub use disturbed::{Disturbed, STOLEN_MAX, least_disturbed};
pub use page::page;
pub use result::{
    Calibration, FILL, FILL_DISK, GUESSED_WRITES, Report, simulated, simulated_scope,
};
