//! Types that front ends, engine and back ends share: requests in flight, the memory of their payloads, and volumes
//! as clients see them. Imports none of the three.

pub mod buffer;
pub mod data;
pub mod entry;
pub mod export;
pub mod extent;
pub mod op;
pub mod place;
pub mod shared;
