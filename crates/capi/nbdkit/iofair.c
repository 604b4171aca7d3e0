/* nbdkit-iofair-plugin: any file, shared by clients under contracts.
 *
 *     nbdkit ./nbdkit-iofair-plugin.so file=disk.img contracts=contracts.toml
 *     nbdcopy nbd://localhost/tenants/alice copy.img
 *
 * The name of an export is the path of a group in the contract file; each export contains the whole file. A connection is a
 * client of its group. nbdkit calls the plugin from many threads, and each call blocks until its request has completed. A thread
 * submits its request to the engine with the lock held, and waits until a command of the request is dispatched. Then it does the
 * I/O without the lock. The thread that holds the lock dispatches commands for all threads.
 *
 * Build: cc -shared -fPIC iofair.c -o nbdkit-iofair-plugin.so $(pkg-config --cflags --libs iofair)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#define NBDKIT_API_VERSION 2
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#include <nbdkit-plugin.h>

#include <errno.h>
#include <fcntl.h>
#include <iofair.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


enum { SECTOR = 512, CHUNK = 1 << 20, CONTRACTS_BYTES_MAX = 1 << 20, DEPTH_MAX = 1024 };

/* A command that was dispatched and waits for its thread. */
struct slot {
    struct iofair_command command;
    struct slot *next;
};

/* A request of a thread that waits for it. */
struct waiter {
    pthread_cond_t changed;
    struct slot *first, **last; /* its commands, in the order of their dispatch */
    bool done;
    int status;
};

struct client {
    uint64_t number;
};

static char *file, *contracts;
static int depth = 16;
static int delay_us; /* delay of each command, to simulate a slow drive in tests */

static int fd = -1;
static int64_t size;
static struct iofair_engine *engine;
static struct slot slots[DEPTH_MAX], *free_slots;

/* Guards the engine and all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER; /* a request slot may be free */
static pthread_cond_t timer_changed;
static uint64_t timer_ns = IOFAIR_NEVER;
static bool stopping, timer_runs;
static pthread_t timer;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Dispatches all commands, each to the thread that waits for it. The caller holds the lock. */
static void dispatch_all(void)
{
    struct iofair_command command;
    struct iofair_part part;
    size_t parts;
    uint64_t at = IOFAIR_NEVER;

    while (iofair_dispatch(engine, now(), &command) == IOFAIR_OK) {
        /* Requests are not merged, so a command has one part, unless flushes share it: the first thread executes it. */
        if (iofair_command_parts(engine, command.command, &part, 1, &parts) != IOFAIR_OK)
            abort(); /* it was dispatched just now */
        struct waiter *waiter = part.user;
        struct slot *slot = free_slots; /* there are as many as the engine dispatches at once */
        free_slots = slot->next;
        *slot = (struct slot){.command = command};
        *waiter->last = slot;
        waiter->last = &slot->next;
        pthread_cond_signal(&waiter->changed);
    }
    iofair_next_wakeup(engine, &at);
    if (at != timer_ns) {
        timer_ns = at;
        pthread_cond_signal(&timer_changed);
    }
}

static void complete(struct slot *slot, int status)
{
    struct iofair_completion completion;

    iofair_complete(engine, now(), slot->command.command, status);
    slot->next = free_slots;
    free_slots = slot;
    while (iofair_next_completion(engine, &completion) == IOFAIR_OK) {
        struct waiter *waiter = completion.user;
        waiter->done = true;
        waiter->status = completion.status;
        pthread_cond_signal(&waiter->changed);
    }
    pthread_cond_broadcast(&room);
}

/* Dispatches at the engine's wake-up times, for example when a ceiling allows the next request. */
static void *run_timer(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        if (timer_ns == IOFAIR_NEVER) {
            pthread_cond_wait(&timer_changed, &lock);
        } else if (now() < timer_ns) {
            struct timespec at = {.tv_sec = timer_ns / 1000000000, .tv_nsec = timer_ns % 1000000000};
            pthread_cond_timedwait(&timer_changed, &lock, &at);
        } else {
            dispatch_all();
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* A request of nbdkit, in bytes. */
struct job {
    uint32_t operation;
    char *buffer;
    uint64_t offset, length;
    bool fua, punch;
};

static int transfer(const struct job *job, uint64_t start, uint64_t end)
{
    while (start < end) {
        char *at = job->buffer + (start - job->offset);
        ssize_t moved = job->operation == IOFAIR_READ ? pread(fd, at, end - start, (off_t)start)
                                                      : pwrite(fd, at, end - start, (off_t)start);
        if (moved < 0 && errno != EINTR)
            return errno;
        if (moved == 0)
            return EIO; /* the file has become shorter */
        if (moved > 0)
            start += (uint64_t)moved;
    }
    return 0;
}

/* Executes a command. Returns zero or an error number. */
static int perform(const struct job *job, const struct iofair_command *command)
{
    /* The engine has whole sectors; the request may begin or end within one. */
    uint64_t start = command->offset > job->offset ? command->offset : job->offset;
    uint64_t end = command->offset + command->length, job_end = job->offset + job->length;
    int status = 0;

    if (end > job_end)
        end = job_end;
    if (delay_us) {
        struct timespec pause = {.tv_nsec = delay_us * 1000L};
        nanosleep(&pause, NULL);
    }
    if (job->operation == IOFAIR_READ || job->operation == IOFAIR_WRITE) {
        status = transfer(job, start, end);
    } else if (job->operation != IOFAIR_FLUSH) {
        int mode = (job->punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE;
        if (fallocate(fd, mode, (off_t)start, (off_t)(end - start)) == -1)
            status = errno;
    }
    if (status == 0 && (job->fua || job->operation == IOFAIR_FLUSH) && fdatasync(fd) == -1)
        status = errno;
    return status;
}

/* Executes a request. Returns zero or an error number. */
static int serve(struct client *client, const struct job *job)
{
    struct waiter waiter = {.changed = PTHREAD_COND_INITIALIZER, .last = &waiter.first};
    uint64_t start = job->offset / SECTOR * SECTOR;
    uint64_t end = (job->offset + job->length + SECTOR - 1) / SECTOR * SECTOR;
    struct iofair_request request = {
        .user = &waiter,
        .client = client->number,
        .offset = start,
        .length = end - start,
        .operation = job->operation,
        .flags = IOFAIR_FLAG_SYNC | IOFAIR_FLAG_NO_MERGE | (job->fua ? IOFAIR_FLAG_FUA : 0),
    };
    int32_t code;

    pthread_mutex_lock(&lock);
    while ((code = iofair_submit(engine, now(), &request)) == IOFAIR_ERROR_FULL)
        pthread_cond_wait(&room, &lock);
    if (code != IOFAIR_OK) {
        nbdkit_error("iofair: %s", iofair_last_error());
        waiter.done = true;
        waiter.status = EIO;
    }
    dispatch_all();
    while (!waiter.done) {
        struct slot *slot = waiter.first;
        if (!slot) {
            pthread_cond_wait(&waiter.changed, &lock);
            continue;
        }
        waiter.first = slot->next;
        if (!waiter.first)
            waiter.last = &waiter.first;
        pthread_mutex_unlock(&lock);
        int status = perform(job, &slot->command);
        pthread_mutex_lock(&lock);
        complete(slot, status);
        dispatch_all();
    }
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&waiter.changed);
    return waiter.status;
}

static int answer(int status)
{
    if (status == 0)
        return 0;
    nbdkit_set_error(status);
    return -1;
}

/* Executes a read or write in requests that the engine accepts. */
static int serve_data(void *handle, struct job job)
{
    uint64_t end = job.offset + job.length;
    int status = 0;

    while (status == 0 && job.offset < end) {
        uint64_t next = (job.offset / SECTOR + CHUNK / SECTOR) * SECTOR;
        job.length = (next < end ? next : end) - job.offset;
        status = serve(handle, &job);
        job.buffer += job.length;
        job.offset += job.length;
    }
    return answer(status);
}

static int iofair_pread(void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)flags;
    return serve_data(handle, (struct job){IOFAIR_READ, buffer, offset, count, false, false});
}

static int iofair_pwrite(void *handle, const void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
    bool fua = flags & NBDKIT_FLAG_FUA;
    return serve_data(handle, (struct job){IOFAIR_WRITE, (char *)buffer, offset, count, fua, false});
}

static int iofair_flush(void *handle, uint32_t flags)
{
    (void)flags;
    return answer(serve(handle, &(struct job){IOFAIR_FLUSH, NULL, 0, 0, false, false}));
}

static int iofair_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    bool fua = flags & NBDKIT_FLAG_FUA;
    return answer(serve(handle, &(struct job){IOFAIR_DISCARD, NULL, offset, count, fua, true}));
}

static int iofair_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    bool fua = flags & NBDKIT_FLAG_FUA, punch = flags & NBDKIT_FLAG_MAY_TRIM;
    return answer(serve(handle, &(struct job){IOFAIR_WRITE_ZEROES, NULL, offset, count, fua, punch}));
}

static int iofair_config(const char *key, const char *value)
{
    char **path = strcmp(key, "file") == 0 ? &file : strcmp(key, "contracts") == 0 ? &contracts : NULL;
    if (path) {
        free(*path);
        *path = nbdkit_realpath(value);
        return *path ? 0 : -1;
    }
    if (strcmp(key, "depth") == 0)
        return nbdkit_parse_int(key, value, &depth);
    if (strcmp(key, "delay-us") == 0)
        return nbdkit_parse_int(key, value, &delay_us);
    nbdkit_error("unknown parameter '%s'", key);
    return -1;
}

static int iofair_config_complete(void)
{
    if (!file || !contracts) {
        nbdkit_error("file=PATH and contracts=PATH are required");
        return -1;
    }
    if (depth < 1 || depth > DEPTH_MAX || delay_us < 0 || delay_us > 999999) {
        nbdkit_error("depth is from 1 to %d, delay-us from 0 to 999999", DEPTH_MAX);
        return -1;
    }
    return 0;
}

/* The text of the contract file, to be freed; NULL after an error. */
static char *read_contracts(void)
{
    int from = open(contracts, O_RDONLY | O_CLOEXEC);
    char *text = calloc(1, CONTRACTS_BYTES_MAX + 1);
    ssize_t length = from == -1 || !text ? -1 : read(from, text, CONTRACTS_BYTES_MAX);
    if (length == -1) {
        nbdkit_error("%s: %m", contracts);
        free(text);
        text = NULL;
    }
    if (from != -1)
        close(from);
    return text;
}

static int iofair_get_ready(void)
{
    struct iofair_setup setup = {.depth = (uint32_t)depth, .max_request_bytes = CHUNK};
    struct stat status;
    char *text;

    fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &status) == -1 || (size = lseek(fd, 0, SEEK_END)) == -1) {
        nbdkit_error("%s: %m", file);
        return -1;
    }
    setup.capacity_bytes = ((uint64_t)size + SECTOR - 1) / SECTOR * SECTOR;
    for (int i = 0; i < depth; i++) {
        slots[i].next = free_slots;
        free_slots = &slots[i];
    }
    text = read_contracts();
    if (!text)
        return -1;
    if (iofair_engine_from_contracts(&setup, text, &engine) != IOFAIR_OK)
        nbdkit_error("%s: %s", contracts, iofair_last_error());
    free(text);
    return engine ? 0 : -1;
}

static int iofair_after_fork(void)
{
    pthread_condattr_t attributes;
    int error;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&timer_changed, &attributes);
    pthread_condattr_destroy(&attributes);
    error = pthread_create(&timer, NULL, run_timer, NULL);
    timer_runs = error == 0;
    if (error)
        nbdkit_error("no thread: %s", strerror(error));
    return error ? -1 : 0;
}

static void iofair_unload(void)
{
    if (timer_runs) {
        pthread_mutex_lock(&lock);
        stopping = true;
        pthread_cond_signal(&timer_changed);
        pthread_mutex_unlock(&lock);
        pthread_join(timer, NULL);
        pthread_cond_destroy(&timer_changed);
    }
    iofair_engine_free(engine);
    if (fd != -1)
        close(fd);
    free(file);
    free(contracts);
}

/* The groups, for `nbdinfo --list`. */
static int iofair_list_exports(int readonly, int is_tls, struct nbdkit_exports *exports)
{
    char path[4096]; /* NBD's limit for names */
    uint64_t group = 0;
    size_t length;
    int added = 0;

    (void)readonly;
    (void)is_tls;
    pthread_mutex_lock(&lock);
    while (added == 0 && iofair_next_group(engine, group, &group) == IOFAIR_OK) {
        iofair_group_path(engine, group, path, sizeof path, &length);
        if (group != IOFAIR_ROOT_GROUP && length < sizeof path)
            added = nbdkit_add_export(exports, path, NULL);
    }
    pthread_mutex_unlock(&lock);
    return added;
}

static void *iofair_open(int readonly)
{
    struct client *client = malloc(sizeof *client);
    uint64_t group = 0;
    int32_t code;

    (void)readonly;
    if (!client)
        return NULL;
    pthread_mutex_lock(&lock);
    code = iofair_find_group(engine, nbdkit_export_name(), &group);
    if (code == IOFAIR_OK)
        code = iofair_add_client(engine, now(), group, IOFAIR_CLASS_BEST_EFFORT, IOFAIR_LEVEL_DEFAULT,
                                 &client->number);
    pthread_mutex_unlock(&lock);
    if (code == IOFAIR_OK)
        return client;
    nbdkit_error("%s", iofair_last_error());
    free(client);
    return NULL;
}

static void iofair_close(void *handle)
{
    struct client *client = handle;
    pthread_mutex_lock(&lock);
    if (iofair_remove_client(engine, now(), client->number) != IOFAIR_OK)
        nbdkit_error("%s", iofair_last_error());
    pthread_mutex_unlock(&lock);
    free(client);
}

static int64_t iofair_get_size(void *handle)
{
    (void)handle;
    return size;
}

/* All connections share the file, so a flush of one makes the writes of all durable. */
static int iofair_can_multi_conn(void *handle)
{
    (void)handle;
    return 1;
}

static int iofair_can_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

static struct nbdkit_plugin plugin = {
    .name = "iofair",
    .longname = "a file under contracts",
    .description = "serves a file to clients with minimums, shares, ceilings and latencies",
    .config = iofair_config,
    .config_complete = iofair_config_complete,
    .config_help = "file=PATH       the file to serve\n"
                   "contracts=PATH  a contract file; exports are named after its groups\n"
                   "depth=N         commands in flight at once (16)\n"
                   "delay-us=N      delay of each command in microseconds, for tests (0)",
    .get_ready = iofair_get_ready,
    .after_fork = iofair_after_fork,
    .unload = iofair_unload,
    .list_exports = iofair_list_exports,
    .open = iofair_open,
    .close = iofair_close,
    .get_size = iofair_get_size,
    .can_multi_conn = iofair_can_multi_conn,
    .can_fua = iofair_can_fua,
    .pread = iofair_pread,
    .pwrite = iofair_pwrite,
    .flush = iofair_flush,
    .trim = iofair_trim,
    .zero = iofair_zero,
    .errno_is_preserved = 0,
};

NBDKIT_REGISTER_PLUGIN(plugin)
