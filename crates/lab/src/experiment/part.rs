//! A part of an experiment, and how long it takes.

use iofair_core::time::Nanos;

use super::expand::{Experiment, Variant};

impl Experiment {
    /// Keeps the variants of these names; claims about others are left out.
    pub fn keep_variants(&mut self, names: &[String]) -> Result<(), String> {
        let known = |name: &&String| !self.variants.iter().any(|it| it.name == **name);
        if let Some(unknown) = names.iter().find(known) {
            let all: Vec<String> =
                self.variants.iter().map(|it| format!("{:?}", it.name)).collect();
            let (file, all) = (&self.name, all.join(", "));
            return Err(format!("{file}: no variant {unknown:?}; there are: {all}"));
        }
        let mut places = Vec::new();
        let mut kept = 0;
        for variant in &self.variants {
            let keep = names.contains(&variant.name);
            places.push(keep.then_some(kept));
            kept += usize::from(keep);
        }
        self.variants.retain(|variant| names.contains(&variant.name));
        let all = self.claims.len();
        self.claims.retain_mut(|claim| {
            let mut it = claim.places.iter_mut();
            it.all(|place| places[place.variant].map(|new| place.variant = new).is_some())
        });
        self.claims_left_out += all - self.claims.len();
        Ok(())
    }
    /// Time that all runs simulate, ramps included.
    pub fn simulated(&self) -> Nanos {
        let of = |variant: &Variant| variant.history.0 + variant.ramp.0 + variant.time.0;
        let once: u64 = self.variants.iter().map(of).sum();
        Nanos(once * self.stacks.len() as u64 * u64::from(self.repeats))
    }
}
