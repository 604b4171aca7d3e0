//! Any bytes as a job file of fio: an error that names the file, or jobs whose numbers are within their bounds.

use iofair_config::fio::{self, Variables};

pub fn jobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // What such a file includes would depend on the machine.
    if text.contains("include") {
        return;
    }
    let read = fio::parse("any.fio", text, &Variables::default(), &[]);
    match read.and_then(fio::JobFile::checked) {
        Ok(file) => {
            assert!(file.jobs.len() <= 1_000);
            for job in &file.jobs {
                for blocks in &job.settings.blocks {
                    assert!(0 < blocks.least() && blocks.least() <= blocks.most());
                }
                assert!((1..=1 << 16).contains(&job.settings.depth));
            }
        }
        Err(error) => assert!(error.to_string().contains("any.fio"), "{error}"),
    }
}
