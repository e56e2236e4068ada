/* plan_layouts.c - planning from another program: which layout fits, and which is fastest?
 *
 *     example_plan_layouts [MODEL [BATCH [MACHINE]]]      example_plan_layouts llama-7b 256 h100-8
 *
 * Compiles each layout of a list as `skein plan` does (one program for each class of equal ranks:
 * no data, no devices), asks for the bytes of the fullest rank and for the simulated time of a
 * step, and takes the fastest that fits.  C and C++. */
#include "skein.h"

#include <stdio.h>

static const char *const layouts[] = {
    "dp=64",
    "dp=64 zero=3",
    "dp=64 zero=3 recompute=full",
    "dp=8 tp=8 sp zero=1 recompute=selective",
    "pp=4 dp=2 tp=8 sp micro=16 zero=1",
    "pp=8 dp=8 micro=16 schedule=1f1b zero=1",
};

typedef struct found {
    int64_t bytes, memory; /* of the fullest rank; of the machine */
    double seconds;
} found;

static int64_t fullest(const skein_program *p)
{
    int64_t most = 0;
    for (int r = 0; r < skein_program_ranks(p); r++) {
        skein_memory m;
        m.size = sizeof m;
        if (!skein_program_memory(p, r, &m) && m.total > most) most = m.total;
    }
    return most;
}

static int look_at(skein_job *job, const char *text, const char *machine, found *out)
{
    skein_layout *layout = NULL;
    skein_program *program = NULL;
    skein_simulation price;
    price.size = sizeof price;
    int st = skein_layout_read(text, 64, &layout);
    if (!st) st = skein_plan(job, layout, &program);
    if (!st) st = skein_program_simulate(program, machine, &price);
    if (!st) {
        out->bytes = fullest(program);
        out->memory = price.memory;
        out->seconds = price.seconds;
    }
    skein_program_close(program);
    skein_layout_close(layout);
    return st;
}

int main(int argc, char **argv)
{
    char model[256], batch[64];
    const char *machine = argc > 3 ? argv[3] : "h100-8", *best = NULL;
    const char *words[] = {model, batch, "train.seq=4096", "train.dtype=bf16", "device=cuda"};
    double best_seconds = 0;
    skein_job *job = NULL;
    snprintf(model, sizeof model, "model=%s", argc > 1 ? argv[1] : "llama-7b");
    snprintf(batch, sizeof batch, "train.batch=%s", argc > 2 ? argv[2] : "256");
    int st = skein_job_open(NULL, (int)(sizeof words / sizeof *words), words, &job);
    if (st) return fprintf(stderr, "failed (%d): %s\n", st, sk_error_line()), st;

    printf("%-42s %14s %10s\n", "layout", "bytes a rank", "step");
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        found f;
        if (look_at(job, layouts[i], machine,
                    &f)) { /* a layout may be impossible: say why, go on */
            printf("%-42s %s\n", layouts[i], sk_error_line());
            continue;
        }
        int fits = f.bytes <= f.memory;
        printf("%-42s %14lld %8.3f s%s\n", layouts[i], (long long)f.bytes, f.seconds,
               fits ? "" : "   does not fit");
        if (fits && (!best || f.seconds < best_seconds)) {
            best = layouts[i];
            best_seconds = f.seconds;
        }
    }
    printf("best on %s: %s\n", machine, best ? best : "none of them fits");
    skein_job_close(job);
    return 0;
}
