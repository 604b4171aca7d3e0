//! `iofair-lab` from outside: its commands, its messages, and the pages that show them.
#![allow(clippy::unwrap_used)]

mod commands;
mod compare;
mod emulate;
mod enforced;
mod fio;
mod linux;
mod live;
mod pages;
mod proven;
mod received;
mod replay;
mod robust;
