//! A virtual machine that runs a script: Debian's kernel under QEMU without hardware help. Function only;
//! nothing here is fast. `scripts/guest` makes what it boots.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where `scripts/guest` puts kernels and their initramfs.
const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest");

/// Debian's kernels: 6.12 and 6.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    Trixie,
    Bookworm,
}

impl Kernel {
    fn made(self, name: &str) -> PathBuf {
        let directory = if self == Self::Trixie { "." } else { "bookworm" };
        Path::new(GUEST).join(directory).join(name)
    }
}

/// A virtual machine that runs a script.
pub struct Machine {
    qemu: Child,
    console: BufReader<ChildStdout>,
    seen: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Machine {
    /// Boots one with these arguments for QEMU; what is in `DIRECTORY/root` lies in its root directory, and the
    /// script runs there in a directory of its own.
    pub fn boot(directory: &Path, arguments: Vec<String>, script: &str) -> Self {
        Self::boot_kernel(Kernel::Trixie, directory, arguments, script)
    }
    /// The same with this kernel.
    pub fn boot_kernel(
        kernel: Kernel,
        directory: &Path,
        arguments: Vec<String>,
        script: &str,
    ) -> Self {
        let root = directory.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("test"), script).unwrap();
        let archive = Command::new("sh")
            .args(["-c", "find . | busybox cpio -o -H newc"])
            .current_dir(&root)
            .stderr(Stdio::null())
            .output()
            .unwrap()
            .stdout;
        // The kernel unpacks archives that follow each other on borders of four bytes.
        let mut initramfs = fs::read(kernel.made("initramfs")).unwrap();
        initramfs.resize(initramfs.len().next_multiple_of(4), 0);
        initramfs.extend(archive);
        let place = directory.join("initramfs");
        fs::write(&place, initramfs).unwrap();
        // Without hardware help some versions of QEMU get the flags of cmpxchg16b wrong now and then.
        let careful = |word: String| if word == "max" { "max,-cx16".into() } else { word };
        // One thread for all processors: with more, a kernel has crashed at an int3 with which it patches its own code.
        let own = arguments.iter().any(|word| word == "-accel");
        let accelerator: &[&str] = if own { &[] } else { &["-accel", "tcg,thread=single"] };
        let mut qemu = Command::new("qemu-system-x86_64")
            .args(arguments.into_iter().map(careful))
            .args(accelerator)
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
            .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"])
            .arg("-kernel")
            .arg(kernel.made("vmlinuz"))
            .arg("-initrd")
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let console = BufReader::new(qemu.stdout.take().unwrap());
        Self { qemu, console, seen: String::new() }
    }
    /// Reads the console until it says this.
    pub fn wait_for(&mut self, words: &str) {
        let mut line = Vec::new();
        while !self.seen.contains(words) {
            line.clear();
            let bytes = self.console.read_until(b'\n', &mut line).unwrap();
            self.seen += &String::from_utf8_lossy(&line);
            let failed = ["TEST FAILED", "Kernel panic"].iter().any(|end| self.seen.contains(end));
            assert!(bytes > 0 && !failed, "{words}?\n{}", self.seen);
        }
    }
    /// What it said up to the words that were waited for last.
    pub fn seen(&self) -> &str {
        &self.seen
    }
    /// The guest's own word that all went well, and the end of the machine; returns what it said.
    pub fn passes(mut self) -> String {
        self.wait_for("TEST PASSED");
        let ended = self.qemu.wait().unwrap();
        assert!(ended.success(), "{ended}\n{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

/// Puts one program of this host into the root directory of a machine, with the libraries that it needs; it is
/// called as `/bin/NAME` there.
pub fn bring(directory: &Path, program: &Path) {
    let name = program.file_name().unwrap().to_str().unwrap();
    let (host, bin) = (directory.join("root/host"), directory.join("root/bin"));
    fs::create_dir_all(&host).unwrap();
    fs::create_dir_all(&bin).unwrap();
    // Its symbols are ten times its size.
    let whole = format!("{name}.program");
    let stripped = Command::new("strip").arg("-o").arg(host.join(&whole)).arg(program).status();
    assert!(stripped.unwrap().success());
    let needed = Command::new("ldd").arg(program).output().unwrap();
    for line in String::from_utf8(needed.stdout).unwrap().lines() {
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else {
            continue;
        };
        // The loader is what runs, so that it has the program's name.
        let library = match path.contains("/ld-linux") {
            true => program.file_name().unwrap(),
            false => Path::new(path).file_name().unwrap(),
        };
        fs::copy(path, host.join(library)).unwrap();
    }
    let script =
        format!("#!/bin/sh\nexec /host/{name} --library-path /host /host/{whole} \"$@\"\n");
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}
