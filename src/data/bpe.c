/* bpe.c - text to ids: added tokens, split expressions, merges. */
#include "data/bpe.h"
#include "base/hash.h"
#include "data/read.h"

#include <string.h>

enum {
    MEMO_TEXT = 30, /* words that are remembered: bytes, */
    MEMO_IDS = 8,   /* ids, */
    MEMO_MOST = 1 << 16,
    JIT_STACK = 1 << 20,
    MATCH_LIMIT = 10000000, /* steps of one match; a split expression from outside may be evil */
    MATCH_HEAP = 1 << 16    /* KiB */
};

typedef struct memo {
    uint8_t len, n;
    char text[MEMO_TEXT];
    int32_t ids[MEMO_IDS];
} memo;

typedef struct wish { /* a merge that may happen; stale if the ids at `at` have changed */
    int32_t rank, at, left, right;
} wish;

typedef struct encoder {
    const sk_bpe *b;
    sk_arena arena; /* scratch */
    struct {
        int32_t *v;
        int64_t n, cap;
    } out;
    memo *memos;
    uint64_t memo_mask;
    int32_t *id, *prev, *next; /* the word being merged, a linked list of symbols */
    wish *heap;
    size_t n_heap, cap;
    const char *text; /* the whole, for positions in stories */
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
} encoder;

static uint64_t mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

uint64_t sk_bpe_slot(const sk_bpe *b, uint64_t key)
{
    uint64_t i = mix(key) & b->mask;
    while (b->pairs[i].key != SK_NO_PAIR && b->pairs[i].key != key) i = (i + 1) & b->mask;
    return i;
}

uint64_t sk_bpe_word(const sk_bpe *b, const char *s, size_t n)
{
    uint64_t i = sk_hash(SK_HASH_SEED, s, n) & b->word_mask;
    for (; b->words[i] >= 0; i = (i + 1) & b->word_mask) {
        const sk_text *p = &b->pieces[b->words[i]];
        if (p->n == n && !memcmp(p->s, s, n)) break;
    }
    return i;
}

static void put(encoder *e, int32_t id)
{
    if (e->out.n == e->out.cap) {
        int64_t cap = 2 * e->out.cap;
        e->out.v = sk_grow(&e->arena, e->out.v, sizeof(int32_t) * (size_t)e->out.n,
                           sizeof(int32_t) * (size_t)cap);
        e->out.cap = cap;
    }
    e->out.v[e->out.n++] = id;
}

static bool before(const wish *x, const wish *y)
{
    return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void heap_push(encoder *e, wish w)
{
    size_t i = e->n_heap++;
    for (; i && before(&w, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = w;
}

static wish heap_pop(encoder *e)
{
    wish top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->n_heap; i = child) {
        if (child + 1 < e->n_heap && before(&e->heap[child + 1], &e->heap[child])) child++;
        if (!before(&e->heap[child], &last)) break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = last;
    return top;
}

/* Symbol i and the one after it: a wish if that pair was learned. */
static void wish_for(encoder *e, int32_t i)
{
    if (i < 0 || e->next[i] < 0) return;
    int32_t left = e->id[i], right = e->id[e->next[i]];
    const sk_pair *p = &e->b->pairs[sk_bpe_slot(e->b, (uint64_t)left << 32 | (uint32_t)right)];
    if (p->key != SK_NO_PAIR) heap_push(e, (wish){p->rank, i, left, right});
}

static void word_room(encoder *e, size_t n)
{
    if (n <= e->cap) return;
    e->cap = 2 * n;
    e->id = sk_many(&e->arena, int32_t, e->cap);
    e->prev = sk_many(&e->arena, int32_t, e->cap);
    e->next = sk_many(&e->arena, int32_t, e->cap);
    e->heap = sk_many(&e->arena, wish, 3 * e->cap); /* n - 1 at first, two more per merge */
}

static sk_status merge(encoder *e, const char *s, size_t n)
{
    word_room(e, n);
    e->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        e->id[i] = e->b->byte_id[(uint8_t)s[i]];
        if (e->id[i] < 0)
            return sk_fail(SK_EDATA, "tokenizer: byte 0x%02x (at byte %lld) has no id",
                           (uint8_t)s[i], (long long)(s + i - e->text));
        e->prev[i] = (int32_t)i - 1;
        e->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < n; i++) wish_for(e, (int32_t)i);
    while (e->n_heap) {
        wish w = heap_pop(e);
        int32_t i = w.at, j = e->next[i];
        if (e->id[i] != w.left || j < 0 || e->id[j] != w.right) continue;
        e->id[i] = e->b->pairs[sk_bpe_slot(e->b, (uint64_t)w.left << 32 | (uint32_t)w.right)].id;
        e->id[j] = -1;
        e->next[i] = e->next[j];
        if (e->next[i] >= 0) e->prev[e->next[i]] = i;
        wish_for(e, e->prev[i]);
        wish_for(e, i);
    }
    for (int32_t i = 0; i >= 0; i = e->next[i]) put(e, e->id[i]);
    return SK_OK;
}

/* One word: remembered, whole, or merged. */
static sk_status word(encoder *e, const char *s, size_t n)
{
    memo *m = NULL;
    if (n > SK_BPE_WORD)
        return sk_fail(SK_EDATA,
                       "tokenizer: a word of %zu bytes (at byte %lld), at most %d are merged", n,
                       (long long)(s - e->text), SK_BPE_WORD);
    if (n <= MEMO_TEXT) {
        m = &e->memos[sk_hash(SK_HASH_SEED, s, n) & e->memo_mask];
        if (m->len == n && !memcmp(m->text, s, n)) {
            for (int i = 0; i < m->n; i++) put(e, m->ids[i]);
            return SK_OK;
        }
    }
    int64_t from = e->out.n;
    int32_t whole = e->b->words ? e->b->words[sk_bpe_word(e->b, s, n)] : -1;
    if (whole >= 0) put(e, whole);
    else SK_TRY(merge(e, s, n));
    int64_t made = e->out.n - from;
    if (m && made <= MEMO_IDS) {
        m->len = (uint8_t)n, m->n = (uint8_t)made;
        memcpy(m->text, s, n);
        memcpy(m->ids, e->out.v + from, sizeof(int32_t) * (size_t)made);
    }
    return SK_OK;
}

/* Cut good UTF-8 with split expression `stage` and hand matches, and what lies between, on. */
static sk_status cut(encoder *e, int stage, const char *s, size_t n)
{
    if (!n) return SK_OK;
    if (stage == e->b->n_splits) return word(e, s, n);
    size_t done = 0; /* handed on so far; the search may be ahead after an empty match */
    for (size_t from = 0; from < n;) {
        int rc = pcre2_match(e->b->split[stage], (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK,
                             e->match, e->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return sk_fail(SK_EDATA,
                           "tokenizer: the split expression fails (PCRE2 error %d) at byte %lld",
                           rc, (long long)(s + from - e->text));
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(e->match);
        size_t lo = at[0], hi = at[1];
        if (hi <= lo || lo < done) { /* empty, or \K play: step over one character */
            from = (hi > from ? hi : from) + 1;
            while (from < n && ((uint8_t)s[from] & 0xc0) == 0x80) from++;
            continue;
        }
        SK_TRY(cut(e, stage + 1, s + done, lo - done));
        SK_TRY(cut(e, stage + 1, s + lo, hi - lo));
        from = done = hi;
    }
    return cut(e, stage + 1, s + done, n - done);
}

/* Ordinary text: runs of good UTF-8 are cut, bytes that are none go alone. */
static sk_status plain(encoder *e, const char *s, size_t n)
{
    while (n) {
        size_t good = sk_utf8_span(s, n);
        SK_TRY(cut(e, 0, s, good));
        s += good, n -= good;
        if (!n) break;
        SK_TRY(word(e, s, 1));
        s++, n--;
    }
    return SK_OK;
}

static const sk_added *added_at(const sk_bpe *b, const char *s, size_t n)
{
    if (!b->starts[(uint8_t)*s]) return NULL;
    for (int i = 0; i < b->n_added; i++)
        if (b->added[i].text.n <= n && !memcmp(b->added[i].text.s, s, b->added[i].text.n))
            return &b->added[i];
    return NULL;
}

static sk_status whole(encoder *e, const char *s, size_t n)
{
    size_t done = 0;
    for (size_t i = 0; e->b->n_added && i < n;) {
        const sk_added *t = added_at(e->b, s + i, n - i);
        if (!t) {
            i++;
            continue;
        }
        SK_TRY(plain(e, s + done, i - done));
        put(e, t->id);
        done = i += t->text.n;
    }
    return plain(e, s + done, n - done);
}

static void *take(size_t n, void *arena) { return sk_alloc(arena, n); }
static void drop(void *p, void *arena) { (void)p, (void)arena; }

pcre2_general_context *sk_bpe_memory(sk_arena *a)
{
    pcre2_general_context *g = pcre2_general_context_create(take, drop, a);
    sk_assert(g);
    return g;
}

static void start(encoder *e, size_t n)
{
    pcre2_general_context *g = sk_bpe_memory(&e->arena);
    uint64_t slots = 64;
    while (slots < n && slots < MEMO_MOST) slots *= 2;
    e->memos = sk_many(&e->arena, memo, slots);
    e->memo_mask = slots - 1;
    e->out.cap = 64 + (int64_t)n / 4;
    e->out.v = sk_many(&e->arena, int32_t, e->out.cap);
    e->match = pcre2_match_data_create(1, g);
    e->limits = pcre2_match_context_create(g);
    sk_assert(e->match && e->limits);
    pcre2_set_match_limit(e->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(e->limits, MATCH_HEAP);
    e->stack = pcre2_jit_stack_create(JIT_STACK / 16, JIT_STACK, g);
    if (e->stack) pcre2_jit_stack_assign(e->limits, NULL, e->stack);
}

sk_status sk_bpe_encode(const sk_bpe *b, sk_arena *a, const char *text, size_t n, int32_t **ids,
                        int64_t *n_ids)
{
    encoder e = {.b = b, .text = text};
    start(&e, n);
    sk_status status = whole(&e, text, n);
    if (!status) {
        *ids = sk_many(a, int32_t, e.out.n);
        memcpy(*ids, e.out.v, sizeof(int32_t) * (size_t)e.out.n);
        *n_ids = e.out.n;
    }
    if (e.stack) pcre2_jit_stack_free(e.stack); /* mapped pages, not the arena's */
    sk_arena_end(&e.arena);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
