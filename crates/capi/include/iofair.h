/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libiofair: decides whose I/O goes next.
 *
 * Made from the Rust sources in crates/capi by `IOFAIR_BLESS=1 cargo test -p iofair-capi --test header`; do not edit.
 *
 * An engine holds the requests of many clients, each in a group with a contract (a minimum, a share, a ceiling, a latency, a
 * class), and says which command the drive gets next. It does no I/O, reads no clock and starts no thread:
 *
 *     iofair_submit              a client has a request
 *     iofair_dispatch            until it returns IOFAIR_NONE; give each command to the drive
 *     iofair_complete            the drive completed a command
 *     iofair_next_completion     until it returns IOFAIR_NONE; tell the clients
 *     iofair_next_wakeup         when to call iofair_dispatch again though nothing else happens
 *
 * Units. Offsets and lengths are bytes, multiples of 512. Times are nanoseconds of a clock that does not go back, such as
 * CLOCK_MONOTONIC; each call is told the time. A time before an earlier call's is taken for that one's. Rates are a second's.
 *
 * Errors. Functions that return int32_t return IOFAIR_OK (0), IOFAIR_NONE (1, where the function says so) or a negative
 * IOFAIR_ERROR_...; iofair_last_error tells a person what was wrong. After an error nothing has changed, and results
 * are not written. Any function that has an engine may return IOFAIR_ERROR_POINTER, IOFAIR_ERROR_IN_USE and
 * IOFAIR_ERROR_POISONED; numbers of what is gone are refused.
 *
 * Pointers. Every pointer is checked for NULL and alignment. Beyond that the caller sees to it that text ends with a zero byte, that
 * structures may be read and results written for the time of the call, and that an engine was not freed. The library keeps
 * none of these pointers. Text is UTF-8.
 *
 * Threads. An engine belongs to one thread at a time, any thread: callers with several threads lock. A call
 * on an engine that another thread is in is refused with IOFAIR_ERROR_IN_USE, which helps to find a missing lock and
 * replaces none. Different engines are independent. No function blocks.
 *
 * Memory. Once an engine has held as many requests at once as it will, iofair_submit, iofair_dispatch, iofair_command_parts,
 * iofair_complete, iofair_next_completion and iofair_next_wakeup allocate nothing.
 *
 * Fork. A child may use an engine if no thread of the parent was in a call on it.
 */

#ifndef IOFAIR_H
#define IOFAIR_H

#include <stddef.h>
#include <stdint.h>

// Done.
#define IOFAIR_OK 0

// Nothing to return: no command to dispatch, no completion left. Not an error.
#define IOFAIR_NONE 1

// A pointer is NULL or not aligned.
#define IOFAIR_ERROR_POINTER -1

// A value is not allowed: an unknown operation, flag or class, a reserved field that is not zero, text that is not UTF-8.
#define IOFAIR_ERROR_ARGUMENT -2

// There is no such stack, policy or parameter.
#define IOFAIR_ERROR_STACK -3

// A contract is refused: a weight out of range, a limit of zero, an error in a contract file, a minimum that the drive
// cannot keep.
#define IOFAIR_ERROR_CONTRACT -4

// No request slot is free for the client's group. Try again after a completion.
#define IOFAIR_ERROR_FULL -5

// The client does not exist, or no longer.
#define IOFAIR_ERROR_NO_CLIENT -6

// The group does not exist, or no longer.
#define IOFAIR_ERROR_NO_GROUP -7

// Offset and length are not multiples of 512, do not fit the operation, or end past the drive.
#define IOFAIR_ERROR_RANGE -8

// More data than iofair_setup.max_request_bytes.
#define IOFAIR_ERROR_TOO_LONG -9

// The drive does not have this command: it never had it, or it is completed already.
#define IOFAIR_ERROR_NOT_IN_DRIVE -10

// There is a group of this name already.
#define IOFAIR_ERROR_EXISTS -11

// The group or client still holds groups, clients or requests.
#define IOFAIR_ERROR_BUSY -12

// The name of a group is not words separated by single slashes, or has more than 32 of them.
#define IOFAIR_ERROR_NAME -13

// Another thread is inside a call on this engine.
#define IOFAIR_ERROR_IN_USE -14

// An error inside the library. The engine refuses every further call except iofair_engine_free; the same is
// returned by the call that met it. Please report it.
#define IOFAIR_ERROR_POISONED -15

// 65536 completions were not read; call iofair_next_completion first.
#define IOFAIR_ERROR_UNREAD -16

// iofair_setup.flags: a head moves (a hard disk).
#define IOFAIR_SETUP_ROTATIONAL 1

// iofair_setup.flags: flushes pass neither limits nor the scheduler.
#define IOFAIR_SETUP_FREE_FLUSHES 2

// iofair_setup.flags: each client has a file to itself, so that no two flushes share a command.
#define IOFAIR_SETUP_SEPARATE_FLUSHES 4

// The most of iofair_setup.depth and iofair_setup.tags.
#define IOFAIR_DEPTH_MAX 65536

// The most of iofair_setup.queue_limit and iofair_setup.guaranteed.
#define IOFAIR_QUEUE_MAX 1048576

// iofair_contract.sched_class, iofair_add_client: the usual class.
#define IOFAIR_CLASS_BEST_EFFORT 0

// iofair_contract.sched_class, iofair_add_client: before all others.
#define IOFAIR_CLASS_REALTIME 1

// iofair_contract.sched_class, iofair_add_client: only when nobody else wants the drive.
#define IOFAIR_CLASS_IDLE 2

// Operation: read.
#define IOFAIR_READ 0

// Operation: write.
#define IOFAIR_WRITE 1

// Operation: make every write of this client that was completed durable. Offset and length are zero.
#define IOFAIR_FLUSH 2

// Operation: give the range back to the drive (trim).
#define IOFAIR_DISCARD 3

// Operation: write zeroes without carrying them.
#define IOFAIR_WRITE_ZEROES 4

// Flag: somebody waits for this write. Reads are always waited for.
#define IOFAIR_FLAG_SYNC 1

// Flag: the write is durable before it is completed (force unit access).
#define IOFAIR_FLAG_FUA 2

// Flag: file-system metadata.
#define IOFAIR_FLAG_METADATA 4

// Flag: never merge this request with a neighbour.
#define IOFAIR_FLAG_NO_MERGE 8

// Flag: read-ahead, nobody waits for it yet.
#define IOFAIR_FLAG_READ_AHEAD 16

// Flag: nothing follows that is worth waiting for.
#define IOFAIR_FLAG_NO_IDLE 32

// The group that holds all others.
#define IOFAIR_ROOT_GROUP 1

// A client's priority when nobody says; 0 is the most urgent, 7 the least.
#define IOFAIR_LEVEL_DEFAULT 4

// iofair_next_wakeup: no time; something else happens first.
#define IOFAIR_NEVER UINT64_MAX

// An engine: the groups and clients of one drive, and every request on its way.
struct iofair_engine;

// What a group is promised. Fill it with zeroes, then set what is needed: zero means that nothing is promised or limited.
struct iofair_contract {
  // Guaranteed minimum, bytes a second, reads and writes together. Not checked against the drive; a contract file is.
  uint64_t min_bytes_per_s;
  // Guaranteed minimum, requests a second of at most 16 KiB each; a longer one counts as several. Only the stack "promise" keeps it.
  uint64_t min_ios_per_s;
  // What the group reaches with the drive to itself, bytes a second, if that is known.
  uint64_t alone_bytes_per_s;
  // Ceiling of reads, bytes a second.
  uint64_t max_read_bytes_per_s;
  // Ceiling of writes, bytes a second.
  uint64_t max_write_bytes_per_s;
  // Ceiling of reads, requests a second.
  uint64_t max_read_ios_per_s;
  // Ceiling of writes, requests a second. A flush counts as one.
  uint64_t max_write_ios_per_s;
  // Latency wanted, nanoseconds.
  uint64_t latency_ns;
  // Share of the spare bandwidth among siblings, 1 to 1000; 0 means 100.
  uint32_t weight;
  // IOFAIR_CLASS_...
  uint32_t sched_class;
  // Must be zero.
  uint64_t reserved[4];
};

// The drive, and how many requests the engine takes. Fill it with zeroes, then set what is needed.
struct iofair_setup {
  // Size of the drive or file, bytes, a multiple of 512. Required.
  uint64_t capacity_bytes;
  // The longest read or write, bytes, a multiple of 512 from 4096 to 1 GiB; 0 means 1 MiB. Requests are merged up to
  // this length.
  uint32_t max_request_bytes;
  // Commands in flight at once, 1 to IOFAIR_DEPTH_MAX. Required. A drive's own queue depth is a good value.
  uint32_t depth;
  // IOFAIR_SETUP_... or 0.
  uint32_t flags;
  // Requests that scheduler and drive hold together, up to IOFAIR_DEPTH_MAX; 0 means as many as suits the scheduler.
  uint32_t tags;
  // Request slots that the groups share by weight, up to IOFAIR_QUEUE_MAX; 0 means 1024.
  uint32_t queue_limit;
  // Request slots that each group has to itself, up to IOFAIR_QUEUE_MAX; 0 means 8.
  uint32_t guaranteed;
  // Must be zero.
  uint64_t reserved[4];
};

// A request of a client.
struct iofair_request {
  // The caller's own; returned with parts and completions, never looked at.
  void *user;
  // From iofair_add_client.
  uint64_t client;
  // First byte, a multiple of 512.
  uint64_t offset;
  // Bytes, a multiple of 512; zero for a flush, and for nothing else.
  uint64_t length;
  // IOFAIR_READ, ...
  uint32_t operation;
  // IOFAIR_FLAG_... or 0.
  uint32_t flags;
};

// A command for the drive: one request, several that were merged, or a piece of a long one.
struct iofair_command {
  // What to complete it with. No later command of this engine has the same number.
  uint64_t command;
  // First byte.
  uint64_t offset;
  // Bytes, merged requests included; zero for a flush.
  uint64_t length;
  // IOFAIR_READ, ...
  uint32_t operation;
  // IOFAIR_FLAG_... or 0.
  uint32_t flags;
};

// A request that a command stands for, or what of the request lies in the command.
struct iofair_part {
  // As it was submitted.
  void *user;
  // Who submitted it.
  uint64_t client;
  // First byte of the request in this command.
  uint64_t offset;
  // Bytes of the request in this command.
  uint64_t length;
};

// A completed request.
struct iofair_completion {
  // As it was submitted.
  void *user;
  // Who submitted it.
  uint64_t client;
  // As it was submitted.
  uint64_t offset;
  // As it was submitted.
  uint64_t length;
  // When it was submitted, in the caller's nanoseconds.
  uint64_t submitted_ns;
  // When the limits let it go.
  uint64_t released_ns;
  // When it went to the drive.
  uint64_t dispatched_ns;
  // When the drive completed it.
  uint64_t completed_ns;
  // IOFAIR_READ, ...
  uint32_t operation;
  // What iofair_complete was given: zero or the caller's error number. Of a request in pieces, the first error by offset.
  int32_t status;
};

// What passed for a client.
struct iofair_counters {
  // Reads completed.
  uint64_t reads;
  // Writes, discards and writes of zeroes completed.
  uint64_t writes;
  // Bytes of the reads.
  uint64_t read_bytes;
  // Bytes of the writes.
  uint64_t written_bytes;
  // Times from submission to completion of the reads, added up, nanoseconds.
  uint64_t read_latency_ns;
  // The same of the writes.
  uint64_t write_latency_ns;
  // Flushes completed.
  uint64_t flushes;
  // Requests that were merged into others.
  uint64_t merged;
  // Requests that are not completed.
  uint64_t pending;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last call of this thread that returned an error: one or more lines of UTF-8 without a newline at
// the end, empty if there was none. The text is the library's; it is valid until the next call of this thread
// that returns an error, and no longer than the thread.
const char *iofair_last_error(void);

// The name of a code, as "IOFAIR_ERROR_FULL"; "unknown" for other numbers. Never NULL, never to be freed.
const char *iofair_code_name(int32_t code);

// Adds a group. `path` is words separated by single slashes ("tenants/alice"), at most 32; groups on the path that
// do not exist are added with a contract of zeroes. Sets `*group`, which is valid until iofair_remove_group.
int32_t iofair_add_group(struct iofair_engine *engine,
                         uint64_t now_ns,
                         const char *path,
                         const struct iofair_contract *contract,
                         uint64_t *group);

// Sets `*group` to the group of this path, "" being the root.
int32_t iofair_find_group(struct iofair_engine *engine, const char *path, uint64_t *group);

// Reads the contract of a group into `*contract`.
int32_t iofair_group_contract(struct iofair_engine *engine, uint64_t group, struct iofair_contract *contract);

// Gives a group another contract, in force at once. Requests that wait stay in their order where the policy has queued them.
int32_t iofair_update_group(struct iofair_engine *engine,
                            uint64_t now_ns,
                            uint64_t group,
                            const struct iofair_contract *contract);

// Removes a group that holds no group, client or request. Its number is refused from then on.
int32_t iofair_remove_group(struct iofair_engine *engine, uint64_t now_ns, uint64_t group);

// Adds a client, one source of requests such as a connection, to a group. `sched_class` is IOFAIR_CLASS_..., `level` 0 (most
// urgent) to 7 in it, usually IOFAIR_LEVEL_DEFAULT. Sets `*client`, which is valid until iofair_remove_client.
int32_t iofair_add_client(struct iofair_engine *engine,
                          uint64_t now_ns,
                          uint64_t group,
                          uint32_t sched_class,
                          uint32_t level,
                          uint64_t *client);

// Moves a client to a group, class and level. Requests that were submitted before keep theirs.
int32_t iofair_update_client(struct iofair_engine *engine,
                             uint64_t now_ns,
                             uint64_t client,
                             uint64_t group,
                             uint32_t sched_class,
                             uint32_t level);

// Removes a client of which every request is completed. Its number is refused from then on.
int32_t iofair_remove_client(struct iofair_engine *engine, uint64_t now_ns, uint64_t client);

// The version of the library that runs, as "0.1.0". Never to be freed.
const char *iofair_version(void);

// Makes an engine with the root group and nothing else. `stack` is the name of a stack and any parameters of its policies,
// separated by spaces: "promise", or "max+prop-bfq bfq.slice_idle=4ms". Sets `*engine`, which is to be freed by
// iofair_engine_free; on an error it is not written.
int32_t iofair_engine_new(const struct iofair_setup *setup,
                          const char *stack,
                          struct iofair_engine **engine);

// Makes an engine from the text of a contract file, as `iofair serve` reads it: the stack, its parameters and the groups are
// taken; minimums that the file's `reaches` or `worst_case` say the drive cannot keep are refused. All else in the
// file is checked and has no effect, `back` too. Find the groups with iofair_find_group. `*engine` as with iofair_engine_new.
int32_t iofair_engine_from_contracts(const struct iofair_setup *setup,
                                     const char *contracts,
                                     struct iofair_engine **engine);

// Frees an engine, with all requests inside, which are not completed. NULL is allowed. No thread may be in a call on it, and
// none may use it afterwards.
void iofair_engine_free(struct iofair_engine *engine);

// Changes the stack, written as for iofair_engine_new. Requests that are submitted from now on wait until all before
// them are completed under the old stack.
int32_t iofair_set_stack(struct iofair_engine *engine, uint64_t now_ns, const char *stack);

// Takes a request in. Call iofair_dispatch afterwards. The structure is copied; `user` must stay what it is until the
// request's completion was read.
int32_t iofair_submit(struct iofair_engine *engine, uint64_t now_ns, const struct iofair_request *request);

// Writes the next command for the drive to `*command`, or returns IOFAIR_NONE: nothing waits, the drive has
// iofair_setup.depth commands, or what waits is held on purpose (see iofair_next_wakeup). Call it until it says so. Every
// command is to be completed.
int32_t iofair_dispatch(struct iofair_engine *engine,
                        uint64_t now_ns,
                        struct iofair_command *command);

// Which requests a command in flight stands for, in order of offset: one unless requests were merged or flushes share the
// command. Writes the first `capacity` to `parts` (which may be NULL if `capacity` is 0), and how many there are to
// `*count`.
int32_t iofair_command_parts(struct iofair_engine *engine,
                             uint64_t command,
                             struct iofair_part *parts,
                             size_t capacity,
                             size_t *count);

// The drive completed a command; `status` is zero or an error number of the caller's. Then read the completions of its requests with
// iofair_next_completion, and call iofair_dispatch.
int32_t iofair_complete(struct iofair_engine *engine,
                        uint64_t now_ns,
                        uint64_t command,
                        int32_t status);

// Writes the next completed request to `*completion`, or returns IOFAIR_NONE. A command's completion may complete no request
// (others of its pieces are missing), one, or several.
int32_t iofair_next_completion(struct iofair_engine *engine,
                               struct iofair_completion *completion);

// Sets `*at_ns` to when iofair_dispatch is to be called though nothing else happens, or to IOFAIR_NEVER. Ask after each
// round of iofair_dispatch. To call early, late or twice does no harm.
int32_t iofair_next_wakeup(struct iofair_engine *engine, uint64_t *at_ns);

// Reads what passed for a client since it was added into `*counters`.
int32_t iofair_client_counters(struct iofair_engine *engine, uint64_t client, struct iofair_counters *counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOFAIR_H */
