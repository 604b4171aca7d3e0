//! Keys of contracts that some policy of a stack has to enforce.

/// A key of a contract, or of the tables inside one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Guaranteed bytes a second.
    Min,
    /// Guaranteed I/Os a second.
    MinIops,
    /// A share of what minimums leave.
    Weight,
    /// Ceilings on reads and on writes.
    Max,
    /// Ceilings on reads and writes together.
    MaxTotal,
    /// What may pass a ceiling at once.
    MaxBurst,
    /// Low limits.
    Low,
    /// A latency of reads.
    Latency,
    /// Which minimums are broken first.
    Class,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Min,
        Self::MinIops,
        Self::Weight,
        Self::Max,
        Self::MaxTotal,
        Self::MaxBurst,
        Self::Low,
        Self::Latency,
        Self::Class,
    ];
    /// As files and errors spell it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::MinIops => "min_iops",
            Self::Weight => "weight",
            Self::Max => "max",
            Self::MaxTotal => "max.total",
            Self::MaxBurst => "max.burst",
            Self::Low => "low",
            Self::Latency => "latency",
            Self::Class => "class",
        }
    }
}
