/* bpe.c - text to ids: added tokens, normalizer, split expressions, merges. */
#include "data/bpe.h"
#include "base/hash.h"
#include "data/data_files.h"

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
    sk_arena arena; /* scratch of the call, */
    sk_arena texts; /* and of one document */
    struct {
        int32_t *v;
        int64_t n, cap;
    } out;
    memo *memos;
    uint64_t memo_mask;
    int32_t *id, *prev, *next; /* the word being merged, a linked list of symbols */
    wish *heap;
    size_t n_heap, cap;
    const char *text, *base; /* the document, and the (perhaps normalized) text being cut, which */
    size_t at;               /* begins at this byte of it: for positions in messages */
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

static void word_workspace(encoder *e, size_t n)
{
    if (n <= e->cap) return;
    e->cap = 2 * n;
    e->id = sk_many(&e->arena, int32_t, e->cap);
    e->prev = sk_many(&e->arena, int32_t, e->cap);
    e->next = sk_many(&e->arena, int32_t, e->cap);
    e->heap = sk_many(&e->arena, wish, 3 * e->cap); /* n - 1 at first, two more per merge */
}

/* "at byte 7" of the document; of normalized text only where it begins is known. */
static const char *place(encoder *e, const char *s)
{
    if (e->base != e->text) return sk_print(&e->arena, "in the text from byte %zu on", e->at);
    return sk_print(&e->arena, "at byte %zu", (size_t)(s - e->text));
}

/* The symbols of a word, into e->id; how many there are.  Bytes: */
static sk_status spell_bytes(encoder *e, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        e->id[i] = e->b->byte_id[(uint8_t)s[i]];
        if (e->id[i] < 0)
            return sk_fail(SK_EDATA, "tokenizer: byte 0x%02x (%s) has no id", (uint8_t)s[i],
                           place(e, s + i));
    }
    return SK_OK;
}

static bool falls_back(const sk_bpe *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(uint8_t)s[i]] < 0) return false;
    return true;
}

/* Characters: an id of their own, those of their bytes, or unk.  An unk waits for the next
 * character that has an id of its own, so that it can be fused with others; bytes overtake it. */
static sk_status spell_characters(encoder *e, const char *s, size_t n, size_t *count)
{
    const sk_bpe *b = e->b;
    size_t k = 0;
    bool waits = false;
    for (size_t i = 0, len; i < n; i += len) {
        len = sk_utf8_length(s + i) < n - i ? sk_utf8_length(s + i) : n - i;
        int32_t id = b->words[sk_bpe_word(b, s + i, len)];
        if (id < 0 && falls_back(b, s + i, len)) {
            for (size_t j = 0; j < len; j++) e->id[k++] = b->byte_id[(uint8_t)s[i + j]];
            continue;
        }
        if (id < 0 && b->unk < 0)
            return sk_fail(SK_EDATA,
                           "tokenizer: \"%.*s\" (%s) has no id, and there is no unk_token",
                           (int)len, s + i, place(e, s + i));
        if (waits && !(id < 0 && b->fuse_unk)) e->id[k++] = b->unk;
        waits = id < 0;
        if (!waits) e->id[k++] = id;
    }
    if (waits) e->id[k++] = b->unk;
    *count = k;
    return SK_OK;
}

static sk_status merge(encoder *e, const char *s, size_t n)
{
    word_workspace(e, n);
    e->n_heap = 0;
    if (e->b->bytes) SK_TRY(spell_bytes(e, s, n));
    else SK_TRY(spell_characters(e, s, n, &n));
    for (size_t i = 0; i < n; i++) {
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
        return sk_fail(SK_EDATA, "tokenizer: a word of %zu bytes (%s), at most %d are merged", n,
                       place(e, s), SK_BPE_WORD);
    if (n <= MEMO_TEXT) {
        m = &e->memos[sk_hash(SK_HASH_SEED, s, n) & e->memo_mask];
        if (m->len == n && !memcmp(m->text, s, n)) {
            for (int i = 0; i < m->n; i++) put(e, m->ids[i]);
            return SK_OK;
        }
    }
    int64_t from = e->out.n;
    int32_t whole = e->b->ignore_merges ? e->b->words[sk_bpe_word(e->b, s, n)] : -1;
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

/* Is the sign of a space at s? */
static bool space_at(const sk_bpe *b, const char *s, size_t n)
{
    return n >= b->space.n && !memcmp(s, b->space.s, b->space.n);
}

/* What the split expressions leave is a word, or is cut once more before signs of a space. */
static sk_status words(encoder *e, const char *s, size_t n)
{
    const sk_bpe *b = e->b;
    size_t from = 0;
    if (b->cut == SK_CUT_NONE) return word(e, s, n);
    for (size_t i = 1; i < n; i++) {
        if (!space_at(b, s + i, n - i)) continue;
        if (b->cut == SK_CUT_RUNS && i - from >= b->space.n &&
            space_at(b, s + i - b->space.n, b->space.n))
            continue;
        SK_TRY(word(e, s + from, i - from));
        from = i;
    }
    return word(e, s + from, n - from);
}

/* Cut good UTF-8 with split expression `stage` and hand matches, and what lies between, on. */
static sk_status cut(encoder *e, int stage, const char *s, size_t n);

static sk_status between(encoder *e, int stage, const char *s, size_t n)
{
    if (n && e->b->split_all[stage])
        return sk_fail(SK_EDATA,
                       "tokenizer: the split expression does not match \"%.*s\" (%s), which "
                       "would be lost",
                       (int)sk_utf8_length(s), s, place(e, s));
    return cut(e, stage + 1, s, n);
}

static sk_status cut(encoder *e, int stage, const char *s, size_t n)
{
    if (!n) return SK_OK;
    if (stage == e->b->n_splits) return words(e, s, n);
    size_t done = 0; /* handed on so far; the search may be ahead after an empty match */
    for (size_t from = 0; from < n;) {
        int rc = pcre2_match(e->b->split[stage], (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK,
                             e->match, e->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return sk_fail(SK_EDATA, "tokenizer: the split expression fails (PCRE2 error %d) %s",
                           rc, place(e, s + from));
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(e->match);
        size_t lo = at[0], hi = at[1];
        if (hi <= lo || lo < done) { /* empty, or \K play: step over one character */
            from = (hi > from ? hi : from) + 1;
            while (from < n && ((uint8_t)s[from] & 0xc0) == 0x80) from++;
            continue;
        }
        SK_TRY(between(e, stage, s + done, lo - done));
        SK_TRY(cut(e, stage + 1, s + lo, hi - lo));
        from = done = hi;
    }
    return between(e, stage, s + done, n - done);
}

/* Metaspace: spaces become their sign, and one goes first where there is none. */
static sk_status spaced(encoder *e, sk_text s, bool first, sk_text *out)
{
    const sk_bpe *b = e->b;
    SK_TRY(sk_norm_replace(&e->texts, s, (sk_text){" ", 1}, b->space, out));
    if ((b->prepend == SK_PREPEND_ALWAYS || (b->prepend == SK_PREPEND_FIRST && first)) &&
        !space_at(b, out->s, out->n))
        *out = sk_norm_prepend(&e->texts, *out, b->space);
    return SK_OK;
}

/* Text without added tokens: runs of good UTF-8 are cut, bytes that are none go alone. */
static sk_status plain(encoder *e, sk_text s)
{
    while (s.n) {
        size_t good = sk_utf8_span(s.s, s.n);
        SK_TRY(cut(e, 0, s.s, good));
        s.s += good, s.n -= good;
        if (!s.n) break;
        SK_TRY(word(e, s.s, 1));
        s.s++, s.n--;
    }
    return SK_OK;
}

static const sk_added *added_at(const sk_added_set *set, const char *s, size_t n)
{
    if (!set->starts[(uint8_t)*s]) return NULL;
    for (int i = 0; i < set->n; i++)
        if (set->v[i].text.n <= n && !memcmp(set->v[i].text.s, s, set->v[i].text.n))
            return &set->v[i];
    return NULL;
}

static sk_status pass(encoder *e, int stage, sk_text s, bool first);

/* Cut at the added tokens of a set, and hand what lies between to the next stage.  `first`: s
 * begins where the document does. */
static sk_status cut_added(encoder *e, int stage, sk_text s, bool first)
{
    const sk_added_set *set = &e->b->added[stage];
    size_t done = 0;
    for (size_t i = 0; set->n && i < s.n;) {
        const sk_added *t = added_at(set, s.s + i, s.n - i);
        if (!t) {
            i++;
            continue;
        }
        if (t->flag)
            return sk_fail(SK_EDATA,
                           "tokenizer: the text has \"%.*s\" (%s), an added token with %s, which "
                           "is not supported",
                           (int)t->text.n, t->text.s, place(e, s.s + i), t->flag);
        SK_TRY(pass(e, stage + 1, (sk_text){s.s + done, i - done}, first && !done));
        put(e, t->id);
        done = i += t->text.n;
    }
    return pass(e, stage + 1, (sk_text){s.s + done, s.n - done}, first && !done);
}

/* Stage 0: text as it is.  1: it gets normalized.  2: it gets cut into words. */
static sk_status pass(encoder *e, int stage, sk_text s, bool first)
{
    const char *base = e->base;
    size_t at = e->at;
    sk_text t = s;
    if (!s.n) return SK_OK;
    if (stage == 1) SK_TRY(sk_norm_apply(&e->b->norm, &e->texts, s, &t));
    if (stage == 2 && e->b->metaspace) SK_TRY(spaced(e, s, first, &t));
    if (t.s != s.s) {
        if (base == e->text) e->at = (size_t)(s.s - base);
        e->base = t.s;
    }
    SK_TRY(stage == 2 ? plain(e, t) : cut_added(e, stage, t, first));
    e->base = base, e->at = at;
    return SK_OK;
}

static sk_status document(encoder *e, sk_text s, const sk_frame *f)
{
    sk_mark mark = sk_arena_mark(&e->texts);
    e->text = e->base = s.s, e->at = 0;
    for (int i = 0; f && i < f->n_before; i++) put(e, f->before[i]);
    SK_TRY(pass(e, 0, s, true));
    for (int i = 0; f && i < f->n_after; i++) put(e, f->after[i]);
    sk_arena_back(&e->texts, mark);
    return SK_OK;
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

sk_status sk_bpe_encode(const sk_bpe *b, sk_arena *a, const sk_text *docs, int64_t n_docs,
                        const sk_frame *frame, int32_t **ids, int64_t *n_ids)
{
    encoder e = {.b = b};
    size_t n = 0;
    for (int64_t i = 0; i < n_docs; i++) n += docs[i].n;
    start(&e, n);
    sk_status status = SK_OK;
    for (int64_t i = 0; i < n_docs && !status; i++) status = document(&e, docs[i], frame);
    if (!status) {
        *ids = sk_many(a, int32_t, e.out.n);
        memcpy(*ids, e.out.v, sizeof(int32_t) * (size_t)e.out.n);
        *n_ids = e.out.n;
    }
    if (e.stack) pcre2_jit_stack_free(e.stack); /* mapped pages, not the arena's */
    sk_arena_end(&e.texts);
    sk_arena_end(&e.arena);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
