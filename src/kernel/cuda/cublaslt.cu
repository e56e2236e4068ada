/* cublaslt.cu - products of matrices by cuBLASLt; cublaslt.h says what and why.
 *
 * cuBLASLt stores matrices column by column.  A matrix stored row by row is, to it, the transposed
 * one, so d = a b is asked for as d' = b' a': its A is our b, its B is our a, its m and n are our n
 * and m, and its bias along a column runs along our rows. */
#include "kernel/cuda/cublaslt_private.h"
#include "device/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of devices, entries and handles */

/* ---- the library */

sk_lt_library sk_lt_lib;

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

sk_status sk_lt_load(void)
{
    if (sk_lt_lib.handle) return SK_OK;
    void *handle = open_library();
    if (!handle)
        return sk_fail(SK_ECONF,
                       "cuBLASLt: libcublasLt.so.13 (or .12) is found neither by the loader nor in "
                       "/usr/local/cuda/lib64 nor beside the program; install cuBLAS of CUDA 13, "
                       "or name its folder in LD_LIBRARY_PATH");
#define X(name)                                                      \
    sk_lt_lib.name = (decltype(sk_lt_lib.name))dlsym(handle, #name); \
    if (!sk_lt_lib.name)                                             \
        return sk_fail(SK_ECONF, "cuBLASLt: the library has no %s; CUDA 12 or 13 is needed", #name);
    CALLS(X)
#undef X
    sk_lt_lib.handle = handle;
    return SK_OK;
}

sk_status sk_lt_call_failed(const char *what, cublasStatus_t st)
{
    return sk_fail(SK_EIO, "cuBLASLt: %s failed: %s", what, sk_lt_lib.cublasLtGetStatusName(st));
}

sk_status sk_lt_cuda_failed(const char *what, cudaError_t e)
{
    (void)cudaGetLastError();
    return sk_fail(SK_EIO, "cuBLASLt: %s failed: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
}

/* ---- one product as cuBLASLt wants it described */

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
    if (!j->st)
        j->st = sk_lt_lib.cublasLtMatmulDescSetAttribute(j->desc, what, &value, sizeof value);
}

template <typename T>
static void say(job *j, cublasLtMatrixLayout_t m, cublasLtMatrixLayoutAttribute_t what, T value)
{
    if (!j->st) j->st = sk_lt_lib.cublasLtMatrixLayoutSetAttribute(m, what, &value, sizeof value);
}

static cublasLtMatrixLayout_t layout(job *j, const sk_lt_matrix *x, int64_t rows, int64_t cols)
{
    cublasLtMatrixLayout_t m = NULL;
    if (!j->st)
        j->st = sk_lt_lib.cublasLtMatrixLayoutCreate(&m, stored_type(x), (uint64_t)rows,
                                                     (uint64_t)cols, x->ld);
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
    j->st = sk_lt_lib.cublasLtMatmulDescCreate(&j->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
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

static void destroy(job *j)
{
    if (j->desc) sk_lt_lib.cublasLtMatmulDescDestroy(j->desc);
    cublasLtMatrixLayout_t all[] = {j->a, j->b, j->c, j->d};
    for (cublasLtMatrixLayout_t m : all)
        if (m) sk_lt_lib.cublasLtMatrixLayoutDestroy(m);
}

cublasStatus_t sk_lt_multiply(const job *j, const cublasLtMatmulAlgo_t *algo)
{
    const sk_product *p = j->p;
    const float *alpha = p->alpha_at ? p->alpha_at : &p->alpha,
                *beta = p->alpha_at ? p->beta_at : &p->beta;
    return sk_lt_lib.cublasLtMatmul(j->at->handle, j->desc, alpha, p->b.data, j->a, p->a.data, j->b,
                                    beta, c_of(p).data, j->c, p->d.data, j->d, algo, j->workspace,
                                    j->workspace_bytes, j->stream);
}

/* ---- running */

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
    cublasStatus_t st = sk_lt_multiply(j, &e->algo);
    if (sk_lt_refuses(st)) {
        *has = false;
        sk_lt_reject(e);
        return SK_OK;
    }
    if (!st) e->ran = true;
    if (!st) return SK_OK;
    snprintf(what, sizeof what, "cublasLtMatmul failed: %s", sk_lt_lib.cublasLtGetStatusName(st));
    return product_failed(j->p, SK_EIO, what);
}

/* Chooses if that has not been done, and again until something runs. */
static sk_status act(job *j, bool prepares, bool *has)
{
    int64_t key[N_KEY];
    sk_lt_key(j->p, key);
    entry *e = sk_lt_entry(j->at, key);
    if (e->st == NONE) return SK_OK; /* cuBLASLt need not be asked again */
    describe(j);
    if (j->st) return SK_OK; /* it cannot even be said */
    for (int i = 0; i < 2 * MOST && !*has; i++) {
        SK_TRY(sk_lt_choose(j, e, prepares));
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
    sk_status st = sk_lt_enter(&j.at);
    if (!st) st = act(&j, prepares, &has);
    destroy(&j);
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
    if (!sk_lt_lib.handle && !open) return;
    if (sk_lt_load()) {
        snprintf(out->why, sizeof out->why, "%s", sk_error_line());
        sk_error_set("");
        return;
    }
    unsigned v = (unsigned)sk_lt_lib.cublasLtGetVersion();
    out->here = true;
    snprintf(out->version, sizeof out->version, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    if (dladdr((void *)sk_lt_lib.cublasLtMatmul, &where))
        snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
}
