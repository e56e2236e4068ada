/* inst_view.c - what an instruction's operands are, for kernels and for counting. */
#include "base/hash.h"
#include "base/version.h"
#include "program/program.h"

#include <string.h>

int sk_buffer_root(const sk_program *p, int buf)
{
    while (p->bufs.v[buf].within >= 0) buf = p->bufs.v[buf].within;
    return buf;
}

bool sk_buffer_own(const sk_program *p, int buf)
{
    return !p->bufs.v[buf].tensor && !p->bufs.v[sk_buffer_root(p, buf)].tensor;
}

int64_t sk_buffer_begin(const sk_program *p, int buf)
{
    int64_t at = 0;
    for (; p->bufs.v[buf].within >= 0; buf = p->bufs.v[buf].within) at += p->bufs.v[buf].part_at;
    return at;
}

sk_view sk_buffer_view(const sk_program *p, int buf, void *base)
{
    const sk_buffer *b = &p->bufs.v[buf];
    sk_view v = {.data = base ? (char *)base + b->offset : NULL, .type = b->type, .n = b->box.n};
    memcpy(v.size, b->box.size, sizeof v.size);
    memcpy(v.at, b->box.at, sizeof v.at);
    memcpy(v.full, b->box.full, sizeof v.full);
    for (int d = 0; b->tensor && d < v.n && d < SK_MAX_DIM; d++) {
        char letter = b->tensor->letters[d];
        if (p->layout.canonical) v.cells[d] = (uint8_t)sk_letter_reduction_blocks(p->graph, letter);
        if (letter == p->graph->dealt) v.zigzag[d] = (uint8_t)p->graph->zigzag;
    }
    sk_view_dense(&v);
    return v;
}

void sk_inst_args(const sk_program *p, const sk_inst *in, void *base, sk_args *out)
{
    const sk_node *n = in->node;
    *out = (sk_args){.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .add = in->add, .of = 1};
    for (int i = 0; i < n->n_in; i++) out->in[i] = sk_buffer_view(p, in->in[i], base);
    for (int o = 0; o < n->n_out; o++) out->out[o] = sk_buffer_view(p, in->out[o], base);
    memcpy(out->attr, n->attr, sizeof out->attr);
}

uint64_t sk_program_hash(const sk_program *p)
{
    sk_arena tmp = {0};
    char *graph = sk_graph_print(p->graph, &tmp), *layout = sk_layout_print(&tmp, &p->layout);
    const char *optim = p->optim ? p->optim->name : "";
    uint64_t h = sk_hash(SK_HASH_SEED, graph, strlen(graph));
    h = sk_hash(h, layout, strlen(layout));
    h = sk_hash(h, optim, strlen(optim));
    if (p->noise.part > 0) h = sk_hash(h, &p->noise, sizeof p->noise);
    if (p->ema > 0) h = sk_hash(h, &p->ema, sizeof p->ema);
    if (p->groups_hash) h = sk_hash(h, &p->groups_hash, sizeof p->groups_hash);
    h = sk_hash(h, &p->n_micro, sizeof p->n_micro);
    h = sk_hash(h, SK_VERSION, strlen(SK_VERSION));
    if (p->choices) h = sk_hash(h, &p->choices, sizeof p->choices);
    sk_arena_end(&tmp);
    return h;
}

int64_t sk_call_table_bytes(const sk_call_plan *c)
{
    return (int64_t)(sizeof(sk_coll_call) + sizeof(sk_seg) * (size_t)c->n_segs);
}
