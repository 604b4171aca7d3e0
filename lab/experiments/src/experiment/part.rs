//! A part of an experiment, and how long it takes.

use crate::distinct;
use iofair_config::ConfigError;
use iofair_core::time::Nanos;

use super::resolved::{Experiment, Variant};

impl Experiment {
    /// Keeps the variants of these names; claims about others are left out.
    pub fn keep_variants(&mut self, names: &[String]) -> Result<(), ConfigError> {
        // With sweeps, the name of a variant of the file stands for all its points.
        let named =
            |variant: &Variant, name: &String| variant.name == *name || variant.base == *name;
        let is_known = |name: &&String| self.variants.iter().any(|variant| named(variant, name));
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            let name_of = |variant: &Variant| match variant.swept.is_empty() {
                true => variant.name.clone(),
                false => variant.base.clone(),
            };
            let all = distinct(self.variants.iter().map(name_of));
            let all = all.iter().map(String::as_str);
            return Err(ConfigError::unknown(&self.name, "variant", unknown, all));
        }
        let is_kept = |variant: &Variant| names.iter().any(|name| named(variant, name));
        let mut places = Vec::new();
        let mut kept = 0;
        for variant in &self.variants {
            let keep = is_kept(variant);
            places.push(keep.then_some(kept));
            kept += usize::from(keep);
        }
        self.variants.retain(is_kept);
        let all = self.claims.len();
        self.claims.retain_mut(|claim| {
            let mut own = claim.places.iter_mut();
            own.all(|place| places[place.variant].map(|new| place.variant = new).is_some())
        });
        self.claims_left_out += all - self.claims.len();
        Ok(())
    }
    /// Time that all runs simulate, ramps included.
    pub fn simulated(&self) -> Nanos {
        let time = |variant: &Variant| variant.history.0 + variant.ramp.0 + variant.time.0;
        let once: u64 = self.variants.iter().map(time).sum();
        Nanos(once * self.stacks.len() as u64 * u64::from(self.repeats))
    }
}
