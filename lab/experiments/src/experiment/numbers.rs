//! Other values of the numbers of drives and machines: single ones, or all open ones as a draw has them.
//!
//! Draw `index` of a seed is the same whichever experiments are drawn, in which order and on how many threads: each number has
//! a stream of its own, by the draw and its key. All experiments on a machine share the machine of a draw.

use iofair_core::time::Nanos;
use iofair_drive::profile::{self, Sourced};
use iofair_drive::random::Random;
use iofair_simulator::machine::base;

use crate::ranges;

/// In a draw each plain client starts by chance up to this much later, so the clients start in another order. fio starts its
/// processes one after the other; no source says how fast.
const START_SPREAD: Nanos = Nanos::from_millis(10);

/// One of many draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Of all draws.
    pub seed: u64,
    /// Its number.
    pub index: u32,
}

/// Other values of numbers of drives and machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// A draw of all open ones.
    Draw(Draw),
    /// One number.
    One {
        /// Its file below `profiles`, without `.toml`.
        file: String,
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
}

/// Another value of a number, if there is one.
type OtherValue<'a> = dyn Fn(&Sourced) -> Option<String> + 'a;

/// FNV-1a (Fowler, Noll and Vo), 64 bits.
pub fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Draw {
    fn random(&self, key: &str) -> Random {
        Random::new(self.seed.wrapping_add(hash(key)), u64::from(self.index))
    }
    /// The seed of its runs.
    pub fn run_seed(&self) -> u64 {
        self.random("seed").bits() >> 12
    }
}

impl Numbers {
    /// What gives another value of each number of a file, if there is one.
    pub(crate) fn of_file<'a>(&'a self, file: &'a str) -> Box<OtherValue<'a>> {
        match self {
            Self::One { file: its, key, value } => {
                Box::new(move |number| (its == file && *key == number.key).then(|| value.clone()))
            }
            Self::Draw(draw) => {
                let mut ranges = ranges::all();
                ranges.retain(|range| range.file == file);
                Box::new(move |number| {
                    // A variant may have another value, about which the range says nothing.
                    let is_its = |range: &&ranges::Range| {
                        range.number == number.key && range.value == number.value
                    };
                    let range = ranges.iter().find(is_its)?;
                    Some(range.open.draw(&mut draw.random(&format!("{file} {}", number.key))))
                })
            }
        }
    }
    /// The drive with these values.
    pub(super) fn drive(&self, drive: &str) -> String {
        // A drive that cannot be read fails when it is run.
        let Ok(profile) = profile::read(drive) else { return drive.to_owned() };
        let file = format!("drives/{}", base(drive));
        let other = self.of_file(&file);
        let change = |number: &Sourced| Some(format!("{}={}", number.key, other(number)?));
        let changes: Vec<String> = profile.numbers.iter().filter_map(change).collect();
        let separator = if drive.contains('?') { '&' } else { '?' };
        match changes.is_empty() {
            true => drive.to_owned(),
            false => format!("{drive}{separator}{}", changes.join("&")),
        }
    }
    /// How much later clients start.
    pub(super) fn start_spread(&self) -> Nanos {
        match self {
            Self::Draw(_) => START_SPREAD,
            Self::One { .. } => Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Overrides, Variant, parse};
    use iofair_simulator::machine;

    const FILE: &str = "title = \"t\"\nsource = \"s\"\nmachine = \"sata-2009\"\ntime = \"1s\"\nstacks = [\"none-noop\", \"none-none\"]\n\
        [[client]]\nname = \"target\"\njob = \"randread\"\nbuffered = false\n";

    fn with(numbers: Option<Numbers>) -> Experiment {
        parse("e.toml", FILE, &Overrides { numbers, ..Overrides::default() }).expect("a good file")
    }

    /// Goal: a draw changes open numbers only, and is always the same. Method: two draws, and none.
    #[test]
    fn draws_are_reproducible() {
        let draw = |index| Draw { seed: 7, index };
        let drawn = |index| with(Some(Numbers::Draw(draw(index))));
        let (none, one, again, two) = (with(None), drawn(1), drawn(1), drawn(2));
        let parts = |experiment: &Experiment| {
            let variant = &experiment.variants[0];
            (format!("{:?}", variant.host), variant.drive.clone())
        };
        assert_eq!(parts(&one), parts(&again));
        assert!(parts(&one).0 != parts(&two).0 && parts(&one).0 != parts(&none).0);
        assert!(parts(&one).1 != parts(&two).1 && parts(&none).1 == "sata-7200-2009");
        assert_eq!(one.variants[0].host.read_ahead, none.variants[0].host.read_ahead);
        assert_ne!(draw(1).run_seed(), draw(2).run_seed());
        assert_eq!(draw(1).run_seed(), Draw { seed: 7, index: 1 }.run_seed());
    }

    /// Goal: no draw is a drive or machine that cannot be. Method: some of all, and of the drives' variants.
    #[test]
    fn every_draw_can_be_built() {
        for index in 0..40 {
            let numbers = Numbers::Draw(Draw { seed: 1, index });
            for listed in profile::list() {
                let drive = numbers.drive(&listed.name);
                assert!(profile::read(&drive).is_ok(), "{:?}", profile::read(&drive).err());
            }
            for (name, _) in machine::list() {
                let file = format!("machines/{}", base(&name));
                assert!(machine::load_with(&name, &numbers.of_file(&file)).is_some());
            }
        }
    }

    /// Goal: one number of one file changes, in host or drive. Method: one of each, and one of another file.
    #[test]
    fn one_number_changes() {
        let with_number = |file: &str, key: &str, value: &str| {
            let (file, key, value) = (file.into(), key.into(), value.into());
            with(Some(Numbers::One { file, key, value })).variants.remove(0)
        };
        let none = with(None).variants.remove(0);
        let memory = with_number("machines/sata-2009", "memory", "1GiB");
        assert_eq!((memory.host.memory, memory.drive), (1 << 30, none.drive.clone()));
        let heads = with_number("drives/sata-7200-2009", "model.hdd.heads", "6");
        assert_eq!(heads.drive, "sata-7200-2009?model.hdd.heads=6");
        let host = |variant: &Variant| format!("{:?}", variant.host);
        assert_eq!(host(&heads), host(&none));
        assert!(profile::read(&heads.drive).is_ok());
        let other = with_number("machines/plextor-2018", "memory", "1GiB");
        assert_eq!((host(&other), other.drive), (host(&none), none.drive));
    }
}
