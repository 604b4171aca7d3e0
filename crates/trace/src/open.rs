//! Opens a trace that may be in several files, in whatever format they have.

use std::path::PathBuf;

use crate::error::{Place, Result, TraceError};
use crate::files::Stored;
use crate::formats::{self, Boxed, Columns, Format, recognise};
use crate::input::Input;
use crate::merge::Merge;
use crate::record::{Metadata, Record, Stream};
use crate::source::{Notes, Source};

/// Files of a trace that are read together.
pub(crate) const FILES_MAX: usize = 1024;

/// How to open a trace.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// The files of the trace. Their requests are merged by time. `-` is standard input, and pipes are allowed.
    pub paths: Vec<PathBuf>,
    /// Their format; by default it is recognised.
    pub format: Option<&'static Format>,
    /// What the columns of a table are, if their names do not say it.
    pub columns: Option<Columns>,
}

/// A trace that can be read again and again, also if it came from a pipe.
#[derive(Clone, Debug)]
pub struct Trace {
    files: Vec<Stored>,
    format: &'static Format,
    columns: Option<Columns>,
}

impl Trace {
    /// Opens the files and recognises their format.
    pub fn open(options: &Options) -> Result<Self> {
        let name = options.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        let wrong = |what: String| Err(TraceError::content(&name, Place::Whole, what));
        let count = options.paths.len();
        if count == 0 || count > FILES_MAX {
            return wrong(format!("{count} files; a trace has 1 to {FILES_MAX}"));
        }
        if options.paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return wrong("standard input can be read only once: name a file".to_owned());
        }
        let mut format = options.format;
        if let Some(columns) = &options.columns {
            let table = formats::table();
            if let Some(named) = format.filter(|named| named.name != table.name) {
                return wrong(format!(
                    "columns ({columns}) are for {}, not {}",
                    table.name, named.name
                ));
            }
            format = Some(table);
        }
        let is_known = format.is_some();
        let mut files = Vec::new();
        for path in &options.paths {
            let file = Stored::open(path, |head, name| match is_known {
                true => Ok(()),
                false => formats::check_head(head, name),
            })?;
            if !is_known {
                let input = Input::new(file.reader(), &file.name)?;
                let found = recognise(&input);
                let found = found.map_err(|error| cause(std::slice::from_ref(&file), error))?;
                if let Some(known) = format
                    && known.name != found.name
                {
                    return wrong(format!(
                        "{} files and {} files together",
                        known.name, found.name
                    ));
                }
                format = Some(found);
            }
            files.push(file);
        }
        let format = format.expect("there is a file");
        Ok(Self { files, format, columns: options.columns.clone() })
    }
    /// Reads the trace from its beginning.
    pub fn source(&self) -> Result<Boxed> {
        let inputs = self.files.iter().map(|file| Input::new(file.reader(), &file.name));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let open = |inputs| match &self.columns {
            Some(columns) => Ok(formats::open_table(inputs, columns)),
            None => self.format.open(inputs),
        };
        let opened = if self.format.together || inputs.len() == 1 {
            open(inputs)
        } else {
            let sources = inputs.into_iter().map(|input| open(vec![input]));
            let sources = sources.collect::<Result<Vec<_>>>();
            sources.and_then(|sources| Ok(Box::new(Merge::new(sources)?) as Boxed))
        };
        let source = opened.map_err(|error| cause(&self.files, error))?;
        Ok(Box::new(Opened { source, files: self.files.clone() }))
    }
}

/// A trace that was opened, with its files.
struct Opened {
    source: Boxed,
    files: Vec<Stored>,
}

impl Source for Opened {
    fn next_record(&mut self) -> Result<Option<Record>> {
        self.source.next_record().map_err(|error| cause(&self.files, error))
    }
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }
    fn metadata(&self) -> Metadata {
        self.source.metadata()
    }
    fn notes(&self) -> Notes {
        self.source.notes()
    }
}

/// Why a file has what its format does not allow: the checksums of compressed data stand behind the data, so the rest of the file
/// says whether it was damaged.
fn cause(files: &[Stored], error: TraceError) -> TraceError {
    let TraceError::Content { file, .. } = &error else { return error };
    let found = files.iter().find(|stored| stored.name == *file);
    let checked = found.map(|stored| Input::new(stored.reader(), file).and_then(Input::check));
    checked.and_then(Result::err).unwrap_or(error)
}

/// Opens a trace that is read once.
pub fn open(options: &Options) -> Result<Boxed> {
    Trace::open(options)?.source()
}
