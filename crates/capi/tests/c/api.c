/* Every function of libiofair from C, with good and bad arguments. Exits with 0 if all is as the header says. */
#include <iofair.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, iofair_last_error()); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)
#define OK(call) CHECK((call) == IOFAIR_OK)

enum { KIB = 1024, MS = 1000000 };

static const struct iofair_contract nothing;

static struct iofair_engine *engine_of(const char *stack, uint32_t depth)
{
    struct iofair_setup setup = {.capacity_bytes = 1 << 30, .depth = depth};
    struct iofair_engine *engine = NULL;
    OK(iofair_engine_new(&setup, stack, &engine));
    return engine;
}

static int32_t submit(struct iofair_engine *engine, uint64_t now, uint64_t client, uint32_t operation,
                      uint64_t offset, uint64_t length, void *user)
{
    struct iofair_request request = {.user = user,
                                     .client = client,
                                     .operation = operation,
                                     .flags = operation == IOFAIR_WRITE ? IOFAIR_FLAG_SYNC : 0,
                                     .offset = offset,
                                     .length = length};
    return iofair_submit(engine, now, &request);
}

static uint64_t client_in(struct iofair_engine *engine, const char *path, const struct iofair_contract *contract)
{
    uint64_t group = 0, client = 0;
    OK(iofair_add_group(engine, 0, path, contract, &group));
    OK(iofair_add_client(engine, 0, group, IOFAIR_CLASS_BEST_EFFORT, IOFAIR_LEVEL_DEFAULT, &client));
    return client;
}

/* Two adjacent reads become one command with two parts; each is completed on its own, with what its client gave. */
static void requests_are_merged(void)
{
    struct iofair_engine *engine = engine_of("none-mq-deadline", 1);
    uint64_t client = client_in(engine, "all", &nothing);
    struct iofair_command first, merged;
    struct iofair_completion done;
    struct iofair_part parts[2];
    struct iofair_counters counters;
    size_t count = 0;
    int a, b, c;
    OK(submit(engine, 0, client, IOFAIR_READ, 512 * KIB, 4 * KIB, &a));
    OK(iofair_dispatch(engine, 0, &first));
    OK(submit(engine, 0, client, IOFAIR_READ, 0, 4 * KIB, &b));
    OK(submit(engine, 0, client, IOFAIR_READ, 4 * KIB, 8 * KIB, &c));
    CHECK(iofair_dispatch(engine, 0, &merged) == IOFAIR_NONE);
    OK(iofair_complete(engine, 5, first.command, 0));
    OK(iofair_next_completion(engine, &done));
    CHECK(done.user == &a && done.status == 0 && done.client == client && done.completed_ns == 5);
    CHECK(iofair_next_completion(engine, &done) == IOFAIR_NONE);
    OK(iofair_dispatch(engine, 5, &merged));
    CHECK(merged.operation == IOFAIR_READ && merged.offset == 0 && merged.length == 12 * KIB);
    OK(iofair_command_parts(engine, merged.command, NULL, 0, &count));
    CHECK(count == 2);
    OK(iofair_command_parts(engine, merged.command, parts, 2, &count));
    CHECK(parts[0].user == &b && parts[1].user == &c && parts[1].offset == 4 * KIB && parts[1].length == 8 * KIB);
    OK(iofair_complete(engine, 9, merged.command, 5));
    OK(iofair_next_completion(engine, &done));
    CHECK(done.user == &b && done.status == 5 && done.submitted_ns == 0 && done.dispatched_ns == 5);
    OK(iofair_next_completion(engine, &done));
    CHECK(done.user == &c && done.offset == 4 * KIB && done.length == 8 * KIB);
    OK(iofair_client_counters(engine, client, &counters));
    CHECK(counters.reads == 3 && counters.read_bytes == 16 * KIB && counters.merged == 1 && counters.pending == 0);
    CHECK(iofair_complete(engine, 9, merged.command, 0) == IOFAIR_ERROR_NOT_IN_DRIVE);
    CHECK(iofair_command_parts(engine, merged.command, parts, 2, &count) == IOFAIR_ERROR_NOT_IN_DRIVE);
    iofair_engine_free(engine);
}

/* A flush waits for the write before it. A write beyond its ceiling waits for the time that the engine asks for. */
static void flushes_and_ceilings(void)
{
    struct iofair_engine *engine = engine_of("max-none", 8);
    struct iofair_contract slow = {.max_write_bytes_per_s = 1000 * KIB};
    uint64_t client = client_in(engine, "slow", &slow), now = 0, at = 0;
    struct iofair_command write, command;
    struct iofair_completion done;
    int served = 0;
    OK(submit(engine, 0, client, IOFAIR_WRITE, 0, 4 * KIB, NULL));
    OK(submit(engine, 0, client, IOFAIR_FLUSH, 0, 0, NULL));
    while (iofair_dispatch(engine, now, &write) == IOFAIR_NONE) {
        OK(iofair_next_wakeup(engine, &at));
        CHECK(at != IOFAIR_NEVER && at > now);
        now = at;
    }
    CHECK(write.operation == IOFAIR_WRITE && (write.flags & IOFAIR_FLAG_SYNC));
    CHECK(iofair_dispatch(engine, now, &command) == IOFAIR_NONE);
    OK(iofair_complete(engine, now, write.command, 0));
    OK(iofair_next_completion(engine, &done));
    for (int i = 0; i < 100; i++)
        OK(submit(engine, now, client, IOFAIR_WRITE, 64 * KIB * i, 4 * KIB, NULL));
    OK(submit(engine, now, client, IOFAIR_DISCARD, 0, 4 * KIB, NULL));
    OK(submit(engine, now, client, IOFAIR_WRITE_ZEROES, 0, 4 * KIB, NULL));
    while (served < 103) {
        while (iofair_dispatch(engine, now, &command) == IOFAIR_OK) {
            OK(iofair_complete(engine, now, command.command, 0));
            while (iofair_next_completion(engine, &done) == IOFAIR_OK)
                served++;
        }
        OK(iofair_next_wakeup(engine, &at));
        CHECK(served == 103 || (at > now && at != IOFAIR_NEVER));
        now = at;
    }
    CHECK(done.completed_ns >= 390 * (uint64_t)MS); /* 102 writes of 4 KiB at 1000 KiB/s */
    iofair_engine_free(engine);
}

/* A drive that takes 100 us a command: the group with a minimum gets it beside one of a hundred times its weight, and no
 * more once the contract is gone. Time is virtual, so the numbers are the same on every machine. */
static uint64_t bytes_in_a_second(struct iofair_engine *engine, uint64_t *now, const uint64_t clients[2])
{
    struct iofair_counters before, after;
    struct iofair_command command;
    struct iofair_completion done;
    uint64_t end = *now + 1000 * (uint64_t)MS;
    OK(iofair_client_counters(engine, clients[0], &before));
    while (*now < end) {
        if (iofair_dispatch(engine, *now, &command) == IOFAIR_OK) {
            *now += MS / 10;
            OK(iofair_complete(engine, *now, command.command, 0));
        } else {
            OK(iofair_next_wakeup(engine, now));
        }
        while (iofair_next_completion(engine, &done) == IOFAIR_OK)
            OK(submit(engine, *now, done.client, IOFAIR_READ, (*now / 997 % 65536) * 16 * KIB, 16 * KIB, NULL));
    }
    OK(iofair_client_counters(engine, clients[0], &after));
    return after.read_bytes - before.read_bytes;
}

static void minimums_are_kept(void)
{
    struct iofair_engine *engine = engine_of("promise", 1);
    struct iofair_contract web = {.min_bytes_per_s = 8000000, .weight = 10}, backup = {.weight = 1000}, read;
    uint64_t clients[2] = {client_in(engine, "web", &web), client_in(engine, "backup", &backup)};
    uint64_t now = 0, group = 0, with, without;
    OK(submit(engine, 0, clients[0], IOFAIR_READ, 0, 16 * KIB, NULL));
    for (int i = 0; i < 32; i++)
        OK(submit(engine, 0, clients[1], IOFAIR_READ, 64 * KIB * i, 16 * KIB, NULL));
    with = bytes_in_a_second(engine, &now, clients);
    CHECK(with >= 8000000);
    OK(iofair_find_group(engine, "web", &group));
    OK(iofair_group_contract(engine, group, &read));
    CHECK(read.min_bytes_per_s == 8000000 && read.weight == 10);
    read.min_bytes_per_s = 0;
    OK(iofair_update_group(engine, now, group, &read));
    bytes_in_a_second(engine, &now, clients);
    without = bytes_in_a_second(engine, &now, clients);
    CHECK(without < with / 2);
    /* Another stack, under way. */
    OK(iofair_set_stack(engine, now, "max+prop-bfq bfq.slice_idle=0ms"));
    CHECK(bytes_in_a_second(engine, &now, clients) > 0);
    CHECK(iofair_set_stack(engine, now, "max+prop-bfg") == IOFAIR_ERROR_STACK);
    CHECK(strstr(iofair_last_error(), "bfg"));
    iofair_engine_free(engine); /* with requests inside */
}

/* Groups and clients come and go; numbers of those that are gone are refused although the engine uses the places again. */
static void numbers_go_stale(void)
{
    struct iofair_engine *engine = engine_of("promise", 4);
    struct iofair_contract wrong = {.weight = 1001}, reserved = {.reserved = {1}};
    struct iofair_command command;
    uint64_t a, b, inner, client, other;
    OK(iofair_add_group(engine, 0, "tenants/a", &nothing, &a));
    OK(iofair_find_group(engine, "tenants", &b));
    CHECK(iofair_add_group(engine, 0, "tenants/a", &nothing, &inner) == IOFAIR_ERROR_EXISTS);
    CHECK(iofair_add_group(engine, 0, "tenants//a", &nothing, &inner) == IOFAIR_ERROR_NAME);
    CHECK(iofair_add_group(engine, 0, "x", &wrong, &inner) == IOFAIR_ERROR_CONTRACT);
    CHECK(iofair_add_group(engine, 0, "x", &reserved, &inner) == IOFAIR_ERROR_ARGUMENT);
    CHECK(iofair_add_group(engine, 0, "\xff", &nothing, &inner) == IOFAIR_ERROR_ARGUMENT);
    CHECK(iofair_remove_group(engine, 0, b) == IOFAIR_ERROR_BUSY);
    CHECK(iofair_remove_group(engine, 0, IOFAIR_ROOT_GROUP) == IOFAIR_ERROR_BUSY);
    OK(iofair_add_client(engine, 0, a, IOFAIR_CLASS_REALTIME, 0, &client));
    CHECK(iofair_add_client(engine, 0, a, 3, 0, &other) == IOFAIR_ERROR_ARGUMENT);
    CHECK(iofair_add_client(engine, 0, a, IOFAIR_CLASS_IDLE, 8, &other) == IOFAIR_ERROR_ARGUMENT);
    OK(submit(engine, 0, client, IOFAIR_READ, 0, 4 * KIB, NULL));
    CHECK(iofair_remove_client(engine, 0, client) == IOFAIR_ERROR_BUSY);
    OK(iofair_update_client(engine, 0, client, b, IOFAIR_CLASS_IDLE, 7));
    OK(iofair_dispatch(engine, 0, &command));
    OK(iofair_complete(engine, 0, command.command, 0));
    OK(iofair_remove_client(engine, 0, client));
    OK(iofair_add_client(engine, 0, a, IOFAIR_CLASS_BEST_EFFORT, IOFAIR_LEVEL_DEFAULT, &other));
    CHECK(other != client);
    CHECK(iofair_remove_client(engine, 0, client) == IOFAIR_ERROR_NO_CLIENT);
    CHECK(submit(engine, 0, client, IOFAIR_READ, 0, 4 * KIB, NULL) == IOFAIR_ERROR_NO_CLIENT);
    CHECK(submit(engine, 0, 0, IOFAIR_READ, 0, 4 * KIB, NULL) == IOFAIR_ERROR_NO_CLIENT);
    CHECK(submit(engine, 0, ~(uint64_t)0, IOFAIR_READ, 0, 4 * KIB, NULL) == IOFAIR_ERROR_NO_CLIENT);
    OK(iofair_remove_client(engine, 0, other));
    OK(iofair_remove_group(engine, 0, a));
    CHECK(iofair_remove_group(engine, 0, a) == IOFAIR_ERROR_NO_GROUP);
    OK(iofair_add_group(engine, 0, "tenants/b", &nothing, &inner));
    CHECK(iofair_update_group(engine, 0, a, &nothing) == IOFAIR_ERROR_NO_GROUP);
    CHECK(iofair_find_group(engine, "tenants/a", &a) == IOFAIR_ERROR_NO_GROUP);
    iofair_engine_free(engine);
}

/* Requests that the engine cannot take, and too many of them. */
static void bad_requests_are_refused(void)
{
    struct iofair_engine *engine = engine_of("promise", 4);
    uint64_t client = client_in(engine, "all", &nothing);
    struct iofair_request request = {.client = client, .length = 4096, .flags = 1u << 30};
    int32_t code = IOFAIR_OK;
    int taken = 0;
    CHECK(iofair_submit(engine, 0, &request) == IOFAIR_ERROR_ARGUMENT);
    CHECK(submit(engine, 0, client, 99, 0, 4 * KIB, NULL) == IOFAIR_ERROR_ARGUMENT);
    CHECK(submit(engine, 0, client, IOFAIR_READ, 1, 4 * KIB, NULL) == IOFAIR_ERROR_RANGE);
    CHECK(submit(engine, 0, client, IOFAIR_READ, 0, 0, NULL) == IOFAIR_ERROR_RANGE);
    CHECK(submit(engine, 0, client, IOFAIR_FLUSH, 0, 4 * KIB, NULL) == IOFAIR_ERROR_RANGE);
    CHECK(submit(engine, 0, client, IOFAIR_READ, 1 << 30, 4 * KIB, NULL) == IOFAIR_ERROR_RANGE);
    CHECK(submit(engine, 0, client, IOFAIR_READ, ~(uint64_t)511, 4 * KIB, NULL) == IOFAIR_ERROR_RANGE);
    CHECK(submit(engine, 0, client, IOFAIR_READ, 0, 2048 * KIB, NULL) == IOFAIR_ERROR_TOO_LONG);
    while (code == IOFAIR_OK && taken < 100000)
        code = submit(engine, 0, client, IOFAIR_READ, 0, 4 * KIB, &taken), taken += code == IOFAIR_OK;
    CHECK(code == IOFAIR_ERROR_FULL && taken >= 256);
    CHECK(iofair_complete(engine, 0, 12345, 0) == IOFAIR_ERROR_NOT_IN_DRIVE);
    iofair_engine_free(engine);
}

/* A client at its limit is refused; another client of its group is not. */
static void a_client_has_a_limit(void)
{
    struct iofair_setup setup = {.capacity_bytes = 1 << 30, .depth = 4, .client_limit = 3};
    struct iofair_engine *engine = NULL;
    uint64_t greedy, other;
    OK(iofair_engine_new(&setup, "promise", &engine));
    OK(iofair_add_client(engine, 0, IOFAIR_ROOT_GROUP, IOFAIR_CLASS_BEST_EFFORT, 4, &greedy));
    OK(iofair_add_client(engine, 0, IOFAIR_ROOT_GROUP, IOFAIR_CLASS_BEST_EFFORT, 4, &other));
    for (int i = 0; i < 3; i++)
        OK(submit(engine, 0, greedy, IOFAIR_READ, 0, 4 * KIB, NULL));
    CHECK(submit(engine, 0, greedy, IOFAIR_READ, 0, 4 * KIB, NULL) == IOFAIR_ERROR_FULL);
    CHECK(strstr(iofair_last_error(), "3 requests") != NULL);
    OK(submit(engine, 0, other, IOFAIR_READ, 0, 4 * KIB, NULL));
    iofair_engine_free(engine);
}

/* No pointer is followed that is NULL or misaligned. */
static void bad_pointers_are_refused(void)
{
    struct iofair_setup setup = {.capacity_bytes = 1 << 20, .depth = 1}, none = {0};
    struct iofair_engine *engine = NULL;
    struct iofair_command command;
    uint64_t number = 0;
    size_t count = 0;
    enum { BAD = IOFAIR_ERROR_POINTER };
    CHECK(iofair_engine_new(NULL, "promise", &engine) == BAD);
    CHECK(iofair_engine_new(&setup, NULL, &engine) == BAD);
    CHECK(iofair_engine_new(&setup, "promise", NULL) == BAD);
    CHECK(iofair_engine_new(&none, "promise", &engine) == IOFAIR_ERROR_ARGUMENT);
    CHECK(iofair_engine_from_contracts(&setup, NULL, &engine) == BAD && engine == NULL);
    OK(iofair_engine_new(&setup, "promise", &engine));
    CHECK(iofair_add_group(engine, 0, NULL, &nothing, &number) == BAD);
    CHECK(iofair_add_group(engine, 0, "a", NULL, &number) == BAD);
    CHECK(iofair_add_group(engine, 0, "a", &nothing, NULL) == BAD);
    CHECK(iofair_find_group(engine, "a", &number) == IOFAIR_ERROR_NO_GROUP); /* nothing has changed */
    CHECK(iofair_find_group(engine, NULL, &number) == BAD && iofair_find_group(engine, "", NULL) == BAD);
    CHECK(iofair_group_contract(engine, IOFAIR_ROOT_GROUP, NULL) == BAD);
    CHECK(iofair_update_group(engine, 0, IOFAIR_ROOT_GROUP, NULL) == BAD);
    CHECK(iofair_add_client(engine, 0, IOFAIR_ROOT_GROUP, 0, 0, NULL) == BAD);
    CHECK(iofair_submit(engine, 0, NULL) == BAD && iofair_dispatch(engine, 0, NULL) == BAD);
    CHECK(iofair_dispatch(engine, 0, (struct iofair_command *)(uintptr_t)3) == BAD);
    CHECK(iofair_command_parts(engine, 0, NULL, 1, &count) == BAD);
    CHECK(iofair_command_parts(engine, 0, NULL, 0, NULL) == BAD);
    CHECK(iofair_next_completion(engine, NULL) == BAD && iofair_next_wakeup(engine, NULL) == BAD);
    CHECK(iofair_client_counters(engine, 1, NULL) == BAD && iofair_set_stack(engine, 0, NULL) == BAD);
    CHECK(iofair_dispatch(NULL, 0, &command) == BAD && iofair_complete(NULL, 0, 0, 0) == BAD);
    CHECK(iofair_remove_group(NULL, 0, 1) == BAD && iofair_remove_client(NULL, 0, 1) == BAD);
    CHECK(iofair_update_client(NULL, 0, 1, 1, 0, 0) == BAD);
    CHECK(strcmp(iofair_last_error(), "engine is NULL") == 0);
    iofair_engine_free(engine);
    iofair_engine_free(NULL);
}

static const char contracts[] = "[drive]\n"
                                "back = \"memory:1GiB\"\n"
                                "reaches = { read = \"100MB/s\", write = \"100MB/s\", random = \"50MB/s\" }\n"
                                "[[group]]\n"
                                "name = \"tenants/alice\"\n"
                                "min = \"10MB/s\"\n"
                                "max = { read = \"20MB/s\" }\n";

/* The groups of the contract file, the root first. */
static void paths_are_listed(struct iofair_engine *engine)
{
    const char *const paths[] = {"", "tenants", "tenants/alice"};
    uint64_t group = 0;
    size_t length;
    char path[32];
    for (int i = 0; i < 3; i++) {
        OK(iofair_next_group(engine, group, &group));
        OK(iofair_group_path(engine, group, path, sizeof path, &length));
        CHECK(strcmp(path, paths[i]) == 0 && length == strlen(path));
    }
    OK(iofair_group_path(engine, group, path, 4, &length));
    CHECK(strcmp(path, "ten") == 0 && length == strlen("tenants/alice"));
    OK(iofair_group_path(engine, group, NULL, 0, &length));
    CHECK(iofair_group_path(engine, group, NULL, 1, &length) == IOFAIR_ERROR_POINTER);
    CHECK(iofair_group_path(engine, 99, path, sizeof path, &length) == IOFAIR_ERROR_NO_GROUP);
    CHECK(iofair_next_group(engine, group, &group) == IOFAIR_NONE);
    CHECK(iofair_next_group(engine, 99, &group) == IOFAIR_ERROR_NO_GROUP);
    CHECK(iofair_next_group(engine, 0, NULL) == IOFAIR_ERROR_POINTER);
}

static void contract_files_are_read(void)
{
    struct iofair_setup setup = {.capacity_bytes = 1 << 30, .depth = 4};
    struct iofair_engine *engine = NULL;
    struct iofair_contract contract;
    uint64_t group = 0;
    char text[sizeof contracts];
    OK(iofair_engine_from_contracts(&setup, contracts, &engine));
    OK(iofair_find_group(engine, "tenants/alice", &group));
    OK(iofair_group_contract(engine, group, &contract));
    CHECK(contract.min_bytes_per_s == 10000000 && contract.max_read_bytes_per_s == 20000000);
    paths_are_listed(engine);
    iofair_engine_free(engine);
    strcpy(text, contracts);
    memcpy(strstr(text, "10MB/s"), "99MB/s", 6);
    CHECK(iofair_engine_from_contracts(&setup, text, &engine) == IOFAIR_ERROR_CONTRACT); /* more than the drive keeps */
    strcpy(text, contracts);
    memcpy(strstr(text, "min"), "mni", 3);
    CHECK(iofair_engine_from_contracts(&setup, text, &engine) == IOFAIR_ERROR_CONTRACT);
    CHECK(strstr(iofair_last_error(), "contracts:6:1") && strstr(iofair_last_error(), "min"));
}

/* An engine goes from thread to thread, each call under a lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shared_client, shared_now;

static void *requests_of_one_thread(void *argument)
{
    struct iofair_engine *engine = argument;
    struct iofair_command command;
    struct iofair_completion done;
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        OK(submit(engine, ++shared_now, shared_client, IOFAIR_WRITE, 0, 4 * KIB, &i));
        OK(iofair_dispatch(engine, shared_now, &command));
        OK(iofair_complete(engine, shared_now, command.command, 0));
        OK(iofair_next_completion(engine, &done));
        CHECK(done.user == &i);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void threads_take_turns(void)
{
    struct iofair_engine *engine = engine_of("promise", 4);
    pthread_t threads[4];
    shared_client = client_in(engine, "all", &nothing);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, requests_of_one_thread, engine) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    iofair_engine_free(engine);
}

int main(void)
{
    CHECK(strcmp(iofair_version(), VERSION) == 0);
    CHECK(strcmp(iofair_code_name(IOFAIR_ERROR_FULL), "IOFAIR_ERROR_FULL") == 0);
    CHECK(strcmp(iofair_code_name(-1000), "unknown") == 0);
    CHECK(strcmp(iofair_last_error(), "") == 0);
    requests_are_merged();
    flushes_and_ceilings();
    minimums_are_kept();
    numbers_go_stale();
    bad_requests_are_refused();
    a_client_has_a_limit();
    bad_pointers_are_refused();
    contract_files_are_read();
    threads_take_turns();
    puts("all is well");
    return 0;
}
