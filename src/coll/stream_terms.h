/* stream_terms.h - how many members' contributions are in what a list sends.
 *
 * The union of the rows of m members is longer than the rows of one, so the length of a stream
 * depends on m (sk_stream_share, coll/algorithm.h).  The lists of all members are walked together,
 * and every cell holds its number of contributions.  Example: whole vectors of four members by
 * doubling, one contribution in the sends of the first round, two in those of the second. */
#ifndef SK_COLL_STREAM_TERMS_H
#define SK_COLL_STREAM_TERMS_H

#include "coll/algorithm.h"

/* lists[n], of all members, of a kind that adds or copies.  terms[me][i]: of the i-th step of a
 * list; 0 where that step is no send.  Of cells that are sent together the one with most counts. */
void sk_stream_terms(sk_arena *a, const sk_steps *lists, int n, int **terms);

#endif
