//! The handling of each message.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vm_memory::GuestAddress;

use crate::descriptors;
use crate::front::vhost::Memory;
use crate::front::vhost::allowance::Claim;
use crate::front::vhost::command::{Command, DeviceHandle, Reply};
use crate::front::vhost::config::{self, Facts, QUEUE_SIZE_MAX, QUEUES_MAX, feature};
use crate::front::vhost::inflight::{self, Region};
use crate::front::vhost::memory::{self, Shared};
use crate::front::vhost::ring::Setup;

/// Pieces of guest memory; QEMU's machines have at most 512 places for memory, and use a few.
const SLOTS_MAX: usize = 512;

/// A piece of guest memory.
struct Piece {
    guest: u64,
    /// Where the client has it.
    user: u64,
    bytes: u64,
    map: Arc<memory::Piece>,
}

/// A queue as the client describes it; addresses are the client's.
#[derive(Clone, Copy, Default)]
struct Vring {
    size: u16,
    base: u16,
    descriptors: u64,
    available: u64,
    used: u64,
}

/// One client's side of the device.
pub(super) struct Handler {
    line: Arc<DeviceHandle>,
    pieces: Vec<Piece>,
    /// What the device has of it, so that it is unmapped here and not by the device, whose thread serves everybody.
    shared: Vec<Arc<memory::Piece>>,
    /// The same of the region for what is in flight.
    region: Option<Arc<Shared>>,
    vrings: Vec<Vring>,
    features: u64,
    /// What its pieces count for.
    claim: Claim,
}

impl Handler {
    pub(super) fn new(line: Arc<DeviceHandle>) -> Self {
        let claim = Claim::new(line.allowance.clone());
        let vrings = vec![Vring::default(); QUEUES_MAX];
        let (pieces, shared, region) = Default::default();
        Self { line, pieces, shared, region, vrings, features: 0, claim }
    }
    fn ask(&self, command: Command) -> Result<Reply> {
        match self.line.ask(command) {
            Some(Reply::Refused(reason)) => Err(refuse(reason)),
            Some(reply) => Ok(reply),
            None => Err(Error::Disconnected),
        }
    }
    fn tell(&self, command: Command) -> Result<()> {
        self.ask(command).map(|_| ())
    }
    fn facts(&self) -> Result<Facts> {
        match self.ask(Command::Look)? {
            Reply::Facts(facts) => Ok(facts),
            _ => Err(Error::BackendInternalError),
        }
    }
    fn vring(&mut self, index: usize) -> Result<&mut Vring> {
        self.vrings.get_mut(index).ok_or_else(|| refuse(format!("queue {index} of {QUEUES_MAX}")))
    }
    /// Whether it may share this much.
    fn claim(&mut self, sizes: impl Iterator<Item = u64>) -> Result<()> {
        let (mut pieces, mut bytes) = (0, 0u64);
        for size in sizes {
            (pieces, bytes) = (pieces + 1, bytes.saturating_add(size));
        }
        self.claim.resize(pieces, bytes).map_err(refuse)
    }
    fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        self.pieces.iter().map(|piece| piece.bytes).collect::<Vec<_>>().into_iter()
    }
    /// The memory as it is now, for the device.
    fn share(&mut self) -> Result<()> {
        self.pieces.sort_by_key(|piece| piece.guest);
        let maps: Vec<_> = self.pieces.iter().map(|piece| piece.map.clone()).collect();
        let memory = match maps.len() {
            0 => Memory::new(),
            _ => {
                let memory = Memory::from_arc_regions(maps.clone());
                memory.map_err(|error| refuse(error.to_string()))?
            }
        };
        self.tell(Command::Memory(memory))?;
        self.shared = maps;
        Ok(())
    }
    /// Where the guest has what the client has there.
    fn translate(&self, user: u64) -> Result<u64> {
        let inside = |piece: &&Piece| user >= piece.user && user - piece.user < piece.bytes;
        let piece = self.pieces.iter().find(inside);
        let piece = piece.ok_or_else(|| refuse(format!("address {user:#x} is not shared")))?;
        Ok(piece.guest + (user - piece.user))
    }
}

fn refuse(reason: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason.into()))
}

/// Maps a piece of guest memory.
fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Piece> {
    let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *region;
    let shared = Shared::map(file, mmap_offset, memory_size).map_err(refuse)?;
    let map = memory::Piece::new(shared, GuestAddress(guest_phys_addr));
    let map = Arc::new(map.ok_or_else(|| refuse("memory beyond the end of all addresses"))?);
    Ok(Piece { guest: guest_phys_addr, user: user_addr, bytes: memory_size, map })
}

/// An eventfd, and nothing else: the kernel does not wait for anybody when it looks at one.
fn eventfd(file: File) -> Result<OwnedFd> {
    let file = descriptors::admit(file).map_err(|error| refuse(error.to_string()))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match fs::read_link(path) {
        Ok(target) if target.as_os_str() == "anon_inode:[eventfd]" => Ok(file.into()),
        Ok(target) => Err(refuse(format!("{} is no eventfd", target.display()))),
        Err(error) => Err(refuse(format!("looking at an eventfd: {error}"))),
    }
}

/// Zeroed memory that can neither shrink nor grow.
fn sealed_memory(bytes: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a constant string; makes a descriptor and touches no memory.
    let file = unsafe { libc::memfd_create(c"iofair-inflight".as_ptr(), flags) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain system call on a descriptor of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

impl VhostUserBackendReqHandlerMut for Handler {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }
    fn reset_owner(&mut self) -> Result<()> {
        // Deprecated, and to be ignored.
        Ok(())
    }
    fn reset_device(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("reset_device was not offered"))
    }
    fn get_features(&mut self) -> Result<u64> {
        Ok(feature::offered(self.facts()?.read_only))
    }
    fn set_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_features()?;
        if features & !offered != 0 {
            return Err(refuse(format!("features {:#x} were not offered", features & !offered)));
        }
        self.features = features;
        self.tell(Command::Features(features))
    }
    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.claim(regions.iter().map(|region| region.memory_size))?;
        let mapped = regions.iter().zip(files).map(|(region, file)| map(region, file));
        self.pieces = mapped.collect::<Result<_>>()?;
        self.share()?;
        Ok(None)
    }
    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok();
        let size = size.filter(|size| size.is_power_of_two() && *size <= QUEUE_SIZE_MAX);
        let size = size.ok_or_else(|| {
            refuse(format!("a queue of {num}; allowed: powers of two up to {QUEUE_SIZE_MAX}"))
        })?;
        self.vring(index as usize)?.size = size;
        Ok(())
    }
    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let vring = self.vring(index as usize)?;
        (vring.descriptors, vring.used, vring.available) = (descriptors, used, available);
        Ok(())
    }
    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let given = u16::try_from(base).map_err(|_| refuse(format!("position {base}")))?;
        self.vring(index as usize)?.base = given;
        Ok(())
    }
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let vring = self.vring(index as usize)?;
        let base = vring.base;
        let position = match self.ask(Command::Stop { index: index as usize })? {
            Reply::Position(position) => position,
            _ => base,
        };
        self.vring(index as usize)?.base = position;
        Ok(VhostUserVringState::new(index, position.into()))
    }
    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = usize::from(index);
        let vring = *self.vring(index)?;
        let kick = eventfd(file.ok_or_else(|| refuse("queues without kicks are not served"))?)?;
        let setup = Setup {
            size: vring.size,
            descriptors: self.translate(vring.descriptors)?,
            available: self.translate(vring.available)?,
            used: self.translate(vring.used)?,
            base: vring.base,
            event_idx: self.features & feature::EVENT_IDX != 0,
        };
        self.tell(Command::Start { index, setup, kick })
    }
    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.vring(index.into())?;
        let file = file.map(eventfd).transpose()?;
        self.tell(Command::Call { index: index.into(), file })
    }
    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.vring(index.into())?;
        let file = file.map(eventfd).transpose()?;
        self.tell(Command::Trouble { index: index.into(), file })
    }
    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        type Has = VhostUserProtocolFeatures;
        Ok(Has::MQ
            | Has::REPLY_ACK
            | Has::CONFIG
            | Has::BACKEND_REQ
            | Has::INFLIGHT_SHMFD
            | Has::CONFIGURE_MEM_SLOTS)
    }
    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }
    fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<()> {
        self.vring(index as usize)?;
        self.tell(Command::Enable { index: index as usize, enabled })
    }
    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let part = config::space(self.facts()?, offset, size);
        part.ok_or_else(|| refuse(format!("{size} bytes of configuration at {offset}")))
    }
    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // Nothing there can be written; guests may try.
        Ok(())
    }
    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let VhostUserInflight { num_queues, queue_size, .. } = *asked;
        let bytes = inflight::bytes(num_queues, queue_size)
            .ok_or_else(|| refuse(format!("{num_queues} queues of {queue_size} in flight")))?;
        let file = sealed_memory(bytes).map_err(Error::ReqHandlerError)?;
        Ok((VhostUserInflight::new(bytes, 0, num_queues, queue_size), file))
    }
    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = *given;
        let needed = inflight::bytes(num_queues, queue_size).filter(|bytes| *bytes <= mmap_size);
        let Some(needed) = needed else {
            let message = format!("{mmap_size} bytes for {num_queues} queues of {queue_size}");
            return Err(refuse(message));
        };
        let map = Arc::new(Shared::map(file, mmap_offset, needed).map_err(refuse)?);
        let region = Region { map: map.clone(), queues: num_queues, size: queue_size };
        self.tell(Command::InFlight(region))?;
        self.region = Some(map);
        Ok(())
    }
    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(SLOTS_MAX as u64)
    }
    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        if self.pieces.len() >= SLOTS_MAX {
            return Err(refuse(format!("more than {SLOTS_MAX} pieces of memory")));
        }
        self.claim(self.sizes().chain([region.memory_size]))?;
        self.pieces.push(map(region, file)?);
        self.share()?;
        Ok(None)
    }
    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let same = |piece: &Piece| {
            (piece.guest, piece.bytes) == (region.guest_phys_addr, region.memory_size)
        };
        let place = self.pieces.iter().position(same);
        let place = place.ok_or_else(|| refuse("memory that was never there cannot go"))?;
        self.pieces.remove(place);
        self.share()?;
        self.claim(self.sizes())
    }

    // Not offered, so no client asks for what follows.
    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("no display"))
    }
    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no shared objects"))
    }
    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("no device state"))
    }
    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("no device state"))
    }
    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no shared memory of the device"))
    }
    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("no log of writes"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use iofair_config::contracts::GuestMemory;
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress};

    use super::*;
    use crate::front::vhost::allowance::Allowance;
    use crate::front::vhost::command::Envelope;

    const BYTES: u64 = 1 << 20;

    /// Where the kernel has something of ours.
    fn is_mapped(address: usize) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let bound = |text: &str| usize::from_str_radix(text, 16).unwrap();
        maps.lines().any(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            (bound(from)..bound(to)).contains(&address)
        })
    }
    fn addresses(memory: &Memory) -> Vec<usize> {
        let start = |piece: &memory::Piece| piece.get_host_address(MemoryRegionAddress(0));
        memory.iter().map(|piece| start(piece).unwrap() as usize).collect()
    }

    /// Goal: the device's thread, which serves all clients, never unmaps what a client shares, whatever takes its place.
    /// Method: a device that drops what it had with each new table, and looks whether it is still mapped; a table, another
    /// one, a piece more and a piece less, and the end.
    #[test]
    fn memory_is_unmapped_by_the_client_s_thread() {
        let (commands, asked) = mpsc::channel::<Envelope>();
        let device = thread::spawn(move || {
            let (mut memory, mut tables, mut ever) = (Memory::new(), 0, Vec::new());
            for Envelope { command, reply, .. } in asked {
                if let Command::Memory(next) = command {
                    let before = addresses(&memory);
                    memory = next;
                    assert!(before.into_iter().all(is_mapped), "unmapped by the device");
                    ever.extend(addresses(&memory));
                    tables += 1;
                }
                let _ = reply.send(Reply::Done);
            }
            (tables, ever)
        });
        let limits = GuestMemory { all_bytes: 1 << 30, each_bytes: 1 << 30 };
        let (allowance, volume) = (Allowance::new(limits), "v".to_string());
        let wake = crate::wake::new().unwrap();
        let mut handler =
            Handler::new(Arc::new(DeviceHandle { volume, commands, wake, allowance }));
        let region = |at: u64| VhostUserMemoryRegion::new(at, BYTES, at, 0);
        let file = || sealed_memory(BYTES).unwrap();
        for _ in 0..2 {
            handler.set_mem_table(&[region(0), region(BYTES)], vec![file(), file()], None).unwrap();
        }
        let overlap = [region(0), region(4096)];
        assert!(handler.set_mem_table(&overlap, vec![file(), file()], None).is_err());
        handler.set_mem_table(&[region(0)], vec![file()], None).unwrap();
        let single = VhostUserSingleMemoryRegion::new(BYTES, BYTES, BYTES, 0);
        handler.add_mem_region(&single, file(), None).unwrap();
        handler.remove_mem_region(&single).unwrap();
        drop(handler);
        let (tables, ever) = device.join().unwrap();
        assert_eq!((tables, ever.len()), (5, 8));
    }
}
