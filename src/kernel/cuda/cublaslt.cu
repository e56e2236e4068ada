/* lt.cu - products of matrices by cuBLASLt; lt.h says what and why.
 *
 * cuBLASLt thinks column by column.  A matrix stored row by row is, in its eyes, the transposed
 * one, so d = a b is asked for as d' = b' a': its A is our b, its B is our a, its m and n are our n
 * and m, and its bias along a column runs along our rows.
 *
 * What was chosen for a shape is kept in a list for each device, under one lock for the process:
 * there are some dozens of shapes.  The file has a line for each, the numbers of the key and then
 * the 64 bytes of the algorithm, behind a head that names GPU and library: another head, and the
 * file is written anew.  Who searches holds a lock on FILE.lock, so that one rank searches and the
 * others read what it found. */
#include "kernel/cuda/cublaslt.h"
#include "device/library.h"
#include "base/arena.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_DEVICE = 64, N_KEY = 34, ALIGN = 16 };
enum { MOST = 32, FINALISTS = 6, N_ROUNDS = 5, N_TIMED = 2, N_WARM = 3, PATIENCE_MS = 60 };

/* ---- the library */

#define CALLS(X)                            \
    X(cublasLtCreate)                       \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusName)                \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)     \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoConfigGetAttribute)

static struct {
    void *handle;
#define X(name) decltype(&::name) name;
    CALLS(X)
#undef X
} lib;

static void *open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    static const char *const places[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
    char own[1024], path[1100];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = 0;
    char *slash = strrchr(own, '/');
    if (slash) slash[1] = 0;
    for (const char *name : names)
        for (int i = 0; i < 4; i++) {
            snprintf(path, sizeof path, "%s%s", i < 3 ? places[i] : own, name);
            void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (handle) return handle;
        }
    return NULL;
}

static sk_status load(void)
{
    if (lib.handle) return SK_OK;
    void *handle = open_library();
    if (!handle)
        return sk_fail(SK_ECONF,
                       "cuBLASLt: libcublasLt.so.13 (or .12) is found neither by the loader nor in "
                       "/usr/local/cuda/lib64 nor beside the program; install cuBLAS of CUDA 13, "
                       "or name its folder in LD_LIBRARY_PATH");
#define X(name)                                          \
    lib.name = (decltype(lib.name))dlsym(handle, #name); \
    if (!lib.name)                                       \
        return sk_fail(SK_ECONF, "cuBLASLt: the library has no %s; CUDA 12 or 13 is needed", #name);
    CALLS(X)
#undef X
    lib.handle = handle;
    return SK_OK;
}

static sk_status call_failed(const char *what, cublasStatus_t st)
{
    return sk_fail(SK_EIO, "cuBLASLt: %s failed: %s", what, lib.cublasLtGetStatusName(st));
}

static sk_status cuda_failed(const char *what, cudaError_t e)
{
    (void)cudaGetLastError();
    return sk_fail(SK_EIO, "cuBLASLt: %s failed: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
}

#define TRY(call)                                             \
    do {                                                      \
        cudaError_t e_ = (call);                              \
        if (e_ != cudaSuccess) return cuda_failed(#call, e_); \
    } while (0)

/* ---- what was chosen */

typedef enum state {
    BLANK, /* not looked at */
    NONE,  /* cuBLASLt has nothing */
    FIRST, /* its first proposal, not timed */
    READ,  /* from the file, not checked */
    BEST
} state;

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    int64_t key[N_KEY];
    cublasLtMatmulAlgo_t algo;
    state st;
    bool ran;   /* it is loaded: what is recorded should not have to load it */
    bool stale; /* algo is what cuBLASLt refused, though the file has it */
    int passed; /* proposals that it refused */
} entry;

/* One device. */
typedef struct lt {
    cublasLtHandle_t handle;
    sk_arena arena;
    entry *first;
    const char *head;
    const char *path; /* of the file; NULL: none */
    bool search;
} lt;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lt devices[MAX_DEVICE];

static int64_t alignment(uintptr_t x)
{
    uintptr_t bits = x | ALIGN;
    return (int64_t)(bits & (~bits + 1));
}

static int64_t alignment(const void *p) { return alignment((uintptr_t)p); }

static bool reads_c(const sk_product *p) { return p->beta != 0 && p->c.data; }
static sk_lt_matrix c_of(const sk_product *p) { return reads_c(p) ? p->c : p->d; }

static bool has_bias(const sk_product *p)
{
    return p->after == SK_AFTER_BIAS || p->after == SK_AFTER_GELU_BIAS ||
           p->after == SK_AFTER_GELU_AUX_BIAS;
}

static bool has_aux(const sk_product *p) { return p->after >= SK_AFTER_GELU_AUX; }

/* Everything that an algorithm may depend on; how far the matrices of a batch lie apart is not. */
static void write_key(const sk_product *p, int64_t key[N_KEY])
{
    sk_lt_matrix none = {}, c = c_of(p), bias = has_bias(p) ? p->bias : none,
                 aux = has_aux(p) ? p->aux : none;
    const sk_lt_matrix *all[] = {&p->a, &p->b, &c, &p->d, &bias, &aux};
    int64_t beta = (p->beta != 0) + (p->alpha_at ? 2 : 0);
    const int64_t head[] = {
        p->m,        p->n,       p->k, p->batch, p->a.turned,
        p->b.turned, reads_c(p), beta, p->after, p->c.data == p->d.data && reads_c(p)};
    int n = 0;
    memset(key, 0, N_KEY * sizeof *key);
    for (int64_t x : head) key[n++] = x;
    for (const sk_lt_matrix *x : all) {
        key[n++] = x->type + (x->e5m2 ? SK_N_DTYPES : 0);
        key[n++] = x->ld;
        key[n++] = p->batch > 1 && x->step ? alignment((uintptr_t)x->step) : 0;
        key[n++] = alignment(x->data);
    }
    sk_assert(n == N_KEY);
}

static entry *find(lt *d, const int64_t key[N_KEY])
{
    uint64_t hash = sk_hash(SK_HASH_SEED, key, N_KEY * sizeof *key);
    for (entry *e = d->first; e; e = e->next)
        if (e->hash == hash && !memcmp(e->key, key, sizeof e->key)) return e;
    entry *e = sk_new(&d->arena, entry);
    memcpy(e->key, key, sizeof e->key);
    e->hash = hash;
    e->next = d->first;
    return d->first = e;
}

/* ---- the file */

static bool read_hex(const char *p, unsigned char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned x;
        if (!isxdigit((unsigned char)p[2 * i]) || !isxdigit((unsigned char)p[2 * i + 1]) ||
            sscanf(p + 2 * i, "%2x", &x) != 1)
            return false;
        to[i] = (unsigned char)x;
    }
    return true;
}

/* A line that is not understood is passed over. */
static void read_line(lt *d, const char *p)
{
    int64_t key[N_KEY];
    cublasLtMatmulAlgo_t algo;
    for (int64_t &x : key) {
        char *end;
        x = strtoll(p, &end, 10);
        if (end == p || *end != ' ') return;
        p = end + 1;
    }
    if (!read_hex(p, (unsigned char *)&algo, sizeof algo)) return;
    entry *e = find(d, key);
    if (e->st == BEST || e->st == READ) return;
    if (e->stale && !memcmp(&e->algo, &algo, sizeof algo)) return;
    e->algo = algo;
    e->st = READ;
    e->ran = false;
}

/* Takes in what is there and not known yet. */
static void read_file(lt *d)
{
    sk_arena a = {};
    sk_text text;
    size_t n = strlen(d->head);
    if (d->path && sk_is_file(d->path) && !sk_file_read(&a, d->path, &text) && text.n > n &&
        !memcmp(text.s, d->head, n) && text.s[n] == '\n')
        for (const char *p = text.s + n; p; p = strchr(p + 1, '\n'))
            if (p[1]) read_line(d, p + 1);
    sk_arena_end(&a);
}

static void write_file(lt *d)
{
    sk_arena a = {};
    sk_out o = {};
    o.arena = &a;
    sk_out_add(&o, "%s\n", d->head);
    for (const entry *e = d->first; e; e = e->next) {
        const unsigned char *bytes = (const unsigned char *)&e->algo;
        if (e->st != BEST && e->st != READ) continue;
        for (int64_t x : e->key) sk_out_add(&o, "%lld ", (long long)x);
        for (size_t i = 0; i < sizeof e->algo; i++) sk_out_add(&o, "%02x", bytes[i]);
        sk_out_add(&o, "\n");
    }
    (void)sk_file_replace(d->path, o.s, o.n); /* if not, the next run searches again */
    sk_arena_end(&a);
}

/* -1: there is no file, or it cannot be locked. */
static int lock_file(lt *d)
{
    if (!d->path) return -1;
    sk_arena a = {};
    int fd = open(sk_print(&a, "%s.lock", d->path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    sk_arena_end(&a);
    if (fd >= 0 && flock(fd, LOCK_EX)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void unlock_file(int fd)
{
    if (fd >= 0) close(fd);
}

/* ---- a device */

static const char *file_path(lt *d, const char *gpu, size_t version)
{
    const char *given = getenv("SKEIN_GEMM_CACHE"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char name[128];
    size_t i = 0;
    if (given) return *given ? sk_strdup(&d->arena, given) : NULL;
    for (; gpu[i] && i < sizeof name - 1; i++)
        name[i] = isalnum((unsigned char)gpu[i]) ? gpu[i] : '-';
    name[i] = 0;
    char *folder = cache && *cache ? sk_print(&d->arena, "%s/skein", cache)
                   : home && *home ? sk_print(&d->arena, "%s/.cache/skein", home)
                                   : NULL;
    if (!folder || sk_dir_make(folder)) return NULL;
    return sk_print(&d->arena, "%s/gemm-%s-%zu.txt", folder, name, version);
}

static sk_status open_device(lt *d, int index)
{
    cudaDeviceProp p;
    const char *search = getenv("SKEIN_GEMM_SEARCH");
    SK_TRY(load());
    TRY(cudaGetDeviceProperties(&p, index));
    size_t version = lib.cublasLtGetVersion();
    d->search = !search || strcmp(search, "0");
    d->head = sk_print(&d->arena, "skein gemm 2, %s, %d SMs, cuBLASLt %zu, keys of %d", p.name,
                       p.multiProcessorCount, version, (int)N_KEY);
    if (d->search) d->path = file_path(d, p.name, version);
    cublasLtHandle_t handle = NULL;
    cublasStatus_t st = lib.cublasLtCreate(&handle);
    if (st) return call_failed("cublasLtCreate", st);
    d->handle = handle;
    read_file(d);
    return SK_OK;
}

/* The current device, opened; the lock is held. */
static sk_status enter(lt **out)
{
    int index = 0;
    TRY(cudaGetDevice(&index));
    if (index >= MAX_DEVICE)
        return sk_fail(SK_ECONF, "cuBLASLt: device %d, this program knows %d", index, MAX_DEVICE);
    if (!devices[index].handle) SK_TRY(open_device(&devices[index], index));
    *out = &devices[index];
    return SK_OK;
}

/* ---- one product as cuBLASLt wants it told */

typedef struct job {
    lt *at;
    const sk_product *p;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    cublasStatus_t st; /* the first that was not good */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d; /* in its words: our b, our a, c', d' */
} job;

static cudaDataType cuda_type(sk_dtype t)
{
    return t == SK_BF16 ? CUDA_R_16BF : t == SK_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cudaDataType stored_type(const sk_lt_matrix *x)
{
    if (x->type == SK_U8) return x->e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    return cuda_type(x->type);
}

template <typename T> static void say(job *j, cublasLtMatmulDescAttributes_t what, T value)
{
    if (!j->st) j->st = lib.cublasLtMatmulDescSetAttribute(j->desc, what, &value, sizeof value);
}

template <typename T>
static void say(job *j, cublasLtMatrixLayout_t m, cublasLtMatrixLayoutAttribute_t what, T value)
{
    if (!j->st) j->st = lib.cublasLtMatrixLayoutSetAttribute(m, what, &value, sizeof value);
}

static cublasLtMatrixLayout_t layout(job *j, const sk_lt_matrix *x, int64_t rows, int64_t cols)
{
    cublasLtMatrixLayout_t m = NULL;
    if (!j->st)
        j->st = lib.cublasLtMatrixLayoutCreate(&m, stored_type(x), (uint64_t)rows, (uint64_t)cols,
                                               x->ld);
    if (j->p->batch == 1) return m;
    say(j, m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (int32_t)j->p->batch);
    say(j, m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (int64_t)x->step);
    return m;
}

static uint32_t epilogue(sk_after after)
{
    static const uint32_t of[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                  CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                  CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                  CUBLASLT_EPILOGUE_DGELU};
    return of[after];
}

static void say_after(job *j)
{
    const sk_product *p = j->p;
    say(j, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p->after));
    if (has_bias(p)) {
        say(j, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias.data);
        say(j, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)cuda_type(p->bias.type));
        if (p->batch > 1) say(j, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, (int64_t)p->bias.step);
    }
    if (!has_aux(p)) return;
    say(j, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux.data);
    say(j, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)p->aux.ld);
    say(j, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, (int32_t)cuda_type(p->aux.type));
    if (p->batch > 1) say(j, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, (int64_t)p->aux.step);
}

static void describe(job *j)
{
    const sk_product *p = j->p;
    sk_lt_matrix c = c_of(p);
    j->st = lib.cublasLtMatmulDescCreate(&j->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    say(j, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(p->b.turned ? CUBLAS_OP_T : CUBLAS_OP_N));
    say(j, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(p->a.turned ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (p->b_scale) say(j, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->b_scale);
    if (p->a_scale) say(j, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->a_scale);
    if (p->alpha_at)
        say(j, CUBLASLT_MATMUL_DESC_POINTER_MODE, (int32_t)CUBLASLT_POINTER_MODE_DEVICE);
    if (p->after) say_after(j);
    j->a = layout(j, &p->b, p->b.turned ? p->k : p->n, p->b.turned ? p->n : p->k);
    j->b = layout(j, &p->a, p->a.turned ? p->m : p->k, p->a.turned ? p->k : p->m);
    j->c = layout(j, &c, p->n, p->m);
    j->d = layout(j, &p->d, p->n, p->m);
}

static void forget(job *j)
{
    if (j->desc) lib.cublasLtMatmulDescDestroy(j->desc);
    cublasLtMatrixLayout_t all[] = {j->a, j->b, j->c, j->d};
    for (cublasLtMatrixLayout_t m : all)
        if (m) lib.cublasLtMatrixLayoutDestroy(m);
}

static cublasStatus_t multiply(const job *j, const cublasLtMatmulAlgo_t *algo)
{
    const sk_product *p = j->p;
    const float *alpha = p->alpha_at ? p->alpha_at : &p->alpha,
                *beta = p->alpha_at ? p->beta_at : &p->beta;
    return lib.cublasLtMatmul(j->at->handle, j->desc, alpha, p->b.data, j->a, p->a.data, j->b, beta,
                              c_of(p).data, j->c, p->d.data, j->d, algo, j->workspace,
                              j->workspace_bytes, j->stream);
}

/* ---- choosing */

static bool exact(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t scheme = 0;
    size_t n = 0;
    if (lib.cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                 &scheme, sizeof scheme, &n))
        return true; /* it has none */
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
           scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

template <typename T>
static void want(cublasLtMatmulPreference_t pref, cublasStatus_t *st,
                 cublasLtMatmulPreferenceAttributes_t what, T value)
{
    if (!*st) *st = lib.cublasLtMatmulPreferenceSetAttribute(pref, what, &value, sizeof value);
}

static cublasStatus_t preference(const job *j, cublasLtMatmulPreference_t *out)
{
    const sk_product *p = j->p;
    cublasStatus_t st = lib.cublasLtMatmulPreferenceCreate(out);
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
        st = lib.cublasLtMatmulAlgoGetHeuristic(j->at->handle, j->desc, j->a, j->b, j->c, j->d,
                                                pref, most, out, &n);
    if (pref) lib.cublasLtMatmulPreferenceDestroy(pref);
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
        if (multiply(j, algo)) return SK_OK;
    TRY(cudaEventRecord(event[0], j->stream));
    for (int i = 0; i < times; i++)
        if (multiply(j, algo)) return SK_OK;
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
    for (int i = 0; i < n && (i < FINALISTS || spent < PATIENCE_MS); i++) {
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
    while (rounds > 3 && left && (float)(rounds * left) * v[0].ms[0] > PATIENCE_MS) rounds -= 2;
    if (left > 3 && (float)(rounds * left) * v[0].ms[0] > PATIENCE_MS) left = 3;
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
    st = e ? cuda_failed("cudaEventCreate", e) : race(j, all, n, event, best);
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
    bool fine = !lib.cublasLtMatmulAlgoCheck(j->at->handle, j->desc, j->a, j->b, j->c, j->d,
                                             &e->algo, &r) &&
                r.workspaceSize <= j->workspace_bytes && exact(&e->algo);
    e->st = fine ? BEST : BLANK;
}

static sk_status search(job *j, entry *e)
{
    static cublasLtMatmulHeuristicResult_t all[MOST]; /* under the lock */
    int best = -1;
    int fd = lock_file(j->at);
    read_file(j->at); /* another rank may have been here */
    check(j, e);
    sk_status st = SK_OK;
    if (e->st != BEST) {
        int n = proposals(j, all, MOST);
        st = fastest(j, all, n, &best);
        if (!st) settle(e, BEST, best >= 0 ? &all[best] : NULL);
        if (!st && best >= 0 && fd >= 0) write_file(j->at);
    }
    unlock_file(fd);
    return st;
}

static sk_status choose(job *j, entry *e, bool may_search)
{
    check(j, e);
    if (may_search && j->at->search && (e->st == BLANK || e->st == FIRST)) return search(j, e);
    if (e->st != BLANK) return SK_OK;
    cublasLtMatmulHeuristicResult_t few[MOST];
    int n = proposals(j, few, e->passed ? (int)MOST : 4);
    settle(e, FIRST, e->passed < n ? &few[e->passed] : NULL);
    return SK_OK;
}

/* Is it only this algorithm that it does not want? */
static bool refuses(cublasStatus_t st)
{
    return st == CUBLAS_STATUS_NOT_SUPPORTED || st == CUBLAS_STATUS_INVALID_VALUE ||
           st == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Then it is not taken again, and choose() takes another: the next proposal, the same in every run,
 * or where there is a search what that finds, which it writes into the file for all. */
static void reject(entry *e)
{
    if (e->st == FIRST) e->passed++;
    else e->stale = true;
    e->st = BLANK;
    (void)cudaGetLastError(); /* what it left */
}

/* ---- */

static const char *type_word(const sk_lt_matrix *x)
{
    return x->type != SK_U8 ? sk_dtype_name(x->type) : x->e5m2 ? "e5m2" : "e4m3";
}

static sk_status product_failed(const sk_product *p, sk_status code, const char *what)
{
    return sk_fail(code,
                   "cuBLASLt: %s for %lld x %lld x %lld, %lld times, %s%s and %s%s to %s, beta %g, "
                   "with what comes after (%d)",
                   what, (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch,
                   type_word(&p->a), p->a.turned ? " turned" : "", type_word(&p->b),
                   p->b.turned ? " turned" : "", type_word(&p->d), (double)p->beta, (int)p->after);
}

/* Multiplies by what is chosen, unless it only prepares and did so before. */
static sk_status attempt(job *j, entry *e, bool prepares, bool *has)
{
    char what[96];
    *has = true;
    if (prepares && e->ran) return SK_OK;
    cublasStatus_t st = multiply(j, &e->algo);
    if (refuses(st)) {
        *has = false;
        reject(e);
        return SK_OK;
    }
    if (!st) e->ran = true;
    if (!st) return SK_OK;
    snprintf(what, sizeof what, "cublasLtMatmul failed: %s", lib.cublasLtGetStatusName(st));
    return product_failed(j->p, SK_EIO, what);
}

/* Chooses if that has not been done, and again until something runs. */
static sk_status act(job *j, bool prepares, bool *has)
{
    int64_t key[N_KEY];
    write_key(j->p, key);
    entry *e = find(j->at, key);
    if (e->st == NONE) return SK_OK; /* cuBLASLt need not be asked again */
    describe(j);
    if (j->st) return SK_OK; /* it cannot even be said */
    for (int i = 0; i < 2 * MOST && !*has; i++) {
        SK_TRY(choose(j, e, prepares));
        if (e->st == NONE) return SK_OK;
        SK_TRY(attempt(j, e, prepares, has));
    }
    if (!*has) e->st = NONE;
    return SK_OK;
}

static sk_status go(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                    bool prepares, bool *out)
{
    bool has = false;
    job j = {};
    sk_assert(p->m > 0 && p->n > 0 && p->k > 0 && p->batch > 0 && p->batch <= INT32_MAX);
    sk_assert(((uintptr_t)p->a_scale | (uintptr_t)p->b_scale) % ALIGN == 0);
    j.p = p;
    j.stream = (cudaStream_t)stream;
    j.workspace = workspace;
    j.workspace_bytes =
        workspace_bytes < (size_t)SK_LT_WORKSPACE ? workspace_bytes : (size_t)SK_LT_WORKSPACE;
    pthread_mutex_lock(&lock);
    sk_status st = enter(&j.at);
    if (!st) st = act(&j, prepares, &has);
    forget(&j);
    pthread_mutex_unlock(&lock);
    if (st) return sk_trail(st, SK_HERE);
    if (!has && !out) return product_failed(p, SK_ECONF, "no algorithm");
    if (out) *out = has;
    return SK_OK;
}

sk_status sk_lt_run(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                    bool *ran)
{
    return go(p, stream, workspace, workspace_bytes, false, ran);
}

sk_status sk_lt_prepare(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                        bool *found)
{
    return go(p, stream, workspace, workspace_bytes, true, found);
}

/* ---- for people */

void sk_lt_about(bool open, sk_device_library *out)
{
    Dl_info where;
    out->name = "cuBLASLt";
    out->use = "products of matrices";
    if (!lib.handle && !open) return;
    if (load()) {
        snprintf(out->why, sizeof out->why, "%s", sk_error_line());
        sk_error_set("");
        return;
    }
    unsigned v = (unsigned)lib.cublasLtGetVersion();
    out->here = true;
    snprintf(out->version, sizeof out->version, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    if (dladdr((void *)lib.cublasLtMatmul, &where))
        snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
}
