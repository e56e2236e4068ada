/* score.h - a step list made ready for playing; private to comm/.
 *
 * A score is what can be known of a list before any call: which message is the
 * how-manieth between two members, how long a send may stay under way, how much
 * scratch is needed.  A sheet is where the cells lie, for the shapes of one call.
 * Both are pure: sk_coll_workspace() is computed from them when a program is planned,
 * and the same numbers are used when it is played.
 *
 * The room of a call in the heap:
 *
 *     outbox | cells of SK_TMP | stage | SRC, if packed | DST, if packed
 *
 * The outbox holds one note per send of the list (coll/execute.c).  The stage is
 * where a wire receives what is to be added, where cells that are not in a row are
 * put together for a wire, and where streams are packed. */
#ifndef SK_COLL_COMPILED_SCHEDULE_H
#define SK_COLL_COMPILED_SCHEDULE_H

#include "comm/endpoint.h"

enum { SK_NEVER = 1 << 30, SK_NOTE_BYTES = 64 };

typedef struct sk_compiled_schedule {
    const sk_coll *coll;
    sk_steps steps;
    int *ordinal;    /* [step] the how-manieth send to its peer, or receive from it */
    int *due;        /* [step] of a send: the first round that writes what it sends */
    int *stage;      /* [step] first cell of the stage it may use; -1: none */
    int *box;        /* [n + 1] which notes of my outbox are for member j */
    int stage_cells; /* most that one round uses */
    bool reads_src;  /* some step reads SK_SRC */
    bool apart;      /* SRC and DST may not be one memory; lists are proved to allow it */
    struct sk_compiled_schedule *next;
} sk_compiled_schedule;

typedef struct sk_sheet {
    sk_coll_kind kind;
    int p, me, cells;
    int64_t size, row;    /* bytes of an element; elements of a row (for streams) */
    int64_t largest;      /* bytes of the largest chunk: the distance of cells in SK_TMP */
    int64_t total;        /* bytes of all chunks */
    int64_t *at;          /* [cells + 1] where chunks begin; NULL where they have one size */
    int64_t stage_stride; /* bytes of a cell of the stage */
    bool src_packed, dst_packed;
    bool src_is_dst;                     /* the copy of SK_SRC in SK_DST serves as both */
    int64_t tmp, stage, src, dst, bytes; /* where the parts of the room begin; all of it */
} sk_sheet;

/* The list of one member, from the arena.  sk_coll_can() has been asked. */
void sk_schedule_compile(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask,
                         sk_compiled_schedule *out);

/* at: [cells + 1] numbers to fill.  placed: src and dst of the segments are known; without them
 * the sheet holds for the worst places. */
void sk_buffer_layout_make(const sk_compiled_schedule *s, sk_dtype type, const sk_seg *segs,
                           int n_segs, bool placed, int64_t *at, sk_sheet *out);

/* Which members' chunks a buffer holds. */
bool sk_buffer_layout_is_part(sk_coll_kind kind, sk_space space);
/* Bytes of n cells in a row from this chunk on. */
int64_t sk_buffer_layout_span(const sk_sheet *s, int chunk, int n);
/* Bytes of everything in SK_SRC or SK_DST. */
int64_t sk_buffer_layout_bytes(const sk_sheet *s, sk_space space);

typedef enum sk_pack_direction { SK_PACK, SK_UNPACK } sk_pack_direction;
/* Between the segments in the heap at base and cells in a row at `cells`. */
void sk_buffer_layout_pack(const sk_sheet *s, const sk_seg *segs, int n_segs, sk_space space,
                           sk_pack_direction way, char *base, char *cells);

#endif
