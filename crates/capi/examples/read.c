/* Reads a file for two clients, one of which has a ceiling of 8 MB/s. docs/embed.md explains it; tests/c.rs runs it. */
#include <fcntl.h>
#include <iofair.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 65536, BLOCKS = 16 };
static char buffers[2][BLOCKS][BLOCK];

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void check(int32_t code)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", iofair_code_name(code), iofair_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct iofair_setup setup = {.capacity_bytes = BLOCK * BLOCKS, .depth = 4};
    struct iofair_contract contracts[2] = {{.max_read_bytes_per_s = 8000000}, {.weight = 300}};
    const char *names[2] = {"slow", "fast"};
    struct iofair_engine *engine;
    uint64_t group, clients[2], at;
    int file = open(argv[argc - 1], O_RDONLY), left = 0;

    check(iofair_engine_new(&setup, "promise", &engine));
    for (int i = 0; i < 2; i++) {
        check(iofair_add_group(engine, now(), names[i], &contracts[i], &group));
        check(iofair_add_client(engine, now(), group, IOFAIR_CLASS_BEST_EFFORT, IOFAIR_LEVEL_DEFAULT, &clients[i]));
        for (int block = 0; block < BLOCKS; block++, left++) {
            struct iofair_request read = {.user = buffers[i][block],
                                          .client = clients[i],
                                          .operation = IOFAIR_READ,
                                          .offset = (uint64_t)block * BLOCK,
                                          .length = BLOCK};
            check(iofair_submit(engine, now(), &read));
        }
    }
    while (left > 0) {
        struct iofair_command command;
        struct iofair_part parts[BLOCKS];
        struct iofair_completion done;
        size_t count;
        while (iofair_dispatch(engine, now(), &command) == IOFAIR_OK) {
            int status = 0;
            check(iofair_command_parts(engine, command.command, parts, BLOCKS, &count));
            for (size_t i = 0; i < count; i++) { /* merged requests have a buffer each */
                char *buffer = (char *)parts[i].user + parts[i].offset % BLOCK;
                if (pread(file, buffer, parts[i].length, parts[i].offset) != (ssize_t)parts[i].length)
                    status = 5;
            }
            check(iofair_complete(engine, now(), command.command, status));
            while (iofair_next_completion(engine, &done) == IOFAIR_OK)
                left--;
        }
        check(iofair_next_wakeup(engine, &at));
        if (left > 0 && at != IOFAIR_NEVER && at > now())
            poll(NULL, 0, (at - now()) / 1000000 + 1);
    }
    for (int i = 0; i < 2; i++) {
        struct iofair_counters counters;
        check(iofair_client_counters(engine, clients[i], &counters));
        printf("%s: %llu bytes\n", names[i], (unsigned long long)counters.read_bytes);
    }
    iofair_engine_free(engine);
    return 0;
}
