//! Which stream of a trace belongs to which group.

use iofair_trace::Stream;

/// Groups that streams get by themselves; further streams are in the group `others`.
pub(super) const OWN_MAX: usize = 256;
/// The group of further streams.
pub(super) const OTHERS: &str = "others";

/// Rules for streams. The first that fits counts; then the group in the trace; then a group of the stream's own, which has
/// the stream's name.
#[derive(Clone, Default, Debug)]
pub struct Mapping {
    rules: Vec<(String, String)>,
}

impl Mapping {
    /// Adds a rule: streams with names like `pattern`, in which `*` stands for any text, are in `group`.
    pub fn add(&mut self, pattern: impl Into<String>, group: impl Into<String>) {
        self.rules.push((pattern.into(), group.into()));
    }
    /// The group of a stream by a rule or by the trace.
    pub(super) fn find<'a>(&'a self, stream: &'a Stream) -> Option<&'a str> {
        let rule = self.rules.iter().find(|(pattern, _)| matches(pattern, &stream.name));
        let recorded = Some(stream.group.as_str()).filter(|group| !group.is_empty());
        rule.map(|(_, group)| group.as_str()).or(recorded)
    }
}

/// A path of one component that every group may have.
pub(super) fn as_path(name: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    let text: String = name.chars().take(64).map(|c| if letter(c) { c } else { '_' }).collect();
    let dots = text.trim_matches(['.', '_']).to_owned();
    if dots.is_empty() { "stream".into() } else { dots }
}

/// Whether a text fits a pattern with stars. Time is bounded by the product of both lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and what it has eaten up to.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, eaten)) = star {
            star = Some((at, eaten + 1));
            (p, t) = (at + 1, eaten + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stars stand for any text. Method: by hand.
    #[test]
    fn patterns_match() {
        for (pattern, text, fits) in [
            ("web.*", "web.0", true),
            ("web.*", "web", false),
            ("*", "", true),
            ("*.log", "a.log.log", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("fio.1", "fio.12", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    /// Goal: the order of rules, trace and name. Method: one stream.
    #[test]
    fn the_first_rule_counts() {
        let mut mapping = Mapping::default();
        let mut stream = Stream { name: "web.0".into(), ..Stream::default() };
        assert_eq!(mapping.find(&stream), None);
        stream.group = "tenants/a".into();
        assert_eq!(mapping.find(&stream), Some("tenants/a"));
        mapping.add("web.*", "web");
        mapping.add("*", "rest");
        assert_eq!(mapping.find(&stream), Some("web"));
        for (name, path) in
            [("/data/a", "data_a"), ("..", "stream"), ("kworker/u8:1.3", "kworker_u8:1.3")]
        {
            assert_eq!(as_path(name), path);
        }
    }
}
