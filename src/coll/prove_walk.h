/* prove_walk.h - the state of a proof: all members, and what their cells hold; private to
 * coll/prove*.c. */
#ifndef SK_COLL_PROVE_WALK_H
#define SK_COLL_PROVE_WALK_H

#include "coll/prove.h"

enum { SK_PROVE_MOST = 64 }; /* members: contributions are a set of bits */

typedef struct sk_proof_value {
    uint64_t set, shape; /* set 0: never written */
    int chunk;
} sk_proof_value;

typedef struct sk_proof_place { /* numbers of rounds, plus one, in which it was last ... */
    int sent, got;              /* sent; received into */
    int used;                   /* added to what was received */
    bool wrote;                 /* as a cell of DST, ever */
} sk_proof_place;

typedef struct sk_proof_member {
    const sk_steps *list;
    int me, base; /* base: number of its first step among those of all */
    int n_src, n_dst, n_tmp;
    sk_proof_value *cells;
    sk_proof_place *places;
    int from, to; /* the round at hand */
    int open;     /* its messages that have not happened */
    double start, end, in, out;
    double sent, summed; /* in chunks */
} sk_proof_member;

typedef struct sk_proof_queue { /* steps of one direction that wait for their other end, plus one */
    int head, tail;
} sk_proof_queue;

typedef struct sk_proof_walk {
    const sk_coll *coll;
    sk_coll_kind kind;
    int n, root, cells;
    sk_proof_member m[SK_PROVE_MOST];
    sk_proof_queue *pairs; /* [from][to] */
    int *next;             /* of a step, in its queue */
    int ready[SK_PROVE_MOST], n_ready;
    int64_t steps, messages;
} sk_proof_walk;

static inline bool sk_proof_is_message(const sk_step *s) { return s->act <= SK_STEP_RECV_SUM; }

/* A failure that names algorithm, kind, member and, if there is one, the step. */
sk_status sk_proof_wrong(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                         const char *fmt, ...) __attribute__((format(printf, 4, 5)));
const char *sk_proof_cell_name(char *to, size_t n, sk_cell c);
#define SK_PROOF_SHOW(c) sk_proof_cell_name((char[24]){0}, 24, (c))

/* Shapes of sums: of one contribution; of the tree over members [from, from + n). */
uint64_t sk_proof_leaf_shape(int i);
uint64_t sk_proof_tree_shape(int from, int n);
uint64_t sk_proof_everybody(int n); /* the set of the first n members */

int sk_proof_src_cells(const sk_proof_walk *w, int me);
int sk_proof_dst_cells(const sk_proof_walk *w, int me);
int sk_proof_space_cells(const sk_proof_member *m, sk_space space);
/* The memory of a cell: in place DST is SRC. */
sk_proof_place *sk_proof_place_of(const sk_proof_walk *w, const sk_proof_member *m, sk_cell c);
sk_status sk_proof_read(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                        sk_cell c, int chunk, sk_proof_value *out);
void sk_proof_write(const sk_proof_walk *w, sk_proof_member *m, sk_cell c, sk_proof_value v);
sk_status sk_proof_sum(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                       sk_proof_value a, sk_proof_value b, sk_proof_value *out);

#endif
