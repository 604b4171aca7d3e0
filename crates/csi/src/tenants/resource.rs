//! The resource `Tenant`, as the API server has it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use iofair_core::unit::parse_rate;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value as Json, json};

use super::complaints::Complaints;

/// Keeps a deleted resource until its contracts are removed from the servers.
const FINALIZER: &str = "iofair.dev/contracts";

/// A contract, in bytes per second. The default one promises and limits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Part {
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

/// A tenant: the namespace of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    version: Option<String>,
    /// The contract for all nodes together. Empty once the resource is deleted.
    pub(super) total: Part,
    /// What each node has at most: the list in its status.
    pub(super) parts: BTreeMap<String, Part>,
    pub(super) is_deleted: bool,
    /// Those of others, too.
    finalizers: Vec<String>,
    /// What its status says, with the parts.
    recorded: (BTreeMap<String, Part>, Report),
}

/// What a round reports.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Report {
    /// What all volumes together got, in bytes per second.
    pub(super) rate: u64,
    pub(super) problem: Option<String>,
}

/// Access to the resources.
pub(super) struct Resources(Api<DynamicObject>);

impl Resources {
    pub(super) fn new(client: Client) -> Self {
        let kind = GroupVersionKind::gvk("iofair.dev", "v1alpha1", "Tenant");
        Self(Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "tenants")))
    }
    /// All tenants. One that cannot be read is logged, and keeps what it has.
    ///
    /// # Errors
    /// The API server does not list them.
    pub(super) async fn list(&self, complaints: &mut Complaints) -> Result<Vec<Tenant>> {
        let listed = self.0.list(&ListParams::default()).await.context("the list of Tenants")?;
        let read = |object: DynamicObject| match Tenant::read(&object) {
            Ok(tenant) => Some(tenant),
            Err(error) => {
                complaints.add(format!("tenant {}: {error:#}", object.name_any()));
                None
            }
        };
        Ok(listed.items.into_iter().filter_map(read).collect())
    }
    /// Writes what each node has at most, unless the resource says it already. A rate alone is written if it is another one by an
    /// eighth, so that tenants cost the API server nothing while nothing changes.
    ///
    /// # Errors
    /// The API server refuses it: somebody else has written it meanwhile, for example.
    pub(super) async fn record(&self, tenant: &mut Tenant, report: &Report) -> Result<()> {
        let (parts, before) = &tenant.recorded;
        let is_same_rate = before.rate.abs_diff(report.rate) <= before.rate / 8;
        if *parts == tenant.parts && before.problem == report.problem && is_same_rate {
            return Ok(());
        }
        let nodes: Vec<Json> = tenant
            .parts
            .iter()
            .map(|(node, part)| json!({ "node": node, "min": part.min, "max": part.max }))
            .collect();
        let patch = json!({
            "metadata": { "resourceVersion": tenant.version },
            "status": {
                "count": nodes.len(), "nodes": nodes, "rate": rate(report.rate),
                "problem": report.problem
            }
        });
        let patched = self
            .0
            .patch_status(&tenant.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("its status")?;
        tenant.version = patched.metadata.resource_version;
        tenant.recorded = (tenant.parts.clone(), report.clone());
        Ok(())
    }
    /// Keeps the resource until [`Resources::release`].
    ///
    /// # Errors
    /// The API server refuses it.
    pub(super) async fn hold(&self, tenant: &mut Tenant) -> Result<()> {
        if tenant.is_deleted || tenant.finalizers.iter().any(|name| name == FINALIZER) {
            return Ok(());
        }
        let finalizers = [&tenant.finalizers[..], &[FINALIZER.to_string()]].concat();
        self.set_finalizers(tenant, finalizers).await
    }
    /// Lets a deleted resource go.
    ///
    /// # Errors
    /// The API server refuses it.
    pub(super) async fn release(&self, tenant: &mut Tenant) -> Result<()> {
        let mut finalizers = tenant.finalizers.clone();
        finalizers.retain(|name| name != FINALIZER);
        self.set_finalizers(tenant, finalizers).await
    }
    async fn set_finalizers(&self, tenant: &mut Tenant, finalizers: Vec<String>) -> Result<()> {
        let patch = json!({
            "metadata": { "resourceVersion": tenant.version, "finalizers": finalizers }
        });
        let patched =
            self.0.patch(&tenant.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        tenant.version = patched.context("its finalizer")?.metadata.resource_version;
        tenant.finalizers = finalizers;
        Ok(())
    }
}

/// A rate for people.
fn rate(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{}kB/s", bytes / 1000),
        _ => format!("{}MB/s", bytes / 1_000_000),
    }
}

impl Tenant {
    fn read(object: &DynamicObject) -> Result<Self> {
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        let rate = |key: &str| -> Result<Option<u64>> {
            let text = object.data["spec"][key].as_str().filter(|_| !is_deleted);
            text.map(parse_rate).transpose().with_context(|| key.to_string())
        };
        let status = &object.data["status"];
        let nodes = status["nodes"].as_array().into_iter().flatten();
        let part = |node: &Json| {
            let part = Part { min: node["min"].as_u64().unwrap_or(0), max: node["max"].as_u64() };
            Some((node["node"].as_str()?.to_string(), part))
        };
        let parts: BTreeMap<String, Part> = nodes.filter_map(part).collect();
        let report = Report {
            rate: status["rate"].as_str().and_then(|text| parse_rate(text).ok()).unwrap_or(0),
            problem: status["problem"].as_str().map(str::to_string),
        };
        Ok(Self {
            name: object.name_any(),
            version: object.metadata.resource_version.clone(),
            total: Part { min: rate("min")?.unwrap_or(0), max: rate("max")? },
            parts: parts.clone(),
            is_deleted,
            finalizers: object.finalizers().to_vec(),
            recorded: (parts, report),
        })
    }
}
