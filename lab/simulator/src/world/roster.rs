//! The clients of a run as somebody outside must know them.

use iofair_core::id::{ClientId, GroupId};
use iofair_core::request::Flags;

use super::controllers::Controllers;
use super::processes::ProcessFactory;
use super::spec::Spec;
use super::writeback::Flushers;
use crate::engine::layout::File;
use crate::outside::{Member, Roster};
use crate::scenario::{Direction, Manner};

/// All groups and clients that the controllers know.
pub(super) struct RosterSource<'a> {
    pub(super) controllers: &'a Controllers,
    pub(super) factory: &'a ProcessFactory<'a>,
    pub(super) flushers: &'a Flushers<'a>,
}

impl RosterSource<'_> {
    /// The groups with their contracts, and the members with the flags of their requests.
    pub(super) fn roster(&self, tags: u32) -> Roster {
        let controller = self.controllers.first();
        let groups = controller.groups();
        let named = groups.iter().filter(|(id, _)| *id != GroupId::ROOT);
        let named = named.map(|(_, group)| (group.name.clone(), group.contract.clone())).collect();
        // The journal's requests have these flags; those of other members follow.
        let journal = Flags::SYNC.with(Flags::METADATA);
        let member = |(_, client): (ClientId, &iofair_core::group::Client)| Member {
            group: groups.group(client.group).name.clone(),
            priority: client.priority,
            reads: journal,
            writes: journal,
        };
        let mut members: Vec<Member> = groups.iter_clients().map(member).collect();
        for flushing in self.flushers.of.iter().flatten() {
            let member = &mut members[flushing.client.index()];
            (member.reads, member.writes) = (Flags::NONE, flushing.flags);
        }
        let ProcessFactory { specs, threads, files, .. } = self.factory;
        for ((spec, threads), file) in specs.iter().zip(*threads).zip(*files) {
            let (reads, writes) = carried(spec, file);
            for thread in threads {
                let member = &mut members[thread.index()];
                (member.reads, member.writes) = (reads, writes);
            }
        }
        Roster { stack: controller.stack().clone(), tags, groups: named, members }
    }
}

/// What a process' own reads and writes carry; as `client` sends them.
fn carried(Spec { client, .. }: &Spec<'_>, file: &File) -> (Flags, Flags) {
    let job = &client.job;
    let reads = if job.metadata { Flags::METADATA } else { Flags::NONE };
    let writes = job.calls.directions(job.pattern.writes())[Direction::Write.index()];
    let direct = writes && !job.buffered && client.manner != Manner::Copy;
    let writes = match direct {
        true if !job.sync_writes => reads,
        true if file.is_hole() => reads.with(Flags::SYNC).with(Flags::NO_IDLE),
        _ => reads.with(Flags::SYNC),
    };
    (reads, writes)
}
