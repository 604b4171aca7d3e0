//! Emulated drives that are slower than the known ones, for clients that are slow themselves.

use std::fs;

use crate::rig::Directory;

/// A profile with other numbers, in a file of its own: key, the usual value, and the other one.
pub(crate) fn changed(
    directory: &Directory,
    profile: &str,
    changes: &[(&str, &str, &str)],
) -> String {
    let mut text = profile.to_string();
    for (key, usual, other) in changes {
        let old = format!("{key} = {{ value = \"{usual}\"");
        assert!(text.contains(&old), "the profile has changed: {key}");
        text = text.replace(&old, &format!("{key} = {{ value = \"{other}\""));
    }
    let path = directory.path("slow.toml");
    fs::write(&path, text).unwrap();
    path
}

/// A drive without a head that clients can fill which have little of a processor: the PLEXTOR at a tenth of its rate.
pub(crate) fn slow_flash(directory: &Directory) -> String {
    let known = include_str!("../../../../profiles/drives/plextor-px256m5s.toml");
    let slow = [("link", "535MB/s", "53MB/s"), ("drain", "386.45MB/s", "38MB/s")];
    changed(directory, known, &slow)
}
