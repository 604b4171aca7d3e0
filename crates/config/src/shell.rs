//! Text that people copy: arguments of commands, and addresses.

use std::net::Ipv6Addr;
use std::path::Path;

/// A text as one word of a shell, quoted if it must be.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_string();
    }
    if !text.contains(char::is_control) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    // A terminal would interpret them.
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        c => c.to_string(),
    };
    format!("$'{}'", text.chars().map(escaped).collect::<String>())
}

/// A path as one word of a shell. A path that begins with a dash is none of a command's options.
pub fn path(path: &Path) -> String {
    let text = path.display().to_string();
    word(&if text.starts_with('-') { format!("./{text}") } else { text })
}

/// An IPv6 address with a port as it should have been written, if its brackets are missing.
pub fn with_brackets(address: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    host.parse::<Ipv6Addr>().ok()?;
    let port: u16 = port.parse().ok()?;
    Some(format!("[{host}]:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a shell reads a word as the text that it was made of. Method: a shell reads them.
    #[test]
    fn a_shell_reads_the_text() {
        for text in
            ["plain", "a b", "it's", "", "$HOME `x` *?", "a\nb\u{1b}[0m'\\", "gr\u{f6}\u{df}e"]
        {
            let script = format!("printf %s {}", word(text));
            let output = std::process::Command::new("bash").args(["-c", &script]).output();
            assert_eq!(String::from_utf8_lossy(&output.expect("a shell").stdout), text, "{script}");
            assert!(!word(text).contains(char::is_control));
        }
        assert_eq!((word("plain").as_str(), path(Path::new("-x")).as_str()), ("plain", "./-x"));
    }

    /// Goal: missing brackets are recognised, and only they. Method: addresses of each kind.
    #[test]
    fn missing_brackets_are_recognised() {
        assert_eq!(with_brackets("::1:10991").as_deref(), Some("[::1]:10991"));
        assert_eq!(with_brackets("fe80::2:80").as_deref(), Some("[fe80::2]:80"));
        for other in ["[::1]:10991", "127.0.0.1:80", "::1", "pool1:9720", "::1:port", ""] {
            assert_eq!(with_brackets(other), None, "{other}");
        }
    }
}
