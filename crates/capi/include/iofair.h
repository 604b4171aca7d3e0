/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libiofair: decides the order of I/O requests.
 *
 * Generated from the Rust sources in crates/capi by `IOFAIR_BLESS=1 cargo test -p iofair-capi --test header`; do not edit.
 *
 * An engine holds the requests of several clients. Each client belongs to a group, and each group has a contract: a guaranteed
 * minimum, a share, ceilings, a latency, a class. The engine decides which command the drive gets next. It does no I/O, reads no
 * clock and starts no thread. Call it on these events:
 *
 *     iofair_submit              a client has a request
 *     iofair_dispatch            after every event, until it returns IOFAIR_NONE; give each command to the drive
 *     iofair_complete            the drive has completed a command
 *     iofair_next_completion     after that, until it returns IOFAIR_NONE; inform the clients
 *     iofair_next_wakeup         before waiting: when to call iofair_dispatch even if no other event occurs
 *
 * Units. Offsets and lengths are in bytes and multiples of 512. Times are in nanoseconds of a monotonic clock, such as
 * CLOCK_MONOTONIC; the caller passes the current time. If a call passes an earlier time than a call before it, or IOFAIR_NEVER,
 * the engine uses the latest time. Rates are per second.
 *
 * Errors. A function with the result type int32_t returns IOFAIR_OK (0), IOFAIR_NONE (1, if its comment says so) or a negative
 * IOFAIR_ERROR_... code; iofair_last_error returns a message. A call that fails changes nothing and does not write its
 * results. Any function that takes an engine may return IOFAIR_ERROR_POINTER, IOFAIR_ERROR_IN_USE and IOFAIR_ERROR_POISONED.
 * The handle of a group or client that was removed is refused; no later group or client gets the same handle.
 *
 * Pointers. Every function checks its pointers for NULL and alignment. The caller guarantees that strings end with a zero byte,
 * that structures are readable and results are writable during the call, and that an engine has not been freed. The library
 * keeps no pointer after a call. Strings are UTF-8.
 *
 * Threads. An engine may be used from any thread, but only one thread at a time may call functions on it: protect it with a
 * mutex. A call on an engine while another thread is inside a call on it fails with IOFAIR_ERROR_IN_USE, which helps to find a
 * missing lock but does not replace it. Different engines are independent. No function blocks.
 *
 * Memory. Once an engine has reached its largest number of pending requests, iofair_submit, iofair_dispatch,
 * iofair_command_parts, iofair_complete, iofair_next_completion and iofair_next_wakeup allocate no memory.
 *
 * Fork. The child may use an engine if no thread of the parent was inside a call on it during fork.
 */

#ifndef IOFAIR_H
#define IOFAIR_H

#include <stddef.h>
#include <stdint.h>

// Success.
#define IOFAIR_OK 0

// No command to dispatch, or no completion to read. Not an error.
#define IOFAIR_NONE 1

// A pointer is NULL or not aligned.
#define IOFAIR_ERROR_POINTER -1

// An invalid value: an unknown operation, flag or class, a reserved field that is not zero, a string that is not UTF-8.
#define IOFAIR_ERROR_ARGUMENT -2

// Unknown stack, policy or parameter.
#define IOFAIR_ERROR_STACK -3

// An invalid contract: a weight out of range, an error in a contract file, a minimum that the drive cannot keep.
#define IOFAIR_ERROR_CONTRACT -4

// The client's group has no free request slot, or the client has iofair_setup.client_limit pending requests. Submit the
// request again after a completion.
#define IOFAIR_ERROR_FULL -5

// The client does not exist or has been removed.
#define IOFAIR_ERROR_NO_CLIENT -6

// The group does not exist or has been removed.
#define IOFAIR_ERROR_NO_GROUP -7

// Offset or length is not a multiple of 512, does not fit the operation, or is past the end of the drive.
#define IOFAIR_ERROR_RANGE -8

// The read or write is longer than iofair_setup.max_request_bytes.
#define IOFAIR_ERROR_TOO_LONG -9

// The command is not in flight: it does not exist, or it was completed before.
#define IOFAIR_ERROR_NOT_IN_DRIVE -10

// A group with this path exists.
#define IOFAIR_ERROR_EXISTS -11

// The group or client still has groups, clients or requests.
#define IOFAIR_ERROR_BUSY -12

// The path of a group has an empty component, or more than 32 components.
#define IOFAIR_ERROR_NAME -13

// Another thread is inside a call on this engine.
#define IOFAIR_ERROR_IN_USE -14

// Internal error of the library; please report it. The engine refuses all further calls except iofair_engine_free.
#define IOFAIR_ERROR_POISONED -15

// There are 65536 unread completions; call iofair_next_completion first.
#define IOFAIR_ERROR_UNREAD -16

// iofair_setup.flags: the drive is a hard disk.
#define IOFAIR_SETUP_ROTATIONAL 1

// iofair_setup.flags: flushes bypass ceilings and the scheduler.
#define IOFAIR_SETUP_FREE_FLUSHES 2

// iofair_setup.flags: each client has its own file, so flushes of different clients do not share a command.
#define IOFAIR_SETUP_SEPARATE_FLUSHES 4

// Maximum of iofair_setup.depth and iofair_setup.tags.
#define IOFAIR_DEPTH_MAX 65536

// Maximum of iofair_setup.queue_limit and iofair_setup.guaranteed.
#define IOFAIR_QUEUE_MAX 1048576

// iofair_contract.sched_class, iofair_add_client: the default class.
#define IOFAIR_CLASS_BEST_EFFORT 0

// iofair_contract.sched_class, iofair_add_client: before all other classes.
#define IOFAIR_CLASS_REALTIME 1

// iofair_contract.sched_class, iofair_add_client: only when the drive has no other requests.
#define IOFAIR_CLASS_IDLE 2

// Operation: read.
#define IOFAIR_READ 0

// Operation: write.
#define IOFAIR_WRITE 1

// Operation: make all earlier writes of this client durable. Offset and length are zero. It is dispatched when these writes
// have completed.
#define IOFAIR_FLUSH 2

// Operation: discard the range (trim).
#define IOFAIR_DISCARD 3

// Operation: write zeroes.
#define IOFAIR_WRITE_ZEROES 4

// Flag: a synchronous write. Reads are always synchronous.
#define IOFAIR_FLAG_SYNC 1

// Flag: force unit access: the write is durable before it completes.
#define IOFAIR_FLAG_FUA 2

// Flag: file-system metadata.
#define IOFAIR_FLAG_METADATA 4

// Flag: do not merge this request.
#define IOFAIR_FLAG_NO_MERGE 8

// Flag: read-ahead.
#define IOFAIR_FLAG_READ_AHEAD 16

// Flag: the scheduler should not idle for a next request of this client.
#define IOFAIR_FLAG_NO_IDLE 32

// Handle of the root group, which contains all other groups.
#define IOFAIR_ROOT_GROUP 1

// Default level of a client.
#define IOFAIR_LEVEL_DEFAULT 4

// iofair_next_wakeup: no wake-up is needed.
#define IOFAIR_NEVER UINT64_MAX

// An engine: the groups, clients and pending requests of one drive.
struct iofair_engine;

// The contract of a group. Initialise it with zeroes, then set the fields that you need. Zero means no guarantee or no limit.
struct iofair_contract {
  // Guaranteed minimum in bytes per second, reads and writes together. Only iofair_engine_from_contracts checks whether the
  // drive can keep it.
  uint64_t min_bytes_per_s;
  // Guaranteed minimum in requests per second. A request longer than 16 KiB counts as several. Only the stack "promise"
  // enforces it.
  uint64_t min_ios_per_s;
  // The rate that the group reaches without other load, in bytes per second, if it is known.
  uint64_t alone_bytes_per_s;
  // Ceiling of reads in bytes per second.
  uint64_t max_read_bytes_per_s;
  // Ceiling of writes in bytes per second.
  uint64_t max_write_bytes_per_s;
  // Ceiling of reads in requests per second.
  uint64_t max_read_ios_per_s;
  // Ceiling of writes in requests per second. A flush counts as one.
  uint64_t max_write_ios_per_s;
  // Ceiling of reads and writes together in bytes per second.
  uint64_t max_total_bytes_per_s;
  // Ceiling of reads and writes together in requests per second.
  uint64_t max_total_ios_per_s;
  // Bytes that may pass each of the ceilings in bytes per second at once; 0 means what the ceiling gives in 100 ms.
  uint64_t max_burst_bytes;
  // Requests that may pass each of the ceilings in requests per second at once; 0 means what the ceiling gives in 100 ms.
  uint64_t max_burst_ios;
  // Time in which 99 of 100 reads are to be completed, in nanoseconds.
  uint64_t latency_ns;
  // Share of the spare bandwidth relative to sibling groups, 1 to 1000; 0 means 100.
  uint32_t weight;
  // IOFAIR_CLASS_...
  uint32_t sched_class;
  // Time in which 99 of 100 writes are to be completed, in nanoseconds. Only the stack "promise" enforces it.
  uint64_t write_latency_ns;
  // Time in which 99 of 100 flushes are to be completed, in nanoseconds. Only the stack "promise" enforces it.
  uint64_t sync_latency_ns;
  // Must be zero.
  uint64_t reserved[2];
};

// Properties of the drive, and limits of the engine. Initialise it with zeroes, then set the fields that you need.
struct iofair_setup {
  // Size of the drive or file in bytes, a multiple of 512. Required.
  uint64_t capacity_bytes;
  // Maximum length of a read or write in bytes, merged requests included: a multiple of 512 from 4096 to 1 GiB; 0 means
  // 1 MiB.
  uint32_t max_request_bytes;
  // Maximum number of commands in flight, 1 to IOFAIR_DEPTH_MAX. Required. The drive's own queue depth is a good value.
  uint32_t depth;
  // IOFAIR_SETUP_... or 0.
  uint32_t flags;
  // Maximum number of requests in the scheduler and the drive together, up to IOFAIR_DEPTH_MAX; 0 means the default of the
  // scheduler.
  uint32_t tags;
  // Request slots that the groups share by weight, up to IOFAIR_QUEUE_MAX; 0 means 1024.
  uint32_t queue_limit;
  // Request slots that each group has in addition, up to IOFAIR_QUEUE_MAX; 0 means 8.
  uint32_t guaranteed;
  // Maximum number of pending requests of each client; 0 means no maximum.
  uint32_t client_limit;
  // Must be zero.
  uint32_t reserved[7];
};

// A request of a client.
struct iofair_request {
  // For the caller; returned with parts and completions. The library does not dereference it.
  void *user;
  // Handle from iofair_add_client.
  uint64_t client;
  // First byte, a multiple of 512.
  uint64_t offset;
  // Length in bytes, a multiple of 512; zero for a flush only.
  uint64_t length;
  // IOFAIR_READ, IOFAIR_WRITE, ...
  uint32_t operation;
  // IOFAIR_FLAG_... or 0.
  uint32_t flags;
};

// A command for the drive: one request, several merged requests, or a piece of a long request.
struct iofair_command {
  // Handle for iofair_complete; unique among the commands of the engine.
  uint64_t command;
  // First byte.
  uint64_t offset;
  // Length in bytes, merged requests included; zero for a flush.
  uint64_t length;
  // IOFAIR_READ, IOFAIR_WRITE, ...
  uint32_t operation;
  // IOFAIR_FLAG_... or 0.
  uint32_t flags;
};

// A request in a command, or the piece of a request in a command.
struct iofair_part {
  // From the request.
  void *user;
  // The client of the request.
  uint64_t client;
  // First byte of this request in the command.
  uint64_t offset;
  // Length of this request in the command, in bytes.
  uint64_t length;
};

// A completed request.
struct iofair_completion {
  // From the request.
  void *user;
  // The client of the request.
  uint64_t client;
  // From the request.
  uint64_t offset;
  // From the request.
  uint64_t length;
  // Time of iofair_submit, in nanoseconds.
  uint64_t submitted_ns;
  // Time at which it passed the ceilings and other throttles, in nanoseconds.
  uint64_t released_ns;
  // Time of iofair_dispatch, in nanoseconds.
  uint64_t dispatched_ns;
  // Time of iofair_complete, in nanoseconds.
  uint64_t completed_ns;
  // IOFAIR_READ, IOFAIR_WRITE, ...
  uint32_t operation;
  // The status that was passed to iofair_complete; for a request in pieces the failed piece with the lowest offset counts.
  int32_t status;
};

// Counters of a client.
struct iofair_counters {
  // Reads completed.
  uint64_t reads;
  // Writes, discards and write-zeroes completed.
  uint64_t writes;
  // Bytes of the reads.
  uint64_t read_bytes;
  // Bytes of the writes.
  uint64_t written_bytes;
  // Sum of the latencies of the reads, from submission to completion, in nanoseconds.
  uint64_t read_latency_ns;
  // Sum of the latencies of the writes, in nanoseconds.
  uint64_t write_latency_ns;
  // Flushes completed.
  uint64_t flushes;
  // Requests that were merged into other requests.
  uint64_t merged;
  // Requests that have not completed.
  uint64_t pending;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the last error in this thread: one or more lines of UTF-8 without a newline at the end, or an empty
// string if there was none. Do not free it. It is valid until the next error in this thread or the end of the thread.
const char *iofair_last_error(void);

// Returns the name of a code, such as "IOFAIR_ERROR_FULL", or "unknown". Never NULL; do not free it.
const char *iofair_code_name(int32_t code);

// Adds a group. `path` has at most 32 components, separated by slashes ("tenants/alice"). Missing parent groups are added
// with the default contract. Sets `*group` to its handle, which is valid until iofair_remove_group.
int32_t iofair_add_group(struct iofair_engine *engine,
                         uint64_t now_ns,
                         const char *path,
                         const struct iofair_contract *contract,
                         uint64_t *group);

// Sets `*group` to the handle of the group with this path; "" is the root group.
int32_t iofair_find_group(struct iofair_engine *engine, const char *path, uint64_t *group);

// Sets `*group` to the handle of the group after the group `after`, or of the first one, the root, if `after` is 0. Returns
// IOFAIR_NONE after the last group. The order is not specified otherwise. Adding and removing other groups is allowed between
// calls.
int32_t iofair_next_group(struct iofair_engine *engine,
                          uint64_t after,
                          uint64_t *group);

// Writes the path of a group and a zero byte to `path`, which has room for `capacity` bytes; a longer path is cut. Sets
// `*length` to the length of the whole path without the zero byte. `path` may be NULL if `capacity` is 0.
int32_t iofair_group_path(struct iofair_engine *engine, uint64_t group, char *path, size_t capacity, size_t *length);

// Writes the contract of a group to `*contract`.
int32_t iofair_group_contract(struct iofair_engine *engine, uint64_t group, struct iofair_contract *contract);

// Replaces the contract of a group. The new contract applies at once.
int32_t iofair_update_group(struct iofair_engine *engine,
                            uint64_t now_ns,
                            uint64_t group,
                            const struct iofair_contract *contract);

// Removes a group that contains no group, client or request.
int32_t iofair_remove_group(struct iofair_engine *engine, uint64_t now_ns, uint64_t group);

// Adds a client to a group. A client is a source of requests, such as a connection. `sched_class` is IOFAIR_CLASS_...;
// `level` is its priority in the class, from 0 (highest) to 7, usually IOFAIR_LEVEL_DEFAULT. Sets `*client` to its handle,
// which is valid until iofair_remove_client.
int32_t iofair_add_client(struct iofair_engine *engine,
                          uint64_t now_ns,
                          uint64_t group,
                          uint32_t sched_class,
                          uint32_t level,
                          uint64_t *client);

// Changes the group, class and level of a client. Pending requests keep the old ones.
int32_t iofair_update_client(struct iofair_engine *engine,
                             uint64_t now_ns,
                             uint64_t client,
                             uint64_t group,
                             uint32_t sched_class,
                             uint32_t level);

// Removes a client that has no pending request.
int32_t iofair_remove_client(struct iofair_engine *engine, uint64_t now_ns, uint64_t client);

// Returns the version of the library, such as "0.1.0". Do not free it.
const char *iofair_version(void);

// Creates an engine with a root group. `stack` is the name of a policy stack, optionally followed by parameters of its
// policies: "promise", or "max+prop-bfq bfq.slice_idle=4ms". Sets `*engine`; free it with iofair_engine_free.
int32_t iofair_engine_new(const struct iofair_setup *setup, const char *stack, struct iofair_engine **engine);

// Creates an engine from the text of a contract file, the same format as for `iofair serve`. The library uses the stack, its
// parameters and the groups. It refuses minimums that exceed the file's `reaches` or `worst_case`. Other settings,
// `back` too, are checked but have no effect. Get the groups with iofair_find_group. Sets `*engine`; free it with
// iofair_engine_free.
int32_t iofair_engine_from_contracts(const struct iofair_setup *setup,
                                     const char *contracts,
                                     struct iofair_engine **engine);

// Frees an engine. Pending requests are dropped. NULL is allowed. No other thread may be inside a call on the engine.
void iofair_engine_free(struct iofair_engine *engine);

// Changes the stack; see iofair_engine_new for the syntax. Takes effect at once: the new stack takes over the requests
// that wait, in order; commands in flight complete as usual. Call iofair_dispatch afterwards.
int32_t iofair_set_stack(struct iofair_engine *engine, uint64_t now_ns, const char *stack);

// Submits a request. Call iofair_dispatch afterwards. The library copies the structure.
int32_t iofair_submit(struct iofair_engine *engine, uint64_t now_ns, const struct iofair_request *request);

// Writes the next command for the drive to `*command`. Returns IOFAIR_NONE if no request is pending, if iofair_setup.depth
// commands are in flight, or if a policy holds the pending requests (see iofair_next_wakeup). Call it until then. Complete
// every command with iofair_complete.
int32_t iofair_dispatch(struct iofair_engine *engine,
                        uint64_t now_ns,
                        struct iofair_command *command);

// Gets the requests in a command in flight, by offset. There are several if requests were merged or if flushes share a
// command. Writes at most `capacity` elements to `parts` (which may be NULL if `capacity` is 0), and the number of requests
// to `*count`.
int32_t iofair_command_parts(struct iofair_engine *engine,
                             uint64_t command,
                             struct iofair_part *parts,
                             size_t capacity,
                             size_t *count);

// Completes a command. `status` is zero, or an error number that the library passes on to the completions. Call
// iofair_next_completion and iofair_dispatch afterwards.
int32_t iofair_complete(struct iofair_engine *engine, uint64_t now_ns, uint64_t command, int32_t status);

// Writes the next completed request to `*completion`, or returns IOFAIR_NONE. A command may complete several requests, or
// none if other pieces of its request are missing.
int32_t iofair_next_completion(struct iofair_engine *engine,
                               struct iofair_completion *completion);

// Sets `*at_ns` to the time at which to call iofair_dispatch even if no other event occurs, or to IOFAIR_NEVER. Call it after
// iofair_dispatch has returned IOFAIR_NONE. Early, late and repeated wake-ups are harmless.
int32_t iofair_next_wakeup(struct iofair_engine *engine,
                           uint64_t *at_ns);

// Writes the counters of a client since it was added to `*counters`.
int32_t iofair_client_counters(struct iofair_engine *engine, uint64_t client, struct iofair_counters *counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOFAIR_H */
