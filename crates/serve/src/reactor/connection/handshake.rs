//! The TLS handshake, which another thread does.

use super::super::endpoint::ReactorContext;
use super::super::workers::Handshake;
use super::Connection;
use crate::front::tls::Channel;

impl Connection {
    /// Gives the channel to the thread that does handshakes.
    pub(super) fn shake_hands(&mut self, channel: Box<Channel>, cx: &mut ReactorContext<'_>) {
        self.is_shaking = cx.begin_handshake(self.volume, channel);
        // Without that thread there is no TLS.
        self.closing |= !self.is_shaking;
    }
    /// It came back.
    pub(super) fn shaken(&mut self, handshake: Handshake) {
        let Handshake { channel, stage, plain, sealed } = handshake;
        self.is_shaking = false;
        self.tls_steps = self.tls_steps.saturating_add(1);
        self.out.sealed().extend_from_slice(&sealed);
        self.input.append(&plain);
        if channel.is_established() {
            self.session.secured(channel.names());
        }
        self.channel = Some(channel);
        self.decrypted(&stage);
    }
}
