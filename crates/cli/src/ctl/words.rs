//! Arguments as the control socket wants them: `max.read=50MB/s` is a key in an object.

use std::collections::BTreeSet;

use anyhow::Result;
use iofair_core::key::{Field, inside};
use serde_json::{Map, Value as Json, json};

use crate::failure::Usage;
pub(crate) use iofair_serve::control::client::escaped;

/// The path of one group or volume; slashes of its name are no slashes of the path.
pub(crate) fn path(kind: &str, name: &str) -> Result<String> {
    if name.is_empty() {
        let example = if kind == "groups" { "tenants/alice" } else { "alice-root" };
        return Err(Usage(format!("the name is empty; a name is needed, such as {example}")).into());
    }
    Ok(format!("/v1/{kind}/{}", escaped(name)))
}

/// `KEY=VALUE` arguments as an object; a dot nests, `none` removes: all of a table, before parts of it that follow.
pub(crate) fn keys(arguments: &[String]) -> Result<Json> {
    let (mut keys, mut given) = (Map::new(), BTreeSet::new());
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let message = format!("\"{argument}\" is not KEY=VALUE, as in weight=300");
            return Err(Usage(message).into());
        };
        let value = match value {
            "none" => Json::Null,
            "true" | "false" => json!(value == "true"),
            value if value.starts_with('[') => list(value)?,
            value => value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number)),
        };
        let (top, part) = key.split_once('.').map_or((key, None), |(top, part)| (top, Some(part)));
        if !given.insert(key) || part.is_none() && keys.contains_key(top) {
            return Err(Usage(format!("\"{key}\" is given twice")).into());
        }
        let Some(part) = part else {
            keys.insert(top.into(), value);
            continue;
        };
        let table = keys.entry(top).or_insert_with(|| json!({}));
        if table.is_null() {
            let parts = inside(top).filter_map(Field::inner);
            *table = parts.map(|part| (part.to_string(), Json::Null)).collect();
        }
        let Some(table) = table.as_object_mut() else {
            let message = format!("\"{key}\" conflicts with a key that was given before it");
            return Err(Usage(message).into());
        };
        table.insert(part.into(), value);
    }
    Ok(Json::Object(keys))
}

/// `["a", "b"]`, or what a shell makes of that, `[a, b]`.
fn list(value: &str) -> Result<Json> {
    let Some(inner) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Err(Usage(format!("\"{value}\" is no list, as in [a,b]")).into());
    };
    let items = inner.split(',').map(|item| item.trim().trim_matches(['"', '\'']));
    Ok(items.filter(|item| !item.is_empty()).collect())
}

/// A stack with parameters.
pub(crate) fn stack(name: &str, parameters: &[String]) -> Result<Json> {
    match parameters {
        [] => Ok(json!({ "name": name })),
        parameters => {
            // A policy's own name may hold a dot (bfq-4.18), its parameters hold none.
            let mut policy = Map::new();
            for argument in parameters {
                let split = argument.split_once('=');
                let split = split.and_then(|(key, value)| Some((key.rsplit_once('.')?, value)));
                let Some(((stage, parameter), value)) = split else {
                    let message = format!(
                        "\"{argument}\" is not POLICY.PARAMETER=VALUE, as in bfq.slice_idle=4ms"
                    );
                    return Err(Usage(message).into());
                };
                let stage = policy.entry(stage).or_insert_with(|| json!({}));
                stage[parameter] = json!(value);
            }
            Ok(json!({ "name": name, "policy": policy }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is typed becomes what the file would say. Method: each form once, and wrong ones.
    #[test]
    fn arguments_become_keys() {
        let read = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|text| text.to_string()).collect();
            keys(&list)
        };
        let typed = ["weight=300", "max.read=5MB/s", "max.write=none", "class=idle", "a=true"];
        let meant = json!({"weight": 300, "max": {"read": "5MB/s", "write": null},
            "class": "idle", "a": true});
        assert_eq!(read(&typed).unwrap(), meant);
        for listed in [r#"clients=["a","b"]"#, "clients=[a, b]", "clients=['a','b',]"] {
            assert_eq!(read(&[listed]).unwrap(), json!({ "clients": ["a", "b"] }));
        }
        assert_eq!(read(&["clients=[]"]).unwrap(), json!({ "clients": [] }));
        assert!(read(&["clients=[a"]).is_err());
        assert!(read(&["weight"]).is_err() && read(&["=3"]).is_err());
        assert!(read(&["max=5MB/s", "max.read=3MB/s"]).is_err());
        for twice in [["latency=2ms", "latency=3ms"], ["max.read=3MB/s", "max=none"]] {
            let error = read(&twice).unwrap_err().to_string();
            assert!(error.contains("is given twice"), "{error}");
        }
        let anew = json!({ "latency": { "read": null, "write": null, "sync": "1ms" } });
        assert_eq!(read(&["latency=none", "latency.sync=1ms"]).unwrap(), anew);
        assert!(read(&["latency=none", "latency.sync=1ms", "latency.sync=2ms"]).is_err());
        assert!(path("groups", "").is_err());
        assert_eq!(path("groups", "a/b c").unwrap(), "/v1/groups/a%2Fb%20c");
        let given = stack("none-bfq-4.18", &["bfq-4.18.slice_idle=2ms".to_string()]).unwrap();
        assert_eq!(given["policy"]["bfq-4.18"]["slice_idle"], "2ms");
    }
}
