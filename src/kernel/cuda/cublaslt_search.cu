/* cublaslt_search.cu - which algorithm of cuBLASLt is taken for a product.
 *
 * Only algorithms are taken that sum in a fixed order.  Without a search it is the first proposal
 * of cuBLASLt; with one, the fastest of the proposals. */
#include "kernel/cuda/cublaslt_private.h"

#include <stdlib.h>
#include <string.h>

enum { FINALISTS = 6, N_ROUNDS = 5, N_TIMED = 2, N_WARM = 3, BUDGET_MS = 60 };

static bool exact(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t scheme = 0;
    size_t n = 0;
    if (sk_lt_lib.cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                       &scheme, sizeof scheme, &n))
        return true; /* it has none */
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
           scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

template <typename T>
static void want(cublasLtMatmulPreference_t pref, cublasStatus_t *st,
                 cublasLtMatmulPreferenceAttributes_t what, T value)
{
    if (!*st)
        *st = sk_lt_lib.cublasLtMatmulPreferenceSetAttribute(pref, what, &value, sizeof value);
}

static cublasStatus_t preference(const job *j, cublasLtMatmulPreference_t *out)
{
    const sk_product *p = j->p;
    cublasStatus_t st = sk_lt_lib.cublasLtMatmulPreferenceCreate(out);
    want(*out, &st, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)j->workspace_bytes);
    want(*out, &st, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    want(*out, &st, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)alignment(p->b.data));
    want(*out, &st, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)alignment(p->a.data));
    want(*out, &st, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)alignment(c_of(p).data));
    want(*out, &st, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)alignment(p->d.data));
    return st;
}

/* What cuBLASLt proposes, the best first by its own opinion. */
static int proposals(const job *j, cublasLtMatmulHeuristicResult_t *out, int most)
{
    cublasLtMatmulPreference_t pref = NULL;
    int n = 0, good = 0;
    cublasStatus_t st = preference(j, &pref);
    if (!st)
        st = sk_lt_lib.cublasLtMatmulAlgoGetHeuristic(j->at->handle, j->desc, j->a, j->b, j->c,
                                                      j->d, pref, most, out, &n);
    if (pref) sk_lt_lib.cublasLtMatmulPreferenceDestroy(pref);
    for (int i = 0; !st && i < n; i++)
        if (!out[i].state && out[i].workspaceSize <= j->workspace_bytes && exact(&out[i].algo))
            out[good++] = out[i];
    return good;
}

/* The mean time of some launches; false if this algorithm does not want to. */
static sk_status take_time(const job *j, const cublasLtMatmulAlgo_t *algo, const cudaEvent_t *event,
                           int warm, int times, float *ms, bool *fine)
{
    *fine = false;
    for (int i = 0; i < warm; i++)
        if (sk_lt_multiply(j, algo)) return SK_OK;
    TRY(cudaEventRecord(event[0], j->stream));
    for (int i = 0; i < times; i++)
        if (sk_lt_multiply(j, algo)) return SK_OK;
    TRY(cudaEventRecord(event[1], j->stream));
    TRY(cudaEventSynchronize(event[1]));
    TRY(cudaEventElapsedTime(ms, event[0], event[1]));
    *ms /= (float)times;
    *fine = true;
    return SK_OK;
}

typedef struct runner {
    int which;
    float ms[N_ROUNDS];
} runner;

static int by_time(const void *a, const void *b)
{
    float x = ((const runner *)a)->ms[0], y = ((const runner *)b)->ms[0];
    return x < y ? -1 : x > y;
}

static float median(const float *ms, int n)
{
    float v[N_ROUNDS];
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && v[k - 1] > ms[i]; k--) v[k] = v[k - 1];
        v[k] = ms[i];
    }
    return v[n / 2];
}

/* Once each, and then the quickest in turn: a chip that is warm and short of power runs slower than
 * one that was idle, and not all algorithms suffer alike. */
static sk_status heats(const job *j, const cublasLtMatmulHeuristicResult_t *all, int n,
                       const cudaEvent_t *event, runner *v, int *left)
{
    float spent = 0;
    *left = 0;
    for (int i = 0; i < n && (i < FINALISTS || spent < BUDGET_MS); i++) {
        bool fine;
        float *ms = &v[*left].ms[0];
        int times = *left && v[0].ms[0] > 1 ? 1 : N_TIMED; /* a long product is not noisy */
        v[*left].which = i;
        SK_TRY(take_time(j, &all[i].algo, event, i ? 1 : N_WARM, times, ms, &fine));
        if (fine) spent += *ms * (float)(times + 1);
        *left += fine;
    }
    (void)cudaGetLastError(); /* what an unwilling one left */
    qsort(v, (size_t)*left, sizeof *v, by_time);
    if (*left > FINALISTS) *left = FINALISTS;
    return SK_OK;
}

static sk_status in_turn(const job *j, const cublasLtMatmulHeuristicResult_t *all,
                         const cudaEvent_t *event, runner *v, int left, int rounds)
{
    for (int k = 0; k < rounds && left > 1; k++)
        for (int i = 0; i < left; i++) {
            bool fine;
            SK_TRY(take_time(j, &all[v[i].which].algo, event, 0, v[i].ms[0] > 1 ? 1 : N_TIMED,
                             &v[i].ms[k], &fine));
        }
    return SK_OK;
}

/* One that is only half a hundredth quicker than another before it is not. */
static sk_status race(const job *j, const cublasLtMatmulHeuristicResult_t *all, int n,
                      const cudaEvent_t *event, int *best)
{
    static runner v[MOST]; /* under the lock */
    int left = 0, rounds = N_ROUNDS;
    *best = -1;
    SK_TRY(heats(j, all, n, event, v, &left));
    while (rounds > 3 && left && (float)(rounds * left) * v[0].ms[0] > BUDGET_MS) rounds -= 2;
    if (left > 3 && (float)(rounds * left) * v[0].ms[0] > BUDGET_MS) left = 3;
    SK_TRY(in_turn(j, all, event, v, left, rounds));
    float record = 0;
    for (int i = 0; i < left; i++) {
        float ms = left > 1 ? median(v[i].ms, rounds) : 0;
        if (*best >= 0 && ms > 0.995f * record) continue;
        record = ms;
        *best = v[i].which;
    }
    return SK_OK;
}

static sk_status fastest(const job *j, const cublasLtMatmulHeuristicResult_t *all, int n, int *best)
{
    cudaEvent_t event[2] = {};
    cudaError_t e = cudaSuccess;
    sk_status st = SK_OK;
    for (cudaEvent_t &x : event)
        if (!e) e = cudaEventCreate(&x);
    st = e ? sk_lt_cuda_failed("cudaEventCreate", e) : race(j, all, n, event, best);
    for (cudaEvent_t x : event)
        if (x) (void)cudaEventDestroy(x);
    return st;
}

static void settle(entry *e, state st, const cublasLtMatmulHeuristicResult_t *r)
{
    e->st = r ? st : NONE;
    e->ran = r && st == BEST;
    if (r) e->algo = r->algo;
}

/* An algorithm from the file must still be one that runs. */
static void check(const job *j, entry *e)
{
    cublasLtMatmulHeuristicResult_t r;
    if (e->st != READ) return;
    memset(&r, 0, sizeof r);
    bool fine = !sk_lt_lib.cublasLtMatmulAlgoCheck(j->at->handle, j->desc, j->a, j->b, j->c, j->d,
                                                   &e->algo, &r) &&
                r.workspaceSize <= j->workspace_bytes && exact(&e->algo);
    e->st = fine ? BEST : BLANK;
}

static sk_status search(job *j, entry *e)
{
    static cublasLtMatmulHeuristicResult_t all[MOST]; /* under the lock */
    int best = -1;
    int fd = sk_lt_lock_file(j->at);
    sk_lt_read_file(j->at); /* another rank may have been here */
    check(j, e);
    sk_status st = SK_OK;
    if (e->st != BEST) {
        int n = proposals(j, all, MOST);
        st = fastest(j, all, n, &best);
        if (!st) settle(e, BEST, best >= 0 ? &all[best] : NULL);
        if (!st && best >= 0 && fd >= 0) sk_lt_write_file(j->at);
    }
    sk_lt_unlock_file(fd);
    return st;
}

sk_status sk_lt_choose(job *j, entry *e, bool may_search)
{
    check(j, e);
    if (may_search && j->at->search && (e->st == BLANK || e->st == FIRST)) return search(j, e);
    if (e->st != BLANK) return SK_OK;
    cublasLtMatmulHeuristicResult_t few[MOST];
    int n = proposals(j, few, e->passed ? (int)MOST : 4);
    settle(e, FIRST, e->passed < n ? &few[e->passed] : NULL);
    return SK_OK;
}

bool sk_lt_refuses(cublasStatus_t st)
{
    return st == CUBLAS_STATUS_NOT_SUPPORTED || st == CUBLAS_STATUS_INVALID_VALUE ||
           st == CUBLAS_STATUS_ARCH_MISMATCH;
}

void sk_lt_reject(entry *e)
{
    if (e->st == FIRST) e->passed++;
    else e->stale = true;
    e->st = BLANK;
    (void)cudaGetLastError(); /* what it left */
}
