//! What front ends, engine and back ends have in common: requests on their way, the memory of their payloads, and
//! volumes as clients see them. Imports none of the three.

pub mod buffer;
pub mod entry;
pub mod export;
pub mod extent;
pub mod op;
pub mod place;
pub mod shared;
