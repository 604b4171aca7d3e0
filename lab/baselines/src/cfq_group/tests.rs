//! What groups, workloads and waiting in groups promise, on a drive that serves one request in a set time.

mod preemption;
mod shares;
mod waiting;
