//! What the search finds.

use std::fmt;

/// A promise counts as kept with this much of it, in hundredths: all of the time measured, and each second.
pub(super) const KEPT: u64 = 97;
pub(super) const KEPT_SECOND: u64 = 90;
/// A client without a minimum starves below this part of its share of what promises leave, in hundredths.
pub(super) const STARVED: u64 = 25;
/// Another stack beats `promise` by more than this, in hundredths of its total.
pub(super) const BEATEN: u64 = 108;
/// What time slicing leaves counts as reached with this much of it, in hundredths.
pub(super) const SLICED: u64 = 90;

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A minimum is not kept.
    Broken,
    /// It is not kept in a second.
    Second,
    /// A client has less than a part of its share.
    Starved,
    /// Another stack serves everybody better.
    Beaten,
    /// All have less than time slicing would leave.
    Sliced,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Broken, Self::Second, Self::Starved, Self::Beaten, Self::Sliced];
    /// Its name in reproduction/evidence/search.csv.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Second => "second",
            Self::Starved => "starved",
            Self::Beaten => "beaten",
            Self::Sliced => "sliced",
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The client, or the stack that is better.
    pub of: String,
    /// Bytes a second: the minimum, the share, or what another stack carries.
    pub expected: u64,
    /// What there was of it, of all together if it is not about a client.
    pub got: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [got, expected] = [self.got, self.expected].map(|rate| rate as f64 / 1e6);
        write!(f, "{}: {} {got:.3} of {expected:.3} MB/s", self.kind.name(), self.of)
    }
}
