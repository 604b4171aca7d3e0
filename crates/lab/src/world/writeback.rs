//! Who writes back whose pages: the domains of the page cache, and the client that each file's pages are
//! charged to.

use iofair_core::controller::Controller;
use iofair_core::group::{ClientId, Priority};
use iofair_core::time::Instant;

use super::build::{Spec, find_group, writes_buffered};
use crate::cache::DomainSetup;
use crate::run::RunError;
use crate::scenario::{Host, Scenario, Writeback};

/// How one process' pages reach the drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushing {
    pub(super) domain: usize,
    /// In whose name.
    pub(super) client: ClientId,
}

/// The flushers of a run.
pub(super) struct Flushers {
    /// Process by process; `None` for those that make nothing dirty.
    pub(super) of: Vec<Option<Flushing>>,
    /// How many there are.
    count: usize,
}

impl Flushers {
    pub(super) fn new(
        scenario: &Scenario,
        specs: &[Spec<'_>],
        controller: &mut Controller,
    ) -> Result<Self, RunError> {
        let mut this = Self { of: Vec::with_capacity(specs.len()), count: 0 };
        // One client a group that pays.
        let mut paying: Vec<(&str, ClientId)> = Vec::new();
        for spec in specs {
            if !writes_buffered(spec.client) {
                this.of.push(None);
                continue;
            }
            let name = match scenario.host.writeback {
                Writeback::Owner | Writeback::Writer => spec.client.group.as_str(),
                Writeback::Root => "",
            };
            let known = paying.iter().position(|(known, _)| *known == name);
            let place = match known {
                Some(place) => place,
                None => {
                    let group = find_group(controller, name)?;
                    let priority = Priority::default();
                    let client = controller.add_client(Instant::ZERO, group, priority)?;
                    paying.push((name, client));
                    paying.len() - 1
                }
            };
            let domain = match scenario.host.writeback {
                Writeback::Writer => place,
                Writeback::Root | Writeback::Owner => 0,
            };
            this.count = this.count.max(domain + 1);
            this.of.push(Some(Flushing { domain, client: paying[place].1 }));
        }
        Ok(this)
    }

    /// What the cache needs to know of each: dirty limits are shared in equal parts.
    pub(super) fn domains(&self, host: &Host, tags: u32) -> Vec<DomainSetup> {
        let share = |percent: u32| host.memory / 100 * u64::from(percent) / self.count as u64;
        let domain = |_| DomainSetup {
            background: share(host.dirty_background_percent),
            limit: share(host.dirty_percent),
            depth: tags,
        };
        (0..self.count).map(domain).collect()
    }
}
