//! The TLS handshake, which another thread does.

use std::sync::mpsc;

use super::{Connection, Handshake};
use crate::front::tls::Channel;
use crate::reactor::endpoint::ReactorContext;

impl Connection {
    /// Gives the channel to the thread that does handshakes.
    pub(super) fn shake_hands(&mut self, mut channel: Box<Channel>, cx: &mut ReactorContext<'_>) {
        let (done, shaking) = mpsc::channel();
        let step = move || {
            let (mut plain, mut sealed) = (Vec::new(), Vec::new());
            let stage = channel.open(|bytes| plain.extend_from_slice(bytes), &mut sealed);
            // The connection waits for it.
            let _ = done.send(Handshake { channel, stage, plain, sealed });
        };
        self.shaking = cx.begin_work(Box::new(step)).then_some(shaking);
        // Without that thread there is no TLS.
        self.closing |= self.shaking.is_none();
    }
    /// It came back.
    pub(super) fn shaken(&mut self) {
        let shaken = self.shaking.take().and_then(|shaking| shaking.recv().ok());
        let Handshake { channel, stage, plain, sealed } = shaken.expect("the step was done");
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
