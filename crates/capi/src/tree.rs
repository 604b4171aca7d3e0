//! Groups and clients, and the numbers by which C knows them.
//!
//! The engine uses an id again after its removal. The numbers here carry a generation, so that one of a group or client that is gone
//! is refused and never names another.

use std::collections::VecDeque;
use std::ffi::c_char;

use iofair_core::controller;
use iofair_core::error::EngineError;
use iofair_core::group::{ClientId, GroupId, Priority};
use iofair_core::time::Instant;

use crate::contract::{self, Contract};
use crate::error::{Failure, IOFAIR_ERROR_NO_CLIENT, IOFAIR_ERROR_NO_GROUP, IOFAIR_OK};
use crate::guard::{Engine, call};
use crate::pointer::{self, Out};
use crate::request::Completion;

/// The group that holds all others.
pub const IOFAIR_ROOT_GROUP: u64 = 1;
/// A client's priority when nobody says; 0 is the most urgent, 7 the least.
pub const IOFAIR_LEVEL_DEFAULT: u32 = 4;
const LEVEL_MAX: u32 = 7;

/// Numbers of ids of one kind.
#[derive(Default)]
pub(crate) struct Numbers {
    /// By id: how often it was given back.
    generations: Vec<u32>,
}

impl Numbers {
    /// The number of an id that is in use.
    pub(crate) fn of(&self, id: u32) -> u64 {
        let generation = self.generations.get(id as usize).copied().unwrap_or(0);
        u64::from(generation) << 32 | (u64::from(id) + 1)
    }
    /// The id, if it was not removed since; whether it ever was there is for the engine to say.
    fn id(&self, number: u64) -> Option<u32> {
        let id = (number as u32).checked_sub(1)?;
        (self.of(id) == number).then_some(id)
    }
    fn remove(&mut self, id: u32) {
        let index = id as usize;
        if index >= self.generations.len() {
            self.generations.resize(index + 1, 0);
        }
        self.generations[index] = self.generations[index].wrapping_add(1);
    }
}

/// What an engine of C consists of.
pub(crate) struct Inner {
    pub(crate) controller: controller::Controller,
    pub(crate) groups: Numbers,
    pub(crate) clients: Numbers,
    /// For the engine to append to.
    pub(crate) done: Vec<controller::Completion>,
    /// Completions that were not read.
    pub(crate) unread: VecDeque<Completion>,
    /// Were the tags left to the stack?
    pub(crate) tags_of_stack: bool,
}

impl Inner {
    fn group(&self, number: u64) -> Result<GroupId, Failure> {
        let missing =
            || Failure::new(IOFAIR_ERROR_NO_GROUP, format_args!("there is no group {number:#x}"));
        self.groups.id(number).map(GroupId).ok_or_else(missing)
    }
    pub(crate) fn client(&self, number: u64) -> Result<ClientId, Failure> {
        let id = self.live_client(number);
        let missing =
            || Failure::new(IOFAIR_ERROR_NO_CLIENT, format_args!("there is no client {number:#x}"));
        id.ok_or_else(missing)
    }
    fn live_client(&self, number: u64) -> Option<ClientId> {
        let id = self.clients.id(number).map(ClientId)?;
        self.controller.groups().try_client(id).map(|_| id)
    }
}

fn priority(class: u32, level: u32) -> Result<Priority, Failure> {
    if level > LEVEL_MAX {
        return Err(Failure::argument(format_args!("level {level} is not from 0 to 7")));
    }
    Ok(Priority { class: contract::class(class)?, level: level as u8 })
}

/// Adds a group. `path` is words separated by single slashes ("tenants/alice"), at most 32; groups on the path that
/// do not exist are added with a contract of zeroes. Sets `*group`, which is valid until iofair_remove_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_add_group(
    engine: *mut Engine,
    now_ns: u64,
    path: *const c_char,
    contract: *const Contract,
    group: *mut u64,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: C keeps what the header asks of text, structures and results, for the time of the call.
        let (path, contract, group) = unsafe {
            (
                pointer::text(path, "path")?,
                pointer::read(contract, "contract")?,
                Out::new(group, "group")?,
            )
        };
        let contract = contract.check()?;
        let id = inner.controller.add_group(Instant(now_ns), path, contract)?;
        group.set(inner.groups.of(id.0));
        Ok(IOFAIR_OK)
    })
}

/// Sets `*group` to the group of this path, "" being the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_find_group(
    engine: *mut Engine,
    path: *const c_char,
    group: *mut u64,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: C keeps what the header asks of text and results, for the time of the call.
        let (path, group) = unsafe { (pointer::text(path, "path")?, Out::new(group, "group")?) };
        let found = inner.controller.groups().find(path).ok_or_else(|| {
            Failure::new(IOFAIR_ERROR_NO_GROUP, format_args!("there is no group \"{path}\""))
        })?;
        group.set(inner.groups.of(found.0));
        Ok(IOFAIR_OK)
    })
}

/// Reads the contract of a group into `*contract`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_group_contract(
    engine: *mut Engine,
    group: u64,
    contract: *mut Contract,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: C keeps what the header asks of results, for the time of the call.
        let contract = unsafe { Out::new(contract, "contract")? };
        let id = inner.group(group)?;
        let group = inner.controller.groups().try_group(id).ok_or(EngineError::NoGroup(id))?;
        contract.set(Contract::from(&group.contract));
        Ok(IOFAIR_OK)
    })
}

/// Gives a group another contract, in force at once. Requests that wait stay in their order where the policy has queued them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_update_group(
    engine: *mut Engine,
    now_ns: u64,
    group: u64,
    contract: *const Contract,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: C keeps what the header asks of structures, for the time of the call.
        let contract = unsafe { pointer::read(contract, "contract")?.check()? };
        let id = inner.group(group)?;
        inner.controller.update_group(Instant(now_ns), id, contract)?;
        Ok(IOFAIR_OK)
    })
}

/// Removes a group that holds no group, client or request. Its number is refused from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_remove_group(engine: *mut Engine, now_ns: u64, group: u64) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let id = inner.group(group)?;
        inner.controller.remove_group(Instant(now_ns), id)?;
        inner.groups.remove(id.0);
        Ok(IOFAIR_OK)
    })
}

/// Adds a client, one source of requests such as a connection, to a group. `sched_class` is IOFAIR_CLASS_..., `level` 0 (most
/// urgent) to 7 in it, usually IOFAIR_LEVEL_DEFAULT. Sets `*client`, which is valid until iofair_remove_client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_add_client(
    engine: *mut Engine,
    now_ns: u64,
    group: u64,
    sched_class: u32,
    level: u32,
    client: *mut u64,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: C keeps what the header asks of results, for the time of the call.
        let client = unsafe { Out::new(client, "client")? };
        let (group, priority) = (inner.group(group)?, priority(sched_class, level)?);
        let id = inner.controller.add_client(Instant(now_ns), group, priority)?;
        client.set(inner.clients.of(id.0));
        Ok(IOFAIR_OK)
    })
}

/// Moves a client to a group, class and level. Requests that were submitted before keep theirs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_update_client(
    engine: *mut Engine,
    now_ns: u64,
    client: u64,
    group: u64,
    sched_class: u32,
    level: u32,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let (client, group) = (inner.client(client)?, inner.group(group)?);
        let priority = priority(sched_class, level)?;
        inner.controller.update_client(Instant(now_ns), client, group, priority)?;
        Ok(IOFAIR_OK)
    })
}

/// Removes a client of which every request is completed. Its number is refused from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_remove_client(
    engine: *mut Engine,
    now_ns: u64,
    client: u64,
) -> i32 {
    // SAFETY: C keeps what the header asks of engines.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let id = inner.client(client)?;
        inner.controller.remove_client(Instant(now_ns), id)?;
        inner.clients.remove(id.0);
        Ok(IOFAIR_OK)
    })
}
