//! A number of an experiment by its names, read from the words that reports print for it.
//!
//! `target of none-none [15 readers]` is one; `total: prop-bfq / none-none` and `heavy of cost-none / light of
//! cost-none` are one divided by another. A place without its variant takes that of the next place; behind
//! ` in `, a place names another experiment than the one that is spoken of.

use super::claim::Place;
use super::quantity::{Quantity, Subject};
use super::resolved::Experiment;

/// Where a number stands, by names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    /// The experiment: its file below `reproduction/experiments/`, without `.toml`.
    pub experiment: String,
    /// The variant; empty when the file has none.
    pub variant: String,
    /// The stack.
    pub stack: String,
    /// The number.
    pub quantity: Quantity,
}

/// A number, or one divided by another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The number.
    pub of: Spot,
    /// What it is divided by.
    pub to: Option<Spot>,
}

impl Reading {
    /// Reads the words; `experiment` is the one that is spoken of.
    pub fn parse(text: &str, experiment: &str) -> Result<Self, String> {
        let (shared, places) = match text.split_once(": ") {
            Some((quantity, places)) => (Some(quantity), places),
            None => (None, text),
        };
        let mut spots: Vec<Spot> = Vec::new();
        for place in places.split(" / ").collect::<Vec<_>>().into_iter().rev() {
            let (quantity, place) = match shared {
                Some(quantity) => (quantity, place),
                None => place.split_once(" of ").ok_or_else(|| {
                    format!("\"{place}\": write whose number it is, as in \"target of none-none\"")
                })?,
            };
            let next = spots.last().map_or("", |spot| spot.variant.as_str());
            spots.push(spot(quantity.parse()?, place, next, experiment)?);
        }
        match (spots.pop(), spots.pop(), spots.pop()) {
            (Some(of), to, None) if shared.is_none() || to.is_some() => Ok(Self { of, to }),
            _ => Err(format!("\"{text}\" is neither one place nor two with \" / \" between them")),
        }
    }

    /// Its one spot, or both.
    pub fn spots(&self) -> impl Iterator<Item = &Spot> {
        [&self.of].into_iter().chain(&self.to)
    }
}

/// `STACK [VARIANT] in EXPERIMENT`, the last two as given when absent.
fn spot(quantity: Quantity, place: &str, variant: &str, experiment: &str) -> Result<Spot, String> {
    let (stack, variant, rest) = match place.split_once(" [") {
        Some((stack, rest)) => {
            let closed = rest.split_once(']').ok_or_else(|| format!("\"{place}\": no ]"))?;
            (stack, closed.0, closed.1)
        }
        None => {
            let end = place.find(" in ").unwrap_or(place.len());
            (&place[..end], variant, &place[end..])
        }
    };
    let experiment = match rest.strip_prefix(" in ") {
        Some(other) => other,
        None if rest.is_empty() => experiment,
        None => return Err(format!("\"{place}\": what is \"{rest}\"?")),
    };
    let [experiment, variant, stack] =
        [experiment, variant, stack].map(|name| name.trim().to_owned());
    Ok(Spot { experiment, variant, stack, quantity })
}

impl Spot {
    /// The spot of a place, whose names are there.
    pub fn from_place(experiment: &Experiment, place: &Place) -> Self {
        Self {
            experiment: experiment.name.clone(),
            variant: experiment.variants[place.variant].name.clone(),
            stack: experiment.stacks[place.stack].0.clone(),
            quantity: place.quantity.clone(),
        }
    }
    /// Its place in the experiment that it names, or what there is instead.
    pub fn place(&self, experiment: &Experiment) -> Result<Place, String> {
        let unknown = |what: &str, name: &str, known: Vec<&str>| {
            let known = known.join(" | ");
            format!("{}: no {what} \"{name}\"; there are: {known}", self.experiment)
        };
        let variants = &experiment.variants;
        let names = || variants.iter().map(|variant| variant.name.as_str());
        let found = names().position(|name| name == self.variant);
        let variant = found.ok_or_else(|| unknown("variant", &self.variant, names().collect()))?;
        let stacks = || experiment.stacks.iter().map(|(name, _)| name.as_str());
        let stack = stacks().position(|name| name == self.stack);
        let stack = stack.ok_or_else(|| unknown("stack", &self.stack, stacks().collect()))?;
        if let Subject::Client(name) = &self.quantity.subject {
            let known = variants[variant].subjects.iter().map(String::as_str);
            if !known.clone().any(|subject| subject == name) {
                return Err(unknown("client that does I/O", name, known.collect()));
            }
        }
        Ok(Place { variant, stack, quantity: self.quantity.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Metric};
    use super::*;
    use crate::testing::{all_shipped, example};

    fn read(text: &str) -> Reading {
        Reading::parse(text, "a/example").expect(text)
    }

    /// Goal: what the reports print of a claim is read as that claim's places. Method: every claim about one
    /// place or two of every experiment, its variant written behind it where the report has a column for it.
    #[test]
    fn the_words_of_reports_are_read() {
        let mut count = 0;
        for experiment in all_shipped() {
            let asked = |kind: Kind| kind != Kind::Order && !kind.is_time();
            for claim in experiment.claims.iter().filter(|claim| asked(claim.kind)) {
                let variant = |place: &Place| experiment.variants[place.variant].name.as_str();
                let last = claim.places.last().expect("at least one place");
                let mut text = claim.text.clone();
                if !text.ends_with(']') && !variant(last).is_empty() {
                    text += &format!(" [{}]", variant(last));
                }
                let reading = Reading::parse(&text, &experiment.name).expect(&text);
                let places: Vec<_> =
                    reading.spots().map(|spot| spot.place(&experiment).expect(&text)).collect();
                assert_eq!(places, claim.places, "{text}");
                count += 1;
            }
        }
        assert!(count > 100, "{count} claims");
    }

    /// Goal: the parts that reports do not print. Method: another experiment, an own variant, a metric.
    #[test]
    fn unprinted_parts_are_read() {
        let reading = read("target p99 of none-none [rand] in b/other / total of again [seq]");
        let of = Spot {
            experiment: "b/other".into(),
            variant: "rand".into(),
            stack: "none-none".into(),
            quantity: Quantity::of_client("target", Metric::P99),
        };
        let to = Spot {
            experiment: "a/example".into(),
            variant: "seq".into(),
            stack: "again".into(),
            quantity: Quantity::TOTAL,
        };
        assert_eq!(reading, Reading { of, to: Some(to) });
        let reading = read("total: rlat 10 ms in b/other / again [seq]");
        assert_eq!((&*reading.of.stack, &*reading.of.variant), ("rlat 10 ms", "seq"));
        assert_eq!(reading.of.experiment, "b/other");
    }

    /// Goal: nonsense is refused. Method: one text a rule.
    #[test]
    fn other_words_are_refused() {
        for wrong in [
            "",
            "target",
            "target: none-none",
            "target of a / target of b / target of c",
            "target p98 of none-none",
            "target of none-none [rand",
            "target of none-none [rand] or so",
        ] {
            assert!(Reading::parse(wrong, "a/example").is_err(), "{wrong}");
        }
        for (wrong, there) in [
            ("target of none-none", "\"rand, N=4\""),
            ("target of max-none [rand, N=4]", "none-none | again"),
            ("idle of again [rand, N=4]", "target | reader"),
        ] {
            let error = read(wrong).of.place(&example()).expect_err(wrong);
            assert!(error.contains(there.trim_matches('"')), "{error}");
        }
        assert!(read("target of again [rand, N=4]").of.place(&example()).is_ok());
    }
}
