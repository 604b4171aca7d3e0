//! Recorded reads of programs at their start-up: the files under `profiles/clients`, which are
//! part of the program.

use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fitted::{self, FittedOn};
use serde::Deserialize;

/// The recordings there are.
const EMBEDDED: [(&str, &str); 3] = [
    ("gnome-terminal", include_str!("../profiles/gnome-terminal.toml")),
    ("lowriter", include_str!("../profiles/lowriter.toml")),
    ("xterm", include_str!("../profiles/xterm.toml")),
];
/// Whole sectors of the file that each thread reads in: the replayer's 20,000,000 bytes.
pub(crate) const FILE: Sectors = Sectors(20_000_000 / 512);
/// Distance of those files: whole pages.
const FILE_SPACE: Sectors = Sectors(FILE.0.next_multiple_of(8));
/// Most threads and reads, against slips of the pen.
const THREADS_MAX: usize = 64;
const STEPS_MAX: usize = 100_000;

/// One read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Whose.
    pub thread: usize,
    /// Behind the thread's last one, or anywhere in its file?
    pub sequential: bool,
    /// How much.
    pub length: Sectors,
    /// Whether the thread goes on without waiting.
    pub ahead: bool,
    /// What the program does before it.
    pub pause: Nanos,
}

/// A program's start-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Its name.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where it comes from.
    pub source: String,
    /// Threads that read.
    pub threads: usize,
    /// Its reads in order.
    pub steps: Vec<Step>,
    /// The published rows that chose its pauses.
    pub fitted_on: Vec<FittedOn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    steps: String,
    #[serde(default)]
    fitted_on: Vec<FittedOn>,
}

/// Names of the recordings there are.
pub fn names() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(name, _)| *name)
}

/// The recording of this name.
pub fn load(name: &str) -> Option<Recording> {
    let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
    Some(parse(name, text).expect("a test reads all of them"))
}

pub(crate) fn parse(name: &str, text: &str) -> Result<Recording, String> {
    let file: File = iofair_config::parse(name, text).map_err(|error| error.to_string())?;
    let mut steps = Vec::new();
    for word in file.steps.split_whitespace() {
        let (step, times) = word.split_once('*').unwrap_or((word, "1"));
        let times: usize = times.parse().map_err(|_| format!("`{word}`: how often?"))?;
        let step = parse_step(step).ok_or_else(|| format!("`{word}` is no read"))?;
        steps.extend(std::iter::repeat_n(step, times.min(STEPS_MAX)));
        if steps.len() > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} reads"));
        }
    }
    let threads = steps.iter().map(|step| step.thread + 1).max().unwrap_or(0);
    if threads == 0 || threads > THREADS_MAX {
        return Err(format!("{threads} threads: 1 to {THREADS_MAX}"));
    }
    let File { title, source, mut fitted_on, .. } = file;
    fitted::lines(&mut fitted_on, text);
    Ok(Recording { name: name.to_owned(), title, source, threads, steps, fitted_on })
}

/// `3r256w@90`: thread 3, anywhere, 256 sectors, waits, 90 us after what was before it.
fn parse_step(text: &str) -> Option<Step> {
    let (text, pause) = text.split_once('@').unwrap_or((text, "0"));
    let pause = Nanos::from_micros(pause.parse::<u32>().ok()?.into());
    let kind = text.find(['r', 's'])?;
    let (thread, rest) = (text[..kind].parse().ok()?, &text[kind + 1..]);
    let (length, ahead) = match rest.strip_suffix('a') {
        Some(length) => (length, true),
        None => (rest.strip_suffix('w')?, false),
    };
    let length = Sectors(length.parse().ok()?);
    let fits = length > Sectors::ZERO && length < FILE;
    fits.then(|| Step { thread, sequential: text[kind..].starts_with('s'), length, ahead, pause })
}

impl Recording {
    /// Space for the files of all threads.
    pub fn file_size(&self) -> Sectors {
        Sectors(FILE_SPACE.0 * self.threads as u64)
    }
    /// Where a thread's file begins.
    pub(crate) fn base(&self, thread: usize) -> Sectors {
        Sectors(FILE_SPACE.0 * thread as u64)
    }
    /// The same, read after read.
    pub fn without_pauses(mut self) -> Self {
        for step in &mut self.steps {
            step.pause = Nanos::ZERO;
        }
        self
    }
    /// Bytes read in all.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.length.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the recordings are what their source's files are. Method: counts taken from those with other
    /// tools.
    #[test]
    fn recordings_are_whole() {
        let counts = |name: &str| {
            let recording = load(name).expect("there is one");
            let random = recording.steps.iter().filter(|step| !step.sequential).count();
            (recording.steps.len(), recording.threads, random, recording.bytes() / 512)
        };
        assert_eq!(counts("xterm"), (718, 2, 109, 12_072));
        assert_eq!(counts("gnome-terminal"), (2_781, 7, 404, 41_120));
        assert_eq!(counts("lowriter"), (1_268, 4, 343, 94_968));
        assert_eq!(names().filter(|name| load(name).is_some()).count(), 3);
        assert!(load("emacs").is_none());
        let pauses = |name: &str| {
            let pauses = load(name).expect("there is one").steps.into_iter().map(|step| step.pause);
            pauses.map(|pause| pause.0).sum::<u64>()
        };
        assert_eq!((pauses("gnome-terminal"), pauses("xterm")), (320_500_000, 0));
    }

    /// Goal: a word means what its file says, and slips are refused. Method: one recording by hand, and it
    /// spoiled.
    #[test]
    fn words_are_reads() {
        let text = |steps: &str| format!("title = 't'\nsource = 's'\nsteps = '{steps}'");
        let recording = parse("x", &text("0r8w 1s256a@90*2")).expect("good");
        let (length, pause) = (Sectors(256), Nanos::from_micros(90));
        let ahead = Step { thread: 1, sequential: true, length, ahead: true, pause };
        let (length, pause) = (Sectors(8), Nanos::ZERO);
        let first = Step { thread: 0, sequential: false, length, ahead: false, pause };
        assert_eq!((&recording.steps, recording.threads), (&vec![first, ahead, ahead], 2));
        let bare = recording.without_pauses();
        assert!(bare.steps.len() == 3 && bare.steps.iter().all(|step| step.pause == Nanos::ZERO));
        for bad in ["", "r8w", "0x8w", "0r0w", "0r8", "0r8w*x", "99r8w", "0r40000w", "0r8w@"] {
            assert!(parse("x", &text(bad)).is_err(), "{bad}");
        }
    }
}
