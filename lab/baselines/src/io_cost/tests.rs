//! The published rules by hand, then whole worlds: a virtual clock, a drive of fixed latency, clients that
//! keep requests outstanding or send at a rate.

mod debts;
mod feedback;
mod first;
mod numbers;
mod sharing;
mod timers;
mod world;
