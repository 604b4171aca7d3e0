//! What a caller changes about a file.

use iofair_config::fio::Variables;
use iofair_core::time::Nanos;

use super::numbers::Numbers;

/// What a caller changes about a file.
#[derive(Clone, Default, Debug)]
pub struct Overrides {
    /// Only these stacks; names that the file does not have are stacks of their own.
    pub stacks: Option<Vec<String>>,
    /// Another number of repeats.
    pub repeats: Option<u32>,
    /// Another time measured.
    pub time: Option<Nanos>,
    /// Another ramp.
    pub ramp: Option<Nanos>,
    /// Another first seed.
    pub seed: Option<u64>,
    /// Other values of numbers of drives and machines.
    pub numbers: Option<Numbers>,
    /// Keys of the file set to other values, `path=value`.
    pub settings: Vec<String>,
    /// Job files are read without the options that are not supported.
    pub ignore_unsupported: bool,
    /// What variables and keywords of job files stand for.
    pub variables: Variables,
    /// More sweeps, `path=value,value`; the claims of the file are then left out.
    pub sweeps: Vec<String>,
}
