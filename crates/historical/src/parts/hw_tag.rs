//! Does the drive work on several commands at once? CFQ does not ask it but watches how many it was seen
//! to have (`hw_tag`).
//!
//! A sample is taken at an answer while there was enough to send, more than [`ENOUGH`] requests queued or
//! in the drive. After fifty samples: did the drive ever have [`ENOUGH`] at once? Before that the answer is
//! yes.
//!
//! So readers that send one request at a time, and are waited for, make a queueing drive look like one that
//! does not queue, once they are more than five: the IO controller's tests of 2009 give a random reader 10
//! KiB/s beside four sequential ones but 60 beside eight. Up to 2.6.32 that is looked at again and again.
//! The late form believes a yes for ever, and takes no sample while the active queue is one that is waited
//! for and has little to send.
//!
//! Source: Linux 2.6.32 and 4.18 `block/cfq-iosched.c`, `CFQ_HW_QUEUE_MIN` 5.

/// Requests that tell something (`CFQ_HW_QUEUE_MIN`).
const ENOUGH: u32 = 5;
/// Samples before a verdict.
const SAMPLES: u32 = 50;

/// What was seen of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwTag {
    queues: bool,
    seen: bool,
    late: bool,
    samples: u32,
    peak: u32,
}

/// The state at an answer, the answered request still counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Requests that the drive has.
    pub in_driver: u32,
    /// Requests that the scheduler holds.
    pub queued: u32,
    /// Requests of the active queue, queued or in the drive, if it is one that is waited for.
    pub active_waited_for: Option<u32>,
}

impl HwTag {
    /// Nothing seen yet; by the early form or the late one.
    pub const fn new(late: bool) -> Self {
        Self { queues: true, seen: false, late, samples: 0, peak: 0 }
    }
    /// Does the drive work on several commands at once?
    pub const fn queues(&self) -> bool {
        self.queues
    }
    /// The drive answers.
    pub fn sample(&mut self, load: &Load) {
        self.peak = self.peak.max(load.in_driver);
        if self.late && self.seen && self.queues {
            return;
        }
        if load.queued <= ENOUGH && load.in_driver <= ENOUGH {
            return;
        }
        let kept_out =
            load.in_driver < ENOUGH && load.active_waited_for.is_some_and(|n| n < ENOUGH);
        if self.late && kept_out {
            return;
        }
        self.samples += 1;
        if self.samples <= SAMPLES {
            return;
        }
        (self.queues, self.seen) = (self.peak >= ENOUGH, true);
        self.samples = 0;
        if !self.late {
            self.peak = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(tag: &mut HwTag, load: Load, times: u32) -> bool {
        (0..times).for_each(|_| tag.sample(&load));
        tag.queues()
    }
    const BUSY: Load = Load { in_driver: 1, queued: 6, active_waited_for: None };

    /// Goal: fifty-one samples with too little in the drive say no, and the old form looks again.
    /// Method: one at a time with six queued, then five at a time, then one again.
    #[test]
    fn verdict_after_fifty_samples() {
        let mut tag = HwTag::new(false);
        assert!(feed(&mut tag, BUSY, 50));
        assert!(!feed(&mut tag, BUSY, 1));
        let deep = Load { in_driver: 5, ..BUSY };
        assert!(feed(&mut tag, deep, 51));
        assert!(!feed(&mut tag, BUSY, 51));
    }

    /// Goal: the late form believes a yes for ever, and a no only until it sees more. Method: as above.
    #[test]
    fn yes_is_final() {
        let mut tag = HwTag::new(true);
        assert!(!feed(&mut tag, BUSY, 51));
        assert!(feed(&mut tag, Load { in_driver: 5, ..BUSY }, 51));
        assert!(feed(&mut tag, BUSY, 500));
    }

    /// Goal: what tells nothing is no sample. Method: five queued and four in the drive; in the late form
    /// also an active queue that is waited for, of four requests, not of five.
    #[test]
    fn idle_times_do_not_count() {
        let mut tag = HwTag::new(false);
        assert!(feed(&mut tag, Load { in_driver: 4, queued: 5, ..BUSY }, 500));
        assert!(!feed(&mut tag, Load { active_waited_for: Some(4), ..BUSY }, 51));
        let mut tag = HwTag::new(true);
        assert!(feed(&mut tag, Load { active_waited_for: Some(4), ..BUSY }, 500));
        assert!(!feed(&mut tag, Load { active_waited_for: Some(5), ..BUSY }, 51));
    }
}
