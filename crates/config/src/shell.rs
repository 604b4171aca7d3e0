//! Text that people copy: arguments of commands, and addresses.

use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::Utf8Chunk;

/// A text as one word of a shell, quoted if it must be.
pub fn word(text: &str) -> String {
    bytes(text.as_bytes())
}

/// A path as one word of a shell. A path that begins with a dash is none of a command's options.
pub fn path(path: &Path) -> String {
    let text = path.as_os_str().as_bytes();
    bytes(&if text.starts_with(b"-") { [b"./", text].concat() } else { text.to_vec() })
}

/// Messages have commands between backticks and terminals interpret control characters, so that neither is in a word as it is.
fn bytes(text: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(byte);
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let is_special = |c: char| c.is_control() || c == '`';
    match std::str::from_utf8(text) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| is_plain(&byte)) => text.into(),
        Ok(text) if !text.contains(is_special) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let escaped = |c: char| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if is_special(c) => octal(c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => c.to_string(),
            };
            let chunk = |chunk: Utf8Chunk<'_>| {
                let valid = chunk.valid().chars().map(escaped).collect::<String>();
                valid + &octal(chunk.invalid())
            };
            format!("$'{}'", text.utf8_chunks().map(chunk).collect::<String>())
        }
    }
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
    use std::ffi::OsStr;

    /// Goal: a shell reads a word as the text that it was made of. Method: a shell reads them.
    #[test]
    fn a_shell_reads_the_text() {
        for text in
            ["plain", "a b", "it's", "", "$HOME `x` *?", "a\nb\u{1b}[0m'\\", "gr\u{f6}\u{df}e"]
        {
            let script = format!("printf %s {}", word(text));
            let output = std::process::Command::new("bash").args(["-c", &script]).output();
            assert_eq!(String::from_utf8_lossy(&output.expect("a shell").stdout), text, "{script}");
            assert!(!word(text).contains(|c: char| c.is_control() || c == '`'));
        }
        let script = format!("printf %s {}", path(Path::new(OsStr::from_bytes(b"a\xff'`b"))));
        let output = std::process::Command::new("bash").args(["-c", &script]).output();
        assert_eq!(output.expect("a shell").stdout, b"a\xff'`b", "{script}");
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
