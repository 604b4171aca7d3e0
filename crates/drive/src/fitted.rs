//! Which published rows chose the numbers of a file: its list `[[fitted_on]]`.
//!
//! ```toml
//! [[fitted_on]]
//! experiment = "mails-2019/plextor"     # a file below reproduction/experiments/, without .toml
//! variant = "15 readers"                # one or several; all when absent
//! stack = "none-none"                   # one or several; all when absent
//! chose = "deep-queue.overtakes"        # what these rows chose
//! ```
//!
//! Drive profiles have such a list, and so may every other file of numbers that were chosen by rows. A claim about a
//! listed run is fitted: `experiment::basis` of the simulator decides that.

use serde::Deserialize;

/// One entry of a list.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedOn {
    /// The experiment: its file below `reproduction/experiments/`, without `.toml`.
    pub experiment: String,
    /// The variants; all when absent.
    pub variant: Option<Names>,
    /// The stacks; all when absent.
    pub stack: Option<Names>,
    /// What was chosen by these rows.
    pub chose: String,
    /// The line of the file on which the entry begins, from 1; see [`lines`].
    #[serde(skip)]
    pub line: usize,
}

/// One name or several.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Names {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl FittedOn {
    /// Whether a run of this experiment is listed.
    pub fn lists(&self, experiment: &str, variant: &str, stack: &str) -> bool {
        let has = |names: &Option<Names>, name: &str| {
            names.as_ref().is_none_or(|names| names.as_slice().iter().any(|listed| listed == name))
        };
        self.experiment == experiment && has(&self.variant, variant) && has(&self.stack, stack)
    }
}

/// Sets the line of each entry of the list in `text`, the file that they were read from.
pub fn lines(entries: &mut [FittedOn], text: &str) {
    let heads = text.lines().enumerate().filter(|(_, line)| line.trim() == "[[fitted_on]]");
    for (entry, (index, _)) in entries.iter_mut().zip(heads) {
        entry.line = index + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        fitted_on: Vec<FittedOn>,
    }

    /// Goal: an entry lists what it names, and all where it names nothing; and knows its line. Method: one of each.
    #[test]
    fn entries_list_runs() {
        let text = "[[fitted_on]]\nexperiment = 'a/b'\nvariant = ['x', 'y']\nchose = 'link'\n\n\
                    [[fitted_on]]\nexperiment = 'a/c'\nstack = 's'\nchose = 'page'\n";
        let mut all = toml::from_str::<File>(text).unwrap().fitted_on;
        lines(&mut all, text);
        assert_eq!((all[0].line, all[1].line), (1, 6));
        assert!(all[0].lists("a/b", "x", "s") && all[0].lists("a/b", "y", "t"));
        assert!(!all[0].lists("a/b", "z", "s") && !all[0].lists("a/c", "x", "s"));
        assert!(all[1].lists("a/c", "x", "s") && !all[1].lists("a/c", "x", "t"));
        assert!(toml::from_str::<File>("[[fitted_on]]\nexperiment = 'a'\nchos = ''").is_err());
    }
}
