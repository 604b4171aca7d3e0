//! Arguments that change what an experiment file or a job file says: the same for all commands that run one.

use iofair_config::fio::Variables;
use iofair_core::time::Nanos;
use iofair_core::unit::parse_time;
use iofair_experiments::experiment::Overrides;

/// Changes of a file.
#[derive(clap::Args)]
pub(crate) struct Changes {
    /// Use this drive model instead of that of the file, such as samsung-970-pro.
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,
    /// Measured time, such as 2s.
    #[arg(long, value_parser = parse_time)]
    time: Option<Nanos>,
    /// Warm-up before the measured time, such as 500ms.
    #[arg(long, value_parser = parse_time)]
    ramp: Option<Nanos>,
    /// Seed of the first repeat.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Override a key of the file, such as client.target.count=4 or policy.bfq.slice_idle=0s; of job files also an option of all
    /// jobs, such as size=1g or filename=/dev/sdx.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Run job files of fio without the options, and without the jobs, that are not supported. What is left out is said.
    #[arg(long)]
    ignore_unsupported: bool,
}

impl Changes {
    pub(crate) fn overrides(&self) -> Overrides {
        let mut settings = self.set.clone();
        settings.extend(self.drive.iter().map(|drive| format!("drive={drive}")));
        Overrides {
            time: self.time,
            ramp: self.ramp,
            seed: self.seed,
            settings,
            ignore_unsupported: self.ignore_unsupported,
            variables: Variables::of_this_machine(),
            ..Overrides::default()
        }
    }
}
