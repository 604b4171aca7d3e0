//! `iofair` from outside: its commands, its messages, and the pages that show them.
#![allow(clippy::unwrap_used)]

mod calibrate;
mod check;
mod commands;
mod contracts;
mod control;
mod crash;
mod files;
mod guest;
mod host;
mod logging;
mod nbd;
mod packaging;
mod plan;
mod quickstart;
mod record;
mod serve;
mod suggested;
mod supervised;
mod volumes;
mod zeroing;
