//! Decides what to do about existing devices: create one, take one over from a killed server, or remove one.
//!
//! No state is stored on disk. The driver stores a number for its users in every device; it identifies the contract
//! file and the volume with its data ([`mark`]). So a device is never taken over with data that its users did not
//! write.
//!
//! The driver is a [`Driver`] here, so that this can be tested without it.

use std::io;

use super::wire::{BYTES_MAX, DEPTH, Facts, Info, feature};

/// States of a device.
pub(crate) mod state {
    /// Made and not started, or stopped.
    pub(crate) const DEAD: u16 = 0;
    /// Served, or its server is just going.
    pub(crate) const LIVE: u16 = 1;
    /// Its server has gone; requests wait for the next one.
    pub(crate) const QUIESCED: u16 = 2;
    /// Its server has gone; requests fail until the next one.
    pub(crate) const FAIL_IO: u16 = 3;
}

/// The error for other processes.
pub(crate) const ROOT: &str = "only root may make block devices";
/// Moments that are waited for a server that was killed to be really gone; ten seconds.
const WAITS_MAX: u32 = 1000;
/// Bits of a mark that say whose contract file; the others say which volume.
const SERVER_BITS: u32 = 28;

/// Gives the driver its orders.
pub(crate) trait Driver {
    /// The numbers of all devices.
    fn devices(&mut self) -> io::Result<Vec<u32>>;
    /// A device, if there is one of this number.
    fn info(&mut self, device: u32) -> io::Result<Option<Info>>;
    /// Makes a device; its number may be [`u32::MAX`] for any.
    fn add(&mut self, info: &Info) -> io::Result<Info>;
    /// Says what it is to be.
    fn set_parameters(&mut self, device: u32, facts: Facts) -> io::Result<()>;
    /// Ends it. [`io::ErrorKind::TimedOut`]: it is gone, but somebody has it open, so its number is not free yet.
    fn delete(&mut self, device: u32) -> io::Result<()>;
    /// A moment passes.
    fn wait(&mut self);
}

/// A device that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Its number, if it matters.
    pub(crate) number: Option<u32>,
    pub(crate) mark: u64,
    pub(crate) facts: Facts,
    pub(crate) queues: u16,
    /// What the driver can do.
    pub(crate) features: u64,
    /// Whether the data survives the server.
    pub(crate) keeps: bool,
}

/// A device that waits to be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) info: Info,
    /// The device exists, and its users wait for completions.
    pub(crate) again: bool,
}

/// What the state of a device says.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Recover,
    Clear,
    Wait,
    Refuse(String),
}

/// A name of a volume for the driver, which says whose it is and what holds its data.
pub(crate) fn mark(server: &str, volume: &str) -> u64 {
    // FNV-1a: the same in every version of this program.
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let both = format!("{server}\n{volume}");
    hash(server) << (64 - SERVER_BITS) | hash(&both) >> SERVER_BITS
}

/// Whether two marks come from the same contract file.
fn same_server(one: u64, other: u64) -> bool {
    one >> (64 - SERVER_BITS) == other >> (64 - SERVER_BITS)
}

fn step(info: &Info, wish: &Wish) -> Step {
    let whose = |what: &str| {
        let process = match info.server {
            0.. => format!("process {}", info.server),
            _ => "another program".into(),
        };
        Step::Refuse(format!("/dev/ublkb{} is there already, {what} {process}", info.device))
    };
    if info.mark != wish.mark {
        return whose("and is not this volume's: it was made by");
    }
    match info.state {
        state::DEAD => Step::Clear,
        state::LIVE => Step::Wait,
        state::QUIESCED | state::FAIL_IO if !wish.keeps => Step::Clear,
        state::QUIESCED | state::FAIL_IO => match info.check() {
            Ok(()) => Step::Recover,
            Err(error) => Step::Refuse(format!(
                "/dev/ublkb{} was made by another version of this program, and cannot be taken over: {error}",
                info.device
            )),
        },
        unknown => whose(&format!("in state {unknown}, made by")),
    }
}

/// Finds or makes the device that is wanted. The error says what is wrong with it.
pub(crate) fn take(driver: &mut impl Driver, wish: &Wish) -> Result<Taken, String> {
    let mut last = String::new();
    for _ in 0..WAITS_MAX {
        let Some(info) = find(driver, wish)? else { return make(driver, wish) };
        let strayed = wish.number.is_some_and(|number| number != info.device);
        match step(&info, wish) {
            Step::Recover if !strayed => return Ok(Taken { info, again: true }),
            Step::Recover | Step::Clear => clear(driver, info.device)?,
            Step::Wait => {
                last = format!(
                    "another server has /dev/ublkb{}: process {}",
                    info.device, info.server
                );
                driver.wait();
            }
            Step::Refuse(why) => return Err(why),
        }
    }
    Err(last)
}

/// Whether a device could be made or taken over. Nothing changes. `own`: one that a server with the same contract file has counts as
/// free.
pub(crate) fn look(driver: &mut impl Driver, wish: &Wish, own: bool) -> Result<(), String> {
    let Some(info) = find(driver, wish)? else { return Ok(()) };
    match step(&info, wish) {
        Step::Wait if !own => {
            Err(format!("another server has /dev/ublkb{}: process {}", info.device, info.server))
        }
        Step::Refuse(why) => Err(why),
        _ => Ok(()),
    }
}

/// The device of this mark, or that has the number.
fn find(driver: &mut impl Driver, wish: &Wish) -> Result<Option<Info>, String> {
    let told = |error: io::Error| format!("looking at ublk devices: {error}");
    for device in driver.devices().map_err(told)? {
        let info = driver.info(device).map_err(told)?;
        if let Some(info) = info.filter(|info| info.mark == wish.mark) {
            return Ok(Some(info));
        }
    }
    wish.number.map_or(Ok(None), |number| driver.info(number).map_err(told))
}

fn clear(driver: &mut impl Driver, device: u32) -> Result<(), String> {
    driver.delete(device).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!(
            "/dev/ublkb{device} was left by a server that was killed, and is still open somewhere \
             (mounted?), though its data are not what they were: close it first"
        ),
        _ => format!("deleting what was left of /dev/ublkb{device}: {error}"),
    })
}

fn make(driver: &mut impl Driver, wish: &Wish) -> Result<Taken, String> {
    let wanted = Info {
        queues: wish.queues,
        depth: DEPTH,
        bytes_max: BYTES_MAX,
        device: wish.number.unwrap_or(u32::MAX),
        flags: feature::NEEDED | wish.features & feature::UPDATE_SIZE,
        mark: wish.mark,
        ..Info::default()
    };
    let info = driver.add(&wanted).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ROOT.to_string(),
        _ => format!("making a ublk device: {error}"),
    })?;
    let checked = info.check().map_err(|error| format!("the driver gave a device with {error}"));
    let set = checked.and_then(|()| {
        let set = driver.set_parameters(info.device, wish.facts);
        set.map_err(|error| format!("its parameters: {error}"))
    });
    if set.is_err() {
        // What was wrong first is what matters.
        let _ = driver.delete(info.device);
    }
    set.map(|()| Taken { info, again: false })
}

/// Clears away what a server with this contract file left of volumes that are wanted no more.
pub(crate) fn clear_others(
    driver: &mut impl Driver,
    server: u64,
    wanted: &[u64],
) -> io::Result<()> {
    for device in driver.devices()? {
        let Some(info) = driver.info(device)? else { continue };
        let ours = same_server(info.mark, server) && !wanted.contains(&info.mark);
        if ours && matches!(info.state, state::DEAD | state::QUIESCED | state::FAIL_IO) {
            match driver.delete(device) {
                // Whoever has it open gets errors, and lets it go some day.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                result => result?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver with these devices, which does something of its own with every moment.
    #[derive(Default)]
    struct World {
        devices: Vec<Info>,
        deleted: Vec<u32>,
        moments: u32,
        /// The moment in which the servers of all devices are gone.
        quiesced_at: u32,
        /// This one is open.
        open: Option<u32>,
        refuses_parameters: bool,
    }

    impl Driver for World {
        fn devices(&mut self) -> io::Result<Vec<u32>> {
            Ok(self.devices.iter().map(|info| info.device).chain([99]).collect())
        }
        fn info(&mut self, device: u32) -> io::Result<Option<Info>> {
            Ok(self.devices.iter().find(|info| info.device == device).copied())
        }
        fn add(&mut self, info: &Info) -> io::Result<Info> {
            assert_eq!(info.flags & feature::NEEDED, feature::NEEDED);
            let device = if info.device == u32::MAX { 50 } else { info.device };
            if self.info(device)?.is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            self.devices.push(Info { device, ..*info });
            Ok(Info { device, ..*info })
        }
        fn set_parameters(&mut self, _: u32, _: Facts) -> io::Result<()> {
            match self.refuses_parameters {
                true => Err(io::ErrorKind::InvalidInput.into()),
                false => Ok(()),
            }
        }
        fn delete(&mut self, device: u32) -> io::Result<()> {
            self.deleted.push(device);
            self.devices.retain(|info| info.device != device);
            if self.open == Some(device) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        }
        fn wait(&mut self) {
            self.moments += 1;
            if self.moments == self.quiesced_at {
                self.devices.iter_mut().for_each(|info| info.state = state::QUIESCED);
            }
        }
    }

    const MARK: u64 = 0x1234_5678_9abc_def0;

    fn wish(number: Option<u32>) -> Wish {
        let features = feature::NEEDED | feature::UPDATE_SIZE;
        Wish { number, mark: MARK, facts: Facts::default(), queues: 2, features, keeps: true }
    }
    fn left(device: u32, state: u16) -> Info {
        let flags = feature::NEEDED;
        let server = 4321;
        Info { queues: 2, depth: 8, state, bytes_max: 4096, device, server, flags, mark: MARK }
    }
    fn world(devices: &[Info]) -> World {
        World { devices: devices.to_vec(), ..World::default() }
    }

    /// Goal: a device is made where there is none, with its number or any, and is gone again if it cannot be what
    /// it should. Method: empty worlds.
    #[test]
    fn devices_are_made() {
        let taken = take(&mut world(&[]), &wish(None)).unwrap();
        assert_eq!((taken.info.device, taken.again, taken.info.mark), (50, false, MARK));
        assert_ne!(taken.info.flags & feature::UPDATE_SIZE, 0);
        assert_eq!(take(&mut world(&[]), &wish(Some(7))).unwrap().info.device, 7);
        let mut world = World { refuses_parameters: true, ..World::default() };
        assert!(take(&mut world, &wish(Some(7))).unwrap_err().contains("parameters"));
        assert_eq!((world.deleted, world.devices.len()), (vec![7], 0));
    }

    /// Goal: what a killed server left is taken over as it is, also when that server is only just going. Method:
    /// every state, asked for by number and by mark.
    #[test]
    fn devices_of_killed_servers_are_taken_over() {
        for number in [None, Some(3)] {
            let mut found = world(&[left(3, state::QUIESCED)]);
            let taken = take(&mut found, &wish(number)).unwrap();
            assert_eq!(taken, Taken { info: left(3, state::QUIESCED), again: true });
            let mut going = World { quiesced_at: 5, ..world(&[left(3, state::LIVE)]) };
            assert!(take(&mut going, &wish(number)).unwrap().again);
            assert!(going.deleted.is_empty());
            let mut half = world(&[left(3, state::DEAD)]);
            assert!(!take(&mut half, &wish(number)).unwrap().again);
            assert_eq!(half.deleted, [3]);
        }
        let error = take(&mut world(&[left(3, state::LIVE)]), &wish(None)).unwrap_err();
        assert!(error.contains("another server has /dev/ublkb3: process 4321"), "{error}");
    }

    /// Goal: no device of another volume is taken, and no data are passed for others. Method: other marks,
    /// states and features, a back end that forgets, a number that was changed.
    #[test]
    fn other_devices_are_left_alone() {
        let foreign = Info { mark: 1, ..left(3, state::QUIESCED) };
        let mut found = world(&[foreign]);
        let error = take(&mut found, &wish(Some(3))).unwrap_err();
        assert!(error.contains("not this volume's") && found.deleted.is_empty(), "{error}");
        assert_eq!(take(&mut found, &wish(None)).unwrap().info.device, 50);
        let mut odd = world(&[left(3, 77)]);
        assert!(take(&mut odd, &wish(None)).unwrap_err().contains("state 77"));
        let mut old = world(&[Info { flags: 0, ..left(3, state::QUIESCED) }]);
        assert!(take(&mut old, &wish(None)).unwrap_err().contains("another version"));
        let forgets = Wish { keeps: false, ..wish(Some(3)) };
        let mut found = world(&[left(3, state::QUIESCED)]);
        assert!(!take(&mut found, &forgets).unwrap().again);
        let mut open = World { open: Some(3), ..world(&[left(3, state::QUIESCED)]) };
        assert!(take(&mut open, &forgets).unwrap_err().contains("mounted?"));
        let mut strayed = world(&[left(3, state::QUIESCED)]);
        assert_eq!(take(&mut strayed, &wish(Some(4))).unwrap().info.device, 4);
        assert_eq!(strayed.deleted, [3]);
    }

    /// Goal: only what this contract file left, and what no server serves, is cleared away. Method: one device of each
    /// kind.
    #[test]
    fn leftovers_are_cleared() {
        let marks = ["a", "b", "c"].map(|volume| mark("/etc/iofair.toml", volume));
        let other = mark("/etc/other.toml", "a");
        assert!(same_server(marks[0], marks[1]) && !same_server(marks[0], other));
        assert!(marks[0] != marks[1] && marks[1] != marks[2]);
        let device = |number, mark, state| Info { mark, ..left(number, state) };
        let mut world = world(&[
            device(0, marks[0], state::QUIESCED),
            device(1, marks[1], state::QUIESCED),
            device(2, marks[2], state::LIVE),
            device(3, other, state::QUIESCED),
            device(4, 0, state::DEAD),
        ]);
        world.open = Some(1);
        clear_others(&mut world, marks[0], &marks[..1]).unwrap();
        assert_eq!(world.deleted, [1]);
    }
}
