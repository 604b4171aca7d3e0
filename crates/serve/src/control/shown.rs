//! The server as it was after the last change, with the revision of its file.

use crate::server::{Server, View};

/// What was served after the last change.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) server: View,
    pub(super) revision: String,
}

impl Shown {
    pub(super) fn new(server: &Server, revision: String) -> Self {
        Self { server: server.view(), revision }
    }
}
