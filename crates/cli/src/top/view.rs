//! What the user chose, and what keys do.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::numbers::{Look, Row};

/// Smallest and largest weight there is.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1000;

/// By what groups of one level are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Name,
    Share,
    Rate,
    Wait,
}

impl Sort {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Share => "share",
            Self::Rate => "rate",
            Self::Wait => "wait",
        }
    }
    const fn next(self) -> Self {
        match self {
            Self::Name => Self::Share,
            Self::Share => Self::Rate,
            Self::Rate => Self::Wait,
            Self::Wait => Self::Name,
        }
    }
}

/// What a key asks of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    None,
    Quit,
    Weight { group: String, weight: u32 },
}

/// Everything a frame shows.
pub(crate) struct View {
    pub(crate) look: Look,
    pub(crate) before: Option<Look>,
    pub(crate) sort: Sort,
    /// Show why instead of times.
    pub(crate) whys: bool,
    /// The chosen group, by name: rows move.
    pub(crate) chosen: Option<String>,
    folded: BTreeSet<String>,
    /// A weight that is being typed.
    pub(crate) typed: Option<String>,
    /// What happened last, until the next key.
    pub(crate) message: Option<String>,
}

impl View {
    pub(crate) fn new(look: Look) -> Self {
        let chosen = look.groups.first().map(|group| group.name.clone());
        Self {
            look,
            before: None,
            sort: Sort::Name,
            whys: false,
            chosen,
            folded: BTreeSet::new(),
            typed: None,
            message: None,
        }
    }
    pub(crate) fn update(&mut self, fresh: Look) {
        // A server that was started anew counts anew.
        let same = fresh.uptime_seconds >= self.look.uptime_seconds;
        let old = std::mem::replace(&mut self.look, fresh);
        self.before = same.then_some(old);
        let known = |name: &String| self.look.groups.iter().any(|group| group.name == *name);
        if !self.chosen.as_ref().is_some_and(known) {
            self.chosen = self.look.groups.first().map(|group| group.name.clone());
        }
    }
    pub(crate) fn say(&mut self, message: String) {
        self.message = Some(message);
    }
    pub(crate) fn is_folded(&self, name: &str) -> bool {
        self.folded.contains(name)
    }

    /// The rows in sight: a tree, each level sorted, folded groups without what is in them.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let all = self.look.rows(self.before.as_ref());
        let mut rows = Vec::with_capacity(all.len());
        self.add_level(&all, "", &mut rows);
        rows
    }
    fn add_level(&self, all: &[Row], parent: &str, rows: &mut Vec<Row>) {
        let mut level: Vec<&Row> = all.iter().filter(|row| row.group.parent() == parent).collect();
        level.sort_by(|a, b| self.compare(a, b).then_with(|| a.group.name.cmp(&b.group.name)));
        for row in level {
            rows.push(row.clone());
            if !self.is_folded(&row.group.name) {
                self.add_level(all, &row.group.name, rows);
            }
        }
    }
    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let wait = |row: &Row| row.p99.iter().flatten().copied().fold(0.0, f64::max);
        match self.sort {
            Sort::Name => Ordering::Equal,
            Sort::Share => b.group.share_got.total_cmp(&a.group.share_got),
            Sort::Rate => b.group.bytes_per_second.cmp(&a.group.bytes_per_second),
            Sort::Wait => wait(b).total_cmp(&wait(a)),
        }
    }

    /// A key was pressed.
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Action {
        self.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Action::Quit;
        }
        if let Some(typed) = self.typed.take() {
            return self.on_digit(typed, key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Left | KeyCode::Char('h') => self.fold(true),
            KeyCode::Right | KeyCode::Char('l') => self.fold(false),
            KeyCode::Char(' ') | KeyCode::Enter => {
                let folded = self.chosen.as_deref().is_some_and(|name| self.is_folded(name));
                self.fold(!folded);
            }
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('w') => self.whys = !self.whys,
            KeyCode::Char('e') => self.typed = self.chosen.is_some().then(String::new),
            KeyCode::Char('+' | '=') => return self.scale(|weight| weight + (weight / 10).max(1)),
            KeyCode::Char('-') => return self.scale(|weight| weight - (weight / 10).max(1)),
            _ => {}
        }
        Action::None
    }
    /// A weight is typed in: digits, backspace, enter; anything else calls it off.
    fn on_digit(&mut self, mut typed: String, key: KeyCode) -> Action {
        match key {
            KeyCode::Char(digit @ '0'..='9') if typed.len() < 4 => typed.push(digit),
            KeyCode::Char('0'..='9') => {}
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Enter => {
                let weight = typed.parse().ok().filter(|weight| WEIGHTS.contains(weight));
                if let (Some(weight), Some(group)) = (weight, self.chosen.clone()) {
                    return Action::Weight { group, weight };
                }
                let (low, high) = (WEIGHTS.start(), WEIGHTS.end());
                self.say(format!("a weight is a number from {low} to {high}"));
                return Action::None;
            }
            _ => return Action::None,
        }
        self.typed = Some(typed);
        Action::None
    }
    fn scale(&self, change: impl FnOnce(u32) -> u32) -> Action {
        let chosen = self.look.groups.iter().find(|g| Some(&g.name) == self.chosen.as_ref());
        let Some(group) = chosen else { return Action::None };
        let weight = change(group.weight).clamp(*WEIGHTS.start(), *WEIGHTS.end());
        Action::Weight { group: group.name.clone(), weight }
    }
    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let at = rows.iter().position(|row| Some(&row.group.name) == self.chosen.as_ref());
        let last = rows.len().saturating_sub(1);
        let next = at.map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.chosen = rows.get(next).map(|row| row.group.name.clone());
    }
    fn fold(&mut self, fold: bool) {
        let Some(name) = self.chosen.clone() else { return };
        if fold && !self.is_folded(&name) {
            let inside = format!("{name}/");
            let holds = self.look.groups.iter().any(|group| group.name.starts_with(&inside));
            match name.rsplit_once('/') {
                // Nothing to fold: up to the group that holds it.
                Some((above, _)) if !holds => self.chosen = Some(above.to_string()),
                _ => drop(self.folded.insert(name)),
            }
        } else if !fold {
            self.folded.remove(&name);
        }
    }
}
