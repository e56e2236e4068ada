/* console.c - what a person sees of a run while it goes on: rows, the bar, samples, the end. */
#include "train/console_style.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "program/sync.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

enum { ROWS = 12, BAR = 30, TOLD_RANKS = 3, ENOUGH_STEPS = 50 };
#define BAR_S 0.1 /* seconds between two drawings of the bar */

/* "1:05", "1:02:09", "12 d" */
static char *clock_text(sk_arena *a, double seconds)
{
    if (!(seconds < 1e15)) return "–";
    long long s = seconds > 0 ? (long long)(seconds + 0.5) : 0;
    if (s >= 100 * 3600) return sk_print(a, "%lld d", (s + 43200) / 86400);
    if (s >= 3600) return sk_print(a, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return sk_print(a, "%lld:%02lld", s / 60, s % 60);
}

/* The same, where it may be over in no time: "0.4 s". */
static char *took_text(sk_arena *a, double seconds)
{
    return seconds < 9.95 ? sk_print(a, "%.1f s", seconds) : clock_text(a, seconds);
}

void sk_console_open(sk_console *c, FILE *to, const sk_training *t)
{
    struct winsize w = {0};
    *c = (sk_console){.to = to, .t = t, .s = t->setup, .steps = t->steps, .val = NAN, .best = NAN};
    c->tty = sk_proc_screen(fileno(to));
    c->colour = sk_proc_colour(fileno(to));
    c->width = c->tty && !ioctl(fileno(to), TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 100;
}

/* The line of the bar, empty; without escape sequences where there are no colours. */
static void wipe(const sk_console *c)
{
    if (c->colour) fprintf(c->to, "\r\033[K");
    else fprintf(c->to, "\r%*s\r", c->width - 1, "");
}

void sk_console_clear(sk_console *c)
{
    if (c->bar) wipe(c);
    c->bar = false;
}

/* Infinite: not known.  The first step is not like the others.  By rank 0's clock: this process
 * sees several steps at once. */
static double seconds_left(const sk_console *c)
{
    int64_t n = c->last.step - c->first;
    if (c->steps && c->last.step >= c->steps) return 0;
    if (!c->steps || n < 1) return INFINITY;
    return (c->last.at - c->began) / (double)n * (double)(c->steps - c->last.step);
}

static void put_head(sk_console *c)
{
    if (c->headed) return;
    fprintf(c->to,
            "\n%s  step     loss      val        lr   |grad|   tok/s    MFU  mem MiB  exposed     "
            "eta%s\n",
            sk_console_paint(c, SK_TONE_DIM), sk_console_paint(c, SK_TONE_PLAIN));
    c->headed = true;
}

/* Five places; 0: it is not known. */
static void put_mfu(const sk_console *c, double percent)
{
    if (percent > 0) fprintf(c->to, percent < 9.95 ? "%3.1f %%" : "%3.0f %%", percent);
    else fprintf(c->to, "    –");
}

static void put_row(sk_console *c, const sk_record *r, double val)
{
    sk_arena a = {0};
    const sk_record *sum = &c->since; /* one step alone says little about speed */
    double s = sum->seconds > 0 ? sum->seconds : 1e-9;
    double mem = (double)sk_device_bytes(c->s->programs[0]) / 1048576;
    sk_console_clear(c);
    put_head(c);
    fprintf(c->to, "%6lld  %7.4f  ", (long long)r->step, r->loss);
    if (isnan(val)) fprintf(c->to, "      –");
    else
        fprintf(c->to, "%s%7.4f%s", sk_console_paint(c, SK_TONE_GREEN), val,
                sk_console_paint(c, SK_TONE_PLAIN));
    fprintf(c->to, "  %8.1e %8.3f %7s  ", r->lr, r->grad_norm,
            sk_short_number(&a, sum->tokens / s, ""));
    put_mfu(c, sum->mfu > 0 ? 100 * sum->mfu / c->measured : 0);
    fprintf(c->to, "  %7.1f   ", mem);
    if (c->measured > 0 && (c->s->n_ranks > 1 || sum->waited > 0))
        fprintf(c->to, "%5.1f %%", 100 * sum->waited / c->measured);
    else fprintf(c->to, "      –"); /* nobody to wait for, or all steps without rank 0 */
    double left = seconds_left(c);
    fprintf(c->to, " %7s%s%s\n", clock_text(&a, left), *r->text ? "   " : "", r->text);
    fflush(c->to);
    if (c->n_spark == SK_SPARK) memmove(c->spark, c->spark + 1, sizeof c->spark - sizeof *c->spark);
    else c->n_spark++;
    c->spark[c->n_spark - 1] = r->loss;
    c->since = (sk_record){0};
    c->measured = 0;
    sk_arena_end(&a);
}

static void flush_row(sk_console *c, double val)
{
    if (c->waiting) put_row(c, &c->row, val);
    c->waiting = false;
}

static bool val_due(const sk_console *c, int64_t step)
{
    int64_t every = c->s->job->val_every;
    if (!c->s->has_val || !every) return false;
    return step == c->steps || sk_loop_due(every, SK_VAL_TIMES, step, c->steps);
}

static void on_step(sk_console *c, const sk_record *r)
{
    int64_t every = c->s->job->log_every;
    flush_row(c, NAN);
    if (!c->first) {
        c->first = r->step;
        c->began = r->at;
    }
    c->last = *r;
    c->since.seconds += r->seconds;
    c->since.tokens += r->tokens;
    if (isfinite(r->waited)) {
        c->measured += r->seconds;
        c->since.waited += r->waited;
        c->since.mfu += r->seconds * r->mfu;
    }
    bool val = val_due(c, r->step);
    bool due = val || r->step == c->first || r->step == c->steps ||
               sk_loop_due(every, ROWS, r->step, c->steps ? c->steps : r->step + 1);
    if (every < 0 && (!c->steps || (c->s->has_val && c->s->job->val_every < 0)))
        due = val || r->step == c->first; /* the rows of the validations are enough */
    if (!every || !due) return;
    if (!val) {
        put_row(c, r, NAN);
        return;
    }
    c->row = *r;
    c->waiting = true;
}

static void on_val(sk_console *c, const sk_record *r)
{
    c->val = r->loss;
    c->accuracy = r->accuracy;
    if (isnan(c->best) || r->loss < c->best) {
        c->best = r->loss;
        c->best_at = r->step;
    }
    flush_row(c, r->loss);
}

void sk_console_warn(sk_console *c, const char *text)
{
    flush_row(c, NAN);
    sk_console_clear(c);
    fprintf(c->to, "%swarning%s   %s\n", sk_console_paint(c, SK_TONE_YELLOW),
            sk_console_paint(c, SK_TONE_PLAIN), text);
    fflush(c->to);
    c->warnings++;
}

static void on_device(const sk_console *c, const sk_record *r)
{
    sk_console_label(c, "device");
    fprintf(c->to, "%s\n", r->text);
    fflush(c->to);
}

void sk_console_record(sk_console *c, const sk_record *r)
{
    switch (r->kind) {
    case SK_REC_STEP:
        on_step(c, r);
        break;
    case SK_REC_VAL:
        on_val(c, r);
        break;
    case SK_REC_STEPS:
        c->steps = r->step;
        break;
    case SK_REC_DEVICE:
        sk_console_clear(c);
        on_device(c, r);
        break;
    case SK_REC_WARN:
        sk_console_warn(c, r->text);
        break;
    case SK_REC_SAVED:
    case SK_REC_SAMPLE:
    case SK_REC_FINAL:
        flush_row(c, NAN);
        break;
    }
}

static void put_bar(const sk_console *c, double part)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int n = (int)(part * BAR * 8), full = n / 8 > BAR ? BAR : n / 8, used = full;
    fprintf(c->to, "▕");
    for (int i = 0; i < full; i++) fprintf(c->to, "█");
    if (full < BAR && n % 8) fprintf(c->to, "%s", eighths[n % 8]), used++;
    fprintf(c->to, "%*s▏", BAR - used, "");
}

static void put_spark(const sk_console *c)
{
    static const char *const steps[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < c->n_spark; i++) {
        low = fmin(low, c->spark[i]);
        high = fmax(high, c->spark[i]);
    }
    for (int i = 0; i < c->n_spark; i++)
        fprintf(c->to, "%s",
                steps[high > low ? (int)(7.99 * (c->spark[i] - low) / (high - low)) : 0]);
}

/* As nvidia-smi would say it. */
static void put_gpu(const sk_console *c, const sk_nvml *g)
{
    if (g->busy >= 0) fprintf(c->to, "  GPU %d %%", g->busy);
    if (g->watts > 0) fprintf(c->to, " %.0f W", g->watts);
    if (g->celsius > 0) fprintf(c->to, " %d °C", g->celsius);
}

void sk_console_tick(sk_console *c)
{
    double now = sk_now();
    if (!c->tty || !c->last.step || now - c->drawn < BAR_S || c->width < 90) return;
    sk_arena a = {0};
    c->drawn = now;
    sk_console_clear(c);
    fprintf(c->to, "%6lld ", (long long)c->last.step);
    if (c->steps) {
        double part = (double)c->last.step / (double)c->steps;
        put_bar(c, part);
        fprintf(c->to, " %2.0f %%", 100 * part);
    }
    fprintf(c->to, "  loss %.3f ", c->last.loss);
    put_spark(c);
    fprintf(c->to, "  %s tok/s",
            sk_short_number(&a, c->last.seconds > 0 ? c->last.tokens / c->last.seconds : 0, ""));
    if (c->last.gpu.bytes && c->width >= 110) put_gpu(c, &c->last.gpu);
    if (isfinite(seconds_left(c))) fprintf(c->to, "  %s left", clock_text(&a, seconds_left(c)));
    fflush(c->to);
    c->bar = true;
    sk_arena_end(&a);
}

void sk_console_sample(sk_console *c, const char *prompt, const char *text)
{
    flush_row(c, NAN);
    sk_console_clear(c);
    fprintf(c->to, "          ▸ %s\"%s\"%s%s%s%s\n", sk_console_paint(c, SK_TONE_DIM), prompt,
            sk_console_paint(c, SK_TONE_PLAIN), sk_console_paint(c, SK_TONE_BOLD), text,
            sk_console_paint(c, SK_TONE_PLAIN));
    fflush(c->to);
}

static void done_loss(const sk_console *c)
{
    bool bytes = c->s->tokenizer && sk_tokenizer_is_byte(c->s->tokenizer);
    if (isnan(c->val)) {
        if (c->last.step) fprintf(c->to, "   loss %.4f", c->last.loss);
        return;
    }
    const char *unit = bytes ? "byte" : c->s->tokenizer ? "token" : "sample";
    fprintf(c->to, "   val %.4f nats/%s", c->val, unit);
    if (bytes) fprintf(c->to, " (%.3f bits/byte)", c->val / log(2));
    if (isfinite(c->accuracy)) fprintf(c->to, ", %.2f %% right", 100 * c->accuracy);
    if (c->best < c->val) fprintf(c->to, "   best %.4f @%lld", c->best, (long long)c->best_at);
}

static void done_again(const sk_console *c)
{
    const sk_fallback_stats *t = c->t->fallback_stats;
    if (!c->s->fallback) return;
    sk_console_label(c, "fallback");
    fprintf(c->to, "%lld of %lld steps were run again, with room for all\n",
            (long long)atomic_load(&t->again), (long long)atomic_load(&t->steps));
}

/* With backup workers: who was dropped how often, the most often first. */
static void done_dropped(sk_console *c, sk_arena *a, long long steps)
{
    long long times[SK_CHANNEL_DROPPED], most = 0, rest = 0;
    int first = -1, ranks = c->s->n_ranks < SK_CHANNEL_DROPPED ? c->s->n_ranks : SK_CHANNEL_DROPPED;
    for (int r = 0; r < ranks; r++) times[r] = atomic_load(&c->t->channel->timed.dropped[r]);
    sk_console_label(c, "dropped");
    for (int shown = 0; shown < TOLD_RANKS; shown++) {
        int at = 0;
        for (int r = 1; r < ranks; r++)
            if (times[r] > times[at]) at = r;
        if (!times[at]) break;
        if (!shown) first = at, most = times[at];
        fprintf(c->to, "%srank %d in %lld", shown ? ", " : "", at, times[at]);
        times[at] = 0;
    }
    for (int r = 0; r < ranks; r++) rest += times[r] > 0;
    if (rest) fprintf(c->to, ", %lld other%s less often", rest, sk_plural(rest));
    fprintf(c->to, " of %lld step%s\n", steps, sk_plural(steps));
    if (steps >= ENOUGH_STEPS && 2 * most > steps)
        sk_console_warn(c, sk_print(a,
                                    "sync=%s dropped rank %d in %lld of %lld steps, and its "
                                    "samples with it; fewer ranks than cores are needed, or plain "
                                    "dp (doc/sync.md)",
                                    sk_sync_timed_name(&c->s->layout), first, most, steps));
}

static void done_timed(sk_console *c, sk_arena *a)
{
    sk_channel *h = c->t->channel;
    long long n = atomic_load(&h->timed.n);
    if (!n) return;
    if (sk_layout_backup(&c->s->layout) >= 0) {
        done_dropped(c, a, n);
        return;
    }
    sk_console_label(c, "updates");
    fprintf(c->to,
            "%lld, by ranks that were %.2f steps behind the farthest in the mean, %lld at most\n",
            n, (double)atomic_load(&h->timed.behind) / (double)n,
            (long long)atomic_load(&h->timed.most_behind));
}

/* The pool is the plan, to the byte; the rest is CUDA's, and what others have there. */
static void done_gpu(const sk_console *c, sk_arena *a)
{
    int64_t planned = sk_device_bytes(c->s->programs[0]),
            pool = atomic_load(&c->t->channel->gpu.pool);
    if (!pool) return;
    sk_console_label(c, "");
    fprintf(c->to,
            "GPU of rank 0: %s planned %s %s allocated · CUDA and others there had %s before, and "
            "took %s by the end of the first step\n",
            sk_bytes(a, planned), planned == pool ? "=" : "but", sk_bytes(a, pool),
            sk_bytes(a, c->t->channel->gpu.before), sk_bytes(a, c->t->channel->gpu.since));
}

void sk_console_done(sk_console *c, const char *model_dir)
{
    sk_arena a = {0};
    int64_t planned = 0, mapped = 0, n = c->last.step ? c->last.step - c->first + 1 : 0;
    for (int r = 0; r < c->s->n_ranks; r++) {
        planned += c->s->programs[r]->own_bytes;
        mapped += sk_heap_own(c->t->heaps, r);
    }
    flush_row(c, NAN);
    sk_console_clear(c);
    fprintf(c->to, "\n");
    sk_console_label(c, "done");
    fprintf(c->to, "%lld step%s in %s", (long long)n, sk_plural(n),
            took_text(&a, c->t->channel->began > 0 ? sk_now() - c->t->channel->began : 0));
    done_loss(c);
    fprintf(c->to, "\n");
    done_again(c);
    done_timed(c, &a);
    sk_console_label(c, "check");
    fprintf(c->to, "memory %s planned %s %s mapped, all ranks", sk_bytes(&a, planned),
            planned == mapped ? "=" : "but", sk_bytes(&a, mapped));
    if (c->t->channel->began > 0 && sk_proc_age() > 0)
        fprintf(c->to, "   first instruction %.2f s after the start",
                sk_proc_age() - (sk_now() - c->t->channel->began));
    fprintf(c->to, "\n");
    done_gpu(c, &a);
    if (*model_dir) {
        sk_console_label(c, "saved");
        fprintf(c->to, "%s/\n", model_dir);
    }
    if (*model_dir && c->s->tokenizer) {
        sk_console_label(c, "next");
        fprintf(c->to, "skein sample %s --prompt \"%s\"\n", sk_shell_word(&a, c->t->dir),
                c->s->job->sample_prompt);
    }
    fflush(c->to);
    sk_arena_end(&a);
}
