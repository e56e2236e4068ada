/* collective.c - collectives from start to wait.
 *
 * A call goes one of three ways: executed as a step list (execute.c), done directly in the heaps of
 * this host (comm/shm_sync.h brings members together, shm_collectives.c does the work), or, in a
 * group of one, copied. */
#include "coll/collectives.h"
#include "base/clock.h"

static sk_status progress(sk_comm *c);

static const sk_comm_client client = {.progress = progress,
                                      .share = sk_shm_share,
                                      .show = sk_shm_show,
                                      .result = sk_shm_result,
                                      .needs = sk_shm_needs,
                                      .differ = sk_call_differ};

/* With the first collective: a rank that only sends and receives needs none of it. */
static void open_collectives(sk_comm *c)
{
    int threads = c->team ? sk_threads_count(c->team) : 1;
    sk_collectives *k = c->collectives = sk_new(&c->arena, sk_collectives);
    k->groups = sk_many(&c->arena, sk_group_calls, c->n_groups);
    k->src = sk_many(&c->arena, const void *, c->n_ranks *threads);
    k->dst = sk_many(&c->arena, void *, c->n_ranks *threads);
    k->moved = sk_many(&c->arena, int64_t, threads);
    sk_executor_open(c);
    c->client = &client;
}

static sk_status find_group(sk_comm *c, const sk_coll_call *call, sk_group_state **out)
{
    int g = call->group;
    if (g < 0 || g >= c->n_groups || c->groups[g].group.me < 0) {
        sk_status st = sk_fail(SK_EBUG, "call %llx uses group %d, rank %d has %d groups",
                               (long long)call->id, g, c->rank, c->n_groups);
        return sk_comm_report(c, st);
    }
    *out = &c->groups[g];
    return SK_OK;
}

static sk_status begin(sk_comm *c, sk_group_state *m, const sk_call_state *k)
{
    size_t at = m->posted % SK_COMM_FLIGHT;
    sk_group_calls *calls = &c->collectives->groups[k->call->group];
    sk_assert(!calls->execution[at]);
    if (!k->executes) {
        sk_sync_start(c, m, &k->sync);
        return SK_OK;
    }
    sk_heaps_slot(c->heaps, c->rank, k->call->group)->sign[at] = k->sync.sign;
    sk_status st = sk_execute_begin(c, m, k, m->posted, &calls->execution[at]);
    if (st) return st == SK_EPEER ? st : sk_comm_report(c, st);
    calls->over_at[at] = 0;
    c->in_flight++;
    return SK_OK;
}

static sk_status start(sk_comm *c, sk_group_state *m, const sk_coll_call *call)
{
    sk_call_state *k;
    sk_status st = sk_call_state_of(c, m, call, &k);
    if (!st && sk_kind_rows[call->kind].counts) st = sk_call_check_counts(c, &m->group, call);
    if (!st && m->posted - m->waited >= SK_COMM_FLIGHT)
        st = sk_fail(SK_EBUG, "call %llx is the %dth in flight on group %d, %d may be",
                     (long long)call->id, SK_COMM_FLIGHT + 1, call->group, SK_COMM_FLIGHT);
    if (st) return sk_comm_report(c, st);
    c->collectives->groups[call->group].state[m->posted % SK_COMM_FLIGHT] = k;
    SK_TRY(begin(c, m, k));
    m->posted++;
    return SK_OK;
}

sk_status sk_comm_start(sk_comm *c, const sk_coll_call *call)
{
    sk_group_state *m = NULL;
    if (!c->collectives) open_collectives(c);
    SK_TRY(find_group(c, call, &m));
    return start(c, m, call);
}

/* The group of a call that must be the oldest in flight on it, and what is known of the call. */
static sk_status oldest(sk_comm *c, const sk_coll_call *call, sk_group_state **out,
                        sk_call_state **state)
{
    SK_TRY(find_group(c, call, out));
    sk_group_state *m = *out;
    if (c->collectives && m->waited < m->posted) {
        *state = c->collectives->groups[call->group].state[m->waited % SK_COMM_FLIGHT];
        if ((*state)->call == call) return SK_OK;
    }
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d waits for call %llx, which is not the oldest in "
                           "flight on group %d",
                           c->rank, (long long)call->id, call->group);
    return sk_comm_report(c, st);
}

static sk_status go_on(sk_comm *c, int group, uint64_t k, bool *over, int *peer)
{
    sk_group_calls *calls = &c->collectives->groups[group];
    double *at = &calls->over_at[k % SK_COMM_FLIGHT];
    SK_TRY(sk_execute_progress(c, calls->execution[k % SK_COMM_FLIGHT], over, peer));
    if (*over && *at <= 0) *at = sk_now();
    return SK_OK;
}

/* Every execution that can go on, goes on. */
static sk_status progress(sk_comm *c)
{
    bool over;
    int peer;
    for (int g = 0; g < c->n_groups; g++) {
        const sk_group_state *m = &c->groups[g];
        sk_assert(m->waited <= m->posted && m->posted - m->waited <= SK_COMM_FLIGHT);
        for (uint64_t k = m->waited; k < m->posted; k++) {
            const sk_execution *e = c->collectives->groups[g].execution[k % SK_COMM_FLIGHT];
            if (e && !sk_execute_blocks(e)) SK_TRY(go_on(c, g, k, &over, &peer));
        }
    }
    return SK_OK;
}

static sk_status wait_execution(sk_comm *c, const sk_group_state *m, int group)
{
    sk_group_calls *calls = &c->collectives->groups[group];
    size_t at = m->waited % SK_COMM_FLIGHT;
    sk_backoff backoff = {.peer = -1, .poll = !m->here || c->p2p};
    sk_status st;
    for (bool over = false;;) {
        st = go_on(c, group, m->waited, &over, &backoff.peer);
        if (st || over) break;
        if (c->in_flight > 1 || c->p2p) st = sk_comm_progress(c); /* others may be waited for */
        if (!st) st = sk_backoff_wait(c, &backoff);
        if (st) break;
    }
    sk_backoff_end(c, &backoff);
    sk_execute_end(c, calls->execution[at]);
    calls->execution[at] = NULL;
    sk_assert(c->in_flight > 0);
    c->in_flight--;
    c->collectives->over_at = calls->over_at[at];
    return st;
}

sk_status sk_comm_wait(sk_comm *c, const sk_coll_call *call)
{
    sk_group_state *m = NULL;
    sk_call_state *k = NULL;
    SK_TRY(oldest(c, call, &m, &k));
    c->collectives->over_at = 0;
    SK_TRY(k->executes ? wait_execution(c, m, call->group) : sk_sync_wait(c, m, &k->sync));
    m->waited++;
    return SK_OK;
}

double sk_comm_finished_at(const sk_comm *c)
{
    return c->collectives ? c->collectives->over_at : 0;
}

sk_status sk_comm_test(sk_comm *c, const sk_coll_call *call, bool *done)
{
    sk_group_state *m = NULL;
    sk_call_state *k = NULL;
    int peer;
    SK_TRY(oldest(c, call, &m, &k));
    SK_TRY(sk_comm_progress(c));
    *done = true; /* also of a library's own collective: it has no test, wait() does it */
    const sk_group_calls *calls = &c->collectives->groups[call->group];
    if (k->executes && sk_execute_blocks(calls->execution[m->waited % SK_COMM_FLIGHT]))
        return SK_OK;
    if (k->executes) return go_on(c, call->group, m->waited, done, &peer);
    *done = sk_sync_test(c, m, &k->sync);
    return SK_OK;
}
