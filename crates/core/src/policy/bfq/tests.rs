//! What BFQ promises, driven through the controller: exact slots by hand, shares by a small drive.

mod shares;
mod world;
