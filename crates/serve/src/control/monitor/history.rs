//! Rates of the last hour: each second of the last five minutes, and means of ten seconds before that.
//!
//! A group has 660 numbers of four bytes, so the [`GROUPS`](super::GROUPS) groups of a page take 700 kB.

use std::collections::{BTreeMap, VecDeque};

use serde::ser::{Serialize, SerializeSeq, SerializeStruct, Serializer};

/// Seconds that are kept one by one.
const FINE: usize = 300;
/// Seconds of a mean, and the number of means that are kept.
const MEAN: u64 = 10;
const COARSE: usize = 360;

/// One group.
#[derive(Default, Debug)]
struct Track {
    /// Bytes a second, the newest last.
    fine: VecDeque<f32>,
    coarse: VecDeque<f32>,
    /// Of the seconds since the last mean.
    sum: f64,
    /// Broken seconds since the group was made, at the last sample.
    broken: u64,
    /// Seconds ago at which its minimum was broken, as the number of the second.
    broken_at: VecDeque<u64>,
    /// The number of the second in which it was last seen.
    seen: u64,
}

/// All groups; the name of the root is empty.
#[derive(Default, Debug)]
pub(super) struct History {
    tracks: BTreeMap<String, Track>,
    /// Samples so far.
    seconds: u64,
}

impl History {
    /// Adds a second: names, bytes a second, and broken seconds so far. Groups that are not among them are forgotten.
    pub(super) fn add<'a>(&mut self, groups: impl Iterator<Item = (&'a str, u64, u64)>) {
        self.seconds += 1;
        let now = self.seconds;
        for (name, rate, broken) in groups {
            if !self.tracks.contains_key(name) {
                self.tracks.insert(name.to_string(), Track { broken, ..Track::default() });
            }
            let track = self.tracks.get_mut(name).expect("it was just added");
            track.add(now, rate);
            if broken > track.broken {
                push(&mut track.broken_at, now, FINE);
            }
            (track.broken, track.seen) = (broken, now);
        }
        self.tracks.retain(|_, track| track.seen == now);
    }
}

impl Track {
    fn add(&mut self, now: u64, rate: u64) {
        push(&mut self.fine, rate as f32, FINE);
        self.sum += rate as f64;
        if now.is_multiple_of(MEAN) {
            push(&mut self.coarse, (self.sum / MEAN as f64) as f32, COARSE);
            self.sum = 0.0;
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(value);
}

/// Numbers without fractions.
struct Whole<'a>(&'a VecDeque<f32>);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|value| list.serialize_element(&(f64::from(*value) as u64)))?;
        list.end()
    }
}

/// A track and the number of the present second.
struct Shown<'a>(&'a Track, u64);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(track, now) = self;
        let ago: Vec<u64> = track.broken_at.iter().map(|at| now - at).collect();
        let mut fields = serializer.serialize_struct("Track", 3)?;
        fields.serialize_field("fine", &Whole(&track.fine))?;
        fields.serialize_field("coarse", &Whole(&track.coarse))?;
        fields.serialize_field("broken_seconds_ago", &ago)?;
        fields.end()
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tracks = self.tracks.iter().map(|(name, track)| (name, Shown(track, self.seconds)));
        let mut fields = serializer.serialize_struct("History", 3)?;
        fields.serialize_field("fine_seconds", &1)?;
        fields.serialize_field("coarse_seconds", &MEAN)?;
        fields.serialize_field("groups", &tracks.collect::<BTreeMap<_, _>>())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an hour is kept in bounded memory, and groups that are gone are forgotten. Method: two hours of one group whose
    /// minimum is broken once, and a group that is there for a minute.
    #[test]
    fn an_hour_is_kept() {
        let mut history = History::default();
        for second in 1..=7200 {
            let broken = u64::from(second > 7150);
            let short = ("short", 7, 0);
            let groups = [("", second, 0), ("a", 10 * second, broken), short];
            history.add(groups.into_iter().take(if second <= 60 { 3 } else { 2 }));
        }
        assert_eq!(history.tracks.len(), 2);
        let json = serde_json::to_value(&history).unwrap();
        let of = |name: &str, key: &str| json["groups"][name][key].as_array().unwrap().clone();
        assert_eq!((of("a", "fine").len(), of("a", "coarse").len()), (FINE, COARSE));
        assert_eq!(of("", "fine").last().unwrap(), 7200);
        assert_eq!(of("", "coarse").last().unwrap(), 7195, "the mean of ten seconds");
        assert_eq!(of("", "coarse")[0], 3605, "an hour ago");
        assert_eq!(of("a", "broken_seconds_ago"), [49]);
    }
}
