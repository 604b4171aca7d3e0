//! Options as they are written, and why one cannot be used.

use std::ops::Range;

use crate::error::ConfigError;
use crate::source::Source;

/// Most problems of a file.
pub(super) const PROBLEMS_MAX: usize = 100;

/// An option in a file.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) value: String,
    /// Why a variable in the value could not be replaced.
    pub(super) error: Option<ConfigError>,
    pub(super) source: usize,
    /// Of the name and of the value, in the source's text.
    pub(super) key: Range<usize>,
    pub(super) place: Range<usize>,
}

impl Written {
    /// As it may stand in a file.
    pub(super) fn shown(&self) -> String {
        let equals = if self.value.is_empty() { "" } else { "=" };
        format!("{}{equals}{}", self.name, self.value)
    }
}

/// Why a value was refused.
pub(super) struct Bad {
    message: String,
    allowed: Option<String>,
    near: Option<(String, Vec<&'static str>)>,
    /// About the option's name, not its value.
    about_name: bool,
    /// fio can do it, the model cannot.
    unsupported: bool,
}

impl Bad {
    pub(super) fn new(message: impl Into<String>) -> Self {
        let (allowed, near) = (None, None);
        Self { message: message.into(), allowed, near, about_name: false, unsupported: false }
    }
    /// A word, or nothing, where there should be something else.
    pub(super) fn no_word(word: &str, wanted: &str) -> Self {
        match word {
            "" => Self::new(format!("a {wanted} is missing")),
            _ => Self::new(format!("`{word}` is not a {wanted}")),
        }
    }
    /// What fio can do and the model cannot.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self { unsupported: true, ..Self::new(message) }
    }
    pub(super) fn about_name(self) -> Self {
        Self { about_name: true, ..self }
    }
    /// Whether the file can be used without it.
    pub(super) fn is_unsupported(&self) -> bool {
        self.unsupported
    }
    pub(super) fn allowed(mut self, what: impl Into<String>) -> Self {
        self.allowed = Some(what.into());
        self
    }
    pub(super) fn near(
        mut self,
        written: &str,
        candidates: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        self.near = Some((written.to_owned(), candidates.into_iter().collect()));
        self
    }
    /// Without a place.
    pub(super) fn into_message(self) -> String {
        match self.allowed {
            Some(allowed) => format!("{}; allowed: {allowed}", self.message),
            None => self.message,
        }
    }
    pub(super) fn at(self, source: &Source, written: &Written) -> ConfigError {
        let span = if self.about_name { written.key.clone() } else { written.place.clone() };
        let has_value = self.message.contains(&format!("`{}`", written.value));
        let message = match (self.about_name, has_value) {
            (true, _) => self.message,
            (false, true) => format!("option `{}`: {}", written.name, self.message),
            (false, false) => format!("option `{}`: {}", written.shown(), self.message),
        };
        let mut error = source.error(span, message);
        if let Some(allowed) = self.allowed {
            error = error.allowed(allowed);
        }
        match self.near {
            Some((word, candidates)) => error.near(&word, candidates),
            None => error,
        }
    }
}

/// Why a file cannot be used as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What is wrong, and where.
    pub error: ConfigError,
    /// What is left out if the file is used all the same, such as `nrfiles=8`; `None`: it cannot be used.
    pub unsupported: Option<String>,
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        Self { error, unsupported: None }
    }
}

/// Adds a problem, once; all of them are the error if there are too many.
pub(super) fn add(problems: &mut Vec<Problem>, problem: Problem) -> Result<(), ConfigError> {
    if problems.contains(&problem) || is_said(problems, problem.unsupported.as_deref()) {
        return Ok(());
    }
    problems.push(problem);
    if problems.len() <= PROBLEMS_MAX {
        return Ok(());
    }
    let mut errors: Vec<ConfigError> = problems.drain(..).map(|problem| problem.error).collect();
    let last = &mut errors[PROBLEMS_MAX];
    *last = ConfigError { message: "too many problems".to_owned(), nearest: None, ..last.clone() }
        .allowed(format!("{PROBLEMS_MAX} before no more are looked for"));
    Err(ConfigError::of_all(errors).expect("there are some"))
}

/// Whether the same option is already reported at so many places that this one need not be.
pub(super) fn is_said(problems: &[Problem], unsupported: Option<&str>) -> bool {
    let same = |old: &Problem| unsupported.is_some() && old.unsupported.as_deref() == unsupported;
    problems.len() >= PROBLEMS_MAX && problems.iter().any(same)
}
