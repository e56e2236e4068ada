/* workspaces.c - the workspace of a call between GPUs, for packing what is not contiguous, and of a
 * launch. */
#include "program/workspaces.h"
#include "kernel/kernel_launch.h"

enum { LINE = 256 }; /* alignment inside of a workspace */

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static bool packs_src(sk_coll_kind kind, const sk_seg *s)
{
    if (kind == SK_ALLTOALL) return s->swap == SK_SWAP_N_N2 || s->outer > 1;
    return (kind == SK_REDUCE_SCATTER || kind == SK_SCATTER) && s->outer > 1;
}

static bool packs_dst(sk_coll_kind kind, const sk_seg *s)
{
    if (kind == SK_ALLTOALL)
        return s->swap == SK_SWAP_N2_N || (s->swap == SK_SWAP_N_N2 && s->outer > 1);
    return (kind == SK_ALLGATHER || kind == SK_GATHER) && s->outer > 1;
}

int64_t sk_workspace_send(const sk_call_plan *c, const sk_seg *s, int me, int p)
{
    int64_t size = (int64_t)sk_dtype_size(c->type);
    if (!packs_src(c->kind, s)) return 0;
    return lines((c->kind == SK_ALLTOALL ? sk_seg_gives(s, me, p) : sk_seg_count(s)) * size);
}

sk_rows sk_workspace_share(const sk_call_plan *c, const sk_seg *s, int i, int p)
{
    int64_t n = sk_seg_count(s), row = s->outer * s->inner;
    if (c->kind == SK_REDUCE) return (sk_rows){0, i == c->root ? n : 0};
    if (c->kind == SK_ALLREDUCE) return (sk_rows){sk_even_at(n, i, p), sk_even_part(n, i, p)};
    sk_rows r = sk_seg_rows(s, i, p);
    return (sk_rows){r.at * row, r.n * row};
}

int64_t sk_workspace_stride(const sk_call_plan *c, const sk_seg *s, int me, int p)
{
    return lines(sk_workspace_share(c, s, me, p).n * (int64_t)sk_dtype_size(c->type));
}

int64_t sk_workspace_recv(const sk_call_plan *c, const sk_seg *s, int me, int p)
{
    int64_t size = (int64_t)sk_dtype_size(c->type);
    if (c->ordered) return p * sk_workspace_stride(c, s, me, p);
    if (!packs_dst(c->kind, s)) return 0;
    return lines((c->kind == SK_ALLTOALL ? sk_seg_gets(s, me, p) : sk_seg_count(s)) * size);
}

int64_t sk_workspace_member(const sk_call_plan *c, int me, int p)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->n_segs; i++) {
        sk_seg s = sk_call_shape(&c->segs[i]);
        bytes += sk_workspace_send(c, &s, me, p) + sk_workspace_recv(c, &s, me, p);
    }
    return bytes;
}

int64_t sk_workspace_call(const sk_call_plan *c, int group_size)
{
    int64_t most = 0;
    for (int i = 0; group_size > 1 && i < group_size; i++) {
        int64_t bytes = sk_workspace_member(c, i, group_size);
        if (bytes > most) most = bytes;
        if (c->kind != SK_ALLTOALL && !c->ordered) break; /* all members need the same */
    }
    return most;
}

int64_t sk_workspace_launch(const sk_program *p, const sk_inst *in)
{
    sk_args args;
    if (!p->gpu || in->act != SK_DO_OP || !in->node->op->workspace) return 0;
    sk_inst_args(p, in, NULL, &args);
    int64_t more = (int64_t)in->node->op->workspace(&args);
    return more ? more + SK_WORKSPACE + SK_WORKSPACE_ALIGN : 0;
}
