//! The I/O scheduling engine: it decides the order in which the requests of many clients reach a drive.
//!
//! The engine is pure: `no_std`, no dependency, no float, no clock, no lock, no log, no random
//! number. The current time is an argument (`now`, [`time::Instant`], in nanoseconds), and the next deadline is a
//! result (`Option<Instant>`). Therefore the same code runs in the simulator and in the server.
//!
//! Where to start reading: [`controller`] (the path of a request), [`policy`] (the trait that every
//! policy implements), [`group`] (the tree of groups), [`contract`] (what each group was promised).
//!
//! A policy that serves in order of arrival, and an engine with it:
//!
//! ```
//! use iofair_core::contract::Contract;
//! use iofair_core::controller::{Controller, FlushRule, Setup, Submission};
//! use iofair_core::priority::Priority;
//! use iofair_core::parts::fifo::Fifo;
//! use iofair_core::policy::{Context, DriveFacts, Judgement, Policy, Role, Row, Table};
//! use iofair_core::request::{Flags, Operation};
//! use iofair_core::id::RequestId;
//! use iofair_core::time::Instant;
//! use iofair_core::unit::Sectors;
//!
//! struct InOrder(Fifo);
//! impl Policy for InOrder {
//!     fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
//!         self.0.push_back(cx.requests, id);
//!     }
//!     fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
//!         self.0.pop_front(cx.requests)
//!     }
//! }
//! static ROW: Row = Row {
//!     name: "in-order",
//!     short: "in-order",
//!     role: Role::SCHEDULER,
//!     enforces: |_, _| false,
//!     summary: "serves in order of arrival",
//!     file: "lib.rs",
//!     parameters: &[],
//!     overrides: &[],
//!     judgement: Judgement::NONE,
//!     build: |_| Box::new(InOrder(Fifo::new())),
//! };
//! static TABLE: Table = Table { policies: &[&ROW], stacks: &[] };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let facts = DriveFacts {
//!     rotational: false,
//!     depth: 32,
//!     max_request: Sectors::from_kib(1024),
//!     capacity: Sectors::from_kib(1 << 20),
//! };
//! let flushes = FlushRule::Scheduled;
//! let (queue_limit, guaranteed, client_limit) = (1024, 8, 256);
//! let setup = Setup { facts, tags: 64, queue_limit, guaranteed, client_limit, flushes, trace: 0 };
//! let mut engine = Controller::try_new(setup, TABLE.stack("none-in-order")?)?;
//! let mut now = Instant::ZERO; // in a server: the monotonic clock, in nanoseconds
//! let group = engine.add_group(now, "tenants/alice", Contract::default())?;
//! let client = engine.add_client(now, group, Priority::default())?;
//!
//! let (operation, flags) = (Operation::Read, Flags::NONE);
//! let (start, length) = (Sectors(0), Sectors::from_kib(4));
//! engine.submit(now, Submission { tag: 7, client, operation, flags, start, length })?;
//! let command = engine.dispatch(now).expect("the drive is idle");
//! // The drive reads `command.length` sectors from `command.start`.
//! now = Instant(100_000);
//! let mut done = Vec::new();
//! engine.complete(now, command.command, 0, &mut done)?;
//! assert_eq!((done[0].part.tag, done[0].status), (7, 0));
//! assert!(engine.complete(now, command.command, 0, &mut done).is_err(), "once is enough");
//! # Ok(())
//! # }
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod attainable;
pub mod bounds;
pub mod contract;
pub mod controller;
pub mod error;
pub mod group;
pub mod id;
pub mod key;
pub mod minimum;
pub mod params;
pub mod parts;
pub mod policy;
pub mod priority;
pub mod quota;
pub mod request;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod trace;
pub mod unit;
