//! Opens a trace that may be in several files, in whatever format they have.

use std::path::PathBuf;

use crate::error::{Place, Result, TraceError};
use crate::formats::{Boxed, Format, recognise};
use crate::input::Input;
use crate::merge::Merge;

/// Files of a trace that are read together.
pub const FILES_MAX: usize = 1024;

/// How to open a trace.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// The files of the trace. Their requests are merged by time.
    pub paths: Vec<PathBuf>,
    /// Their format; by default it is recognised.
    pub format: Option<&'static Format>,
}

/// Opens a trace.
pub fn open(options: &Options) -> Result<Boxed> {
    let name = options.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    let wrong = |what: String| Err(TraceError::content(&name, Place::Whole, what));
    let count = options.paths.len();
    if count == 0 || count > FILES_MAX {
        return wrong(format!("{count} files; a trace has 1 to {FILES_MAX}"));
    }
    let mut inputs = Vec::new();
    let mut format = options.format;
    for path in &options.paths {
        let input = Input::open(path)?;
        if options.format.is_none() {
            let found = recognise(&input)?;
            if let Some(known) = format
                && known.name != found.name
            {
                return wrong(format!("{} files and {} files together", known.name, found.name));
            }
            format = Some(found);
        }
        inputs.push(input);
    }
    let format = format.expect("there is a file");
    if format.together || inputs.len() == 1 {
        return format.open(inputs);
    }
    let sources = inputs.into_iter().map(|input| format.open(vec![input]));
    Ok(Box::new(Merge::new(sources.collect::<Result<Vec<_>>>()?)?))
}
