//! What was measured of a drive, and the profile that is fitted to it.

use iofair_core::attainable::{Attainable, SMALL_READ};
use iofair_core::policy::DriveFacts;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fit::{
    self, Fitted, Implausible, KernelCosts, Parameter, Published, Record, Residual, Row, SEED,
    Scope, Survey,
};
use iofair_drive::measure::Simulated;
use iofair_drive::profile::Profile;
use serde::Serialize;

/// What the lines for contracts and for the kernel say if nothing was written.
pub const GUESSED_WRITES: &str =
    "Writes were not measured: `write`, `wbps`, `wseqiops`, `wrandiops` and `wlat` are guesses.";
/// Bytes that fill caches in simulated time: of flash, and of disks.
pub const FILL: u64 = 12 << 30;
/// See [`FILL`].
pub const FILL_DISK: u64 = 256 << 20;
const MIB: u64 = 1 << 20;
/// Longest time of a row in simulated time.
const HOUR: Nanos = Nanos::from_secs(3600);

/// Everything that was measured, and where.
pub struct Calibration {
    /// A title for the profile.
    pub title: String,
    /// `MAJOR:MINOR` for the lines of the kernel.
    pub number: String,
    /// What was to be measured.
    pub scope: Scope,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was measured of them.
    pub records: Vec<Record>,
    /// The first findings, from which further rows were planned.
    pub survey: Survey,
    /// The rows as other people published them, if nothing was measured here.
    pub published: Option<Published>,
}

/// What was found, as `iofair calibrate --json` prints it.
#[derive(Serialize)]
pub struct Report<'a> {
    /// The fitted numbers of the model.
    pub parameters: &'a [Parameter],
    /// Measured values beside those of the model.
    pub rows: &'a [Residual],
    /// Mean absolute error of the rows that were fitted.
    pub fitted_error_percent: Option<f64>,
    /// The same of those that only verify.
    pub verification_error_percent: Option<f64>,
    /// Whether the mean error of the fitted rows is at most 10 %.
    pub is_explained: bool,
    /// Without writes, the numbers of writes are guesses.
    pub writes_measured: bool,
    /// Rate of the worst mix of small requests.
    pub worst_case_bytes_per_s: u64,
    /// Beyond this depth small reads only wait longer.
    pub knee_depth: Option<u32>,
    /// For `io.cost.model` of the root cgroup.
    pub io_cost_model: String,
    /// For `io.cost.qos` of the root cgroup.
    pub io_cost_qos: String,
    /// The line `reaches = {...}` of a contract file.
    pub reaches: String,
}

/// The scope of a model in simulated time.
pub fn simulated_scope(facts: DriveFacts, area: u64) -> Scope {
    let max_request = Sectors::from_bytes_ceil(facts.max_request.bytes().min(MIB));
    // What is outside of the area is never met: the drive is as large as that.
    let facts = DriveFacts { max_request, capacity: Sectors::from_bytes_ceil(area), ..facts };
    let fill = if facts.rotational { FILL_DISK } else { FILL };
    let fill = (fill, HOUR);
    Scope { facts, area, writes: true, row_time: HOUR, fill, is_simulated: true }
}

/// Measures a model in simulated time; `None` if it was ended.
pub fn simulated(profile: &Profile, is_over: &dyn Fn() -> bool) -> Option<Calibration> {
    let facts = profile.build(SEED).facts();
    let scope = simulated_scope(facts, facts.capacity.bytes() / MIB * MIB);
    let measure = |rows: &[Row], records: &mut Vec<Record>| {
        for row in rows {
            let outcome = row.run(&mut Simulated::new(profile.build(SEED + 1)), is_over);
            if is_over() {
                return None;
            }
            // A model cannot do what a drive of its kind cannot do.
            records.extend(outcome.ok().map(|outcome| row.record(&outcome)));
        }
        Some(())
    };
    let (mut rows, mut records) = (scope.survey(), Vec::new());
    measure(&rows, &mut records)?;
    let survey = Survey::new(&records)?;
    let more = scope.rows(&survey);
    measure(&more, &mut records)?;
    rows.extend(more);
    let title = format!("calibrated in simulated time: {}", profile.name);
    let number = "MAJOR:MINOR".to_owned();
    Some(Calibration { title, number, scope, rows, records, survey, published: None })
}

impl Calibration {
    /// Whether the numbers can come from a drive.
    ///
    /// # Errors
    ///
    /// All that cannot, if too few can.
    pub fn check(&self) -> Result<(), Implausible> {
        fit::check(&self.survey, &self.records)
    }
    /// The model that is nearest to the numbers. `is_over` ends the search with what it has.
    pub fn fit(&self, is_over: &dyn Fn() -> bool) -> Fitted {
        let Some(published) = &self.published else {
            return fit::fit(&self.scope, &self.survey, &self.rows, &self.records, is_over);
        };
        let fitted = fit::near(published, published.class(), is_over);
        fitted.expect("the class of published rows has defaults")
    }
    /// What was found.
    pub fn report<'a>(&self, fitted: &'a Fitted) -> Report<'a> {
        let profile = fitted.profile();
        let costs: KernelCosts = fit::costs(&profile, fitted.write_cache());
        Report {
            parameters: &fitted.parameters,
            rows: &fitted.residuals,
            fitted_error_percent: fitted.mean_error(false),
            verification_error_percent: fitted.mean_error(true),
            is_explained: fitted.is_explained(),
            writes_measured: self.scope.writes,
            worst_case_bytes_per_s: match &self.published {
                Some(published) => published.worst_case(),
                None => fit::worst_case(&self.survey, &self.records),
            },
            knee_depth: fit::knee(&self.records),
            io_cost_model: costs.model(&self.number),
            io_cost_qos: costs.qos(&self.number),
            reaches: reaches(&self.reaches(&profile)),
        }
    }
    /// What the model reaches, and not more than the drive sustained in the longest rows.
    fn reaches(&self, profile: &Profile) -> Attainable {
        let found = profile.reaches();
        let Some(limits) = self.survey.limits else { return found };
        let (ios, bytes) = limits.reached;
        let small = found.small.map(|rate| rate.min(ios * SMALL_READ));
        Attainable { reads: found.reads.min(bytes), small, ..found }
    }
    /// The profile as a file, with the lines for contracts and for the kernel as comments.
    pub fn profile(&self, fitted: &Fitted, report: &Report<'_>) -> String {
        let worst = report.worst_case_bytes_per_s;
        let mut text = fit::profile_text(fitted, &self.scope, &self.title, worst);
        let Report { reaches, io_cost_model: model, io_cost_qos: qos, .. } = report;
        text += &format!(
            "\n# For admission by `iofair serve` on the drive itself, in [drive] of a contract file:\n# {reaches}\n\
             # For the kernel, in io.cost.model and io.cost.qos of the root cgroup:\n# {model}\n# {qos}\n"
        );
        if !self.scope.writes {
            text += &format!("# {GUESSED_WRITES}\n");
        }
        text
    }
}

/// The line `reaches = {...}` of a contract file.
fn reaches(found: &Attainable) -> String {
    let rate = |rate: u64| format!("\"{rate}B/s\"");
    let mut text = format!(
        "reaches = {{ read = {}, write = {}, random = {}",
        rate(found.reads),
        rate(found.writes),
        rate(found.alone)
    );
    if let Some(small) = found.small {
        text += &format!(", iops = {}", small / SMALL_READ);
    }
    let names = ["read", "write", "sync"].into_iter().zip(found.latency.times());
    let times =
        names.filter_map(|(name, time)| Some(format!("{name} = \"{}us\"", time?.0.div_ceil(1000))));
    let times: Vec<String> = times.collect();
    if !times.is_empty() {
        text += &format!(", latency = {{ {} }}", times.join(", "));
    }
    text + " }"
}
