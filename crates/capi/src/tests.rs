//! What C cannot show: a panic inside, two threads at once, random calls. Each test says goal and method.

use std::ffi::{CStr, CString};
use std::ptr;

use crate::guard::{Engine, call};
use crate::*;

/// An engine that frees itself.
struct Owned(*mut Engine);

impl Owned {
    fn new(stack: &str) -> Self {
        let (stack, mut engine) = (CString::new(stack).unwrap(), ptr::null_mut());
        let setup = Setup { capacity_bytes: 1 << 30, depth: 4, ..Setup::default() };
        // SAFETY: the setup, the text and the result are locals.
        let code = unsafe { iofair_engine_new(&raw const setup, stack.as_ptr(), &raw mut engine) };
        assert_eq!(code, IOFAIR_OK, "{}", message());
        Self(engine)
    }
    fn add_client(&self) -> u64 {
        let mut client = 0;
        // SAFETY: the engine is alive, the result a local.
        let code =
            unsafe { iofair_add_client(self.0, 0, IOFAIR_ROOT_GROUP, 0, 4, &raw mut client) };
        assert_eq!(code, IOFAIR_OK, "{}", message());
        client
    }
    fn dispatch(&self, now: u64) -> Result<Command, i32> {
        let mut command = std::mem::MaybeUninit::uninit();
        // SAFETY: the engine is alive, the result a local.
        match unsafe { iofair_dispatch(self.0, now, command.as_mut_ptr()) } {
            // SAFETY: written when the call returns OK.
            IOFAIR_OK => Ok(unsafe { command.assume_init() }),
            code => Err(code),
        }
    }
    fn submit(&self, now: u64, request: &Request) -> i32 {
        // SAFETY: the engine is alive, the request a reference.
        unsafe { iofair_submit(self.0, now, request) }
    }
    fn complete(&self, now: u64, command: u64) -> i32 {
        // SAFETY: the engine is alive.
        unsafe { iofair_complete(self.0, now, command, 0) }
    }
    fn next_completion(&self) -> i32 {
        let mut completion = std::mem::MaybeUninit::uninit();
        // SAFETY: the engine is alive, the result a local.
        unsafe { iofair_next_completion(self.0, completion.as_mut_ptr()) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed here only.
        unsafe { iofair_engine_free(self.0) }
    }
}

fn message() -> String {
    // SAFETY: never null, ends with a zero, and is valid until the next error of this thread.
    unsafe { CStr::from_ptr(iofair_last_error()) }.to_str().unwrap().to_string()
}

fn read(client: u64, offset: u64) -> Request {
    let (user, operation, flags) = (ptr::null_mut(), IOFAIR_READ, IOFAIR_FLAG_NO_MERGE);
    Request { user, client, offset, length: 4096, operation, flags }
}

/// Goal: a panic becomes an error, and the engine is not used again. Method: a call that panics, then good calls.
#[test]
fn a_panic_poisons_the_engine() {
    let engine = Owned::new("promise");
    // SAFETY: the engine is alive.
    let inside = unsafe { Engine::at(engine.0) };
    assert_eq!(call(inside, |_| panic!("on purpose")), IOFAIR_ERROR_POISONED);
    assert!(message().contains("unusable"));
    assert_eq!(engine.dispatch(0).unwrap_err(), IOFAIR_ERROR_POISONED);
    assert_eq!(engine.submit(0, &read(1, 0)), IOFAIR_ERROR_POISONED);
    assert_eq!(guard::without(|| panic!("on purpose")), IOFAIR_ERROR_POISONED);
    assert!(Owned::new("promise").dispatch(0).is_err_and(|code| code == IOFAIR_NONE));
}

/// Goal: a call while another one is inside is refused. Method: from inside a call, on this thread and on another one.
#[test]
fn a_second_call_is_refused() {
    let engine = Owned::new("promise");
    // SAFETY: the engine is alive.
    let inside = unsafe { Engine::at(engine.0) };
    let code = call(inside, |_| {
        assert_eq!(engine.dispatch(0).unwrap_err(), IOFAIR_ERROR_IN_USE);
        let address = engine.0.expose_provenance();
        let other = std::thread::spawn(move || {
            let engine =
                std::mem::ManuallyDrop::new(Owned(ptr::with_exposed_provenance_mut(address)));
            engine.dispatch(0).unwrap_err()
        });
        assert_eq!(other.join().unwrap(), IOFAIR_ERROR_IN_USE);
        Ok(IOFAIR_OK)
    });
    assert_eq!((code, engine.dispatch(0).unwrap_err()), (IOFAIR_OK, IOFAIR_NONE));
}

/// Goal: unread completions have a bound, and none is lost at it. Method: fill it, read all, go on.
#[test]
fn unread_completions_are_bounded() {
    let engine = Owned::new("none-none");
    let client = engine.add_client();
    let mut completed = 0;
    let refused = loop {
        assert_eq!(engine.submit(0, &read(client, 0)), IOFAIR_OK, "{}", message());
        let command = engine.dispatch(0).expect("nothing holds it").command;
        if engine.complete(0, command) != IOFAIR_OK {
            break command;
        }
        completed += 1;
    };
    assert_eq!((completed, message().as_str()), (65536, "read the completions first"));
    while engine.next_completion() == IOFAIR_OK {
        completed -= 1;
    }
    assert_eq!((completed, engine.complete(0, refused)), (0, IOFAIR_OK));
}

/// Goal: messages longer than the buffer are cut, at a whole character, and zeroes in them do not end them. Method: such
/// messages.
#[test]
fn long_messages_are_cut() {
    let _ = Failure::new(IOFAIR_ERROR_STACK, "ä".repeat(5000));
    assert_eq!(message(), "ä".repeat(1023));
    let _ = Failure::new(IOFAIR_ERROR_STACK, "a\0b");
    assert_eq!(message(), "ab");
}

/// Small random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Goal: no sequence of calls brings the library to panic, and every accepted request is completed once. Method: random calls, good and bad,
/// over the stacks; at the end all that is inside is served.
#[test]
fn random_calls_never_panic() {
    for (seed, stack) in
        ["none-none", "promise", "max+prop-bfq", "max-mq-deadline"].iter().enumerate()
    {
        let engine = Owned::new(stack);
        let mut random = Random(seed as u64);
        let mut clients = vec![engine.add_client()];
        let (mut commands, mut now, mut inside) = (Vec::new(), 0, 0_u64);
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            now += random.below(100_000);
            let client = clients[random.below(clients.len() as u64) as usize];
            match random.below(8) {
                0..3 => {
                    let operation = random.below(6) as u32;
                    let flush = operation == IOFAIR_FLUSH;
                    let (offset, length) = (random.below(1 << 21) * 512, random.below(300) * 4096);
                    let length = if flush { 0 } else { length };
                    let flags = random.below(64) as u32;
                    let user = ptr::null_mut();
                    let code = engine
                        .submit(now, &Request { user, client, offset, length, operation, flags });
                    inside += u64::from(code == IOFAIR_OK);
                }
                3 | 4 => commands.extend(engine.dispatch(now).map(|dispatch| dispatch.command)),
                5 if !commands.is_empty() => {
                    let place = random.below(commands.len() as u64) as usize;
                    let command = commands.swap_remove(place);
                    assert_eq!(engine.complete(now, command), IOFAIR_OK, "{}", message());
                    assert_eq!(engine.complete(now, command), IOFAIR_ERROR_NOT_IN_DRIVE);
                }
                6 if clients.len() < 20 => clients.push(engine.add_client()),
                // SAFETY: the engine is alive.
                6 => drop(unsafe { iofair_remove_client(engine.0, now, client) }),
                _ => drop(engine.complete(now, random.below(1 << 40))),
            }
            while engine.next_completion() == IOFAIR_OK {
                inside -= 1;
            }
        }
        for _ in 0..100_000 {
            now += 1_000_000;
            commands.extend(engine.dispatch(now).map(|dispatch| dispatch.command));
            commands
                .drain(..)
                .for_each(|command| assert_eq!(engine.complete(now, command), IOFAIR_OK));
            while engine.next_completion() == IOFAIR_OK {
                inside -= 1;
            }
            if inside == 0 {
                break;
            }
        }
        assert_eq!(inside, 0, "{stack}");
    }
}
