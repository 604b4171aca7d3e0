//! What a change of contracts may destroy or move, and the refusal of what was not agreed to.

use std::path::{Path, absolute};

use iofair_config::contracts::edit::listed;
use iofair_config::contracts::{Contracts, Volume};
use iofair_config::{ConfigError, shell};
use iofair_core::unit::Count;

use crate::consent::{Consent, Unagreed};
use crate::error::ServeError;

/// Volumes that are explained one by one.
const NAMED_MAX: usize = 16;

/// The consent that a volume needs, in the order of [`Consent::lists`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    TakeOver,
    Shrink,
    Delete,
}

/// A volume that cannot be as the contracts say without consent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    pub(crate) volume: String,
    pub(crate) needs: Needs,
    pub(crate) why: String,
}

impl Need {
    /// Of a volume that would get smaller.
    pub(crate) fn shrink(volume: &Volume, has: u64) -> Self {
        let why =
            format!("it has {}, and {} would cut data off", Count(has, "byte"), volume.size_bytes);
        Self { volume: volume.name.clone(), needs: Needs::Shrink, why }
    }
}

impl Consent {
    fn covers(&self, need: &Need) -> bool {
        self.lists()[need.needs as usize].1.contains(&need.volume)
    }
    fn add(&mut self, need: &Need) {
        if self.covers(need) {
            return;
        }
        let list = match need.needs {
            Needs::Shrink => &mut self.shrink,
            Needs::TakeOver => &mut self.take_over,
            Needs::Delete => &mut self.delete,
        };
        list.push(need.volume.clone());
    }
    /// Refuses consent for volumes that the contracts do not have.
    pub(crate) fn check_names(&self, contracts: &Contracts) -> Result<(), ServeError> {
        let names = || contracts.volumes.iter().map(|volume| volume.name.as_str());
        let of_volumes = self.lists().into_iter().take(2);
        let mut given =
            of_volumes.flat_map(|(flag, list)| list.iter().map(move |name| (flag, name)));
        let Some((flag, name)) = given.find(|(_, given)| names().all(|name| name != *given)) else {
            return Ok(());
        };
        let message = format!("{flag}: the contracts have no volume \"{name}\"");
        let error = ConfigError::whole_file(contracts.path(), message);
        Err(error.allowed(listed(&names().collect::<Vec<_>>())).near(name, names()).into())
    }
    /// What of it contracts with these needs do not need, in words.
    pub(crate) fn unneeded(&self, needs: &[Need]) -> Vec<String> {
        let mut needed = Self::default();
        needs.iter().for_each(|need| needed.add(need));
        let of = |given: &[String], needed: &[String], text: &str| {
            let more = given.iter().filter(|name| !needed.contains(name));
            more.map(|name| format!("volume \"{name}\": {text}")).collect::<Vec<_>>()
        };
        let take_over = "nothing to take over: no data is kept for another group, or missing";
        let shrink = "nothing to shrink: it has no data beyond its size in the contracts";
        let take_over = of(&self.take_over, &needed.take_over, take_over);
        [take_over, of(&self.shrink, &needed.shrink, shrink)].concat()
    }
}

/// How a command that calls the server with these contracts begins.
pub(crate) fn ctl(contracts: &Contracts) -> String {
    let socket = contracts.control.unix.as_deref().and_then(|path| absolute(path).ok());
    let socket = socket.map(|path| shell::path(&path).to_string());
    let secured = contracts.control.tcp.map(|address| format!("https://{address}"));
    let option = socket.or(secured).map(|address| format!(" --socket {address}"));
    format!("iofair ctl{}", option.unwrap_or_default())
}

/// Refuses contracts that need more consent than was given. Returns all that they need.
pub(crate) fn check(
    needs: Vec<Need>,
    contracts: &Contracts,
    consent: &Consent,
    is_running: bool,
) -> Result<Vec<Need>, ServeError> {
    let mut missing = Consent::default();
    let refused: Vec<&Need> = needs.iter().filter(|need| !consent.covers(need)).collect();
    if refused.is_empty() {
        return Ok(needs);
    }
    refused.iter().for_each(|need| missing.add(need));
    let named = refused.iter().take(NAMED_MAX);
    let named = named.map(|Need { volume, why, .. }| format!("volume \"{volume}\": {why}"));
    let mut why = named.collect::<Vec<_>>().join("\n");
    if refused.len() > NAMED_MAX {
        why += &format!("\nand {}", Count(refused.len() - NAMED_MAX, "more volume"));
    }
    let (options, told) = (consent.and(missing.clone()).options(), Path::new(contracts.path()));
    let file = if is_running { absolute(told).ok() } else { None };
    let serve = format!("`iofair serve {options}{}`", shell::path(file.as_deref().unwrap_or(told)));
    let reload = format!("`{} reload {}`", ctl(contracts), options.trim_end());
    let commands =
        match (is_running, contracts.control.unix.is_some() || contracts.control.tcp.is_some()) {
            (false, _) => serve,
            (true, true) => reload,
            (true, false) => format!("a restart with {serve}"),
        };
    Err(ServeError::Consent(Box::new(Unagreed { missing, why, commands })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a suggested command names the server, whichever way it is controlled. Method: a socket, TLS, both, neither.
    #[test]
    fn commands_name_the_server() {
        let command = |keys: &str| {
            let text = format!("[drive]\nback = 'memory:1MiB'\n[listen]\nunix = 's'\n{keys}");
            ctl(&Contracts::parse("c.toml", &text).expect("right"))
        };
        let tls =
            "[control.tls]\ncertificate = 'c'\nkey = 'k'\nclients = 'ca'\noperators = ['alice']\n";
        let (unix, tcp) = ("unix = '/run/c.sock'\n", "tcp = '192.0.2.7:9720'\n");
        let socket = "iofair ctl --socket /run/c.sock";
        assert_eq!(command(&format!("[control]\n{unix}")), socket);
        assert_eq!(command(&format!("[control]\n{unix}{tcp}{tls}")), socket);
        let secured = command(&format!("[control]\n{tcp}{tls}"));
        assert_eq!(secured, "iofair ctl --socket https://192.0.2.7:9720");
        assert_eq!(command(""), "iofair ctl");
    }
}
