//! A server, called over its control API (`docs/access.md`).

use std::io;
use std::path::PathBuf;

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

/// A group as its server shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Its guaranteed minimum in bytes per second.
    pub(crate) min: u64,
    /// Its ceiling in bytes per second for reads and writes together.
    pub(crate) max: Option<u64>,
    /// Bytes of the last second, with those of groups inside it.
    pub(crate) rate: u64,
    /// Whether it has requests now.
    pub(crate) waits: bool,
}

impl Group {
    fn read(json: &Json) -> Option<Self> {
        let ceilings = json["in_force"]["ceilings"].as_array()?.iter();
        let mut totals =
            ceilings.filter(|limit| limit["of"] == "total" && limit["unit"] == "bytes");
        Some(Self {
            name: json["name"].as_str()?.to_string(),
            min: json["in_force"]["min_bytes_per_second"].as_u64().unwrap_or(0),
            max: totals.find_map(|ceiling| ceiling["per_second"].as_u64()),
            rate: json["usage"]["bytes_per_second"].as_u64().unwrap_or(0),
            waits: json["usage"]["requests_in_flight"].as_u64().unwrap_or(0) > 0,
        })
    }
    /// Whether the group is inside this one.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        is_inside(&self.name, group)
    }
}

/// What a node service and admission ask of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerStatus {
    /// Bytes for new volumes, if the server can tell.
    pub(crate) free: Option<u64>,
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
    /// Whether the volume's group is inside this one, as those that this driver creates are.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        is_inside(&self.group, group)
    }
}

/// Whether a group is inside another one, at any depth.
fn is_inside(name: &str, group: &str) -> bool {
    name.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

fn malformed(missing: &str) -> Failure {
    Failure::MalformedResponse { missing: missing.to_string() }
}

impl Server {
    async fn call(&self, call: Call) -> Result<Json, Failure> {
        let server = self.clone();
        let done = tokio::task::spawn_blocking(move || server.call_and_wait(&call)).await;
        done.map_err(|error| Failure::Unreachable(io::Error::other(error)))?
    }
    fn call_and_wait(&self, call: &Call) -> Result<Json, Failure> {
        let reply: Reply = client::call(&self.address, call).map_err(Failure::Unreachable)?;
        let body = reply.object("revision").map_err(Failure::Unreachable)?;
        if reply.is_good() {
            Ok(body)
        } else {
            Err(Failure::Refused(Refused::read(reply.status, &body)))
        }
    }
    /// Where NBD clients connect, if the server runs. Waits for its response.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let status = self.call_and_wait(&Call::new("GET", "/v1/status")).ok()?;
        status["listen_unix"].as_str().map(PathBuf::from)
    }
    pub(crate) async fn status(&self) -> Result<ServerStatus, Failure> {
        let status = self.call(Call::new("GET", "/v1/status")).await?;
        let text = |key: &str| status[key].as_str().map(str::to_string);
        Ok(ServerStatus {
            free: status["free_bytes"].as_u64(),
            mount: text("fuse_mount"),
            listen_unix: text("listen_unix"),
        })
    }
    /// The volume of this name, if there is one.
    pub(crate) async fn volume(&self, name: &str) -> Result<Option<Volume>, Failure> {
        match self.call(Call::new("GET", &format!("/v1/volumes/{}", escaped(name)))).await {
            Ok(body) => Volume::read(&body["volume"]).ok_or_else(|| malformed("volume")).map(Some),
            Err(error) if error.is("missing") => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// All of a collection, read by `read`, in pages.
    async fn all<T>(&self, what: &str, read: fn(&Json) -> Option<T>) -> Result<Vec<T>, Failure> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let from = after.map_or(String::new(), |name| format!("&after={}", escaped(&name)));
            let body =
                self.call(Call::new("GET", &format!("/v1/{what}?limit={PAGE}{from}"))).await?;
            let listed = body[what].as_array().ok_or_else(|| malformed(what))?;
            found.extend(listed.iter().filter_map(read));
            let last = listed.last().and_then(|object| object["name"].as_str()).map(str::to_string);
            if listed.len() < PAGE || last.is_none() {
                return Ok(found);
            }
            after = last;
        }
    }
    /// All volumes in groups inside this one, by name.
    pub(crate) async fn volumes(&self, group: &str) -> Result<Vec<Volume>, Failure> {
        let mut found = self.all("volumes", Volume::read).await?;
        found.retain(|volume| volume.is_in(group));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
    /// All groups.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>, Failure> {
        self.all("groups", Group::read).await
    }
    /// Changes keys of a group's contract. A group that exists only as a part of other groups' paths gets one, and a group
    /// that is gone needs none removed.
    pub(crate) async fn change_group(&self, name: &str, keys: Json) -> Result<(), Failure> {
        let call = Call::new("PATCH", &format!("/v1/groups/{}", escaped(name)));
        match self.call(call.body(keys.clone())).await {
            Err(error) if error.is("missing") => {
                let mut keys = keys;
                keys.as_object_mut()
                    .into_iter()
                    .for_each(|keys| keys.retain(|_, value| !value.is_null()));
                match keys.as_object().is_some_and(|keys| keys.is_empty()) {
                    true => Ok(()),
                    false => self.put_group(name, &keys, false).await,
                }
            }
            done => done.map(drop),
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
