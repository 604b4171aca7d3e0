//! What a connection has done by another thread: the TLS handshake and block status.

use super::super::endpoint::{Progress, ReactorContext};
use super::super::workers::{Handshake, Task};
use super::{Begun, Connection};
use crate::back::Extent;
use crate::front::nbd::session::Command;
use crate::front::nbd::wire::{self, errno, state};
use crate::front::tls::Channel;

/// Extents in one answer to a block status request; a client asks again from the end of the last one.
const EXTENTS_MAX: usize = 256;
/// What finding one of them in memory uses up of a visit's quantum.
const EXTENT_COST: usize = 1 << 10;

impl Connection {
    /// Gives the channel to the thread that does handshakes.
    pub(super) fn shake_hands(&mut self, channel: Box<Channel>, cx: &mut ReactorContext<'_>) {
        self.is_shaking = cx.begin_task(self.volume, Task::Handshake(channel)).is_ok();
        // Without that thread there is no TLS.
        self.closing |= !self.is_shaking;
    }
    /// It came back.
    pub(super) fn shaken(&mut self, handshake: Handshake) {
        let Handshake { channel, stage, plain, sealed } = handshake;
        self.is_shaking = false;
        self.out.sealed().extend_from_slice(&sealed);
        self.input.append(&plain);
        if channel.is_established() {
            self.session.secured(channel.names());
        }
        self.channel = Some(channel);
        self.decrypted(&stage);
    }
    pub(super) fn begin_block_status(
        &mut self,
        command: Command,
        one: bool,
        cx: &mut ReactorContext<'_>,
    ) -> Begun {
        if self.asked.is_some() {
            return Begun::Stalled(Progress::OwnLimit);
        }
        let volume = self.volume.expect("commands come after the export was chosen");
        let limit = if one { 1 } else { EXTENTS_MAX };
        let (offset, length) = (command.offset, u64::from(command.length));
        let Some(task) = cx.engine.extents_task(volume, offset, length, limit) else {
            cx.engine.asked_status(volume);
            let extents = cx.engine.extents(volume, offset, length, limit);
            if extents.is_empty() {
                cx.engine.status_failed(volume);
            }
            self.tell_extents(command, &extents);
            cx.quantum.spend(extents.len() * EXTENT_COST);
            return Begun::Yes;
        };
        if cx.begin_task(self.volume, Task::Extents(task)).is_err() {
            return Begun::Stalled(Progress::NoRoom);
        }
        cx.engine.asked_status(volume);
        self.asked = Some(command);
        Begun::Yes
    }
    pub(super) fn tell_extents(&mut self, command: Command, extents: &[Extent]) {
        let told = extents.iter().map(|extent| {
            let state = if extent.hole { state::HOLE | state::ZERO } else { 0 };
            (extent.length as u32, state)
        });
        let told: Vec<(u32, u32)> = told.collect();
        if told.is_empty() {
            return self.session.fail(command.ask, command.cookie, errno::EIO, self.out.text());
        }
        wire::block_status(self.out.text(), command.cookie, &told);
    }
}
