//! The part of contracts that a replay needs: the stack with its parameters, and the contract of each group.

use serde_json::{Map, Value as Json, json};

use super::Contracts;

/// Keys of the drive that are kept.
const DRIVE: &[&str] = &["stack", "policy", "worst_case", "reaches"];
/// Keys of a group that name clients or connections.
const CLIENTS: &[&str] = &["clients", "connections"];

impl Contracts {
    /// A contract file with the same stack and groups, and without volumes, paths, sockets and clients. Its drive is memory.
    pub fn bare(&self) -> String {
        let mut written = self.written();
        let mut drive = Map::new();
        drive.insert("back".into(), "memory:1GiB".into());
        for key in DRIVE {
            let value = written.get_mut("drive").and_then(|drive| drive.get_mut(*key));
            drive.extend(value.map(|value| ((*key).to_owned(), value.take())));
        }
        let groups = written.get_mut("group").map_or_else(|| json!([]), Json::take);
        let mut bare = json!({ "drive": drive, "listen": { "unix": "recorded.sock" } });
        let Json::Array(mut groups) = groups else { return String::new() };
        for group in &mut groups {
            let Json::Object(keys) = group else { continue };
            CLIENTS.iter().for_each(|key| drop(keys.remove(*key)));
        }
        if !groups.is_empty() {
            bare["group"] = Json::Array(groups);
        }
        toml::to_string(&bare).expect("what came from TOML goes back")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stack and contracts survive, paths and clients do not. Method: a file with both.
    #[test]
    fn only_stack_and_groups_are_kept() {
        let text = "[drive]\nback = 'file:/srv/secret.img'\nstack = 'max+prop-bfq'\n\
            [drive.policy.bfq]\nslice_idle = '4ms'\n[listen]\nunix = '/run/secret.sock'\n\
            [[group]]\nname = 'tenants/alice'\nmax = { read = '50MB/s' }\nconnections = 3\n\
            [[group]]\nname = 'b'\nweight = 300\n\
            [[volume]]\nname = 'secret'\ngroup = 'b'\nsize = '1GiB'\n";
        let contracts = Contracts::parse("a.toml", text).unwrap();
        let bare = contracts.bare();
        assert!(!bare.contains("secret") && !bare.contains("connections"), "{bare}");
        let again = Contracts::parse("bare.toml", &bare).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.drive.stack.name(), "max+prop-bfq");
        let contracts_of = |contracts: &Contracts| {
            let groups = contracts.groups.iter();
            groups.map(|group| (group.name.clone(), group.contract.clone())).collect::<Vec<_>>()
        };
        assert_eq!(contracts_of(&again), contracts_of(&contracts));
        assert!(bare.contains("slice_idle"));
    }
}
