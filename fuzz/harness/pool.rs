//! Any bytes as a pool's superblock and table: refused or understood, and what was understood gives the same bytes again.

pub(crate) fn pool(data: &[u8]) {
    iofair_serve::pool::format::fuzz(data);
}
