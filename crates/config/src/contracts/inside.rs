//! Ceilings leave room for the minimums inside: a group that may pass 10 MB/s cannot keep 20 MB/s for a group in it.

use std::collections::HashMap;

use iofair_core::contract::Rate;

use super::{Group, raw};
use crate::errors::all;
use crate::name::ancestors;
use crate::{ConfigError, Source};

/// The least of a group's rates, and the sum of the minimums inside it.
struct Room<'a> {
    ceiling: u64,
    minimums: u64,
    /// One of the groups inside with a minimum.
    example: &'a str,
}

/// An error at each ceiling below the minimums in that group.
pub(super) fn check(
    source: &Source,
    written: &[raw::Group],
    groups: &[Group],
) -> Result<(), ConfigError> {
    let limited = groups.iter().filter_map(|group| {
        let ceiling = group.contract.max.byte_rates().min()?;
        Some((group.name.as_str(), Room { ceiling, minimums: 0, example: "" }))
    });
    let mut rooms: HashMap<&str, Room<'_>> = limited.collect();
    if rooms.is_empty() {
        return Ok(());
    }
    let minimums: HashMap<&str, u64> = groups
        .iter()
        .filter_map(|group| Some((group.name.as_str(), group.contract.min?)))
        .collect();
    for group in groups {
        let Some(min) = group.contract.min else { continue };
        let mut above: Vec<&str> = ancestors(&group.name).collect();
        above.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        for name in above {
            if let Some(room) = rooms.get_mut(name) {
                room.minimums = room.minimums.saturating_add(min);
                room.example = &group.name;
            }
            // Minimums inside come out of this one, which is counted further up.
            if minimums.contains_key(name) {
                break;
            }
        }
    }
    let check = |(group, written): (&Group, &raw::Group)| {
        let Some(room) = rooms.get(group.name.as_str()) else { return Ok(()) };
        if room.minimums > room.ceiling {
            let message = format!(
                "max {} is below the minimums inside, {} (\"{}\")",
                Rate(room.ceiling),
                Rate(room.minimums),
                room.example
            );
            let at = written.keys.span("max").unwrap_or_else(|| written.name.span());
            return Err(source
                .error(at, message)
                .allowed(format!("at least {}", Rate(room.minimums))));
        }
        Ok(())
    };
    all(groups.iter().zip(written).map(check)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::Contracts;

    /// Goal: a ceiling below what is guaranteed inside is an error at the ceiling, whatever lies between. Method: minimums at
    /// several levels; one inside another counts once.
    #[test]
    fn ceilings_leave_room() {
        let read = |groups: &[(&str, &str)]| {
            let list =
                groups.iter().map(|(name, keys)| format!("[[group]]\nname = '{name}'\n{keys}\n"));
            let list: String = list.collect();
            Contracts::parse("c.toml", &format!("[drive]\nback = 'memory:1GiB'\n{list}"))
        };
        let (alice, bob) = (("t/a", "min = '20MB/s'"), ("t/x/b", "min = '10MB/s'"));
        read(&[("t", "max = '30MB/s'"), alice, bob]).expect("just enough");
        let error = read(&[alice, ("t", "max = { write = '25MB/s' }"), bob]).expect_err("30 of 25");
        let told = "max 25.00 MB/s is below the minimums inside, 30.00 MB/s (\"t/x/b\")";
        assert_eq!((error.message.as_str(), error.line()), (told, 8));
        assert_eq!(error.allowed.as_deref(), Some("at least 30.00 MB/s"));
        let inner = [("t", "max = '25MB/s'"), ("t/x", "min = '12MB/s'"), bob];
        read(&inner).expect("those inside have 12 together");
        read(&[inner[0], inner[1], bob, alice]).expect_err("12 and 20");
        read(&[("t", "max = { total_iops = 5 }"), alice]).expect("bytes and requests are no match");
    }
}
