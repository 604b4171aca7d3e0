//! Programs that are killed at a system call that changes files: at the first one, the second one, and so on.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// System calls that change files, on every architecture.
const CHANGES: [i64; 12] = [
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_pwrite64,
    libc::SYS_write,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
];
/// Older ones of this architecture.
#[cfg(target_arch = "x86_64")]
const OLD_CHANGES: [i64; 4] = [libc::SYS_rename, libc::SYS_unlink, libc::SYS_link, libc::SYS_mkdir];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CHANGES: [i64; 1] = [libc::SYS_renameat];

/// Runs a program, and kills it before its `step`th change of a file, whatever thread makes it. Whether it was killed: else it has
/// ended by itself.
pub(crate) fn killed_at(step: usize, command: &mut Command) -> bool {
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let program = command.spawn().unwrap().id() as i32;
    let (mut steps, mut is_killed, mut is_set_up) = (0, false, false);
    loop {
        let mut status = 0;
        // SAFETY: a plain system call; the status is a local.
        let stopped =
            unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(stopped > 0, "{}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            if stopped == program {
                return is_killed;
            }
            continue;
        }
        if !std::mem::replace(&mut is_set_up, true) {
            let options =
                libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            trace(libc::PTRACE_SETOPTIONS, stopped, options as usize);
        }
        let signal = libc::WSTOPSIG(status);
        steps += usize::from(signal == libc::SIGTRAP | 0x80 && changes_a_file(stopped));
        if steps == step && !is_killed {
            is_killed = true;
            // SAFETY: a plain system call on a child of ours, which was not reaped.
            unsafe { libc::kill(program, libc::SIGKILL) };
        }
        // Stops of tracing, and of new threads, are no signals of the program.
        let is_ours = signal & 0x7f == libc::SIGTRAP || signal == libc::SIGSTOP;
        trace(libc::PTRACE_SYSCALL, stopped, if is_ours { 0 } else { signal as usize });
    }
}

/// A thread that was killed meanwhile does not mind.
fn trace(request: libc::c_uint, thread: i32, data: usize) {
    // SAFETY: a request without memory, on a thread that this one traces.
    unsafe { libc::ptrace(request, thread, ptr::null_mut::<u8>(), data) };
}

/// Whether a thread is about to make a system call that changes a file.
fn changes_a_file(thread: i32) -> bool {
    // SAFETY: all zeroes are a value of it, and the kernel fills as much as it is told.
    let info = unsafe {
        let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info);
        info
    };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return false;
    }
    // SAFETY: it is an entry.
    let entry = unsafe { info.u.entry };
    let call = entry.nr as i64;
    let creates = call == libc::SYS_openat && entry.args[2] as i32 & libc::O_CREAT != 0;
    let tells = call == libc::SYS_write && entry.args[0] <= 2;
    !tells && (creates || CHANGES.contains(&call) || OLD_CHANGES.contains(&call))
}
