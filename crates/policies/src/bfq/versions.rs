//! Other versions of BFQ: the same code with other parameters ([`super::settings`]). They are in the table of
//! `iofair-baselines`.

use iofair_core::key::Key;
use iofair_core::policy::{Claim, Judgement, Role, Row};

use super::{build, settings};

/// BFQ of Linux 6.18.
pub static ROW_6_18: Row = Row {
    name: "bfq-6.18",
    short: "bfq-6.18",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "budget fair queueing as in Linux 6.18; takes no think times while it idles",
    file: "bfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: settings::OVERRIDES_6_18,
    judgement: Judgement {
        promises: &[Claim {
            says: "As `bfq`: a share by weight for every group.",
            shown_by: "truth/nested",
        }],
        needs: "As for `bfq`.",
        fails: &[Claim {
            says: "It idles again and again for a client that pauses for less than `slice_idle` between single requests, \
                and nobody else uses the drive meanwhile.",
            shown_by: "truth/bursts",
        }],
    },
    build,
};

/// BFQ of August 2019 (Linux 5.3).
pub static ROW_5_3: Row = Row {
    name: "bfq-5.3",
    short: "bfq-5.3",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "budget fair queueing as in Linux 5.3, injecting on less evidence",
    file: "bfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: settings::OVERRIDES_5_3,
    judgement: Judgement {
        promises: &[
            Claim {
                says: "For a client of the real-time class, nearly the latency of an idle drive: \
                    {target mean of none-bfq-5.3 [readers]} beside 15 readers, {target mean of \
                    none-bfq-5.3 [writers]} beside writers that flush after each write.",
                shown_by: "comparison-2019/plextor",
            },
            Claim {
                says: "A queue of higher weight preempts: beside a reader of lower weight, a \
                    sporadic read takes at most {target max of prop-bfq-5.3}; without preemption, \
                    {target max of before}.",
                shown_by: "mails-2019/preemption",
            },
        ],
        needs: "Weights, and some seconds of load, as for `bfq`.",
        fails: &[Claim {
            says: "Its injection limits grow too easily: with weights 1000 and 1, the heavier \
                reader gets {target of prop-bfq-5.3 [15 readers, weights 1000:1]}, alone {target of \
                none-none [0 readers] in survey-2019/no-control}, and beside seven readers of equal \
                weight {target of prop-bfq-5.3 [7 readers]}.",
            shown_by: "mails-2019/plextor",
        }],
    },
    build,
};

/// BFQ of Linux 4.20, the first version with injection.
pub static ROW_4_20: Row = Row {
    name: "bfq-4.20",
    short: "bfq-4.20",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "budget fair queueing as in Linux 4.20, the first with injection",
    file: "bfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: settings::OVERRIDES_4_20,
    judgement: Judgement {
        promises: &[Claim {
            says: "As `bfq-4.18`; in addition, random readers no longer leave the drive idle, \
                because requests of others are injected while BFQ waits for one of them.",
            shown_by: "article-2018/figure-3",
        }],
        needs: "As for `bfq`; flash that queues commands.",
        fails: &[
            Claim {
                says: "It injects only while it serves random readers: a sequential reader and four \
                    random readers get {total of prop-bfq-4.20 [sequential target]} together, \
                    without control {total of none-none [sequential target]}.",
                shown_by: "article-2018/figure-3",
            },
            Claim {
                says: "A weight is relative: beside nine interferers, the target gets {target of \
                    prop-bfq-4.20 [random target]} of the intended 10 MB/s.",
                shown_by: "article-2018/figure-4a",
            },
        ],
    },
    build,
};

/// BFQ of Linux 4.18.
pub static ROW_4_18: Row = Row {
    name: "bfq-4.18",
    short: "bfq-4.18",
    role: Role::SHARING_SCHEDULER,
    enforces: |key, _| matches!(key, Key::Min | Key::Weight | Key::Class),
    summary: "budget fair queueing as in stock Linux 4.18, without injection",
    file: "bfq/mod.rs",
    parameters: settings::PARAMETERS,
    overrides: settings::OVERRIDES_4_18,
    judgement: Judgement {
        promises: &[Claim {
            says: "Sequential readers share by weight: {heavy of prop-bfq-4.18 / light of \
                prop-bfq-4.18 [100 and 1000]} : 1 for weights of 1000 and 100.",
            shown_by: "suite/fairness",
        }],
        needs: "As for `bfq`; sequential readers, or equal weights.",
        fails: &[
            Claim {
                says: "If weights differ, it idles for each queue while the drive is empty: five \
                    random readers get {total of prop-bfq-4.18 [random target]}, without control \
                    {total of none-none [random target]}.",
                shown_by: "article-2018/figure-3",
            },
            Claim {
                says: "A weight is relative: beside nine interferers, the target gets {target of \
                    prop-bfq-4.18 [random target]} of the intended 10 MB/s.",
                shown_by: "article-2018/figure-4a",
            },
        ],
    },
    build,
};
