//! How soon `promise` has the whole drive: totals of the first intervals of 100 ms, beside those without control.

use iofair_experiments::experiment::{self, Experiment, Overrides};

const DRIVES: &[&str] = &["plextor-px256m5s", "samsung-970-pro", "nvme-2021", "nvme-2015"];
/// Clients, as an experiment writes them, and the interval in which the last of them starts.
const LOADS: &[(&str, usize)] = &[
    ("count = 16\njob = 'read'\nblock = '128KiB'\ndepth = 4\n", 0),
    ("count = 4\njob = 'read'\nblock = '1MiB'\ndepth = 8\n", 0),
    ("count = 16\njob = 'randread'\ndepth = 16\n", 0),
    ("count = 16\njob = 'write'\nblock = '128KiB'\ndepth = 4\n", 0),
    (
        "count = 1\njob = 'read'\nblock = '128KiB'\ndepth = 4\n[[client]]\nname = 'later'\nbuffered = false\ncount = 15\n\
         job = 'read'\nblock = '128KiB'\ndepth = 4\nstart = '300ms'\n",
        3,
    ),
];

fn experiment(drive: &str, clients: &str) -> Experiment {
    let text = format!(
        "title = 'Start'\nsource = 'our own'\nbasis = 'own'\ndrive = '{drive}'\ntime = '800ms'\ninterval = '100ms'\n\
         stacks = ['none-none', 'promise']\n[[client]]\nname = 'client'\nbuffered = false\n{clients}"
    );
    experiment::parse("start.toml", &text, &Overrides::default())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Goal: a tenth of a second after clients start, the drive does what it does without control. Method: readers and writers on
/// each flash drive, from the start, and readers that join one; the bytes of each interval.
#[test]
fn the_drive_is_full_after_a_tenth_of_a_second() {
    for drive in DRIVES {
        for (clients, starts) in LOADS {
            let experiment = experiment(drive, clients);
            let [none, promise] = [0, 1].map(|stack| {
                let outcome = iofair_simulator::simulate(&experiment.scenario(0, stack, 0));
                outcome.unwrap_or_else(|error| panic!("{error}")).drive.series
            });
            let parts: Vec<u64> =
                none.iter().zip(&promise).map(|(none, ours)| ours * 100 / none.max(&1)).collect();
            let (first, then) = (parts[*starts], &parts[starts + 1..8]);
            assert!(
                first >= 40 && then.iter().all(|part| *part >= 85),
                "{drive}: {parts:?} % of no control\n{clients}"
            );
        }
    }
}
