//! Writeback of each process: the domain of the page cache, and the client that the pages of its file are charged to.

use iofair_core::id::ClientId;
use iofair_core::priority::Priority;
use iofair_core::request::Flags;
use iofair_core::unit::Sectors;

use super::controllers::Controllers;
use super::spec::{Spec, writes_buffered};
use crate::cache::DomainSetup;
use crate::engine::layout::PAGE;
use crate::error::RunError;
use crate::scenario::{Host, Scenario, Writeback};

/// How one process' pages reach the drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushing {
    pub(super) domain: usize,
    /// The client that writeback is charged to.
    pub(super) client: ClientId,
    /// Flags of its requests.
    pub(super) flags: Flags,
}

/// Memory of a virtual machine; our choice, since no source states it.
const GUEST_MEMORY: u64 = 512 << 20;
/// Requests that a virtual machine has in flight at most: the threads of QEMU's asynchronous I/O
/// (`posix-aio-compat.c` of QEMU 0.11).
const GUEST_THREADS: u64 = 64;
/// Descriptors of its disk's ring (QEMU's `hw/virtio-blk.c`). A request takes one for each page, one for its header
/// and one for its status; indirect ones, which take one a request, came to guests with Linux 2.6.31 only (from
/// memory). QEMU's IDE disk, its default, takes one command at a time.
const GUEST_DESCRIPTORS: u64 = 128;

/// Requests of the flusher's length that a virtual machine has in flight.
fn guest_requests(length: Sectors) -> u32 {
    let descriptors = length.0.div_ceil(PAGE) + 2;
    (GUEST_DESCRIPTORS / descriptors).clamp(1, GUEST_THREADS) as u32
}

/// The files of a flusher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Domain<'a> {
    /// All files of the host.
    Host,
    /// Those of one group.
    Group(&'a str),
    /// Those of one virtual machine, by its process.
    Guest(usize),
}

/// The flushers of a run.
pub(super) struct Flushers<'a> {
    /// Process by process; `None` for those that make nothing dirty.
    pub(super) of: Vec<Option<Flushing>>,
    domains: Vec<Domain<'a>>,
}

impl<'a> Flushers<'a> {
    /// `clients` are those of the processes.
    pub(super) fn new(
        scenario: &Scenario,
        specs: &[Spec<'a>],
        clients: &[ClientId],
        controllers: &mut Controllers,
    ) -> Result<Self, RunError> {
        let mut this = Self { of: Vec::with_capacity(specs.len()), domains: Vec::new() };
        let writeback = scenario.host.writeback;
        // One client for each group that is charged.
        let mut paying: Vec<(&str, ClientId)> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            if !writes_buffered(spec.client) {
                this.of.push(None);
                continue;
            }
            let flags = match spec.client.job.metadata {
                true => Flags::METADATA,
                false => Flags::NONE,
            };
            if spec.client.guest {
                let domain = this.domain(Domain::Guest(index));
                let flags = flags.with(Flags::SYNC);
                this.of.push(Some(Flushing { domain, client: clients[index], flags }));
                continue;
            }
            let group = spec.client.group.as_str();
            let (payer, domain) = match writeback {
                Writeback::Root => ("", Domain::Host),
                Writeback::Owner => (group, Domain::Host),
                Writeback::Writer => (group, Domain::Group(group)),
            };
            let client = match paying.iter().find(|(known, _)| *known == payer) {
                Some((_, client)) => *client,
                None => {
                    let group = controllers.find(payer)?;
                    let client = controllers.add_client(group, Priority::default())?;
                    paying.push((payer, client));
                    client
                }
            };
            let domain = this.domain(domain);
            this.of.push(Some(Flushing { domain, client, flags }));
        }
        Ok(this)
    }
    /// Number of flushers.
    pub(super) fn count(&self) -> usize {
        self.domains.len()
    }
    fn domain(&mut self, wanted: Domain<'a>) -> usize {
        let known = self.domains.iter().position(|domain| *domain == wanted);
        known.unwrap_or_else(|| {
            self.domains.push(wanted);
            self.domains.len() - 1
        })
    }

    /// The setup of each domain: the host's dirty limits are shared in equal parts.
    pub(super) fn domains(&self, host: &Host) -> Vec<DomainSetup> {
        let is_guest = |domain: &Domain<'_>| matches!(domain, Domain::Guest(_));
        let on_host = self.domains.iter().filter(|domain| !is_guest(domain)).count() as u64;
        let setup = |domain| {
            let (memory, threads, among) = match is_guest(domain) {
                true => (GUEST_MEMORY, Some(guest_requests(host.writeback_request)), 1),
                false => (host.memory, None, on_host),
            };
            let share = |percent: u32| memory / 100 * u64::from(percent) / among;
            let background = share(host.dirty_background_percent);
            DomainSetup { background, limit: share(host.dirty_percent), threads }
        };
        self.domains.iter().map(setup).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a guest's ring holds one long request and many short ones, never more than QEMU has threads. Method:
    /// the longest that fits, one page more than half of it, half of it, one page, and one that is too long.
    #[test]
    fn a_ring_is_bounded_by_its_descriptors() {
        let requests = [504, 252, 248, 4].map(|kib| guest_requests(Sectors::from_kib(kib)));
        assert_eq!(requests, [1, 1, 2, 42]);
        assert_eq!(guest_requests(Sectors::from_kib(1024)), 1, "what does not fit goes alone");
    }
}
