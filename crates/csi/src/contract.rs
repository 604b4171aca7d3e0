//! Contracts from the parameters of StorageClasses and VolumeAttributesClasses.
//!
//! A parameter is a key of a `[[group]]` in a contract file: `min`, `weight`, `max.read`. The server judges the values, and its
//! message goes to the claim.

use std::collections::HashMap;

use iofair_core::key::{Key, tops};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

/// Keys of contracts that classes may set: those that the server's policies enforce.
fn keys() -> impl Iterator<Item = &'static str> {
    let enforced = |word: &&str| Key::ALL.iter().any(|key| key.word() == *word && *key != Key::Low);
    tops().filter(enforced)
}
/// Parameters that Kubernetes adds itself begin so.
const KUBERNETES: &str = "csi.storage.k8s.io/";
/// The namespace of the claim, if the provisioner passes it (`--extra-create-metadata`).
const NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";

/// The contract of a volume as the control API takes it: an object with keys of a `[[group]]`.
///
/// # Errors
/// INVALID_ARGUMENT names the parameter and what is allowed.
pub(crate) fn contract(parameters: &HashMap<String, String>) -> Result<Json, Status> {
    let mut contract = Map::new();
    for (key, value) in parameters {
        if key.starts_with(KUBERNETES) {
            continue;
        }
        let (name, inner) = match key.split_once('.') {
            Some((name, inner)) => (name, Some(inner)),
            None => (key.as_str(), None),
        };
        if !keys().any(|known| known == name) {
            let message = format!(
                "parameter \"{key}\" is unknown; allowed: {}, max.read and others of `max`",
                keys().collect::<Vec<_>>().join(", ")
            );
            return Err(Status::invalid_argument(message));
        }
        let value = value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number));
        let Some(inner) = inner else {
            contract.insert(name.into(), value);
            continue;
        };
        if parameters.contains_key(name) {
            return Err(Status::invalid_argument(format!(
                "parameters \"{name}\" and \"{key}\" exclude each other"
            )));
        }
        contract.entry(name).or_insert_with(|| json!({}))[inner] = value;
    }
    Ok(Json::Object(contract))
}

/// The group of a volume: inside that of its namespace, so that all volumes of a namespace share a contract.
pub(crate) fn group(all: &str, parameters: &HashMap<String, String>, volume: &str) -> String {
    match parameters.get(NAMESPACE).filter(|name| !name.is_empty()) {
        Some(namespace) => format!("{all}/{namespace}/{volume}"),
        None => format!("{all}/{volume}"),
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::key::{Field, inside};

    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// Goal: parameters become keys of the control API; unknown ones are named.
    #[test]
    fn parameters_are_keys_of_a_contract() {
        let written = parameters(&[
            ("min", "10MB/s"),
            ("weight", "300"),
            ("max.read", "50MB/s"),
            ("max.write", "20MB/s"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ]);
        let read = contract(&written).expect("known keys");
        let wanted = json!({
            "min": "10MB/s", "weight": 300, "max": { "read": "50MB/s", "write": "20MB/s" }
        });
        assert_eq!(read, wanted);
        let wrong = parameters(&[("mim", "10MB/s")]);
        let error = contract(&wrong).expect_err("unknown");
        assert!(
            error.message().contains("\"mim\"") && error.message().contains("min_iops"),
            "{error}"
        );
        let both = parameters(&[("max", "10MB/s"), ("max.read", "5MB/s")]);
        let error = contract(&both).expect_err("which one holds?");
        assert!(error.message().contains("exclude each other"), "{error}");
    }

    /// Goal: the Helm chart takes the parameters that the driver takes. Method: the schema of its values; IOFAIR_BLESS=1 writes
    /// it.
    #[test]
    fn the_helm_chart_knows_the_keys() {
        const PATH: &str = "../../packaging/helm/iofair/values.schema.json";
        let inside = |top: &str| inside(top).filter_map(Field::inner).collect::<Vec<_>>();
        let key = |top: &'static str| match inside(top).as_slice() {
            [] => top.to_string(),
            inner => format!("{top}(\\\\.({}))?", inner.join("|")),
        };
        let pattern = format!("^({})$", keys().map(key).collect::<Vec<_>>().join("|"));
        let line = format!("      \"propertyNames\": {{\"pattern\": \"{pattern}\"}},");
        let schema = std::fs::read_to_string(PATH).expect("the schema");
        let is_pattern = |line: &&str| line.trim_start().starts_with("\"propertyNames\"");
        let known = schema.lines().find(is_pattern).expect("the line of the keys");
        if std::env::var_os("IOFAIR_BLESS").is_some() {
            std::fs::write(PATH, schema.replace(known, &line)).expect("written");
            return;
        }
        assert_eq!(known, line, "IOFAIR_BLESS=1 cargo test -p iofair-csi helm_chart writes it");
    }

    /// Goal: a volume of a namespace is in the namespace's group.
    #[test]
    fn a_namespace_is_a_group() {
        assert_eq!(
            group("kubernetes", &parameters(&[(NAMESPACE, "team-a")]), "pvc-1"),
            "kubernetes/team-a/pvc-1"
        );
        assert_eq!(group("kubernetes", &parameters(&[]), "pvc-1"), "kubernetes/pvc-1");
    }
}
