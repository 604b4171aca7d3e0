//! From a path to the queues that schedule: partitions belong to their disk, device-mapper and md devices to what is
//! below them. A loop device schedules itself.

use crate::Files;

/// Levels of stacked devices; the kernel allows fewer.
const DEPTH_MAX: usize = 16;

/// A device on which contracts hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name in the kernel: a disk, or a device-mapper or md device.
    pub name: String,
    /// `MAJOR:MINOR`: the key of ceilings.
    pub number: String,
    /// What schedules below it: keys of weights and latencies.
    pub queues: Vec<Queue>,
    /// The partition that was named.
    pub partition: Option<String>,
    /// Whether the data of this loop device is in a file, which another device schedules too.
    pub is_loop: bool,
}

/// A queue with a scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Its name in the kernel.
    pub name: String,
    /// `MAJOR:MINOR`.
    pub number: String,
    /// Its directory in sysfs.
    pub sys: String,
    /// Schedulers that can be selected now; none if it does not schedule.
    pub schedulers: Vec<String>,
    /// The selected one.
    pub scheduler: String,
    /// An attribute that finds it again after a reboot, for udev: name and value.
    pub identity: Option<(&'static str, String)>,
}

fn text(files: &dyn Files, path: &str) -> Option<String> {
    files.read(path).ok().map(|text| text.trim().to_owned())
}
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The device of a path, or why there is none.
///
/// # Errors
///
/// One sentence for the user.
pub fn resolve(files: &dyn Files, back: &str) -> Result<Device, String> {
    let real = files.canonical(back).map_err(|error| format!("{back}: {error}"))?;
    let named = real.strip_prefix("/dev/").map(|name| name.replace('/', "!"));
    let known = named.and_then(|name| text(files, &format!("/sys/class/block/{name}/dev")));
    let number = match known {
        Some(number) => number,
        None => files.device_number(&real).map_err(|error| format!("{back}: {error}"))?,
    };
    let mut sys = files.canonical(&format!("/sys/dev/block/{number}")).map_err(|_| {
        format!("{back} is on device {number}, which is no block device of this machine (a network or memory file system?)")
    })?;
    let partition = text(files, &format!("{sys}/partition")).map(|_| base(&sys).to_owned());
    sys = disk_of(files, &sys);
    let mut queues = Vec::new();
    leaves(files, &sys, DEPTH_MAX, &mut queues);
    let number = text(files, &format!("{sys}/dev")).unwrap_or(number);
    if queues.is_empty() {
        return Err(format!("nothing below {back} has a queue that schedules"));
    }
    let is_loop = text(files, &format!("{sys}/loop/backing_file")).is_some();
    Ok(Device { name: base(&sys).to_owned(), number, queues, partition, is_loop })
}

/// The disk of a partition; other devices themselves.
fn disk_of(files: &dyn Files, sys: &str) -> String {
    match text(files, &format!("{sys}/partition")) {
        Some(_) => sys.rsplit_once('/').map_or(sys, |parts| parts.0).to_owned(),
        None => sys.to_owned(),
    }
}

fn leaves(files: &dyn Files, sys: &str, depth: usize, queues: &mut Vec<Queue>) {
    let slaves = files.list(&format!("{sys}/slaves"));
    if slaves.is_empty() || depth == 0 {
        let found = queue(files, sys);
        queues
            .extend(found.filter(|found| queues.iter().all(|known| known.number != found.number)));
        return;
    }
    for slave in slaves {
        if let Ok(below) = files.canonical(&format!("/sys/class/block/{slave}")) {
            leaves(files, &disk_of(files, &below), depth - 1, queues);
        }
    }
}

fn queue(files: &dyn Files, sys: &str) -> Option<Queue> {
    let number = text(files, &format!("{sys}/dev"))?;
    let choice = text(files, &format!("{sys}/queue/scheduler"))?;
    let words = choice.split([' ', '[', ']']).filter(|word| !word.is_empty());
    let scheduler = choice.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let attributes = [("wwid", "wwid"), ("wwid", "device/wwid"), ("serial", "serial")];
    let identity = attributes.into_iter().find_map(|(name, file)| {
        let value = text(files, &format!("{sys}/{file}")).filter(|value| !value.is_empty())?;
        // These would need escapes, or be patterns, in a rule of udev.
        let plain = !value.contains(['"', '*', '?', '[', ']', '|', '\\']) && value.is_ascii();
        plain.then_some((name, value))
    });
    Some(Queue {
        name: base(sys).to_owned(),
        number,
        sys: sys.to_owned(),
        schedulers: words.map(str::to_owned).collect(),
        scheduler,
        identity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Kernel, Tree};

    fn queues(kernel: &Kernel, back: &str) -> Vec<String> {
        let device = resolve(kernel, back).unwrap_or_else(|why| panic!("{why}"));
        device.queues.into_iter().map(|queue| queue.name).collect()
    }

    /// Goal: whatever is named, the queues that schedule are found. Method: a disk, its partition, a link to it, a volume
    /// on partitions of two disks, an array of them, its partition, a volume on that, a loop device and its partition; and
    /// the number on which ceilings hold.
    #[test]
    fn every_kind_of_device_resolves_to_its_queues() {
        let tree = Tree::v2();
        let kernel = tree.kernel();
        for back in ["/dev/sda", "/dev/sda1", "/dev/disk/by-id/wwn-1"] {
            assert_eq!(queues(&kernel, back), ["sda"], "{back}");
        }
        let part = resolve(&kernel, "/dev/sda1").unwrap();
        assert_eq!((part.number.as_str(), part.partition.as_deref()), ("8:0", Some("sda1")));
        let volume = resolve(&kernel, "/dev/mapper/vg-pool").unwrap();
        assert_eq!((volume.name.as_str(), volume.number.as_str()), ("dm-0", "253:0"));
        assert_eq!(queues(&kernel, "/dev/mapper/vg-pool"), ["sda", "sdb"]);
        for (back, number) in [("/dev/md0", "9:0"), ("/dev/md0p1", "9:0"), ("/dev/dm-1", "253:1")] {
            assert_eq!(queues(&kernel, back), ["sda", "sdb"], "{back}");
            assert_eq!(resolve(&kernel, back).unwrap().number, number, "{back}");
        }
        for back in ["/dev/loop0", "/dev/loop0p1"] {
            let device = resolve(&kernel, back).unwrap();
            assert!(device.is_loop && device.number == "7:0", "{back}: {device:?}");
            assert_eq!(queues(&kernel, back), ["loop0"]);
        }
    }

    /// Goal: what is no device is told in one line. Method: a path that does not exist, and a file on a file system
    /// without a device of this tree.
    #[test]
    fn what_is_no_device_is_refused() {
        let tree = Tree::v2();
        let kernel = tree.kernel();
        let missing = resolve(&kernel, "/dev/sdx").unwrap_err();
        assert!(missing.starts_with("/dev/sdx: No such file"), "{missing}");
        let file = resolve(&kernel, "/etc/os-release").unwrap_err();
        assert!(file.contains("no block device"), "{file}");
    }
}
