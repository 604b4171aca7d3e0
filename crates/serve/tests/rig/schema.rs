//! Does an answer look as an OpenAPI file says? Knows the few words of JSON Schema that our file uses, and
//! panics at any other, so that nothing goes unchecked.

use serde_json::Value as Json;

/// What is wrong with a value; empty when nothing is.
pub(crate) fn complaints(document: &Json, schema: &Json, value: &Json, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, wanted) in schema.as_object().unwrap() {
        match word.as_str() {
            "description" | "examples" | "minimum" | "properties" => {}
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#").unwrap();
                let target = document.pointer(name).unwrap_or_else(|| panic!("no {name}"));
                found.extend(complaints(document, target, value, at));
            }
            "anyOf" => {
                let each = wanted.as_array().unwrap().iter();
                let all: Vec<_> = each.map(|one| complaints(document, one, value, at)).collect();
                if all.iter().all(|complaints| !complaints.is_empty()) {
                    found.extend(all.into_iter().flatten());
                }
            }
            "type" => found.extend(kind(schema, wanted, value, at)),
            "enum" => {
                let known = wanted.as_array().unwrap().contains(value);
                found.extend((!known).then(|| format!("{at}: {value} is none of {wanted}")));
            }
            "required" => {
                let there = |name: &&Json| value.get(name.as_str().unwrap()).is_none();
                let missing = wanted.as_array().unwrap().iter().filter(there);
                found.extend(missing.map(|name| format!("{at}: {name} is missing")));
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(complaints(document, wanted, item, &format!("{at}[{index}]")));
                }
            }
            "additionalProperties" => found.extend(properties(document, schema, value, at)),
            word => panic!("the checker does not know `{word}`"),
        }
    }
    found
}

fn kind(schema: &Json, wanted: &Json, value: &Json, at: &str) -> Option<String> {
    let names = match wanted {
        Json::Array(names) => names.iter().map(|name| name.as_str().unwrap()).collect(),
        one => vec![one.as_str().unwrap()],
    };
    let is = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        name => panic!("the checker does not know the type {name}"),
    };
    if !names.iter().any(is) {
        return Some(format!("{at}: {value} is no {wanted}"));
    }
    let low = schema.get("minimum")?.as_f64()?;
    (value.as_f64()? < low).then(|| format!("{at}: {value} is below {low}"))
}

fn properties(document: &Json, schema: &Json, value: &Json, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, inner) in value.as_object().into_iter().flatten() {
        let place = format!("{at}.{name}");
        match (schema.pointer(&format!("/properties/{name}")), &schema["additionalProperties"]) {
            (Some(schema), _) => found.extend(complaints(document, schema, inner, &place)),
            (None, Json::Bool(true)) => {}
            (None, Json::Bool(false)) => found.push(format!("{place}: nobody told of it")),
            (None, schema) => found.extend(complaints(document, schema, inner, &place)),
        }
    }
    found
}
