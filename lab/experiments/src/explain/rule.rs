//! A rule as the policies write it, with its numbers put in.

use iofair_core::time::Nanos;
use iofair_core::trace::rule_in_words;

use super::names::Names;

/// Puts the numbers where the rule says; a rule without braces stands as it is.
pub(super) fn with_values(rule: &str, values: [u64; 2], names: &Names) -> String {
    let mut values = values.into_iter();
    rule_in_words(rule, |kind| {
        let value = values.next().unwrap_or(0);
        match kind {
            "ns" => Nanos(value).to_string(),
            "bytes" => size(value),
            "group" => names.group(value as usize),
            "client" => names.client(value as usize).to_string(),
            _ => value.to_string(),
        }
    })
}

/// The rule's name, when it held often, with different numbers.
pub(super) fn without_values(rule: &str) -> String {
    let name = rule.split_once(';').map_or(rule, |(name, _)| name);
    rule_in_words(name, |kind| {
        match kind {
            "ns" => "a while",
            "group" => "a group",
            "client" => "a client",
            _ => "N",
        }
        .to_string()
    })
}

/// Bytes as people write them, in binary units while that is exact and decimal ones else.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers stand where the rule wants them, in their units. Method: one of each kind.
    #[test]
    fn rules_insert_their_numbers() {
        let names = Names::default();
        let fill = |rule, values| with_values(rule, values, &names);
        assert_eq!(fill("idle: wait", [7, 8]), "idle: wait");
        assert_eq!(fill("waits {ns}, {} before it", [1_500, 3]), "waits 1.500us, 3 before it");
        assert_eq!(fill("{bytes} of {bytes}", [4096, 3 << 19]), "4 KiB of 1.5 MiB");
        assert_eq!(fill("a brace { alone", [1, 2]), "a brace { alone");
        assert_eq!(without_values("over {group}; {} held"), "over a group");
        assert_eq!(without_values("waits {ns}, {} of {group}"), "waits a while, N of a group");
    }
}
