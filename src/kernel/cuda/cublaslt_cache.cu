/* cublaslt_cache.cu - the algorithms that were chosen for shapes of products.
 *
 * They are kept in a list for each device, under one lock for the process: there are some dozens of
 * shapes.  The file has a line for each, the numbers of the key and then the 64 bytes of the
 * algorithm, behind a head that names GPU and library: with another head the file is written anew.
 * Who searches holds a lock on FILE.lock, so that one rank searches and the others read what it
 * found. */
#include "kernel/cuda/cublaslt_private.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_DEVICE = 64 };

static lt devices[MAX_DEVICE];

void sk_lt_key(const sk_product *p, int64_t key[N_KEY])
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

entry *sk_lt_entry(lt *d, const int64_t key[N_KEY])
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
    entry *e = sk_lt_entry(d, key);
    if (e->st == BEST || e->st == READ) return;
    if (e->stale && !memcmp(&e->algo, &algo, sizeof algo)) return;
    e->algo = algo;
    e->st = READ;
    e->ran = false;
}

void sk_lt_read_file(lt *d)
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

void sk_lt_write_file(lt *d)
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

int sk_lt_lock_file(lt *d)
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

void sk_lt_unlock_file(int fd)
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
    SK_TRY(sk_lt_load());
    TRY(cudaGetDeviceProperties(&p, index));
    size_t version = sk_lt_lib.cublasLtGetVersion();
    d->search = !search || strcmp(search, "0");
    d->head = sk_print(&d->arena, "skein gemm 2, %s, %d SMs, cuBLASLt %zu, keys of %d", p.name,
                       p.multiProcessorCount, version, (int)N_KEY);
    if (d->search) d->path = file_path(d, p.name, version);
    cublasLtHandle_t handle = NULL;
    cublasStatus_t st = sk_lt_lib.cublasLtCreate(&handle);
    if (st) return sk_lt_call_failed("cublasLtCreate", st);
    d->handle = handle;
    sk_lt_read_file(d);
    return SK_OK;
}

sk_status sk_lt_enter(lt **out)
{
    int index = 0;
    TRY(cudaGetDevice(&index));
    if (index >= MAX_DEVICE)
        return sk_fail(SK_ECONF, "cuBLASLt: device %d, this program knows %d", index, MAX_DEVICE);
    if (!devices[index].handle) SK_TRY(open_device(&devices[index], index));
    *out = &devices[index];
    return SK_OK;
}
