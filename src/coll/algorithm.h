/* algorithm.h - a collective algorithm: one file in parts/coll, a list of steps for each member.
 *
 * An algorithm says, for one member of n, what it sends, receives and adds, in
 * rounds.  The same list is proved (coll/prove.h: without data, all members), counted
 * and priced (its closed form is tested against the list), drawn, and executed on
 * any wire (coll/execute.h).  Nothing in a list depends on data, sizes or time.
 *
 * A list moves chunks.  What an operand is made of:
 *
 *     SK_SRC   what the caller gave; never written
 *     SK_DST   what the caller gets
 *     SK_TMP   scratch, tmp_cells of them, each with room for the largest chunk
 *
 * By the row of the kind (coll/kinds.h): a part is one cell, [0], and then chunks are the n
 * members' parts; a whole is all chunks, `cells` of them, a number that the algorithm chooses if
 * neither operand is a part; blocks are n chunks, chunk j of SRC for member j, chunk i of DST from
 * member i (an exchange of two dims is packed into such blocks).  Operands of the root have no
 * cells elsewhere.  DST of kinds that are `copied` holds a copy of SRC at the start.
 *
 * A step works on `n` cells in a row, of chunks `chunk`, `chunk` + 1, ... (that is
 * what gives cells of TMP their size; for all-to-all every chunk has one size, but of a
 * single cell of SRC only what is in it is sent).
 * Steps of a member run in the order of the list, except that all sends and
 * receives of one round are under way together, and copies and sums of the round
 * come after them: in one round nothing may write what the same round sends, and
 * receives may end in any order.  A member leaves a round when its messages have
 * arrived.  The k-th send from a to b meets the k-th receive at b from a, and must
 * have its chunk and n.
 *
 * In place: DST may be the memory of SRC (all-reduce, broadcast), or of my chunk in
 * it (reduce-scatter; all-gather the other way round).  So a cell of SRC is not read
 * any more when its place in DST was written; the prover holds lists to that.  What
 * may remain is a copy of a chunk onto itself, which is nothing to do.
 *
 * Lists of one member alone need no algorithm: sk_steps_build() writes them, so
 * build() sees n > 1 only.
 *
 * Sums: a step adds two operands, or with SK_STEP_TREE any number in the order of
 * the tree (call.h).  a + b has the bits of b + a, so what matters is only which
 * partial sums meet.  SK_ORDER_TREE is a promise, proved for n up to 33: the
 * result is that of the tree.  Only such algorithms are chosen by themselves;
 * the others must be asked for. */
#ifndef SK_COLL_ALGORITHM_H
#define SK_COLL_ALGORITHM_H

#include "coll/call.h"

enum { SK_COLL_AXES = 4, SK_COLL_DEGREES = 8, SK_MOST_DEGREE = 255 };

typedef enum sk_space { SK_SRC, SK_DST, SK_TMP } sk_space;
typedef struct sk_cell {
    sk_space space;
    int at;
} sk_cell;

typedef enum sk_step_act {
    SK_STEP_SEND,     /* from, to peer */
    SK_STEP_RECV,     /* into, from peer */
    SK_STEP_RECV_SUM, /* into = with + what peer sent */
    SK_STEP_COPY,     /* into = from */
    SK_STEP_SUM,      /* into = from + with */
    SK_STEP_TREE,     /* into = the sum of k operands of one chunk: cells from, from + 1, ...; but
                         number `own` is `with` and its cell is passed over.  n is 1 */
    SK_N_STEP_ACTS
} sk_step_act;

typedef struct sk_step {
    sk_step_act act;
    int round; /* never falls along the list */
    int peer;  /* a member */
    sk_cell into, from, with;
    int n, chunk;
    int k, own; /* SK_STEP_TREE */
} sk_step;

typedef struct sk_coll_ask { /* what a list is asked for */
    sk_coll_kind kind;
    int n, me, root;
    int parts;              /* pieces of a pipeline; 0: the algorithm's usual number */
    int axes[SK_COLL_AXES]; /* n as a product, slowest first: hosts, ranks of a host */
    int n_axes;             /* for algorithms that go by axes; 0: they find their own */
    const double *rate;     /* bytes per second from i to j, 0: no link; NULL: all alike */
    const int *ranks;       /* of the members: rate has `all` rows of `all`; NULL: n rows of n */
    int all;
    bool any_order;   /* lists that sum in an order of their own may be chosen by themselves */
    uint64_t degrees; /* of a butterfly: with how many members each round joins (sk_degree); 0: the
                         algorithm's usual ones */
    int64_t rows;     /* most rows that are not zero in what a member gives; 0: any number */
    double fill;      /* of what a member gives, the share of rows that are not zero; 0: not known.
                         Rows of different members are taken to be independent */
    double wide;      /* a row with its number, in a stream, by the row alone */
} sk_coll_ask;

static inline double sk_coll_rate(const sk_coll_ask *a, int from, int to)
{
    return a->ranks ? a->rate[(int64_t)a->ranks[from] * a->all + a->ranks[to]]
                    : a->rate[from * a->n + to];
}

/* Degrees are the bytes of a number: degree i of 2 to SK_MOST_DEGREE in byte i, the first round
 * first, 0 behind the last.  "4x2" is 0x0204: four neighbours, then two of these blocks. */
static inline int sk_degree(uint64_t degrees, int i)
{
    return i < SK_COLL_DEGREES ? (int)(degrees >> 8 * i & 255) : 0;
}
int64_t sk_degrees_product(uint64_t degrees); /* 1: there are none */
enum { SK_DEGREES_TEXT = SK_COLL_DEGREES * 4 + 1 };
const char *sk_degrees_print(uint64_t degrees, char to[SK_DEGREES_TEXT]); /* ":4x2" or "" */
bool sk_degrees_read(const char *text, uint64_t *degrees);                /* "4x2" */
/* Do they make n, and is a sum by blocks of these sizes that of the tree? */
bool sk_degrees_tree(uint64_t degrees, int n);

typedef struct sk_steps { /* the list of one member */
    sk_arena *arena;
    sk_coll_ask ask;
    int cells;     /* chunks; where the kind says n it is n */
    int tmp_cells; /* most cells of SK_TMP used, plus one */
    int round;     /* in which steps are being written */
    struct {
        sk_step *v;
        int n, cap;
    } list;
} sk_steps;

/* What a list costs, for the member that has most: price = rounds * alpha + sent * S * beta
 * + summed * S * gamma, where S is the whole vector (all chunks).  A link is full duplex: of a
 * round counts what the member sends or what it receives, whichever is more.  (The root of a
 * reduce sends nothing and is the busiest of all.) */
typedef struct sk_coll_cost {
    double rounds; /* messages one after the other, on the longest way through all members */
    double sent;   /* share of S that passes the busiest member, added over its rounds */
    double summed; /* share of S that is added by the member that adds most */
} sk_coll_cost;

typedef enum sk_order { SK_ORDER_TREE, SK_ORDER_OWN } sk_order;

typedef struct sk_coll {
    const char *name, *doc; /* doc: one line, with the paper */
    const char *cost;       /* the closed form in letters: "2(n-1) a + 2S(n-1)/n b" */
    unsigned kinds;         /* 1 << kind */
    sk_order order;
    bool (*can)(const sk_coll_ask *a); /* NULL: every n */
    void (*build)(sk_steps *s);        /* of member s->ask.me; NULL: native */
    sk_coll_cost (*price)(const sk_coll_ask *a);
    bool native;    /* not executed: done directly in the heaps, or by a library */
    bool heaps;     /* native, in the heaps of one host: SK_BUILTIN; one part is */
    bool no_halves; /* does not sum types of 16 bits */
    bool packs;     /* cells are index-value streams where that is shorter (sparse_stream.h) */
    bool degrees;   /* takes a degree vector: butterfly:4x2 */
    bool (*tree)(const sk_coll_ask *a); /* SK_ORDER_OWN: is it that of the tree nevertheless? */
    bool adasum;                        /* for SK_ADASUM, and only for it */
} sk_coll;

extern const sk_coll *const sk_coll_parts[]; /* in the order of names, NULL at the end */
int sk_coll_find(const char *name);          /* index, or -1 */
bool sk_coll_can(const sk_coll *c, const sk_coll_ask *a);
sk_order sk_coll_order(const sk_coll *c, const sk_coll_ask *a);
sk_coll_cost sk_coll_price(const sk_coll *c, const sk_coll_ask *a); /* zero for one member */

/* --- writing lists (coll/steps.c) --- */

void sk_steps_build(const sk_coll *c, const sk_coll_ask *a, sk_arena *arena, sk_steps *out);

void sk_steps_next(sk_steps *s); /* the next round */
void sk_steps_send(sk_steps *s, int peer, sk_cell from, int chunk, int n);
void sk_steps_recv(sk_steps *s, int peer, sk_cell into, int chunk, int n);
void sk_steps_recv_sum(sk_steps *s, int peer, sk_cell into, sk_cell with, int chunk, int n);
void sk_steps_copy(sk_steps *s, sk_cell into, sk_cell from, int chunk, int n);
void sk_steps_sum(sk_steps *s, sk_cell into, sk_cell from, sk_cell with, int chunk, int n);
void sk_steps_tree(sk_steps *s, sk_cell into, sk_cell from, int k, sk_cell own_is, int own,
                   int chunk);
static inline sk_cell sk_src(int at) { return (sk_cell){SK_SRC, at}; }
static inline sk_cell sk_dst(int at) { return (sk_cell){SK_DST, at}; }
static inline sk_cell sk_tmp(int at) { return (sk_cell){SK_TMP, at}; }
static inline sk_cell sk_cell_at(sk_cell base, int more)
{
    return (sk_cell){base.space, base.at + more};
}

/* --- patterns that several algorithms share (coll/step_patterns.c) --- */

static inline int sk_log_floor(int n) { return 31 - __builtin_clz((unsigned)n); } /* n > 0 */
static inline int sk_log_ceil(int n) { return n > 1 ? sk_log_floor(n - 1) + 1 : 0; }
static inline bool sk_power_of_two(int n) { return n > 0 && !(n & (n - 1)); }

/* Everything straight from where it is to where it belongs; sums in the order of the tree. */
void sk_steps_direct(sk_steps *s);
sk_coll_cost sk_price_direct(const sk_coll_ask *a);

/* --- rounds of several members (coll/step_axes.c) --- */

/* All-reduce, reduce-scatter, all-gather along k axes of these sizes, slowest first, chunk by
 * chunk. */
void sk_steps_by_axes(sk_steps *s, const int *size, int k);
/* Whole vectors, in rounds of the ask's degrees; corners: members behind the folding; the degree of
 * a round, 0: there is no such round. */
void sk_steps_butterfly(sk_steps *s);
int sk_butterfly_corners(const sk_coll_ask *a);
int sk_butterfly_degree(const sk_coll_ask *a, int round);

/* What a stream of the sum of m members has of the bytes of a dense one. */
double sk_stream_share(const sk_coll_ask *a, int m);
/* What adding a byte of d streams costs by that of dense vectors; packing and unpacking, of S.
 * 1 and 0 where streams are not known to be sparse. */
double sk_stream_adding(const sk_coll_ask *a, int d);
double sk_stream_packing(const sk_coll_ask *a);

/* One exchange of sums: into = acc + the peer's acc.  Also if acc is SRC and into is DST. */
void sk_steps_exchange(sk_steps *s, int peer, sk_cell acc, sk_cell into);

/* 2^log members that are the corners of a cube; those from `fold` on stand alone, before it each
 * stands for two (Rabenseifner's fold): corner i is member i < fold ? 2 i : first + i. */
typedef struct sk_cube {
    int log, corner; /* which I am; -1: none */
    int first, fold;
} sk_cube;
int sk_cube_member(const sk_cube *c, int corner);
/* The chunks of a corner after halving: cells >> log of them, from here on.  Corners are numbered
 * by bits and chunks by bits read backwards, because distance 1 comes first. */
int sk_cube_chunk(const sk_cube *c, int corner, int cells);
/* Reduce-scatter by halves, log rounds.  Chunk i is read in cell `from` + i at first, and summed
 * in cell `into` + i. */
void sk_cube_halve(sk_steps *s, const sk_cube *c, sk_cell from, sk_cell into);
/* All-gather by doubling, the way back. */
void sk_cube_double(sk_steps *s, const sk_cube *c, sk_cell in);
/* The folding of surplus members in cubes of the largest power of two: the first 2 fold members
 * make pairs, the even one stays.  For an odd one the corner is -1. */
sk_cube sk_cube_folded(const sk_coll_ask *a);

#endif
