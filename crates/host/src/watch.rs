//! Connects the [law](crate::law) to the kernel: counters in, ceilings of the other groups out. Values from before are
//! in the journal before the first write.

use crate::facts::Facts;
use crate::journal::{self, Done, Owner};
use crate::law::{Law, Promised, divide};
use crate::plan::{NO_CEILING, Plan, Planned};
use crate::status::{Counters, counters};
use crate::write::{current, set, vanished};
use crate::{Files, HostError, Slot, Version};

/// A group waits if some process did so for this part of the time, in thousandths.
const WAITS: u64 = 50;
/// Ceilings that differ by less than this, in thousandths, are not written.
const SAME: u64 = 20;

/// What happened in one step.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// Each group with a promise: its minimum and what it got, bytes a second.
    pub promised: Vec<(String, u64, u64)>,
    /// What the others got together.
    pub others: u64,
    /// The ceiling on them from now on.
    pub ceiling: Option<u64>,
}

/// A group that can be held back.
struct Other {
    group: Planned,
    /// Files of ceilings in bytes, with the values from before.
    places: Vec<(String, Slot, Option<String>)>,
    /// The last ceiling that was written.
    written: Option<u64>,
}

/// The controller.
pub struct Watch {
    promised: Vec<Planned>,
    others: Vec<Other>,
    law: Law,
    before: Option<(Vec<Counters>, Vec<Counters>)>,
}

fn promises(group: &Planned) -> bool {
    group.contract.min.is_some() || group.contract.latency.is_some()
}
fn inside(path: &str, other: &str) -> bool {
    path.starts_with(&format!("{other}/"))
}

impl Watch {
    /// Takes over: what an earlier one left behind is taken back, and the journal gets the values of all places that will
    /// be written.
    ///
    /// # Errors
    ///
    /// The journal or a file cannot be read or written.
    pub fn start(files: &dyn Files, facts: &Facts, plan: &Plan) -> Result<Self, HostError> {
        journal::revert(files, Some(Owner::Watch), false)?;
        let exists = |group: &&Planned| files.is_directory(&facts.hierarchy.path(&group.path));
        let groups: Vec<&Planned> = plan.groups.iter().filter(exists).collect();
        let promised: Vec<Planned> =
            groups.iter().filter(|group| promises(group)).map(|group| (*group).clone()).collect();
        // A group above or below one with a promise would be held back with it; one below another is held by that.
        let related = |Planned { path, .. }: &Planned| {
            promised.iter().any(|other| inside(&other.path, path) || inside(path, &other.path))
        };
        let free: Vec<&Planned> =
            groups.iter().filter(|group| !promises(group) && !related(group)).copied().collect();
        let outer = |group: &&&Planned| !free.iter().any(|other| inside(&group.path, &other.path));
        let mut others = Vec::new();
        for group in free.iter().filter(outer) {
            let mut places = Vec::new();
            for (file, slot) in ceilings(facts, &group.path) {
                let before = current(files, &file, &slot)?;
                places.push((file, slot, before));
            }
            others.push(Other { group: (*group).clone(), places, written: None });
        }
        let places: Vec<(String, Slot)> = others
            .iter()
            .flat_map(|other| other.places.iter().map(|place| (place.0.clone(), place.1.clone())))
            .collect();
        journal::claim(files, &places)?;
        Ok(Self { promised, others, law: Law::default(), before: None })
    }
    /// Groups with a promise, and groups that can be held back for them.
    pub fn groups(&self) -> (Vec<&str>, Vec<&str>) {
        let promised = self.promised.iter().map(|group| group.name.as_str()).collect();
        (promised, self.others.iter().map(|other| other.group.name.as_str()).collect())
    }
    /// Looks at the counters and sets ceilings; `passed_us` is the time since the last step. The first step only looks.
    ///
    /// # Errors
    ///
    /// A ceiling cannot be written.
    pub fn step(
        &mut self,
        files: &dyn Files,
        facts: &Facts,
        passed_us: u64,
    ) -> Result<Option<Step>, HostError> {
        let read = |group: &Planned| counters(files, facts, &group.path);
        let now: (Vec<Counters>, Vec<Counters>) = (
            self.promised.iter().map(read).collect(),
            self.others.iter().map(|other| read(&other.group)).collect(),
        );
        let Some(before) = self.before.replace(now.clone()) else { return Ok(None) };
        let since = |now: &[Counters], before: &[Counters]| -> Vec<Counters> {
            now.iter().zip(before).map(|(now, before)| now.since(before)).collect()
        };
        let rate = |bytes: u64| {
            u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(passed_us.max(1)))
                .unwrap_or(u64::MAX)
        };
        let mine = since(&now.0, &before.0);
        let theirs = since(&now.1, &before.1);
        let promised: Vec<Promised> = self
            .promised
            .iter()
            .zip(&mine)
            .map(|(group, got)| Promised {
                min: group.contract.min.unwrap_or(0),
                rate: rate(got.total()),
                waits: got.waited_us.map(|time| time * 1000 / passed_us.max(1) >= WAITS),
                slow: is_slow(group, got),
            })
            .collect();
        let rates: Vec<u64> = theirs.iter().map(|got| rate(got.total())).collect();
        let others = rates.iter().sum();
        let ceiling = self.law.step(&promised, others);
        let weights: Vec<(u32, u64)> = self
            .others
            .iter()
            .zip(&rates)
            .map(|(other, rate)| (other.group.contract.weight, *rate))
            .collect();
        let parts: Vec<Option<u64>> = match ceiling {
            Some(ceiling) => divide(ceiling, &weights).into_iter().map(Some).collect(),
            None => vec![None; self.others.len()],
        };
        for ((other, part), got) in self.others.iter_mut().zip(parts).zip(&theirs) {
            other.set(files, facts, part, got)?;
        }
        let names = self.promised.iter().zip(&promised);
        let promised = names.map(|(group, got)| (group.name.clone(), got.min, got.rate)).collect();
        Ok(Some(Step { promised, others, ceiling }))
    }
    /// Restores every value.
    ///
    /// # Errors
    ///
    /// A value cannot be written; the journal keeps it.
    pub fn end(self, files: &dyn Files) -> Result<Done, HostError> {
        journal::revert(files, Some(Owner::Watch), false)
    }
}

/// Whether the mean time that a request kept a process waiting exceeds the target. With several processes at once this is
/// less than the latency of each.
fn is_slow(group: &Planned, got: &Counters) -> bool {
    match (group.contract.latency.read, got.waited_us) {
        (Some(target), Some(us)) if got.requests > 0 => us / got.requests > target.0 / 1000,
        _ => false,
    }
}

/// The files of a group's ceilings in bytes: one for version 2, reads and writes for version 1.
fn ceilings(facts: &Facts, path: &str) -> Vec<(String, Slot)> {
    let directory = facts.hierarchy.path(path);
    let slot =
        |absent: &str| Slot::Keyed { key: facts.device.number.clone(), absent: absent.to_owned() };
    match facts.hierarchy.version {
        Version::Two => vec![(format!("{directory}/io.max"), slot(NO_CEILING))],
        Version::One => {
            let names = facts.hierarchy.ceilings();
            names[..2].iter().map(|name| (format!("{directory}/{name}"), slot("0"))).collect()
        }
    }
}

impl Other {
    /// Writes its part of the ceiling, unless it is as good as written.
    fn set(
        &mut self,
        files: &dyn Files,
        facts: &Facts,
        part: Option<u64>,
        got: &Counters,
    ) -> Result<(), HostError> {
        let near = |old: u64, new: u64| old.abs_diff(new) * 1000 <= old * SAME;
        match (self.written, part) {
            (None, None) => return Ok(()),
            (Some(old), Some(new)) if near(old, new) => return Ok(()),
            _ => {}
        }
        self.written = part;
        let max = self.group.contract.max.bytes_per_s;
        let limits = part.map(|part| {
            let of = |n: usize| split(part, got)[n].min(max[n].unwrap_or(u64::MAX));
            [of(0), of(1)]
        });
        for (n, (file, slot, before)) in self.places.iter().enumerate() {
            let value = match (limits, facts.hierarchy.version) {
                (None, _) => before.clone(),
                (Some([read, write]), Version::Two) => Some(format!("rbps={read} wbps={write}")),
                (Some(limits), Version::One) => Some(limits[n].to_string()),
            };
            match set(files, file, slot, value.as_deref()) {
                // The group has ended.
                Err(HostError::Io { error, .. }) if vanished(&error) => {}
                written => written?,
            }
        }
        Ok(())
    }
}

/// A ceiling for reads and one for writes, by what the group did; each direction gets a tenth at least, to start with.
fn split(part: u64, got: &Counters) -> [u64; 2] {
    let total = got.total();
    [0, 1].map(|n| {
        let own = match total {
            0 => part,
            total => u64::try_from(u128::from(part) * u128::from(got.bytes[n]) / u128::from(total))
                .unwrap_or(part),
        };
        own.max(part / 10).max(1)
    })
}

#[cfg(test)]
mod tests {
    use iofair_config::contracts::host::HostContracts;

    use super::*;
    use crate::testing::Tree;

    const TEXT: &str = "[drive]\nback = '/dev/sda'\n[[group]]\nname = 'db.service'\nmin = '10MB/s'\n\
        [[group]]\nname = 'batch'\nweight = 300\n[[group]]\nname = 'user.slice'\nmax = { read = '50MB/s' }\n\
        [[group]]\nname = 'system.slice'\n";

    /// Goal: counters become ceilings of the groups without a promise, by weight and below their own ceilings, never of a
    /// group above one with a promise; the end restores everything. Method: a broken minimum on both versions.
    #[test]
    fn counters_become_ceilings() {
        for tree in [Tree::v2(), Tree::v1()] {
            let kernel = tree.kernel();
            let text = match tree.text("/proc/self/mounts").contains("cgroup2") {
                true => TEXT.to_owned(),
                false => TEXT.replace("db.service", "system.slice/db.service"),
            };
            let contracts = HostContracts::parse("host.toml", &text).unwrap();
            let facts = Facts::gather(&kernel, &contracts).unwrap();
            let plan = crate::plan::plan(&kernel, &contracts, &facts).unwrap();
            let two = facts.hierarchy.version == Version::Two;
            let count = |group: &str, bytes: u64| match two {
                true => tree.put(
                    &format!("/sys/fs/cgroup/{group}/io.stat"),
                    &format!("8:0 rbytes={bytes} wbytes=0 rios=9 wios=0\n"),
                ),
                false => {
                    let file = format!(
                        "/sys/fs/cgroup/blkio/{group}/blkio.throttle.io_service_bytes_recursive"
                    );
                    tree.put(&file, &format!("8:0 Read {bytes}\n8:0 Write 0\n"));
                }
            };
            let set = |times: u64| {
                count("system.slice/db.service", times * 1_000_000);
                count("batch", times * 150_000_000);
                count("user.slice", times * 150_000_000);
            };
            set(0);
            let before = tree.snapshot();
            let mut watch = Watch::start(&kernel, &facts, &plan).unwrap();
            assert_eq!(watch.groups().1, ["batch", "user.slice"]);
            assert_eq!(watch.step(&kernel, &facts, 1_000_000).unwrap(), None);
            set(1);
            watch.step(&kernel, &facts, 1_000_000).unwrap();
            set(2);
            let step = watch.step(&kernel, &facts, 1_000_000).unwrap().unwrap();
            assert_eq!((step.others, step.ceiling), (300_000_000, Some(150_000_000)));
            let (batch, user) = match two {
                true => ("batch/io.max", "user.slice/io.max"),
                false => (
                    "blkio/batch/blkio.throttle.read_bps_device",
                    "blkio/user.slice/blkio.throttle.read_bps_device",
                ),
            };
            let shown = |file: &str| tree.text(&format!("/sys/fs/cgroup/{file}"));
            assert!(
                shown(batch).contains("112500000") && shown(user).contains("37500000"),
                "{} {}",
                shown(batch),
                shown(user)
            );
            set(0);
            watch.end(&kernel).unwrap();
            let now = tree.snapshot();
            assert_eq!(now, before);
        }
    }
}
