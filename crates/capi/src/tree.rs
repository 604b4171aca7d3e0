//! Groups and clients, and their handles in C.
//!
//! A handle is the bits of an id plus 1, so that 0 is never a handle. Ids contain a generation: the handle of a removed
//! group or client is refused and never refers to another.

use std::ffi::c_char;

use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Priority;
use iofair_core::time::Instant;

use crate::contract::{self, Contract};
use crate::error::{Failure, IOFAIR_ERROR_NO_GROUP, IOFAIR_NONE, IOFAIR_OK};
use crate::guard::{Engine, call};
use crate::pointer::{self, Out, OutArray};

/// Handle of the root group, which contains all other groups.
pub const IOFAIR_ROOT_GROUP: u64 = 1;
/// Default level of a client.
pub const IOFAIR_LEVEL_DEFAULT: u32 = 4;
const LEVEL_MAX: u32 = 7;

/// The handle of a group or client with these bits ([`GroupId::to_bits`]). 0 is no handle.
const fn handle(bits: u64) -> u64 {
    bits + 1
}

pub(crate) const fn group_handle(id: GroupId) -> u64 {
    handle(id.to_bits())
}
pub(crate) const fn client_handle(id: ClientId) -> u64 {
    handle(id.to_bits())
}

fn priority(class: u32, level: u32) -> Result<Priority, Failure> {
    if level > LEVEL_MAX {
        return Err(Failure::argument(format_args!("level {level} is not from 0 to 7")));
    }
    Ok(Priority { class: contract::class(class)?, level: level as u8 })
}

/// Adds a group. `path` has at most 32 components, separated by slashes ("tenants/alice"). Missing parent groups are added
/// with the default contract. Sets `*group` to its handle, which is valid until iofair_remove_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_add_group(
    engine: *mut Engine,
    now_ns: u64,
    path: *const c_char,
    contract: *const Contract,
    group: *mut u64,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid text, structures and results during the call.
        let (path, contract, group) = unsafe {
            (
                pointer::text(path, "path")?,
                pointer::read(contract, "contract")?,
                Out::new(group, "group")?,
            )
        };
        let contract = contract.check()?;
        let id = inner.controller.add_group(Instant(now_ns), path, contract)?;
        group.set(group_handle(id));
        Ok(IOFAIR_OK)
    })
}

/// Sets `*group` to the handle of the group with this path; "" is the root group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_find_group(
    engine: *mut Engine,
    path: *const c_char,
    group: *mut u64,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid text and results during the call.
        let (path, group) = unsafe { (pointer::text(path, "path")?, Out::new(group, "group")?) };
        let found = inner.controller.groups().find(path).ok_or_else(|| {
            Failure::new(IOFAIR_ERROR_NO_GROUP, format_args!("there is no group \"{path}\""))
        })?;
        group.set(group_handle(found));
        Ok(IOFAIR_OK)
    })
}

/// Sets `*group` to the handle of the group after the group `after`, or of the first one, the root, if `after` is 0. Returns
/// IOFAIR_NONE after the last group. The order is not specified otherwise. Adding and removing other groups is allowed between
/// calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_next_group(
    engine: *mut Engine,
    after: u64,
    group: *mut u64,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let group = unsafe { Out::new(group, "group")? };
        let first = if after == 0 { 0 } else { inner.live_group(after)?.index() + 1 };
        let groups = inner.controller.groups();
        let mut rest = first..groups.group_bound();
        let Some(id) = rest.find_map(|index| groups.group_id(index)) else {
            return Ok(IOFAIR_NONE);
        };
        group.set(group_handle(id));
        Ok(IOFAIR_OK)
    })
}

/// Writes the path of a group and a zero byte to `path`, which has room for `capacity` bytes; a longer path is cut. Sets
/// `*length` to the length of the whole path without the zero byte. `path` may be NULL if `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_group_path(
    engine: *mut Engine,
    group: u64,
    path: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let (mut path, length) =
            unsafe { (OutArray::new(path, capacity, "path")?, Out::new(length, "length")?) };
        let id = inner.live_group(group)?;
        let name = inner.controller.groups().group(id).name.as_bytes();
        let shown = name.len().min(capacity.saturating_sub(1));
        for (place, byte) in name[..shown].iter().chain(&[0]).enumerate() {
            path.set(place, *byte as c_char);
        }
        length.set(name.len());
        Ok(IOFAIR_OK)
    })
}

/// Writes the contract of a group to `*contract`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_group_contract(
    engine: *mut Engine,
    group: u64,
    contract: *mut Contract,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let contract = unsafe { Out::new(contract, "contract")? };
        let id = inner.live_group(group)?;
        contract.set(Contract::from(&inner.controller.groups().group(id).contract));
        Ok(IOFAIR_OK)
    })
}

/// Replaces the contract of a group. The new contract applies at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_update_group(
    engine: *mut Engine,
    now_ns: u64,
    group: u64,
    contract: *const Contract,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid structures during the call.
        let contract = unsafe { pointer::read(contract, "contract")?.check()? };
        let id = inner.live_group(group)?;
        inner.controller.update_group(Instant(now_ns), id, contract)?;
        Ok(IOFAIR_OK)
    })
}

/// Removes a group that contains no group, client or request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_remove_group(engine: *mut Engine, now_ns: u64, group: u64) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let id = inner.live_group(group)?;
        inner.controller.remove_group(Instant(now_ns), id)?;
        Ok(IOFAIR_OK)
    })
}

/// Adds a client to a group. A client is a source of requests, such as a connection. `sched_class` is IOFAIR_CLASS_...;
/// `level` is its priority in the class, from 0 (highest) to 7, usually IOFAIR_LEVEL_DEFAULT. Sets `*client` to its handle,
/// which is valid until iofair_remove_client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_add_client(
    engine: *mut Engine,
    now_ns: u64,
    group: u64,
    sched_class: u32,
    level: u32,
    client: *mut u64,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let client = unsafe { Out::new(client, "client")? };
        let (group, priority) = (inner.live_group(group)?, priority(sched_class, level)?);
        let id = inner.controller.add_client(Instant(now_ns), group, priority)?;
        client.set(client_handle(id));
        Ok(IOFAIR_OK)
    })
}

/// Changes the group, class and level of a client. Pending requests keep the old ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_update_client(
    engine: *mut Engine,
    now_ns: u64,
    client: u64,
    group: u64,
    sched_class: u32,
    level: u32,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let (client, group) = (inner.live_client(client)?, inner.live_group(group)?);
        let priority = priority(sched_class, level)?;
        inner.controller.update_client(Instant(now_ns), client, group, priority)?;
        Ok(IOFAIR_OK)
    })
}

/// Removes a client that has no pending request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_remove_client(
    engine: *mut Engine,
    now_ns: u64,
    client: u64,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        let id = inner.live_client(client)?;
        inner.controller.remove_client(Instant(now_ns), id)?;
        Ok(IOFAIR_OK)
    })
}
