//! Traces: formats, the recorder's own and public ones, as people have them.
#![allow(clippy::unwrap_used)]

mod hostile;
mod own;
mod public;
mod received;
