//! Requests pass the boundary without an allocation once the engine is warm.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::System;
use std::mem::MaybeUninit;
use std::ptr;

use iofair::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Goal: no call of a request's journey allocates, nor does a refusal. Method: count allocations of a second round of the same load.
#[test]
fn requests_allocate_nothing_once_warm() {
    let setup = Setup { capacity_bytes: 1 << 30, depth: 8, ..Setup::default() };
    let (mut engine, mut client) = (ptr::null_mut(), 0);
    // SAFETY: setup, text and results are locals.
    unsafe {
        let code = iofair_engine_new(&raw const setup, c"promise".as_ptr(), &raw mut engine);
        assert_eq!(code, IOFAIR_OK);
        let code = iofair_add_client(engine, 0, IOFAIR_ROOT_GROUP, 0, 4, &raw mut client);
        assert_eq!(code, IOFAIR_OK);
    }
    let mut now = 0;
    let mut round = || {
        for number in 0..100_u64 {
            let (user, flags, operation) = (ptr::null_mut(), 0, (number % 2) as u32);
            let (offset, length) = (number * 65536, 4096);
            let request = Request { user, client, offset, length, operation, flags };
            // SAFETY: the engine is alive, the request a local.
            assert_eq!(unsafe { iofair_submit(engine, now, &raw const request) }, IOFAIR_OK);
        }
        // SAFETY: the engine is alive, the pointers are null or of locals.
        unsafe {
            assert_eq!(iofair_submit(engine, now, ptr::null()), IOFAIR_ERROR_POINTER);
            let (mut count, mut at) = (0, 0);
            let (mut command, mut completion) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            let mut left = 100;
            while left > 0 {
                now += 100_000;
                while iofair_dispatch(engine, now, command.as_mut_ptr()) == IOFAIR_OK {
                    let command: &Command = command.assume_init_ref();
                    let none = ptr::null_mut();
                    iofair_command_parts(engine, command.command, none, 0, &raw mut count);
                    iofair_complete(engine, now, command.command, 0);
                }
                while iofair_next_completion(engine, completion.as_mut_ptr()) == IOFAIR_OK {
                    left -= 1;
                }
                iofair_next_wakeup(engine, &raw mut at);
            }
        }
    };
    (0..50).for_each(|_| round());
    // The test's own runner may allocate at the same time; what a request allocates it does each time.
    let allocates = (0..5).all(|_| {
        let region = Region::new(GLOBAL);
        (0..50).for_each(|_| round());
        region.change().allocations > 0
    });
    assert!(!allocates);
    // SAFETY: made above, freed once.
    unsafe { iofair_engine_free(engine) };
}
