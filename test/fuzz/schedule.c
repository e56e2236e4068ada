/* libFuzzer target: a file with the schedule of a pipeline. */
#include "lib/fuzz.h"
#include "program/pipeline_schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    const sk_schedule *s = sk_schedule_find("./a.txt");
    for (int chunks = 1; chunks <= 2; chunks++) {
        const sk_pipe pipe = {2, chunks, 3, fuzz_file("schedule.txt", data, n)};
        sk_tasks tasks[2] = {{.arena = &a}, {.arena = &a}};
        sk_status st = s->list_tasks(&pipe, tasks);
        if (!st) st = sk_schedule_check(s, &pipe, tasks);
        fuzz_refused(st, SK_ECONF);
    }
    sk_arena_end(&a);
    return 0;
}
