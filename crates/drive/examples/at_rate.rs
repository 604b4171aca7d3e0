//! Rates and percentiles of latencies of a drive model under the load of SSD-iq.
//!
//! `cargo run --release -p iofair-drive --example at_rate -- DRIVE SECONDS RATE...` prints a line for each rate of writes a
//! second: what was reached, and the percentiles 50, 90, 99, 99.9 and 99.99 of reads and of writes in microseconds, as in the
//! tables of measured drives.

use std::io::Write as _;

use iofair_core::time::Nanos;
use iofair_drive::measure::ssd_iq;
use iofair_drive::profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [drive, seconds, rates @ ..] = arguments.as_slice() else {
        return Err("at_rate DRIVE SECONDS RATE...".into());
    };
    let profile = profile::read(drive)?;
    let seconds = seconds.parse()?;
    for rate in rates {
        let times = (Nanos::from_secs(1), Nanos::from_secs(seconds));
        let seen = ssd_iq(&profile, rate.parse()?, times, 1);
        let micros = |nanos: [u64; 5]| nanos.map(|nanos| (nanos / 1000).to_string()).join(",");
        writeln!(
            std::io::stdout(),
            "{rate},{},{},{},{}",
            seen.writes_per_s,
            seen.reads_per_s,
            micros(seen.read),
            micros(seen.write)
        )?;
    }
    Ok(())
}
