//! Ceilings leave room for the minimums inside: a group that may pass 10 MB/s cannot keep 20 MB/s for a group in it.

use std::collections::HashMap;

use iofair_core::contract::Rate;

use super::{Contracts, Group};
use crate::ConfigError;
use crate::errors::all;
use crate::name::ancestors;

/// The least of a group's rates, and the sum of the minimums inside it.
struct Room<'a> {
    ceiling: u64,
    minimums: u64,
    /// One of the groups inside whose minimum is new.
    newcomer: Option<&'a Group>,
}

/// An error for each ceiling below the minimums in that group: about a minimum that is new since `before`, or else about the ceiling.
pub(super) fn check(contracts: &Contracts, before: Option<&Contracts>) -> Result<(), ConfigError> {
    let groups = &contracts.groups;
    let limited = groups.iter().filter_map(|group| {
        let ceiling = group.contract.max.byte_rates().min()?;
        Some((group.name.as_str(), Room { ceiling, minimums: 0, newcomer: None }))
    });
    let mut rooms: HashMap<&str, Room<'_>> = limited.collect();
    if rooms.is_empty() {
        return Ok(());
    }
    let minimums = minimums(contracts);
    let old = before.map(self::minimums);
    for group in groups {
        let Some(min) = group.contract.min else { continue };
        let is_new = old.as_ref().is_some_and(|old| old.get(group.name.as_str()) != Some(&min));
        let mut above: Vec<&str> = ancestors(&group.name).collect();
        above.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        for name in above {
            if let Some(room) = rooms.get_mut(name) {
                room.minimums = room.minimums.saturating_add(min);
                room.newcomer = room.newcomer.or(is_new.then_some(group));
            }
            // Minimums inside come out of this one, which is counted further up.
            if minimums.contains_key(name) {
                break;
            }
        }
    }
    let check = |group: &Group| match rooms.get(group.name.as_str()) {
        Some(room) if room.minimums > room.ceiling => Err(room.error(contracts, group)),
        _ => Ok(()),
    };
    all(groups.iter().map(check)).map(drop)
}

fn minimums(contracts: &Contracts) -> HashMap<&str, u64> {
    let groups = contracts.groups.iter();
    groups.filter_map(|group| Some((group.name.as_str(), group.contract.min?))).collect()
}

impl Room<'_> {
    /// The room of this group is too small.
    fn error(&self, contracts: &Contracts, group: &Group) -> ConfigError {
        let (name, ceiling, minimums) = (&group.name, Rate(self.ceiling), Rate(self.minimums));
        let (at, key, message, allowed) = match self.newcomer {
            Some(newcomer) => {
                let (inside, min) = (&newcomer.name, newcomer.contract.min.unwrap_or(0));
                let message = format!(
                    "group \"{inside}\": {} cannot be kept inside \"{name}\", which has a max of {ceiling} for minimums of \
                     {minimums} in all",
                    Rate(min)
                );
                let allowed = match self.ceiling.saturating_sub(self.minimums - min) {
                    0 => "no minimum beside the others inside".to_string(),
                    fits => format!("at most {}", Rate(fits)),
                };
                (newcomer, "min", message, allowed)
            }
            None => {
                let message = format!(
                    "group \"{name}\": max {ceiling} is below the minimums inside, {minimums} in all"
                );
                (group, "max", message, format!("at least {minimums}"))
            }
        };
        let span = at.keys.span(key).unwrap_or_else(|| at.span.clone());
        contracts.source.error(span, message).allowed(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Contracts;
    use crate::ConfigError;
    use crate::contracts::admission::{AdmissionError, Known};

    fn read(groups: &[(&str, &str)]) -> Contracts {
        let list =
            groups.iter().map(|(name, keys)| format!("[[group]]\nname = '{name}'\n{keys}\n"));
        let list: String = list.collect();
        Contracts::parse("c.toml", &format!("[drive]\nback = 'memory:1GiB'\n{list}")).expect("good")
    }
    fn admit(groups: &[(&str, &str)], before: Option<&Contracts>) -> Result<(), ConfigError> {
        match read(groups).admit(&Known::default(), before) {
            Err(AdmissionError::Config(error)) => Err(error),
            admitted => admitted.map(drop).map_err(|error| panic!("{error:?}")),
        }
    }

    /// Goal: a ceiling below what is guaranteed inside is an error at the ceiling, whatever lies between. Method: minimums at
    /// several levels; one inside another counts once.
    #[test]
    fn ceilings_leave_room() {
        let (alice, bob) = (("t/a", "min = '20MB/s'"), ("t/x/b", "min = '10MB/s'"));
        admit(&[("t", "max = '30MB/s'"), alice, bob], None).expect("just enough");
        let over = [alice, ("t", "max = { write = '25MB/s' }"), bob];
        let error = admit(&over, None).expect_err("30 of 25");
        let told = "group \"t\": max 25.00 MB/s is below the minimums inside, 30.00 MB/s in all";
        assert_eq!((error.message.as_str(), error.line()), (told, 8));
        assert_eq!(error.allowed.as_deref(), Some("at least 30.00 MB/s"));
        let inner = [("t", "max = '25MB/s'"), ("t/x", "min = '12MB/s'"), bob];
        admit(&inner, None).expect("those inside have 12 together");
        admit(&[inner[0], inner[1], bob, alice], None).expect_err("12 and 20");
        admit(&[("t", "max = { total_iops = 5 }"), alice], None)
            .expect("bytes and requests are no match");
        let two = [("t", "max = '1MB/s'"), ("t/x", "max = '2MB/s'"), bob];
        let error = admit(&two, None).expect_err("10 of 2 of 1").to_string();
        assert_eq!(error.matches("c.toml:").count(), 2, "{error}");
    }

    /// Goal: a refusal is about what is new: a minimum inside, or the ceiling. Method: each of a full group's contracts is changed.
    #[test]
    fn what_is_new_is_told() {
        let (alice, bob) = (("t/a", "min = '20MB/s'"), ("t/b", "min = '10MB/s'"));
        let before = read(&[("t", "max = '30MB/s'"), alice, bob]);
        for (alice, bob, max, told, allowed) in [
            (
                "21MB/s",
                "10MB/s",
                "30MB/s",
                "group \"t/a\": 21.00 MB/s cannot be kept",
                "at most 20",
            ),
            (
                "20MB/s",
                "15MB/s",
                "30MB/s",
                "group \"t/b\": 15.00 MB/s cannot be kept",
                "at most 10",
            ),
            ("30MB/s", "10MB/s", "10MB/s", "group \"t/a\": 30.00 MB/s", "no minimum beside"),
            ("20MB/s", "10MB/s", "25MB/s", "group \"t\": max 25.00 MB/s is below", "at least 30"),
        ] {
            let [alice, bob] = [alice, bob].map(|min| format!("min = '{min}'"));
            let groups = [("t", &*format!("max = '{max}'")), ("t/a", &alice), ("t/b", &bob)];
            let error = admit(&groups, Some(&before)).expect_err(told);
            assert!(error.message.starts_with(told), "{error}");
            assert!(error.allowed.as_deref().unwrap_or_default().starts_with(allowed), "{error}");
        }
    }
}
