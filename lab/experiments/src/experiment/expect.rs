//! Claims of a file, from its `[[expect]]` tables.

use core::ops::Range;

use iofair_config::{ConfigError, Source};
use iofair_core::time::Nanos;

use super::basis;
use super::claim::{Claim, Kind, Place, SECOND};
use super::file::{ExpectFile, ExperimentFile, Number, PlaceTable, Several};
use super::quantity::{Metric, Quantity, Subject, parse_value};
use super::resolved::Experiment;

/// The claims of a file about the stacks and variants of `experiment`, and how many were left out
/// because they speak of stacks that are in the file but not run.
pub(super) fn resolve(
    source: &Source,
    file: &ExperimentFile,
    experiment: &Experiment,
) -> Result<(Vec<Claim>, usize), ConfigError> {
    let (mut claims, mut left_out) = (Vec::new(), 0);
    for expect in &file.expect {
        let resolver = Resolver { source, file, experiment, expect };
        for variant in resolver.variants()? {
            for stack in resolver.stacks()? {
                match resolver.claim(variant, stack.as_deref())? {
                    Some(claim) => claims.push(claim),
                    None => left_out += 1,
                }
            }
        }
    }
    Ok((claims, left_out))
}

struct Resolver<'a> {
    source: &'a Source,
    file: &'a ExperimentFile,
    experiment: &'a Experiment,
    expect: &'a ExpectFile,
}

impl Resolver<'_> {
    fn kind(&self) -> Kind {
        *self.expect.kind.get_ref()
    }
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        self.source.error(span, message)
    }
    fn kind_error(&self, message: &str) -> ConfigError {
        self.error(self.expect.kind.span(), message)
    }

    fn variants(&self) -> Result<Vec<usize>, ConfigError> {
        let Some(several) = &self.expect.variant else {
            return Ok((0..self.experiment.variants.len()).collect());
        };
        let names = several.get_ref().as_slice().iter();
        names.map(|name| self.variant(name, several.span())).collect()
    }
    fn variant(&self, name: &str, span: Range<usize>) -> Result<usize, ConfigError> {
        let all = &self.experiment.variants;
        all.iter().position(|v| v.name == name).ok_or_else(|| {
            let known = all.iter().map(|v| v.name.as_str());
            let error = self.error(span, format!("no variant `{name}`"));
            error.allowed(known.clone().collect::<Vec<_>>().join(" | ")).near(name, known)
        })
    }
    fn stacks(&self) -> Result<Vec<Option<String>>, ConfigError> {
        match (&self.expect.stack, self.experiment.stacks.as_slice()) {
            (Some(several), _) => {
                let names: &[String] = Several::as_slice(several.get_ref());
                names.iter().try_for_each(|name| self.stack(name, several.span()).map(|_| ()))?;
                Ok(names.iter().cloned().map(Some).collect())
            }
            (None, _) if self.kind() == Kind::Order => Ok(vec![None]),
            (None, _) => Err(self.kind_error("this claim needs `stack`")),
        }
    }
    /// A stack's index; `None` when the file has it but it is not run.
    fn stack(&self, name: &str, span: Range<usize>) -> Result<Option<usize>, ConfigError> {
        let run = self.experiment.stacks.iter().position(|(stack, _)| stack == name);
        let known = self.file.stacks.iter().map(|stack| stack.get_ref().as_str());
        if run.is_some() || known.clone().any(|stack| stack == name) {
            return Ok(run);
        }
        let error = self.error(span, format!("no stack `{name}` in this file"));
        Err(error.allowed(known.clone().collect::<Vec<_>>().join(", ")).near(name, known))
    }
    fn quantity(
        &self,
        text: &str,
        span: Range<usize>,
        variant: usize,
    ) -> Result<Quantity, ConfigError> {
        let quantity: Quantity = text.parse().map_err(|e: String| self.error(span.clone(), e))?;
        let Subject::Client(name) = &quantity.subject else { return Ok(quantity) };
        let time = self.experiment.variants[variant].time;
        let whole = |interval: Nanos| time.0.is_multiple_of(interval.0);
        if quantity.metric == Metric::Least && !self.experiment.interval.is_some_and(whole) {
            let message = "`least` needs the file's `interval`, and `time` a multiple of it";
            return Err(self.error(span, message));
        }
        let known = &self.experiment.variants[variant].subjects;
        if known.contains(name) {
            return Ok(quantity);
        }
        let error = self.error(span, format!("no client `{name}` that does I/O"));
        let allowed = format!("total, {}", known.join(", "));
        Err(error.allowed(allowed).near(name, known.iter().map(String::as_str)))
    }

    /// A place that differs from the claim's own in what `table` says.
    fn place(
        &self,
        variant: usize,
        stack: Option<&str>,
        table: &PlaceTable,
        span: Range<usize>,
    ) -> Result<Option<Place>, ConfigError> {
        let variant = match &table.variant {
            Some(name) => self.variant(name, span.clone())?,
            None => variant,
        };
        let Some(stack) = table.stack.as_deref().or(stack) else {
            return Err(self.error(span, "which `stack`?"));
        };
        let stack = self.stack(stack, span.clone())?;
        let (of, span) = match &table.of {
            Some(of) => (of, span),
            None => (self.expect.of.get_ref(), self.expect.of.span()),
        };
        let quantity = self.quantity(of, span, variant)?;
        Ok(stack.map(|stack| Place { variant, stack, quantity }))
    }

    fn claim(&self, variant: usize, stack: Option<&str>) -> Result<Option<Claim>, ConfigError> {
        let (kind, expect) = (self.kind(), self.expect);
        let mut tables = Vec::new();
        match (kind, &expect.to, &expect.order) {
            (kind, ..) if kind.is_time() && self.experiment.interval.is_none() => {
                return Err(self.kind_error("this needs the file's `interval`"));
            }
            (Kind::Ratio | Kind::FallsAt, Some(to), None) => {
                tables.push((PlaceTable::default(), expect.of.span()));
                tables.push((to.get_ref().table(), to.span()));
            }
            (Kind::Ratio | Kind::FallsAt, ..) => {
                return Err(self.kind_error("this needs `to`, no `order`"));
            }
            (Kind::Order, None, Some(order)) if order.get_ref().len() >= 2 => {
                let places = order.get_ref().iter();
                tables.extend(places.map(|place| (place.table(), order.span())));
            }
            (Kind::Order, ..) => {
                return Err(self.kind_error("an order needs `order` with two places or more"));
            }
            (_, None, None) => tables.push((PlaceTable::default(), expect.of.span())),
            _ => return Err(self.kind_error("`to` is for a ratio, `order` for an order")),
        }
        let mut places = Vec::new();
        for (table, span) in &tables {
            match self.place(variant, stack, table, span.clone())? {
                Some(place) => places.push(place),
                None => return Ok(None),
            }
        }
        let per = self.divisors(&mut places)?;
        if kind == Kind::FallsAt && places.iter().any(|place| !place.quantity.is_client_mean()) {
            let error = self.error(expect.of.span(), "falls_at is about a client's mean latency");
            return Err(error.allowed("such as \"target mean\""));
        }
        if matches!(kind, Kind::RisesAt | Kind::SettlesAt) {
            self.check_rate(kind, &places[0])?;
        }
        let of_quantity = places[0].quantity.unit(self.experiment.units);
        let unit = match kind {
            Kind::Ratio | Kind::Order => "",
            kind if kind.is_time() => "s",
            _ => of_quantity,
        };
        let (published, low, high) = self.band(kind, unit)?;
        let part = self.part(kind, of_quantity)?;
        Ok(Some(Claim {
            kind,
            per,
            text: self.text(kind, &places, part, per),
            places,
            unit,
            published,
            low,
            high,
            part,
            hard: expect.hard,
            origin: basis::origin(self.source, self.file, expect, kind)?,
            reference: expect.reference.clone(),
            why: expect.why.clone(),
        }))
    }

    /// Adds the places that those of an order are divided by, if it is one of quotients; says whether it is.
    fn divisors(&self, places: &mut Vec<Place>) -> Result<bool, ConfigError> {
        let Some(per) = &self.expect.per else { return Ok(false) };
        let error = |message: &str| Err(self.error(per.span(), message));
        let PlaceTable { stack: None, variant: Some(variant), of: None } = per.get_ref() else {
            return error("`per` has a `variant` and nothing else");
        };
        if self.kind() != Kind::Order {
            return error("`per` is for an order");
        }
        let variant = self.variant(variant, per.span())?;
        for index in 0..places.len() {
            let Place { stack, quantity, .. } = &places[index];
            let quantity = self.quantity(&quantity.to_string(), per.span(), variant)?;
            places.push(Place { variant, stack: *stack, quantity });
        }
        Ok(true)
    }

    /// Rates by intervals are there of whole intervals only, and of whole seconds.
    fn check_rate(&self, kind: Kind, place: &Place) -> Result<(), ConfigError> {
        if place.quantity.metric != Metric::Rate {
            let error = self.error(self.expect.of.span(), "this is about a rate");
            return Err(error.allowed("such as \"target\" or \"total\""));
        }
        let time = self.experiment.variants[place.variant].time;
        let parts = |whole: Nanos| {
            self.experiment.interval.is_some_and(|interval| whole.0.is_multiple_of(interval.0))
        };
        if !parts(time) || kind == Kind::RisesAt && !parts(SECOND) {
            let message = "`time` and a second must be multiples of `interval` here";
            return Err(self.kind_error(message));
        }
        Ok(())
    }

    /// The part of a latency or mean, or the rate, that a time is read off at; 1 for other kinds.
    fn part(&self, kind: Kind, unit: &'static str) -> Result<f64, ConfigError> {
        if !kind.is_time() {
            return Ok(1.0);
        }
        let Some(value) = &self.expect.value else {
            return Err(self.kind_error("this needs `value`, a part such as 0.7 or a rate"));
        };
        let is_part = kind != Kind::RisesAt;
        match value.get_ref() {
            Number::Float(part) if is_part => Ok(*part),
            Number::Integer(part) if is_part => Ok(*part as f64),
            Number::Text(text) if !is_part => {
                parse_value(text, unit).map_err(|message| self.error(value.span(), message))
            }
            _ if is_part => Err(self.error(value.span(), "a part is a plain number")),
            _ => Err(self.error(value.span(), "a rate has its unit, such as \"10MB/s\"")),
        }
    }

    /// Published value, lower and upper end.
    fn band(&self, kind: Kind, unit: &'static str) -> Result<Band, ConfigError> {
        let read = |number: &Option<iofair_config::Spanned<Number>>| {
            let Some(number) = number else { return Ok(None) };
            let value = match (number.get_ref(), unit) {
                (Number::Float(value), "") => Ok(*value),
                (Number::Integer(value), "") => Ok(*value as f64),
                (Number::Text(text), unit) if !unit.is_empty() => parse_value(text, unit),
                (_, "") => Err("a ratio is a plain number".to_owned()),
                _ => Err(format!("a number needs its unit here, such as \"10{unit}\"")),
            };
            value.map(Some).map_err(|message| self.error(number.span(), message))
        };
        let expect = self.expect;
        let published = read(&expect.published)?;
        let value = if kind.is_time() { None } else { read(&expect.value)? };
        let (mut low, mut high) = (read(&expect.low)?, read(&expect.high)?);
        if let Some(band) = &expect.band {
            let percent = band.get_ref().strip_suffix('%').and_then(|p| p.parse::<f64>().ok());
            let (Some(percent), Some(middle)) = (percent, published) else {
                let message = "`band` is a percentage of `published`, such as \"12%\"";
                return Err(self.error(band.span(), message));
            };
            low = low.or(Some(middle * (1.0 - percent / 100.0)));
            high = high.or(Some(middle * (1.0 + percent / 100.0)));
        }
        let banded = low.is_some() || high.is_some();
        match (kind, value) {
            (Kind::AtLeast, Some(value)) if !banded => Ok((published, Some(value), None)),
            (Kind::AtMost, Some(value)) if !banded => Ok((published, None, Some(value))),
            (Kind::AtLeast | Kind::AtMost, _) => {
                Err(self.kind_error("at_least and at_most need `value` and no band"))
            }
            (Kind::Order, None) if !banded && published.is_none() => Ok((None, None, None)),
            (Kind::Order, _) => Err(self.kind_error("an order has no numbers")),
            (_, None) if banded || published.is_some() => Ok((published, low, high)),
            _ => Err(self.kind_error("this needs `published`, or `low` and `high`, no `value`")),
        }
    }

    fn text(&self, kind: Kind, places: &[Place], part: f64, per: bool) -> String {
        if per {
            let (places, divisors) = places.split_at(places.len() / 2);
            let variant = &self.experiment.variants[divisors[0].variant].name;
            return format!("{}, each / [{variant}]", self.text(kind, places, part, false));
        }
        let first = &places[0];
        let unit = first.quantity.unit(self.experiment.units);
        let name = |place: &Place| self.experiment.stacks[place.stack].0.clone();
        let same = |of: fn(&Place) -> String| places.iter().all(|p| of(p) == of(first));
        let quantity = |place: &Place| place.quantity.to_string();
        let same_quantity = same(|p| p.quantity.to_string());
        let same_variant = same(|p| p.variant.to_string());
        let full = |place: &Place| {
            let mut text = name(place);
            if !same_quantity {
                text = format!("{} of {text}", quantity(place));
            }
            if !same_variant {
                text = format!("{text} [{}]", self.experiment.variants[place.variant].name);
            }
            text
        };
        let what = quantity(first);
        match kind {
            Kind::Order | Kind::Ratio => {
                let joint = if kind == Kind::Order { " < " } else { " / " };
                let all = places.iter().map(full).collect::<Vec<_>>().join(joint);
                if same_quantity { format!("{what}: {all}") } else { all }
            }
            Kind::AtLeast | Kind::AtMost | Kind::Within => format!("{what} of {}", name(first)),
            Kind::RisesAt => format!("{what} of {} rises to {part} {unit}", name(first)),
            Kind::SettlesAt => {
                format!("{what} of {} settles within {part} of its mean", name(first))
            }
            Kind::FallsAt => {
                format!(
                    "{what} of {} falls below {part} of that of {}",
                    name(first),
                    full(&places[1])
                )
            }
        }
    }
}

type Band = (Option<f64>, Option<f64>, Option<f64>);
