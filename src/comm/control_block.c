/* control_block.c - the control block: made, mapped by others, looked at from outside. */
#include "comm/heap.h"
#include "comm/quorum_block.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "skein-board"

enum { QUIET, TELLING, TOLD }; /* states of the abort word */

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* --- its shape --- */

static sk_control_block_head shape(int n_ranks, size_t extra_bytes)
{
    size_t n = (size_t)n_ranks, word = round_up(sizeof(sk_control_block_head), SK_FLAG_BYTES);
    size_t ranks = round_up(word + sizeof(sk_abort_word), SK_FLAG_BYTES);
    size_t slots = round_up(ranks + n * sizeof(struct sk_rank_block), 4096);
    size_t pairs = slots + n * SK_COMM_GROUPS * sizeof(sk_group_slot);
    size_t quorum = round_up(pairs + n * n * sizeof(sk_channel), 4096);
    size_t quorum_bytes = sizeof(sk_quorum_block) + n * sizeof(sk_quorum_rank);
    size_t extra = round_up(quorum + quorum_bytes, 4096);
    return (sk_control_block_head){.magic = NAME,
                                   .version = SK_CONTROL_BLOCK_VERSION,
                                   .n_ranks = n_ranks,
                                   .word_at = (int64_t)word,
                                   .ranks_at = (int64_t)ranks,
                                   .slots_at = (int64_t)slots,
                                   .pairs_at = (int64_t)pairs,
                                   .quorum_at = (int64_t)quorum,
                                   .extra_at = (int64_t)extra,
                                   .extra_bytes = (int64_t)extra_bytes,
                                   .rank_bytes = sizeof(struct sk_rank_block),
                                   .slot_bytes = sizeof(sk_group_slot),
                                   .pair_bytes = sizeof(sk_channel)};
}

static sk_status map_block(sk_heaps *h, const sk_control_block_head *s, bool writing)
{
    size_t bytes = (size_t)(s->extra_at + s->extra_bytes);
    char *p = mmap(NULL, bytes, writing ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, h->fd, 0);
    if (p == MAP_FAILED)
        return sk_fail(SK_EIO, "heaps: cannot map %zu bytes for the control block of %d ranks: %s",
                       bytes, s->n_ranks, strerror(errno));
    h->control_block_bytes = bytes;
    h->head = (sk_control_block_head *)(void *)p;
    h->abort = (sk_abort_word *)(void *)(p + s->word_at);
    h->ranks = (struct sk_rank_block *)(void *)(p + s->ranks_at);
    h->slots = (sk_group_slot *)(void *)(p + s->slots_at);
    h->channels = (sk_channel *)(void *)(p + s->pairs_at);
    h->quorum = (sk_quorum_block *)(void *)(p + s->quorum_at);
    h->extra = p + s->extra_at;
    return SK_OK;
}

/* --- making it --- */

static int reserve(int fd, int64_t at, int64_t bytes)
{
    int rc = 0;
    if (!bytes) return 0;
    do rc = fallocate(fd, 0, at, bytes);
    while (rc && errno == EINTR);
    return rc;
}

const char *sk_control_block_refusal(int err)
{
    if (err != EFBIG) return strerror(err);
    return "File too large (memory that ranks share counts as a file: raise ulimit -f)";
}

sk_status sk_control_block_make(sk_heaps *h, size_t extra_bytes)
{
    sk_control_block_head s = shape(h->n, extra_bytes);
    int64_t all = s.extra_at + s.extra_bytes;
    struct timespec t;
    h->fd = memfd_create(NAME, MFD_CLOEXEC);
    if (h->fd < 0 || ftruncate(h->fd, all) || reserve(h->fd, 0, s.slots_at) ||
        reserve(h->fd, s.extra_at, s.extra_bytes))
        return sk_fail(
            SK_EIO,
            "heaps: the control block of %d ranks needs %lld bytes, the kernel refused: %s; "
            "free some memory, or use fewer ranks on this host",
            h->n, (long long)(s.slots_at + s.extra_bytes), sk_control_block_refusal(errno));
    SK_TRY(map_block(h, &s, true));
    clock_gettime(CLOCK_REALTIME, &t);
    s.started = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    s.pid = getpid();
    *h->head = s;
    for (int r = 0; r < h->n; r++) {
        atomic_store(&h->ranks[r].line.step, -1);
        atomic_store(&h->ranks[r].line.waits_for, -1);
    }
    return SK_OK;
}

/* --- the control block that somebody else made --- */

/* Everything up to the pid must be as this program would have written it. */
static sk_status check_head(int fd, sk_control_block_head *s)
{
    struct stat st;
    if (fstat(fd, &st) || pread(fd, s, sizeof *s, 0) != (ssize_t)sizeof *s ||
        memcmp(s->magic, NAME, sizeof NAME))
        return sk_fail(SK_EDATA, "control block: it was not made by skein");
    if (s->version != SK_CONTROL_BLOCK_VERSION)
        return sk_fail(
            SK_EDATA,
            "control block: version %d, this program knows %d; use the program that runs the "
            "job",
            s->version, SK_CONTROL_BLOCK_VERSION);
    sk_control_block_head mine = {0};
    if (s->n_ranks > 0 && s->n_ranks <= 1 << 20 && s->extra_bytes >= 0 &&
        s->extra_bytes <= st.st_size)
        mine = shape(s->n_ranks, (size_t)s->extra_bytes);
    if (memcmp(&mine, s, offsetof(sk_control_block_head, pid)) ||
        s->extra_at + s->extra_bytes > st.st_size)
        return sk_fail(SK_EDATA,
                       "control block: its parts lie elsewhere than in this program; use the "
                       "program that runs the job");
    s->label[SK_LABEL - 1] = 0;
    return SK_OK;
}

sk_status sk_control_block_map(sk_heaps *h, int fd, bool writing)
{
    sk_control_block_head s;
    h->fd = fd;
    SK_TRY(check_head(fd, &s));
    if (h->n && h->n != s.n_ranks)
        return sk_fail(SK_EBUG, "control block: it has %d ranks, %d are needed", s.n_ranks, h->n);
    h->n = s.n_ranks;
    SK_TRY(map_block(h, &s, writing));
    return SK_OK;
}

void sk_heaps_label(sk_heaps *h, const char *text)
{
    snprintf(h->head->label, sizeof h->head->label, "%s", text);
}

sk_control_block_info sk_control_block_info_of(const sk_heaps *h)
{
    return (sk_control_block_info){.n_ranks = h->n,
                                   .pid = (int)h->head->pid,
                                   .started = h->head->started,
                                   .label = h->head->label,
                                   .extra_bytes = (size_t)h->head->extra_bytes};
}

/* --- looking from outside --- */

/* Calls see(a control block that process pid has open, what) for each of them; the descriptor is
 * closed afterwards. */
typedef void see_fn(int fd, int pid, void *what);

static void each_block(int pid, see_fn *see, void *what)
{
    char path[300], to[sizeof NAME + 16];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n < 0) continue;
        to[n] = 0;
        if (strncmp(to, "/memfd:" NAME, sizeof "/memfd:" NAME - 1)) continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        see(fd, pid, what);
        close(fd);
    }
    if (d) closedir(d);
}

typedef struct newest {
    int fd; /* -1: none so far */
    double started;
} newest;

static void keep_newest(int fd, int pid, void *what)
{
    newest *w = what;
    sk_control_block_head s = {0};
    (void)pid;
    if (pread(fd, &s, sizeof s, 0) != (ssize_t)sizeof s) return;
    if (w->fd >= 0 && s.started <= w->started) return;
    if (w->fd >= 0) close(w->fd);
    *w = (newest){fcntl(fd, F_DUPFD_CLOEXEC, 0), s.started};
}

sk_status sk_control_block_open(int pid, sk_heaps **out)
{
    newest w = {.fd = -1};
    each_block(pid, keep_newest, &w);
    if (w.fd < 0)
        return sk_fail(
            SK_EIO,
            "control block: process %d has none that can be read: it is no job of skein, "
            "has ended, or belongs to another user",
            pid);
    sk_arena a = {0};
    sk_heaps *h = sk_new(&a, sk_heaps);
    h->arena = a;
    sk_status st = sk_control_block_map(h, w.fd, false);
    if (st) {
        sk_heaps_close(h);
        return sk_trail(st, SK_HERE);
    }
    h->base = sk_many(&h->arena, char *, h->n);
    h->bytes = sk_many(&h->arena, int64_t, h->n);
    *out = h;
    return SK_OK;
}

typedef struct found {
    sk_arena *arena;
    struct job {
        ino_t inode;
        int maker, pid;
    } * v;
    int n, cap;
} found;

static void note_job(int fd, int pid, void *what)
{
    found *w = what;
    sk_control_block_head s;
    struct stat st;
    if (fstat(fd, &st) || pread(fd, &s, sizeof s, 0) != (ssize_t)sizeof s) return;
    for (int i = 0; i < w->n; i++) {
        if (w->v[i].inode != st.st_ino) continue;
        if (w->v[i].maker == pid) w->v[i].pid = pid;
        return;
    }
    *sk_push(w->arena, w) = (struct job){st.st_ino, (int)s.pid, pid};
}

int sk_control_block_jobs(sk_arena *a, int **pids)
{
    found w = {.arena = a};
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name >= '1' && *e->d_name <= '9') each_block(atoi(e->d_name), note_job, &w);
    if (d) closedir(d);
    *pids = sk_many(a, int, w.n + 1);
    for (int i = 0; i < w.n; i++) (*pids)[i] = w.v[i].pid;
    return w.n;
}

/* --- its parts --- */

void *sk_heaps_extra(const sk_heaps *h) { return h->extra; }
sk_rank_state *sk_heaps_rank_state(const sk_heaps *h, int rank) { return &h->ranks[rank].line; }

sk_channel *sk_heaps_channel(const sk_heaps *h, int from, int to)
{
    return &h->channels[(size_t)from * (size_t)h->n + (size_t)to];
}

/* --- bells --- */

/* Seconds in a futex are cut to what a lost wake-up may cost; none is known to be lost. */
void sk_bell_sleep(sk_bell *b, unsigned seen, double seconds)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * (seconds < 0.2 ? seconds : 0.2))};
    syscall(SYS_futex, &b->ring, FUTEX_WAIT, seen, &t, NULL, 0);
}

void sk_bell_wake(sk_bell *b)
{
    atomic_fetch_add(&b->ring, 1);
    syscall(SYS_futex, &b->ring, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* --- the abort word --- */

/* Only atomics, memcpy and futex calls: a signal handler may call it. */
bool sk_heaps_abort(sk_heaps *h, sk_status code, int rank, const char *report)
{
    sk_abort_word *b = h->abort;
    int quiet = QUIET;
    if (!atomic_compare_exchange_strong(&b->word, &quiet, TELLING)) return false;
    size_t n = strlen(report);
    if (n >= sizeof b->report) n = sizeof b->report - 1;
    memcpy(b->report, report, n);
    b->report[n] = 0;
    b->code = (int)code;
    b->rank = rank;
    atomic_store(&b->word, TOLD);
    for (int r = 0; r < h->n; r++) sk_bell_ring(sk_heaps_bell(h, r));
    return true;
}

bool sk_heaps_quiet(const sk_heaps *h)
{
    return atomic_load_explicit(&h->abort->word, memory_order_relaxed) == QUIET;
}

/* A rank killed in the middle of its error report leaves TELLING for ever: wait for it, but not
 * long. */
bool sk_heaps_aborted(const sk_heaps *h, sk_status *code, int *rank, const char **report)
{
    const sk_abort_word *b = h->abort;
    int word = atomic_load(&b->word);
    if (word == QUIET) return false;
    for (double end = sk_now() + 0.1; word != TOLD && sk_now() < end; word = atomic_load(&b->word))
        sched_yield();
    bool told = word == TOLD;
    if (code) *code = told ? (sk_status)b->code : SK_EPEER;
    if (rank) *rank = told ? b->rank : -1;
    if (report) *report = told ? b->report : "a rank died while it was telling why";
    return true;
}

void sk_heaps_ask_stop(sk_heaps *h) { atomic_store(&h->abort->stop, 1); }
bool sk_heaps_stop_asked(const sk_heaps *h) { return atomic_load(&h->abort->stop) != 0; }
