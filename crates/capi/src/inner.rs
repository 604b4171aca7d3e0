//! What is behind an engine of C.

use std::collections::VecDeque;

use iofair_core::controller;
use iofair_core::id::{ClientId, GroupId};

use crate::error::{Failure, IOFAIR_ERROR_NO_CLIENT, IOFAIR_ERROR_NO_GROUP};
use crate::request::Completion;

/// What an engine of C consists of.
pub(crate) struct Inner {
    pub(crate) controller: controller::Controller,
    /// For the engine to append to.
    pub(crate) done: Vec<controller::Completion>,
    /// Completions that were not read.
    pub(crate) unread: VecDeque<Completion>,
    /// Whether the tags are the stack's own.
    pub(crate) tags_of_stack: bool,
}

impl Inner {
    /// The id of a group that exists.
    pub(crate) fn live_group(&self, number: u64) -> Result<GroupId, Failure> {
        let id = number.checked_sub(1).map(GroupId::from_bits);
        let missing =
            || Failure::new(IOFAIR_ERROR_NO_GROUP, format_args!("there is no group {number:#x}"));
        id.filter(|id| self.controller.groups().try_group(*id).is_some()).ok_or_else(missing)
    }
    /// The id of a client that exists.
    pub(crate) fn live_client(&self, number: u64) -> Result<ClientId, Failure> {
        let id = number.checked_sub(1).map(ClientId::from_bits);
        let missing =
            || Failure::new(IOFAIR_ERROR_NO_CLIENT, format_args!("there is no client {number:#x}"));
        id.filter(|id| self.controller.groups().try_client(*id).is_some()).ok_or_else(missing)
    }
}
