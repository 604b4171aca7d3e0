//! Whether the drive executes several commands at once. CFQ observes how many commands the drive had (`hw_tag`).
//!
//! A sample is taken at a completion if there was enough to dispatch: more than [`ENOUGH`] requests queued or in the
//! drive. After fifty samples, the result is whether the drive ever had [`ENOUGH`] at once. Before that, the result
//! is yes.
//!
//! So more than five readers with queue depth 1, for which CFQ idles, make a drive with command queueing look like
//! one without. In the IO controller's tests of 2009, a random reader gets 10 KiB/s beside four sequential readers
//! but 60 beside eight. Up to 2.6.32, this is checked again and again. The last form keeps a yes for ever, and takes
//! no sample while the active queue is one for which CFQ idles and has few requests.
//!
//! Source: Linux 2.6.32 and 4.18 `block/cfq-iosched.c`, `CFQ_HW_QUEUE_MIN` 5.

/// Number of requests that make a sample (`CFQ_HW_QUEUE_MIN`).
const ENOUGH: u32 = 5;
/// Number of samples for a result.
const SAMPLES: u32 = 50;

/// The observations of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwTag {
    queues: bool,
    seen: bool,
    late: bool,
    samples: u32,
    peak: u32,
}

/// The state at a completion; the completed request still counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Requests in the drive.
    pub in_driver: u32,
    /// Requests in the scheduler.
    pub queued: u32,
    /// Requests of the active queue, queued or in the drive, if CFQ would idle for it.
    pub active_waited_for: Option<u32>,
}

impl HwTag {
    /// Without observations; with the early form or the last one.
    pub const fn new(late: bool) -> Self {
        Self { queues: true, seen: false, late, samples: 0, peak: 0 }
    }
    /// Whether the drive executes several commands at once.
    pub const fn queues(&self) -> bool {
        self.queues
    }
    /// Records a completion.
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
    fn a_positive_result_is_final() {
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
