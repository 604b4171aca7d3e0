//! Programs as processes that can be killed and started again.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where `scripts/kubernetes` puts programs.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kubernetes");

/// A program of Kubernetes.
pub(crate) fn of_kubernetes(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join(name)
}

/// A program with its arguments, and its process.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Program {
    /// Starts a program whose output goes to `DIRECTORY/NAME.log`.
    pub(crate) fn start(
        name: &str,
        path: PathBuf,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        directory: &Path,
    ) -> Self {
        let log = directory.join(format!("{name}.log"));
        let mut program =
            Self { name: name.to_string(), path, arguments, environment, log, child: None };
        program.again();
        program
    }
    fn again(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let both = log.try_clone().expect("a second handle");
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        let child = command.stdin(Stdio::null()).stdout(log).stderr(both).spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{}: {error}", self.path.display())));
    }
    /// Ends the process as a crash would, and starts the program again.
    pub(crate) fn crash(&mut self) {
        self.kill();
        self.again();
    }
    /// What a supervisor does: starts the program again if it has ended by itself.
    pub(crate) fn supervise(&mut self) {
        if self.child.as_mut().is_some_and(|child| child.try_wait().expect("its state").is_some()) {
            self.again();
        }
    }
    fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    /// Ends it as its supervisor would.
    pub(crate) fn end(&mut self) {
        let Some(child) = &self.child else { return };
        let pid = child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).stderr(Stdio::null()).status();
        let until = Instant::now() + Duration::from_secs(10);
        while let Some(child) = &mut self.child {
            if child.try_wait().expect("its state").is_some() || Instant::now() > until {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until something is there.
///
/// # Panics
/// It is not within this time.
pub(crate) fn wait<T>(what: &str, seconds: u64, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{seconds} s without: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
