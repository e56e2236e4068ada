/* console_head.c - the first lines of a run: machine, data, model, layout, memory, program. */
#include "train/console_style.h"
#include "base/strings.h"
#include "base/version.h"
#include "train/host.h"
#include "train/relayout.h"

#include <stdio.h>
#include <string.h>

const char *sk_console_paint(const sk_console *c, sk_tone t)
{
    static const char *const codes[] = {"\033[0m",  "\033[2m",  "\033[1m",
                                        "\033[32m", "\033[33m", "\033[36m"};
    return c->colour ? codes[t] : "";
}

void sk_console_label(const sk_console *c, const char *word)
{
    fprintf(c->to, "%s%-10s%s", sk_console_paint(c, SK_TONE_CYAN), word,
            sk_console_paint(c, SK_TONE_PLAIN));
}

/* 7612 -> "7.6k", or "7.6 k" with a gap before the unit */
char *sk_short_number(sk_arena *a, double x, const char *gap)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    int u = 0;
    while (x >= 999.5 && u < 5) x /= 1000, u++;
    return sk_print(a, x < 99.95 && u ? "%.1f%s%s" : "%.0f%s%s", x, gap, units[u]);
}

static void head_machine(const sk_console *c, sk_arena *a)
{
    sk_host h;
    sk_host_detect(&h);
    sk_console_label(c, "machine");
    fprintf(c->to, "%d core%s %s %s · %s · ", h.cores, sk_plural(h.cores), h.cpu, h.isa,
            sk_bytes(a, h.memory));
    bool cpu = !strcmp(c->s->job->device, "cpu") || !*c->s->job->device;
    if (h.gpus) fprintf(c->to, "%d GPU%s%s", h.gpus, sk_plural(h.gpus), cpu ? ", not used" : "");
    else fprintf(c->to, "no GPU");
    fprintf(c->to, " · %s\n", h.blas);
}

/* How far ids that others made were checked, where that is not all. */
static void head_ids(const sk_console *c, sk_arena *a)
{
    int64_t first = 0, all = 0;
    for (int i = 0; i < 2; i++) {
        const sk_id_check *d = &c->s->ids[i];
        if (d->store && d->store->ready_made) first += d->first, all += d->store->n_tokens;
    }
    if (!all) return;
    if (first == all) fprintf(c->to, " · all ids checked");
    else
        fprintf(c->to,
                " · %s ids checked, from the first to the last, the rest in the first minutes",
                sk_commas(a, first));
}

static void head_data(const sk_console *c, sk_arena *a)
{
    const sk_setup *s = c->s;
    sk_console_label(c, "data");
    fprintf(c->to, "%s", s->train.describe);
    if (s->tokenizer && !s->train.ready_made)
        fprintf(c->to, " → %s tokens (vocab %s)",
                sk_tokenizer_is_byte(s->tokenizer) ? "byte" : "BPE",
                sk_commas(a, sk_tokenizer_vocab(s->tokenizer)));
    fprintf(c->to, " · train %s",
            sk_commas(a, s->train.tokens ? s->train.n_tokens : s->train.n_rows));
    if (s->has_val)
        fprintf(c->to, " · val %s", sk_commas(a, s->val.tokens ? s->val.n_tokens : s->val.n_rows));
    head_ids(c, a);
    fprintf(c->to, "\n");
}

static void head_model(const sk_console *c, sk_arena *a)
{
    const sk_hyper *h = &c->s->job->hyper;
    sk_console_label(c, "model");
    fprintf(c->to, "%s · %lld layer%s · %lld wide", h->arch, (long long)h->num_hidden_layers,
            sk_plural(h->num_hidden_layers), (long long)h->hidden_size);
    if (h->num_attention_heads)
        fprintf(c->to, " · %lld head%s", (long long)h->num_attention_heads,
                sk_plural(h->num_attention_heads));
    if (c->s->tokenizer) fprintf(c->to, " · ctx %lld", (long long)c->s->job->seq);
    fprintf(c->to, " · %s parameters · %s", sk_commas(a, c->s->n_params),
            sk_dtype_name(c->s->job->dtype));
    if (*c->t->from) fprintf(c->to, " · from step %lld", (long long)c->t->step);
    else if (*c->s->job->model_dir) fprintf(c->to, " · from %s", c->s->job->model_dir);
    fprintf(c->to, "\n");
}

static void head_layout(const sk_console *c, sk_arena *a)
{
    const sk_setup *s = c->s;
    sk_console_label(c, "layout");
    if (s->n_ranks == 1) fprintf(c->to, "1 rank");
    else fprintf(c->to, "%d ranks = %s", s->n_ranks, sk_layout_short(a, &s->layout));
    if (s->n_micro > 1 && !s->layout.n_micro) fprintf(c->to, " · %d micro-batches", s->n_micro);
    fprintf(c->to, " · %d thread%s%s%s\n", s->threads, sk_plural(s->threads),
            s->n_ranks == 1 ? "" : " each", s->threads_omp ? " (OMP_NUM_THREADS)" : "");
}

static void head_memory(const sk_console *c, sk_arena *a)
{
    const sk_program *p = sk_relayout_largest(c->s, 0);
    for (int r = 1; r < c->s->n_ranks; r++) {
        const sk_program *q = sk_relayout_largest(c->s, r);
        if (q->own_bytes > p->own_bytes) p = q;
    }
    sk_console_label(c, "memory");
    fprintf(c->to, "per rank %s =", sk_bytes(a, p->own_bytes));
    const char *gap = " ";
    /* What a change of phases needs beyond the largest phase lies behind its scratch. */
    int64_t more = c->s->relayout ? p->kind_bytes[SK_SCRATCH] - sk_scratch_bytes(p) : 0;
    for (int k = 0; k < SK_N_KINDS; k++) {
        int64_t bytes = p->kind_bytes[k] - (k == SK_SCRATCH ? more : 0);
        if (!bytes) continue;
        fprintf(c->to, "%s%s %s", gap, sk_kind_names[k], sk_bytes(a, bytes));
        gap = " + ";
    }
    if (more) fprintf(c->to, "%schanges of phase %s", gap, sk_bytes(a, more));
    if (c->s->relayout) fprintf(c->to, " · in the largest phase");
    if (p->file_bytes) fprintf(c->to, " · file %s", sk_bytes(a, p->file_bytes));
    if (p->shared_bytes)
        fprintf(c->to, " · weights shared by %d ranks of a host",
                p->groups[p->layout.shard_axis].n);
    fprintf(c->to, "\n");
}

static void head_program(const sk_console *c, sk_arena *a)
{
    const sk_program *p = c->s->programs[0];
    int calls = 0, messages = 0;
    for (int i = 0; i < p->n_train; i++) {
        calls += p->insts.v[i].act == SK_DO_START;
        messages += p->insts.v[i].act == SK_DO_SEND || p->insts.v[i].act == SK_DO_RECV;
    }
    sk_console_label(c, "program");
    fprintf(c->to, "rank 0: %d instructions a step · %d collective%s", p->n_train, calls,
            sk_plural(calls));
    if (messages) fprintf(c->to, " · %d message%s", messages, sk_plural(messages));
    fprintf(c->to, " · the step has %sFLOP\n", sk_short_number(a, c->s->flops, " "));
}

/* What the second program is for, and what it costs in memory. */
static void head_fallback(const sk_console *c, sk_arena *a)
{
    const sk_graph *small = &c->s->graph;
    if (!c->s->fallback || !c->s->job->dropless) return;
    sk_console_label(c, "experts");
    fprintf(c->to, "%s places each in a sequence; steps that need more are run again with %s\n",
            sk_commas(a, small->size['x']), sk_commas(a, small->size['t']));
}

void sk_console_head(sk_console *c)
{
    sk_arena a = {0};
    const sk_job *job = c->s->job;
    fprintf(c->to, "%sskein " SK_VERSION "%s   %s%s%s%s   run %s   %sCtrl-C saves and stops%s\n",
            sk_console_paint(c, SK_TONE_BOLD), sk_console_paint(c, SK_TONE_PLAIN), job->model_name,
            *job->source ? " (" : "", job->source, *job->source ? ")" : "", c->t->dir,
            sk_console_paint(c, SK_TONE_DIM), sk_console_paint(c, SK_TONE_PLAIN));
    head_machine(c, &a);
    head_data(c, &a);
    head_model(c, &a);
    sk_console_label(c, "optimizer");
    fprintf(c->to, "%s\n", sk_optim_text(&a, c->s));
    head_layout(c, &a);
    head_memory(c, &a);
    head_program(c, &a);
    head_fallback(c, &a);
    fflush(c->to);
    sk_arena_end(&a);
}
