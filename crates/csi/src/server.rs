//! A server, called over its control API (`docs/control.md`).

use std::io;

use iofair_serve::control::client::{self, Address, Call, Reply, escaped};
use serde_json::{Value as Json, json};

use crate::failure::{Failure, Refused};

/// Groups or volumes in one response.
const PAGE: usize = 1000;

/// The server on a node.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) node: String,
    pub(crate) address: Address,
}

/// A volume as its server shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) size: u64,
    /// Clients that have it open.
    pub(crate) connections: u64,
    /// Its block device, if it has `ublk`.
    pub(crate) block_device: Option<String>,
}

/// What a node service and admission ask of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerStatus {
    /// Bytes for new volumes.
    pub(crate) free: u64,
    /// Where the volumes are files.
    pub(crate) mount: Option<String>,
    /// Where NBD clients connect.
    pub(crate) listen_unix: Option<String>,
}

impl Volume {
    fn read(json: &Json) -> Option<Self> {
        Some(Self {
            name: json["name"].as_str()?.to_string(),
            group: json["settings"]["group"].as_str()?.to_string(),
            size: json["size_bytes"].as_u64()?,
            connections: json["connections"].as_u64().unwrap_or(0),
            block_device: json["block_device"].as_str().map(str::to_string),
        })
    }
}

fn odd(what: &str) -> Failure {
    Failure::Unreachable(io::Error::other(format!("its response has no {what}")))
}

impl Server {
    async fn call(&self, call: Call) -> Result<Json, Failure> {
        let address = self.address.clone();
        let done = tokio::task::spawn_blocking(move || client::call(&address, &call)).await;
        let reply: Reply =
            done.map_err(io::Error::other).and_then(|it| it).map_err(Failure::Unreachable)?;
        let body = reply.json().unwrap_or(Json::Null);
        if reply.is_good() {
            Ok(body)
        } else {
            Err(Failure::Refused(Refused::of(reply.status, &body)))
        }
    }
    pub(crate) async fn status(&self) -> Result<ServerStatus, Failure> {
        let status = self.call(Call::new("GET", "/v1/status")).await?;
        let text = |key: &str| status[key].as_str().map(str::to_string);
        Ok(ServerStatus {
            free: status["free_bytes"].as_u64().ok_or_else(|| odd("free_bytes"))?,
            mount: text("fuse_mount"),
            listen_unix: text("listen_unix"),
        })
    }
    /// The volume of this name, if there is one.
    pub(crate) async fn volume(&self, name: &str) -> Result<Option<Volume>, Failure> {
        match self.call(Call::new("GET", &format!("/v1/volumes/{}", escaped(name)))).await {
            Ok(body) => Volume::read(&body["volume"]).ok_or_else(|| odd("volume")).map(Some),
            Err(error) if error.is("missing") => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// All volumes in groups below this one, by name.
    pub(crate) async fn volumes(&self, group: &str) -> Result<Vec<Volume>, Failure> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let from = after.map_or(String::new(), |name| format!("&after={}", escaped(&name)));
            let body =
                self.call(Call::new("GET", &format!("/v1/volumes?limit={PAGE}{from}"))).await?;
            let listed = body["volumes"].as_array().ok_or_else(|| odd("volumes"))?;
            let all: Vec<Volume> = listed.iter().filter_map(Volume::read).collect();
            let last = all.last().map(|volume| volume.name.clone());
            let is_inside =
                |name: &str| name.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
            found.extend(all.into_iter().filter(|volume| is_inside(&volume.group)));
            if listed.len() < PAGE || last.is_none() {
                found.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(found);
            }
            after = last;
        }
    }
    /// Groups below this one whose last word is `name`.
    pub(crate) async fn groups_of(&self, group: &str, name: &str) -> Result<Vec<String>, Failure> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let from = after.map_or(String::new(), |name| format!("&after={}", escaped(&name)));
            let body =
                self.call(Call::new("GET", &format!("/v1/groups?limit={PAGE}{from}"))).await?;
            let listed = body["groups"].as_array().ok_or_else(|| odd("groups"))?;
            let names: Vec<&str> = listed.iter().filter_map(|it| it["name"].as_str()).collect();
            let is_one = |path: &&&str| {
                let inside = path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
                inside && path.rsplit('/').next() == Some(name)
            };
            found.extend(names.iter().filter(is_one).map(|path| path.to_string()));
            let last = names.last().map(|name| name.to_string());
            if listed.len() < PAGE || last.is_none() {
                return Ok(found);
            }
            after = last;
        }
    }
    /// Creates a group, or gives it another contract. `dry_run`: only says whether that would do.
    pub(crate) async fn put_group(
        &self,
        name: &str,
        contract: &Json,
        dry_run: bool,
    ) -> Result<(), Failure> {
        let query = if dry_run { "?dry_run=true" } else { "" };
        let call = Call::new("PUT", &format!("/v1/groups/{}{query}", escaped(name)));
        self.call(call.body(contract.clone())).await.map(drop)
    }
    /// Removes a group, if it is there.
    pub(crate) async fn remove_group(&self, name: &str) -> Result<(), Failure> {
        match self.call(Call::new("DELETE", &format!("/v1/groups/{}", escaped(name)))).await {
            Err(error) if !error.is("missing") => Err(error),
            _ => Ok(()),
        }
    }
    /// Creates a volume; refused with `exists` if there is one of this name.
    pub(crate) async fn create_volume(
        &self,
        name: &str,
        group: &str,
        size: u64,
    ) -> Result<(), Failure> {
        let call = Call::new("PUT", &format!("/v1/volumes/{}", escaped(name)));
        let call = call.body(json!({ "group": group, "size": size.to_string() }));
        self.call(Call { only_new: true, ..call }).await.map(drop)
    }
    /// Changes keys of a volume.
    pub(crate) async fn change_volume(&self, name: &str, keys: Json) -> Result<(), Failure> {
        let call = Call::new("PATCH", &format!("/v1/volumes/{}", escaped(name)));
        self.call(call.body(keys)).await.map(drop)
    }
    /// Removes a volume with its data, if it is there.
    pub(crate) async fn delete_volume(&self, name: &str) -> Result<(), Failure> {
        let call = Call::new("DELETE", &format!("/v1/volumes/{}?data=delete", escaped(name)));
        match self.call(call).await {
            Err(error) if !error.is("missing") => Err(error),
            _ => Ok(()),
        }
    }
}
