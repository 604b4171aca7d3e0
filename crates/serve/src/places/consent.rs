//! What a change of contracts may destroy or move.

/// Consent to changes that cannot be undone or that need permission; each list names volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Consent {
    /// May shrink; data beyond the new size is lost.
    pub shrink: Vec<String>,
    /// May be created again in another group than the one for which their data was kept, or empty, if their file is
    /// missing.
    pub take_over: Vec<String>,
    /// Are removed from the contracts together with their data.
    pub delete: Vec<String>,
}
