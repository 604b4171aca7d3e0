//! Notes for the operator about things that do not prevent a start: certificates that clients will refuse, and system
//! limits below those of the contracts. A start and a change log them; a check and `iofair ctl` print them.

use std::path::Path;

use iofair_config::contracts::Contracts;
use iofair_core::unit::Count;

use crate::clock;
use crate::descriptors;
use crate::error::ServeError;
use crate::front::tls;
use crate::security;

/// Descriptors that a server needs besides those of connections and volumes: its rings, files and sockets, and those that are
/// kept for control.
const OWN: u64 = 64 + descriptors::RESERVED;
/// Descriptors that a volume may need: its file twice, its lock, and a socket with its machine's memory and queues.
const OF_VOLUME: u64 = 8;
/// Descriptors without which no server starts: those of its threads, sockets and files, and of some clients.
const LEAST: u64 = 64;
const DAY: u64 = 24 * 60 * 60;

/// Refuses a start with so few descriptors that it would fail half way.
pub(super) fn check_descriptors(contracts: &Contracts) -> Result<(), ServeError> {
    descriptors::raise_limit();
    let Some(limit) = descriptors::limit().filter(|limit| *limit < LEAST) else { return Ok(()) };
    let message = format!(
        "{}; a server needs at least {LEAST} (`ulimit -n`, or LimitNOFILE= of systemd)",
        may_need(contracts, limit)
    );
    Err(ServeError::Descriptors(message))
}

/// The limit, and what these contracts may need.
fn may_need(contracts: &Contracts, limit: u64) -> String {
    let connections = u64::from(contracts.listen.limits.connections);
    format!(
        "this process may open {} (RLIMIT_NOFILE); {} and {} may need {}",
        Count(limit, "file"),
        Count(connections, "connection"),
        Count(contracts.volumes.len(), "volume"),
        needed(contracts)
    )
}

fn needed(contracts: &Contracts) -> u64 {
    let connections = u64::from(contracts.listen.limits.connections);
    connections + OF_VOLUME * contracts.volumes.len() as u64 + OWN
}

/// All there is to say; after a change, of the limit on open files only if it sufficed `before`.
pub(super) fn notes(contracts: &Contracts, before: Option<&Contracts>) -> Vec<String> {
    let tls = contracts.listen.tls.iter();
    let tls = tls.chain(contracts.control.tls.iter().map(|control| &control.files));
    let now = clock::unix_millis() / 1000;
    let mut notes: Vec<String> = tls.filter_map(|tls| dates(&tls.certificate, now)).collect();
    let least = before.map_or(0, needed);
    let limit = descriptors::limit().filter(|limit| (least..needed(contracts)).contains(limit));
    notes.extend(limit.map(|limit| may_need(contracts, limit)));
    notes.dedup();
    notes
}

/// Whether a certificate is out of its dates.
fn dates(path: &Path, now: u64) -> Option<String> {
    let certificates = security::certificates(path).ok()?;
    let [from, until] = tls::validity(certificates.first()?)?;
    let day = |time: u64| tls::date(time / DAY);
    let path = path.display();
    if now > until {
        return Some(format!(
            "{path}: the certificate expired on {}; clients refuse it",
            day(until)
        ));
    }
    (now < from).then(|| {
        format!("{path}: the certificate is valid from {} on; clients refuse it", day(from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dates of certificates are read as written. Method: certificates with known years, and days by hand.
    #[test]
    fn certificates_out_of_their_dates_are_told() {
        let path = std::env::temp_dir().join(format!("iofair-dates-{}", std::process::id()));
        for (from, until, wanted) in [
            (1999, 2049, None),
            (1999, 2090, None),
            (1985, 2012, Some("the certificate expired on 2012-01-01; clients refuse it")),
            (2051, 2060, Some("the certificate is valid from 2051-01-01 on; clients refuse it")),
        ] {
            let mut params = rcgen::CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            std::fs::write(&path, params.self_signed(&key).unwrap().pem()).unwrap();
            let wanted = wanted.map(|wanted| format!("{}: {wanted}", path.display()));
            assert_eq!(dates(&path, 1_800_000_000), wanted);
        }
        std::fs::remove_file(&path).unwrap();
        let days = [0, 59, 11_016, 11_017, 20_818].map(tls::date);
        assert_eq!(days, ["1970-01-01", "1970-03-01", "2000-02-29", "2000-03-01", "2026-12-31"]);
    }
}
