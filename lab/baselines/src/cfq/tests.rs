//! CFQ's rules one by one, on a drive that serves one request in a set time.

mod cooperation;
mod preemption;
mod slices;
mod waiting;
mod writes;
