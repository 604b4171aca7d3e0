//! The files of a trace. A replay reads them once for each stack, and before that to recognise their format; so what can be read
//! only once, such as a pipe, is kept in a temporary file without a name.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Place, Result, TraceError};
use crate::input::HEAD;

/// Bytes that are kept of a pipe. A longer trace has to be a file: a temporary directory is the wrong place for it.
const KEPT_MAX: u64 = 64 << 30;
/// The name of standard input.
const STDIN: &str = "-";
/// Names that are tried for a temporary file.
const NAMES: u32 = 64;

/// A file that can be read again and again.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Its name in errors.
    pub(crate) name: String,
    file: Arc<File>,
    /// Where it begins and ends. It ends where it ended when it was opened, so that all stacks see the same trace.
    start: u64,
    end: u64,
}

impl Stored {
    /// Opens a file; `-` is standard input. `check` looks at the first bytes of what cannot be read twice, before the rest is
    /// read.
    pub(crate) fn open(path: &Path, check: impl Fn(&[u8], &str) -> Result<()>) -> Result<Self> {
        let (name, opened) = match path.to_str() {
            Some(STDIN) => ("standard input".to_owned(), standard_input()),
            _ => (path.display().to_string(), File::open(path).map(|file| (file, 0))),
        };
        let (file, start) = opened.map_err(TraceError::io(&name))?;
        let about = file.metadata().map_err(TraceError::io(&name))?;
        // Files of /proc and /sys have contents and no length.
        if about.is_file() && about.len() > 0 {
            let (file, end) = (Arc::new(file), about.len().max(start));
            return Ok(Self { name, file, start, end });
        }
        let (file, end) = keep(file, &name, check)?;
        Ok(Self { name, file: Arc::new(file), start: 0, end })
    }
    /// Reads the file from its beginning.
    pub(crate) fn reader(&self) -> Box<dyn Read + Send> {
        Box::new(Reading { file: self.file.clone(), at: self.start, end: self.end })
    }
}

/// Standard input, and the offset at which this program found it.
fn standard_input() -> io::Result<(File, u64)> {
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let start = io::Seek::stream_position(&mut file).unwrap_or(0);
    Ok((file, start))
}

/// Copies what comes from a pipe into a temporary file, and returns it with its length.
fn keep(
    mut from: File,
    name: &str,
    check: impl Fn(&[u8], &str) -> Result<()>,
) -> Result<(File, u64)> {
    let mut head = Vec::new();
    (&mut from).take(HEAD as u64).read_to_end(&mut head).map_err(TraceError::io(name))?;
    check(&head, name)?;
    let folder = std::env::temp_dir();
    let full = |error: io::Error| {
        let folder = folder.display();
        let what = format!(
            "cannot keep what comes from here in {folder}: {error}; TMPDIR names another directory, or save it as a file"
        );
        TraceError::io(name)(io::Error::new(error.kind(), what))
    };
    let mut to = temporary(&folder).map_err(full)?;
    to.write_all(&head).map_err(full)?;
    let mut length = head.len() as u64;
    let mut piece = vec![0; 256 << 10];
    loop {
        let more = match from.read(&mut piece) {
            Ok(0) => return Ok((to, length)),
            Ok(more) => more,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(TraceError::io(name)(error)),
        };
        length += more as u64;
        if length > KEPT_MAX {
            let what = format!("more than {} GiB; save it as a file first", KEPT_MAX >> 30);
            return Err(TraceError::content(name, Place::Whole, what));
        }
        to.write_all(&piece[..more]).map_err(full)?;
    }
}

/// A file without a name: its space is free when the program ends, however it ends.
fn temporary(folder: &Path) -> io::Result<File> {
    for number in 0..NAMES {
        let path = folder.join(format!(".iofair-replay-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        match opened {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "too many temporary files of iofair"))
}

/// One pass through a file.
struct Reading {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let length = self.file.read_at(&mut into[..left], self.at)?;
        if length == 0 && left > 0 {
            return Err(io::Error::other("the file became shorter while it was read"));
        }
        self.at += length as u64;
        Ok(length)
    }
}
