//! What a source claims, and whether our runs bear it out.
//!
//! A claim is a band for one number, a band for the ratio of two, or an order of several. It says
//! nothing of *some* number having moved (goldens do that) but whether the published statement holds.

use iofair_core::time::Nanos;
use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::quantity::Quantity;

/// Smallest quotient of neighbours that makes an order: a tie within the noise of a run is none.
pub const ORDER_STEP: f64 = 1.01;
/// Over which `rises_at` averages.
pub const SECOND: Nanos = Nanos::from_secs(1);

/// Where a number is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index of the variant.
    pub variant: usize,
    /// Index of the stack.
    pub stack: usize,
    /// The number.
    pub quantity: Quantity,
}

/// What kind of claim, the closed list of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `of` is at least `value`.
    AtLeast,
    /// `of` is at most `value`.
    AtMost,
    /// `of` divided by the same quantity elsewhere (`to`) lies in the band.
    Ratio,
    /// `of` grows by [`ORDER_STEP`] or more from place to place of `order`.
    Order,
    /// `of` lies in the band; without a band, only printed beside the published value.
    Within,
    /// When `of`, a mean latency by intervals, falls below `value` times that at `to`, for good.
    FallsAt,
    /// When `of`, a rate over each second, rises to `value`, for good.
    RisesAt,
    /// When `of`, a rate by intervals, comes within `value` times its later mean of that mean, for good.
    SettlesAt,
}

impl Kind {
    /// Whether its number is a time, read off the intervals of a run.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::FallsAt | Self::RisesAt | Self::SettlesAt)
    }
}

/// One published statement about this experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// What kind.
    pub kind: Kind,
    /// In words.
    pub text: String,
    /// Where to read: one place; two for a ratio; two or more for an order, followed by as many that these are divided by
    /// if it is an order of quotients.
    pub places: Vec<Place>,
    /// Whether it is an order of quotients.
    pub per: bool,
    /// Unit of the numbers below.
    pub unit: &'static str,
    /// What the source prints.
    pub published: Option<f64>,
    /// Lower end of the band, itself allowed.
    pub low: Option<f64>,
    /// Upper end of the band, itself allowed.
    pub high: Option<f64>,
    /// Below which part of the second place's a latency must fall; to which rate one must rise; how near to its mean one must
    /// settle, as a part of it.
    pub part: f64,
    /// Must hold for the experiment to count as reproduced.
    pub hard: bool,
    /// Where it comes from.
    pub origin: Origin,
    /// Line of the source.
    pub reference: String,
    /// Mechanism of a miss.
    pub why: String,
}

/// Whether a claim holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our number is in the band, our order is the source's.
    Holds,
    /// It is not.
    DoesNotHold,
    /// There is no band: the numbers are only shown side by side.
    Informative,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::Informative => "informative",
        }
    }
}

impl Claim {
    /// Our number and the verdict, from the value at each place.
    pub fn judge(&self, values: &[f64]) -> (f64, Verdict) {
        let number = self.number(values);
        (number, self.verdict(number))
    }
    /// Our number, from the value at each place. An order's number is the smallest quotient of neighbours, which is at least
    /// [`ORDER_STEP`] exactly when the order holds.
    pub fn number(&self, values: &[f64]) -> f64 {
        assert_eq!(values.len(), self.places.len(), "one value a place");
        match self.kind {
            Kind::Ratio => values[0] / values[1],
            Kind::Order => {
                let (values, per) = values.split_at(self.ordered());
                let at = |at: usize| if self.per { values[at] / per[at] } else { values[at] };
                let quotients = (1..values.len()).map(|next| at(next) / at(next - 1));
                // Not `f64::min`, which would pass over a quotient that is no number.
                quotients.fold(f64::INFINITY, |least, q| if q >= least { least } else { q })
            }
            // A time is the first value already: see `Results::number`.
            _ => values[0],
        }
    }
    /// How many places are in order.
    fn ordered(&self) -> usize {
        if self.per { self.places.len() / 2 } else { self.places.len() }
    }
    /// What a number says.
    pub fn verdict(&self, got: f64) -> Verdict {
        let holds = match self.kind {
            Kind::Order => got >= ORDER_STEP,
            _ if self.low.is_none() && self.high.is_none() => return Verdict::Informative,
            // Written so that a number that is none (0/0) fails.
            _ => self.low.is_none_or(|low| got >= low) && self.high.is_none_or(|high| got <= high),
        };
        if holds { Verdict::Holds } else { Verdict::DoesNotHold }
    }
}
