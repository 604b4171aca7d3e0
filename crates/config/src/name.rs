//! Names of groups and volumes: the one definition for contract files, the control API, experiments and Kubernetes.
//!
//! Names appear in paths of files and URLs, as arguments of commands, and on terminals. So there is no `..`, no name
//! that looks like an option, and no character that a terminal interprets.

use iofair_core::bounds::DEPTH_MAX;

/// Longest name of a group or volume, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most names that an error about an unknown one lists.
const NAMED_MAX: usize = 16;
/// The characters of a word beside letters and digits.
const PUNCTUATION: &str = "-_.";
/// Those of a group's word, which may be the name of a systemd unit.
const GROUP_PUNCTUATION: &str = "-_.:@+\\";

/// The names that [`is_volume_name`] allows.
pub(crate) const VOLUME_NAMES: &str = "1 to 255 ASCII letters, digits, dashes, dots and underscores, beginning with a letter, digit or underscore";
/// The names that [`is_group_name`] allows.
pub const GROUP_NAMES: &str = "at most 32 words separated by single slashes, at most 255 bytes; a word has letters, digits and - _ . : @ + \\, \
     beginning with a letter, digit or underscore";

/// Whether a volume may have this name.
pub fn is_volume_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.is_ascii() && is_word(name, PUNCTUATION)
}

/// Whether a group may have this name.
pub fn is_group_name(name: &str) -> bool {
    let is_short = name.len() <= NAME_BYTES_MAX && name.split('/').count() <= DEPTH_MAX;
    is_short && name.split('/').all(|word| is_word(word, GROUP_PUNCTUATION))
}

/// Names that an error allows; of many, only the first ones.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => "there is none yet".to_string(),
        names if names.len() > NAMED_MAX => {
            format!("{}, and {} more", names[..NAMED_MAX].join(", "), names.len() - NAMED_MAX)
        }
        names => names.join(", "),
    }
}

/// The groups above a group, outermost first.
pub(crate) fn ancestors(group: &str) -> impl Iterator<Item = &str> {
    group.match_indices('/').map(|(slash, _)| &group[..slash])
}

fn is_word(word: &str, punctuation: &str) -> bool {
    let begins_well = |first: char| first.is_alphanumeric() || first == '_';
    let fits = |letter: char| letter.is_alphanumeric() || punctuation.contains(letter);
    word.chars().next().is_some_and(begins_well) && word.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names are safe in paths, arguments and on terminals, and ordinary names are allowed. Method: by hand.
    #[test]
    fn names_are_safe() {
        let long = "x".repeat(NAME_BYTES_MAX);
        for good in ["a", "alice-root", "_x", "pvc-0e9c.1", "7", &long] {
            assert!(is_volume_name(good) && is_group_name(good), "{good}");
        }
        for good in [
            "tenants/alice",
            "system.slice/a@1.service",
            "machine:web",
            "gr\u{f6}\u{df}e",
            "a\\x2db",
        ] {
            assert!(is_group_name(good) && !is_volume_name(good), "{good}");
        }
        let hidden = ["a\u{202e}b", "a\u{200b}", "a\u{7f}", "\u{1b}[2J", "a\u{85}b", "a\nb", "a\0"];
        let odd = [
            "", ".", "..", "-rf", "a b", " a", "a/", "/a", "a//b", "a/../b", "a/-b", ".hidden",
            "a'b", "a$b",
        ];
        for bad in odd.iter().chain(&hidden).copied().chain([&*(long.clone() + "x")]) {
            assert!(!is_volume_name(bad) && !is_group_name(bad), "{bad:?}");
        }
        let deep = vec!["a"; DEPTH_MAX].join("/");
        assert!(
            is_group_name(&deep) && !is_group_name(&(deep + "/a")),
            "deeper than the engine's tree"
        );
        assert!(GROUP_NAMES.contains(&format!("at most {DEPTH_MAX} words")));
    }
}
