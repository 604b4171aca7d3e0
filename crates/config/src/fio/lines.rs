//! Lines of job files: sections, options, includes, variables and keywords.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::problems::Written;
use crate::error::ConfigError;
use crate::source::{Source, is_regular};

/// Longest file. Job files have a few KiB.
const FILE_MAX: u64 = 1 << 20;
/// The source of options that are arguments.
pub(super) const ARGUMENT: &str = "--set";
/// Deepest include: fio's own limit, and the end of a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Most includes of a file: without it, files that include others twice grow with two to the power of their depth.
const INCLUDES_MAX: usize = 256;
/// Longest value after variables were replaced.
const VALUE_MAX: usize = 4096;

/// What `${NAME}` and keywords such as `$ncpus` stand for.
#[derive(Clone, Debug)]
pub struct Variables {
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// `$ncpus`
    pub processors: u64,
    /// `$mb_memory`
    pub memory_mib: u64,
    /// `$pagesize`
    pub page_bytes: u64,
}

impl Default for Variables {
    /// No environment, and a machine of one processor and 1 GiB.
    fn default() -> Self {
        Self { environment: Vec::new(), processors: 1, memory_mib: 1024, page_bytes: 4096 }
    }
}

impl Variables {
    /// Those of this process and this machine.
    pub fn of_this_machine() -> Self {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            environment: environment.collect(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_mib: kib.unwrap_or(0) / 1024,
            page_bytes: 4096,
        }
    }
}

/// A file in pieces.
pub(super) struct Lines {
    pub(super) sources: Vec<Source>,
    pub(super) sections: Vec<Section>,
}

/// A section with its options.
pub(super) struct Section {
    pub(super) name: String,
    pub(super) head: Written,
    pub(super) options: Vec<Written>,
}

impl Section {
    /// As fio does it, the beginning of the name counts.
    pub(super) fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// Opens a file with its bounds: a regular one, not too long, UTF-8.
pub(super) fn open(path: &Path) -> Result<Source, ConfigError> {
    let name = path.display().to_string();
    let refuse = |message: String| ConfigError::whole_file(&name, message);
    let is_regular = is_regular(path);
    if !is_regular.map_err(|error| ConfigError::unreadable(path, &error))? {
        return Err(refuse("not a regular file".into()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
    let read = file.take(FILE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(refuse("too long for a job file".into()).allowed("1 MiB"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(&name, &text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(refuse(format!("line {line} is not UTF-8 text")))
        }
    }
}

/// Reads a file and what it includes. `options` stand at the end of every job.
pub(super) fn read(
    source: Source,
    variables: &Variables,
    options: &[String],
) -> Result<Lines, ConfigError> {
    let lines = Lines { sources: Vec::new(), sections: Vec::new() };
    let mut reader = Reader { lines, variables, includes: 0 };
    reader.file(source, 0)?;
    let Lines { sections, .. } = &mut reader.lines;
    let sections = std::mem::take(sections);
    let first = reader.lines.sources.len();
    reader.lines.sources.extend(options.iter().map(|option| Source::new(ARGUMENT, option)));
    for section in sections {
        let is_global = section.is_global();
        reader.lines.sections.push(section);
        for (source, option) in (first..).zip(options).filter(|_| !is_global) {
            reader.line(source, 0, option, 1)?;
        }
    }
    Ok(reader.lines)
}

/// What of a line is no comment, without blanks around it, and where it begins. A comment begins with the first `;` or `#`.
fn code(line: &str) -> (usize, &str) {
    let code = line.split([';', '#']).next().unwrap_or(line);
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let inside = code.trim_start_matches(blank);
    (code.len() - inside.len(), inside.trim_end_matches(blank))
}

struct Reader<'a> {
    lines: Lines,
    variables: &'a Variables,
    includes: usize,
}

impl Reader<'_> {
    fn file(&mut self, source: Source, depth: usize) -> Result<(), ConfigError> {
        let text = source.text().to_owned();
        self.lines.sources.push(source);
        let number = self.lines.sources.len() - 1;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let (indent, inside) = code(line);
            if !inside.is_empty() {
                self.line(number, start + indent, inside, depth)?;
            }
            start += line.len();
        }
        Ok(())
    }
    fn error(&self, source: usize, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        self.lines.sources[source].error(span, message)
    }

    fn line(
        &mut self,
        source: usize,
        from: usize,
        line: &str,
        depth: usize,
    ) -> Result<(), ConfigError> {
        let whole = from..from + line.len();
        if let Some(rest) = line.strip_prefix('[') {
            if depth > 0 {
                let message = "an included file has no sections of its own";
                return Err(self.error(source, whole, message));
            }
            let Some(name) = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty())
            else {
                let error = self.error(source, whole, "not the head of a section");
                return Err(error.allowed("[NAME], with nothing behind it"));
            };
            let head = Written {
                name: String::new(),
                value: String::new(),
                error: None,
                source,
                key: whole.clone(),
                place: whole,
            };
            self.lines.sections.push(Section { name: name.to_owned(), head, options: Vec::new() });
            return Ok(());
        }
        let rest = line.strip_prefix("include");
        if let Some(file) = rest.filter(|rest| rest.starts_with([' ', '\t'])) {
            return self.include(source, whole, file.trim(), depth);
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (key.trim_end(), value.trim());
        let at = from + line.len() - value.len();
        let place = if value.is_empty() { whole.clone() } else { at..at + value.len() };
        let (value, error) = match self.expand(source, place.clone(), value) {
            Ok(value) => (value, None),
            Err(error) => (value.to_owned(), Some(error)),
        };
        let (name, key) = (key.to_owned(), from..from + key.len());
        let option = Written { name, value, error, source, key, place };
        match self.lines.sections.last_mut() {
            Some(section) => section.options.push(option),
            None => {
                let error = self.error(source, whole, "an option before the first section");
                return Err(error.allowed("[global] or the [NAME] of a job above it"));
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        source: usize,
        span: Range<usize>,
        file: &str,
        depth: usize,
    ) -> Result<(), ConfigError> {
        self.includes += 1;
        if depth + 1 > INCLUDE_DEPTH_MAX || self.includes > INCLUDES_MAX {
            let error = self.error(source, span, format!("too many includes, at `{file}`"));
            return Err(error.allowed(format!(
                "{INCLUDE_DEPTH_MAX} files inside one another and {INCLUDES_MAX} in all; none that includes itself"
            )));
        }
        let path = self.lines.sources[source].beside(file);
        let read = open(&path).map_err(|error| self.error(source, span, error.to_string()))?;
        self.file(read, depth + 1)
    }

    /// Replaces `${NAME}` and the keywords.
    fn expand(
        &self,
        source: usize,
        place: Range<usize>,
        value: &str,
    ) -> Result<String, ConfigError> {
        let mut text = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("${") {
            text += before;
            let Some((name, behind)) = after.split_once('}') else {
                let error = self.error(source, place, "`${` without `}`");
                return Err(error.allowed("${NAME} of an environment variable"));
            };
            let known = self.variables.environment.iter().find(|(known, _)| known == name);
            let Some((_, found)) = known else {
                let message = format!("the environment has no variable `{name}`");
                let error = self.error(source, place, message);
                return Err(error.allowed(format!("{name}=VALUE before the command")));
            };
            text += found;
            rest = behind;
            if text.len() > VALUE_MAX {
                return Err(self.too_long(source, place));
            }
        }
        text += rest;
        let Variables { processors, memory_mib, page_bytes, .. } = self.variables;
        for (keyword, value) in
            [("$pagesize", page_bytes), ("$mb_memory", memory_mib), ("$ncpus", processors)]
        {
            text = text.replace(keyword, &value.to_string());
        }
        if text.len() > VALUE_MAX {
            return Err(self.too_long(source, place));
        }
        Ok(text)
    }
    fn too_long(&self, source: usize, place: Range<usize>) -> ConfigError {
        let error = self.error(source, place, "the value is too long");
        error.allowed(format!("{VALUE_MAX} bytes"))
    }
}
