//! Where a claim comes from.

use serde::{Deserialize, Serialize};

/// Where a claim comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A number or an order that the source prints.
    Published,
    /// The source's prose, or arithmetic on its numbers; the claim quotes the sentence or the row.
    Derived,
    /// Our own: the source does not say it.
    Own,
    /// Follows from another claim, or cannot fail.
    Implied,
}

impl Basis {
    /// All, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Published, Self::Derived, Self::Own, Self::Implied];
    /// As it is written in files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Derived => "derived",
            Self::Own => "own",
            Self::Implied => "implied",
        }
    }
}

/// What a claim says of its basis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Where it comes from.
    pub basis: Basis,
    /// The sentence or row of the source; empty when none is quoted.
    pub quote: String,
    /// The claim from which an implied one follows: its words, with ` [VARIANT]` where the file has variants, and
    /// ` in EXPERIMENT` where it is another file's; or [`super::basis::SET_UP`] and what of it makes the claim certain.
    pub follows: String,
}
