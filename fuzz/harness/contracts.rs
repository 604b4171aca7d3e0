//! Any text as a contract file: read or refused, and a refusal names a place in the text.

use iofair_config::contracts::Contracts;

pub fn contracts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Contracts::parse("fuzz.toml", &text) {
        Err(error) => {
            assert!(error.line() <= text.matches('\n').count() + 1, "{error}");
            assert!(error.to_string().starts_with("fuzz.toml"), "{error}");
        }
        Ok(contracts) => {
            for volume in &contracts.volumes {
                assert!(volume.size_bytes > 0 && volume.size_bytes.is_multiple_of(512));
            }
            // A refusal is an answer too.
            let _ = contracts.admitted(Some(160_000_000));
        }
    }
}
