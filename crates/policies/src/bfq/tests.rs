//! What BFQ promises, driven through the controller: exact slots by hand, shares by a small drive.

mod by_service;
mod early;
mod favour;
mod members;
mod part;
mod shares;
mod slots;
mod world;
