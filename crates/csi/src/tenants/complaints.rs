//! Complaints of the loop: each is logged when it begins, and not again in every round.

use iofair_serve::log;
use std::collections::HashSet;

/// What was complained of in the round before and in the present one.
#[derive(Default, Debug)]
pub(super) struct Complaints {
    before: HashSet<String>,
    now: HashSet<String>,
}

impl Complaints {
    /// A round begins.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
    /// Logs a complaint of the present round, unless the round before had the same one.
    pub(super) fn add(&mut self, complaint: String) {
        if self.is_new(&complaint) {
            log::line(&complaint);
        }
        self.now.insert(complaint);
    }
    fn is_new(&self, complaint: &str) -> bool {
        !self.before.contains(complaint) && !self.now.contains(complaint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a complaint is new when it begins, not while it lasts, and new again after a round without it.
    #[test]
    fn a_complaint_is_logged_when_it_begins() {
        let mut complaints = Complaints::default();
        let mut round = |all: &[&str]| {
            complaints.begin();
            let is_new = |text: &&str| complaints.is_new(text);
            let new: Vec<String> = all.iter().copied().filter(is_new).map(String::from).collect();
            all.iter().for_each(|text| complaints.add((*text).to_string()));
            new
        };
        assert_eq!(round(&["a"]), ["a"]);
        assert_eq!(round(&["a", "b"]), ["b"]);
        assert_eq!(round(&["b"]), [""; 0]);
        assert_eq!(round(&["a"]), ["a"]);
    }
}
